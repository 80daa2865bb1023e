"""explore_aggregation: weights by hand, and the mean of parts' means by plain loops."""

from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO
from rlviz.pictures.aggregation import explore_aggregation

pytestmark = pytest.mark.usefixtures("untraced")

LENGTHS = np.array([2, 4, 8, 16])
SUM, CONSTANT, TOKEN, SEQUENCE, OWN = range(5)  # rows, from below


def shown(*arguments, **setting):
    return explore_aggregation(*arguments, **setting).names().array


def rows(names):
    """Return the weights of a token, a row an aggregation, and which row is the algorithm's own."""
    own, others = (names(f"weight_{of}").reshape(5, 5)[:, :4] for of in ("own", "others"))
    return np.where(np.isnan(own), others, own), np.flatnonzero(np.isfinite(own).all(1)).tolist()


def test_weights_by_hand():
    # 4 responses, 30 tokens: 1/|o|, 1/(4 · 5), 1/30, 1/(4 |o|)
    weights, own = rows(shown(GRPO, max_length=5))
    expected = [1 / LENGTHS, np.full(4, 1 / 20), np.full(4, 1 / 30), 1 / (4 * LENGTHS)]
    np.testing.assert_allclose(weights[:4], expected, rtol=1e-12)
    assert np.isnan(weights[4]).all() and own == [SEQUENCE]
    assert [rows(shown(a))[1] for a in (DAPO, DR_GRPO, DCPO)] == [[TOKEN], [CONSTANT], [SUM]]


@pytest.mark.parametrize(
    ("algorithm", "cut", "whole", "parts"),
    [
        # parts of 6 and 24 tokens: a token of the first weighs ½ · 1/6, of the second ½ · 1/24
        (DAPO, 2, LENGTHS / 30, [1 / 6, 1 / 3, 1 / 6, 1 / 3]),
        (DAPO, 1, LENGTHS / 30, [1 / 2, 4 / 56, 8 / 56, 16 / 56]),
        (GRPO, 2, [1 / 4] * 4, [1 / 4] * 4),
        # one response alone in its part: ½ · 1; three in theirs: ½ · 1/3
        (GRPO, 1, [1 / 4] * 4, [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        (DR_GRPO, 2, LENGTHS / 64, LENGTHS / 64),
        (DR_GRPO, 3, LENGTHS / 64, [2 / 96, 4 / 96, 8 / 96, 16 / 32]),
        (DCPO, 2, [1] * 4, [1 / 2] * 4),
    ],
)
def test_the_trap_by_hand(algorithm, cut, whole, parts):
    names = shown(algorithm, cut=cut)
    np.testing.assert_allclose(names("whole"), whole, rtol=1e-12)
    np.testing.assert_allclose(names("parts"), parts, rtol=1e-12)


def test_the_mean_of_means_by_loops():
    lengths, cut = (3, 1, 7, 5), 3
    names = shown(lengths=lengths, cut=cut)
    for response in range(4):
        tokens = [[float(i == response)] * n for i, n in enumerate(lengths)]
        means = [np.mean(np.concatenate(part)) for part in (tokens[:cut], tokens[cut:])]
        assert names("parts")[response] == pytest.approx(np.mean(means), rel=1e-12)
        assert names("whole")[response] == pytest.approx(np.mean(np.concatenate(tokens)), rel=1e-12)


def test_an_aggregation_of_one_s_own_stands_above_the_four():
    names = shown(replace(GRPO, name="Mine", aggregate=lambda mask: mask / 100))
    weights, own = rows(names)
    assert own == [OWN] and names("rows_end") == 5.6 and shown()("rows_end") == 4.6
    np.testing.assert_allclose(weights[OWN], 0.01, rtol=1e-6)
    np.testing.assert_allclose(names("whole"), LENGTHS / 100, rtol=1e-6)
    weights, own = rows(shown(DR_GRPO, max_length=64))  # whose own constant is 16
    assert own == [OWN] and (weights[CONSTANT] == 1 / 256).all() and (weights[OWN] == 1 / 64).all()


def test_tall_bars_and_negative_ones_stay_inside():
    plain_sum = shown(replace(GRPO, name="Mine", aggregate=lambda mask: mask.double()))  # 16 tokens of weight 1
    assert plain_sum("bottom") == 0 and 16 < plain_sum("top") < 17 and shown()("top") == 1.05
    negative = shown(replace(GRPO, name="Mine", aggregate=lambda mask: -mask.double() / 100))
    assert negative("bottom") == -1.05


MINE = replace(GRPO, name="Mine", aggregate=lambda mask: mask * 0.0)
NO_TRAP = "gives every response the weight that it has in the whole batch: no trap here."


@pytest.mark.parametrize(
    ("arguments", "conclusion", "details"),
    [
        (
            {},
            "DAPO gives 2.5 times its weight to a token of response 1, and 0.625 times to one of response 3: the trap.",
            "The aggregation is token mean: a token weighs 0.0333 in every response. The parts have 2 and 2 responses. Tokens of "
            "responses 1 to 4 count 2.5, 2.5, 0.625 and 0.625 times what they should.",
        ),
        (
            {"algorithm": GRPO, "lengths": (1, 5, 16, 2)},
            f"GRPO {NO_TRAP}",
            "The aggregation is sequence mean: a token of response 1 (length 1) weighs 0.25, of response 3 (length 16) 0.0156. "
            "The parts have 2 and 2 responses.",
        ),
        (
            {"lengths": (2, 16, 16, 2)},
            f"DAPO {NO_TRAP}",
            "a token weighs 0.0278 in every response",
        ),  # 18 tokens in each part
        (
            {"algorithm": DCPO, "lengths": (4, 4, 4, 4), "cut": 1},
            "DCPO gives every token 0.5 times its weight: another learning rate.",
            "a token weighs 0.25 in every response. The parts have 1 and 3 responses.",
        ),
        ({"algorithm": MINE}, f"Mine {NO_TRAP}", "The aggregation is <lambda>: a token weighs 0 in every response."),
    ],
)
def test_words_by_hand(arguments, conclusion, details):
    explorer = explore_aggregation(**arguments)
    assert explorer.conclusion == f"Averaging the means of two parts, {conclusion}"
    assert details in explorer.caption
