"""Every mistake is told from the right piece and named; what nobody foresaw gets a sentence that helps all the same."""

import inspect
import math
from functools import partial
from types import FunctionType

import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.judge import Mistake, Topic, Verdict
from rlviz.pieces import surrogate
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean
from rlviz.pieces.kl import k1, k3
from rlviz.pieces.mismatch import capped_weight
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import clipped_weight, pessimistic, sign_weighted
from rlviz.pieces.values import entropy, entropy_change
from tests.exercises.typed import TYPED, constant_16
from tests.pieces.tensors import close, double, slope

CONSTANT, OVERLONG = mistakes.aggregation.constant(max_length=16), mistakes.overlong(max_length=16, cache=4)
# check → the right piece, and what it recognises
CHECKS = {
    check.pessimistic: (pessimistic, mistakes.clipping.SURROGATE),
    check.reinforce: (mistakes.losses.right_reinforce, mistakes.losses.REINFORCE),
    check.reinforce_step: (mistakes.losses.ascended(), mistakes.losses.REINFORCE_STEP),
    check.ppo_loss: (check._ppo_loss, mistakes.losses.PPO_LOSS),
    check.clipped_weight: (clipped_weight, mistakes.clipping.CISPO_SURROGATE),
    check.dual_clip: (check._dual_clip, mistakes.clipping.DUAL_CLIP),
    check.sign_weights: (sign_weighted, mistakes.clipping.SIGN_WEIGHTS),
    check.truncated_weight: (capped_weight, mistakes.mismatch.TRUNCATED_WEIGHT),
    check.importance_ratio: (token_ratio, mistakes.ratios.TOKEN_RATIO),
    check.sequence_importance_ratio: (sequence_ratio, mistakes.ratios.SEQUENCE_RATIO),
    check.sequence_objective: (check._sequence_objective, mistakes.gspo.SEQUENCE_OBJECTIVE),
    check.group_advantage: (GroupAdvantage(), mistakes.advantages.GROUP_ADVANTAGE),
    check.mean_of_responses: (sequence_mean, mistakes.aggregation.SEQUENCE_MEAN),
    check.mean_of_tokens: (token_mean, mistakes.aggregation.TOKEN_MEAN),
    constant_16: (Constant(16), CONSTANT),
    check.sum_of_responses: (sequence_sum, mistakes.aggregation.SEQUENCE_SUM),
    check.own_token_weights: (check._own_token_weights, mistakes.observations.OWN_TOKEN_WEIGHTS),
    check.kl_estimate_k1: (k1, mistakes.kl.K1),
    check.kl_estimate_k3: (k3, mistakes.kl.K3),
    check.entropy: (entropy, mistakes.entropy.ENTROPY),
    check.entropy_change: (entropy_change, mistakes.entropy.ENTROPY_CHANGE),
    check.dynamic_bounds: (check._dynamic_bounds, mistakes.bounds.DYNAMIC_BOUNDS),
    check.gae_advantages: (check._gae_advantages, mistakes.gae.GAE_ADVANTAGES),
    check.dpo_loss: (check._dpo_loss, mistakes.preferences.DPO_LOSS),
    check.soft_overlong_punishment: (SoftOverlongPunishment(max_length=16, cache=4), OVERLONG),
    check.reward_model_loss: (check._reward_model_loss, mistakes.reward_model.REWARD_MODEL_LOSS),
}


def as_a_student_s(function):
    """Return the function as somebody else's: the checks refuse what is defined in the library."""
    return lambda *given: function(*given)  # noqa: PLW0108


EVERY_CHECK = pytest.mark.parametrize("checks", CHECKS, ids=lambda c: c.__name__)
EVERY_MISTAKE = pytest.mark.parametrize(
    ("checks", "mistake"),
    [  # the others are recognised in what a student types
        pytest.param(c, m, id=f"{c.__name__}: {m.name}")
        for c, (_, family) in CHECKS.items()
        for m in family
        if m.name not in TYPED.get(c, {})
    ],
)
FAMILIES = {
    name: family
    for topic in vars(mistakes).values()
    if isinstance(topic, Topic)
    for name, family in vars(topic).items()
    if name.isupper() and isinstance(family, tuple)
} | {"CONSTANT": CONSTANT, "OVERLONG": OVERLONG}
ALL_MISTAKES = [mistake for family in FAMILIES.values() for mistake in family]


@EVERY_CHECK
def test_the_right_piece_passes(checks):
    verdict = checks(as_a_student_s(CHECKS[checks][0]))
    assert verdict.passed
    assert repr(verdict) == f"Right: {verdict.says}"


@EVERY_MISTAKE
def test_every_mistake_is_recognised(checks, mistake):
    assert checks(as_a_student_s(mistake.wrong)) == Verdict(False, mistake.says)


@pytest.mark.parametrize(
    ("checks", "name"), [pytest.param(c, n, id=f"{c.__name__}: {n}") for c, rows in TYPED.items() for n in rows]
)
def test_what_a_student_types_is_named(checks, name):
    verdict = checks(TYPED[checks][name])
    assert (verdict.mistake, verdict.passed) == (name, False)


def test_every_family_has_a_check_or_is_shown_only():
    checked = [family for _, family in CHECKS.values()]
    shown_only = {name for name, family in FAMILIES.items() if family not in checked}
    assert shown_only == {
        "MEAN_ONLY",
        "MOVING_REFERENCE",
        "MOVING_LIMITS",
        "READING",
        "SELECTION",
    }  # MEAN_ONLY: in assembly


def test_the_inverted_cispo_differs_from_cispo_by_hand():
    # weight clip(r) at r = 1.5, limits .8 and 1.2: 1.2; upside down clip(2/3): .8. The slope is weight · A / r
    at = [double([x]) for x in (1.5, 2.0, 0.8, 1.2)]
    for piece, weight in ((clipped_weight, 1.2), (mistakes.clipping.cispo_with_its_ratio_inverted, 0.8)):
        close(piece(*at), [weight * 2 * math.log(1.5)])
        close(slope(piece, *at), [weight * 2 / 1.5])


def test_the_prompt_counted_as_overlong_differs_by_hand():
    # punishment from 12 to 16 tokens: 8 tokens are short, but not with the prompt's 6: −2/4
    rewards, lengths = double([[1, 0]]), torch.tensor([[8, 8]])
    counted = OVERLONG[0]
    close(SoftOverlongPunishment(max_length=16, cache=4)(rewards, lengths), [[1, 0]])
    close(counted.wrong(rewards, lengths), [[0.5, -0.5]])


# --- what the sentences are like ---


@pytest.mark.parametrize("mistake", ALL_MISTAKES, ids=lambda m: m.name)
def test_a_sentence_says_something_and_ends(mistake):
    assert mistake.says.endswith(".")
    assert "  " not in mistake.says
    assert len(mistake.says.split()) >= 6
    source = inspect.unwrap(mistake.wrong)  # a function that a lesson prints is found by its own name
    if isinstance(source, FunctionType) and source.__module__.startswith(mistakes.__name__):
        hidden = "<" in source.__qualname__ or source.__name__.startswith("_")
        assert hidden or mistake.name == source.__name__.replace("_", " ")


def test_no_two_mistakes_share_a_sentence():
    for family in FAMILIES.values():
        assert len({mistake.says for mistake in family}) == len({mistake.wrong for mistake in family}) == len(family)
    assert len({mistake.wrong for mistake in ALL_MISTAKES}) > 40


# --- what nobody foresaw ---


def test_an_unknown_mistake_shows_the_first_number_that_differs_and_its_inputs():
    def doubled_above(ratio, advantages, lower, upper):
        right = pessimistic(ratio, advantages, lower, upper)
        return torch.where((ratio == 1.1) & (advantages < 0), 2 * right, right)

    says = check.pessimistic(doubled_above).says  # 1.1 · −2 = −2.2, the seventh of the case's tokens
    assert says == "at [6] for ratio 1.1, A -2, lower 0.8, upper 1.2: expected -2.2, got -4.4."


def test_an_unknown_mistake_in_a_later_case_is_found_there():
    def capped(rewards):
        return GroupAdvantage()(rewards.clamp(max=8))  # the third case has a 9

    # 0 1 8: mean 3, deviations −3 −2 5, std √19
    expected, got = -10 / 3 / math.sqrt(73 / 3), -3 / math.sqrt(19)
    assert check.group_advantage(capped).says == f"at [2, 0] for rewards 0: expected {expected:.4g}, got {got:.4g}."


def test_padding_that_was_forgotten_is_shown_as_such():
    # .4 from .8, where the mask is false
    says = check.importance_ratio(lambda logp, old_logp, mask: (logp - old_logp).exp()).says
    assert says == "at [0, 1, 1] for lengths [[3, 1]], logp -0.916, old_logp -0.223, mask 0: expected 1, got 0.5."


def test_a_number_that_is_not_one_is_shown():
    assert "got nan" in check.group_advantage(lambda rewards: GroupAdvantage()(rewards) * float("nan")).says


@pytest.mark.parametrize(
    ("checks", "student", "says"),
    [
        (check.pessimistic, lambda *a: None, "your function returns None: write your lines, and return their result."),
        (check.kl_estimate_k3, lambda *a: 0.5, "your function returns a float: return a torch tensor."),
        (
            check.group_advantage,
            lambda rewards: rewards.numpy(),
            "your function returns a ndarray: return a torch tensor.",
        ),
        (
            check.group_advantage,
            lambda rewards: rewards.mean(1, keepdim=True),
            "your result has shape [2, 1]; it has to be [2, 4]. Is a sum or mean over the wrong dimension?",
        ),
        (
            check.mean_of_tokens,
            lambda mask: (mask / mask.sum()).sum(),
            "your result has shape []; it has to be [1, 4, 5]. One value for each token: do not average or add over them.",
        ),
        (
            check.group_advantage,
            lambda rewards: 1 / 0,
            "your function broke off with ZeroDivisionError: division by zero",
        ),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_sentence(checks, student, says):
    assert checks(student) == Verdict(False, says)


def test_a_function_with_other_arguments_is_told_in_a_sentence():
    says = check.pessimistic(lambda ratio: ratio).says
    assert says.startswith("your function broke off with TypeError: ")
    assert "argument" in says


@pytest.mark.parametrize("checks", [check.pessimistic, check.group_advantage, check.kl_estimate_k3])
def test_a_wrong_sign_is_called_that(checks):
    right = CHECKS[checks][0]
    assert (
        checks(lambda *given: -right(*given)).says
        == "the sign is wrong: everything is the negative of what it should be."
    )


def test_a_lost_gradient_is_called_that():
    says = check.pessimistic(lambda ratio, *given: pessimistic(ratio.detach(), *given)).says
    assert says == "the values are right, but the gradient by ratio is not: is something detached, or rounded?"


def test_what_a_student_s_function_does_to_its_inputs_stays_there():
    says = [check.group_advantage(lambda rewards: rewards.mul_(2)).says for _ in range(2)]
    assert says[0] == says[1] == "at [0, 0] for rewards 1: expected 1.5, got 2."  # 3/4 over a std of 1/2


def test_one_value_is_asked_for_each_of_what_the_result_is_about():
    averaged = {check.pessimistic: "token", check.group_advantage: "response", check.entropy: "distribution"}
    for checks, each in averaged.items():
        assert checks(lambda x, *more: x.mean()).says.endswith(
            f" One value for each {each}: do not average or add over them."
        )


def test_a_mean_without_keepdim_is_told_what_is_missing():
    says = check.group_advantage(lambda rewards: rewards - rewards.mean(1)).says  # [2, 4] − [2]
    assert says == (
        "your function broke off (RuntimeError): two shapes do not fit: a sum or mean drops a dimension, which keepdim=True "
        "or x.unsqueeze(-1) gives back, of size 1."
    )


def test_what_changes_an_input_in_place_is_told():
    assert check.pessimistic(lambda ratio, A, lower, upper: ratio.clamp_(lower, upper) * A).says == (
        "your function broke off (RuntimeError): you change a tensor in place whose gradient is asked for: make a new one, "
        "with torch.where or x.masked_fill(…)."
    )

    def overwrites(rewards):
        rewards -= rewards.mean(1, keepdim=True)
        return rewards / (rewards.std(1, keepdim=True) + 1e-6)

    verdict = check.group_advantage(overwrites)
    assert verdict.passed
    assert verdict.says.endswith(
        " But it overwrites its input rewards, which the caller still needs: work on a copy, rewards.clone()."
    )
    assert "overwrites" not in check.group_advantage(lambda rewards: overwrites(rewards.clone())).says


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
    def surrogate(ratio, A, low, high):
        return torch.minimum(ratio * A, torch.clamp(ratio, lower(low), upper(high)) * A)

    def weight(ratio, A, low, high):
        return torch.clamp(ratio, lower(low), upper(high)).detach() * A * ratio.log()

    assert not check.pessimistic(surrogate).passed
    assert not check.clipped_weight(weight).passed


def test_a_limit_as_a_python_number_is_told_what_to_use():
    def surrogate(ratio, A, lower, upper):
        return torch.minimum(ratio * A, torch.clamp(ratio, float(lower[0]), float(upper[0])) * A)

    says = check.pessimistic(surrogate).says  # the third case is [1, 2, 5], and its first element [2, 5]
    assert says.endswith(
        "float(), int() and .item() take one number, and this tensor holds several: use the tensor itself."
    )


# --- what belongs to the library ---


@EVERY_CHECK
def test_the_library_s_own_does_not_pass(checks):
    right = CHECKS[checks][0]
    name = getattr(right, "__name__", type(right).__name__)
    assert checks(right) == Verdict(False, f"{name} is the library's own, and here to compare with: write yours.")


def test_a_wrong_piece_of_the_library_is_diagnosed_like_any_other():
    assert check.kl_estimate_k3(k1).says.startswith("that is k1, ")
    assert check.mean_of_tokens(Constant(16)).says.startswith("at [0, 0, 0] for lengths ")


# --- what is no answer ---


def broken(*given):
    raise ValueError("a\nb " + 1000 * "c ")


def without_words(*given):
    raise KeyError


ANSWERS = {
    "None": lambda *given: None,
    "text": lambda *given: "0.5",
    "list": lambda *given: [0.5, 0.5],
    "int": lambda *given: 3,
    "True": lambda *given: True,
    "two None": lambda *given: (None, None),
    "two texts": lambda *given: ("a", "b"),
    "two lengths": lambda *given: (torch.ones(2), torch.ones(7)),
    "wrong shape": lambda *given: torch.ones(2, 3, 4, 5, 6),
    "empty": lambda *given: torch.ones(0),
    "nan": lambda *given: given[0] * math.nan,
    "complex": lambda *given: given[0] * 1j,
    "sparse": lambda *given: given[0].double().to_sparse(),
    "without data": lambda *given: torch.ones_like(given[0], device="meta"),
    "booleans": lambda *given: given[0] > 0,
    "the first input": lambda *given: given[0],
    "the last input": lambda *given: given[-1],
    "all inputs": lambda *given: given,
    "its sum": lambda *given: given[0].sum(),
    "overwritten input": lambda *given: given[0].zero_(),
    "error": broken,
    "error without words": without_words,
    "other arguments": lambda: 1,
    "None itself": None,
    "a tensor itself": torch.ones(3),
    "a class": type,
}


@EVERY_CHECK
@pytest.mark.parametrize("answer", ANSWERS)
def test_whatever_is_answered_gets_a_sentence(checks, answer):
    verdict = checks(ANSWERS[answer])
    assert not verdict.passed
    assert "\n" not in verdict.says
    assert 20 <= len(verdict.says) <= 400
    assert "</div>" in verdict._repr_html_()


def test_a_result_in_place_of_the_function_is_told():
    says = "give the check your function itself, its name without brackets behind it: check.…(my_function)."
    assert check.group_advantage(GroupAdvantage()(double([[1, 0]]))) == Verdict(False, says)


@pytest.mark.parametrize("max_length", ["16", None, 2.5, [16]])
def test_a_maximum_length_that_is_no_number_is_told(max_length):
    says = f"of this check, max_length must be a whole number, at least 1; got {max_length!r}."
    assert check.constant_weight(lambda mask: mask / 16, max_length) == Verdict(False, says)
    assert check.soft_overlong_punishment(lambda rewards, lengths: rewards, max_length=max_length) == Verdict(
        False, says
    )


def test_parameters_of_a_check_that_are_out_of_range_are_told():
    says = "of this check, max_length must be at least 1; got 0."
    assert check.constant_weight(lambda mask: mask / 16, 0) == Verdict(False, says)
    says = check.soft_overlong_punishment(lambda rewards, lengths: rewards, max_length=8, cache=9).says
    assert says.startswith("of this check, cache must be above 0 and at most max_length (8): ")
    assert says.endswith("; got 9.")


# --- parameters of a check's own ---


@pytest.mark.parametrize("max_length", [2, 8, 16, 1000])
def test_the_constant_s_mistakes_are_known_at_any_maximum_length(max_length):
    def checks(student):
        return check.constant_weight(as_a_student_s(student), max_length=max_length)

    assert checks(Constant(max_length)).passed
    for mistake in mistakes.aggregation.constant(max_length):
        assert checks(mistake.wrong) == Verdict(False, mistake.says)
    sentences = " ".join(mistake.says for mistake in mistakes.aggregation.constant(max_length))
    assert sentences.count(f" {max_length}") == 7  # as often as 16 at 16


def test_the_constant_s_mistakes_divide_by_their_own_maximum_length():
    # at half the length twice the weight, but where the mistake is to divide by something else than max_length
    elsewhere = {mistake.name for mistake in (*mistakes.aggregation.SEQUENCE_MEAN, *mistakes.aggregation.TOKEN_MEAN)}
    mask = torch.tensor([[[True, True, False], [True, False, False]]])
    for at_8, at_16 in zip(mistakes.aggregation.constant(8), mistakes.aggregation.constant(16), strict=True):
        assert at_8.name == at_16.name
        close(at_8.wrong(mask).double(), (1 if at_8.name in elsewhere else 2) * at_16.wrong(mask).double())


@pytest.mark.parametrize("times", [3, 25])
def test_the_overlong_mistakes_scale_with_lengths(times):
    # max_length, cache and every length `times` as long: nothing changes but for the prompt, whose 6 tokens stay 6, and
    # for what counts single tokens
    rewards, lengths = double([[1, 0, 1, 0.5, 1, 0]]), torch.tensor([[3, 11, 13, 15, 16, 40]])
    pairs = zip(mistakes.overlong(16, 4)[1:], mistakes.overlong(16 * times, 4 * times)[1:], strict=True)
    for short, long in pairs:
        assert short.name == long.name != "overlong counts the prompt"
        if "divided alone" in short.name or "not divided" in short.name:
            continue
        close(long.wrong(rewards, times * lengths), short.wrong(rewards, lengths))
    counted = mistakes.overlong(16 * times, 4 * times)[0].wrong
    close(counted(rewards, times * lengths - 6), SoftOverlongPunishment(max_length=16, cache=4)(rewards, lengths))


@pytest.mark.parametrize(("max_length", "cache"), [(16, 4), (20, 8), (64, 16), (7, 3), (1000, 100), (19, 9)])
def test_the_overlong_mistakes_are_known_at_any_length_and_cache(max_length, cache):
    def checks(student):
        return check.soft_overlong_punishment(as_a_student_s(student), max_length=max_length, cache=cache)

    assert checks(SoftOverlongPunishment(max_length=max_length, cache=cache)).passed
    for mistake in mistakes.overlong(max_length, cache):
        assert checks(mistake.wrong) == Verdict(False, mistake.says)


def test_sentences_carry_the_numbers_of_the_check():
    # from 12 to 20 tokens; a student who begins at 20, one who divides by 20 and one by 12
    def says(student):
        return check.soft_overlong_punishment(student, max_length=20, cache=8).says

    assert "The ramp is 0 at 12 tokens and −1 at 20." in says(lambda r, n: r + ((n - 20) / 8).clamp(-1, 0))
    assert says(lambda r, n: r + ((12 - n) / 12).clamp(-1, 0)).startswith(
        "divide by cache, 8, the width of the ramp, not by 12"
    )
    assert says(lambda r, n: r + ((12 - n) // 8).clamp(-1, 0)).startswith("from 13 tokens on the full 1 is lost")
    assert says(lambda r, n: r + ((12 - n) // 8).clamp(-1, 0)).endswith("so that it grows by 1/8 a token.")
    assert not check.soft_overlong_punishment(SoftOverlongPunishment(max_length=16, cache=4), 20, 8).passed
    # from 4 to 20 tokens: at 5 tokens a quarter is lost by dividing by 4, and all of it at once
    says_at_once = check.soft_overlong_punishment(lambda r, n: r - (n > 4).double(), max_length=20, cache=16).says
    assert says_at_once.startswith("from 5 tokens on the full 1 is lost")


@pytest.mark.parametrize(("max_length", "cache"), [(1, 1), (4, 4), (5, 1), (3, 2)])
def test_where_a_mistake_is_none_the_right_one_passes_all_the_same(max_length, cache):
    # with a cache of one token, a step of its own is the whole ramp; with cache = max_length nothing is short
    right = as_a_student_s(SoftOverlongPunishment(max_length=max_length, cache=cache))
    assert check.soft_overlong_punishment(right, max_length=max_length, cache=cache).passed


# --- a right answer in other words ---


def by_sign(ratio, advantages, lower, upper):
    return torch.where(advantages > 0, torch.minimum(ratio, upper), torch.maximum(ratio, lower)) * advantages


def standardized_by_loop(rewards):
    rows = []
    for row in rewards.tolist():
        mean = sum(row) / len(row)
        std = math.sqrt(sum((r - mean) ** 2 for r in row) / (len(row) - 1))
        rows.append([(r - mean) / (std + 1e-6) for r in row])
    return torch.tensor(rows)


def k3_naively(logp, ref_logp):
    return ref_logp.exp() / logp.exp() - 1 - (ref_logp - logp)


def root_of_the_product(logp, old_logp, mask):
    ratio = torch.where(mask, (logp - old_logp).exp(), 1.0)
    root = ratio.prod(-1, keepdim=True) ** (1 / mask.sum(-1, keepdim=True))
    return torch.where(mask, root, 1.0)


def in_float32(rewards):
    r = rewards.float()
    return (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-6)


def responses_averaged(mask):
    lengths = mask.sum(-1, keepdim=True)
    return mask / lengths.clamp(min=1) / (lengths > 0).sum()


IN_OTHER_WORDS = {
    "branches by sign": (check.pessimistic, by_sign),
    "a loop, in float32": (check.group_advantage, standardized_by_loop),
    "another eps": (check.group_advantage, lambda r: (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-7)),
    "float32": (check.group_advantage, in_float32),
    "k3 naively": (check.kl_estimate_k3, k3_naively),
    "a quotient": (check.importance_ratio, lambda logp, old, mask: torch.where(mask, logp.exp() / old.exp(), 1.0)),
    "a root": (check.sequence_importance_ratio, root_of_the_product),
    "a mask of booleans divided": (check.mean_of_tokens, lambda mask: mask / mask.sum()),
    "in float32": (check.mean_of_responses, lambda mask: responses_averaged(mask).float()),
    "0/0 repaired": (check.sum_of_responses, lambda mask: (mask / mask.sum(-1, keepdim=True)).nan_to_num()),
    "a constant": (constant_16, lambda mask: mask * (1 / (16 * mask.any(-1).sum()))),
}


@pytest.mark.parametrize("words", IN_OTHER_WORDS)
def test_a_right_answer_in_other_words_passes(words):
    checks, student = IN_OTHER_WORDS[words]
    assert checks(student).passed, checks(student)


def gspo_token(logp, old_logp, mask):
    own = torch.where(mask, logp - logp.detach(), 0.0).exp()
    return root_of_the_product(logp, old_logp, mask).detach() * own


def first_of_them_detached(logp, old_logp, mask):
    ratio = torch.where(mask, (logp - old_logp).exp(), 1.0)
    first = torch.zeros_like(mask)
    first[0, 0, 0] = True
    return torch.where(first, ratio.detach(), ratio)


@pytest.mark.parametrize(
    ("checks", "student"),
    [
        # GSPO-token has s on each token, and its gradients add up to the same as s's own: 3 · s/3 each, and s each
        (check.sequence_importance_ratio, gspo_token),
        (check.importance_ratio, first_of_them_detached),
    ],
)
def test_the_gradient_is_compared_for_each_element_of_the_result(checks, student):
    assert checks(student).says.startswith("the values are right, but the gradient by logp is not")


def test_praise_says_what_was_compared():
    assert "two widths" in check.pessimistic(by_sign).says
    assert "gradient" in check.kl_estimate_k3(k3_naively).says
    assert "gradient" not in check.mean_of_tokens(as_a_student_s(token_mean)).says  # there is none by a mask


def test_known_mistakes_come_before_the_sign():
    mistake = Mistake(lambda x: -x, "it is upside down, as planned.")
    assert check.judge(lambda x: -x, lambda x: x, [{"x": double([1, 2])}], known=[mistake]).says == mistake.says


def test_a_verdict_in_a_notebook_escapes_what_it_says():
    def breaks(rewards):
        raise ValueError("<script>a & b</script>")

    shown = check.group_advantage(breaks)._repr_html_()
    assert "&lt;script&gt;a &amp; b&lt;/script&gt;" in shown
    assert "<script>" not in shown
    assert "<b>Not yet:</b>" in shown
    assert "<b>Right:</b>" in check.group_advantage(standardized_by_loop)._repr_html_()


def wrapped(ratio, A, lower, upper):
    return pessimistic(ratio, A, lower, upper)


def through_the_module(ratio, A, lower, upper):
    return surrogate.pessimistic(ratio, A, lower, upper)


@pytest.mark.parametrize(
    "student", [wrapped, through_the_module, partial(pessimistic), lambda *given: 1 * pessimistic(*given)]
)
def test_nor_does_what_only_calls_it(student):
    assert "pessimistic is the library's own" in check.pessimistic(student).says
