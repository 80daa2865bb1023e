"""`rlviz compare` as a person meets it: what it prints and draws, refusals in a sentence, Ctrl-C and the same command again."""

import json
import os
import signal
from pathlib import Path

import pytest

from rlviz.study.comparison import read_comparison
from rlviz.training import budget, step

TINY = ["--num-prompts", "2", "--group-size", "4"]
BOTH = ["compare", "--algorithms", "grpo,dapo", *TINY]


def words_of(text):
    return " ".join(text.split())


def test_what_it_prints_and_draws_and_that_it_trains_once(rlviz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = rlviz(*BOTH, "--seeds", 3, "--amount", 24, "--jobs", 1)
    assert first.exit_code == 0, first.output
    folder = Path("runs") / "compare-001"
    assert "GRPO, seed 0: held-out accuracy 0." in first.stderr and "(6 of 6 runs)" in first.stderr
    shown = words_of(first.stdout)
    assert "Held-out accuracy on chain after 24 responses sampled" in shown
    assert "runs IQM 95 % interval mean low–high updates seconds" in shown
    table = read_comparison([folder], amount=24).table()
    for row in table.to_dict("records"):
        accuracies = f"{row['iqm']:.3f} {row['low']:.3f}–{row['high']:.3f} {row['mean']:.3f}"
        assert f"{row['contender']} 3 {accuracies}" in shown
    assert "DAPO ends" in shown and "the seeds' spread" in shown
    assert f"Picture: {folder / 'comparison.png'}" in shown
    assert (folder / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == [
        f"{name}-seed{seed}" for name in ("dapo", "grpo") for seed in range(3)
    ]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")}
    again = rlviz(*BOTH, "--seeds", 3, "--amount", 24)
    assert again.stdout == first.stdout
    assert again.stderr.strip() in ("", "Loading")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("metrics.jsonl")} == before


@pytest.mark.parametrize(
    ("options", "jobs"),
    [([], 4), (["--budget", "updates"], 4), (["--budget", "seconds"], 1), (["--budget", "seconds", "--jobs", 3], 3)],
)
def test_as_many_processes_as_cores_but_for_seconds(rlviz, options, jobs, tmp_path, monkeypatch):
    """Processes side by side would take the seconds from each other."""
    asked = []

    def begin(*contenders, **settings):
        asked.append(settings["jobs"])
        raise ValueError("enough seen")

    monkeypatch.setattr("rlviz.study.compare", begin)
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    result = rlviz(*BOTH, *options, "--device", "cpu", "--out", tmp_path / "out")
    assert (result.exit_code, asked) == (2, [jobs])


def test_for_programs_and_from_run_folders(rlviz, tmp_path):
    out = tmp_path / "out"
    made = rlviz(*BOTH, "--seeds", 3, "--amount", 24, "--jobs", 1, "--out", out, "--format", "json")
    assert made.exit_code == 0, made.output
    written = json.loads(made.stdout)
    assert (written["task"], written["budget"], written["amount"]) == ("chain", "responses", 24)
    assert [row["contender"] for row in written["contenders"]] == ["GRPO", "DAPO"]
    assert set(written["contenders"][0]) == {"contender", "runs", "iqm", "low", "high", "mean", "lowest", "highest",
                                             "responses", "updates", "seconds"}  # fmt: skip
    assert written["differences"][0]["exceeds"] in (True, False)
    folders = [out / f"{name}-seed{seed}" for name in ("dapo", "grpo") for seed in range(3)]
    read = rlviz(
        "compare", *folders, "--format", "json", "--budget", "updates", "--amount", 1, "--out", tmp_path / "new"
    )
    assert read.exit_code == 0, read.output
    assert [row["contender"] for row in json.loads(read.stdout)["contenders"]] == ["DAPO", "GRPO"]
    assert json.loads(read.stdout)["contenders"][0]["updates"] == 1
    assert (tmp_path / "new" / "comparison.png").exists()
    assert "Picture" not in rlviz("compare", out).stdout


def test_settings_are_those_of_all_and_the_kl_term_is_that_of_train(rlviz, tmp_path):
    given = ["--lr", 0.001, "--updates-per-rollout", 2, "--minibatches", 2, "--budget", "updates", "--amount", 2]
    made = rlviz("compare", "--algorithms", "grpo,ppo", *TINY, *given, "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    assert made.exit_code == 0, made.output
    for name in ("grpo", "ppo"):
        config = json.loads((tmp_path / f"{name}-seed0" / "config.json").read_text())
        wanted = {
            "lr": 0.001,
            "updates_per_rollout": 2,
            "minibatches": 2,
            "num_prompts": 2,
            "group_size": 4,
            "steps": 1,
        }
        assert {key: config["settings"][key] for key in wanted} == wanted
        assert (config["algorithm"]["kl"] is None) == (name == "grpo")
    assert "2 optimizer updates" in made.stdout and "responses" in made.stdout


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize(
    ("signals", "code", "whole_step"),
    [([signal.SIGHUP], 129, True), ([signal.SIGINT, signal.SIGINT], 130, False)],
    ids=["HUP", "two Ctrl-C"],
)
def test_a_signal_ends_after_the_step_and_a_second_at_once(
    rlviz, signals, code, whole_step, tmp_path, monkeypatch, default_signals
):
    learn, updated = step.learn, []

    def interrupted(state, rollout, settings):
        updated.append("begun")
        if updated.count("begun") == 3:
            for number in signals:
                signal.raise_signal(number)
        learned = learn(state, rollout, settings)
        updated.append("ended")
        return learned

    command = (*BOTH, "--seeds", 1, "--jobs", 1, "--out", tmp_path, "--amount")
    with monkeypatch.context() as patched:
        patched.setattr(step, "learn", interrupted)
        result = rlviz(*command, 100_000)
    assert (result.exit_code, updated.count("begun"), updated.count("ended")) == (code, 3, 3 if whole_step else 2)
    assert f"Stopped: 0 of 2 runs are complete in {tmp_path}. The same command goes on." in words_of(result.stderr)
    kept = tmp_path / "grpo-seed0"
    done = len((kept / "metrics.jsonl").read_text().splitlines())
    if whole_step:
        assert json.loads((kept / "checkpoint" / "training.json").read_text())["step"] == done == 3
    went_on = rlviz(*command, 40)
    assert went_on.exit_code == 0, went_on.output
    lines = (kept / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5]


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize(("run", "code"), [(1, 130), (2, 0)])
def test_ctrl_c_in_the_last_of_two_runs_comes_too_late(rlviz, run, code, tmp_path, monkeypatch, default_signals):
    close, closed = budget._close, []

    def interrupted(*given):
        closed.append(given)
        if len(closed) == run:
            signal.raise_signal(signal.SIGINT)
        close(*given)

    monkeypatch.setattr(budget, "_close", interrupted)
    result = rlviz(*BOTH, "--seeds", 1, "--jobs", 1, "--amount", 8, "--out", tmp_path)
    assert result.exit_code == code, result.output
    assert len(closed) == run
    assert ("1 of 2 runs are complete" in words_of(result.stderr)) == (code == 130)
    assert (tmp_path / "comparison.png").exists() == (code == 0)
