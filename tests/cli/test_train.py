"""`rlviz train` as a person meets it: the main job, each refusal in one sentence, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from click import unstyle
from typer.testing import CliRunner

from rlviz import DPO, PPO, PairSettings, TrainSettings, default_settings
from rlviz.algorithms import find_algorithm
from rlviz.cli import app
from rlviz.cli.compare import _contender
from rlviz.cli.options import with_kl
from rlviz.cli.signals import interrupt_is_a_wish
from rlviz.parallel import STOPS
from rlviz.settings import declarations
from rlviz.training.budget import NOT_SHARED
from rlviz.training.reward_model import NUM_PAIRS
from small_models.pairs import make_pairs, read_pairs
from small_models.policies import build_policy, load_policy
from small_models.sampling import sample
from small_models.tasks import Chain

QUICK = ["train", "--steps", "3", "--num-prompts", "4", "--group-size", "4"]


def test_a_run_leaves_everything_that_was_promised(rlviz, tmp_path):
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


def test_without_a_folder_each_run_gets_a_new_one(rlviz, tmp_path, monkeypatch):
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
        (["--beta", "-1"], "beta must be at least 0 (0: no KL term); got -1"),
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
        (["--resume", "{tmp_path}", "--seed", "0"], "--seed cannot be given with --resume"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_sentence_and_exit_code_2(
    rlviz, arguments, says, tmp_path, monkeypatch, another_run, damaged
):
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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lr", "fast"], "Error: --lr must be a number; got 'fast'"),
        (["--group-size", "2.5"], "Error: --group-size must be a whole number; got '2.5'"),
        (["--lr", ""], "Error: --lr must be a number; got ''"),
        (["--epsilon", "0.2"], "No such option: --epsilon"),
        (["--num-promts", "3"], "--num-prompts"),
        (["--reward", "leaned"], "Error: reward must be one of rule, learned; got 'leaned'"),
        (["--supervision", "proces"], "Error: supervision must be one of outcome, process; got 'proces'"),
        (["--label-noise", "-.1"], "Error: label_noise must be at least 0 and at most 1; got -0.1"),
    ],
)
def test_what_is_no_number_or_no_option_is_refused_too(rlviz, arguments, says):
    result = rlviz("train", *arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())


def test_a_disk_that_fills_up_in_the_middle_ends_in_a_sentence(rlviz, tmp_path, monkeypatch):
    from rlviz.training import run_folder

    def full(self, record):
        raise OSError(28, "No space left on device", str(self.path / "metrics.jsonl"))

    monkeypatch.setattr(run_folder.RunFolder, "append", full)
    result = rlviz(*QUICK, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.quick(1)
@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_ctrl_c_keeps_the_run_and_resume_goes_on(rlviz, tmp_path):
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
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
def test_each_signal_ends_the_step_and_has_its_exit_code(rlviz, number, code, tmp_path, monkeypatch, handler):
    grade, graded = Chain.grade, []

    def interrupted(self, prompt, response):
        graded.append(response)
        if len(graded) == 6:  # in the middle of the second step of 2 prompts × 2 responses
            signal.raise_signal(number)
        return grade(self, prompt, response)

    monkeypatch.setattr(Chain, "grade", interrupted)
    out = tmp_path / "run"
    result = rlviz("train", "--steps", 4, "--num-prompts", 2, "--group-size", 2, "--evaluate-every", 0, "--out", out)
    assert result.exit_code == code, result.output
    assert f"Stopped after step 2. Go on with: rlviz train --resume {out}" in result.output
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2
    assert json.loads((out / "checkpoint" / "training.json").read_text())["step"] == 2


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
@pytest.mark.parametrize(("steps", "code"), [(1, 0), (2, 130)])
def test_ctrl_c_in_the_last_step_comes_too_late(rlviz, steps, code, tmp_path, monkeypatch):
    grade, asked = Chain.grade, []

    def interrupted(self, prompt, response):
        if not asked:
            asked.append(True)
            signal.raise_signal(signal.SIGINT)
        return grade(self, prompt, response)

    monkeypatch.setattr(Chain, "grade", interrupted)
    result = rlviz("train", "--steps", steps, "--num-prompts", 2, "--group-size", 2, "--out", tmp_path / "run")
    assert result.exit_code == code, result.output
    assert ("Go on with" in result.output) == (code == 130)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 1


@pytest.fixture
def handler():
    """Give back the handlers of signals that a test sets."""
    before = {number: signal.getsignal(number) for number in STOPS}
    yield signal.signal
    for number, usual in before.items():
        signal.signal(number, usual)


@pytest.mark.parametrize("number", STOPS)
def test_the_first_signal_is_a_wish_and_the_second_acts_as_always(number, handler):
    heard = []
    handler(number, lambda *_: heard.append(number))
    with interrupt_is_a_wish() as asked:
        signal.raise_signal(number)
        assert (asked, heard) == ([number], [])
        signal.raise_signal(number)
        assert (asked, heard) == ([number], [number])


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_that_is_ignored_stays_ignored(number, handler):
    """`nohup` starts a process that ignores SIGHUP, so that it outlives its terminal."""
    handler(number, signal.SIG_IGN)
    with interrupt_is_a_wish() as asked:
        signal.raise_signal(number)
    assert asked == []


def test_the_samples_shown_are_those_of_the_trained_policy(rlviz, tmp_path):
    out = tmp_path / "run"
    result = rlviz(*QUICK, "--lr", 0.01, "--updates-per-rollout", 4, "--seed", 3, "--device", "cpu", "--out", out)
    assert result.exit_code == 0, result.output
    prompts = Chain().held_out_prompts[:3]

    def written(policy):
        generator = torch.Generator().manual_seed(3)
        texts = sample(policy, prompts, max_new_tokens=Chain().max_new_tokens, generator=generator).texts(policy)
        return [text for (text,) in texts]

    shown = [line.split("│")[1:3] for line in result.output.splitlines() if line.startswith("│")]
    trained, before = (written(load_policy(policy, device="cpu")) for policy in (out / "checkpoint", "chain"))
    assert trained != before
    assert [[cell.strip() for cell in row] for row in shown[-3:]] == [
        list(row) for row in zip(prompts, trained, strict=True)
    ]


def help_of(command):
    """Return the help of a command as one line without its frames."""
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    return " ".join(unstyle(result.output).replace("│", " ").split())


@pytest.mark.parametrize("kind", [TrainSettings, PairSettings])
def test_every_setting_is_an_option_with_its_declared_help(kind):
    said = help_of("train")
    for name, declaration in declarations(kind).items():
        assert f"--{name.replace('_', '-')} " in said
        assert declaration.help in said
        assert declaration.range in said


def test_help_tells_the_defaults_that_depend_on_the_algorithm():
    said = help_of("train")
    for algorithm, words in ((PPO, "with a critic"), (DPO, "of pairs")):
        usual, own = TrainSettings(), default_settings(algorithm)
        for name in vars(own).keys() & vars(usual).keys():
            if getattr(own, name) != getattr(usual, name):
                assert f"default: {getattr(usual, name)}; {words} {getattr(own, name)}]" in said, name
    assert f"a learned reward takes {NUM_PAIRS}." in said


def test_compare_has_the_settings_that_it_does_not_set_itself():
    said = help_of("compare")
    for name in declarations(TrainSettings):
        assert (f"--{name.replace('_', '-')} " in said) == (name not in NOT_SHARED), name


SAID = {"num_prompts": 2, "group_size": 4, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "reward_format": 0.1, "lr": 2e-3,
        "updates_per_rollout": 2, "minibatches": 2, "min_old_prob": 1e-4, "reset_reference_every": 3, "prompt_pool": 60,
        "filter_solved": 2, "seed": 5}  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "said"),
    [
        ("grpo", SAID),
        ("ppo", {"critic": "shared", "critic_lr": 2e-3, "critic_only_steps": 1, "num_prompts": 2}),
        ("dpo", {"batch_size": 4, "lr": 2e-3}),
    ],
)
def test_every_setting_that_is_said_is_the_run_s(rlviz, algorithm, said, tmp_path):
    options = [part for name, value in said.items() for part in (f"--{name.replace('_', '-')}", value)]
    pairs = ["--num-pairs", 20] if algorithm == "dpo" else []
    result = rlviz("train", "--algorithm", algorithm, "--steps", 1, *options, *pairs, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert {name: settings[name] for name in said} == said


def test_pairs_are_labelled_as_the_options_say(rlviz, tmp_path):
    command = ["train", "--algorithm", "dpo", "--steps", 1, "--num-pairs", 30, "--batch-size", 4, "--seed", 2]
    labels = ["--spurious", 0.7, "--label-noise", 0.2]
    assert rlviz(*command, *labels, "--device", "cpu", "--out", tmp_path / "run").exit_code == 0
    policy, said = load_policy("chain", device="cpu"), {"spurious": 0.7, "label_noise": 0.2}
    honest, asked_for = (make_pairs(policy, Chain(), 30, seed=2, **labels) for labels in ({}, said))
    assert read_pairs(tmp_path / "run" / "pairs.jsonl") == asked_for != honest


def test_the_seed_is_that_of_the_reward_model_too(rlviz, tmp_path, monkeypatch):
    asked = []

    def learn_reward(policy, task, pairs, **settings):
        asked.append((pairs, settings))
        raise ValueError("enough seen")

    monkeypatch.setattr("rlviz.training.learn_reward", learn_reward)
    command = ["train", "--reward", "learned", "--num-pairs", 4, "--seed", 2, "--device", "cpu"]
    assert rlviz(*command, "--out", tmp_path / "run").exit_code == 2
    assert asked == [(make_pairs(load_policy("chain", device="cpu"), Chain(), 4, seed=2), {"seed": 2})]


def test_a_refused_run_leaves_no_folder(rlviz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = rlviz("train", "--algorithm", "gspo", "--group-size", 1)
    assert result.exit_code == 2
    assert "group_size must be at least 2 for GSPO" in " ".join(result.output.split())
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "runs"])


FEW = ["--num-prompts", 4]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("options", "says", "settings"),
    [
        (
            ["--algorithm", "ppo"],
            "PPO on chain: 128 prompts × 1 response a step",
            {"critic": "separate", "updates_per_rollout": 2},
        ),
        (["--algorithm", "ppo-penalty", "--critic", "shared", *FEW], "critic explains", {"critic": "shared"}),
        (["--algorithm", "dpo", "--num-pairs", 100, "--lr", 0.001], "64 of 100 pairs a step", {"lr": 0.001}),
        (["--supervision", "process"], "GRPO (process) on chain: 32 prompts", {"group_size": 8}),
        (
            ["--reward", "learned", "--num-pairs", 100, "--refresh-reward-every", 1, *FEW],
            "Reward model: 100 pairs, held-out pairs in the right order",
            {"refresh_reward_every": 1},
        ),
        (["--algorithm", "distillation", "--reference", "chain-rare", *FEW], "Distillation on chain: 4 prompts", {}),
        (["--beta", 0.1, "--reset-reference-every", 1, *FEW], "GRPO on chain", {"reset_reference_every": 1}),
    ],
)
def test_every_kind_of_training_from_the_command_line(rlviz, options, says, settings, tmp_path):
    out = tmp_path / "run"
    result = rlviz("train", *options, "--steps", 2, "--out", out)
    assert result.exit_code == 0, result.output
    assert says in " ".join(result.output.split())
    config = json.loads((out / "config.json").read_text())
    assert {name: config["settings"][name] for name in settings} == settings
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2
    assert (out / "learning_curves.png").read_bytes().startswith(b"\x89PNG")
    more = rlviz("train", "--resume", out, "--steps", 3)
    assert more.exit_code == 0, more.output
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3


def test_beta_is_the_algorithm_s_own_weight(rlviz, tmp_path):
    cases = [("ppo", 0.5, 0.5), ("ppo", 0, None), ("ppo", None, 0.02), ("dpo", 0.5, 0.5)]
    tiny = {"ppo": FEW, "grpo": FEW, "dpo": ["--num-pairs", 8, "--batch-size", 4]}
    for name, beta, expected in (*cases, ("grpo", 0.5, 0.5), ("grpo", None, None)):
        out = tmp_path / f"{name}{beta}"
        options = [] if beta is None else ["--beta", beta]
        assert rlviz("train", "--algorithm", name, "--steps", 1, *options, *tiny[name], "--out", out).exit_code == 0
        algorithm = json.loads((out / "config.json").read_text())["algorithm"]
        piece = algorithm["reward"] if name == "dpo" else algorithm["kl"]
        assert (None if piece is None else piece["beta"]) == expected


@pytest.mark.parametrize(
    ("name", "beta", "kind"),
    [
        *[("unbiased-kl", None, "UnbiasedKL"), ("unbiased-kl", 0.5, "UnbiasedKL"), ("unbiased-kl", 0, None)],
        *[("prime-rl", None, "KLToOld"), ("kdrl", 0.5, "KLToTeacher"), ("gspo", None, None), ("gspo", 0.5, "KLInLoss")],
    ],
)
def test_a_kl_term_that_makes_a_relative_what_it_is_stays(name, beta, kind):
    algorithm = with_kl(find_algorithm(name), beta)
    assert (None if algorithm.kl is None else type(algorithm.kl).__name__) == kind
    assert beta is None or kind is None or algorithm.kl.beta == beta
    if beta is None:  # `rlviz compare` asks for no weight
        assert _contender(name, {}, None).algorithm.kl == algorithm.kl


def test_pairs_come_from_a_file(rlviz, tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"{n:05d}=", "chosen": f"#{n % 10}", "rejected": f"#{(n + 1) % 10}"} for n in range(10)]
    file.write_text("\n".join(map(json.dumps, rows)))
    result = rlviz(
        "train", "--algorithm", "dpo", "--pairs", file, "--batch-size", 5, "--steps", 1, "--out", tmp_path / "run"
    )
    assert result.exit_code == 0, result.output
    kept = [json.loads(line) for line in (tmp_path / "run" / "pairs.jsonl").read_text().splitlines()]
    assert kept == rows
    file.write_text(json.dumps(rows[0]) + "\n{oops")
    result = rlviz("train", "--algorithm", "dpo", "--pairs", file, "--out", tmp_path / "other")
    assert result.exit_code == 2
    assert "line 2" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--algorithm", "dpo", "--group-size", 4], "group_size is no setting of DPO's training; it has steps"),
        (["--algorithm", "dpo", "--reward", "learned"], "DPO learns from pairs and has no use for a reward model"),
        (["--algorithm", "ppo", "--supervision", "process"], "is for algorithms of groups, such as GRPO; got PPO"),
        (
            ["--algorithm", "tis", "--supervision", "process"],
            "TIS's is made of old_logp and sampler_logp, which would be lost",
        ),
        (["--algorithm", "dapo", "--supervision", "process"], "takes no shaping of whole responses' rewards"),
        (["--batch-size", 4], "batch_size is no setting of GRPO's training"),
        (["--spurious", 0.5], "are for DPO or with --reward learned"),
        (["--algorithm", "ppo", "--critic", "both"], "critic must be one of separate, shared; got 'both'"),
        (
            ["--algorithm", "distillation"],
            "Distillation learns from a teacher, a policy other than the one that the run",
        ),
        (["--reference", "nowhere/at-all"], "reference: 'nowhere/at-all' is no folder here, no shipped policy"),
        (["--reference", "chain", "--reset-reference-every", 2], "must be 0 where a reference is given"),
        (["--refresh-reward-every", 2], "refresh_reward_every needs a reward model"),
        (["--algorithm", "dpo", "--beta", 0], "beta must be above 0"),
        (["--algorithm", "dpo", "--pairs", "nowhere.jsonl"], "nowhere.jsonl cannot be written or read"),
        (["--reward", "learned", "--spurious", 2], "spurious must be at least 0 and at most 1; got 2"),
    ],
)
def test_what_does_not_fit_together_is_refused(rlviz, options, sentence, tmp_path):
    result = rlviz("train", *options, "--steps", 1, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()
