import math
from statistics import fmean, pstdev, stdev

import pytest
import torch
from hypothesis import given, settings, strategies as st

from rlviz.pieces.advantages import (
    GroupAdvantage,
    LeaveOneOut,
    ProcessAdvantage,
    PromptHistory,
    SmoothStandardization,
)
from tests.pieces.tensors import close, double, rollout, seeds


def rewards(*rows):
    return double(rows)


def test_group_std_by_hand():
    """Hand-worked: rewards 1 0 0 0 have mean 1/4, deviations 3/4 −1/4 −1/4 −1/4, unbiased variance (9+1+1+1)/16/3 = 1/4.

    The other groups are all equal, and exactly 0, also where floating point has a std above 0.
    """
    advantage = GroupAdvantage()
    got = advantage(rewards([1, 0, 0, 0], [5, 5, 5, 5]))
    close(got, [[1.5, -0.5, -0.5, -0.5], [0, 0, 0, 0]], rtol=1e-5)
    assert (advantage(rewards([0.1, 0.1, 0.1])) == 0).all()
    assert (advantage(rewards([1e8 + 1, 1e8 + 1])) == 0).all()


TWO_GROUPS = rewards([1, 0, 1, 0], [0, 0, 1, 0])
# their means are 1/2 and 1/4
CENTRED = rewards([0.5, -0.5, 0.5, -0.5], [-0.25, -0.25, 0.75, -0.25])


def test_mean_only_by_hand():
    """Assert R minus the mean of its group, and exactly 0 in a group of equal rewards."""
    advantage = GroupAdvantage(scale="none")
    close(advantage(TWO_GROUPS), CENTRED)
    assert (advantage(rewards([0.1, 0.1, 0.1], [1, 0, 1]))[0] == 0).all()


def test_batch_std_by_hand():
    """Hand-worked: all eight rewards have mean 3/8, squared deviations 3·(5/8)² + 5·(3/8)² = 15/8, unbiased variance 15/56."""
    advantage = GroupAdvantage(scale="batch_std")
    close(advantage(TWO_GROUPS), CENTRED / math.sqrt(15 / 56), rtol=1e-5)
    assert (advantage(rewards([0.1, 0.1, 0.1], [1, 0, 1]))[0] == 0).all()


def test_leave_one_out_by_hand():
    """Hand-worked: the other three of 1 0 0 0 have mean 0 for the first response and 1/3 for the rest."""
    advantage = LeaveOneOut()
    close(advantage(rewards([1, 0, 0, 0])), [[1, -1 / 3, -1 / 3, -1 / 3]])
    assert (advantage(rewards([0.1, 0.1, 0.1])) == 0).all()


def test_eps_stands_beside_the_std():
    # the group's std is ½, and so is that of two such groups about: 8 rewards, mean 1/4, variance 8 · 3/16 / 7 = 3/14
    close(GroupAdvantage(eps=0.5)(rewards([1, 0, 0, 0])), [[0.75, -0.25, -0.25, -0.25]])
    batch = GroupAdvantage(scale="batch_std", eps=0.5)(rewards([1, 0, 0, 0], [1, 0, 0, 0]))
    close(batch, double([[0.75, -0.25, -0.25, -0.25]] * 2) / (math.sqrt(3 / 14) + 0.5))


groups_of_rewards = st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0, -2.0]), min_size=2, max_size=6)


@settings(max_examples=40, deadline=None)
@given(groups_of_rewards)
def test_relations_between_the_advantages(group):
    r, size = rewards(group), len(group)
    exact = GroupAdvantage(eps=0.0)(r)
    close(GroupAdvantage(scale="none")(r) * size / (size - 1), LeaveOneOut()(r))
    close(LeaveOneOut()(r), [[x - fmean(group[:i] + group[i + 1 :]) for i, x in enumerate(group)]], atol=1e-12)
    close(GroupAdvantage(eps=0.0)(3 * r - 7), exact, rtol=1e-9)  # blind to an affine rescaling of R
    close(GroupAdvantage(scale="batch_std", eps=0.0)(r), exact, rtol=1e-9)  # one group is the batch
    # on a first visit DCPO's is the same with the population's std, √((G − 1)/G) of the unbiased one
    close(SmoothStandardization()(r)[0], exact * math.sqrt(size / (size - 1)), rtol=1e-9)


def slow_process(rewards, ends, combine="sum", eps=1e-6):
    """One group, by loops over lists: rewards and ends [G][T] → advantages [G][T]."""
    steps = [r for row, at in zip(rewards, ends, strict=True) for r, end in zip(row, at, strict=True) if end]
    if not steps or min(steps) == max(steps):
        return [[0.0] * len(row) for row in rewards]
    advantages = []
    for row, at in zip(rewards, ends, strict=True):
        z = {t: (row[t] - fmean(steps)) / (stdev(steps) + eps) for t in range(len(row)) if at[t]}
        to_come = [[z[u] for u in z if u >= t] for t in range(len(row))]
        advantages.append([(sum(c) if combine == "sum" else fmean(c)) if c else 0.0 for c in to_come])
    return advantages


def slow_smooth(visits):
    """DCPO's two mixtures for each reward of one prompt's last visit, from the list of all rewards; the nearer to 0 first."""
    i, group, everything = len(visits), visits[-1], [r for visit in visits for r in visit]

    def standard(reward, rewards):
        return 0.0 if min(rewards) == max(rewards) else (reward - fmean(rewards)) / pstdev(rewards)

    pairs = [(standard(r, group), standard(r, everything)) for r in group]
    return [sorted(((i - 1) / i * n + t / i, n / i + (i - 1) / i * t), key=abs) for n, t in pairs]


# Process supervision. Where no step ends stands 9, which is to be ignored.
STEP_REWARDS = double(
    [
        [[4, 9, 0, 9], [9, 0, 9, 0], [9, 9, 9, 9]],
        [[0.1, 9, 9, 0.1], [9, 9, 0.1, 9], [9, 9, 9, 9]],
        [[9, 9, 9, 9], [9, 9, 9, 9], [9, 9, 9, 9]],
    ]
)
STEP_ENDS = STEP_REWARDS != 9


def test_process_advantage_by_hand():
    """Hand-worked, sum: the group's four steps 4 0 0 0 have mean 1, variance (9+1+1+1)/3 = 4, std 2: z = 1.5 −.5 −.5 −.5.

    First response: z of 1.5 at token 0 and −.5 at token 2, nothing to come at token 3. Second: −.5 at tokens 1 and 3.
    The third has no step. In the second group all step rewards are equal, and the third group has none: exactly 0.
    """
    got = ProcessAdvantage()(STEP_REWARDS, STEP_ENDS)
    close(got[0], [[1, -0.5, -0.5, 0], [-1, -1, -0.5, -0.5], [0, 0, 0, 0]], rtol=1e-5)
    assert (got[1:] == 0).all()
    # means of the steps to come: (1.5 − .5)/2 = .5, then −.5
    got = ProcessAdvantage(combine="mean")(STEP_REWARDS, STEP_ENDS)
    close(got[0], [[0.5, -0.5, -0.5, 0], [-0.5] * 4, [0, 0, 0, 0]], rtol=1e-5)
    assert (got[1:] == 0).all()


@pytest.mark.parametrize("combine", ["sum", "mean"])
@seeds()
def test_process_advantage_is_the_slow_one(combine, seed):
    r = rollout(seed)
    junk = torch.where(r.step_ends, r.step_rewards, math.inf)
    groups = zip(r.step_rewards.tolist(), r.step_ends.tolist(), strict=True)
    expected = [slow_process(*group, combine=combine, eps=0.25) for group in groups]
    close(ProcessAdvantage(combine=combine, eps=0.25)(junk, r.step_ends), expected, rtol=1e-9, atol=1e-12)


def visit(advantage, *groups):
    """Return the advantages at each visit: groups [i, P, G]."""
    history, seen = None, []
    for group in groups:
        advantages, history = advantage(double(group), history)
        seen.append(advantages)
    return torch.stack(seen), history


# Two prompts, three visits of two responses
VISITS = [[[0, 4], [0, 4]], [[0, 0], [2, 2]], [[6, 2], [4, 4]]]


def test_smooth_standardization_by_hand():
    """Hand-worked over three visits, population stds.

    First prompt. i = 1: mean 2, std 2: ∓1. i = 2: all equal, so A_new = 0; of 0 4 0 0 mean 1, variance (1+9+1+1)/4 = 3:
    A_total = −1/√3, and both mixtures are its half. i = 3: group mean 4, std 2: A_new = ±1; of all six mean 2, variance
    (4+4+4+4+16+0)/6 = 16/3: A_total = 4/(4/√3) = √3, and 0. First: SA_new = 2/3 + √3/3 is nearer to 0 than
    SA_total = 1/3 + 2√3/3. Second: SA_new = −2/3, SA_total = −1/3 is nearer.
    Second prompt. i = 2: 2 is the mean of both: 0. i = 3: all equal, but of 0 4 2 2 4 4 mean 8/3, variance 56/6 − 64/9 =
    20/9: A_total = (4/3)/(2√5/3) = 2/√5, and the nearer mixture has weight 1/3.
    """
    advantage = SmoothStandardization()
    seen, _ = visit(advantage, *VISITS)
    close(seen[0], [[-1, 1], [-1, 1]])
    close(seen[1], [[-1 / math.sqrt(12)] * 2, [0, 0]])
    close(seen[2], [[2 / 3 + math.sqrt(3) / 3, -1 / 3], [2 / math.sqrt(45)] * 2])
    # always .1: nothing to learn, exactly, though in floating point three of them have another mean than two
    always, history = visit(advantage, *[[[0.1, 0.1, 0.1]]] * 3)
    assert (always == 0).all()
    assert (advantage(rewards([0.1, 0.1]), history)[0] == 0).all()


def test_smooth_standardization_with_the_authors_unbiased_stds():
    # first prompt: variances 8 and 0, carried ((8 + 0) + ½ · (0 − 2)²)/2 = 5; then 8: (2·5 + 8 + ⅔ · (4 − 1)²)/3 = 8
    seen, history = visit(SmoothStandardization(ddof=1), *VISITS)
    close(seen[:2, 0], [[-math.sqrt(0.5), math.sqrt(0.5)], [-1 / math.sqrt(20)] * 2])
    close(history.variance[:1], [8])
    # A_new = ±2/√8 = ±√.5, A_total = 4/√8 = √2, and 0
    close(seen[2, 0], [2 / 3 * math.sqrt(0.5) + math.sqrt(2) / 3, -math.sqrt(0.5) / 3])


def test_smooth_standardization_without_the_division():
    # third visit of the first prompt: A_new = ±2, A_total = 4 and 0: 4/3 + 4/3 < 2/3 + 8/3, and |−2/3| < |−4/3|
    seen, _ = visit(SmoothStandardization(scale="none"), *VISITS)
    close(seen[:, 0], [[-2, 2], [-0.5, -0.5], [8 / 3, -2 / 3]])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 4).flatmap(
        lambda g: st.lists(
            st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=g, max_size=g), min_size=1, max_size=6
        )
    )
)
def test_smooth_standardization_is_the_slow_one_that_stores_every_reward(visits):
    seen, history = visit(SmoothStandardization(), *[[group] for group in visits])
    for i, advantages in enumerate(seen[:, 0].tolist(), start=1):
        for got, (nearer, farther) in zip(advantages, slow_smooth(visits[:i]), strict=True):
            either = abs(farther) - abs(nearer) < 1e-9  # at a tie of opposite signs rounding decides
            assert got == pytest.approx(nearer, rel=1e-8, abs=1e-12) or (
                either and got == pytest.approx(farther, rel=1e-8)
            )
    everything = [r for group in visits for r in group]
    assert history.visits.tolist() == [len(visits)]
    close(history.mean, [fmean(everything)])
    close(history.variance, [pstdev(everything) ** 2], rtol=1e-9, atol=1e-12)
    assert (history.lowest.item(), history.highest.item()) == (min(everything), max(everything))


def test_float32_rewards_give_float32_advantages_from_a_float64_history():
    _, history = SmoothStandardization()(torch.tensor([[0.1, 0.1]]))
    assert history.mean.dtype == torch.double
    advantages, _ = SmoothStandardization()(torch.tensor([[0.1, 0.1]]), history)
    assert advantages.dtype == torch.float
    assert (advantages == 0).all()


def test_history_is_taken_and_put_by_prompt():
    advantage, index = SmoothStandardization(), torch.tensor([3, 1])
    before = PromptHistory.empty(4)
    once = before.index_put(index, advantage(rewards([0, 4], [1, 1]), before.index_select(index))[1])
    twice = once.index_put(index[:1], advantage(rewards([0, 0]), once.index_select(index[:1]))[1])
    assert before.visits.tolist() == [0, 0, 0, 0]  # a value, not a store
    assert twice.visits.tolist() == [0, 1, 0, 2]
    close(twice.mean, [0, 1, 0, 1])
    close(twice.variance, [0, 0, 0, 3])
    assert twice.lowest.tolist() == [math.inf, 1, math.inf, 0]
    assert twice.highest.tolist() == [-math.inf, 1, -math.inf, 4]
    assert twice.index_select(index).visits.tolist() == [2, 1]
    # prompt 3 is the first prompt of the example by hand
    close(advantage(rewards([6, 2]), twice.index_select(index[:1]))[0], [[2 / 3 + math.sqrt(3) / 3, -1 / 3]])
