"""What a command prints: no character of a file or of its name that a terminal would obey."""

import json

import pytest

from small_models.sampling import Samples

ESC = "\x1b[31mred\x1b]0;title\x07\x9b2J"
REFUSED = (  # the commands that take a path
    ("train", "--resume", "{}"),
    ("train", "--task", "{}.jsonl", "--rule", "exact", "--policy", "chain"),
    ("compare", "{}"),
    ("inspect", "{}"),
    ("inspect", "{}", "--out", "{}.pdf"),
    ("diagnose", "{}"),
    ("export", "{}/run", "--to", "trl"),
    ("explain", "{}.yaml"),
    ("import", "{}"),
    ("plot", "clip", "--out", "{}.gif"),
    ("map", "--out", "{}.gif"),
    ("playground", "--out", "{}.pdf"),
    ("site", "--out", "{}.file"),
)


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_a_refusal_obeys_no_path(rlviz, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{ESC}.file").touch()
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
    hostile = lambda *given: [[f"{ESC}\n{text}1[bold]" for text in row] for row in written(*given)]  # noqa: E731
    monkeypatch.setattr(Samples, "texts", hostile)
    result = rlviz("train", "--steps", 1, "--num-prompts", 2, "--group-size", 2, "--out", tmp_path / f"{ESC}run")
    assert result.exit_code == 0 and "1[bold]" in result.output, result.output
    assert not set(result.output) & set("\x1b\x07\x9b")
