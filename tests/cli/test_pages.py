"""`rlviz inspect` and `rlviz playground`: what a person gets back for a wrong value, and that nothing is left behind."""

import pytest

from rlviz import GRPO, TrainSettings, train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("pages") / "run"
    for _ in train("chain", GRPO, TrainSettings(steps=2, num_prompts=2, group_size=2, evaluate_every=0), out=out):
        pass
    return out


def test_a_run_is_written_beside_its_records(rlviz, run):
    result = rlviz("inspect", run)
    page = run / "inspector.html"
    assert result.exit_code == 0 and str(page) in "".join(result.output.split("\n"))
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("command", [("inspect", "RUN"), ("playground", "--tables", "--no-browser")])
@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("page.pdf", "must end in .html; got"),
        ("no/folder/page.html", "no/folder/page.html cannot be written or read (No such file or directory)"),
    ],
)
def test_a_page_that_cannot_be_written(rlviz, run, tmp_path, command, out, words):
    result = rlviz(*(run if word == "RUN" else word for word in command), "--out", tmp_path / out)
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []
