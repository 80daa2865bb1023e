"""Every exercise and every slip of it, by one table: the same laws hold for all.

A new slip needs no test of its own, and one that was published a number worked by hand. The right numbers are worked by hand in
tests/pieces.
"""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.lessons import bounds, check, credit
from rlviz.lessons.judge import matches, run
from tests.lessons.answers import ANSWERS
from tests.pieces.tensors import close, double

EXERCISES = check.EXERCISES | {"mean_only": credit.mean_only, "fixed_bounds": bounds.fixed_bounds(0.1, 0.28)}
EACH = pytest.mark.parametrize("name", EXERCISES)


def same(one, a, b):
    by = (one.by,) if isinstance(one.by, str) and one.by else tuple(one.by)
    return all(matches(run(one.adapter(a), case, by), run(one.adapter(b), case, by)) for case in one.cases)


def as_a_student_s(function):
    """Return the function as somebody else's: the checks refuse what is defined in the library."""
    return lambda *inputs: function(*inputs)  # noqa: PLW0108


@EACH
def test_right_answers_pass_in_whatever_words_and_the_library_s_own_do_not(name):
    one = EXERCISES[name]
    assert same(one, one.answer, one.like)
    for answer in (as_a_student_s(one.answer), *ANSWERS.get(name, ())):
        verdict = one(answer)
        assert verdict.passed and repr(verdict) == f"Right: {verdict.says}", verdict
    for ours in (one.like, one.answer):
        assert one(ours).says.endswith("is the library's own, and here to compare with: write yours.")


def test_an_answer_without_a_piece_by_hand():
    logp, mask = double([[0.5, 0.25], [0.5, 0.9]]).log(), torch.tensor([[True, True], [True, False]])
    # −½ [ (1 − ¼) ln ⅛ + (0 − ¼) ln ½ ]
    close(check.reinforce.answer(logp, mask, double([1, 0]), double(0.25)), 0.5 * (0.75 * 3 - 0.25) * math.log(2))
    # two actions, even: the right one earned 1, so A is 1 and −1; each moves its logit by A / 2, twice, over N = 2
    close(check.reinforce_step.answer(double([0, 0]), torch.tensor([0, 1]), double([1, 0]), double(1)), [0.5, -0.5])
    one = torch.ones(1, 1, 1, dtype=torch.double)
    # r = 2 is clipped to 1.2; V = .6 was .2, target 1: ½ (.4 − 1)²; H = 1
    inputs = (math.log(2) * one, 0 * one, one, 0.6 * one, 0.2 * one, one, one, one.bool())
    close(check.ppo_loss.like(*inputs), -1.2 + 0.5 * 0.18 - 0.01)


@EACH
def test_each_slip_is_wrong_and_told_by_its_name_in_a_sentence(name):
    one = EXERCISES[name]
    assert len({slip.name for slip in one.slips}) == len({slip.says for slip in one.slips}) == len(one.slips) > 2
    for slip in one.slips:
        assert not same(one, one.wrong[slip.name], one.like), slip.name
        verdict = one(as_a_student_s(one.wrong[slip.name]))
        assert (verdict.passed, verdict.mistake, verdict.says) == (False, slip.name, slip.says)
        assert slip.says.endswith((".", "?")) and 6 <= len(slip.says.split()) < 80 and "→" not in slip.says
        assert slip.says[:2] == "A " or slip.says[0] == slip.says[0].lower()  # it goes on behind "Not yet: "


def elsewhere(one):
    """Return the exercise on other numbers than those of its cases."""
    random = torch.Generator().manual_seed(5)

    def smaller(name, x):
        less = x * (1 - 0.07 * torch.rand(x.shape, generator=random, dtype=torch.double))
        return less.log_softmax(-1) if name == "log_probs" else less if x.is_floating_point() else x

    return replace(one, cases=[{name: smaller(name, x) for name, x in case.items()} for case in one.cases])


@EACH
def test_two_slips_at_once_are_recognised_and_nothing_false_is_told(name):
    """Of the pairs four, spread over all; one that is a single slip after all, or none, is told as that."""
    one = EXERCISES[name]
    pairs = list(one.pairs())
    known = {mistake.name: mistake.wrong for mistake in (*one.mistakes, *pairs)}
    recognised = 0
    for pair in pairs[:: max(1, len(pairs) // 4)]:
        verdict = one(as_a_student_s(pair.wrong))
        if not verdict.mistake:
            assert verdict.passed or "sign is wrong" in verdict.says or "broke off" in verdict.says
            continue
        for numbers in (one, elsewhere(one)):
            assert same(numbers, known[verdict.mistake], pair.wrong), (pair.name, verdict.mistake)
        recognised += verdict.mistake == pair.name and verdict.says.startswith("two things. ")
    assert recognised or len(pairs) < 5


# --- what was published, by a number worked by hand ---

LN2 = math.log(2)
THREE = torch.tensor([[[True, True, True], [True, True, False]]])
# γ = ½, λ = ¼. A response of three tokens and one of two, whose padding has V = 4
CREDIT = double([[[1, 0, 4], [0, 2, 0]]]), double([[[2, 4, 2], [2, 1, 4]]]), THREE, double(0.5), double(0.25)
# Two pairs, β = ½. Log-ratios of chosen and rejected: 2 ln 3 and −ln 4; −ln 4 and ln 2 + ln 1
LOGP = double([[[0.9, 0.9], [0.2, 0.9]], [[0.2, 0.9], [0.6, 0.9]]]).log()
REF_LOGP = double([[[0.3, 0.3], [0.8, 0.1]], [[0.8, 0.1], [0.3, 0.9]]]).log()
PAIRS = LOGP, REF_LOGP, torch.tensor([[[1, 1], [1, 0]], [[1, 0], [1, 1]]]).bool(), double(0.5)
# log-ratios .3 −.1 (.7 on padding), mean .1, with A = 2; .6 .4 −.1, mean .3, with A = −1
OLD = double([[-1, -2, -1.5], [-1, -1, -2]])
RESPONSES = OLD + double([[0.3, -0.1, 0.7], [0.6, 0.4, -0.1]]), OLD, THREE[0].flip(0), double([2, -1])
WEIGHED = (torch.tensor([[[True, True, False], [True, False, False]]]),)


def mean_loss(*odds):
    """Return the mean of −ln σ of margins whose exponentials these are."""
    return sum(math.log(1 + 1 / o) for o in odds) / len(odds)


ONE = torch.ones(1, 1, 1, dtype=torch.double)
# a bad token that ran up from ½ to ¾, no error of the critic, no entropy
ACTOR = (0.75 * ONE).log(), (0.5 * ONE).log(), -ONE, 0 * ONE, 0 * ONE, 0 * ONE, 0 * ONE, ONE.bool()
PUBLISHED = {  # slip → what it is given, and what comes
    # A bad token that ran up to 1.5: max(−1.5, −1.2), where the minimum is −1.5
    "inverted for bad tokens": ((double([1.5]), double([-1]), double([0.8]), double([1.2])), [-1.2]),
    "policy inverted for bad tokens": (ACTOR, 1.2),
    "policy ratio with the old recomputed": (ACTOR, 1),
    # the mean of three tenths is not .1: each is d below it, and the std is √(3 d² / 2)
    "std above zero as the test": ((double([[0.1] * 3]),), [[-math.sqrt(2 / 3)] * 3]),
    "gspo with the old recomputed": (RESPONSES, (2 - 1) / 2),
    "gspo summed over tokens": (RESPONSES, (2 * 2 * math.exp(0.1) - 3 * math.exp(0.3)) / 2),
    "length mean kept": (WEIGHED, [[[1 / 4, 1 / 4, 0], [1 / 2, 0, 0]]]),
    "sequence weight on every token": (WEIGHED, [[[1 / 2, 1 / 2, 0], [1 / 2, 0, 0]]]),
    "plain token sum": (WEIGHED, [[[1, 1, 0], [1, 0, 0]]]),
    # second: δ −4, 2 + 2 − 1 = 3, −1.5; −4, 3 − 4/8, −1.5 + 2.5/8
    "padding bootstrapped": (CREDIT, [[[0.65625, -2.75, 2], [-1.1875, 2.5, 0]]]),
    "own reward minus value": (CREDIT, [[[-1, -4, 2], [-2, 1, 0]]]),
    # x is ln 2, then −ln 2
    "k3 of the wrong ratio": ((double([0.5, 0.25]).log(), double([0.25, 0.5]).log()), [1 - LN2, LN2 - 0.5]),
    # ½, ¼, ¼: log π −1, −2, −2 in ln 2; A ½, −½, −½: mean of log π · A ¼, of A 0
    "step without its probability": ((double([[0.5, 0.25, 0.25]]).log(), double([[1, 0, 0]])), [-0.25 * LN2]),
    "overlong counts the prompt": ((double([[1, 0]]), torch.tensor([[8, 8]])), [[0.5, -0.5]]),  # −(8 + 6 − 12) / 4
    "overlong without a floor": ((double([[1]]), torch.tensor([[20]])), [[-1]]),  # 1 − (20 − 12) / 4
    "reference forgotten": (PAIRS, mean_loss((0.81 / 0.2) ** 0.5, (0.2 / 0.54) ** 0.5)),
    "means over tokens": (PAIRS, mean_loss(12**0.5, 32**-0.25)),  # ½ (ln 3 + ln 4), ½ (−ln 4 − ½ ln 2)
    "logarithm of the sigmoid": ((double([0]), double([900])), math.inf),
}
SEEN = [(name, slip.name) for name, one in EXERCISES.items() for slip in one.slips if slip.seen]


@pytest.mark.parametrize(("name", "slip"), SEEN)
def test_what_was_published_is_what_a_hand_works_out(name, slip):
    inputs, expected = PUBLISHED[slip]
    close(EXERCISES[name].wrong[slip](*inputs).double(), expected, rtol=1e-6)
    right = EXERCISES[name].like(*inputs).double()
    assert not torch.allclose(right, double(expected))


# --- what is no answer ---


def broken(*inputs):
    raise ValueError("a\nb " + 1000 * "c ")


NO_ANSWER = (
    lambda *inputs: None,
    lambda *inputs: [0.5, 0.5],
    lambda *inputs: torch.ones(2, 3, 4, 5, 6),
    lambda *inputs: inputs[0] * math.nan,
    lambda *inputs: inputs[0] * 1j,
    lambda *inputs: inputs[0],
    broken,
    None,
)


@EACH
def test_whatever_is_answered_gets_a_sentence(name):
    """Each exercise is given a third of them, by rotation."""
    for answer in NO_ANSWER[list(EXERCISES).index(name) % 3 :: 3]:
        verdict = EXERCISES[name](answer)
        assert not verdict.passed and "\n" not in verdict.says and 20 <= len(verdict.says) <= 420, verdict
        assert "</div>" in verdict._repr_html_()
