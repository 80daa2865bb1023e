"""explore_gae's curve against closed forms of the walk that it draws, and its picture against the curve."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DR_GRPO, GRPO, GRPO_PROCESS, PPO
from rlviz.pictures.gae import LAMBDAS, GAEPicture, explore_gae, gae_curve
from rlviz.pieces.gae import GAE


def ppo(**parameters):
    return PPO.with_parameters(**parameters)


@pytest.mark.parametrize("answer", ["right", "wrong"])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_at_lambda_1_it_is_return_minus_value(answer, gamma):
    curve = gae_curve(ppo(gamma=gamma, lam=1.0), tokens=9, answer=answer, offset=0.2, wiggle=0.3)
    reward = float(answer == "right")
    returns = [reward * gamma ** (8 - t) for t in range(9)]  # one reward, on the last token
    np.testing.assert_allclose(curve.advantages, np.array(returns) - curve.critic, atol=1e-12)
    np.testing.assert_allclose(curve.whole, curve.advantages, atol=1e-12)


def test_at_lambda_0_it_is_the_change_of_the_critic():
    curve = gae_curve(ppo(gamma=0.9, lam=0.0), tokens=7, wiggle=0.3)
    after = np.append(0.9 * curve.critic[1:], 1.0)  # γ V of the next token, and the reward itself after the last
    np.testing.assert_allclose(curve.advantages, after - curve.critic, atol=1e-12)
    np.testing.assert_allclose(curve.one_step, curve.advantages, atol=1e-12)


def test_between_it_sums_the_changes_with_lambda():
    curve = gae_curve(ppo(gamma=0.9, lam=0.5), tokens=3)
    d = gae_curve(ppo(gamma=0.9, lam=0.0), tokens=3).advantages
    expected = [d[0] + 0.45 * d[1] + 0.45**2 * d[2], d[1] + 0.45 * d[2], d[2]]
    np.testing.assert_allclose(curve.advantages, expected, atol=1e-12)


def test_critic_and_value():
    curve = gae_curve(PPO, tokens=10, start=0.3, offset=-0.2, wiggle=0.0)
    np.testing.assert_allclose(curve.critic, curve.value - 0.2)
    assert curve.value[0] == pytest.approx(0.3)
    assert curve.value[-1] > 0.5  # it ends 0.7 √T above 0, and one step of N(0, 1) is left
    discounted = gae_curve(ppo(gamma=0.5), tokens=10, start=0.3, wiggle=0.0)
    np.testing.assert_allclose(discounted.value, curve.value * 0.5 ** np.arange(9, -1, -1))
    wrong = gae_curve(PPO, tokens=10, start=0.3, answer="wrong")
    assert wrong.value[-1] < 0.5 < gae_curve(PPO, tokens=10, start=0.3).value[-1]


def test_the_bias_of_a_constant_offset():
    """The credit A + V of token t is off by b(1 − λᵏ), k tokens before the last: Σ λˡ(e_{t+l+1} − e_{t+l}) + e_t telescopes."""
    curve = gae_curve(ppo(lam=0.3), tokens=5, offset=0.25, wiggle=0.0)
    for lam, bias in zip([*LAMBDAS, 0.3], [*curve.bias, curve.bias_at], strict=True):
        squares = [(0.25 * (1 - lam**k)) ** 2 for k in range(5)]
        assert bias == pytest.approx(math.sqrt(sum(squares) / 5), abs=1e-12)
    assert curve.lam_at == 0.3


def test_a_critic_that_is_right_has_no_bias():
    curve = gae_curve(PPO, tokens=8, offset=0.0, wiggle=0.0)
    np.testing.assert_allclose(curve.bias, 0.0, atol=1e-12)


def test_at_lambda_0_one_token_s_wiggle_is_the_next_token_s_error():
    """A + V = V of the next token, or the reward itself, so the error of token t is e_{t+1}, and 0 for the last."""
    curve = gae_curve(PPO, tokens=6, wiggle=0.2)
    errors = (curve.critic - curve.value)[1:]
    assert curve.bias[0] == pytest.approx(math.sqrt((errors**2).sum() / 6))
    assert curve.noise[0] == pytest.approx(0.0, abs=1e-12)
    assert curve.bias[-1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("tokens", [4, 16])
def test_the_noise_at_lambda_1_is_the_outcome_s(tokens):
    """After t tokens the outcome's variance is V(1 − V). E[V²] is the chance that two futures that share the first t tokens both
    end above 0: ¼ + asin(t/T) / 2π for a fair start. So the mean square is the mean over t of ¼ − asin(t/T) / 2π."""
    curve = gae_curve(PPO, tokens=tokens)
    squares = [0.25 - math.asin(t / tokens) / (2 * math.pi) for t in range(1, tokens + 1)]
    assert curve.noise[-1] == pytest.approx(math.sqrt(sum(squares) / tokens), rel=0.06)  # 400 answers
    assert (np.diff(curve.noise) > 0).all() and (np.diff(curve.bias) < 0).all()


def test_the_noise_in_between_by_hand():
    """Two tokens: only token 1's credit has a future, λ(R − V₁), so the mean square is λ²/2 · E[V₁(1 − V₁)], with
    E = ¼ − asin(½)/2π = 1/6: noise = λ/√12."""
    curve = gae_curve(ppo(lam=0.6), tokens=2)
    assert curve.noise_at == pytest.approx(0.6 / math.sqrt(12), rel=0.08)
    assert curve.noise_at / curve.noise[-1] == pytest.approx(0.6, abs=1e-9)


def test_discounting_is_a_bias():
    """Two tokens, a right critic: token 1 hears γ of V₁, off by (1 − γ)V₁; E[V₁²] = ¼ + asin(½)/2π = ⅓,
    and half of that is the mean over both tokens."""
    curve = gae_curve(ppo(gamma=0.8), tokens=2, wiggle=0.0)
    np.testing.assert_allclose(curve.bias, 0.2 * math.sqrt(1 / 6), rtol=0.06)


def test_a_group_gives_every_token_one_number():
    """5 of 8 are right, the answer and round(3.5) = 4 others: mean 0.625, variance 8/7 · 0.625 · 0.375."""
    curve = gae_curve(GRPO, tokens=5)
    np.testing.assert_allclose(curve.advantages, 0.375 / math.sqrt(8 / 7 * 0.625 * 0.375), rtol=1e-5)
    assert (curve.has_critic, curve.gamma, curve.lam_at, curve.whitens) == (False, None, None, False)
    np.testing.assert_allclose(gae_curve(DR_GRPO, tokens=5).advantages, 0.375)
    np.testing.assert_allclose(gae_curve(DR_GRPO, tokens=5, answer="wrong").advantages, -0.5)  # 4 of 8
    np.testing.assert_allclose(gae_curve(DR_GRPO, start=0.9).advantages, 0.125)  # with round(6.3) = 6 others, 7 of 8
    assert (curve.bias_at, curve.noise_at) == (None, None)


def test_a_critic_s_rule_of_one_s_own():
    def half(rewards, values, mask):
        return (rewards - values) / 2, values

    curve = gae_curve(replace(PPO, name="Mine", advantage=half), tokens=4)
    np.testing.assert_allclose(curve.advantages, (np.array([0, 0, 0, 1]) - curve.critic) / 2)
    assert (curve.lam_at, curve.bias_at, curve.gamma) == (None, None, None)
    explorer = explore_gae(replace(PPO, name="Mine", advantage=half))
    assert explorer.conclusion.startswith("Mine gives its 12 tokens an A from ")
    assert explorer.details.startswith("Of a right answer of 12 tokens, most credit on token ")
    explorer.controls["wiggle"].value = 0.0  # draws without a λ of its own
    assert len(explorer.picture.at.get_xdata()) == 0 and "before whitening" not in explorer.caption
    assert (
        "it is wrong on average (bias) and off by chance (noise) by 0.00 and 0.00 at λ = 0, by 0.00 and"
        in explorer.caption
    )
    explorer.controls["algorithm"].value = PPO
    assert explorer.picture.at.get_xdata()[0] == 0.95


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": 1},
        {"tokens": 25},
        {"answer": "maybe"},
        {"start": 0.0},
        {"start": 1.0},
        {"offset": 1.5},
        {"wiggle": -0.1},
        {"wiggle": 1.1},
    ],
)
def test_refusals_name_the_parameter(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be"):
        gae_curve(PPO, **wrong)


def test_rewards_of_steps_are_another_picture():
    with pytest.raises(ValueError, match="algorithm: GRPO \\(process\\) has nothing that this picture shows"):
        explore_gae(GRPO_PROCESS)


def test_the_picture_is_the_curve():
    curve = gae_curve(ppo(lam=0.7), tokens=6, wiggle=0.3)
    picture = GAEPicture(curve)
    tops = [path.vertices[1, 1] for path in picture.bars.get_paths()]
    np.testing.assert_array_equal(tops, curve.advantages)
    for line, values in (
        (picture.value, curve.value),
        (picture.critic, curve.critic),
        (picture.one_step, curve.one_step),
        (picture.whole, curve.whole),
        (picture.bias, curve.bias),
        (picture.noise, curve.noise),
        (picture.both, np.sqrt(curve.bias**2 + curve.noise**2)),
    ):
        np.testing.assert_allclose(line.get_ydata(), values, rtol=1e-12)
    assert (picture.at.get_xdata()[0], picture.bias_at.get_xdata()[0], picture.noise_at.get_xdata()[0]) == (0.7,) * 3
    assert (picture.bias_at.get_ydata()[0], picture.noise_at.get_ydata()[0]) == (curve.bias_at, curve.noise_at)


def shown_in_legend(figure):
    (legend,) = figure.legends
    pairs = zip(legend.legend_handles, legend.get_texts(), strict=True)
    words, seen = zip(*((text.get_text().strip(), handle.get_visible()) for handle, text in pairs), strict=True)
    assert [bool(word) for word in words] == list(seen)  # no words without a line, no line without words
    return [word for word in words if word]


def test_an_own_lambda_is_shown_by_those_who_have_one():
    explorer = explore_gae()
    figure = explorer.picture.figure
    assert "the algorithm's own λ" in shown_in_legend(figure)
    explorer.controls["algorithm"].value = GRPO
    assert not any("own λ" in text for text in shown_in_legend(figure)) and len(shown_in_legend(figure)) == 8
    assert len(explorer.picture.at.get_xdata()) == 0 and len(explorer.picture.noise_at.get_xdata()) == 0
    explorer.controls["algorithm"].value = PPO
    assert "the algorithm's own λ" in shown_in_legend(figure) and explorer.picture.at.get_xdata()[0] == 0.95


@pytest.mark.parametrize(
    ("tokens", "numbers"), [(4, [1, 2, 3, 4]), (12, list(range(1, 13))), (13, [1, 3, 5, 7, 9, 11, 13])]
)
def test_tokens_have_numbers_below_their_bars(tokens, numbers):
    picture = GAEPicture(gae_curve(PPO, tokens=tokens))
    assert picture.numbers.texts == tuple(map(str, numbers))
    middles = [path.vertices[:4, 0].mean() for path in picture.bars.get_paths()]
    np.testing.assert_allclose([x for x, _, _ in picture.numbers.places], [middles[n - 1] for n in numbers])


def test_a_colour_means_one_thing():
    figure = GAEPicture(gae_curve(PPO)).figure
    meanings = {}
    for ax in figure.axes:
        for line in ax.get_lines():
            if not line.get_label().startswith("_"):
                meanings.setdefault(line.get_color(), set()).add(line.get_label())
    assert len(meanings) == 8 and all(len(labels) == 1 for labels in meanings.values()), meanings


def test_words():
    explorer = explore_gae(lam=1.0, offset=0.25, wiggle=0.0, tokens=4)
    low, high = explorer.curve.advantages.argmin(), explorer.curve.advantages.argmax()
    assert f"Of a right answer of 4 tokens at γ = 1, most credit on token {high + 1} (" in explorer.details
    assert f"least on token {low + 1} (" in explorer.caption
    assert "before whitening, which shifts and scales all tokens of a batch alike." in explorer.caption
    # 0.25 · √(3/4) = 0.22 at λ = 0, where all but the last of the 4 tokens are off by the offset
    assert (
        "A + V should be the chance of a right answer once the token is there; over many answers it is wrong on average "
        "(bias) and off by chance (noise) by 0.22 and 0.00 at λ = 0, by 0.00 and" in explorer.details
    )
    assert "makes early tokens hear less" not in explorer.details
    explorer.controls["gamma"].value = 0.5
    assert "γ = 0.5 makes early tokens hear less of the outcome" in explorer.caption
    explorer.controls["gamma"].value = 0.0
    assert explorer.caption.endswith(
        "With γ = 0 A is the token's own reward less V, whatever λ: nothing that follows counts."
    )
    explorer.controls["answer"].value = "wrong"
    assert "a wrong answer of 4 tokens" in explorer.caption
    explorer.controls["algorithm"].value = DR_GRPO  # 4 of 8 are right, and this one is not
    assert explorer.caption.startswith(
        "Dr.GRPO gives each of the 4 tokens the same A = −0.50. It has no critic and no λ: A comes from the outcome alone, here "
        "a wrong answer of 4 tokens."
    )


def test_at_gamma_0_a_token_s_credit_is_its_own_reward_less_the_critic():
    curve = gae_curve(ppo(gamma=0.0, lam=0.7), tokens=6, wiggle=0.3)
    for advantages in (curve.advantages, curve.one_step, curve.whole):
        np.testing.assert_allclose(advantages, np.array([0, 0, 0, 0, 0, 1]) - curve.critic, atol=1e-12)


def test_whitening_is_named_where_there_is_some():
    assert gae_curve(PPO).whitens and not gae_curve(replace(PPO, advantage=GAE(whiten=False))).whitens
    assert "whitening" not in explore_gae(replace(PPO, name="Mine", advantage=GAE(whiten=False))).caption


def test_lambda_and_the_critic_are_dragged():
    explorer = explore_gae()
    explorer.asked = {"turn": 1, "handle": 0, "place": 0.634}
    assert explorer.curve.lam_at == explorer.picture.at.get_xdata()[0] == explorer.handles[0]["at"] == 0.63
    before = explorer.curve.critic
    # the critic is moved as a whole: its last value goes where it is dragged, to the slider's step, .05
    explorer.asked = {"turn": 2, "handle": 1, "place": before[-1] + 0.16}
    assert explorer.controls["offset"].value == 0.15
    np.testing.assert_allclose(explorer.curve.critic, before + 0.15)
    assert explorer.picture.handles(explorer.curve)[1].at == pytest.approx(before[-1] + 0.15)
    explorer.controls["algorithm"].value = GRPO
    assert [handle["hidden"] for handle in explorer.handles] == [True, False]


def test_conclusions():
    # of 4 tokens all but the last are off by .25 at λ = 0: .25 · √¾ = .22; a critic alone has no noise
    explorer = explore_gae(lam=0.0, offset=0.25, wiggle=0.0, tokens=4)
    assert explorer.conclusion == (
        "PPO at λ = 0: the critic's errors leave a bias of 0.22 in the credit of a token, and chance a noise of 0.00."
    )
    explorer.controls["algorithm"].value = DR_GRPO  # 5 of 8 are right
    assert explorer.conclusion == "Dr.GRPO gives each of the 4 tokens the same A = +0.38."
