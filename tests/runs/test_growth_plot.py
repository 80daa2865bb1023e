"""The picture of growth: lines through the measured numbers, in one unit, and words that can be read."""

import pandas as pd
import pytest

from rlviz.pictures.base import COLOURS
from rlviz.runs.growth import plot_growth

TABLE = pd.DataFrame(
    {
        "varied": ["group_size", "group_size", "length", "length"],
        "group_size": [2, 16, 8, 8],
        "length": [9, 9, 4, 32],
        "micro_batch_tokens": [1024] * 4,
        "rollout": [1e6, 4e6, 2e6, 6e6],
        "update": [2e6, 8e6, 3e6, 20e6],
        "in_micro_batches": [2e6, 2e6, 2e6, 3e6],
        "unshared": [3e6, 9e6, 5e6, 30e6],
    }
)


def test_lines_go_through_the_numbers_and_are_all_within():
    left, right = plot_growth(TABLE).axes
    drawn = [[[*map(tuple, line.get_xydata())] for line in ax.lines] for ax in (left, right)]
    assert drawn[0] == [[(2, 1), (16, 4)], [(2, 3), (16, 9)], [(2, 2), (16, 8)], [(2, 2), (16, 2)]]
    assert drawn[1] == [[(4, 2), (32, 6)], [(4, 5), (32, 30)], [(4, 3), (32, 20)], [(4, 2), (32, 3)]]
    for ax in (left, right):
        assert ax.get_ylim()[0] == 0 and ax.get_ylim()[1] > 30
    assert left.get_ylabel() == "MB at the peak"
    assert left.get_title() == "Memory of a step as G grows (T = 9)"
    assert right.get_title() == "Memory of a step as T grows (G = 8)"


def test_lines_differ_without_colour_and_are_named():
    figure = plot_growth(TABLE)
    looks = [(line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines]
    assert len(set(looks)) == 4 and all(line.get_color() in COLOURS for line in figure.axes[0].lines)
    (legend,) = figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words == [
        "rollout",
        "update, the prompt for each response",
        "update, the prompt once a group",
        "so, 1,024 tokens at once",
    ]


def test_one_of_the_two_alone_is_refused():
    with pytest.raises(ValueError, match="table must have rows in which length grows; got none"):
        plot_growth(TABLE[TABLE["varied"] == "group_size"])
