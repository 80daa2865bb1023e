"""explore_coin: a run by plain loops, the first estimates' spread in closed form, and the noiseless path."""

import math

import pytest

from rlviz.page.names import drawn
from rlviz.page.picture import Draws
from rlviz.pictures.coin import MOST_FLIPS, RUNS, STEPS, explore_coin


def shown(**setting):
    return explore_coin(**setting).names().array


def by_loops(run, flips, shift, heads, tails, lr, with_baseline):
    """Return the logit of heads after each step of one run, and how far off each estimate was."""
    chance = [
        drawn(Draws("uniform", (STEPS, RUNS, "flips"), seed, MOST_FLIPS), {"flips": flips})[:, run - 1]
        for seed in (1, 2)
    ]
    z, path, errors = 0.0, [0.0], []
    for step in range(STEPS):
        p = 1 / (1 + math.exp(-2 * z))  # of logits z and −z
        is_heads = [draw < p for draw in chance[0][step]]
        rewards = [
            shift + (luck < (heads if head else tails)) for luck, head in zip(chance[1][step], is_heads, strict=True)
        ]
        estimate = 0.0
        for i, (reward, head) in enumerate(zip(rewards, is_heads, strict=True)):
            others = [other for j, other in enumerate(rewards) if j != i]
            advantage = reward - sum(others) / len(others) if with_baseline else reward
            estimate += advantage * (head - p) / flips
        errors.append(estimate - p * (1 - p) * (heads - tails))
        z += lr * estimate
        path.append(z)
    return path, errors


@pytest.mark.parametrize(
    "setting",
    [
        {"flips": 8, "shift": 1.0, "heads": 0.8, "tails": 0.4, "lr": 0.2, "run": 1},
        {"flips": 2, "shift": 5.0, "heads": 0.3, "tails": 0.9, "lr": 0.5, "run": 17},
    ],
)
def test_a_run_by_loops(setting):
    names = shown(**setting)
    for name, with_baseline in (("with", True), ("without", False)):
        path, errors = by_loops(**setting, with_baseline=with_baseline)
        assert names(name).tolist() == pytest.approx(path, abs=1e-9)
        assert names(f"{name}_error").tolist() == pytest.approx(errors, abs=1e-9)
        assert names(f"{name}_heads").item() == pytest.approx(1 / (1 + math.exp(-2 * path[-1])))


def test_the_spread_of_the_first_estimates_in_closed_form():
    # from p = ½ and n = 8 flips. Without: the variance of R (1[heads] − ½), R² being 4 or 1: E R² = .6 · 4 + .4 · 1 = 2.8, so
    # 2.8 / 4 − .1² = .69, over 8. With: the estimate is the sample covariance of R and 1[heads], whose variance is
    # μ22 / n − (n − 2) c² / (n (n − 1)) + v w / (n (n − 1)) with c = .1, v = .24, w = ¼, μ22 = .24 / 4
    names = shown(flips=8, shift=1.0, heads=0.8, tails=0.4)
    without = math.sqrt(0.69 / 8)
    with_ = math.sqrt(0.06 / 8 - 6 * 0.01 / 56 + 0.24 * 0.25 / 56)
    assert without == pytest.approx(0.294, abs=1e-3) and with_ == pytest.approx(0.087, abs=1e-3)
    # the standard deviation of 64 numbers is known to a part in √126, which is .09
    assert names("without_spread").item() == pytest.approx(without, rel=0.2)
    assert names("with_spread").item() == pytest.approx(with_, rel=0.2)


def test_a_constant_on_the_rewards_is_nothing_to_a_baseline_and_noise_without_one():
    plain, shifted = shown(shift=0.0), shown(shift=10.0)
    assert shifted("with").tolist() == pytest.approx(plain("with").tolist(), abs=1e-9)
    assert shifted("exact").tolist() == plain("exact").tolist()
    assert shifted("without_spread").item() > 10 * plain("without_spread").item()
    assert plain("without_wrong").item() == plain("with_wrong").item() == shifted("with_wrong").item() == 0
    assert shifted("without_wrong").item() > 10


def test_the_path_without_noise_by_hand():
    # ∂J/∂z(heads) = p (1 − p)(.9 − .5), a quarter of it at p = ½; the step is 1
    names = shown(heads=0.9, tails=0.5, lr=1.0)
    first = 0.1
    p = 1 / (1 + math.exp(-2 * first))
    assert names("exact")[:3].tolist() == pytest.approx([0, first, first + p * (1 - p) * 0.4])


def test_it_says_which_side_pays_and_shows_what_was_walked():
    assert "By step 7 this run flips tails with probability" in explore_coin(heads=0.2, tails=0.6, step=7).conclusion
    assert explore_coin(heads=0.5, tails=0.5).conclusion.startswith("Neither side pays more.")
    names = shown(step=7)
    assert [int(math.isfinite(value)) for value in names("with")] == [1] * 8 + [0] * 53
    assert names("with")[7] == names("with_now").item()
