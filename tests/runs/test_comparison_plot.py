"""Comparisons drawn: lines and intervals are the numbers, no two contenders look alike, many are drawn apart."""

import numpy as np
import pandas as pd
import pytest

from rlviz.runs.comparison import alt, plot_comparison
from rlviz.runs.learning import looks
from rlviz.study import Comparison


def drawn(count=4):
    """Draw contenders of five seeds, a start at .3 and an end each."""
    rows = [
        {"contender": f"contender {index}", "seed": seed, "step": step, "responses": 20.0 * step, "updates": 2.0 * step,
         "seconds": 1.0 * step, "held_out_accuracy": (0.3, 0.5 + 0.025 * seed + 0.03 * index)[step]}
        for index in range(count) for seed in range(5) for step in (0, 1)
    ]  # fmt: skip
    made = Comparison(pd.DataFrame(rows), "chain", "responses", 20.0)
    return made, plot_comparison(made.curves(), made.table(), made.at_budget(), title="chain")


def test_lines_and_intervals_are_the_numbers():
    made, figure = drawn(2)
    left, right = figure.axes
    curves, table = made.curves(), made.table()
    assert [line.get_label() for line in left.lines] == ["contender 0", "contender 1"]
    for line, name in zip(left.lines, made.contenders, strict=True):
        of_it = curves[curves["contender"] == name]
        np.testing.assert_array_equal(line.get_xdata(), of_it["responses"])
        np.testing.assert_array_equal(line.get_ydata(), of_it["iqm"])
    band = left.collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(0.3), pytest.approx(0.63))
    assert left.get_xlabel() == "responses sampled"
    spans = [line.get_xdata() for line in right.lines if line.get_linewidth() > 3]
    np.testing.assert_allclose(spans, table[["low", "high"]])
    points = [line.get_xdata()[0] for line in right.lines if line.get_marker() in "os"]
    assert points == table["iqm"].tolist()
    assert [text.get_text() for text in right.texts] == ["0.550", "0.580"]
    assert [label.get_text() for label in right.get_yticklabels()] == made.contenders


def test_contenders_differ_in_grey_and_words_are_large_and_inside():
    assert len({(looks(index)["linestyle"], looks(index)["marker"]) for index in range(11)}) == 11
    assert len({(looks(index)["linestyle"], looks(index)["color"]) for index in range(11)}) == 11
    for count in (4, 6):
        _, figure = drawn(count)
        figure.draw_without_rendering()
        words_are_large_and_inside(figure)


def words_are_large_and_inside(figure):
    right, legend = figure.axes[-1], figure.axes[0].get_legend()
    words = [*right.texts, *(legend.get_texts() if legend else [])]
    for ax in figure.axes:
        low, high = ax.get_xlim()
        words += [text for text in ax.get_xticklabels() if low <= text.get_position()[0] <= high]
        words += [*ax.get_yticklabels(), ax.title, ax.xaxis.label, ax.yaxis.label]
    assert all(text.get_fontsize() >= 11 for text in words)
    for text in words:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and figure.bbox.y0 <= box.y0, text


def test_many_contenders_are_drawn_apart_as_differences_from_the_first():
    made, figure = drawn(6)
    *graphs, ends = figure.axes
    assert [ax.get_title() for ax in graphs] == made.contenders[1:]
    curves = {name: of_it.reset_index() for name, of_it in made.curves().groupby("contender")}
    for ax in graphs:
        mine, first = curves[ax.get_title()], curves["contender 0"]
        np.testing.assert_allclose(ax.lines[1].get_ydata(), mine["iqm"] - first["iqm"], atol=1e-12)
        band = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert band.max() == pytest.approx((mine["highest"] - first["iqm"]).max())
        assert band.min() == pytest.approx((mine["lowest"] - first["iqm"]).min())
    assert [label.get_text() for label in ends.get_yticklabels()] == made.contenders
    assert "minus the first's" in alt(5) and "minus" not in alt(4)
