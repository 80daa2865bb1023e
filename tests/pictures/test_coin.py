"""explore_coin: a run by plain loops, and the first estimates' spread in closed form."""

import math

import pytest

from rlviz.page.names import drawn
from rlviz.page.picture import Draws
from rlviz.pictures.coin import MOST_FLIPS, RUNS, STEPS, explore_coin


def by_loops(run, flips, shift, heads, tails, lr, with_baseline):
    """Return the logit of heads after each step of one run, and how far off each estimate was."""
    coins, luck = (
        drawn(Draws("uniform", (STEPS, RUNS, "flips"), seed, MOST_FLIPS), {"flips": flips})[:, run - 1]
        for seed in (1, 2)
    )
    z, path, errors = 0.0, [0.0], []
    for step in range(STEPS):
        p = 1 / (1 + math.exp(-2 * z))  # of logits z and −z
        is_heads = [draw < p for draw in coins[step]]
        rewards = [shift + (draw < (heads if head else tails)) for draw, head in zip(luck[step], is_heads, strict=True)]
        others = [with_baseline * (sum(rewards) - reward) / (flips - 1) for reward in rewards]
        estimate = sum((R - b) * (head - p) for R, b, head in zip(rewards, others, is_heads, strict=True)) / flips
        errors.append(estimate - p * (1 - p) * (heads - tails))
        z += lr * estimate
        path.append(z)
    return path, errors


@pytest.mark.parametrize(
    "setting",
    [
        {"flips": 2, "shift": 5.0, "heads": 0.3, "tails": 0.9, "lr": 0.5, "run": 17},
    ],
)
def test_a_run_by_loops(setting):
    names = explore_coin(**setting, step=50).names()
    for name, with_baseline in (("with", True), ("without", False)):
        path, errors = by_loops(**setting, with_baseline=with_baseline)
        expected = {"": path[:51] + [math.nan] * 10, "_error": errors, "_now": path[50:51]}
        expected["_heads"] = [1 / (1 + math.exp(-2 * path[50]))]
        for part, values in expected.items():
            assert names.array(name + part).tolist() == pytest.approx(values, abs=1e-9, nan_ok=True), name + part
    step = 0.25 * (setting["heads"] - setting["tails"]) * setting["lr"]  # of the exact gradient at p = ½
    assert names.array("exact")[:2].tolist() == pytest.approx([0, step])


def test_the_spread_of_the_first_estimates_in_closed_form():
    # from p = ½ and n = 8 flips. Without: the variance of R (1[heads] − ½), R² being 4 or 1: E R² = .6 · 4 + .4 · 1 = 2.8, so
    # 2.8 / 4 − .1² = .69, over 8. With: the estimate is the sample covariance of R and 1[heads], whose variance is
    # μ22 / n − (n − 2) c² / (n (n − 1)) + v w / (n (n − 1)) with c = .1, v = .24, w = ¼, μ22 = .24 / 4
    times = math.sqrt(0.69 / 8) / math.sqrt(0.06 / 8 - 6 * 0.01 / 56 + 0.24 * 0.25 / 56)
    spreads = [
        explore_coin(heads=heads, tails=tails, shift=shift) for heads, tails, shift in ((0.8, 0.4, 1.0), (0, 0, 0.0))
    ]
    # rewards that are all 0 have no spread with either rule, which is as far
    assert [explorer.names().one("times") for explorer in spreads] == pytest.approx([times, 1.0], rel=0.25)
    assert "1.0 times as far" in spreads[1].conclusion
