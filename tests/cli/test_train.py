"""`rlviz train` as a person meets it: the main job, each refusal in one sentence, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click import unstyle
from typer.testing import CliRunner

from rlviz import DPO, PairSettings, TrainSettings, training
from rlviz.algorithms import find_algorithm
from rlviz.cli import app
from rlviz.cli.compare import _contender
from rlviz.cli.signals import graceful_interrupt, immediate_interrupt
from rlviz.cli.train import Changes
from rlviz.parallel import STOPS
from rlviz.settings import declarations
from rlviz.study.budget import NOT_SHARED
from small_models.pairs import make_pairs
from small_models.policies import load_policy
from small_models.sampling import sample
from small_models.tasks import Chain

TINY = ["--num-prompts", 2, "--group-size", 2, "--device", "cpu"]
QUICK = ["train", "--steps", 3, "--num-prompts", 4, "--group-size", 4, "--device", "cpu"]


def test_a_run_leaves_everything_that_was_promised(rlviz, tmp_path):
    out = tmp_path / "run"
    result = rlviz(*QUICK, "--algorithm", "grpo", "--task", "chain", "--eps-low", 0.1, "--eps-high", 0.3, "--beta", 0.01,
                   "--lr", 1e-4, "--updates-per-rollout", 2, "--seed", 1, "--out", out)  # fmt: skip
    assert result.exit_code == 0, result.output
    for words in ("accuracy, sampled at temperature 1", "Three held-out prompts", "learning_curves.png"):
        assert words in result.output
    assert (out / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3
    summary = json.loads((out / "summary.json").read_text())
    assert {"accuracy_before", "accuracy_after", "train_seconds", "tokens_sampled"} <= set(summary)
    config = json.loads((out / "config.json").read_text())
    widths = {"piece": "rlviz.pieces.bounds:FixedBounds", "eps_low": 0.1, "eps_high": 0.3}
    assert config["algorithm"]["bounds"] == widths and config["algorithm"]["kl"]["beta"] == 0.01
    assert (config["settings"]["updates_per_rollout"], config["settings"]["seed"]) == (2, 1)


def test_a_slow_run_says_from_its_first_step_on_how_long_it_takes(rlviz, tmp_path, monkeypatch):
    monkeypatch.setattr("rlviz.cli.train.SILENCE", 0.0)  # as if each step took long
    output = unstyle(rlviz(*QUICK, "--out", tmp_path / "run").output)
    lines = [line for line in output.splitlines() if line.startswith("step ")]
    assert [line.partition("/")[0] for line in lines] == ["step 1", "step 2", "step 3"]
    assert [bool(re.search(r"  about 1 s left$", line)) for line in lines] == [True, True, False]
    assert [len(re.findall(r"^\S+ → .* \(reward [01]\.00\)$", output, re.MULTILINE))] == [3]


def test_without_a_folder_each_run_gets_a_new_one(rlviz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert rlviz("train", *TINY, "--steps", 1).exit_code == 0
    assert sorted(folder.name for folder in Path("runs").iterdir()) == ["chain-grpo-001", "chain-grpo-002"]


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_keeps_the_run_and_resume_goes_on(rlviz, tmp_path, default_signals):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "rlviz", "train", "--steps", "400", "--num-prompts", "4", "--out", str(out)]
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
    assert json.loads((out / "checkpoint" / "training.json").read_text())["step"] == done  # no step is done again
    assert not summary["finished"]
    assert (out / "learning_curves.png").exists()
    result = rlviz("train", "--resume", out, "--steps", done + 2)
    assert result.exit_code == 0, result.output
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == list(range(1, done + 3))


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
@pytest.mark.parametrize(("number", "steps", "code"), [(signal.SIGINT, 1, 0), (signal.SIGTERM, 2, 143)])
def test_a_signal_ends_the_step_and_in_the_last_one_comes_too_late(
    rlviz, number, steps, code, tmp_path, monkeypatch, default_signals
):
    grade, graded = Chain.grade, []

    def interrupted(self, prompt, response):
        graded.append(response)
        if len(graded) == 1:
            signal.raise_signal(number)
        return grade(self, prompt, response)

    monkeypatch.setattr(Chain, "grade", interrupted)
    result = rlviz("train", *TINY, "--steps", steps, "--out", tmp_path / "run")
    assert result.exit_code == code, result.output
    assert ("Go on with" in result.output) == (code > 0)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 1


@pytest.fixture
def handler():
    """Give back the handlers of signals that a test sets."""
    before = {number: signal.getsignal(number) for number in STOPS}
    yield signal.signal
    for number, usual in before.items():
        signal.signal(number, usual)


@pytest.mark.parametrize("number", STOPS)
def test_signals_end_a_step_gracefully_or_at_once_and_an_ignored_one_stays_ignored(number, handler, default_signals):
    heard = []
    handler(number, lambda *_: heard.append(number))
    with graceful_interrupt() as signals:
        signal.raise_signal(number)
        assert (signals, heard) == ([number], [])
        signal.raise_signal(number)  # the second acts as always
        assert (signals, heard) == ([number], [number])
    with immediate_interrupt() as stopped:
        signal.raise_signal(number)
        stopped.append("went on")
    assert stopped == [number]
    handler(number, signal.SIG_IGN)  # as `nohup` does with SIGHUP
    with graceful_interrupt() as signals:
        signal.raise_signal(number)
    assert signals == []


def test_the_samples_shown_are_those_of_the_trained_policy(rlviz, tmp_path):
    out = tmp_path / "run"
    result = rlviz(*QUICK, "--lr", 0.01, "--updates-per-rollout", 4, "--seed", 3, "--out", out)
    assert result.exit_code == 0, result.output
    prompts = Chain().held_out_prompts[:3]

    def written(policy):
        generator = torch.Generator().manual_seed(3)
        texts = sample(policy, prompts, max_new_tokens=Chain().max_new_tokens, generator=generator).texts(policy)
        return [text for (text,) in texts]

    rows = [line.split("│")[1:3] for line in result.output.splitlines() if line.startswith("│")]
    trained, before = (written(load_policy(policy, device="cpu")) for policy in (out / "checkpoint", "chain"))
    assert trained != before
    assert [tuple(cell.strip() for cell in row) for row in rows[-3:]] == [*zip(prompts, trained, strict=True)]


@pytest.mark.parametrize(
    ("command", "kind"), [("train", TrainSettings), ("train", PairSettings), ("compare", TrainSettings)]
)
def test_every_setting_is_an_option_with_its_declared_help(command, kind):
    """But for those that a comparison sets itself."""
    output = unstyle(CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "500"}).output)
    words = " ".join(output.replace("│", " ").split())
    for name, declaration in declarations(kind).items():
        is_option = command == "train" or name not in NOT_SHARED
        assert (f"--{name.replace('_', '-')} " in words) == is_option, name
        assert not is_option or (declaration.help in words and declaration.range in words)


def test_runs_that_begin_at_the_same_moment_have_folders_of_their_own(rlviz, tmp_path, monkeypatch):
    begin, command = training.train, ["train", "--steps", 1, "--num-prompts", 1, "--evaluate-every", 0]

    def another_first(*arguments, **settings):
        monkeypatch.setattr(training, "train", begin)
        assert rlviz(*command).exit_code == 0
        return begin(*arguments, **settings)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train", another_first)
    result = rlviz(*command)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in Path("runs").iterdir()) == ["chain-grpo-001", "chain-grpo-002"]


CHOSEN = {"num_prompts": 2, "group_size": 4, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "reward_format": 0.1, "lr": 2e-3,
        "updates_per_rollout": 2, "minibatches": 2, "min_old_prob": 1e-4, "reset_reference_every": 3, "prompt_pool": 60,
        "filter_solved": 2, "seed": 5}  # fmt: skip
SHARED = {"critic": "shared", "critic_lr": 2e-3, "critic_only_steps": 1, "num_prompts": 4}


def test_the_seed_is_that_of_the_pairs_and_of_the_reward_model_too(rlviz, tmp_path, monkeypatch):
    calls = []

    def learn_reward(policy, task, pairs, **settings):
        calls.append((pairs, settings))
        raise ValueError("enough seen")

    monkeypatch.setattr("rlviz.training.learn_reward", learn_reward)
    command = ["train", "--reward", "learned", "--num-pairs", 4, "--seed", 2, "--device", "cpu"]
    assert rlviz(*command, "--out", tmp_path / "run").exit_code == 2
    assert calls == [(make_pairs(load_policy("chain", device="cpu"), Chain(), 4, seed=2), {"seed": 2})]


@pytest.mark.parametrize(
    ("options", "chosen", "says"),  # beside the settings that are chosen
    [
        ("", CHOSEN, "GRPO on chain: 2 prompts"),
        ("--algorithm ppo-penalty", SHARED, "critic explains"),
        ("--algorithm dpo --num-pairs 8", {"batch_size": 4, "lr": 2e-3}, "4 of 8 pairs a step"),
        ("--supervision process", {"num_prompts": 4}, "GRPO (process) on chain: 4 prompts"),
        ("--reward learned --num-pairs 8", {"refresh_reward_every": 1, "num_prompts": 4}, "Reward model: 8 pairs"),
        ("--algorithm distillation --reference chain-rare", {"num_prompts": 4}, "Distillation on chain: 4 prompts"),
    ],
)
def test_every_kind_of_training_with_each_setting_that_is_chosen(rlviz, options, chosen, says, tmp_path):
    out, settings = tmp_path / "run", [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
    result = rlviz("train", *options.split(), *settings, "--steps", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert says in " ".join(result.output.split())
    config = json.loads((out / "config.json").read_text())
    assert {name: config["settings"][name] for name in chosen} == chosen


@pytest.mark.parametrize(
    ("name", "beta", "kind"),
    [
        *[("grpo", None, None), ("grpo", 0.5, "KLInLoss"), ("gspo", None, None), ("gspo", 0.5, "KLInLoss")],
        *[("ppo", None, "KLInReward"), ("ppo", 0.5, "KLInReward"), ("ppo", 0, None)],
        # a KL term that makes a relative what it is stays
        *[("unbiased-kl", None, "UnbiasedKL"), ("unbiased-kl", 0.5, "UnbiasedKL"), ("unbiased-kl", 0, None)],
        *[("prime-rl", None, "KLToOld"), ("kdrl", 0.5, "KLToTeacher")],
    ],
)
def test_beta_is_the_algorithm_s_own_weight(name, beta, kind):
    paper = find_algorithm(name)
    algorithm = Changes(beta=beta).of(paper)
    assert (None if algorithm.kl is None else type(algorithm.kl).__name__) == kind
    assert kind is None or algorithm.kl.beta == (paper.kl.beta if beta is None else beta)
    if beta is None:  # `rlviz compare` asks for no weight
        assert _contender(name, {}, None).algorithm.kl == algorithm.kl
    assert Changes(beta=0.5).of(DPO).reward.beta == 0.5


def test_pairs_come_from_a_file(rlviz, tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"{n:05d}=", "chosen": f"#{n % 10}", "rejected": f"#{(n + 1) % 10}"} for n in range(10)]
    file.write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "run"
    result = rlviz("train", "--algorithm", "dpo", "--pairs", file, "--batch-size", 5, "--steps", 1, "--out", out)
    assert result.exit_code == 0, result.output
    assert [json.loads(line) for line in (out / "pairs.jsonl").read_text().splitlines()] == rows
