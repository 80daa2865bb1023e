"""All commands: their help, what each answers, and that no character stumbles over the encoding of a console or of a file."""

import io
import json
import sys
from pathlib import Path

import pytest
from click import unstyle
from typer.testing import CliRunner

from rlviz.cli import COMMANDS, app, lab, main
from rlviz.site import build
from small_models.tasks import TASKS


def test_version_and_help_that_names_every_task(rlviz):
    assert rlviz("--version").output.startswith("rlviz ")
    for command in ("train", "compare"):
        words = " ".join(unstyle(rlviz(command, "--help").output).replace("│", " ").split())
        assert f"Task: {', '.join(task.name for task in TASKS)}." in words


def predicted():
    guesses = {"which": {"question": "Which − of both?", "guess": 0.5, "result": 0.2, "at": ""}}
    Path("room").mkdir()
    Path("room/tiny.json").write_text(json.dumps({"lesson": "tiny", "predictions": guesses}), encoding="utf-8")


def logged():
    row = {"step": 1, "data": {"critic/rewards/mean": 0.3, "val−own": 1}}
    Path("log–1.jsonl").write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")


def answer(patch, encoding, *arguments, read_as=None):
    """Return the exit code of the whole program, and what it writes to stdout and stderr of this encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace")]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        patch.setattr(sys, name, stream)
    patch.setattr(sys, "argv", ["rlviz", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    for stream in streams:
        stream.flush()
    return ended.value.code, *(stream.buffer.getvalue().decode(read_as or encoding) for stream in streams)


ANSWERED = {  # those that have no test of their own: command → what makes its files, and what it writes
    ("lab", "--dir", "course–1", "--no-browser"): (None, "course–1/00_start_here.ipynb"),
    ("site", "--out", "site–1"): (None, "site–1"),
    ("course", "--edition", "student", "--out", "edition"): (None, "edition/03_grpo.ipynb"),
    ("predictions", "room", "--lesson", "tiny", "--out", "room.png"): (predicted, "room.png"),
    ("import", "log–1.jsonl", "--out", "imported"): (logged, "imported/learning_curves.png"),
    ("export", "dcpo", "--to", "verl", "--out", "dcpo.yaml"): (None, "dcpo.yaml"),
}


@pytest.mark.parametrize("arguments", ANSWERED, ids=lambda arguments: arguments[0])
def test_a_command_answers_into_a_console_that_knows_ascii_alone(arguments, tmp_path, monkeypatch):
    prepare, written = ANSWERED[arguments]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "serve", lambda command: 0)
    monkeypatch.setattr(build, "build", lambda out, source: out.mkdir() or [])
    if prepare:
        prepare()
    code, _, errors = answer(monkeypatch, "ascii", *arguments)
    assert code == 0, errors
    assert Path(written).exists()


def test_help_in_ascii(monkeypatch):
    for command in COMMANDS:
        code, output, _ = answer(monkeypatch, "ascii", command.__name__.strip("_"), "--help")
        assert code == 0 and output.isascii() and "Usage" in output


def test_what_the_console_lacks_is_spelled_out(monkeypatch):
    code, output, _ = answer(monkeypatch, "cp1252", "show", "gspo-token", "--against", "grpo")
    assert code == 0 and "\\u03a3" in output  # Σ
    code, _, errors = answer(monkeypatch, "ascii", "train", "--policy", "no–policy")
    assert code == 2 and "\\u2013" in errors and "Traceback" not in errors


def test_a_page_of_python_is_utf_8_in_any_console(monkeypatch):
    """Also in a file on Windows, whose Python writes another encoding."""
    code, page, _ = answer(monkeypatch, "gbk", "show", "gspo-token", read_as="utf-8")
    assert code == 0 and not page.isascii()
    compile(page, "gspo_token.py", "exec")


def test_explain_answers_for_people_and_for_programs(rlviz, tmp_path):
    config = tmp_path / "grpo.yaml"
    config.write_text("num_generations: 8\nbeta: 0.04\nloss_type: grpo\nuse_bias_correction_kl: false\n")
    result = rlviz("explain", config, "--devices", 4)
    assert "GRPO, as in its paper." in result.output and "Batch: 4 devices × 8 × 1" in result.output
    answer = json.loads(rlviz("explain", config, "--format", "json").output)
    assert (answer["algorithm"], answer["kind"], answer["differs"]) == ("GRPO", "GRPOConfig", [])
    config.write_text("beta: 0.1")
    assert rlviz("explain", config, "--kind", "DPOConfig").output.startswith("DPOConfig")
    piped = "actor_rollout_ref.actor.clip_ratio_high=0.28 algorithm.adv_estimator=grpo"
    result = CliRunner().invoke(app, ["explain", "-"], input=piped)
    assert result.exit_code == 0 and result.output.startswith("ppo_trainer.yaml, read as verl")
