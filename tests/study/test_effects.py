"""The rule of claims by hand-computed numbers, its words and forest plot, and the helpers on tidy frames."""

import math

import numpy as np
import pandas as pd
import pytest

from rlviz.study.effects import NEGLIGIBLE, NOT_SEEN, REVERSED, SEEN, Claim, Effect, arithmetic, counts, forest
from rlviz.study.frames import by_seed, first_reached, gap, in_words, late, log2_ratio, means, ratio, scaled, select

NAN = math.nan


@pytest.mark.parametrize(
    ("values", "smallest", "claimed", "outcome"),
    [
        ((1.0, 2.0, 3.0), 0.5, 0.0, SEEN),  # mean 2, std 1, interval 2 ± 2/√3 = .845 to 3.155
        ((1.0, 2.0, 3.0), 2.0, 0.0, SEEN),  # as large as the smallest effect of interest
        ((1.0, 2.0, 3.0), 2.1, 0.0, NOT_SEEN),  # smaller, though it may be as large as 3.155
        ((1.0, 2.0, 3.0), 3.15, 0.0, NOT_SEEN),  # the interval ends outside
        ((1.0, 2.0, 3.0), 3.16, 0.0, NEGLIGIBLE),  # the interval ends within
        ((1.0, 2.0, 3.0), 0.5, 2.0, SEEN),
        ((1.0, 2.0, 3.0), 0.5, 2.1, NOT_SEEN),  # smaller than the source says
        ((-1.0, -2.0, -3.0), 0.5, 2.1, REVERSED),  # for which the source's size does not count
        ((-1.0, -2.0, -3.0), 2.0, 0.0, REVERSED),
        ((-1.0, -2.0, -3.0), 2.1, 0.0, NOT_SEEN),
        ((-1.0, -2.0, -3.0), 3.16, 0.0, NEGLIGIBLE),
        ((1.0,) * 9 + (-0.1,), 0.1, 0.0, NOT_SEEN),  # one seed has the other sign; mean .89, interval .67 to 1.11
        ((-1.0,) * 9 + (0.1,), 0.1, 0.0, NOT_SEEN),
        ((0.1, 0.1, 4.0), 0.01, 0.0, NOT_SEEN),  # each seed above 0; mean 1.4, std 2.25, interval −1.2 to 4.0
        ((-0.1, -0.1, -4.0), 0.01, 0.0, NOT_SEEN),
        ((0.1, -0.1, 0.0), 0.12, 0.0, NEGLIGIBLE),  # mean 0, std .1, interval ± .1155
        ((0.1, -0.1, 0.0), 0.11, 0.0, NOT_SEEN),
        ((0.5, 0.5), 0.1, 0.0, SEEN),  # no spread at all
        ((0.0, 0.0), 0.1, 0.0, NEGLIGIBLE),
        ((1.0, 2.0, NAN), 0.5, 0.0, NOT_SEEN),  # a seed with nothing to measure
        ((-1.0, NAN, -2.0), 0.5, 0.0, NOT_SEEN),
        ((NAN, 0.0, 0.0), 5.0, 0.0, NOT_SEEN),
        ((NAN, NAN), 0.5, 0.0, NOT_SEEN),
    ],
)
def test_the_rule(values, smallest, claimed, outcome):
    assert Effect("words", values, smallest, claimed).outcome == outcome


UP, DOWN, FLAT = Effect("up", (2.0, 3.0), 0.5), Effect("down", (-2.0, -3.0), 0.5), Effect("flat", (1.0, -1.0), 0.5)
SMALL, GONE, SUMS = Effect("small", (0.1, 0.2), 0.5), Effect("gone", (NAN, NAN), 0.5), arithmetic("sums", (2.0, 4.0))


def test_words_and_counts():
    assert str(FLAT) == "measured: flat: +0 (by seed -1 to +1, smallest effect of interest 0.5), not seen at this scale"
    half = Effect("half", (1.0, NAN), 0.5)
    assert str(half).startswith(
        "measured: half: +1 (by seed +1 to +1, not measurable in 1, smallest effect of interest"
    )
    assert str(GONE) == "measured: gone: nothing to measure, not seen at this scale"
    assert str(SUMS) == "arithmetic: sums: +3" and SUMS.outcome == "arithmetic"
    assert counts([UP]) == "1 of 1 measured part seen"
    assert counts([SUMS], ["of a large model"]) == "nothing measured; 1 arithmetic; 1 not testable here"
    assert counts([FLAT, DOWN, UP, SUMS, SMALL, DOWN]) == (
        "1 of 5 measured parts seen, 1 negligible, 1 not seen at this scale, 2 reversed; 1 arithmetic"
    )


@pytest.mark.parametrize(("values", "smallest"), [((1.0,), 0.5), ((1.0, 2.0), 0.0), ((1.0, 2.0), NAN)])
def test_an_effect_without_a_spread_or_a_smallest_size_is_refused(values, smallest):
    with pytest.raises(ValueError, match=r"values must be of two|smallest must be"):
        Effect("words", values, smallest)


def test_the_forest_plot_has_a_dot_per_seed_and_the_interval_in_units_of_the_smallest_effect():
    claim = Claim("name", "It says so.", "source", 1.0, None, None)
    (ax,) = forest(claim, [SUMS, DOWN, GONE, SMALL]).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["sums", "down", "gone", "small"]
    dots, bars = {}, {}
    for line in ax.lines[1:]:  # the first is the line at 0
        row, kind = line.get_ydata(), bars if line.get_linestyle() == "-" else dots
        if len(row) == 2:
            kind[row[0]] = sorted(line.get_xdata())
    assert dots == {1: [-6, -4], 3: [0.2, 0.4]}
    assert bars[1] == pytest.approx([-7, -3]) and bars[3] == pytest.approx([0.1, 0.5])  # mean ± 2 · std/√2, ÷ .5
    outcomes = ["arithmetic", "reversed", "not seen at this scale", "negligible"]
    assert [text.get_text().split("  ")[1] for text in ax.texts] == outcomes
    assert ax.get_xlim()[0] < -7 and ax.get_xlim()[1] >= 2


def test_arms_are_compared_seed_by_seed():
    frame = pd.DataFrame({"seed": [0, 1, 0, 1], "arm": ["b", "b", "a", "a"], "x": [3.0, 5.0, 1.0, 4.0]})
    for rows in (frame, frame.iloc[[1, 3, 0, 2]], frame.assign(kind=frame["arm"], arm="a")):
        by = "kind" if "kind" in rows else "arm"
        assert tuple(gap(rows, "x", "b", "a", by=by)) == (2.0, 1.0)
        assert tuple(ratio(rows, "x", "b", "a", by=by)) == (3.0, 1.25)
        assert tuple(log2_ratio(rows, "x", "b", "a", by=by)) == pytest.approx((math.log2(3), math.log2(1.25)))
    lacking = gap(frame.drop(index=3), "x", "b", "a")
    assert lacking[0] == 2.0 and math.isnan(lacking[1])
    assert by_seed(frame.drop(index=0), "x", arm="b").isna().tolist() == [True, False]
    more = pd.concat([frame, frame.assign(x=[12.0, 5.0, 1.0, 4.0])])  # b of seed 0: mean 7.5, geometric mean 6
    assert ratio(more, "x", "b", "a")[0] == 7.5 and log2_ratio(more, "x", "b", "a")[0] == pytest.approx(math.log2(6))
    assert means(frame, "x") == "b 4.00, a 2.50" and in_words({"dense": 1.25}, "×{:.1f}") == "dense ×1.2"
    assert (scaled(100, 0.001), scaled(100, 0.1), scaled(100, 0.001, 4)) == (1, 10, 4)


def test_rows_are_chosen_by_value_by_step_and_by_where_a_goal_is_first_reached():
    frame = pd.DataFrame({"step": [1, 2, 3, 4], "arm": ["a", "b", "c", "a"]})
    assert list(select(frame, arm="a")["step"]) == [1, 4]
    assert list(select(frame, arm=("a", "b"), step=(2, 3, 4))["step"]) == [2, 4]
    assert list(late(frame, 0.5)["step"]) == [3, 4] and list(late(frame, 0.25)["step"]) == [2, 3, 4]
    runs = pd.DataFrame({"arm": [*"bbbaaa"], "seed": [0, 0, 1, 0, 0, 0], "step": [3, 2, 1, 1, 2, 3]})
    runs["right"] = [0.9, 0.8, 0.1, 0.1, 0.2, 0.7]
    reached = first_reached(runs, runs["right"] >= 0.7)
    assert list(zip(reached["arm"], reached["seed"], strict=True)) == [("b", 0), ("b", 1), ("a", 0)]
    np.testing.assert_equal(reached["step"].to_numpy(), [2, NAN, 3])
