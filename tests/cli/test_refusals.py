"""What a person gets back for a wrong value or folder: one sentence, exit code 2, and nothing written or changed.

What the library refuses by itself has its rows in tests/refusals; here are those that a command makes, and one of each kind that
it passes on.
"""

import errno
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

from rlviz import GRPO, TrainSettings, train
from rlviz.cli import app
from small_models.policies import build_policy, load_policy
from tests.refusals.sentence import check_sentence

TRAIN = (
    ("--algorithm grop", "algorithm 'grop' is not known; did you mean grpo"),
    ("--algorithm gspo --group-size 1", "group_size must be at least 2 for GSPO"),
    ("--policy damaged_policy", "cannot be read"),
    ("--out another", "is not empty"),
    ("--out /proc/nothing/can/be/made/here", "out: /proc/nothing/can/be/made/here cannot be made or written"),
    ("--out a_file", "is a file"),
    ("--resume another --lr 1", "--lr cannot be given with --resume"),
    ("--resume another --seed 0", "--seed cannot be given with --resume"),  # its default, but said
    ("--resume empty", "holds no run"),
    ("--lr fast", "--lr must be a number; got 'fast'"),
    ("--spurious .5", "--pairs, --num-pairs, --label-noise and --spurious are for DPO or with --reward learned"),
    ("--algorithm dpo --pairs nowhere.jsonl", "nowhere.jsonl cannot be written or read"),
    ("--algorithm dpo --pairs broken.jsonl", "line 2"),
    ("--algorithm ppo --supervision process", "is for algorithms of groups, such as GRPO; got PPO"),
)
COMPARE = (
    ("", "give --algorithms, such as grpo,dapo, or folders of runs"),
    ("--algorithms grpo --seeds 5000000", "seeds must be from 1 to 10,000; got 5000000"),
    ("--algorithms grpo --out /proc/nothing/can/be/made/here", "cannot be made or written"),
    ("nowhere --lr 1", "--lr cannot be given with run folders"),
)
MAP = (
    ("--x speed", "x 'speed' is not known"),
    ("--algorithm ppo", "algorithm must learn from groups of responses, as GRPO does; got PPO"),
    ("--cells 12", "--cells must be columns x rows, such as 12x12; got '12'"),
    ("--groups 4", "--groups cannot be given with an axis of that name"),
)
PLOT = (
    ("gae --answer maybe", "answer must be one of right, wrong; got 'maybe'"),
    ("aggregation --lengths 3,x", "--lengths must be whole numbers with commas; got '3,x'"),
    ("clip --out a.gif", "out must end in .png, .svg, .pdf or .html; got a.gif"),
    ("clip --out /proc/nothing/a.html", "cannot be written or read"),
)
DIAGNOSE = (
    ("trl", "checkpoint-10/trainer_state.json has none of the metrics of TRL or verl"),  # the newest
    ("no_step", "has no step yet, so there is nothing to diagnose"),
    ("damaged", "metrics.jsonl, line 1: step must be a whole number"),
    ("no_settings", "config.json: settings must be an object"),
    ("plan_alone", "holds a comparison of which no run has a step yet"),
)
OTHERS = (
    ("explain broken.yaml", ""),
    ("explain beta.yaml", "say which with kind"),
    ("inspect run --out page.pdf", "must end in .html; got"),
    ("inspect run --out no/folder/page.html", "no/folder/page.html cannot be written or read (No such file"),
    ("site --out another", "holds config.json, which is neither"),
    ("experiment", "give the name of one experiment, or --all"),
    (
        "course --edition read --out new --solutions-from 2027-01-15",
        "--solutions-from goes with --edition student; got",
    ),
    ("grade . --out grades.txt", "--out must be a file that ends in .csv; got grades.txt"),
    ("grade . --out no/folder/grades.csv", "--out must lie in a folder that exists; no/folder is none"),
)
ROWS = [
    (f"{command} {options}", sentence)
    for command, rows in {
        "train --steps 1": TRAIN,
        "compare": COMPARE,
        "map --replicas 3 --steps 3 --cells 2x2 --jobs 1": MAP,
        "plot": PLOT,
        "diagnose": DIAGNOSE,
        "": OTHERS,
    }.items()
    for options, sentence in rows
]


def _new(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with files and runs of somebody, of which some are damaged."""
    folder = tmp_path_factory.mktemp("refused")
    settings = TrainSettings(steps=2, num_prompts=2, group_size=2, evaluate_every=0)
    for _ in train(load_policy("chain", device="cpu"), "chain", GRPO, settings, out=folder / "run"):
        pass
    for name in ("no_step", "damaged", "no_settings"):
        shutil.copytree(folder / "run", folder / name)
    config = json.loads((folder / "run" / "config.json").read_text())
    texts = {
        "no_step/metrics.jsonl": "",
        "damaged/metrics.jsonl": '{"step": "one"}\n{}\n',
        "no_settings/config.json": json.dumps({**config, "settings": 3}),
        "plan_alone/comparison.json": "{}",
        # TRL's own folder: checkpoints, and beside them the model that it saved, whose file has the name of ours
        "trl/checkpoint-5/trainer_state.json": '{"log_history": []}',
        "trl/checkpoint-10/trainer_state.json": '{"log_history": []}',
        "trl/config.json": '{"model_type": "llama"}',
        "another/config.json": '{"a run": "of somebody"}',
        "a_file": "somebody's",
        "broken.jsonl": '{"prompt": "00001=", "chosen": "#1", "rejected": "#2"}\n{oops',
        "broken.yaml": "beta: [",
        "call.yaml": "GRPOConfig(",
        "beta.yaml": "beta: 0.1",
    }
    for name, text in texts.items():
        _new(folder / name, text)
    (folder / "empty").mkdir()
    build_policy().save(folder / "damaged_policy")
    (folder / "damaged_policy" / "model.safetensors").write_bytes(b"not weights")
    return folder


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("command", "sentence"), ROWS)
def test_bad_input_gets_one_sentence_and_exit_code_2(rlviz, command, sentence, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = _files(folder)
    result = rlviz(*shlex.split(command))
    check_refused(result, sentence)
    assert _files(folder) == before


def check_refused(result, *words):
    """Fail unless a command ended with one sentence in which these words stand."""
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert line.startswith("Error: ")
    check_sentence(line, *words)


def numeric_options():
    """Return each option of a number, by the last command that has it and what that needs beside."""
    needed = {"plot": "clip", "experiment": "starved", "export": "grpo --to trl"}
    return {
        parameter.opts[0]: f"{name} {needed.get(name, '')}"
        for name, command in get_command(app).commands.items()
        for parameter in command.params
        if parameter.metavar in ("<int>", "<float>")
    }


@pytest.mark.parametrize(("option", "command"), numeric_options().items())
def test_an_option_of_a_number_refuses_a_word(rlviz, option, command):
    check_refused(rlviz(*command.split(), option, "ten"), f"{option} must be a", "number", "got 'ten'")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train --epsilon .2", "No such option: --epsilon"),
        ("train --num-promts 3", "--num-prompts"),
        ("plot clip --nonsense 1", "No such option: --nonsense"),
        ("plot clip --eps-hig .5", "No such option: --eps-hig (Possible options: --eps-high"),
    ],
)
def test_what_is_no_option_is_refused_too(rlviz, command, words):
    result = rlviz(*shlex.split(command))
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("command", "writer", "named"),
    [
        ("plot clip --out a.png", "matplotlib.figure.Figure.savefig", "the picture"),
        ("map --replicas 3 --steps 2 --cells 1x1 --jobs 1", "os.fsync", "the map"),
        ("site --out site", "rlviz.site.build.build", "the site"),
        ("grade .", "rlviz.lessons.grading.grades", "the grades"),
        ("train --steps 1", "rlviz.training.train", "a file of the run"),
    ],
)
def test_a_full_disk_is_told_with_what_was_being_written(rlviz, command, writer, named, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(writer, full)
    result = rlviz(*shlex.split(command))
    assert result.exit_code == 2, result.output
    assert f"Error: {named} cannot be written or read (No space left on device)" in " ".join(result.output.split())


def test_a_refused_run_leaves_no_folder(rlviz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlviz.training.train", lambda *_, **__: (_ for _ in ()).throw(ValueError("refused late")))
    assert rlviz("train", "--steps", 1).exit_code == 2
    assert list(Path().rglob("*")) == [Path("runs")]
