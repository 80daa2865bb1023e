"""A verdict offers the solution after an attempt that did not pass, where the solutions lie beside the notebook that runs."""

import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.lessons import check

LINK = '<a href="solutions/01_policy%20gradients.ipynb">Show a solution</a>'
WRONG = check.reinforce(lambda logp, mask, R, b: (R * logp[:, 0]).sum())


@pytest.fixture
def solutions(tmp_path, monkeypatch):
    """The folder of solutions beside a notebook that runs in JupyterLab."""
    folder = tmp_path / "solutions"
    folder.mkdir()
    (folder / "01_policy gradients.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JPY_SESSION_NAME", "/anywhere/01_policy gradients.ipynb")
    return folder


def test_an_attempt_that_does_not_pass_is_followed_by_a_link_to_the_solution(solutions):
    assert LINK in WRONG._repr_html_()
    assert LINK in check.unlabelled("grpo", "a")._repr_html_()
    assert LINK in check.bug("grpo", line=1, does="a")._repr_html_()


def test_who_has_not_tried_who_has_passed_and_who_has_no_solutions_gets_no_link(solutions, monkeypatch):
    untouched = [
        check.reinforce(lambda *inputs: None),
        check.grader(lambda *inputs: None),
        check.unlabelled("grpo", ""),
        check.bug("grpo", line=0, does=""),
    ]
    passed = [check.unlabelled("grpo", "d"), check.bug("grpo", line=3, does="b")]
    assert [one.passed for one in (*untouched, *passed)] == [False] * 4 + [True] * 2
    assert not [one for one in (*untouched, *passed) if "solution" in one._repr_html_()]
    assert LINK not in WRONG.markup  # as the site has it
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert LINK not in WRONG._repr_html_()
    monkeypatch.setenv("JPY_SESSION_NAME", "/anywhere/02_the_ratio.ipynb")
    assert LINK not in WRONG._repr_html_()


def test_a_student_s_course_gets_its_solutions_on_the_day_that_is_named(tmp_path, monkeypatch):
    source = tmp_path / "source"
    (source / "solutions").mkdir(parents=True)
    for name in ("glossary.md", "solutions/extra.md"):
        (source / name).write_text("a text")
    monkeypatch.setattr("rlviz.cli.course.course_source", lambda: source)

    def run(*options):
        result = CliRunner().invoke(app, ["course", "--out", str(tmp_path / "out"), *options])
        return result.output, {file.name for file in (tmp_path / "out").rglob("*.md")}

    output, names = run("--edition", "student", "--solutions-from", "9999-01-15")
    assert names == {"glossary.md"} and "the same call writes them from 9999-01-15 on" in output.replace("\n", " ")
    _, names = run("--edition", "student", "--solutions-from", "2020-01-15")
    assert names == {"glossary.md", "extra.md"}
    _, names = run("--edition", "student")
    assert names == {"glossary.md"}
