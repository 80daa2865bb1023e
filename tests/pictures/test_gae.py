"""explore_gae: credit by hand, bias and noise against derivations."""

import math
from dataclasses import replace
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlviz.algorithms import DR_GRPO, GRPO, PPO
from rlviz.page.names import drawn
from rlviz.page.tracing import evaluate
from rlviz.pictures.gae import LAMBDAS, LUCK, discounting, explore_gae, gae
from rlviz.pieces.gae import GAE

pytestmark = pytest.mark.usefixtures("untraced")


def gae_curve(algorithm=PPO, *, tokens=12, answer="right", start=0.5, offset=0.0, wiggle=0.2, **parameters):
    """Return what the curve computes, of an answer's tokens and against λ, also for fewer tokens than the slider has."""
    own = {n: v for n, v in (discounting(algorithm) | parameters).items() if n in ("gamma", "lam")}
    given = {"tokens": tokens, "answer": answer == "wrong", "start": start, "offset": offset, "wiggle": wiggle}
    luck = {name: torch.as_tensor(drawn(draws, {})) for name, draws in LUCK.items()}
    found = {name: value.numpy() for name, value in evaluate(gae(algorithm), {**own, **given, **luck}).items()}
    of_tokens = {name: found[name][:tokens] for name in ("value", "critic", "one_step", "whole")}
    against = {name: found.get(name) for name in ("bias", "noise", "bias_at", "noise_at")}
    return SimpleNamespace(**of_tokens, advantages=found["credits"][:tokens], **against)


def test_by_hand_at_the_ends_of_lambda_and_between():
    """λ = 1: A = γ^(T − t) R − V. λ = 0: δ = γ V of the next token, or the reward itself after the last, less V. Between: the sum
    of the δ of what follows, each (γλ)^l."""
    one, none, some = (gae_curve(gamma=0.9, lam=lam, tokens=3) for lam in (1.0, 0.0, 0.5))
    np.testing.assert_allclose(one.advantages, np.array([0.81, 0.9, 1.0]) - one.critic, atol=1e-12)
    np.testing.assert_allclose(one.whole, one.advantages, atol=1e-12)
    d = np.append(0.9 * none.critic[1:], 1.0) - none.critic
    np.testing.assert_allclose(none.advantages, d, atol=1e-12)
    np.testing.assert_allclose(none.one_step, d, atol=1e-12)
    expected = [d[0] + 0.45 * d[1] + 0.45**2 * d[2], d[1] + 0.45 * d[2], d[2]]
    np.testing.assert_allclose(some.advantages, expected, atol=1e-12)
    at_0 = gae_curve(gamma=0.0, lam=0.7, tokens=6, wiggle=0.3)  # a token's own reward less the critic
    np.testing.assert_allclose(at_0.advantages, np.array([0, 0, 0, 0, 0, 1]) - at_0.critic, atol=1e-12)


def test_critic_and_value():
    curve = gae_curve(tokens=10, start=0.3, offset=-0.2, wiggle=0.0)
    np.testing.assert_allclose(curve.critic, curve.value - 0.2)
    assert curve.value[0] == pytest.approx(0.3)
    assert curve.value[-1] > 0.5  # it ends 0.7 √T above 0, and one step of N(0, 1) is left
    discounted = gae_curve(gamma=0.5, tokens=10, start=0.3, wiggle=0.0)
    np.testing.assert_allclose(discounted.value, curve.value * 0.5 ** np.arange(9, -1, -1))
    wrong = gae_curve(tokens=10, start=0.3, answer="wrong")
    assert wrong.value[-1] < 0.5 and wrong.value[0] == pytest.approx(0.3)


def test_the_drawn_answer_is_bent_to_its_end():
    """Steps that are all alike bend to a straight line, from 0 at an even start to .7 √T: Φ(.7 √T t/T / √(T − t)), T = 4."""
    luck = {"luck": torch.ones(400, 24, dtype=torch.double), "wiggles": torch.full((24,), 0.75, dtype=torch.double)}
    given = {"tokens": 4, "answer": 0, "start": 0.5, "offset": 0, "wiggle": 0.2, "gamma": 1, "lam": 1}
    found = evaluate(gae(PPO), {**given, **luck})
    value = found["value"]
    expected = [NormalDist().cdf(1.4 * t / 4 / math.sqrt(4 - t)) for t in range(4)]
    np.testing.assert_allclose(value[:4].numpy(), expected, rtol=1e-12)
    assert value[4:].isnan().all()
    # a uniform draw has std 1/√12: ¾ lies ¼ √12 of them above the mean
    np.testing.assert_allclose((found["critic"] - value)[:4].numpy(), 0.2 * 0.25 * math.sqrt(12), rtol=1e-12)


def test_the_bias_of_a_constant_offset():
    """The credit A + V of token t is off by b(1 − λᵏ), k tokens before the last: Σ λˡ(e_{t+l+1} − e_{t+l}) + e_t telescopes."""
    curve = gae_curve(lam=0.3, tokens=5, offset=0.25, wiggle=0.0)
    for lam, bias in zip([*LAMBDAS, 0.3], [*curve.bias, curve.bias_at], strict=True):
        squares = [(0.25 * (1 - lam**k)) ** 2 for k in range(5)]
        assert bias == pytest.approx(math.sqrt(sum(squares) / 5), abs=1e-12)
    np.testing.assert_allclose(gae_curve(tokens=8, wiggle=0.0).bias, 0.0, atol=1e-12)


def test_at_lambda_0_one_token_s_wiggle_is_the_next_token_s_error():
    """A + V = V of the next token, or the reward itself, so the error of token t is e_{t+1}, and 0 for the last."""
    curve = gae_curve(tokens=6, wiggle=0.2)
    errors = (curve.critic - curve.value)[1:]
    assert errors.any() and curve.bias[0] == pytest.approx(math.sqrt((errors**2).sum() / 6))
    assert (curve.noise[0], curve.bias[-1]) == pytest.approx((0.0, 0.0), abs=1e-12)


@pytest.mark.parametrize("tokens", [4, 16])
def test_the_noise_at_lambda_1_is_the_outcome_s(tokens):
    """After t tokens the outcome's variance is V(1 − V). E[V²] is the chance that two futures that share the first t tokens both
    end above 0: ¼ + asin(t/T) / 2π for a fair start. So the mean square is the mean over t of ¼ − asin(t/T) / 2π."""
    curve = gae_curve(tokens=tokens)
    squares = [0.25 - math.asin(t / tokens) / (2 * math.pi) for t in range(1, tokens + 1)]
    assert curve.noise[-1] == pytest.approx(math.sqrt(sum(squares) / tokens), rel=0.06)  # 400 answers
    assert (np.diff(curve.noise) > 0).all() and (np.diff(curve.bias) < 0).all()


def test_two_tokens_by_hand():
    """Only token 1's credit has a future, λ(R − V₁), so the mean square is λ²/2 · E[V₁(1 − V₁)], with E = ¼ − asin(½)/2π = 1/6:
    noise = λ/√12. Under γ = .8 it hears γ of V₁, off by (1 − γ)V₁; E[V₁²] = ¼ + asin(½)/2π = ⅓, half of it over both tokens."""
    curve = gae_curve(lam=0.6, tokens=2)
    assert curve.noise_at == pytest.approx(0.6 / math.sqrt(12), rel=0.08)
    assert curve.noise_at / curve.noise[-1] == pytest.approx(0.6, abs=1e-9)
    np.testing.assert_allclose(gae_curve(gamma=0.8, tokens=2, wiggle=0.0).bias, 0.2 * math.sqrt(1 / 6), rtol=0.06)
    # a critic that hopes by ¼ makes good for some of it: at λ = 0 off by .8 · ¼ − .2 V₁, E = .04 − .08 · ½ + .04 / 3 = .04 / 3
    hopes = gae_curve(gamma=0.8, tokens=2, wiggle=0.0, offset=0.25)
    assert hopes.bias[0] == pytest.approx(math.sqrt(0.04 / 6), rel=0.1)


def test_a_group_gives_every_token_one_number():
    """5 of 8 are right, the answer and round(3.5) = 4 others: mean 0.625, variance 8/7 · 0.625 · 0.375."""
    curve = gae_curve(GRPO, tokens=5)
    np.testing.assert_allclose(curve.advantages, 0.375 / math.sqrt(8 / 7 * 0.625 * 0.375), rtol=1e-5)
    assert (curve.bias_at, curve.noise_at, len(curve.advantages)) == (None, None, 5)
    np.testing.assert_allclose(gae_curve(DR_GRPO, tokens=5, answer="wrong").advantages, -0.5)  # 4 of 8
    np.testing.assert_allclose(gae_curve(DR_GRPO, start=0.9).advantages, 0.125)  # with round(6.3) = 6 others, 7 of 8


def test_a_critic_s_rule_of_one_s_own():
    def half(rewards, values, mask):
        return (rewards - values) / 2, values

    mine = replace(PPO, name="Mine", advantage=half)
    curve = gae_curve(mine, tokens=4)
    np.testing.assert_allclose(curve.advantages, (np.array([0, 0, 0, 1]) - curve.critic) / 2)
    assert curve.bias_at is None
    caption = explore_gae(mine, wiggle=0.0).caption
    assert caption.startswith("Mine gives its 12 tokens an A from ") and "whitening" not in caption
    assert "by 0.00 and 0.00 at λ = 0, by 0.00 and" in caption


def test_words_by_hand():
    # of 4 tokens all but the last are off by .25 at λ = 0: .25 · √¾ = .22; a critic alone has no noise
    explorer = explore_gae(lam=0.0, offset=0.25, wiggle=0.0, tokens=4)
    assert explorer.conclusion == (
        "PPO at λ = 0: the critic's errors leave a bias of 0.22 in the credit of a token, and chance a noise of 0.00."
    )
    A = explorer.names().array("credits")[:4]
    assert f"most credit on token {A.argmax() + 1} (" in explorer.caption
    assert "by 0.22 and 0.00 at λ = 0, by 0.00 and" in explorer.caption and "before whitening" in explorer.caption
    assert "whitening" not in explore_gae(replace(PPO, name="Mine", advantage=GAE(whiten=False))).caption
    explorer.set(gamma=0.5)
    assert "γ = 0.5 makes early tokens hear less of the outcome" in explorer.caption
    explorer.set(gamma=0.0, answer="wrong")
    assert "Of a wrong answer of 4 tokens" in explorer.caption
    assert explorer.caption.endswith("whatever λ: nothing that follows counts.")
    explorer.set(algorithm=DR_GRPO)  # 4 of 8 are right, and this one is not
    assert explorer.caption.startswith(
        "Dr.GRPO gives each of the 4 tokens the same A = −0.50. It has no critic and no λ"
    )
