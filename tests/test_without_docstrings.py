"""`python -OO` strips docstrings: what rlviz says and does must not come from one.

Asked of rlviz without transformers, which itself refuses to be imported without its docstrings (5.23: "No `Args` or `Parameters`
section is found in the docstring"); so training and the widgets need an interpreter that keeps them.
"""

import contextlib
import io
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.quick(0)  # an interpreter for all of its tests

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


def asked_here():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(SCRIPT, {})
    return json.loads(out.getvalue())


def asked_without():
    done = subprocess.run(
        [sys.executable, "-OO", "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def told():
    """Return what is told with docstrings, and without them."""
    return asked_here(), asked_without()


@pytest.mark.parametrize(
    "question", ["differences", "table of the family", "rlviz show", "formulas", "picture", "a run on a table"]
)
def test_the_answer_is_the_same_without_docstrings(told, question):
    with_them, without = (answers["answers"][question] for answers in told)
    assert with_them
    assert without == with_them


def test_the_answers_are_no_empty_words(told):
    for answers in (each["answers"] for each in told):
        assert len(answers["differences"]) > 100 and not any("does not say" in row for row in answers["differences"])
        assert answers["rlviz show"][0] == 0 and "clip" in answers["rlviz show"][1]
        assert answers["formulas"][0] == "min(ratio · advantages, clip(ratio, lower, upper) · advantages)"


def test_the_command_line_helps_without_docstrings(told):
    for answers in told:
        assert answers["helps"] and all(code == 0 and shown for code, shown in answers["helps"].values())
