"""The check of lesson 09: GSPO's objective in other words passes, each slip is called by its name, and what is no answer is told
kindly. Right and wrong values by hand on two responses."""

from math import exp

import pytest
import torch

from rlviz.exercises import cases, check, mistakes
from rlviz.exercises.check import Verdict
from rlviz.pieces.ratios import sequence_token_ratio
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double

ZOO = mistakes.gspo
# Log-ratios .3 −.1 (.7 on padding), mean .1, with A = 2; .6 .4 −.1, mean .3, with A = −1.
OLD = double([[-1, -2, -1.5], [-1, -1, -2]])
LOGP = OLD + double([[0.3, -0.1, 0.7], [0.6, 0.4, -0.1]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
A = double([2, -1])
GIVEN = LOGP, OLD, MASK, A
S1, S2 = exp(0.1), exp(0.3)
RIGHT = (2 * S1 - S2) / 2
# ∂/∂logp of s A / 2 is s A / (2 |y|): 2 S1 / 4 and −S2 / 6
SLOPES = [[S1 / 2, S1 / 2, 0], [-S2 / 6] * 3]


def gradient(function):
    leaf = LOGP.clone().requires_grad_()
    return torch.autograd.grad(function(leaf, OLD, MASK, A), leaf)[0]


def in_three_lines(logp, old_logp, mask, A):
    mean = ((logp - old_logp) * mask).sum(-1) / mask.sum(-1)
    s = mean.exp()
    return (s * A).mean()


def one_by_one(logp, old_logp, mask, A):
    parts = []
    for new, old, kept, advantage in zip(logp, old_logp, mask, A, strict=True):
        parts.append(torch.exp((new[kept] - old[kept]).mean()) * advantage)
    return sum(parts) / len(parts)


def root_of_the_product(logp, old_logp, mask, A):
    ratio = torch.where(mask, logp.exp() / old_logp.exp(), 1.0)
    return (ratio.prod(-1).pow(1 / mask.sum(-1)) * A).mean()


def on_every_token(logp, old_logp, mask, A):
    s = (((logp - old_logp) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()
    return (s * A[:, None] * mask / mask.sum(-1, keepdim=True)).sum(-1).mean()


def gspo_token(logp, old_logp, mask, A):
    s = sequence_token_ratio(logp[None], old_logp[None], mask[None])[0]
    return ((s * A[:, None] * mask).sum(-1) / mask.sum(-1)).mean()


RIGHT_ANSWERS = {
    "three lines": in_three_lines,
    "a loop": one_by_one,
    "a root": root_of_the_product,
    "[N, 1] on tokens, with their mean": on_every_token,
    "GSPO-token": gspo_token,
    "float32": lambda logp, *given: in_three_lines(logp.float(), *given).float(),
}


def log_ratio(logp, old_logp, mask):
    return torch.where(mask, logp - old_logp, 0.0)


def s_of(logp, old_logp, mask):
    return torch.stack([(a - b)[m].mean().exp() for a, b, m in zip(logp, old_logp, mask, strict=True)])


FIRST, SECOND = exp(0.3) + exp(-0.1), exp(0.6) + exp(0.4) + exp(-0.1)  # sums of token ratios
# the wrong variant → its value by hand, and how a student would write it
SLIPS = {
    ZOO.gspo_with_the_product_of_ratios: (
        (2 * exp(0.2) - exp(0.9)) / 2,
        lambda n, o, m, A: (torch.where(m, (n - o).exp(), 1.0).prod(-1) * A).mean(),
    ),
    ZOO.gspo_with_the_mean_of_ratios: (
        (2 * FIRST / 2 - SECOND / 3) / 2,
        lambda n, o, m, A: (((n - o).exp() * m).sum(-1) / m.sum(-1) * A).mean(),
    ),
    ZOO.gspo_with_token_ratios_and_token_mean: (
        (2 * FIRST - SECOND) / 5,
        lambda n, o, m, A: ((n - o).exp() * A[:, None])[m].mean(),
    ),
    ZOO.gspo_divided_by_the_width: (
        (2 * exp(0.2 / 3) - S2) / 2,
        lambda n, o, m, A: (((n - o) * m).mean(-1).exp() * A).mean(),
    ),
    ZOO.gspo_with_padding_in_the_sum: (
        (2 * exp(0.9 / 2) - S2) / 2,
        lambda n, o, m, A: (((n.sum(-1) - o.sum(-1)) / m.sum(-1)).exp() * A).mean(),
    ),
    ZOO.gspo_without_the_mask: (
        (2 * exp(0.9 / 3) - S2) / 2,
        lambda n, o, m, A: ((n.mean(-1) - o.mean(-1)).exp() * A).mean(),
    ),
    ZOO.gspo_with_one_ratio_for_the_batch: (
        exp(1.1 / 5) / 2,
        lambda n, o, m, A: (n - o)[m].mean().exp() * A.mean(),
    ),
    ZOO.gspo_with_every_ratio_times_every_advantage: (
        (S1 + S2) / 2 * 0.5,
        lambda n, o, m, A: (s_of(n, o, m) * A[:, None]).mean(),
    ),
    ZOO.gspo_summed_over_tokens: (
        (4 * S1 - 3 * S2) / 2,
        lambda n, o, m, A: (s_of(n, o, m)[:, None] * A[:, None] * m).sum() / len(A),
    ),
    ZOO.gspo_summed_over_all_tokens: (
        4 * S1 - 3 * S2,
        lambda n, o, m, A: (s_of(n, o, m)[:, None] * A[:, None] * m).sum(),
    ),
    ZOO.gspo_averaged_over_tokens: (
        (4 * S1 - 3 * S2) / 5,
        lambda n, o, m, A: (s_of(n, o, m) * A)[:, None].expand_as(n)[m].mean(),
    ),
    ZOO.gspo_averaged_over_all_places: (
        (4 * S1 - 3 * S2) / 6,
        lambda n, o, m, A: torch.where(m, (s_of(n, o, m) * A)[:, None], 0.0).mean(),
    ),
    ZOO.gspo_summed_over_responses: (2 * S1 - S2, lambda n, o, m, A: s_of(n, o, m) @ A),
    ZOO.gspo_without_gradient: (RIGHT, lambda n, o, m, A: (s_of(n, o, m).detach() * A).mean()),
    ZOO.gspo_with_the_old_recomputed: (0.5, lambda n, o, m, A: (s_of(n, n.detach(), m) * A).mean()),
    ZOO.gspo_upside_down: ((2 / S1 - 1 / S2) / 2, lambda n, o, m, A: (A / s_of(n, o, m)).mean()),
    ZOO.gspo_left_in_logs: (
        (2 * 0.1 - 0.3) / 2,
        lambda n, o, m, A: (A * log_ratio(n, o, m).sum(-1) / m.sum(-1)).mean(),
    ),
    ZOO.gspo_with_the_new_policy_alone: (
        (2 * exp(-2.8 / 2) - exp(-3.1 / 3)) / 2,
        lambda n, o, m, A: (((n * m).sum(-1) / m.sum(-1)).exp() * A).mean(),
    ),
    ZOO.gspo_without_advantages: ((S1 + S2) / 2, lambda n, o, m, A: s_of(n, o, m).mean()),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(ZOO.SEQUENCE_OBJECTIVE))


def test_the_right_one_by_hand():
    close(check._sequence_objective(*GIVEN), RIGHT)
    close(gradient(check._sequence_objective), SLOPES)


@pytest.mark.parametrize("words", RIGHT_ANSWERS)
def test_the_right_objective_passes_in_other_words(words):
    torch.testing.assert_close(RIGHT_ANSWERS[words](*GIVEN).double(), double(RIGHT), rtol=1e-6, atol=0)
    verdict = check.sequence_objective(RIGHT_ANSWERS[words])
    assert verdict.passed, verdict
    assert "gradient" in verdict.says


def test_the_cases_have_what_the_praise_says():
    lengths = {length for case in cases.RESPONSES for length in case["mask"].sum(-1).tolist()}
    assert lengths == {1, 2, 3, 4}
    for case in cases.RESPONSES:
        padding = ~case["mask"]
        assert padding.any()
        assert (case["logp"] != case["old_logp"])[padding].all()


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.sequence_objective, ZOO.SEQUENCE_OBJECTIVE)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    expected, written = SLIPS[wrong]
    close(wrong(*GIVEN), expected)
    close(written(*GIVEN), expected)


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.sequence_objective(SLIPS[wrong][1]) == Verdict(False, says_of(ZOO.SEQUENCE_OBJECTIVE, wrong))


def test_what_lesson_09_says_of_both_suspects():
    # 1,000 tokens of ratio 1.01: the product is 1.01 to the power 1,000, e^(1000 · .00995033) = e^9.95033 = 20,959
    start = torch.zeros(1, 1, 1000, dtype=torch.double)
    (product,) = (m.wrong for m in mistakes.ratios.SEQUENCE_RATIO if m.name == "sequence ratio without the root")
    close(product(start + 0.009950330853168083, start, start == 0)[0, 0, 0], 20959.155637813598, rtol=1e-9)
    # ratios 1; 2 tokens with A = 1, 8 with A = −1: (2 − 8) / 2
    start, two = torch.zeros(2, 8, dtype=torch.double), torch.arange(8) < torch.tensor([[2], [8]])
    close(ZOO.gspo_summed_over_tokens(start, start, two, double([1, -1])), -3)
    close(in_three_lines(start, start, two, double([1, -1])), 0)


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda *given: None, "your function returns None: write your lines, and return their result."),
        (
            lambda n, o, m, A: s_of(n, o, m) * A,
            "your result has shape [3]; it has to be []. One number for the whole batch: take the mean.",
        ),
        (lambda n, o, m, A: 0.5, "your function returns a float: return a torch tensor."),
        (lambda *given: -in_three_lines(*given), "the sign is wrong: everything is the negative of what it should be."),
        (lambda n, o, m, A: ((n - o).sum(-1) * A[:, None, None]).mean().numpy(), "your function"),
        (lambda n, o, m, A: (n - o) * A, "your function broke off (RuntimeError): two shapes do not fit"),
        (lambda *given: 2 * in_three_lines(*given), "for lengths [4, 1, 2], A [1.5, -0.5, -1]: expected "),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    verdict = check.sequence_objective(student)
    assert not verdict.passed
    assert verdict.says.startswith(words)
