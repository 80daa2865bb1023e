"""The command line as a person meets it: the main job, each refusal in one sentence, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from small_models.policies import build_policy

RUNNER = CliRunner()
QUICK = ["train", "--steps", "3", "--num-prompts", "4", "--group-size", "4"]


def rlviz(*arguments):
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


def test_a_run_leaves_everything_that_was_promised(tmp_path):
    out = tmp_path / "run"
    result = rlviz(*QUICK, "--algorithm", "grpo", "--task", "chain", "--eps-low", 0.1, "--eps-high", 0.3, "--beta", 0.01,
                   "--lr", 1e-4, "--updates-per-rollout", 2, "--seed", 1, "--device", "cpu", "--out", out)  # fmt: skip
    assert result.exit_code == 0, result.output
    for words in (
        "accuracy, sampled at temperature 1",
        "before",
        "after",
        "Three held-out prompts",
        "learning_curves.png",
    ):
        assert words in result.output
    assert (out / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3
    summary = json.loads((out / "summary.json").read_text())
    assert {"accuracy_before", "accuracy_after", "train_seconds", "tokens_sampled"} <= set(summary)
    config = json.loads((out / "config.json").read_text())
    assert config["algorithm"]["bounds"] == {
        "piece": "rlviz.pieces.bounds:FixedBounds",
        "eps_low": 0.1,
        "eps_high": 0.3,
    }
    assert config["algorithm"]["kl"]["beta"] == 0.01
    assert config["settings"]["updates_per_rollout"] == 2
    assert config["settings"]["seed"] == 1


def test_without_a_folder_each_run_gets_a_new_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert rlviz(*QUICK).exit_code == 0
    assert sorted(folder.name for folder in Path("runs").iterdir()) == ["chain-grpo-001", "chain-grpo-002"]


@pytest.fixture
def another_run(tmp_path):
    folder = tmp_path / "another"
    folder.mkdir()
    (folder / "config.json").write_text('{"a run": "of somebody"}')
    return folder


@pytest.fixture
def damaged(tmp_path):
    folder = tmp_path / "damaged"
    build_policy().save(folder)
    (folder / "model.safetensors").write_bytes(b"not weights")
    return folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "chian"], "task 'chian' is not known; did you mean chain"),
        (["--algorithm", "grop"], "algorithm 'grop' is not known; did you mean grpo"),
        (["--group-size", "1"], "group_size must be at least 2"),
        (["--eps-low", "1.5"], "eps_low must be above 0 and below 1"),
        (["--eps-high", "0"], "eps_high must be above 0"),
        (["--lr", "-1"], "lr must be above 0; got -1"),
        (["--beta", "-1"], "beta must be 0 (no KL term) or above; got -1"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--device", "tpu"], "device must be one of auto, cpu, cuda; got 'tpu'"),
        (["--policy", "no-such-owner/no-such-model"], "no folder here, no shipped policy"),
        (["--out", "{another_run}"], "is not empty"),
        (["--policy", "{damaged}"], "cannot be read"),
        (["--out", "/proc/nothing/can/be/made/here"], "out: /proc/nothing/can/be/made/here cannot be made or written"),
        (["--out", "{a_file}"], "is a file"),
        (["--seed", "99999999999999999999"], "seed must be below 2**63"),
        (["--resume", "{tmp_path}"], "holds no run"),
        (["--resume", "{tmp_path}", "--lr", "1"], "--lr cannot be given with --resume"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_sentence_and_exit_code_2(arguments, says, tmp_path, monkeypatch, another_run, damaged):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("somebody's")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    places = {"another_run": another_run, "damaged": damaged, "tmp_path": tmp_path, "a_file": tmp_path / "a_file"}
    result = rlviz("train", *(argument.format(**places) for argument in arguments))
    assert result.exit_code == 2
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    assert says in lines[0]
    assert "Traceback" not in result.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("arguments", [["--lr", "fast"], ["--group-size", "2.5"], ["--epsilon", "0.2"]])
def test_what_is_no_number_or_no_option_is_refused_too(arguments):
    result = rlviz("train", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


def test_a_disk_that_fills_up_in_the_middle_ends_in_a_sentence(tmp_path, monkeypatch):
    from rlviz.training import run_folder

    def full(self, record):
        raise OSError(28, "No space left on device", str(self.path / "metrics.jsonl"))

    monkeypatch.setattr(run_folder.RunFolder, "append", full)
    result = rlviz(*QUICK, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_the_run_and_resume_goes_on(tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "rlviz.cli", "train", "--steps", "400", "--num-prompts", "4", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = out / "metrics.jsonl"
    waited = time.monotonic()
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 12):
        assert time.monotonic() - waited < 120, "the run did not start"
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert f"rlviz train --resume {out}" in printed
    done = len(metrics.read_text().splitlines())
    summary = json.loads((out / "summary.json").read_text())
    assert summary["steps"] == done < 400
    assert not summary["finished"]
    assert (out / "learning_curves.png").exists()
    result = rlviz("train", "--resume", out, "--steps", done + 2)
    assert result.exit_code == 0, result.output
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == list(range(1, done + 3))


def test_version():
    assert rlviz("--version").output.startswith("rlviz ")


def test_a_refused_run_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = rlviz("train", "--algorithm", "gspo", "--group-size", 1)
    assert result.exit_code == 2
    assert "group_size must be at least 2 for GSPO" in " ".join(result.output.split())
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "runs"])


@pytest.mark.parametrize(
    ("name", "missing"), [("ppo", "a critic"), ("ppo-penalty", "a critic"), ("dpo", "preference pairs")]
)
def test_what_cannot_be_trained_yet_says_what_it_needs(name, missing):
    result = rlviz("train", "--algorithm", name, "--steps", 1)
    assert result.exit_code == 2
    assert f"needs {missing}" in " ".join(result.output.split())


def test_algorithms_lists_the_family_as_a_table_and_as_json():
    rows = json.loads(rlviz("algorithms", "--format", "json").output)
    assert [row["name"] for row in rows] == (
        "ppo ppo-penalty dpo grpo dr-grpo dapo lite-ppo dupo gspo gspo-token dcpo".split()
    )
    dapo = rows[5]
    assert dapo["slots"]["bounds"] == "1 − 0.2 … 1 + 0.28" and dapo["models"] == ["actor"]
    assert rows[0]["beyond the slots"] == {"value loss": "value loss, V within ±0.2 of V_old"}
    table = rlviz("algorithms").output
    assert all(f" {row['name']} " in table for row in rows)
    assert "overlong punishment from 12 to 16 tokens" in table
    assert "rlviz diff grpo dapo" in table


def test_diff_gives_a_line_a_slot():
    lines = [line for line in rlviz("diff", "grpo", "dapo").output.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert [row[0] for row in cells] == ["bounds", "kl", "aggregate", "shape", "select"]
    assert all(len(row) == 4 and row[3].endswith(".") for row in cells)
    assert cells[2][1:3] == ["sequence mean", "token mean"]
    rows = json.loads(rlviz("diff", "dapo", "dupo", "--format", "json").output)
    assert [(row["slot"], row["before"], row["after"]) for row in rows] == [
        ("shape", "overlong punishment from 12 to 16 tokens", "0.9 answer + 0.1 format"),
        ("select", "drop all equal", "duplicate informative"),
    ]
    assert "do not differ" in rlviz("diff", "dcpo", "dcpo").output
    refused = rlviz("diff", "grpo", "dapoo")
    assert refused.exit_code == 2 and "did you mean" in refused.output
