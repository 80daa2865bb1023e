"""What a command prints: no character of a file or of its name that a terminal would obey."""

import json

import nbformat
import pytest

from small_models.sampling import Samples

ESC = "\x1b[31mred\x1b]0;title\x07\x9b2J"
REFUSED = (  # all commands refuse in one place: a name that Python shows, one that the system does, one that is none
    ("train", "--resume", "{}"),
    ("explain", "{}.yaml"),
    ("playground", "--out", "{}.pdf"),
)


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_a_refusal_obeys_no_path(rlviz, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = rlviz(*(part.replace("{}", ESC) for part in command))
    assert result.exit_code == 2 and "red" in result.output, result.output
    assert not set(result.output) & set("\x1b\x07\x9b")


def test_an_imported_log_says_its_names_and_no_terminal_obeys_them(rlviz, tmp_path):
    log = tmp_path / f"{ESC}.jsonl"
    log.write_text(json.dumps({"step": 1, "data": {"critic/rewards/mean": 0.3, f"{ESC}[bold]": 1}}), encoding="utf-8")
    result = rlviz("import", log, "--out", tmp_path / f"{ESC}run")
    assert result.exit_code == 0 and "red" in result.output and "[bold]" in result.output, result.output
    assert not set(result.output) & set("\x1b\x07\x9b")


def test_what_a_policy_writes_is_shown_and_not_obeyed(rlviz, tmp_path, monkeypatch):
    written = Samples.texts
    hostile = lambda *arguments: [[f"{ESC}\n{text}1[bold]" for text in row] for row in written(*arguments)]  # noqa: E731
    monkeypatch.setattr(Samples, "texts", hostile)
    result = rlviz("train", "--steps", 1, "--num-prompts", 2, "--group-size", 2, "--out", tmp_path / f"{ESC}run")
    assert result.exit_code == 0 and "1[bold]" in result.output, result.output
    assert not set(result.output) & set("\x1b\x07\x9b")


@pytest.mark.parametrize("command", ["predictions", "grade", "course", "lab"])
def test_a_name_is_printed_without_what_a_terminal_would_obey(command, rlviz, tmp_path, monkeypatch):
    folder = tmp_path / "a\x1b]0;owned\x07\x1b[2J\u202e[b]"  # sets a title, wipes the screen, turns the writing round
    folder.mkdir()
    guesses = {"lesson": "tiny", "predictions": {"a": {"question": "a?", "guess": 0.5}}}
    (tmp_path / "tiny.json").write_text(json.dumps(guesses))
    (folder / "tiny.json").write_text("{")
    (folder / "00_start_here.ipynb").write_text("mine")
    (tmp_path / "lessons").mkdir()
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "lessons" / "tiny.ipynb")
    monkeypatch.setattr("rlviz.cli.lab.serve", lambda command: 0)
    calls = {
        "predictions": (tmp_path, "--lesson", "tiny", "--out", folder / "room.png"),
        "grade": (tmp_path, "--lessons", tmp_path / "lessons", "--out", tmp_path / "grades.csv"),
        "course": ("--edition", "student", "--out", folder),
        "lab": ("--dir", folder),
    }
    result = rlviz(command, *calls[command])
    assert result.exit_code == 0, result.output
    printed = result.output.replace("\n", "")
    assert "a�]0;owned��[2J�[b]" in printed and printed.isprintable()
