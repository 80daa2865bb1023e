"""All commands: their help, what each answers, and that no character stumbles over the encoding of a console or of a file."""

import ast
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from click import unstyle
from typer.testing import CliRunner

from rlviz.cli import COMMANDS, app, lab, main
from rlviz.site import build
from small_models.tasks import TASKS

NAMES = [command.__name__.strip("_") for command in COMMANDS]
SMALL = ("--num-prompts", 2, "--group-size", 4)


def test_version(rlviz):
    assert rlviz("--version").output.startswith("rlviz ")


@pytest.mark.parametrize("command", ["train", "compare"])
def test_help_names_every_task(rlviz, command):
    said = " ".join(unstyle(rlviz(command, "--help").output).replace("│", " ").split())
    assert f"Task: {', '.join(task.name for task in TASKS)}." in said


def hand_in(source):
    """Write notebooks of one cell for `rlviz grade`: a lesson, and what a student made of it."""
    for place in ("handed_in/Zoë–李/tiny.ipynb", "lessons/tiny.ipynb"):
        Path(place).parent.mkdir(parents=True)
        nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)]), place)


def predicted():
    told = {"which": {"question": "Which − of both?", "guess": 0.5, "result": 0.2, "at": ""}}
    Path("room").mkdir()
    Path("room/tiny.json").write_text(json.dumps({"lesson": "tiny", "predictions": told}), encoding="utf-8")


def logged():
    row = {"step": 1, "data": {"critic/rewards/mean": 0.3, "val−own": 1}}
    Path("log–1.jsonl").write_text(json.dumps(row, ensure_ascii=False), encoding="utf-8")


def answer(patch, encoding, *arguments):
    """Return the exit code of the whole program, and what it writes to stdout and stderr of this encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace")]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        patch.setattr(sys, name, stream)
    patch.setattr(sys, "argv", ["rlviz", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    for stream in streams:
        stream.flush()
    return ended.value.code, *(stream.buffer.getvalue().decode(encoding) for stream in streams)


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
    made, written = ANSWERED[arguments]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "serve", lambda command: 0)
    monkeypatch.setattr(build, "build", lambda out, source: out.mkdir() or [])
    if made:
        made()
    code, _, errors = answer(monkeypatch, "ascii", *arguments)
    assert code == 0, errors
    assert Path(written).exists()


@pytest.mark.parametrize("command", NAMES)
def test_help_in_ascii(command, monkeypatch):
    code, said, _ = answer(monkeypatch, "ascii", command, "--help")
    assert code == 0 and said.isascii() and "Usage" in said


def test_what_the_console_lacks_is_spelled_out_and_a_page_of_python_is_utf_8(monkeypatch):
    code, said, _ = answer(monkeypatch, "cp1252", "show", "gspo-token", "--against", "grpo")
    assert code == 0 and "\\u03a3" in said  # Σ
    code, said, _ = answer(monkeypatch, "gbk", "show", "dcpo", "--against", "grpo", "--format", "json")
    assert code == 0 and json.loads(said)["against"] == "GRPO"
    code, _, errors = answer(monkeypatch, "ascii", "train", "--policy", "no–policy")
    assert code == 2 and "\\u2013" in errors and "Traceback" not in errors


def test_a_page_of_python_is_utf_8_in_any_console():
    """In a process of its own, as a shell on Windows starts it, with its output in a file."""
    command, environment = (
        [sys.executable, "-m", "rlviz", "show", "gspo-token"],
        os.environ | {"PYTHONIOENCODING": "gbk"},
    )
    page = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode("utf-8")
    assert not page.isascii()
    compile(page, "gspo_token.py", "exec")


def test_a_notebook_prints_what_the_console_lacks(rlviz, tmp_path, monkeypatch):
    """What it prints is thrown away, so it may be anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    hand_in("print('−')")
    result = rlviz("grade", "handed_in", "--lessons", "lessons", "--out", "grades.csv")
    assert result.exit_code == 0, result.output
    table = Path("grades.csv").read_text(encoding="utf-8")
    assert "Zoë–李" in table and "Error" not in table


def test_an_exported_script_is_utf_8(rlviz, tmp_path):
    assert rlviz("export", "dapo", "--to", "trl", "--out", tmp_path / "dapo.py").exit_code == 0
    assert "\N{MINUS SIGN}" in ast.get_docstring(ast.parse((tmp_path / "dapo.py").read_bytes()))


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "grpo.yaml"
    path.write_text("num_generations: 8\nbeta: 0.04\nloss_type: grpo\nuse_bias_correction_kl: false\n")
    return path


def test_explain_says_what_a_configuration_is(rlviz, config):
    result = rlviz("explain", config, "--devices", 4)
    assert result.exit_code == 0, result.output
    assert "GRPO, as in its paper." in result.output and "Batch: 4 devices × 8 × 1" in result.output
    told = json.loads(rlviz("explain", config, "--format", "json").output)
    assert (told["algorithm"], told["kind"], told["differs"]) == ("GRPO", "GRPOConfig", [])
    parts = {"slots", "batch", "columns", "first_ten_steps", "without_effect", "symptoms", "unknown", "unread"}
    assert parts <= set(told)
    config.write_text("beta: 0.1")
    assert rlviz("explain", config, "--kind", "DPOConfig").output.startswith("DPOConfig")


def test_explain_reads_what_is_piped_in():
    piped = "actor_rollout_ref.actor.clip_ratio_high=0.28 algorithm.adv_estimator=grpo"
    result = CliRunner().invoke(app, ["explain", "-"], input=piped)
    assert result.exit_code == 0 and result.output.startswith("ppo_trainer.yaml, read as verl")


def test_explain_does_not_obey_what_stands_in_a_file(rlviz, tmp_path):
    (tmp_path / "x.py").write_text("GRPOConfig(num_generations=8, beta=f('\x1b[31m[red]'), **{'[bold]': 1})")
    result = rlviz("explain", tmp_path / "x.py")
    assert result.exit_code == 0 and "\x1b" not in result.output and "[red]" in result.output


ESCAPED = "\x1b]0;owned\x07\x1b[2J\u202e"  # sets a title, wipes the screen, turns the writing round


@pytest.mark.parametrize("command", ["predictions", "grade", "course", "lab", "refusal"])
def test_a_name_is_printed_without_what_a_terminal_would_obey(command, rlviz, tmp_path, monkeypatch):
    folder = tmp_path / f"a{ESCAPED}[b]"
    folder.mkdir()
    told = {"lesson": "tiny", "predictions": {"a": {"question": "a?", "guess": 0.5}}}
    (tmp_path / "tiny.json").write_text(json.dumps(told))
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
        "refusal": (folder / "none", "--lesson", "tiny"),
    }
    result = rlviz("predictions" if command == "refusal" else command, *calls[command])
    assert result.exit_code == (2 if command == "refusal" else 0), result.output
    printed = result.output.replace("\n", "")
    assert "a�]0;owned��[2J�[b]" in printed and printed.isprintable()
