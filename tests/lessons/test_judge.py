"""What nobody foresaw gets a sentence that helps all the same: the first number that differs, a shape, a gradient, advice."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rlviz.lessons import check
from rlviz.lessons.cases import RESPONSES, lengths_around
from rlviz.lessons.judge import Mistake, judge
from rlviz.lessons.verdict import Verdict
from rlviz.pieces import surrogate
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import Constant
from rlviz.pieces.kl import k1, k3
from rlviz.pieces.surrogate import pessimistic
from rlviz.pieces.values import entropy
from tests.lessons.answers import ANSWERS, step_by_hand
from tests.pieces.tensors import double

GAE, GSPO, DPO, LIMITS = (
    ANSWERS[name][0] for name in ("gae_advantages", "sequence_objective", "dpo_loss", "dynamic_bounds")
)
PAIR = ANSWERS["reward_model_loss"][0]
NONE = "your function returns None: write your lines, and return their result."
SIGN = "the sign is wrong: everything is the negative of what it should be."
MEAN = "One number for the whole batch: take the mean."


def doubled_above(ratio, A, lower, upper):
    right = pessimistic(ratio, A, lower, upper)
    return torch.where((ratio == 1.1) & (A < 0), 2 * right, right)


def first_of_them_detached(logp, old_logp, mask):
    ratio = torch.where(mask, (logp - old_logp).exp(), 1.0)
    first = torch.zeros_like(mask)
    first[0, 0, 0] = True
    return torch.where(first, ratio.detach(), ratio)


def of_no_root(q, eps_low, eps_high, max_ratio):
    return 0.5 + 0.5 * (1 - 4 * eps_low / q).sqrt(), 2 * LIMITS(q, eps_low, eps_high, max_ratio)[1]


Q = "q 0.9, eps_low 0.16, eps_high 0.2, max_ratio 10"
# (8 − 3) / std of 0 1 8, whose mean is 3 and variance (9 + 4 + 25) / 2 = 19; with the 9 its mean is 10/3, its variance 73/3
NINE = f"at [2, 0] for rewards 0: expected {-10 / 3 / math.sqrt(73 / 3):.4g}, got {-3 / math.sqrt(19):.4g}."
UNKNOWN = [  # check, a student's function, what is said
    # 1.1 · −2 = −2.2, the seventh of the case's tokens
    (
        check.pessimistic,
        doubled_above,
        "at [6] for ratio 1.1, A -2, lower 0.8, upper 1.2: expected -2.2, got -4.4.",
    ),
    (check.group_advantage, lambda rewards: GroupAdvantage()(rewards.clamp(max=8)), NINE),
    # 3/4 over ½ + 1e-6 is 1.499997, over ½ + 2e-5 it is 1.49994
    (check.group_advantage, GroupAdvantage(eps=2e-5), "at [0, 0] for rewards 1: expected 1.5, got 1.4999."),
    (check.group_advantage, lambda rewards: rewards.mul_(2), "at [0, 0] for rewards 1: expected 1.5, got 2."),
    # .4 from .8, where the mask is false
    (
        check.importance_ratio,
        lambda logp, old_logp, mask: (logp - old_logp).exp(),
        "at [0, 1, 1] for lengths [[3, 1]], logp -0.916, old_logp -0.223, mask 0: expected 1, got 0.5.",
    ),
    # x is −ln 2: ½ + ln 2 − 1 = .1931, three times that .5794
    (
        check.kl_estimate_k3,
        lambda logp, ref: 3 * k3(logp, ref),
        "at [0] for logp -0.693, ref_logp -1.39: expected 0.1931, got 0.5794.",
    ),
    # weight .8: 1.6 · log .5 = −1.109; in base 2 it is −1.6
    (
        check.clipped_weight,
        lambda r, A, low, high: r.clamp(low, high).detach() * A * r.log2(),
        "at [0] for ratio 0.5, A 2, lower 0.8, upper 1.2: expected -1.109, got -1.6.",
    ),
    # the response of one token: 2 − 1.5
    (
        check.gae_advantages,
        lambda *given: torch.where(given[0] == 2, 7.0, GAE(*given)),
        "at [0, 2, 0] for lengths [[4, 2, 1]], rewards 2, values 1.5, mask 1, gamma 0.9, lam 0.5: expected 0.5, got 7.",
    ),
    (
        check.gae_advantages,
        lambda r, v, mask, *given: torch.where(mask, GAE(r, v, mask, *given), 9.0),
        "at [0, 1, 2] for lengths [[4, 2, 1]], rewards 0, values -0.7, mask 0, gamma 0.9, lam 0.5: expected 0, got 9.",
    ),
    # a ramp that begins a token early; 12 tokens, reward 1, lose 1/5
    (
        check.soft_overlong_punishment,
        lambda r, n: r + ((11 - n) / 5).clamp(-1, 0),
        "at [0, 2] for rewards 1, lengths 12: expected 1, got 0.8.",
    ),
    # the first batch has 9 + 6 + 3 of the policy's tokens, divided here by the sum of turns, 2 · 3 + 4 · 3 + 2 · 3
    (
        check.own_token_weights,
        lambda turn: (turn % 2 == 0) / (turn * (turn % 2 == 0)).sum(),
        "at [0, 0, 0] for turn 0: expected 0.05556, got 0.04167.",
    ),
    # ½ + ½ √(1 + .8/.9) = 1.187; ½ + ½ √(1 − .64/.9) = .7687
    (
        check.dynamic_bounds,
        lambda *given: (LIMITS(*given)[0], 2 * LIMITS(*given)[1]),
        f"upper limit, at [0] for {Q}: expected 1.187, got 2.374.",
    ),
    (
        check.dynamic_bounds,
        lambda *given: (3 * LIMITS(*given)[0], LIMITS(*given)[1]),
        f"lower limit, at [0] for {Q}: expected 0.7687, got 2.306.",
    ),
    (
        check.dynamic_bounds,
        of_no_root,
        f"lower limit, at [1] for {Q.replace('0.9', '0.01')}: expected 0.5, got nan: no number, as the root of a negative "
        "number is none.",
    ),
    (
        check.reward_model_loss,
        lambda c, r: 3 * PAIR(c, r),
        "for chosen [1.2, -0.3, 0.5, 2], rejected [0.2, 0.6, -1.5, 2.5]",
    ),
    (
        check.reward_model_loss,
        lambda c, r: -(c - r).sigmoid().clamp(min=1e-9).log().mean(),
        "right for scores that are near each other, but for chosen [0, 900], rejected [900, 0]: expected 450, got ",
    ),
    (check.dpo_loss, lambda *given: 3 * DPO(*given), "for lengths [[3, 2], [1, 4]], beta 0.1: expected "),
    (check.sequence_objective, lambda *given: 2 * GSPO(*given), "for lengths [4, 1, 2], A [1.5, -0.5, -1]: expected "),
    (check.mean_of_tokens, Constant(16), "at [0, 0, 0] for lengths "),
    (check.kl_estimate_k3, k1, "that is k1, "),
    (
        check.group_advantage,
        lambda rewards: GroupAdvantage()(rewards) * math.nan,
        "at [0, 0] for rewards 1: expected 1.5, got nan",
    ),
    # shapes
    (
        check.group_advantage,
        lambda rewards: rewards.mean(1, keepdim=True),
        "your result has shape [2, 1]; it has to be [2, 4]. Is a sum or mean over the wrong dimension?",
    ),
    (
        check.pessimistic,
        lambda x, *_: x.mean(),
        "your result has shape []; it has to be [10]. One value for each token: do not average",
    ),
    (
        check.group_advantage,
        lambda x: x.mean(),
        "your result has shape []; it has to be [2, 4]. One value for each response: do",
    ),
    (
        check.entropy,
        lambda x: x.mean(),
        "your result has shape []; it has to be [1, 3]. One value for each distribution: do not",
    ),
    (check.gae_advantages, lambda *given: GAE(*given)[..., 0], "your result has shape [1, 3]; it has to be [1, 3, 4]."),
    (check.dpo_loss, lambda x, r, m, b: (x - r).sum((1, 2)), f"your result has shape [2]; it has to be []. {MEAN}"),
    (check.reward_model_loss, lambda c, r: F.softplus(r - c), f"your result has shape [4]; it has to be []. {MEAN}"),
    # signs and gradients
    (check.pessimistic, lambda *given: -pessimistic(*given), SIGN),
    (check.group_advantage, lambda rewards: -GroupAdvantage()(rewards), SIGN),
    (check.entropy, lambda x: -entropy(x), SIGN),
    (check.dpo_loss, lambda *given: -DPO(*given), SIGN),
    (
        check.pessimistic,
        lambda r, *given: pessimistic(r.detach(), *given),
        "the values are right, but the gradient by ratio is not",
    ),
    (
        check.entropy,
        lambda x: -(x.exp().detach() * x).sum(-1),
        "the values are right, but the gradient by logits is not",
    ),
    (check.importance_ratio, first_of_them_detached, "the values are right, but the gradient by logp is not"),
    (
        check.reward_model_loss,
        lambda c, r: PAIR(c.detach(), r),
        "the values are right, but the gradient by chosen is not",
    ),
    (
        check.reward_model_loss,
        lambda c, r: PAIR(c, r.detach()),
        "the values are right, but the gradient by rejected is not",
    ),
    # what breaks off, and what is none
    (check.dynamic_bounds, lambda *given: None, NONE),
    (check.kl_estimate_k3, lambda *given: 0.5, "your function returns a float: return a torch tensor."),
    (check.group_advantage, lambda rewards: rewards.numpy(), "your function returns a ndarray: return a torch tensor."),
    (check.group_advantage, lambda rewards: 1 / 0, "your function broke off with ZeroDivisionError: division by zero"),
    (
        check.group_advantage,
        GroupAdvantage()(double([[1, 0]])),
        "give the check your function itself, its name without brackets",
    ),
    (
        check.entropy,
        lambda x: entropy(x).numpy(),
        "your function broke off (RuntimeError): stay in torch: numpy breaks the chain",
    ),
    (
        check.soft_overlong_punishment,
        lambda r, n: 0 if n <= 12 else -1,
        "your function broke off (RuntimeError): a comparison of whole tensors has no single answer",
    ),
    (check.gae_advantages, lambda r, v, *_: v[..., 4], "your function broke off with IndexError: index 4 is out"),
    (
        check.group_advantage,
        lambda rewards: rewards - rewards.mean(1),
        "your function broke off (RuntimeError): two shapes do not fit: a sum or mean drops a dimension, which keepdim=True "
        "or x.unsqueeze(-1) gives back, of size 1.",
    ),
    (
        check.pessimistic,
        lambda ratio, A, lower, upper: ratio.clamp_(lower, upper) * A,
        "your function broke off (RuntimeError): you change a tensor in place whose gradient is asked for: make a new one, "
        "with torch.where or x.masked_fill(…).",
    ),
    (  # the third case is [1, 2, 5], and its first element [2, 5]
        check.pessimistic,
        lambda ratio, A, lower, upper: torch.min(ratio * A, ratio.clamp(float(lower[0]), float(upper[0])) * A),
        "your function broke off (ValueError): float(), int() and .item() take one number",
    ),
    (
        check.dynamic_bounds,
        lambda *given: (LIMITS(*given)[0], min(LIMITS(*given)[1], given[3])),
        "your function broke off (Runtime",
    ),
    *(
        (check.dynamic_bounds, student, "return two tensors, the lower limit and the upper one: return lower, upper.")
        for student in (
            lambda q, *_: q,
            lambda q, *_: (q, q, q),
            lambda q, *_: (0.8, 1.2),
            lambda q, *_: torch.stack([q, q]),
        )
    ),
    (check.dynamic_bounds, lambda q, *given: (q, q[:2]), "your upper limit has shape [2]; it has to be [6], as q."),
    (
        check.dynamic_bounds,
        lambda q, *given: LIMITS(double(1.0), *given),
        "the old probability is missing",  # a number stands for every token
    ),
]


@pytest.mark.parametrize(("checks", "student", "says"), UNKNOWN)
def test_what_nobody_foresaw_is_told_in_a_sentence(checks, student, says):
    verdict = checks(student)
    assert not verdict.passed and verdict.says.startswith(says), verdict


def test_a_function_with_other_arguments_is_told_in_a_sentence():
    says = check.pessimistic(lambda ratio: ratio).says
    assert says.startswith("your function broke off with TypeError: ") and "argument" in says


# --- values with another gradient ---


IN_BITS = {
    "log2": (lambda x: -(x.exp() * x.exp().log2()).sum(-1), True),
    "divided by log 2": (lambda x: -(x.exp() * x).sum(-1) / math.log(2), True),
    "detached": (lambda x: -(x.exp() * x.exp().log2()).sum(-1).detach(), False),
    "weights detached": (lambda x: -(x.exp().detach() * x.exp().log2()).sum(-1), False),
    "numpy": (lambda x: torch.from_numpy(-(np.exp(p := x.detach().numpy()) * np.log2(np.exp(p))).sum(-1)), False),
}


@pytest.mark.parametrize("words", IN_BITS)
def test_a_known_slip_is_named_with_its_gradient_and_without_which_is_told(words):
    student, with_gradient = IN_BITS[words]
    verdict = check.entropy(student)
    assert (verdict.passed, verdict.mistake) == (False, "entropy in bits")
    assert ("And its gradient is not even that of these values" in verdict.says) is not with_gradient


@pytest.mark.parametrize("log_one_plus", [torch.log1p, lambda x: torch.log(1 + x)], ids=["log1p", "log of 1 +"])
def test_an_exponential_that_is_too_large_is_named(log_one_plus):  # exp(900) is infinite
    verdict = check.reward_model_loss(lambda chosen, rejected: log_one_plus(torch.exp(rejected - chosen)).mean())
    assert verdict.mistake == "logarithm of the sigmoid" and "exponential is too large" in verdict.says


def gspo_token(logp, old_logp, mask):
    own = torch.where(mask, logp - logp.detach(), 0.0).exp()
    return ANSWERS["sequence_importance_ratio"][0](logp, old_logp, mask).detach() * own


def test_the_gradient_is_compared_for_each_element_of_the_result():
    # GSPO-token has s on each token, and its gradients add up to the same as s's own: 3 · s/3 each, and s each
    says = check.sequence_importance_ratio(gspo_token).says
    assert says.startswith("the values are right, but the gradient by logp is not")


def test_what_is_known_comes_before_the_sign():
    mistake = Mistake(lambda x: -x, "it is upside down, as planned.")
    assert judge(lambda x: -x, lambda x: x, [{"x": double([1, 2])}], known=[mistake]).says == mistake.says


def test_the_known_slips_warn_nobody(recwarn):  # torch warns of a std over one value, as over the prompts of one group
    check.group_advantage(lambda rewards: 3 * GroupAdvantage()(rewards))
    assert [str(warning.message) for warning in recwarn] == []


# --- right, with a word ---


def test_an_input_that_is_overwritten_is_told():
    def overwrites(rewards):
        rewards -= rewards.mean(1, keepdim=True)
        return rewards / (rewards.std(1, keepdim=True) + 1e-6)

    verdict = check.group_advantage(overwrites)
    told = " But it overwrites its input rewards, which the caller still needs: work on a copy, rewards.clone()."
    assert verdict.passed and verdict.says.endswith(told)
    assert "overwrites" not in check.group_advantage(lambda rewards: overwrites(rewards.clone())).says


def test_praise_says_what_was_compared():
    assert "two widths" in check.pessimistic(ANSWERS["pessimistic"][0]).says
    assert "gradient" in check.kl_estimate_k3(ANSWERS["kl_estimate_k3"][0]).says
    assert "gradient" not in check.mean_of_tokens(ANSWERS["mean_of_tokens"][0]).says  # there is none by a mask


def test_the_cases_have_what_the_praise_says():
    assert {length for case in RESPONSES for length in case["mask"].sum(-1).tolist()} == {1, 2, 3, 4}
    for case in RESPONSES:
        padding = ~case["mask"]
        assert padding.any() and (case["logp"] != case["old_logp"])[padding].all()
    ramp = lengths_around(max_length=16, cache=4)
    lengths = {length for case in ramp for length in case["lengths"].flatten().tolist()}
    assert {12, 13, 14, 15, 16, 17} < lengths and min(lengths) < 6 and max(lengths) > 30
    assert {0, 1} < {reward for case in ramp for reward in case["rewards"].flatten().tolist()}


def step_of(log_probability):
    """Return a step that climbs the mean of A times this function of the logits and the actions."""

    def step(z, a, R, lr):
        leaf = z.clone().requires_grad_()
        A = R - (R.sum() - R) / (len(R) - 1)
        return z + lr * torch.autograd.grad((A * log_probability(leaf, a)).mean(), leaf)[0]

    return step


ALONE = {
    "autograd": step_of(lambda z, a: z[a]),
    "one hot": step_of(lambda z, a: F.one_hot(a, len(z)).double() @ z),
    "by hand": lambda z, a, R, lr: z.index_add(0, a, lr * (R - (R.sum() - R) / (len(R) - 1)) / len(R)),
}
NORMALISED = {
    "log_softmax": step_of(lambda z, a: z.log_softmax(0)[a]),
    "logarithm of softmax": step_of(lambda z, a: z.softmax(0).log()[a]),
    "a distribution, which refuses what is no number": step_of(
        lambda z, a: torch.distributions.Categorical(logits=z).log_prob(a)
    ),
    "by hand": step_by_hand,
}


@pytest.mark.parametrize(
    ("step", "alone"), [*((s, True) for s in ALONE.values()), *((s, False) for s in NORMALISED.values())]
)
def test_whoever_climbs_the_logits_alone_is_told_why_that_is_right_here(step, alone):
    """Σ A = Σ R − Σ (Σ R − R) / (N − 1) = 0, so Σ A (z − log Σ eᶻ) = Σ A z, however the rewards fall."""
    verdict = check.reinforce_step(step)
    assert verdict.passed
    assert ("the A sum to 0" in verdict.says and "With another baseline" in verdict.says) is alone


def test_a_median_is_not_taken_for_no_baseline():
    verdict = check.reinforce_step(lambda z, a, R, lr: step_by_hand(z, a, R, lr, baseline=torch.median))
    assert (verdict.passed, verdict.mistake) == (False, "")


# --- one answer for many tokens ---


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (lambda x: x.flatten()[0], lambda x: x.flatten()[0]),
        (lambda x: x.min(), lambda x: x.max()),
        (lambda x: x.mean(), lambda x: x.mean()),
        (lambda x: x.flatten()[-1], lambda x: x),
        (lambda x: x, lambda x: x.flatten()[-1]),
    ],
    ids=["first", "widest", "mean", "lower only", "upper only"],
)
def test_limits_are_each_token_s_own(lower, upper):
    def weight(ratio, A, low, high):
        return torch.clamp(ratio, lower(low), upper(high)).detach() * A * ratio.log()

    assert not check.clipped_weight(weight).passed
    assert not check.pessimistic(
        lambda r, A, low, high: torch.minimum(r * A, torch.clamp(r, lower(low), upper(high)) * A)
    ).passed


# --- what belongs to the library, and how a verdict looks ---


def wrapped(ratio, A, lower, upper):
    return pessimistic(ratio, A, lower, upper)


def through_the_module(ratio, A, lower, upper):
    return surrogate.pessimistic(ratio, A, lower, upper)


@pytest.mark.parametrize(
    "student", [wrapped, through_the_module, partial(pessimistic), lambda *given: 1 * pessimistic(*given)]
)
def test_what_only_calls_the_library_s_own_does_not_pass(student):
    assert "pessimistic is the library's own" in check.pessimistic(student).says


def test_a_verdict_in_a_notebook_escapes_what_it_says():
    def breaks(rewards):
        raise ValueError("<script>a & b</script>")

    shown = check.group_advantage(breaks)._repr_html_()
    assert "&lt;script&gt;a &amp; b&lt;/script&gt;" in shown and "<script>" not in shown
    assert "<b>Not yet:</b>" in shown
    assert "<b>Right:</b>" in check.group_advantage(ANSWERS["group_advantage"][0])._repr_html_()
    assert Verdict(True, "so.", "x") == Verdict(True, "so.")
