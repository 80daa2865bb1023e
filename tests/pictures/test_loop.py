"""explore_loop: one step by hand, forty by plain loops, and what is in sight at which moment."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, GRPO, RLOO
from rlviz.page.names import uniform
from rlviz.pictures.loop import FIRST_SEED, GROUP, LAST, PLACES, STEPS, UPDATES, explore_loop

DRAWS = uniform((STEPS, GROUP, PLACES), PLACES, FIRST_SEED)


@functools.cache
def shown(*arguments, **setting):
    return explore_loop(*arguments, **setting).names()


def right_by_counting(logits):
    """Return the probability of digits that add up to 6, by going through all 125 responses."""
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    every = itertools.product(range(5), repeat=3)
    return sum(p[0, a] * p[1, b] * p[2, c] for a, b, c in every if a + b + c == 6)


def test_the_first_step_by_hand():
    names = shown()
    # a uniform policy: the digit is the fifth of [0, 1) in which the draw lies; 19 of 125 responses are right
    digits = np.floor(5 * DRAWS[0])
    assert (
        names.array("digits").reshape(4, 3).tolist() == digits.tolist() == [[2, 0, 4], [3, 0, 1], [0, 4, 1], [2, 3, 4]]
    )
    assert [names.one(f"prob_{i}") for i in range(12)] == pytest.approx([0.2] * 12)
    assert names.array("right")[0] == pytest.approx(19 / 125)
    # one right of four: mean ¼, std ½
    assert names.array("rewards").tolist() == [1, 0, 0, 0] and names.one("mean") == 0.25
    assert [names.one(f"A_{i}") for i in range(4)] == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-3)
    # at ratio 1 each token is pushed by its A
    first = shown(moment=LAST - 1 - UPDATES)
    assert first.array("push") == pytest.approx(np.repeat([1.5, -0.5, -0.5, -0.5], 3), rel=1e-3)
    assert [first.one(f"ratio_{i}") for i in range(12)] == pytest.approx([1.0] * 12)


def test_the_second_update_by_hand():
    # ΣA = 0, so ∂J/∂z(digit) is the sum of A over who wrote it, over 12. First place, digits 2 3 0 2: 1/12 for 2, −.5/12 for 3
    # and 0; times 2.5 the logits are .2083, −.1042, −.1042, 0, 0, and p(2) = 1.2316/5.0338 = .2447: ratio 1.223, beyond 1.2
    names = shown(moment=LAST - 1 - UPDATES + 1)
    ratios = [names.one(f"ratio_{3 * i}") for i in range(4)]
    assert ratios == pytest.approx([1.2233, 0.8950, 0.8950, 1.2233], abs=2e-4)
    # cut where A > 0 beyond 1.2; the wrong response with the same digit is pushed down, by r · A
    assert names.array("is_cut").tolist() == [1, 1, 1, *[0] * 9]
    assert names.array("push")[9] == pytest.approx(-0.5 * 1.2233, rel=1e-3)
    wider = shown(GRPO, moment=LAST - 1 - UPDATES + 1, eps_high=0.5)
    assert wider.one("cut") == 0 and wider.array("push")[0] == pytest.approx(1.5 * 1.2233, rel=1e-3)


def by_loops(eps=0.2, lr=2.5):
    """Return the probability of a right response before training and after each step, and which groups teach nothing."""
    z, right, dead = torch.zeros(3, 5, dtype=torch.double), [], []
    for step in range(STEPS):
        right.append(right_by_counting(z.numpy()))
        cdf = z.softmax(1).cumsum(1)
        digits = [[int((cdf[t] <= DRAWS[step, i, t]).sum()) for t in range(3)] for i in range(4)]
        rewards = torch.tensor([float(sum(each) == 6) for each in digits], dtype=torch.double)
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
    names = shown(step=STEPS)
    assert names.array("right") == pytest.approx(
        np.array(right), abs=2e-3
    )  # the library adds another trifle to the std
    assert np.isfinite(names.array("dead")).tolist() == dead and names.one("dead_count") == sum(dead)
    assert right[-1] > 0.8 and names.one("after") == pytest.approx(right[-1], abs=2e-3)


def test_what_is_in_sight_at_which_moment():
    assert not shown(moment=0).array("typed").any()
    assert shown(moment=5).array("typed").tolist() == [1] * 5 + [0] * 7
    order = [(12, "typed_11"), (13, "is_rewarded"), (14, "has_mean"), (15, "has_advantages"), (16, "is_pushed")]
    for moment, flag in order:
        assert shown(moment=moment).one(flag) == 1 and shown(moment=moment - 1).one(flag) == 0
    assert not shown(moment=15).array("push").any()
    assert [shown(moment=moment).one("progress") for moment in (0, 6, 12, 15, LAST - 2, LAST - 1, LAST)] == [
        0,
        0.5,
        1,
        2,
        3,
        3.5,
        4,
    ]
    assert np.isfinite(shown(moment=LAST - 1, step=3).array("right")).sum() == 3
    assert np.isfinite(shown(moment=LAST, step=3).array("right")).sum() == 4


@pytest.mark.parametrize(
    ("part", "panels"), [("sample", "14"), ("compare", "12"), ("push", "23"), ("repeat", "34"), ("whole", "1234")]
)
def test_a_part_is_shown_with_what_it_receives(part, panels):
    explorer = explore_loop(part=part)
    titles = [ax.get_title()[0] for ax in explorer.figure().axes if ax.get_title()]
    assert titles == list(panels)
    wanted = "repeat" if part == "whole" else part
    assert f"of 40, {wanted}" in explorer.conclusion
    spoken = explorer.names().array("is_spoken").tolist()
    assert spoken == [float(name == wanted) for name in ("sample", "compare", "push", "repeat")]


def test_a_dead_group_says_so_and_moves_nothing():
    assert "every A is 0. This group teaches nothing" in explore_loop(step=2, moment=15).conclusion
    assert "no token is pushed" in explore_loop(step=2, moment=16).conclusion
    names = shown(step=2)
    assert names.one("before") == names.one("after") and not names.array("push").any()


def test_algorithms_differ_as_their_pieces_do():
    # RLOO: A = 1 − 0 for the right one, 0 − ⅓ for the others, and no clip
    names = shown(RLOO, moment=LAST - 1 - UPDATES + 1)
    assert [names.one(f"A_{i}") for i in range(4)] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert names.one("cut") == 0
    assert shown(DAPO, moment=LAST - 1 - UPDATES + 1).one("cut") == 0  # 1.22 is below 1.28
    # DCPO remembers: a group all wrong after one that was not has advantages of the prompt's history
    steps = [shown(DCPO, step=step) for step in range(2, 6)]
    assert any(names.one("count") == 0 and names.one("A_least") < 0 for names in steps)
    assert not any(
        shown(GRPO, step=step).one("A_least") < 0 for step in range(2, 6) if not shown(step=step).one("count")
    )
    assert math.isclose(shown(DCPO).one("right_now"), shown(DCPO).array("right")[1])
