"""Rewards that are numbers: by hand through every algorithm, named, refused, recorded, and without right answers."""

from dataclasses import replace
from itertools import cycle
from math import sqrt
from types import SimpleNamespace

import pytest
import torch

from rlviz import DAPO, DPO, GRPO, PPO, TrainSettings, train
from rlviz.algorithms import ALGORITHMS, DUPO, GroupPolicyGradient
from rlviz.cli.terminal import console
from rlviz.cli.train import _print_summary
from rlviz.runs.counterfactual import RecordedGroup
from rlviz.runs.diagnosis import diagnose
from rlviz.runs.inspected import StepWriter
from rlviz.runs.panel import group_table
from rlviz.runs.progress import describe_last_step
from rlviz.study.budget import Contender
from rlviz.study.comparison import compare
from rlviz.training import PairSettings, RunFolder, pass_rates, resume, summarize
from rlviz.training.rewards import agreement, pairs_among
from rlviz.training.run_folder import metrics_of
from small_models.checks import short_repr
from small_models.policies import load_policy
from small_models.tasks import Chain, FileTask, Grade, RewardError, Score, with_reward
from tests.training.test_rewards import written

QUICK = TrainSettings(steps=1, num_prompts=2, group_size=4, evaluate_every=0, checkpoint_every=1, details_every=1)
# Of the first group the mean is 1.5, the deviations are −1 (three times) and 3, their squares sum to 12: the unbiased std is
# √(12 / 3) = 2, the population's √(12 / 4) = √3. The second group teaches nothing.
PAID = [0.5, 0.5, 0.5, 4.5, *[0.25] * 4]
# Both together: the mean is 7 / 8, and the squared deviations 3 · .375² + 3.625² + 4 · .625² sum to 15.125.
BATCH_STD = sqrt(15.125 / 7)


class Paid(Chain):
    """Chain without right answers, which pays these numbers in turn."""

    name, has_answers = "paid", False

    def __init__(self, paid=PAID):
        super().__init__()
        self.values = cycle(paid)

    def grade(self, prompt, response):
        return Grade(format=True, correct=None)

    def reward(self, prompt, response):
        return next(self.values)


def start(algorithm=GRPO, settings=QUICK, task=None, **more):
    return train(load_policy("chain", device="cpu"), task or Paid(), algorithm, settings, **more)


def nines(prompt, response):
    return response.count("9") / 2


def curve(records):
    return [{name: value for name, value in metrics_of(r).items() if name != "seconds"} for r in records]


# A of the deviation −1, where it is not 1 / std = ½: at DCPO's first visit both of its terms are the group's own, by the
# population's std. DAPO does not punish responses as short as chain's; DUPO's .9 R + .1 has the factor in the std, too.
ADVANTAGES = {"Dr.GRPO": 1, "Lite PPO": 1 / BATCH_STD, "DCPO": 1 / sqrt(3)}
GROUPS = [algorithm for algorithm in ALGORITHMS if isinstance(algorithm, GroupPolicyGradient)]


@pytest.mark.parametrize("algorithm", GROUPS, ids=lambda algorithm: algorithm.name)
def test_advantages_of_groups(algorithm):
    rollout = start(algorithm).collect()
    expected = ADVANTAGES.get(algorithm.name, 1 / 2) * torch.tensor([-1.0, -1.0, -1.0, 3.0]).unsqueeze(-1)
    torch.testing.assert_close(rollout.advantages[0], expected * rollout.mask[0], rtol=1e-5, atol=0)
    assert not rollout.advantages[1].any()
    # The dead group counts once (all groups), is replaced by the next prompt, whose group is the first again, or by a copy.
    assert rollout.sampled.selected.tolist() == {DAPO: [0, 2], DUPO: [0, 0]}.get(algorithm, [0, 1])


def test_returns_of_a_critic():
    rollout = start(PPO, replace(QUICK, num_prompts=8, group_size=1)).collect()
    earned = rollout.returns.gather(-1, rollout.samples.last_positions.unsqueeze(-1)).flatten()
    torch.testing.assert_close(earned, torch.tensor(PAID))
    torch.testing.assert_close(rollout.old_values[rollout.mask].unique(), torch.tensor([7 / 8]))  # V begins as the mean


def test_records():
    record = next(start())
    assert record.accuracy is None and record.reward_parts == {"reward": 7 / 8}
    assert (record.reward, record.zero_variance_groups, record.reward_std) == (7 / 8, 0.5, sqrt(15.125 / 8))
    assert [r.reward for r in record.group] == [r.task_reward for r in record.group] == PAID[:4]
    assert {r.correct for r in record.group} == {None} and record.gold == ""
    group = StepWriter(GRPO).step(record)["groups"][0]
    assert group["words"].startswith("4 responses, rewards 0.50 to 4.50; ") and group["marks"] == "○○○●"
    assert {r["graded"] for r in group["responses"]} == {"–"}
    assert RecordedGroup.from_record(record.groups[0]).outcomes["correct"].tolist() == [PAID[:4]]
    assert not any(words in group_table(record) for words in ("right answer", "well formed"))


def test_named_parts_add_up_and_a_part_that_is_left_out_is_0():
    task = Paid([{"a": 1.0, "b": -0.5}, {"a": 2}] * 4)  # sums .5 and 2; means of a (1 + 2) / 2, of b −.5 / 2
    record = next(start(settings=replace(QUICK, reward_correct=2.0), task=task))
    assert (record.reward, record.reward_parts) == (2 * 1.25, {"a": 1.5, "b": -0.25})
    assert [r.reward_parts for r in record.group[:2]] == [{"a": 1.0, "b": -0.5}, {"a": 2.0}]
    assert [r.reward for r in record.group[:2]] == [1.0, 4.0]


def test_a_reward_of_0_and_1_is_the_grade():
    same = with_reward(Chain(), lambda prompt, response: Chain().grade(prompt, response).correct)
    graded, function = next(start(task=Chain())), next(start(task=same))
    assert graded.reward_parts is graded.reward_std is graded.groups[0].responses[0].reward_parts is None
    assert function.reward_parts == {"reward": function.accuracy} == {"reward": graded.accuracy}
    assert curve([graded]) == curve([replace(function, reward_parts=None, reward_std=None)])


def test_from_solved_at_on_a_response_is_right():
    task = Paid()
    task.solved_at = 0.5
    assert next(start(task=task)).accuracy == 0.5  # four of PAID
    assert next(start(task=task, reward=nines)).accuracy is None  # it was the limit of another reward


def test_what_counts_right_answers_refuses_a_task_without(tmp_path):
    for name, call in {
        "filter_solved": lambda: start(settings=replace(QUICK, filter_solved=2)),
        "pass_rates": lambda: pass_rates(load_policy("chain", device="cpu"), Paid()),
        "a comparison": lambda: compare([Contender("GRPO", GRPO)], Paid(), policy="chain", out=tmp_path / "c"),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} counts right answers, and paid has none: "):
            call()


def test_pairs_are_of_higher_against_lower_reward():
    policy = load_policy("chain", device="cpu")
    prompts, texts, rewards = ["35271="], [["#1", "#2", "#3", "#4"]], [0.5, 0.5, 0.25, 1.0]
    more = {"grades": [[Score(True, None, {"reward": r}) for r in rewards]], "samples": written(policy, prompts, texts)}
    sampled = SimpleNamespace(prompts=prompts, texts=texts, **more)
    # #1 and #2 tie, so each is above #3 alone; at most two pairs a prompt
    assert [(p.chosen, p.rejected) for p in pairs_among(policy, sampled)] == [("#1", "#3"), ("#2", "#3")]
    run = train(policy, Chain(), DPO, PairSettings(num_pairs=20, batch_size=10), reward=nines)
    assert run.pairs and all(nines(p.prompt, p.chosen) > nines(p.prompt, p.rejected) for p in run.pairs)


def test_a_judge_agrees_where_it_orders_as_the_rewards_do():
    rewards = torch.tensor([[0.0, 0.5, 1.0]])
    assert agreement(torch.tensor([[1.0, 2.0, 3.0]]), rewards) == 1
    # .5 above 0 is ordered wrongly, 1 above 0 and 1 above .5 are a tie and right: (0 + ½ + 1) / 3
    assert agreement(torch.tensor([[3.0, 2.0, 3.0]]), rewards) == 0.5
    assert agreement(torch.tensor([[1.0, 2.0, 3.0]]), torch.full((1, 3), 0.5)) is None


OUTCOMES = [float("nan"), 10**400, "1", None, {}, {"a": float("nan")}]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: repr(outcome)[:20])
def test_what_is_no_reward_is_refused(outcome):
    with pytest.raises(RewardError) as refusal:
        with_reward(Chain(), lambda prompt, response: outcome).score("35271=", "#8")
    words = f"reward: chain must give a finite number, or finite numbers by name; got {short_repr(outcome)}"
    assert str(refusal.value) == f"{words} for the response '#8' to '35271='"


@pytest.mark.parametrize(("has", "correct", "allowed"), [(True, None, "True or False"), (False, True, "None, as it ")])
def test_a_grade_says_what_its_task_has(has, correct, allowed):
    task = Paid()
    task.has_answers, task.grade = has, lambda prompt, response: Grade(True, correct)
    with pytest.raises(RewardError, match=f"must grade with correct {allowed}.*; got {correct} for the response"):
        task.score("35271=", "#8")


@pytest.mark.parametrize(("every", "calls", "steps"), [(2, 20, 1)], ids=["in an evaluation"])
def test_a_run_whose_reward_raised_goes_on_with_a_mended_one(every, calls, steps, tmp_path):
    settings, left = replace(QUICK, steps=4, evaluate_every=every), iter(range(calls))  # 8 in a step
    uncut = curve(train("chain", GRPO, settings, reward=nines))

    def broken(prompt, response):
        return nines(prompt, response) + 0 * next(left)

    run = train("chain", GRPO, settings, reward=broken, out=tmp_path)
    words = (
        rf"chain raised StopIteration: for the response '.*' to '\d+='; the run stops; .* of step {steps}, is as it was"
    )
    with pytest.raises(RewardError, match=words):
        list(run)
    run.close()
    assert curve(RunFolder.open(tmp_path).records()) == uncut[:steps]
    with pytest.raises(ValueError, match="rewarded by the function broken: give it again"):
        resume(tmp_path, device="cpu")
    assert curve(resume(tmp_path, device="cpu", reward=nines)) == uncut[steps:]
    metrics = RunFolder.open(tmp_path).metrics
    assert (metrics["part:reward"] == metrics["reward"]).all() and diagnose(tmp_path).steps == 4


def test_reward_stands_where_accuracy_would(tmp_path):
    run = start(settings=replace(QUICK, evaluate_every=1), out=tmp_path / "run")
    records, summary = list(run), summarize(run)
    # a test evaluates on 100 prompts: PAID 12 times and its first half, 12 · 7 + 6
    assert records[0].held_out_accuracy is None and records[0].held_out_reward == summary["reward_after"] == 0.9
    assert summary["accuracy_before"] is summary["greedy_accuracy_after"] is None
    words = describe_last_step(records)
    assert "held-out reward 0.90" in words and "accuracy" not in words
    with console.capture() as printed:
        _print_summary(run)
    assert "reward, greedy" in printed.get() and "accuracy" not in printed.get() and "(right" not in printed.get()


RULES = """
def number(prompt, response, answer): return len(response) / 2
def named(prompt, response, answer): return {"length": len(response), "a": -1}
def mixed(prompt, response, answer): return True if response == answer else 0.5
"""


def test_a_rule_of_a_file_may_return_numbers(tmp_path):
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "sums.jsonl").write_text("".join(f'{{"prompt": "{n}=", "answer": "{n}"}}\n' for n in range(20)))
    names = ("number", "named", "mixed")
    number, named, mixed = (FileTask(tmp_path / "sums.jsonl", f"{tmp_path}/rules.py:{name}") for name in names)
    assert number.score("1=", "123") == Score(True, None, {"reward": 1.5}) and not number.has_accuracy
    assert with_reward(FileTask(tmp_path / "sums.jsonl", "exact"), nines).score("1=", "99").reward == 1
    assert named.score("1=", "123") == Score(True, None, {"length": 3.0, "a": -1.0})
    assert next(start(settings=replace(QUICK, max_new_tokens=9), task=named)).accuracy is None
    with pytest.raises(RewardError, match=r"must return True or False, or a Grade.* got 0.5 .*'2' to '1='.*line 2\)"):
        mixed.score("1=", "2")
