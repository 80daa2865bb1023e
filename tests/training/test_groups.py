"""Which groups a step samples: replaced while they teach nothing, from a pool, without the prompts that are solved."""

from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, GRPO
from rlviz.pieces.advantages import SmoothStandardization
from rlviz.pieces.selection import DynamicSampling, drop_all_equal
from rlviz.training import TrainSettings, resume, train
from small_models.policies import load_policy
from small_models.tasks import Chain

SETTINGS = TrainSettings(steps=4, num_prompts=6, group_size=4, evaluate_every=0, details_every=0)
PLAIN = replace(DAPO, shape=None)  # raw outcomes, so that a dead group is one of equal rewards


def start(algorithm=PLAIN, settings=SETTINGS, **named):
    return train(load_policy("chain", device="cpu"), Chain(), algorithm, settings, **named)


def informative(rollout):
    return [p for p, row in enumerate(rollout.sampled.grades) if len({grade.correct for grade in row}) == 2]


def test_dead_groups_are_replaced_until_as_many_as_wanted_are_informative():
    run, twin = start(), start()
    record, rollout = next(run), twin.collect()
    assert len(rollout.sampled.prompts) > 6, "no group was dead: choose another seed"
    assert rollout.sampled.selected.tolist() == informative(rollout)
    assert (record.responses_used, record.responses_sampled) == (6 * 4, 4 * len(rollout.sampled.prompts))
    assert run.tokens_sampled == int(rollout.samples.mask.sum())
    assert informative(rollout)[-1] == len(rollout.sampled.prompts) - 1, "more was sampled than needed"
    assert len(set(rollout.sampled.prompts)) == len(rollout.sampled.prompts)
    assert rollout.samples.tokens.shape[:2] == rollout.rewards.shape == (len(rollout.sampled.prompts), 4)


def test_without_rounds_training_goes_on_with_the_groups_that_are_left():
    dropped, once = (start(replace(PLAIN, select=select)) for select in (drop_all_equal, DynamicSampling(max_rounds=1)))
    first, second = dropped.collect(), once.collect()
    assert first.sampled.prompts == second.sampled.prompts and len(first.sampled.prompts) == 6
    assert first.sampled.selected.tolist() == second.sampled.selected.tolist() == informative(first)
    assert len(first.sampled.selected) < 6


@pytest.mark.parametrize(("most", "pool", "rounds", "sampled"), [(1, 0, 1, 6), (5, 0, 5, 30), (5, 15, 3, 15)])
def test_no_more_than_max_rounds_times_the_prompts_or_the_pool_are_sampled(most, pool, rounds, sampled):
    """A temperature near 0 gives equal responses, so every group is dead."""
    cold = replace(SETTINGS, temperature=1e-4, prompt_pool=pool)
    record = next(start(replace(PLAIN, select=DynamicSampling(max_rounds=most)), cold))
    assert (record.rounds, record.responses_sampled, record.responses_used) == (rounds, sampled * 4, 0)
    assert record.contributing == record.rows_used == record.loss == record.grad_norm == 0


def test_a_pool_is_the_same_for_a_seed_and_all_that_is_drawn_from():
    pooled = replace(SETTINGS, prompt_pool=8)
    runs = [start(GRPO, pooled), start(GRPO, pooled), start(GRPO, replace(pooled, seed=1))]
    pools = [{run.task.train_prompts[place] for place in run.state.pool.tolist()} for run in runs]
    assert pools[0] == pools[1] != pools[2] and len(pools[0]) == 8
    assert set(runs[0].collect().sampled.prompts) < pools[0]
    everything = replace(SETTINGS, prompt_pool=len(Chain().train_prompts))
    assert start(GRPO, everything).collect().sampled.prompts == start(GRPO).collect().sampled.prompts


class Noted(Chain):
    """Prompts that begin with an even digit are solved by any response, the others by some; it keeps what it graded."""

    def __init__(self):
        self.graded = {}

    def grade(self, prompt, response):
        correct = int(prompt[0]) % 2 == 0 or len(response) % 2 == 0
        self.graded.setdefault(prompt, []).append(correct)
        return replace(super().grade(prompt, response), correct=correct)


def test_prompts_that_every_response_solves_leave_the_pool(tmp_path):
    settings = replace(SETTINGS, prompt_pool=40, filter_solved=3, steps=2)
    policy, task = load_policy("chain", device="cpu"), Noted()
    run = train(policy, task, replace(GRPO, kl=None), settings, out=tmp_path / "run")
    pool = run.state.pool.tolist()
    first, second = list(run)
    solved = {prompt: sum(graded[:3]) for prompt, graded in task.graded.items()}  # the filter's come first
    unsolved = [index for index in pool if solved[task.train_prompts[index]] < 3]
    assert set(solved.values()) >= {0, 1, 2, 3}
    assert run.state.pool.tolist() == unsolved and 0 < len(unsolved) < 40
    assert (first.responses_sampled, second.responses_sampled) == (40 * 3 + 24, 24)
    assert first.tokens_sampled > 24 * 9, "the filter's tokens are not counted"
    again = resume(tmp_path / "run", steps=3, device="cpu", task=Noted())
    assert again.state.pool.tolist() == unsolved
    assert next(again).responses_sampled == 24


class FewPrompts(Chain):
    """So few that every rollout visits each of them."""

    def all_prompts(self):
        return list(super().all_prompts())[:7]


def test_the_history_of_a_prompt_is_carried_from_visit_to_visit():
    run = train(load_policy("chain", device="cpu"), FewPrompts(), DCPO, SETTINGS)
    piece, histories, shared = SmoothStandardization(), {}, 0
    for _ in range(3):
        rollout = run.collect()
        for p, prompt in enumerate(rollout.sampled.prompts):
            rewards = rollout.rewards[p : p + 1]
            expected, after = piece(rewards, histories.get(prompt))
            torch.testing.assert_close(rollout.advantages[p, :, 0], expected[0])
            shared += prompt in histories and not torch.equal(expected, piece(rewards)[0])
            histories[prompt] = after
    assert len(histories) == 6 and shared > 0
    assert run.state.history.visits.tolist() == [3] * 6
