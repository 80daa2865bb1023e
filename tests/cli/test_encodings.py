"""Each command writes into a file of any encoding, as Windows' cp1252 or gbk, and what it makes is UTF-8 all the same."""

import ast
import io
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import nbformat
import pytest

from rlviz.cli import app, lab, main
from rlviz.site import build

ENCODINGS = ("cp1252", "gbk", "ascii")
SMALL = ("--num-prompts", 2, "--group-size", 4)
COMMANDS = {  # in the order in which they need each other's files
    "help": ("--help",),
    "lab": ("lab", "--dir", "course–1", "--no-browser"),
    "playground": ("playground", "--no-browser"),
    "train": ("train", *SMALL, "--steps", 2, "--out", "run–1"),
    "algorithms": ("algorithms",),
    "relatives": ("algorithms", "--relatives", "--format", "json"),
    "show against as json": ("show", "dcpo", "--against", "grpo", "--format", "json"),
    "show": ("show", "gspo-token"),
    "show against": ("show", "gspo-token", "--against", "grpo"),
    "plot": ("plot", "clip", "--out", "plot.png"),
    "compare": ("compare", "--algorithms", "grpo,dapo", *SMALL, "--seeds", 2, "--amount", 16, "--jobs", 1),
    "compare as json": ("compare", "runs/compare-001", "--format", "json"),
    "experiment": ("experiment", "kl_estimators", "--seeds", 2, "--jobs", 1, "--out", "claims"),
    "experiments": ("experiment", "--list"),
    "map": ("map", "--replicas", 3, "--steps", 3, "--x-values", "1,4", "--y-values", "1,2", "--jobs", 1),
    "inspect": ("inspect", "run–1"),
    "diagnose": ("diagnose", "run–1"),
    "diagnose as json": ("diagnose", "run–1", "--format", "json"),
    "export": ("export", "dapo", "--to", "trl", "--set", "max_length=64", "--set", "cache=16", "--out", "dapo.py"),
    "export to verl": ("export", "dcpo", "--to", "verl", "--out", "dcpo.yaml"),
    "export as json": ("export", "gspo", "--to", "trl", "--format", "json"),
    "export a run": ("export", "run–1", "--to", "trl", "--out", "run.py"),
    "explain": ("explain", "dcpo.yaml"),
    "explain as json": ("explain", "dapo.py", "--format", "json"),
    "import": ("import", "log–1.jsonl", "--out", "imported"),
    "cost": ("cost", *SMALL, "--repeats", 1, "--device", "cpu"),
    "site": ("site", "--out", "site"),
    "course": ("course", "--edition", "student", "--out", "edition"),
    "predictions": ("predictions", "room", "--lesson", "tiny", "--out", "room.png"),
    "grade": ("grade", "handed_in", "--lessons", "lessons", "--out", "grades.csv"),
    "refused": ("train", "--policy", "no–policy"),
}
JSON = [name for name in COMMANDS if name.endswith("json") or name == "relatives"]


@pytest.fixture(scope="module", params=ENCODINGS)
def written(request, tmp_path_factory):
    """Return the encoding, the folder, and by command its exit code, stdout and stderr, as bytes."""
    folder = tmp_path_factory.mktemp(request.param)
    answers = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(lab, "serve", lambda command, **folders: 0)
        patch.setattr(build, "build", lambda out, source: out.mkdir() or [])
        _hand_in()
        for name, arguments in COMMANDS.items():
            answers[name] = _answer(patch, request.param, arguments)
    return request.param, folder, answers


def _hand_in(source="'−'"):
    cells = [nbformat.v4.new_code_cell(source)]
    for place in ("handed_in/Zoë–李/tiny.ipynb", "lessons/tiny.ipynb"):
        Path(place).parent.mkdir(parents=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), place)
    told = {"which": {"question": "Which − of both?", "guess": 0.5, "result": 0.2, "at": ""}}
    logged = {"step": 1, "data": {"critic/rewards/mean": 0.3, "val−own": 1}}
    Path("log–1.jsonl").write_text(json.dumps(logged, ensure_ascii=False), encoding="utf-8")
    Path("room").mkdir()
    Path("room/tiny.json").write_text(json.dumps({"lesson": "tiny", "predictions": told}), encoding="utf-8")


def _answer(patch, encoding, arguments):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace")]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        patch.setattr(sys, name, stream)
    patch.setattr(sys, "argv", ["rlviz", *map(str, arguments)])
    code = None
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except Exception:
        traceback.print_exc()
    for stream in streams:
        stream.flush()
    return code, *(stream.buffer.getvalue() for stream in streams)


@pytest.mark.quick(0)  # all commands run for each encoding, a quarter of a minute
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_stumbles_over_a_character(written, name):
    encoding, _, answers = written
    code, said, errors = answers[name]
    words = errors.decode(encoding)
    assert "codec" not in words and "Traceback" not in words
    assert code == (2 if name == "refused" else 0), words
    said.decode("utf-8" if name == "show" else encoding)
    assert said or errors or name in ("lab", "playground")
    if name in JSON:
        json.loads(said.decode(encoding))


@pytest.mark.quick(0)
def test_what_is_written_is_utf_8(written):
    _, folder, answers = written
    assert "\N{MINUS SIGN}" in ast.get_docstring(ast.parse((folder / "dapo.py").read_bytes()))
    page = answers["show"][1].decode("utf-8")
    assert not page.isascii()
    compile(page, "gspo_token.py", "exec")
    assert "Zoë–李" in (folder / "grades.csv").read_text(encoding="utf-8")
    for file in (
        "dcpo.yaml",
        "run.py",
        "grades.html",
        "claims/kl_estimators.csv",
        "run–1/config.json",
        "run–1/inspector.html",
    ):
        (folder / file).read_text(encoding="utf-8")


def test_all_commands_are_asked():
    names = {command.name or command.callback.__name__.strip("_") for command in app.registered_commands}
    assert names == {arguments[0] for arguments in COMMANDS.values()} - {"--help"}


@pytest.mark.parametrize("command", sorted({arguments[0] for arguments in COMMANDS.values()} - {"--help"}))
def test_help_in_ascii(command, monkeypatch):
    code, said, _ = _answer(monkeypatch, "ascii", (command, "--help"))
    assert code == 0 and said.isascii() and b"Usage" in said


@pytest.mark.parametrize("encoding", [*ENCODINGS, "latin-1"])
def test_in_a_process_of_its_own(encoding, tmp_path):
    """As a shell on Windows starts it, with its output in a file."""
    command = [sys.executable, "-m", "rlviz", "export", "dapo", "--to", "trl", "--out", "dapo.py"]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\\u2212" in done.stdout.decode(encoding)
    ast.parse((tmp_path / "dapo.py").read_bytes())


def test_a_notebook_prints_what_the_console_lacks(tmp_path, monkeypatch):
    """What it prints is thrown away, so it may be anything."""
    monkeypatch.chdir(tmp_path)
    _hand_in("print('−')")
    command = [sys.executable, "-m", "rlviz", "grade", "handed_in", "--lessons", "lessons", "--out", "grades.csv"]
    subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert "Error" not in Path("grades.csv").read_text(encoding="utf-8")
