"""`python -OO` strips docstrings: what rlviz says and does must not come from one.

Asked of rlviz without transformers, which itself refuses to be imported without its docstrings (5.23: "No `Args` or `Parameters`
section is found in the docstring"); so training and the widgets need an interpreter that keeps them.
"""

import contextlib
import io
import json
import subprocess
import sys

# asked of this interpreter and of one without docstrings: each answer is a text, and must be the same
SCRIPT = """
import json
from typer.testing import CliRunner
from rlviz import ALGORITHMS, DCPO, GRPO, differences, good_actions, train_table
from rlviz.algorithms import family_table
from rlviz.cli import app
from rlviz.pictures.clip import explore_clip

shown = CliRunner().invoke(app, ["show", "dcpo", "--against", "grpo"])
answers = {
    "differences": [str(row) for a in ALGORITHMS for b in ALGORITHMS for row in differences(a, b)],
    "table of the family": family_table().to_csv(),
    "rlviz show": [shown.exit_code, shown.output],
    "formulas": [GRPO.surrogate.formula, DCPO.surrogate.formula],
    "picture": explore_clip().caption,
    "a run on a table": str(train_table(DCPO, good_actions(), steps=3).entropy),
}
helps = {}
for arguments in (["--help"], ["train", "--help"], ["show", "--help"], ["compare", "--help"]):
    answer = CliRunner().invoke(app, arguments)
    helps[" ".join(arguments)] = [answer.exit_code, "--help" in answer.output]
print(json.dumps({"answers": answers, "helps": helps}))
"""


def test_without_docstrings_every_answer_is_the_same():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(SCRIPT, {})
    command = [sys.executable, "-OO", "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    with_them, without = json.loads(out.getvalue()), json.loads(done.stdout)
    for question, answer in with_them["answers"].items():
        assert answer == without["answers"][question], question
    assert all(with_them["answers"].values())
    differences, page = with_them["answers"]["differences"], with_them["answers"]["rlviz show"]
    assert len(differences) > 100 and not any("does not say" in row for row in differences)
    assert page[0] == 0 and "clip" in page[1]
    assert with_them["answers"]["formulas"][0] == "min(ratio · advantages, clip(ratio, lower, upper) · advantages)"
    for answers in (with_them, without):  # of the help each has its own width
        assert answers["helps"] and all(code == 0 and helps for code, helps in answers["helps"].values())
