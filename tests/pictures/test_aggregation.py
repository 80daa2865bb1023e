"""explore_aggregation: weights by hand, and the mean of parts' means by plain loops."""

from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DPO, DR_GRPO, GRPO
from rlviz.pictures.aggregation import AggregationPicture, aggregation_curve, explore_aggregation

LENGTHS = np.array([2, 4, 8, 16])


def test_weights_by_hand():
    # 4 responses, 30 tokens: 1/(4 |o|), 1/30, 1/(4 · 5), 1/|o|
    curve = aggregation_curve(GRPO, max_length=5)
    assert curve.names == ("sequence mean", "token mean", "constant 1/5", "sequence sum")
    expected = [1 / (4 * LENGTHS), np.full(4, 1 / 30), np.full(4, 1 / 20), 1 / LENGTHS]
    np.testing.assert_allclose(curve.weight, expected, rtol=1e-12)
    assert [aggregation_curve(a).own for a in (GRPO, DAPO, DR_GRPO, DCPO)] == [0, 1, 2, 3]


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
    curve = aggregation_curve(algorithm, cut=cut)
    np.testing.assert_allclose(curve.whole, whole, rtol=1e-12)
    np.testing.assert_allclose(curve.parts, parts, rtol=1e-12)


def test_the_mean_of_means_by_loops():
    lengths, cut = (3, 1, 7), 2
    curve = aggregation_curve(DAPO, lengths=lengths, cut=cut)
    for response in range(3):
        tokens = [[float(i == response)] * n for i, n in enumerate(lengths)]
        means = [np.mean(np.concatenate(part)) for part in (tokens[:cut], tokens[cut:])]
        assert curve.parts[response] == pytest.approx(np.mean(means), rel=1e-12)
        assert curve.whole[response] == pytest.approx(np.mean(np.concatenate(tokens)), rel=1e-12)


def test_equal_parts_hold_no_trap_and_every_objective_of_ones_is_one():
    level = aggregation_curve(DAPO, lengths=(8, 8, 8, 8))
    np.testing.assert_allclose(level.parts, level.whole, rtol=1e-12)
    swapped = aggregation_curve(DAPO, lengths=(2, 16, 16, 2))  # 18 tokens in each part
    np.testing.assert_allclose(swapped.parts, swapped.whole, rtol=1e-12)
    for algorithm in (GRPO, DAPO):
        curve = aggregation_curve(algorithm, lengths=(1, 5, 9, 2), cut=3)
        assert curve.whole.sum() == pytest.approx(1) == curve.parts.sum()


def test_an_aggregation_of_one_s_own_stands_beside_the_four():
    mine = replace(GRPO, name="Mine", aggregate=lambda mask: mask / 100)
    curve = aggregation_curve(mine)
    assert (len(curve.names), curve.own) == (5, 4)
    np.testing.assert_allclose(curve.weight[4], 0.01, rtol=1e-6)
    np.testing.assert_allclose(curve.whole, LENGTHS / 100, rtol=1e-6)
    assert len(AggregationPicture(curve).lines) == 5
    other_length = aggregation_curve(DR_GRPO, max_length=64)
    assert (other_length.names[2], other_length.names[other_length.own]) == ("constant 1/64", "constant 1/16")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lengths": (4,)}, r"lengths must be two or more numbers of tokens, each at least 1; got \(4,\)"),
        ({"lengths": (4, 0)}, r"each at least 1; got \(4, 0\)"),
        ({"cut": 0}, "cut must be from 1 to 3 responses; got 0"),
        ({"cut": 4}, "cut must be from 1 to 3 responses; got 4"),
        ({"max_length": 0}, "max_length must be at least 1 token; got 0"),
        ({"algorithm": DPO}, "algorithm: DPO has no aggregation"),
    ],
)
def test_what_is_out_of_range_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        aggregation_curve(**{"algorithm": GRPO, **wrong})


@pytest.mark.parametrize(("lengths", "half"), [((1, 2), 1), ((3, 4, 5), 1), ((2, 4, 8, 16), 2), ((1,) * 5, 2)])
def test_the_cut_is_in_the_middle_unless_it_is_said(lengths, half):
    assert aggregation_curve(DAPO, lengths=lengths).cut == half
    explorer = explore_aggregation(lengths=lengths)
    cut = explorer.controls["cut"]
    assert (cut.value, cut.high, explorer.curve.cut) == (half, len(lengths) - 1, half)
    assert "cut" not in explorer.call
    assert explore_aggregation(lengths=lengths, cut=half).call == explorer.call
    if len(lengths) > 2:
        cut.value = len(lengths) - 1
        assert explorer.curve.cut == len(lengths) - 1 and f"cut={len(lengths) - 1}" in explorer.call
        cut.value = half
        assert explorer.curve.cut == half and "cut" not in explorer.call


def test_a_cut_beyond_the_responses_is_refused():
    with pytest.raises(ValueError, match="cut must be from 1 to 1 responses; got 2"):
        explore_aggregation(lengths=(1, 2), cut=2)


def heights_of(marks):
    return [y for _, y, _ in marks.places]


def heights(bars):
    return [path.vertices[:, 1].max() for path in bars.get_paths()]


def test_the_picture_is_the_curve():
    curve = aggregation_curve(GRPO, cut=1)
    picture = AggregationPicture(curve)
    *four, of_its_own = picture.lines
    assert len(of_its_own.get_xdata()) == 0  # GRPO's is one of the four
    for line, weights in zip(four, curve.weight, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), weights)
    np.testing.assert_array_equal(picture.own_line.get_ydata(), curve.weight[0])
    assert heights_of(picture.own_digits) == list(curve.weight[0])
    assert heights_of(picture.digits) == list(curve.weight[1:].ravel())
    assert (picture.own_digits.texts, picture.digits.texts) == (tuple("1234"), tuple("1234" * 3))
    for digits, columns in ((picture.own_digits, [0]), (picture.digits, [1, 2, 3])):  # each digit on its line
        across = np.concatenate([picture.lines[column].get_xdata() for column in columns])
        np.testing.assert_array_equal([x for x, _, _ in digits.places], across)
    assert picture.own_name.texts == ("its own",) and picture.own_name.places[0][0] == 0
    assert heights(picture.whole) == list(curve.whole)
    assert heights(picture.parts) == list(curve.parts)
    assert picture.knife.get_xdata()[0] == 0.5
    assert picture.tokens.texts == ("2 tokens", "4 tokens", "8 tokens", "16 tokens")
    assert [x for x, _, _ in picture.tokens.places] == [0, 1, 2, 3]
    assert picture.right.get_ylabel() == "weight of all its tokens together"
    assert len(AggregationPicture.alone(curve).axes) == 2


def test_its_own_is_marked_where_it_stands():
    curve = aggregation_curve(DCPO)  # the last of the four
    picture = AggregationPicture(curve)
    assert heights_of(picture.own_digits) == list(1 / LENGTHS)
    assert heights_of(picture.digits)[:4] == list(1 / (4 * LENGTHS))
    assert picture.own_name.places[0][0] == 3


def test_tall_bars_stay_inside():
    plain_sum = replace(GRPO, aggregate=lambda mask: mask.double())
    curve = aggregation_curve(plain_sum)  # 16 tokens of weight 1
    low, high = AggregationPicture(curve).right.get_ylim()
    assert low == 0 and 16 < high < 17
    _, usual = AggregationPicture(aggregation_curve(GRPO)).right.get_ylim()
    assert usual == 1.05


@pytest.mark.parametrize(
    ("arguments", "conclusion", "details"),
    [
        (
            {},
            "Averaging the means of two parts, DAPO counts tokens of response 1 2.5 times as much as it should, of response 3 "
            "0.625 times: the trap.",
            "The aggregation is token mean: a token weighs 0.0333 in every response. The parts have 2 and 2 responses, and "
            "tokens of responses 1 to 4 count 2.5, 2.5, 0.625 and 0.625 times what they should. Weights computed on the whole "
            "batch and then cut stay right.",
        ),
        (
            {"algorithm": GRPO, "lengths": (1, 5, 16, 2)},
            "Averaging the means of two parts, GRPO gives every response the weight that it has in the whole batch: no trap "
            "here.",
            "The aggregation is sequence mean: a token of response 1 (1 token) weighs 0.25, of response 3 (16 tokens) 0.0156. "
            "The parts have 2 and 2 responses.",
        ),
        (
            {"algorithm": DCPO, "lengths": (4, 4, 4, 4), "cut": 1},
            "Averaging the means of two parts, DCPO gives every token 0.5 times its weight: another learning rate.",
            "The aggregation is sequence sum: a token weighs 0.25 in every response. The parts have 1 and 3 responses.",
        ),
        (
            {"algorithm": replace(GRPO, name="Mine", aggregate=lambda mask: mask * 0.0)},
            "Averaging the means of two parts, Mine gives every response the weight that it has in the whole batch: no trap "
            "here.",
            "The aggregation is <lambda>: a token weighs 0 in every response. The parts have 2 and 2 responses.",
        ),
    ],
)
def test_words_by_hand(arguments, conclusion, details):
    explorer = explore_aggregation(**arguments)
    assert (explorer.conclusion, explorer.details) == (conclusion, details)


def test_the_cut_is_dragged():
    explorer = explore_aggregation()
    explorer.asked = {"turn": 1, "handle": 0, "place": 2.4}  # nearest to 2.5, between the third and the fourth
    assert explorer.curve.cut == explorer.controls["cut"].value == 3
    assert explorer.picture.handles(explorer.curve)[0].at == explorer.picture.knife.get_xdata()[0] == 2.5
    explorer.asked = {"turn": 2, "handle": 0, "place": 1.6}  # nearest to 1.5
    assert explorer.curve.cut == 2
    explorer.asked = {"turn": 3, "handle": 0, "place": -0.5}
    assert explorer.curve.cut == 1


@pytest.mark.parametrize("length", [1, 5, 16, 61])
def test_the_constant_is_dragged_by_its_weight(length):
    # of 4 responses each token weighs 1 / (4 · length)
    explorer = explore_aggregation(GRPO)
    explorer.asked = {"turn": 1, "handle": 1, "place": 1 / (4 * length)}
    assert explorer.controls["max_length"].value == length
    assert explorer.picture.handles(explorer.curve)[1].at == pytest.approx(1 / (4 * length))
    np.testing.assert_allclose(explorer.picture.constant.get_ydata(), 1 / (4 * length))
    assert explorer.handles[1]["sign"] == -1  # a longer one weighs less
