"""A training run on a table against the same run in slow loops; what lessons show with it, the claims measure."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from rlviz.algorithms import (
    DAPO,
    DCPO,
    DR_GRPO,
    DUPO,
    GRPO,
    GSPO,
    GSPO_TOKEN,
    LITE_PPO,
)
from rlviz.pieces.advantages import ForkingTokens, PromptHistory, SmoothStandardization
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.kl import KLInLoss, KLInReward
from rlviz.pieces.surrogate import DualClip, pessimistic
from rlviz.tabular import TableRun, TableTask, rare_good_action, train_table
from rlviz.types import Batch

NO_KL = replace(GRPO, kl=None)


# --- the slow run: one replica, one response, one token at a time; gradients by autograd through log_softmax ---


@dataclass
class Slow:
    """What a slow run saw: [R][S + 1] probabilities and [R][S] of the rest."""

    probabilities: list
    reward: list
    clipped: list


def slow_run(algorithm, task, *, steps, group_size, groups, updates_per_rollout, minibatches, lr, temperature,
             entropy_weight, replicas, seed):  # fmt: skip
    """Do what train_table says, without a tensor over replicas. It draws the same random numbers in the same order."""
    random = torch.Generator().manual_seed(seed)
    prompts, positions, actions = task.prompts, task.positions, len(task.success)
    start = torch.tensor(task.start or [1 / actions] * actions, dtype=torch.double)
    logits = [start.log().mul(temperature).repeat(prompts, positions, 1) for _ in range(replicas)]
    reference = torch.log_softmax(logits[0] / temperature, -1)
    histories = [PromptHistory.empty(prompts * groups) for _ in range(replicas)]
    seen = Slow(
        [[reference.exp()] for _ in range(replicas)], [[] for _ in range(replicas)], [[] for _ in range(replicas)]
    )
    for _ in range(steps):
        places = torch.rand(replicas, prompts, positions, groups * group_size, generator=random, dtype=torch.double)
        luck = torch.rand(replicas, prompts * groups * group_size, generator=random, dtype=torch.double)
        rollouts = []
        for r in range(replicas):
            log_probs = torch.log_softmax(logits[r] / temperature, -1)
            wrote = [
                [(p, t, drawn(log_probs[p, t], places[r, p, t, n])) for t in range(positions)]
                for p in range(prompts)
                for n in range(groups * group_size)
            ]
            right = [math.prod(task.success[a] for _, _, a in response) for response in wrote]
            rewards = tensor([float(u < p) for u, p in zip(luck[r], right, strict=True)]).view(-1, group_size)
            seen.reward[r].append(rewards.mean().item())
            old_logp, ref_logp = taken(log_probs, wrote), taken(reference, wrote)
            groups_of = [x.view(-1, group_size, positions) for x in (old_logp, ref_logp)]
            chances = torch.stack([torch.stack([log_probs[p, t] for p, t, _ in response]) for response in wrote])
            entropies = -(chances.exp() * chances).sum(-1).view(-1, group_size, positions)
            advantages, histories[r] = judged(algorithm, rewards, *groups_of, entropies, histories[r])
            chosen = [
                int(g) * group_size + i for g in algorithm.select_groups(rewards, random) for i in range(group_size)
            ]
            columns = (old_logp, advantages.reshape(-1, 1, positions), ref_logp)
            rollouts.append(([wrote[i] for i in chosen], *(column[chosen] for column in columns)))
        counts = [[0, 0, 0, 0] for _ in range(replicas)]
        longest = max(len(wrote) for wrote, *_ in rollouts)
        learns = entropy_weight or isinstance(algorithm.kl, KLInLoss) or any(a.any() for _, _, a, _ in rollouts)
        parts = []
        for _ in range(updates_per_rollout if learns else 0):
            if not parts:
                order = torch.arange(longest) if minibatches == 1 else torch.randperm(longest, generator=random)
                parts = list(order.tensor_split(minibatches))
            part = parts.pop().tolist()
            for r, (wrote, *columns) in enumerate(rollouts):
                rows_of_replica = [i for i in part if i < len(wrote)]
                if rows_of_replica:
                    rows = [wrote[i] for i in rows_of_replica], *(column[rows_of_replica] for column in columns)
                    logits[r] = climbed(algorithm, logits[r], *rows, lr, temperature, entropy_weight, counts[r])
        for r in range(replicas):
            seen.probabilities[r].append(torch.softmax(logits[r] / temperature, -1))
            seen.clipped[r].append([cut / max(counts[r][3], 1) for cut in counts[r][:3]])
    return seen


def tensor(values):
    return torch.tensor(values, dtype=torch.double)


def drawn(log_probs, place):
    """Return the action in whose stretch of [0, 1] the place lies."""
    up_to = 0.0
    for action, p in enumerate(log_probs.exp().tolist()):
        up_to += p
        if place <= up_to:
            return action
    return len(log_probs) - 1


def taken(log_probs, wrote):
    """Return the log-probabilities of what was written: [responses, 1, T]."""
    return torch.stack([torch.stack([log_probs[at] for at in response]) for response in wrote]).unsqueeze(1)


def judged(algorithm, rewards, old_logp, ref_logp, old_entropy, history):
    nothing, everything = torch.zeros_like(rewards).bool(), torch.ones_like(rewards)
    lengths = torch.full(rewards.shape, old_logp.shape[-1])
    shaped = algorithm.shape_rewards(rewards, lengths, truncated=nothing, correct=rewards, well_formed=everything)
    mask = torch.ones_like(old_logp).bool()
    known = {"old_logp": old_logp, "ref_logp": ref_logp, "old_entropy": old_entropy}
    return algorithm.advantages(shaped, mask, **known, history=history)


def climbed(algorithm, logits, wrote, old_logp, advantages, ref_logp, lr, temperature, entropy_weight, counts):
    """Return the logits after one step up  −loss + entropy_weight · Σ weights · H,  and count what was clipped."""
    leaf = logits.clone().requires_grad_()
    log_probs = torch.log_softmax(leaf / temperature, -1)
    mask = torch.ones_like(old_logp).bool()
    out = algorithm.loss(taken(log_probs, wrote), Batch(old_logp, advantages, mask, ref_logp))
    bonus = sum(
        -weight * (log_probs[p, t].exp() * log_probs[p, t]).sum()
        for response, weights in zip(wrote, algorithm.aggregate(mask), strict=True)
        for (p, t, _), weight in zip(response, weights[0], strict=True)
    )
    (gradient,) = torch.autograd.grad(-out.loss + entropy_weight * bonus, leaf)
    c = algorithm.surrogate.c if isinstance(algorithm.surrogate, DualClip) else math.inf
    numbers = (out.ratio, out.lower, out.upper, advantages)
    for ratio, lower, upper, advantage in zip(*(x.flatten().tolist() for x in numbers), strict=True):
        counts[0] += ratio < lower and advantage < 0
        counts[1] += ratio > upper and advantage > 0
        counts[2] += ratio > c and advantage < 0
        counts[3] += 1
    return logits + lr * gradient


def agree(algorithm, task, clipping=True, **settings):
    """Assert that the quick run and the slow one are the same in every number, and return the quick one."""
    run, slow = train_table(algorithm, task, **settings), slow_run(algorithm, task, **settings)
    close = {"rtol": 0, "atol": 1e-10}
    expected = torch.stack([torch.stack(steps) for steps in slow.probabilities])
    torch.testing.assert_close(torch.as_tensor(run.probabilities).log(), expected.log(), **close)
    np.testing.assert_allclose(run.reward, slow.reward, **close)
    if clipping:
        np.testing.assert_allclose(np.stack([run.clip_low, run.clip_high, run.clip_dual], -1), slow.clipped, **close)
    return run


TASK = TableTask((0.2, 0.6, 1.0), prompts=2, positions=2, start=(0.5, 0.25, 0.25))
# temperature and lr are such that ratios leave the limits; several groups, so that replicas keep different numbers of them
WHOLE_ROLLOUT = {
    "steps": 3, "group_size": 3, "groups": 1, "updates_per_rollout": 3, "minibatches": 1, "lr": 20.0, "temperature": 2.5,
    "entropy_weight": 0.0, "replicas": 2, "seed": 1,
}  # fmt: skip
MINIBATCHES = WHOLE_ROLLOUT | {
    "groups": 3, "updates_per_rollout": 4, "minibatches": 2, "lr": 2.0, "temperature": 0.7, "entropy_weight": 0.3,
    "replicas": 3,
}  # fmt: skip
PAIRS = MINIBATCHES | {"groups": 1, "group_size": 2, "steps": 4, "lr": 4.0, "temperature": 1.0, "entropy_weight": 0.0}
SETTINGS = {"whole rollout": WHOLE_ROLLOUT, "minibatches and bonus": MINIBATCHES, "pairs in minibatches": PAIRS}
# strong enough to be seen
AMPLIFIED = [
    replace(GRPO, kl=KLInLoss(beta=0.5)),
    DR_GRPO.with_parameters(max_length=1),
    DAPO,
    LITE_PPO,
    DUPO,
    GSPO,
    GSPO_TOKEN,
    DCPO,
    replace(DCPO, name="DCPO c 1.01", surrogate=DualClip(1.01)),
]


# those that leave groups out, and that with a history, in all settings; of the others each in one, in turn
RUNS = [
    (algorithm, settings)
    for place, algorithm in enumerate(AMPLIFIED)
    for settings in (SETTINGS if algorithm in (DAPO, DUPO, DCPO) else [list(SETTINGS)[place % len(SETTINGS)]])
]


@pytest.mark.parametrize(("algorithm", "settings"), RUNS, ids=lambda value: getattr(value, "name", value))
def test_a_run_is_the_slow_run(algorithm, settings):
    run = agree(algorithm, TASK, **SETTINGS[settings])
    assert (run.clip_low + run.clip_high).max() > 0
    assert (run.clip_dual.max() > 0) == (algorithm.name == "DCPO c 1.01")


def per_token(ratio, advantages, lower, upper, mask):
    return pessimistic(ratio, advantages, lower, upper) / mask.sum(-1, keepdim=True)


def by_logp(ratio, advantages, lower, upper, logp):
    return ratio.detach() * advantages * logp


def against_the_reference(rewards, old_logp, ref_logp):
    return rewards - rewards.mean(1, keepdim=True) - 0.3 * (old_logp - ref_logp).sum(-1)


def batch_advantage(rewards):
    if rewards.std() < 1e-6:
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / rewards.std()


class BatchAndHistory(SmoothStandardization):
    def __call__(self, rewards, history=None):
        advantages, after = super().__call__(rewards, history)
        return advantages / (0.1 + rewards.std()), after


STUDENTS = {
    "bounds that ask": {
        "bounds": lambda old_logp, advantages: (torch.full_like(old_logp, 0.9), 1.1 + advantages.abs() / 10)
    },
    "surrogate that asks for mask": {"surrogate": per_token},
    "surrogate that asks for logp": {"surrogate": by_logp, "bounds": no_bounds},
    "advantage that asks for ref_logp": {"advantage": against_the_reference},
    "advantage of the batch": {"advantage": batch_advantage},
    "advantage of batch and past": {"advantage": BatchAndHistory()},
    "advantage of shaped rewards and past": {"advantage": DCPO.advantage, "shape": DUPO.shape},
    "kl in reward": {"kl": KLInReward(beta=0.5)},
}


@pytest.mark.parametrize("student", STUDENTS)
def test_a_student_s_pieces_run_as_they_do_slowly(student):
    settings = PAIRS | {"groups": 2}
    run = agree(replace(NO_KL, **STUDENTS[student]), TASK, clipping="logp" not in student, **settings)
    assert np.abs(run.entropy - train_table(NO_KL, TASK, **settings).entropy).max() > 1e-3


@pytest.mark.parametrize(("group_size", "positions", "share"), [(2, 1, 0.2), (4, 1, 0.2), (7, 2, 0.2), (8, 1, 0.9)])
def test_a_share_of_the_tokens_is_one_of_a_replica_s_own(group_size, positions, share):
    settings = PAIRS | {"groups": 2, "minibatches": 1, "group_size": group_size, "lr": 2.0, "steps": 4}
    agree(replace(NO_KL, advantage=ForkingTokens(share)), replace(TASK, positions=positions), **settings)


# --- by hand ---


def test_the_probabilities_before_training_are_those_asked_for():
    for temperature in (1.0, 3.0):
        run = train_table(GRPO, rare_good_action(0.008), steps=1, temperature=temperature)
        np.testing.assert_allclose(run.probabilities[0, 0, 0, 0], [0.992, 0.008], rtol=1e-12)
        assert run.accuracy[0, 0] == pytest.approx(0.992 * 0.1 + 0.008 * 0.9, abs=1e-12)


def test_accuracy_and_entropy_are_those_of_all_responses_counted_out():
    run = train_table(GRPO, TASK, steps=3, lr=3.0, replicas=2)
    for r, step in itertools.product(range(2), range(4)):
        accuracies, entropies = [], []
        for table in run.probabilities[r, step]:
            responses = list(itertools.product(range(3), repeat=2))
            probability = {(a, b): table[0][a] * table[1][b] for a, b in responses}
            accuracies.append(sum(p * TASK.success[a] * TASK.success[b] for (a, b), p in probability.items()))
            entropies.append(-sum(p * math.log(p) for p in probability.values()) / 2)  # per token
        assert run.accuracy[r, step] == pytest.approx(sum(accuracies) / 2, abs=1e-12)
        assert run.entropy[r, step] == pytest.approx(sum(entropies) / 2, abs=1e-12)
    assert np.ptp(run.accuracy) > 0.05


def test_when_a_level_was_reached():
    accuracy = np.array([[0.1, 0.5, 0.4, 0.9], [0.1, 0.2, 0.3, 0.4], [0.6, 0.1, 0.1, 0.1]])
    entropy = np.array([[3.0, 2.0, 1.0, 0.5], [3.0, 2.5, 2.4, 2.3], [2.9, 1.0, 1.0, 1.0]])
    nothing = np.zeros((3, 3))
    run = TableRun(entropy, accuracy, nothing, nothing, nothing, nothing, np.zeros((3, 4, 1, 1, 2)))
    np.testing.assert_equal(run.steps_to_accuracy(0.5), [1, np.nan, 0])
    np.testing.assert_equal(run.entropy_at_accuracy(0.5), [2.0, np.nan, 2.9])
    # .9 is reached by the step from .4 to .9, and .45 between .1 and .5: seven eighths of the way from 3 to 2
    np.testing.assert_allclose(run.entropy_at_accuracy(0.9), [0.5, np.nan, np.nan])
    np.testing.assert_allclose(run.entropy_at_accuracy(0.45), [2.125, np.nan, 2.9])


def same(a, b):
    return all(np.array_equal(x, getattr(b, name)) for name, x in vars(a).items())


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    runs = [train_table(DUPO, TASK, steps=5, groups=2, replicas=2, seed=seed) for seed in (3, 3, 4)]
    assert same(runs[0], runs[1])
    assert not np.array_equal(runs[0].probabilities, runs[2].probabilities)
    assert not np.array_equal(runs[0].probabilities[0], runs[0].probabilities[1])


def test_more_minibatches_than_responses_that_were_kept_leave_some_updates_empty():
    # two pairs, of which one, both or none stay
    agree(DAPO, TASK, **PAIRS | {"minibatches": 4, "replicas": 1, "steps": 6})
