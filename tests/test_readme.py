"""The README and those of the folders are true: code runs, commands and options exist; all links of all pages hold."""

import re
import runpy
import shlex
import sys
from functools import cache
from pathlib import Path
from unittest.mock import MagicMock
from urllib.parse import unquote

import nbformat
import pytest
from typer.main import get_command

from rlviz.cli import app
from rlviz.cli.plot import picture_command

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = ("notebooks", "rlviz", "small_models")  # beside them may stand what `rlviz lab` and others left here
PAGES = {
    path: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *(page for name in FOLDERS for page in sorted((ROOT / name).rglob("README.md"))))
}
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
LINKING = [ROOT / "README.md", CONTRIBUTING]
LINKING += [page for name in FOLDERS for page in sorted((ROOT / name).rglob("*")) if page.suffix in (".md", ".ipynb")]
SHELL = [block for page in PAGES.values() for block in re.findall(r"```sh\n(.*?)\n```", page, re.S)]
PYTHON = [block for page in PAGES.values() for block in re.findall(r"```python\n(.*?)\n```", page, re.S)]


def test_ci_runs_the_two_commands_of_the_readme():
    opens, tests = SHELL[:2]
    assert opens.endswith("rlviz lab") and tests.endswith("pytest -n auto --dist loadscope")
    assert all(" install -c constraints.txt -e " in command for command in (opens, tests))
    assert "README.md" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("code", PYTHON, ids=[code.splitlines()[-1] for code in PYTHON])
def test_the_code_runs(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for logger in ("wandb", "torch.utils.tensorboard"):  # which are not rlviz's packages
        monkeypatch.setitem(sys.modules, logger, MagicMock())
    exec(compile(code, "README.md", "exec"), {"__name__": "__readme__"})


def test_commands_and_options_exist():
    commands = get_command(app).commands
    seen = 0
    for line in "\n".join(SHELL[2:]).splitlines():
        program, name, *arguments = shlex.split(line)
        assert program == "rlviz"
        command = (
            picture_command(arguments[0]) if name == "plot" else commands[name]
        )  # a picture has options of its own
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word for word in arguments if word.startswith("--")} <= options, line
        seen += 1
    assert seen >= 4


def markdown(path):
    """Return the text of a page, or of the cells of a notebook that have one."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    return "\n".join(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown")


def plain(title):
    """Return a heading's letters and digits, in which the anchors of GitHub and of Jupyter agree."""
    return re.sub(r"[\W_]", "", unquote(title)).casefold()


@cache
def headings(path):
    return {plain(title) for title in re.findall(r"^#+ (.+)$", markdown(path), re.M)}


@pytest.mark.parametrize("path", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_headings_named_exist(path):
    text = markdown(path)
    for target, heading in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", text):
        linked = path.parent / target if target else path
        assert linked.exists(), target
        assert not heading or plain(heading) in headings(linked), f"{target}#{heading}"
    for target in re.findall(r"`((?:rlviz|small_models|notebooks|tests|\.ci)/[\w./]*)`", text):
        assert (ROOT / target).exists(), target


def test_the_benchmark_that_the_readme_names_still_runs(capsys):
    """On its case that needs no TRL: one pair of runs of one step."""
    assert "tests/benchmarks/bench_trl.py" in README
    runpy.run_path(str(ROOT / "tests" / "benchmarks" / "bench_trl.py"))["main"]("lookup", 1, 1)
    output = capsys.readouterr().out
    assert "median ratio by the processor" in output and "mean reward by step, ours and before" in output


def test_the_pages_are_all_found_and_linked():
    assert len(PAGES) == 10
    linked = README + CONTRIBUTING.read_text(encoding="utf-8")
    assert all(str(path.relative_to(ROOT)) in linked for path in PAGES if path.parent != ROOT)
