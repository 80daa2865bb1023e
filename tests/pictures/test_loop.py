"""explore_loop: one step by hand, forty by plain loops, and what is in sight at which moment."""

import itertools

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, GRPO
from rlviz.page.names import uniform
from rlviz.pictures.loop import ADVANTAGES, FIRST_SEED, GROUP, LAST, PLACES, REWARDS, STEPS, explore_loop

DRAWS = uniform((STEPS, GROUP, PLACES), PLACES, FIRST_SEED)


def numbers(*arguments, **setting):
    return explore_loop(*arguments, **setting).names()


def test_the_first_two_updates_by_hand():
    # a uniform policy: the digit is the fifth of [0, 1) in which the draw lies; one response of four adds up to 6
    first = numbers(moment=ADVANTAGES + 1)
    digits = [[2, 0, 4], [3, 0, 1], [0, 4, 1], [2, 3, 4]]
    assert first.array("digits").reshape(4, 3).tolist() == np.floor(5 * DRAWS[0]).tolist() == digits
    assert set(first.array("probs")) == {0.2} and set(first.array("ratios")) == {1}
    assert first.array("rewards").tolist() == [1, 0, 0, 0] and first.one("mean") == 0.25
    # mean ¼, std ½; at ratio 1 each token is pushed by its A
    A = [1.5, -0.5, -0.5, -0.5]
    assert [first.one(f"A_{i}") for i in range(4)] == pytest.approx(A, rel=1e-3)
    assert first.array("push") == pytest.approx(np.repeat(A, 3), rel=1e-3)
    # ΣA = 0, so ∂J/∂z(digit) is the sum of A over who wrote it, over 12. First place, digits 2 3 0 2: 1/12 for 2, −.5/12 for 3
    # and 0; times 2.5 the logits are .2083, −.1042, −.1042, 0, 0, and p(2) = 1.2316/5.0338 = .2447: ratio 1.223, beyond 1.2
    second = numbers(moment=ADVANTAGES + 2)
    assert second.array("ratios")[::3].tolist() == [1.22, 0.9, 0.9, 1.22]
    # cut where A > 0 beyond 1.2; the wrong response with the same digit is pushed down, by r · A
    assert second.array("is_cut").tolist() == [1, 1, 1, *[0] * 9]
    assert second.array("push")[9] == pytest.approx(-0.5 * 1.2233, rel=1e-3)
    for wider in (numbers(GRPO, moment=ADVANTAGES + 2, eps_high=0.5), numbers(DAPO, moment=ADVANTAGES + 2)):
        assert not wider.array("is_cut").any() and wider.array("push")[0] == pytest.approx(1.5 * 1.2233, rel=1e-3)


def right_by_counting(logits):
    """Return the probability of digits that add up to 6, by going through all 125 responses."""
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return sum(p[0, a] * p[1, b] * p[2, c] for a, b, c in itertools.product(range(5), repeat=3) if a + b + c == 6)


def by_loops(eps=0.2, lr=2.5):
    """Return the probability of a right response before training and after each step, and which groups teach nothing."""
    z, right, dead = torch.zeros(3, 5, dtype=torch.double), [], []
    for step in range(STEPS):
        right.append(right_by_counting(z.numpy()))
        cdf = z.softmax(1).cumsum(1)
        digits = [[int((cdf[t] <= DRAWS[step, i, t]).sum()) for t in range(3)] for i in range(4)]
        rewards = torch.tensor([float(sum(response) == 6) for response in digits], dtype=torch.double)
        dead.append(len(set(rewards.tolist())) == 1)
        A = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        old = z.log_softmax(1)
        for _ in range(3):
            moved = z.clone().requires_grad_()
            J = 0.0
            for i, t in itertools.product(range(4), range(3)):
                r = (moved.log_softmax(1)[t, digits[i][t]] - old[t, digits[i][t]]).exp()
                J = J + torch.minimum(r * A[i], r.clamp(1 - eps, 1 + eps) * A[i]) / 12
            z = z + lr * torch.autograd.grad(J, moved)[0]
    return [*right, right_by_counting(z.numpy())], dead


def test_forty_steps_by_loops():
    right, dead = by_loops()
    names = numbers(step=STEPS)
    assert names.array("right") == pytest.approx(np.array(right), abs=1e-9)
    assert right[0] == pytest.approx(19 / 125) and right[-1] > 0.8
    assert np.isfinite(names.array("dead")).tolist() == dead
    assert [names.one(name) for name in ("before", "after")] == pytest.approx(right[-2:], abs=1e-9)
    # the second group is dead: it says so, and moves nothing
    explorer = explore_loop(step=2)
    assert dead[1] and "every A is 0" in explorer.conclusion and not explorer.names().array("push").any()
    assert explorer.names().one("before") == explorer.names().one("after") == pytest.approx(right[1], abs=1e-9)


def test_nothing_is_in_sight_before_it_happens():
    assert numbers(moment=5).array("typed").tolist() == [1] * 5 + [0] * 7
    finite = {m: [np.isfinite(numbers(moment=m).one(name)) for name in ("rewards", "mean")] for m in range(12, 15)}
    assert finite == {12: [False, False], REWARDS: [True, False], 14: [True, True]}
    assert [numbers(moment=m).one("has_advantages") for m in (ADVANTAGES - 1, ADVANTAGES)] == [0, 1]
    assert not numbers(moment=ADVANTAGES).array("push").any()
    assert [np.isfinite(numbers(moment=m, step=3).array("right")).sum() for m in (LAST - 1, LAST)] == [3, 4]
