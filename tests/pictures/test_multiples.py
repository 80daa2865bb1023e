"""Several settings side by side: each column is its explorer's picture, and equal axes can be compared."""

import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rlviz.algorithms import DCPO, GRPO, GSPO
from rlviz.pictures import explore_clip, explore_walk, small_multiples

FOUR = [explore_clip(GRPO), explore_clip(DCPO, old_prob=0.1, up_to=4.0), explore_clip(GSPO), explore_walk()]


def test_a_column_is_a_setting_and_equal_axes_have_equal_limits():
    figure = small_multiples(FOUR, ["usual", "rare", "whole", "walk"])
    ratios = [[ax.get_xlim()[1] for ax in figure.axes[row : row + 3]] for row in (0, 4)]
    assert ratios == [[4.0, 4.0, 2.0]] * 2  # a token's ratio up to 4 in both; the ratio of a response is another axis
    assert [ax.get_xlim()[1] for ax in small_multiples(FOUR[1::-1]).axes[:2]] == [4.0, 4.0]  # in any order
    labels = [ax.get_ylabel() for ax in figure.axes if ax.yaxis.label.get_visible()]
    assert labels[:2] == ["objective J, push ∂J/∂log π", "ratio"]
    for ax, explorer in zip(figure.axes[:3], FOUR, strict=False):
        line = next(line for line in ax.get_lines() if line.get_label() == "objective J")
        np.testing.assert_array_equal(line.get_ydata(), explorer.names().array("J_good"))


def test_there_is_one_key_and_no_words_lie_on_each_other_or_are_cut():
    for figure in (small_multiples(FOUR), small_multiples(FOUR[:1])):
        FigureCanvasAgg(figure).draw()
        assert len(figure.legends) == 1 and not any(ax.get_legend() for ax in figure.axes)
        names = [text.get_text() for text in figure.legends[0].get_texts()]
        assert len(names) == len(set(names)) and "objective J" in names
        heads = [text for ax in figure.axes for text in (ax.title, *ax.texts) if text.get_text()]
        heads = [text.get_window_extent() for text in heads if text.get_transform() != text.axes.transAxes]
        boxes = [*heads, figure.legends[0].get_window_extent()]
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)
        assert not any(a.padded(-1).overlaps(b.padded(-1)) for a, b in itertools.combinations(boxes, 2))


def test_what_is_no_list_of_explorers_is_refused_and_a_column_without_title_is_called_by_its_setting():
    for wrong in ([], [GRPO], FOUR[0]):  # one alone is no list
        with pytest.raises(ValueError, match="explorers must be a list"):
            small_multiples(wrong)
    with pytest.raises(ValueError, match=r"titles must be 2.*got 1"):
        small_multiples(FOUR[:2], ["one"])
    texts = [text.get_text() for ax in small_multiples(FOUR[:2]).axes[:2] for text in ax.texts]
    assert [" ".join(text.split()) for text in texts if "·" in text] == [
        "GRPO · ε low 0.2 · ε high 0.2",
        "DCPO · ε low 0.16 · ε high 0.2 · largest ratio 10 · old probability 0.1 · ratios up to 4",
    ]
