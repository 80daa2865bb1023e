"""Pictures of runs on paper: lines, bars and bands are the numbers, and nothing looks alike in grey."""

import numpy as np
import pandas as pd
import pytest

from rlviz.runs.comparison import plot_comparison
from rlviz.runs.critic import plot_values
from rlviz.runs.learning import HACKING_GRAPHS, plot_hacking
from rlviz.study import Comparison


def by_label(artists):
    return {artist.get_label(): artist for artist in artists}


def words_of(texts):
    return [text.get_text() for text in texts]


def ends_of(band):
    """Return the lowest and the highest value of a band."""
    heights = band.get_paths()[0].vertices[:, 1]
    return heights.min(), heights.max()


# --- contenders at the same budget ---


def compared(count):
    """Return a comparison of five seeds each, from a start at .3 to ends of their own."""
    rows = [
        {"contender": f"contender {index}", "seed": seed, "step": step, "responses": 20.0 * step, "updates": 2.0 * step,
         "seconds": 1.0 * step, "held_out_accuracy": (0.3, 0.5 + 0.025 * seed + 0.03 * index)[step]}
        for index in range(count) for seed in range(5) for step in (0, 1)
    ]  # fmt: skip
    return Comparison(pd.DataFrame(rows), "chain", "responses", 20.0)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_comparison_has_a_graph_for_each_contender_beside_the_first_and_where_all_end(count):
    comparison = compared(count)
    *graphs, ends = plot_comparison(comparison).axes
    names = comparison.contenders
    assert [list(by_label(ax.lines)) for ax in graphs] == [[names[0], name] for name in names[1:]] or [[names[0]]]
    for ax in graphs:
        for line, band, name in zip(ax.lines, ax.collections, by_label(ax.lines), strict=True):
            end = 0.55 + 0.03 * names.index(name)  # of seeds from .05 below to .05 above, the middle three too
            assert (line.get_xdata()[[0, -1]].tolist(), line.get_ydata()[[0, -1]]) == (
                [0, 20],
                pytest.approx([0.3, end]),
            )
            assert ends_of(band) == pytest.approx((0.3, end + 0.05))
    table = comparison.table()
    spans = [line.get_xdata() for line in ends.lines if line.get_linewidth() > 3]
    np.testing.assert_allclose(spans, table[["low", "high"]])
    assert words_of(ends.texts) == [f"{0.55 + 0.03 * index:.3f}" for index in range(count)]
    assert words_of(ends.get_yticklabels()) == names


# --- what a critic says ---

RIGHT = (["4", "#", "end"], [0.3, 0.7, 0.6], 1.0)
WRONG = (["#", "end"], [0.3, -0.2], 0.0)


def drawn(ax):
    """Return the points of the critic's line, of the way from its last value to the score, and of the score."""
    lines = by_label(ax.get_lines())
    (way,) = (line for line in ax.get_lines() if line.get_linestyle() == ":")
    return [[list(x) for x in line.get_data()] for line in (lines["critic's V"], way, lines["score"])]


def test_each_answer_has_its_values_before_its_tokens_and_its_score_after_the_last():
    figure = plot_values({"right": RIGHT, "wrong": WRONG})
    right, wrong = figure.axes
    assert drawn(right) == [[[0, 1, 2], [0.3, 0.7, 0.6]], [[2, 3], [0.6, 1.0]], [[3], [1.0]]]
    assert drawn(wrong) == [[[0, 1], [0.3, -0.2]], [[1, 2], [-0.2, 0.0]], [[2], [0.0]]]
    assert [ax.get_title() for ax in (right, wrong)] == ["right", "wrong"]
    # a token stands between the values before and after it
    assert words_of(right.get_xticklabels()) == ["4", "#", "end"] and list(right.get_xticks()) == [0.5, 1.5, 2.5]
    assert words_of(figure.legends[0].get_texts()) == ["critic's V", "score"]  # once for all, and told apart in grey
    assert len({by_label(right.get_lines())[name].get_marker() for name in ("critic's V", "score")}) == 2


# --- is a learned reward hacked? ---

STEPS = 40


def history(shift=0.0, accuracies=(0.5, 0.25)):
    """Forty steps in which every number rises by the step, from a place of its own."""
    steps = np.arange(1, STEPS + 1)
    held_out = [None] * STEPS
    held_out[19], held_out[39] = accuracies
    numbers = {"reward": steps / 10 - 1, "reward_agreement": 0.9 - steps / 100, "kl": steps / 10}
    numbers |= {"response_length": 5 + steps / 10, "repetition": steps / 100}
    shifted = {name: values + shift for name, values in numbers.items()}
    return pd.DataFrame({"step": steps, "held_out_accuracy": held_out, **shifted})


def hacking(runs, **options):
    """Draw, and return column → axes."""
    return dict(zip(HACKING_GRAPHS, plot_hacking(runs, **options).axes, strict=True))


def lines_of(ax):
    """Return the lines of settings: a level has no label."""
    return [line for line in ax.get_lines() if not line.get_label().startswith("_")]


def points(line):
    return dict(zip(*line.get_data(), strict=True))


def test_each_line_is_the_median_over_seeds_and_each_band_their_span():
    axes = hacking({"hacked": [history(), history(0.02), history(0.07)]})
    # a running median of a straight line is the line; the median of the shifts is .02 (their mean .03), the highest .07
    expected = {"reward": 1.0, "reward_agreement": 0.7, "kl": 2, "response_length": 7, "repetition": 0.2}
    for column, at_20 in expected.items():
        (line,), (band,) = lines_of(axes[column]), axes[column].collections
        assert points(line)[20] == pytest.approx(at_20 + 0.02), column
        at = band.get_paths()[0].vertices
        assert sorted(set(np.round(at[at[:, 0] == 20][:, 1], 9))) == pytest.approx([at_20, at_20 + 0.07]), column


def test_accuracy_stands_as_measured_where_it_was_measured():
    runs = {"hacked": [history(accuracies=(0.5, 0.1)), history(accuracies=(0.3, 0.2))]}
    assert points(*lines_of(hacking(runs)["held_out_accuracy"])) == pytest.approx({20: 0.4, 40: 0.15})
    ax = hacking(runs, start_accuracy=0.35)["held_out_accuracy"]
    assert points(*lines_of(ax)) == pytest.approx({0: 0.35, 20: 0.4, 40: 0.15})


def test_a_single_spike_is_no_signal():
    spiky = history()
    spiky.loc[spiky["step"] == 20, "kl"] = 500.0
    (line,) = lines_of(hacking({"hacked": [spiky]})["kl"])
    assert points(line)[20] == pytest.approx(2.1)  # the five values round step 20 are 1.8, 1.9, 500, 2.1, 2.2
