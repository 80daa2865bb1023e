"""explore_loop: one step by hand, a dead group, and what is in sight at which moment."""

import numpy as np
import pytest

from rlviz.algorithms import DAPO, GRPO
from rlviz.page.names import uniform
from rlviz.pictures.loop import ADVANTAGES, FIRST_SEED, GROUP, PLACES, REWARDS, STEPS, explore_loop

DRAWS = uniform((STEPS, GROUP, PLACES), PLACES, FIRST_SEED)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr("rlviz.pictures.loop.STEPS", 3)


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


def test_a_dead_group_moves_nothing():
    # 19 of 125 responses add up to 6: the coefficient of x⁶ in (1 + x + x² + x³ + x⁴)³
    assert numbers().one("before") == pytest.approx(19 / 125)
    explorer = explore_loop(step=2)
    names = explorer.names()
    assert "every A is 0" in explorer.conclusion and not names.array("push").any()
    assert np.isfinite(names.array("dead")).tolist() == [False, True, False]
    assert names.one("before") == names.one("after") == numbers().one("after") != numbers().one("before")


def test_nothing_is_in_sight_before_it_happens():
    at = {moment: numbers(moment=moment) for moment in (5, REWARDS, ADVANTAGES)}
    assert at[5].array("typed").tolist() == [1] * 5 + [0] * 7
    seen = [[np.isfinite(names.one(name)) for name in ("rewards", "mean", "right")] for names in at.values()]
    assert seen == [[False, False, True], [True, False, True], [True, True, True]]
    assert [names.one("has_advantages") for names in at.values()] == [0, 0, 1]
    assert not at[ADVANTAGES].array("push").any() and np.isfinite(at[5].array("right")).sum() == 1
