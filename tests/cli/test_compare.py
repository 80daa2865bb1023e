"""`rlviz compare` as a person meets it: what it prints and draws, for programs, Ctrl-C and the same command again."""

import json
import os
import signal

import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from rlviz.study.comparison import read_comparison
from rlviz.training import step

TINY = ["--num-prompts", "2", "--group-size", "4"]
BOTH = ["compare", "--algorithms", "grpo,dapo", *TINY]


def words_of(text):
    return " ".join(text.split())


SEEDS = [*BOTH, "--seeds", 3, "--amount", 24, "--jobs", 1, "--out"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return the folder of a comparison of six runs."""
    folder = tmp_path_factory.mktemp("compared") / "runs"
    result = CliRunner().invoke(app, [*map(str, SEEDS), str(folder)])
    assert result.exit_code == 0, result.output
    assert result.stderr.count("held-out accuracy 0.") == 6 and "DAPO, seed 2: held-out accuracy 0." in result.stderr
    return folder


def test_what_it_prints_and_draws_and_that_it_trains_once(rlviz, compared):
    before = {path: path.stat().st_mtime_ns for path in compared.rglob("metrics.jsonl")}
    again = rlviz(*SEEDS, compared)
    assert len(before) == 6 and {path: path.stat().st_mtime_ns for path in before} == before
    assert again.exit_code == 0 and again.stderr.strip() in ("", "Loading")
    words = words_of(again.stdout)
    assert "Held-out accuracy on chain after 24 responses sampled" in words
    assert "runs IQM 95 % interval mean low–high updates seconds" in words
    for row in read_comparison([compared], amount=24).table().to_dict("records"):
        accuracies = f"{row['iqm']:.3f} {row['low']:.3f}–{row['high']:.3f} {row['mean']:.3f}"
        assert f"{row['contender']} 3 {accuracies} {row['lowest']:.3f}–{row['highest']:.3f}" in words
    assert "DAPO ends" in words and "the seeds' spread" in words
    assert f"Picture: {compared / 'comparison.png'}" in words
    assert (compared / "comparison.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "jobs"), [([], 4), (["--budget", "seconds"], 1), (["--budget", "seconds", "--jobs", 3], 3)]
)
def test_as_many_processes_as_cores_but_for_seconds(rlviz, options, jobs, tmp_path, monkeypatch):
    """Processes side by side would take the seconds from each other."""
    counts = []

    def begin(*contenders, **settings):
        counts.append(settings["jobs"])
        raise ValueError("enough seen")

    monkeypatch.setattr("rlviz.study.compare", begin)
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    result = rlviz(*BOTH, *options, "--device", "cpu", "--out", tmp_path / "out")
    assert (result.exit_code, counts) == (2, [jobs])


def test_run_folders_are_compared_in_the_order_in_which_they_are_given(rlviz, compared, tmp_path):
    folders = [compared / f"{name}-seed{seed}" for name in ("dapo", "grpo") for seed in range(3)]
    read = rlviz("compare", *folders, "--amount", 8, "--out", tmp_path / "new")
    assert read.exit_code == 0, read.output
    words = words_of(read.stdout)
    assert (
        "after 8 responses sampled" in words and "GRPO ends" in words and words.index("DAPO 3") < words.index("GRPO 3")
    )
    assert (tmp_path / "new" / "comparison.png").exists()
    assert "Picture" not in rlviz("compare", compared).stdout


def test_settings_are_those_of_all_and_the_kl_term_is_that_of_train(rlviz, tmp_path):
    wanted = {"lr": 0.001, "updates_per_rollout": 2, "minibatches": 2, "num_prompts": 2, "group_size": 4, "steps": 1}
    options = ["--lr", 0.001, "--updates-per-rollout", 2, "--minibatches", 2, "--amount", 8]
    result = rlviz("compare", "--algorithms", "grpo,ppo", *TINY, *options, "--seeds", 1, "--jobs", 1, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for name in ("grpo", "ppo"):
        config = json.loads((tmp_path / f"{name}-seed0" / "config.json").read_text())
        assert wanted.items() <= config["settings"].items()
        assert (config["algorithm"]["kl"] is None) == (name == "grpo")


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(rlviz, tmp_path, monkeypatch, default_signals):
    run_updates, updated = step.run_updates, []

    def interrupted(state, rollout, settings):
        updated.append(rollout)
        if len(updated) == 6:  # the second step of the second run, of four steps each
            signal.raise_signal(signal.SIGINT)
        return run_updates(state, rollout, settings)

    command = (*BOTH[:2], "grpo,gspo", *TINY, "--seeds", 1, "--jobs", 1, "--out", tmp_path, "--amount", 32)
    with monkeypatch.context() as patched:
        patched.setattr(step, "run_updates", interrupted)
        result = rlviz(*command)
    assert result.exit_code == 130, result.output
    assert "Stopped. The runs that are done are kept; the same command goes on." in words_of(result.stderr)
    assert not (tmp_path / "comparison.png").exists()
    first = (tmp_path / "grpo-seed0" / "metrics.jsonl").stat().st_mtime_ns
    went_on = rlviz(*command)
    assert went_on.exit_code == 0, went_on.output
    assert "GRPO, seed 0" not in went_on.stderr and "GSPO, seed 0: held-out accuracy" in went_on.stderr
    assert (tmp_path / "grpo-seed0" / "metrics.jsonl").stat().st_mtime_ns == first
    lines = (tmp_path / "gspo-seed0" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]
