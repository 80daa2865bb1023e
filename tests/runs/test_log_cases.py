# ruff: noqa: E501
"""Logs as people report them, made by hand: whose they are, which finding comes first, what follows from it, what is not said."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlviz import diagnose
from rlviz.runs import import_run
from rlviz.runs.log_names import WRITERS

NAN = math.nan
TRL_TITLE = "names of TRL's GRPOTrainer or RLOOTrainer"


def wave(n):
    """Return a number between −.5 and .5 that looks like noise and is the same each time."""
    return math.modf(abs(math.sin(12.9898 * n)) * 43758.5453)[0] - 0.5


def row(n, **numbers):
    """Return a sound step of GRPO's, with other numbers in some columns; None leaves one out."""
    sound = {
        "loss": 0.01 * wave(n), "grad_norm": 0.8 + 0.2 * wave(n + 1), "learning_rate": 1e-6, "reward": 0.4 + 0.05 * wave(n + 2),
        "reward_std": 0.42, "frac_reward_zero_std": 0.12, "completions/mean_length": 300.0 + 20 * wave(n + 3),
        "completions/clipped_ratio": 0.02, "entropy": 0.4, "step": n,
    }  # fmt: skip
    return {name: value for name, value in (sound | numbers).items() if value is not None}


def trl(steps, **columns):
    """Return the rows of a log; a column is a number, or a function of the step."""
    return [row(n, **{c: v(n) if callable(v) else v for c, v in columns.items()}) for n in steps]


def state(rows):
    return "trainer_state.json", json.dumps({"log_history": rows})


def verl_rows(steps, **columns):
    fixed = {"critic/rewards/mean": lambda n: 0.3 + 0.02 * wave(n), "critic/rewards/max": 1.0, "critic/rewards/min": 0.0,
             "actor/grad_norm": 0.2, "actor/pg_loss": 0.01, "response_length/mean": 500.0, "response_length/clip_ratio": 0.01}  # fmt: skip
    return [(n, {c: v(n) if callable(v) else v for c, v in (fixed | columns).items()}) for n in steps]


def verl_jsonl(rows):
    return "run.jsonl", "\n".join(json.dumps({"step": n, "data": data}) for n, data in rows)


def verl_console(rows, digits=":.3f"):
    text = (" - ".join(f"{c}:{format(v, digits[1:])}" for c, v in data.items()) for _, data in rows)
    return "verl.log", "\n".join(
        f"(main_task pid=7) step:{n} - {line}" for (n, _), line in zip(rows, text, strict=True)
    )


def swift(rows, total=900):
    """Return rows as ms-swift writes them: the step of all steps as a text, the entropy under another name."""
    for one in rows:
        one["global_step/max_steps"] = f"{one.pop('step')}/{total}"
        one["entropy/mean"] = one.pop("entropy")
        one["train_speed(iter/s)"] = 0.01
    return rows


def ppo_console(kl, score):
    lines = (
        {"eps": 0, "objective/kl": f"{kl(n):.3g}", "objective/entropy": f"{1900 - 50 * n}", "objective/scores": f"{score(n):.4g}",
         "objective/rlhf_reward": f"{score(n) - 0.05 * 8 * kl(n):.4g}", "loss/policy_avg": "-0.003", "loss/value_avg": "1.1",
         "policy/entropy_avg": f"{0.7 - 0.01 * n:.2g}", "lr": "5e-06", "episode": 8 * n, "epoch": f"{0.2 * n:.2g}"}
        for n in range(1, 31)
    )  # fmt: skip
    return "console.log", "\n".join(map(str, lines))


def csv(head, rows):
    return "export.csv", "\n".join([",".join(head), *(",".join(f"{cell:.6g}" for cell in line) for line in rows)])


def openrlhf(kl):
    names = "policy_loss", "kl", "reward", "return", "response_length", "actor_lr"
    head = ["Step", *(f"train/{name}" for name in names)]
    return csv(head, [[n, 0.02 * wave(n), kl(n), 0.5 - 0.005 * n, 0.5, 700 + 6 * n, 1e-6] for n in range(1, 41)])


def notebook_table():
    head = ["Step", "Training Loss", "reward", "reward_std", "completion_length", "kl", "rewards / right"]
    lines = []
    for n in range(1, 31):
        reward = -16 + 0.4 * n
        loss = 0.0 if n < 9 else 1e-4 * (n // 9)
        lines.append([n, loss, reward + 4 * wave(n), 1.6, 380 + wave(n), 3e-6 * n * n, reward])
    rows = [head, ["--"] * len(head), *([str(line[0]), *(f"{cell:.6f}" for cell in line[1:])] for line in lines)]
    return "table.txt", "\n".join("\t".join(line) for line in rows)


def from_step(first, before, after):
    return lambda n: after if n >= first else before


def exploding(n):
    return min(30.0, 1e-4 * 1.13**n)


def resumed(fall):
    """Return a log whose run was cut off at step 50 and went on from the checkpoint of step 40."""
    before = trl(range(1, 51), reward=lambda n: 0.3 + 0.004 * n + 0.02 * wave(n))
    return [*before, *trl(range(41, 91), reward=lambda n: 0.3 + 0.004 * n - fall + 0.02 * wave(n))]


@dataclass(frozen=True)
class Case:
    """A log (name of its file, text), the title of its first line, the first finding and its step, and what follows from it."""

    log: tuple[str, str]
    title: str
    first: str
    grade: str = "warning"
    steps: tuple[int, int] = (1, 1)
    follows: frozenset[str] = frozenset()
    alone: bool = True  # no other warning is a cause of its own


OTHER_NAMES = "num_generations", "max_completion_length", "learning_rate", "actor.optim", "rollout.n", "GRPOTrainer"
CASES = {
    "gradient 0, rewards differ": Case(state(trl(range(1, 25), grad_norm=0.0, loss=0.0, kl=0.0)), TRL_TITLE, "gradient_lost"),
    "ms-swift's console": Case(
        ("console.log", "\nTrain:   0%|   | 5/900 [01:29<18:37, 17.8s/it]\n".join(map(json.dumps, swift(trl(range(5, 121, 5), grad_norm=0.0))))),
        "names of ms-swift's GRPO trainer", "gradient_lost", steps=(5, 5)),
    "two updates a rollout, all cut off": Case(
        state([row(n, reward=0.0, reward_std=0.0, frac_reward_zero_std=1.0, loss=0.0, grad_norm=0.0, **{"completions/clipped_ratio": 1.0})
               if n % 2 else row(n, reward=None, reward_std=None, frac_reward_zero_std=None, loss=0.0, grad_norm=0.0,
                                 **{"completions/clipped_ratio": None, "completions/mean_length": None}) for n in range(1, 25)]),
        TRL_TITLE, "never_ends", follows=frozenset({"nothing_earned"})),
    "NaN in verl's console": Case(
        verl_console(verl_rows(range(1, 31), **{
            "critic/rewards/mean": from_step(19, 0.5, -1.0), "critic/rewards/max": from_step(19, 1.0, -1.0),
            "critic/rewards/min": from_step(19, 0.0, -1.0), "actor/grad_norm": from_step(18, 0.3, NAN), "actor/pg_loss": from_step(18, 0.01, NAN),
            "actor/entropy_loss": from_step(18, 0.3, NAN), "response_length/clip_ratio": from_step(19, 0.02, 1.0), "actor/lr": 1e-6})),
        "names of verl's trainer", "not_finite", steps=(18, 18), follows=frozenset({"reward_fell", "truncated"})),
    "half of the weight is gone": Case(
        state(trl(range(1, 41), **{"completions/mean_length": 2900.0, "sampling/sampling_logp_difference/mean": 0.012,
                                   "sampling/importance_sampling_ratio/mean": lambda n: 0.52 + 0.05 * wave(n)})),
        TRL_TITLE, "weights_lost", alone=False),
    "KL of PPO grows, and the score does not": Case(
        ppo_console(lambda n: 0.3 * n, lambda n: 2.8 + 0.02 * n), "names of TRL's PPOTrainer", "kl_eats_reward", steps=(2, 15)),
    "KL explodes, OpenRLHF": Case(openrlhf(lambda n: 0.3 * 1.14**n), "names of OpenRLHF's trainer", "kl_explodes", steps=(15, 25)),
    "KL explodes, reward falls": Case(
        state(trl(range(1, 121), kl=exploding, entropy=None, reward=lambda n: (0.3 + 0.003 * n if n < 60 else max(0.05, 0.48 - 0.012 * (n - 60))) + 0.03 * wave(n))),
        TRL_TITLE, "kl_explodes", steps=(70, 95), follows=frozenset({"reward_fell"})),
    "the table of a notebook": Case(notebook_table(), TRL_TITLE, "loss_small", "note", steps=(1, 10)),
    "entropy under verl's older name": Case(
        verl_jsonl(verl_rows(range(1, 41), **{"actor/entropy_loss": lambda n: 1.2 * 0.89**n})),
        "names of verl's trainer", "entropy_gone_alone", steps=(15, 30)),
    "solved in ten rows": Case(
        state([row(10, reward=0.87, reward_std=0.3, frac_reward_zero_std=0.25), *trl(range(20, 101, 10), reward=1.0, reward_std=0.0,
               frac_reward_zero_std=1.0, loss=0.0, grad_norm=0.0)]),
        TRL_TITLE, "all_earned", "note", steps=(20, 30)),
    "a schedule that ended": Case(
        state(trl(range(1, 81), learning_rate=lambda n: max(0.0, 1e-6 * (1 - n / 40)))), TRL_TITLE, "lr_zero", steps=(40, 45)),
    "resumed, and worse": Case(state(resumed(0.25)), f"{TRL_TITLE}, resumed at step 41", "lost_on_resumption", steps=(41, 41)),
    "resumed, and as good": Case(state(resumed(0.0)), f"{TRL_TITLE}, resumed at step 41", ""),
    "the critic alone in NaN": Case(
        verl_console(verl_rows([1], **{"critic/vf_loss": NAN, "critic/vpred_mean": NAN, "critic/grad_norm": NAN, "actor/lr": 0.0})),
        "names of verl's trainer", "critic_not_finite"),
    "NaN in means over no token": Case(
        ("logging.jsonl", "\n".join(json.dumps(one | {"kl": NAN, "clip_ratio/low_mean": NAN, "percentage": "2%"}) for one in swift(trl([40])))),
        "names of ms-swift's GRPO trainer", "nan_measured", "note", steps=(40, 40)),
    "a KL that is not measured": Case(
        ("table.md", "Step | Training Loss | reward | kl\n-- | -- | -- | --\n" + "\n".join(f"{n} | -0.1 | {5 - n}.5 | nan" for n in range(1, 5))),
        TRL_TITLE, "nan_measured", "note"),
    "a broken dictionary below other text": Case(
        ("out.txt", "config = dict(\n  beta=0,\n)\nx = {\n\n{'loss': 0.0, 'grad_norm': 0.0, 'rewards/a/mean': 2.0, \n'learning_rate': 1e-6, \n"
         "'reward': 2.0, 'reward_std': 0.0, 'frac_reward_zero_std': 1.0, 'epoch': 0.01}\n"),
        TRL_TITLE, "equal_rewards"),
    "slime's norm of three thousand millions": Case(
        ("ray.log", "\n".join(f"step {n}: " + str({"train/loss": 0.1, "train/pg_loss": 0.1, "train/entropy_loss": 0.5, "train/kl_loss": 1e-4,
         "train/train_rollout_logprob_abs_diff": 0.03, "train/grad_norm": 3e9, "train/lr-pg_0": 1e-7, "train/step": n}) for n in (1, 28))),
        "names of slime's trainer", "gradient_huge"),
    "pairs of a name and a value": Case(
        ("note.txt", "completions/mean_length: 300   completions/clipped_ratio: 1   limit: 300 tokens\nreward: 0   frac_reward_zero_std: 1   loss: 0   grad_norm: 0"),
        TRL_TITLE, "never_ends", follows=frozenset({"nothing_earned"})),
    "no end token in PPO": Case(
        ("out.log", "\n".join(str({"objective/scores": 2.0 - 0.1 * n, "objective/kl": 7.0 + n, "loss/value_avg": 0.3, "val/num_eos_tokens": 0,
         "policy/entropy_avg": 1.0, "loss/policy_avg": -0.003, "lr": 1e-5}) for n in range(5))),
        "names of TRL's PPOTrainer", "no_end_token"),
    "one row, gradient 0, nobody knows why": Case(
        verl_jsonl(verl_rows([1], **{"actor/grad_norm": 0.0})), "names of verl's trainer", "no_gradient"),
    "the first row of a warm-up": Case(state(trl([1], learning_rate=0.0)), TRL_TITLE, ""),
    "one sound row": Case(state(trl([1])), TRL_TITLE, ""),
}  # fmt: skip


@pytest.fixture
def written(tmp_path) -> Callable[[tuple[str, str]], Path]:
    def write(log):
        (tmp_path / log[0]).write_text(log[1], encoding="utf-8")
        return tmp_path / log[0]

    return write


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_cause_comes_first_in_the_words_of_whose_log_it_is(case, written):
    path = written(case.log)
    diagnosis = diagnose(path)
    text = str(diagnosis)
    assert text.startswith(f"{path}: {case.title}, ")
    causes = [
        (cause, {e.rule for e in effects}) for cause, effects in diagnosis.causes if cause.rule != "no_evaluation"
    ]
    if case.first:
        first, effects = causes[0]
        assert (first.rule, first.grade) == (case.first, case.grade), text
        assert case.steps[0] <= first.step <= case.steps[1] and case.follows <= effects, text
    if case.alone:
        assert [cause.rule for cause, _ in causes if cause.grade == "warning" and cause.rule != case.first] == [], text
    if not re.search("verl|GRPOTrainer|DPOTrainer", case.title):  # advice is in words where options are not known
        assert not [name for name in OTHER_NAMES if name in text.partition(case.title)[2]], text


def steps_of(run, column="reward"):
    """Return the steps of a log with a number of each."""
    return [(row["step"], row.get(column)) for row in run.rows]


def test_a_late_line_of_an_evaluation_undoes_no_step(written):
    late = (2, {"val-core/gsm8k/acc/mean@1": 0.5})
    first, last = ([(n, {"critic/rewards/mean": n / 8}) for n in steps] for steps in ((1, 2, 3), (4,)))
    run = import_run(written(verl_jsonl([*first, late, *last])))
    assert steps_of(run) == [(n, n / 8) for n in (1, 2, 3, 4)]
    assert run.rows[1]["held_out_accuracy"] == 0.5 and not run.notes


# what was printed, and its steps with their rewards
PRINTED = {
    "resumed where the epoch goes back": (
        [{"loss": 0.1, "reward": reward, "epoch": 0.5 * abs(reward)} for reward in (1, 2, 3, 4, -3, -4, -5)],
        [(1, 1), (2, 2), (3, -3), (4, -4), (5, -5)],
    ),
    "OpenRLHF's step before it": (
        [f"(PPOTrainer pid=1) x] \x1b[32m✨ Global step {n}: {{'policy_loss': 0.1, 'reward': {n}}}" for n in (3, 4)],
        [(3, 3), (4, 4)],
    ),
    "a configuration": (
        ["{'learning_rate': 1e-06, 'beta': 0.04}", "{'loss': 0.1, 'reward': 0.5, 'learning_rate': 1e-6}", "{'eval_loss': 0.3}"],
        [(1, 0.5)],
    ),
    "a dictionary that was cut off": (["{'loss': 0.1, 'reward': 5,", "{'loss': 0.2, 'reward': 7,", "'kl': 1}"], [(1, 5), (2, 7)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_what_was_printed_has_its_steps(name, written):
    lines, steps = PRINTED[name]
    assert steps_of(import_run(written(("a.log", "\n".join(map(str, lines)))))) == steps


@pytest.mark.parametrize("source", WRITERS)
def test_a_log_with_all_names_of_a_program_is_that_program_s(source, written):
    names = dict.fromkeys(WRITERS[source].names, 0.5)
    run = import_run(written(("history.jsonl", json.dumps({"_step": 1, **names}))))
    assert run.source == source and f"names of {WRITERS[source].title}" in diagnose(run).summary


LONG = 400_000
HOSTILE = {
    "a word without end": ("a.log", "step:1 - " + "a" * LONG),
    "digits": ("a.log", "{'loss': " + "1" * LONG),
    "a name without end": ("a.jsonl", json.dumps({"step": 1, "data": {"rewards/" + "accuracy" * (LONG // 8): 1.0}})),
    "a dictionary without end": ("a.log", "{\n" + "'a': 1,\n" * (LONG // 10)),
    "a dictionary whose second line is long": ("a.log", "{'loss': 0.1,\n'text': " + "a" * LONG),
    "deep JSON": ("a.json", "[" * LONG),
    "a long cell": ("a.csv", "Step,reward\n1," + "x" * LONG),
    "an open quote": ("a.csv", 'Step,reward\n1,"' + "x\n" * (LONG // 2)),
    "a step beyond reason": ("a.csv", "Step,reward\n1e300,1"),
    "points of nothing": ("tag-reward.json", "[[1, null, 2]]"),
}
PYTHON = "Traceback", "substring", "could not convert", "recursion", "unhashable", "NoneType", "Exceeds", "field larger"


@pytest.mark.parametrize("log", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_log_is_refused_at_once_in_a_sentence(log, tmp_path):
    (tmp_path / log[0]).write_bytes(log[1].encode("utf-8", "surrogateescape"))
    begun = time.process_time()
    try:
        import_run(tmp_path / log[0])
    except ValueError as error:
        text = str(error)
        assert log[0] in text and len(text) < 1000 and not [words for words in PYTHON if words in text]
    assert time.process_time() - begun < 2
