"""Curves of runs: lines hold the history, bands the spread, and figures keep their words."""

import base64

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rlviz.pictures.base import dress, new_figure
from rlviz.runs.arms import panels, plot_course
from rlviz.runs.learning import plot_bands, plot_learning_curves, plot_metrics, plot_seeds


def test_bands_hold_the_mean_and_four_fifths_of_the_curves():
    values = np.arange(33.0).reshape(11, 3)
    ax = plot_bands({"a": values}, steps=[0, 5, 10], y="nats")
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), values.mean(0))
    assert line.get_xdata().tolist() == [0, 5, 10]
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == (3.0, 29.0)  # 10th percentile of the first column, 90th of the last
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "nats")


def frame(steps=30, seed=0):
    rng = np.random.default_rng(seed)
    columns = ["reward", "entropy", "clip_fraction_low", "clip_fraction_high", "response_length"]
    table = pd.DataFrame({"step": range(1, steps + 1), **{name: rng.random(steps) for name in columns}})
    table["held_out_accuracy"] = [0.5 if step % 10 == 0 else None for step in table["step"]]
    return table


def labels_of(figure):
    return [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes]


def test_learning_curves_hold_the_history_and_name_their_axes():
    table = frame()
    figure = plot_learning_curves(table, title="GRPO on chain")
    assert all(x and y for x, y in labels_of(figure))
    raw = [line for line in figure.axes[1].get_lines() if line.get_alpha() == 0.3]
    np.testing.assert_array_equal(raw[0].get_ydata(), table["entropy"])
    points = next(line for line in figure.axes[0].get_lines() if line.get_label() == "accuracy, held out")
    assert list(points.get_xdata()) == [10, 20, 30]
    with pytest.raises(KeyError):
        plot_metrics(table, {"no_such_column": "x"})


def test_seeds_are_a_mean_and_a_band_from_lowest_to_highest():
    tables = [frame(steps=5, seed=seed) for seed in range(3)]  # too short to be smoothed
    ax = plot_seeds({"a": tables}, "reward", label="reward")
    values = np.stack([table["reward"] for table in tables])
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), values.mean(0))
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(values.min())
    assert band[:, 1].max() == pytest.approx(values.max())
    assert ax.get_ylabel() == "reward"
    assert "3 seeds" in ax.get_legend().get_texts()[0].get_text()


def test_text_stays_inside_and_is_large_enough():
    figure = plot_learning_curves(frame())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    for ax in figure.axes:
        for text in [*ax.texts, ax.title, ax.xaxis.label, ax.yaxis.label]:
            if text.get_text():
                box = text.get_window_extent()
                assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text
                assert text.get_fontsize() >= 11


@pytest.mark.parametrize(("flips", "panels"), [([None, None], 4), ([0.25, 0.5], 5)])
def test_routing_has_a_panel_where_there_are_experts(flips, panels):
    columns = dict.fromkeys(("reward", "held_out_accuracy", "entropy", "clip_fraction_high", "clip_fraction_low"), 0.1)
    frame = pd.DataFrame({"step": [1, 2], **columns, "response_length": 5.0, "routing_flips": flips})
    drawn = [ax for ax in plot_learning_curves(frame).axes if ax.axison]
    assert len(drawn) == panels
    if panels == 5:
        assert drawn[-1].lines[0].get_ydata().tolist() == [0.25, 0.5]


def test_a_line_goes_straight_over_steps_in_which_nothing_was_measured():
    """Measured in steps 3, 8 and 13 of 15; the second seed not in step 8."""
    tables = [frame(steps=15, seed=seed) for seed in range(2)]
    for table, values in zip(tables, [(0.1, 0.3, 0.2), (0.3, None, 0.4)], strict=True):
        table["routing_flips"] = [dict(zip((3, 8, 13), values, strict=True)).get(step) for step in table["step"]]
    seeds = plot_seeds({"experts": tables}, "routing_flips")
    line, band = seeds.get_lines()[0], seeds.collections[0].get_paths()[0].vertices
    assert line.get_xdata().tolist() == [3, 8, 13]
    np.testing.assert_allclose(line.get_ydata(), [0.2, 0.3, 0.3])
    assert np.isfinite(band).all() and band[:, 1].max() == pytest.approx(0.4)
    for drawn in plot_metrics(tables[0], {"routing_flips": "flips"}).get_lines():
        assert drawn.get_xdata().tolist() == [3, 8, 13]
        np.testing.assert_allclose(drawn.get_ydata(), [0.1, 0.3, 0.2])
    both = pd.concat([table.assign(seed=seed, arm="experts") for seed, table in enumerate(tables)])
    course = plot_course(panels(("course",))[1][0], both, "routing_flips").get_lines()[0]
    assert course.get_xdata().tolist() == [3, 8, 13]
    np.testing.assert_allclose(course.get_ydata(), [0.2, 0.3, 0.3])


def test_a_notebook_keeps_a_figure_with_its_words():
    figure = new_figure(4, 3)
    left, right, hidden = figure.subplots(1, 3)
    dress(left, title="Which one\nlearns?", x="step", y="accuracy")
    left.plot([0, 1], [0, 1], label="GRPO")
    left.plot([0, 1], [0, 1], label="GRPO")  # a second seed of the same name
    left.plot([0, 1], [0, 1], label="_unnamed")
    right.set_xlabel(r"cost in \$")
    hidden.set_visible(False)
    data, metadata = figure._repr_mimebundle_()
    assert data["text/plain"] == "2 graphs. Which one learns?: accuracy against step: GRPO. cost in $."
    assert metadata["image/png"]["alt"] == data["text/plain"]
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")


def test_a_drawing_without_axes_is_told_by_its_words():
    figure = new_figure(2, 2)
    ax = figure.add_subplot()
    ax.axis("off")
    ax.text(0, 0, "sample\na group")
    ax.text(0, 1, "reward each")
    assert figure.alt() == "A drawing: sample a group; reward each."
