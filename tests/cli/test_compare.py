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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give --algorithms, such as grpo,dapo, or folders of runs"),
        (["--algorithms", "grop"], "algorithm 'grop' is not known; did you mean grpo"),
        (["--algorithms", "grpo,grpo"], "contenders must have names of their own"),
        (
            ["--algorithms", "grpo,dpo"],
            "budget: DPO learns from pairs, and its steps sample no responses; choose updates",
        ),
        (["--algorithms", "grpo,dpo", "--budget", "updates", "--group-size", "2"], "group_size is no setting of DPO"),
        (["--algorithms", "grpo", "--task", "chian"], "task 'chian' is not known"),
        (["--algorithms", "grpo", "--amount", "0"], "amount must be above 0 and finite; got 0"),
        (["--algorithms", "grpo", "--group-size", "1"], "group_size must be at least 2"),
        (["--algorithms", "grpo", "--out", "/proc/nothing/can/be/made/here"], "cannot be made or written"),
        (["nowhere"], "run folder nowhere holds no run"),
        (["nowhere", "--seeds", "3"], "--seeds cannot be given with run folders"),
        (["nowhere", "--lr", "1"], "--lr cannot be given with run folders"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_sentence_and_exit_code_2(rlviz, arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = rlviz("compare", *arguments)
    assert result.exit_code == 2
    lines = [line for line in result.stderr.strip().splitlines() if line]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ") and says in lines[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
def test_each_signal_ends_the_step_and_has_its_exit_code(rlviz, number, code, tmp_path, monkeypatch):
    learn, updated = step.learn, []

    def interrupted(state, rollout, settings):
        updated.append(rollout)
        if len(updated) == 3:
            signal.raise_signal(number)
        return learn(state, rollout, settings)

    with monkeypatch.context() as patched:
        patched.setattr(step, "learn", interrupted)
        result = rlviz(*BOTH, "--seeds", 1, "--jobs", 1, "--out", tmp_path, "--amount", 100_000)
    assert (result.exit_code, len(updated)) == (code, 3), result.output
    goes_on_after(rlviz, result.stderr, tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_a_second_ctrl_c_does_not_wait_for_the_step_to_end(rlviz, tmp_path, monkeypatch):
    learn, updated = step.learn, []

    def interrupted(state, rollout, settings):
        updated.append(rollout)
        if len(updated) == 3:
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
            updated.append("the rest of the step")
        return learn(state, rollout, settings)

    with monkeypatch.context() as patched:
        patched.setattr(step, "learn", interrupted)
        result = rlviz(*BOTH, "--seeds", 1, "--jobs", 1, "--out", tmp_path, "--amount", 100_000)
    assert (result.exit_code, len(updated)) == (130, 3), result.output
    went_on = rlviz(*BOTH, "--seeds", 1, "--jobs", 1, "--out", tmp_path, "--amount", 40)
    assert went_on.exit_code == 0, went_on.output
    lines = (tmp_path / "grpo-seed0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5]


def goes_on_after(rlviz, errors, folder):
    """Check that a run was stopped between two steps, and that the command goes on with the next one."""
    metrics = folder / "grpo-seed0" / "metrics.jsonl"
    assert f"Stopped: 0 of 2 runs are complete in {folder}. The same command goes on." in " ".join(errors.split())
    done = len(metrics.read_text().splitlines())
    assert json.loads((metrics.parent / "checkpoint" / "training.json").read_text())["step"] == done
    went_on = rlviz(*BOTH, "--seeds", 1, "--jobs", 1, "--out", folder, "--amount", 8 * (done + 2))
    assert went_on.exit_code == 0, went_on.output
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == list(range(1, done + 3))


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize(("run", "code"), [(1, 130), (2, 0)])
def test_ctrl_c_in_the_last_of_two_runs_comes_too_late(rlviz, run, code, tmp_path, monkeypatch):
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
