"""What a person gets back for a wrong value or folder: one sentence, exit code 2, and nothing written or changed.

What the library refuses by itself has its rows in tests/refusals; here are those that a command makes, and one of each kind that
it passes on.
"""

import errno
import os
import shlex
import shutil
from pathlib import Path

import pytest

from rlviz import GRPO, TrainSettings, train
from small_models.policies import build_policy, load_policy
from tests.refusals.sentence import check_sentence

TRAIN = (
    ("--algorithm grop", "algorithm 'grop' is not known; did you mean grpo"),
    ("--policy damaged_policy", "cannot be read"),
    ("--out another", "is not empty"),
    ("--out /proc/nothing/can/be/made/here", "out: /proc/nothing/can/be/made/here cannot be made or written"),
    ("--resume another --seed 0", "--seed cannot be given with --resume"),
    ("--resume empty", "holds no run"),
    ("--lr fast", "--lr must be a number; got 'fast'"),
    ("--num-pairs 5", "--pairs and --num-pairs are for DPO or with --reward learned"),
    ("--algorithm dpo --pairs broken.jsonl", "line 2"),
    ("--algorithm ppo --supervision process", "is for algorithms of groups, such as GRPO; got PPO"),
)
COMPARE = (
    ("", "give --algorithms, such as grpo,dapo, or folders of runs"),
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
    ("aggregation --lengths 3,x", "--lengths must be a whole number; got 'x'"),
    ("clip --eps-high wide", "--eps-high must be a number; got 'wide'"),
    ("clip --out a.gif", "--out must end in .png, .svg, .pdf, .html; got a.gif"),
    ("clip --out /proc/nothing/a.html", "cannot be written or read"),
)
DIAGNOSE = (
    ("trl", "checkpoint-10/trainer_state.json has none of the metrics that are known"),  # the newest
    ("no_step", "has no step yet, so there is nothing to diagnose"),
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
    shutil.copytree(folder / "run", folder / "no_step")
    texts = {
        "no_step/metrics.jsonl": "",
        "plan_alone/comparison.json": "{}",
        # TRL's own folder: checkpoints, and beside them the model that it saved, whose file has the name of ours
        "trl/checkpoint-5/trainer_state.json": '{"log_history": []}',
        "trl/checkpoint-10/trainer_state.json": '{"log_history": []}',
        "trl/config.json": '{"model_type": "llama"}',
        "another/config.json": '{"a run": "of somebody"}',
        "broken.jsonl": '{"prompt": "00001=", "chosen": "#1", "rejected": "#2"}\n{oops',
        "broken.yaml": "beta: [",
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
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.stderr.splitlines() if line]
    assert line.startswith("Error: ")
    check_sentence(line, sentence)
    assert _files(folder) == before


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train --epsilon .2", "No such option: --epsilon"),
        ("train --num-promts 3", "--num-prompts"),
        ("train --critic joint", "'joint' is not one of 'separate',"),
        ("plot clip --nonsense 1", "No such option: --nonsense"),
        ("plot clip --eps-hig .5", "No such option: --eps-hig (Possible options: --eps-high"),
    ],
)
def test_what_is_no_option_is_refused_too(rlviz, command, words):
    result = rlviz(*shlex.split(command))
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())


def test_a_full_disk_is_told_in_a_sentence(rlviz, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    result = rlviz("plot", "clip", "--out", tmp_path / "a.png")
    assert result.exit_code == 2, result.output
    assert f"Error: {tmp_path / 'a.png'} cannot be written or read (No space left on device)" in result.output


def test_a_refused_run_leaves_no_folder(rlviz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlviz.training.train", lambda *_, **__: (_ for _ in ()).throw(ValueError("refused late")))
    assert rlviz("train", "--steps", 1).exit_code == 2
    assert list(Path().rglob("*")) == [Path("runs")]
