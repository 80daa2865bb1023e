"""The objective written out: the numbers in the text give the recorded value, for every algorithm that trains."""

import inspect
import math
import re
from dataclasses import dataclass, replace

import pytest
import torch

from rlviz.algorithms import ALGORITHMS, DCPO, GRPO, PPO_PENALTY, GroupPolicyGradient
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.kl import KLInLoss, KLToOld
from rlviz.pieces.surrogate import DualClip, pessimistic, unclipped
from rlviz.pieces.words import says
from rlviz.runs.formula import Formula, decimals_for, filled, formulas_of, gradient_in_words, shown
from rlviz.runs.terms import token_terms
from rlviz.training import TrainSettings, train
from rlviz.types import GroupRecord, ResponseRecord, TokenRecord
from small_models.policies import load_policy
from small_models.tasks import Chain

TRAINABLE = [a for a in ALGORITHMS if isinstance(a, GroupPolicyGradient) and not a.asks_for("advantage", "step_ends")]
NO_KL = replace(GRPO, kl=None)
SETTINGS = TrainSettings(
    steps=2, num_prompts=4, group_size=4, updates_per_rollout=3, lr=1e-3, lr_warmup_steps=0, evaluate_every=0,
    details_every=2, details_groups=4,
)  # fmt: skip
NAMES = {"ratio": 1.3, "advantages": -0.5, "lower": 0.8, "upper": 1.2}
SHOWN = {name: shown(value) for name, value in NAMES.items()}
TOKEN = TokenRecord(
    token="7", old_prob=0.5, new_prob=0.65, ref_prob=None, ratio=1.3, lower=0.8, upper=1.2, advantage=0.5, clipped=True,
    objective=0.6, weight=0.25, push=0.0,
)  # fmt: skip


def records_of(algorithm):
    return list(train(load_policy("chain", device="cpu"), Chain(), algorithm, SETTINGS))


def tokens_of(algorithm):
    groups = records_of(algorithm)[-1].groups
    return [token for group in groups for response in group.responses for token in response.tokens]


@pytest.fixture(scope="module")
def record():
    return next(iter(train(load_policy("chain", device="cpu"), Chain(), NO_KL, SETTINGS)))


def terms_of(algorithm, token, record):
    """Return the terms of a token that is alone in its group."""
    response = ResponseRecord("7", 1.0, token.advantage, 1, True, True, False, (token,))
    group = GroupRecord("3+4=", "7", (response,))
    return token_terms(algorithm, replace(record, groups=(group,)), group)[0][0]


def lines_of(terms, key):
    return terms.text(key).split("\n")


def said(algorithm, token):
    return filled(*gradient_in_words(algorithm, token))


def worked_out(text):
    """Evaluate what stands in a line, as a reader with a calculator would."""
    python = text.replace("·", "*").replace("−", "-").replace("∞", "math.inf")
    functions = {"min": min, "max": max, "clip": lambda x, low, high: min(max(x, low), high), "math": math}
    return eval(python, {"__builtins__": {}}, functions)


def number(text):
    return float(text.replace("−", "-").replace("∞", "inf"))


@pytest.mark.parametrize(
    "algorithm", [*TRAINABLE, replace(GRPO, kl=KLToOld(0.5)), replace(NO_KL, bounds=no_bounds)], ids=lambda a: a.name
)
def test_the_numbers_in_every_line_give_the_recorded_value(algorithm):
    record = records_of(algorithm)[-1]
    counted = 0
    for group in record.groups:
        rows = token_terms(algorithm, record, group)
        for response, told in zip(group.responses, rows, strict=True):
            for token, terms in zip(response.tokens, told, strict=True):
                if not token.weight:
                    continue
                first, *surrogate = lines_of(terms, "J")
                assert first.startswith("= min(") or first.startswith("= max(min(")
                penalty = number(terms.numbers["KL"]) if algorithm.kl else 0.0
                rounding = 1e-3 * max(1.0, token.ratio, abs(token.advantage))
                assert number(terms.numbers["J"]) == pytest.approx(token.objective + penalty, abs=rounding)
                for line in surrogate:
                    assert worked_out(line.removeprefix("= ")) == pytest.approx(token.objective + penalty, abs=rounding)
                if algorithm.kl is not None:
                    (line,) = lines_of(terms, "objective")
                    assert worked_out(line.removeprefix("= ")) == pytest.approx(token.objective, abs=2e-3)
                counted += 1
    assert counted > 20


def test_a_clipped_token_by_hand(record):
    # 1.3 · .5 = .65, clip(1.3, .8, 1.2) · .5 = .6, and the lesser of the two is .6
    terms = terms_of(NO_KL, TOKEN, record)
    assert lines_of(terms, "J") == [
        "= min(ratio · advantages, clip(ratio, lower, upper) · advantages)",
        "= min(1.300 · 0.500, clip(1.300, 0.800, 1.200) · 0.500)",
        "= min(0.650, 0.600)",
    ]
    assert terms.numbers["J"] == "0.600"
    assert (
        terms.words
        == said(NO_KL, TOKEN)
        == ("Its gradient is cut: the ratio 1.300 is above the upper limit 1.200 and A > 0.")
    )


def test_the_kl_term_stands_with_its_numbers(record):
    # ref .325 against new .65: x = log ½ = −.693, k3 = .5 + .693 − 1 = .193, · .04 = .00773
    token = replace(TOKEN, ref_prob=0.325, objective=0.6 - 0.04 * (0.5 + math.log(2) - 1), push=-0.005)
    terms = terms_of(GRPO, token, record)
    assert lines_of(terms, "KL") == [
        "= beta · (exp(ref_logp − logp) − (ref_logp − logp) − 1)",
        "= 0.04 · (exp(−1.124 − (−0.431)) − (−1.124 − (−0.431)) − 1)",
    ]
    assert (terms.numbers["KL"], terms.numbers["objective"]) == ("0.00773", "0.592")
    assert lines_of(terms, "objective") == ["= 0.600 − 0.00773"]
    assert "The KL term still counts: it is pushed down by 0.005." in terms.words
    # PPO-Penalty's: r − 1 − log r of 1.3 = .0376, · .01; nothing is clipped: J = 1.3 · .5 = .65
    penalty = 0.01 * (1.3 - 1 - math.log(1.3))
    terms = terms_of(
        PPO_PENALTY, replace(TOKEN, lower=0.0, upper=None, clipped=False, objective=0.65 - penalty), record
    )
    assert lines_of(terms, "J") == ["= ratio · advantages", "= 1.300 · 0.500"]
    assert lines_of(terms, "KL") == [
        "= beta · (exp(logp − old_logp) − (logp − old_logp) − 1)",
        "= 0.01 · (exp(−0.431 − (−0.693)) − (−0.431 − (−0.693)) − 1)",
    ]
    assert terms.numbers["KL"] == "0.000376"


def test_words_for_what_is_not_cut():
    bad = replace(TOKEN, advantage=-0.5, clipped=False, objective=-0.65, push=-0.65 / 4)
    assert said(NO_KL, bad) == (
        "Its gradient ∂J/∂log π = ratio · ∂J/∂ratio = 1.300 · (−0.500) = −0.650; times its weight 0.250, it is pushed down "
        "by 0.163."
    )
    below = replace(bad, ratio=0.7, clipped=True, push=0.0)
    assert "the ratio 0.700 is below the lower limit 0.800 and A < 0" in said(NO_KL, below)
    assert "flat at the ratio 1.300 where A < 0" in said(DCPO, replace(bad, clipped=True, push=0.0))
    assert "not in the loss" in said(NO_KL, replace(TOKEN, weight=0.0))
    assert said(NO_KL, replace(bad, advantage=0.0, push=0.0)).startswith("Its advantage is 0")
    assert "Its gradient by log π is −0.650" in said(None, bad)


@pytest.mark.parametrize(
    "piece",
    [pessimistic, unclipped, DualClip(3.0), DualClip(1.5)],
    ids=("pessimistic", "unclipped", "dual 3", "dual 1.5"),
)
def test_a_formula_says_what_its_piece_does(piece):
    parameters = vars(piece) if isinstance(piece, DualClip) else {}
    documented = " ".join(inspect.getdoc(piece if hasattr(piece, "__name__") else type(piece)).split())
    assert f"J = {piece.formula}" in documented  # what the reader of the file sees is what the inspector shows
    for ratio in (0.1, 0.7, 0.8, 1.0, 1.1, 1.2, 1.4, 2.9, 7.0):
        for advantages in (-2.0, -0.5, 0.0, 0.3, 1.7):
            names = {**NAMES, "ratio": ratio, "advantages": advantages}
            (formula,) = formulas_of(piece, names | parameters)
            tensors = (torch.tensor(x, dtype=torch.double) for x in names.values())
            assert formula.value(names | parameters) == pytest.approx(float(piece(*tensors)), abs=1e-12)


def test_it_is_written_out_where_docstrings_are_stripped(monkeypatch, record):
    expected = lines_of(terms_of(NO_KL, TOKEN, record), "J")
    monkeypatch.setattr(pessimistic, "__doc__", None)
    assert lines_of(terms_of(NO_KL, TOKEN, record), "J") == expected
    assert expected[0].startswith("= min(ratio · advantages")


def test_a_surrogate_of_one_s_own_with_a_formula(record):
    @says(why="a little of the gradient stays.", formula="min(ratio, upper) · advantages + slope · (ratio − 1)")
    @dataclass(frozen=True)
    class Leaky:
        slope: float = 0.1

        def __call__(self, ratio, advantages, lower, upper):
            return torch.minimum(ratio, upper) * advantages + self.slope * (ratio - 1)

    # 1.2 · .5 + .1 · .3 = .63
    terms = terms_of(replace(NO_KL, surrogate=Leaky()), replace(TOKEN, objective=0.63), record)
    assert lines_of(terms, "J") == [
        "= min(ratio, upper) · advantages + slope · (ratio − 1)",
        "= min(1.300, 1.200) · 0.500 + 0.100 · (1.300 − 1)",
    ]
    assert terms.numbers["J"] == "0.630"


def test_without_a_formula_or_with_one_that_lies_it_stands_as_a_function(record):
    def my_surrogate(ratio, advantages, lower, upper):
        return torch.tanh(ratio) * advantages

    @says(why="it lies.", formula="ratio · advantages")
    def lying(ratio, advantages, lower, upper):
        return torch.tanh(ratio) * advantages

    @says(why="it cannot be worked out.", formula="advantages / (lower − lower)")
    def hopeless(ratio, advantages, lower, upper):
        return torch.tanh(ratio) * advantages

    value = math.tanh(1.3) * 0.5
    for piece in (my_surrogate, lying, hopeless):
        terms = terms_of(replace(NO_KL, surrogate=piece), replace(TOKEN, objective=value), record)
        given = "(ratio 1.300, advantages 0.500, lower 0.800, upper 1.200)"
        assert lines_of(terms, "J") == [f"= [{piece.__name__}]{given}"]
        assert terms.numbers["J"] == f"{value:.3f}"


def test_another_algorithm_than_the_one_that_trained_is_noticed(record):
    terms = terms_of(replace(NO_KL, surrogate=unclipped), TOKEN, record)
    assert terms.text("objective").startswith("GRPO gives 0.650 at this token's numbers, its record says 0.600")
    with pytest.raises(KeyError):
        terms.term("J")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "ratio.real",
        "(lambda: 1)()",
        "ratios",
        "[ratio]",
        "True",
        "eval(ratio)",
        "",
        "a b",
        "ratio · advantages, always",
    ],
)
def test_only_arithmetic_is_read(text):
    assert Formula.read(text, NAMES) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ratio − (lower − upper)", 1.3 - (0.8 - 1.2)),
        ("(ratio − 1) · advantages / (lower · 2)", 0.3 * -0.5 / 1.6),
        ("−(ratio + advantages) · 2", -(1.3 - 0.5) * 2),
        ("max(ratio, exp(advantages)) − log(lower)", 1.3 - math.log(0.8)),
        ("ratio ·\n    advantages", -0.65),
    ],
)
def test_brackets_stay_where_they_are_needed(text, value):
    formula = Formula.read(text, NAMES)
    assert formula.value(NAMES) == pytest.approx(value)
    assert Formula.read(formula.text(), NAMES).value(NAMES) == pytest.approx(value)
    assert formula.text() == " ".join(text.split())
    with_numbers = Formula.read(filled(formula.template(), SHOWN), {})
    assert with_numbers.value({}) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "with_numbers"),
    [
        ("ratio · advantages − advantages", "1.300 · (−0.500) − (−0.500)"),
        ("−advantages / ratio", "−(−0.500) / 1.300"),
        ("max(advantages · lower, advantages)", "max(−0.500 · 0.800, −0.500)"),
        ("(advantages + 1) · ratio", "(−0.500 + 1) · 1.300"),
    ],
)
def test_a_negative_number_behind_a_sign_is_in_brackets(text, with_numbers):
    assert filled(Formula.read(text, NAMES).template(), SHOWN) == with_numbers


def test_numbers_as_one_reads_them():
    assert [shown(x) for x in (1.31, -0.5, 0.03125, -2e-5, 0.0, 10.0, math.inf, -1.0)] == [
        "1.310", "−0.500", "0.0312", "−2e−05", "0", "10", "∞", "−1",
    ]  # fmt: skip


def test_close_numbers_are_told_apart():
    narrow = replace(TOKEN, ratio=1.00042, lower=0.9997, upper=1.0004)
    shown_numbers = {f"{x:.{decimals_for(narrow)}f}" for x in (1.0, narrow.ratio, narrow.lower, narrow.upper)}
    assert len(shown_numbers) == 4
    assert decimals_for(TOKEN) == decimals_for(replace(TOKEN, upper=None)) == 3


def test_no_line_has_a_python_minus_or_star():
    record = records_of(GRPO)[-1]
    for group in record.groups:
        for terms in (terms for row in token_terms(GRPO, record, group) for terms in row):
            for key in ("J", "KL", "objective", "ratio", "advantages", "lower", "upper", "weight"):
                assert not re.search(r"[*]|-\d", terms.text(key)), terms.text(key)


def test_a_probability_that_vanished_is_no_error(record):
    gone = replace(TOKEN, new_prob=0.0, ratio=0.0, ref_prob=0.5, advantage=-0.5, objective=-0.4)
    assert (
        terms_of(NO_KL, gone, record).words
        == "The run had diverged: its numbers are not finite, so there is nothing to work out."
    )
    tiny = replace(gone, ratio=1e-30, clipped=False, push=-0.1)
    assert terms_of(NO_KL, tiny, record).numbers["J"] == "−0.400"
    assert "KLInLoss" not in str(KLInLoss())
