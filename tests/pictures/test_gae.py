"""explore_gae: credit by hand, bias and noise against derivations."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch

from rlviz.algorithms import DR_GRPO, GRPO, PPO
from rlviz.page.names import drawn
from rlviz.page.tracing import evaluate
from rlviz.pictures.gae import LAMBDAS, LUCK, explore_gae, gae_curve

pytestmark = pytest.mark.usefixtures("untraced")


def curve_of(algorithm=PPO, *, tokens=12, answer="right", start=0.5, offset=0.0, wiggle=0.2, luck=None, **discounting):
    """Return a function of names: what the curve computes, of an answer's tokens or against λ, also for fewer than 4 tokens."""
    controls = {"tokens": tokens, "answer": answer == "wrong", "start": start, "offset": offset, "wiggle": wiggle}
    luck = luck or {name: torch.as_tensor(drawn(draws, {})) for name, draws in LUCK.items()}
    discounting = {"gamma": 1.0, "lam": 0.95, **discounting} if algorithm is PPO else {}
    outputs = {
        name: value.numpy()
        for name, value in evaluate(gae_curve(algorithm), {**controls, **luck, **discounting}).items()
    }
    return lambda name: outputs[name][:tokens] if np.size(outputs[name]) == 24 else outputs[name]


def test_by_hand_at_the_ends_of_lambda_and_between():
    """λ = 1: A = γ^(T − t) R − V. λ = 0: δ = γ V of the next token, or the reward itself after the last, less V. Between: the sum
    of the δ of what follows, each (γλ)^l."""
    curve = curve_of(gamma=0.9, lam=0.5, tokens=3)
    V = curve("critic")
    d = np.append(0.9 * V[1:], 1.0) - V
    np.testing.assert_allclose(curve("monte_carlo"), np.array([0.81, 0.9, 1.0]) - V, atol=1e-12)
    np.testing.assert_allclose(curve("one_step"), d, atol=1e-12)
    between = [d[0] + 0.45 * d[1] + 0.45**2 * d[2], d[1] + 0.45 * d[2], d[2]]
    np.testing.assert_allclose(curve("credits"), between, atol=1e-12)
    assert (curve("least"), curve("most")) == pytest.approx((min(between), max(between)))


def test_the_drawn_answer_is_bent_to_its_end():
    """Steps that are all alike bend to a straight line, from 0 at an even start to .7 √T: Φ(.7 √T t/T / √(T − t)), T = 4."""
    luck = {"luck": torch.ones(400, 24, dtype=torch.double), "wiggles": torch.full((24,), 0.75, dtype=torch.double)}
    right, wrong = (curve_of(tokens=4, luck=luck, answer=answer) for answer in ("right", "wrong"))
    expected = np.array([NormalDist().cdf(1.4 * t / 4 / math.sqrt(4 - t)) for t in range(4)])
    np.testing.assert_allclose(right("value"), expected, rtol=1e-12)
    np.testing.assert_allclose(wrong("value"), 1 - expected, rtol=1e-12)
    # a uniform draw has std 1/√12: ¾ lies ¼ √12 of them above the mean
    np.testing.assert_allclose(right("critic") - right("value"), 0.2 * 0.25 * math.sqrt(12), rtol=1e-12)
    later = curve_of(tokens=4, luck=luck, gamma=0.5, start=0.3, wiggle=0.0, offset=-0.2)
    assert later("value")[0] == pytest.approx(0.3 * 0.5**3)  # the chance at the start, discounted by the tokens to come
    np.testing.assert_allclose(later("critic"), later("value") - 0.2)


def test_the_bias_of_a_constant_offset():
    """The credit A + V of token t is off by b(1 − λᵏ), k tokens before the last: Σ λˡ(e_{t+l+1} − e_{t+l}) + e_t telescopes."""
    curve = curve_of(lam=0.3, tokens=5, offset=0.25, wiggle=0.0)
    for lam, bias in zip([*LAMBDAS, 0.3], [*curve("bias"), curve("bias_at")], strict=True):
        squares = [(0.25 * (1 - lam**k)) ** 2 for k in range(5)]
        assert bias == pytest.approx(math.sqrt(sum(squares) / 5), abs=1e-12)


def test_two_tokens_by_hand():
    """Only token 1's credit has a future, λ(R − V₁), so the mean square is λ²/2 · E[V₁(1 − V₁)], with E = ¼ − asin(½)/2π = 1/6:
    noise = λ/√12. Under γ = .8 it hears γ of V₁, off by (1 − γ)V₁; E[V₁²] = ¼ + asin(½)/2π = ⅓, half of it over both tokens."""
    curve = curve_of(lam=0.6, tokens=2)
    assert curve("noise_at") == pytest.approx(0.6 / math.sqrt(12), rel=0.08)
    assert curve("noise_at") / curve("noise")[-1] == pytest.approx(0.6, abs=1e-9)
    np.testing.assert_allclose(curve_of(gamma=0.8, tokens=2, wiggle=0.0)("bias"), 0.2 * math.sqrt(1 / 6), rtol=0.06)
    # a critic that hopes by ¼ makes good for some of it: at λ = 0 off by .8 · ¼ − .2 V₁, E = .04 − .08 · ½ + .04 / 3 = .04 / 3
    hopes = curve_of(gamma=0.8, tokens=2, wiggle=0.0, offset=0.25)
    assert hopes("bias")[0] == pytest.approx(math.sqrt(0.04 / 6), rel=0.1)


def test_a_group_gives_every_token_one_number():
    """5 of 8 are right, the answer and round(3.5) = 4 others: mean 0.625, variance 8/7 · 0.625 · 0.375."""
    std = math.sqrt(8 / 7 * 0.625 * 0.375)
    np.testing.assert_allclose(curve_of(GRPO, tokens=5)("credits"), [0.375 / std] * 5, rtol=1e-5)
    np.testing.assert_allclose(curve_of(DR_GRPO, tokens=5, answer="wrong")("credits"), -0.5)  # 4 of 8
    np.testing.assert_allclose(curve_of(DR_GRPO, start=0.9)("credits"), 0.125)  # with round(6.3) = 6 others, 7 of 8


def test_the_conclusion_is_true():
    # of 4 tokens all but the last are off by .25 at λ = 0: .25 · √¾ = .22; a critic alone has no noise
    assert explore_gae(lam=0.0, offset=0.25, wiggle=0.0, tokens=4).conclusion == (
        "PPO at λ = 0: the credit of a token is off by 0.22 from the critic's errors and a γ below 1 (bias), and by 0.00 from "
        "chance (noise)."
    )
