"""Curves of runs hold the history, bands the spread; figures keep their words in a notebook."""

import base64

import numpy as np
import pandas as pd
import pytest

from rlviz.pictures.base import dress, new_figure
from rlviz.runs.learning import plot_bands, plot_learning_curves, plot_metrics, plot_seeds, select_graphs


def frame(steps=30, seed=0, flips=None):
    rng = np.random.default_rng(seed)
    columns = ["reward", "entropy", "clip_fraction_low", "clip_fraction_high", "response_length"]
    table = pd.DataFrame({"step": range(1, steps + 1), **{name: rng.random(steps) for name in columns}})
    table["held_out_accuracy"] = [0.5 if step % 10 == 0 else None for step in table["step"]]
    return table.assign(routing_flips=table["step"].map(flips or {}))


def test_bands_hold_the_mean_and_four_fifths_of_the_curves():
    ax = plot_bands({"a": np.arange(33.0).reshape(11, 3)}, steps=[0, 5, 10], y="nats")
    (line,) = ax.get_lines()
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([0, 5, 10], [15.0, 16.0, 17.0])
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == (3.0, 29.0)  # 10th percentile of the first column, 90th of the last


@pytest.mark.parametrize(("flips", "count"), [(None, 4), ({1: 0.25, 2: 0.5}, 5)])
def test_learning_curves_hold_the_history_and_routing_where_there_are_experts(flips, count):
    table = frame(flips=flips)
    drawn = [ax for ax in plot_learning_curves(table).axes if ax.axison]
    assert len(drawn) == count and all(ax.get_xlabel() and ax.get_ylabel() for ax in drawn)
    measured, mean = drawn[1].get_lines()
    np.testing.assert_array_equal(measured.get_ydata()[1:], table["entropy"])
    assert mean.get_ydata()[10] == pytest.approx(table["entropy"][9:11].mean())  # over two of thirty steps
    points = next(line for line in drawn[0].get_lines() if line.get_marker() == "o")
    assert points.get_xdata()[np.isfinite(points.get_xdata())].tolist() == [10, 20, 30]
    with pytest.raises(KeyError):
        plot_metrics(table, {"no_such_column": "x"})


@pytest.mark.parametrize(
    ("measured", "first"),
    [
        ({}, "Reward and accuracy"),
        ({"reward_std": 0.5}, "Reward"),
        ({"reward_std": 0.5, "reward_agreement": 0.9}, "Learned reward"),
        ({"margin": 0.1, "pair_accuracy": 1.0}, "Accuracy"),
    ],
)
def test_the_first_graph_is_of_what_the_run_measured(measured, first):
    assert select_graphs(frame().assign(**measured))[0].title == first


@pytest.mark.parametrize(("spreads", "count"), [([0.0, 1e-7], 0), ([None, None], 1), ([0.0, 0.01], 1)])
def test_clipped_tokens_are_no_graph_where_every_ratio_was_1(spreads, count):
    """One update a rollout; where the spread was not measured, as in an imported log, they are."""
    titles = [graph.title for graph in select_graphs(frame(2).assign(ratio_std=spreads))]
    assert titles.count("Clipped tokens") == count


@pytest.mark.parametrize("rows", [{}, {"step": []}, {"step": [1], "reward": [np.nan]}], ids=["empty", "no step", "NaN"])
def test_a_history_of_nothing_is_refused_in_a_sentence(rows):
    with pytest.raises(ValueError, match="history must hold a step and a column that was measured"):
        plot_learning_curves(pd.DataFrame(rows))


def test_seeds_are_a_mean_and_a_band_that_go_straight_over_steps_in_which_nothing_was_measured():
    """Measured in steps 3, 8 and 13 of 15; the second seed not in step 8."""
    tables = [frame(15, 0, {3: 0.1, 8: 0.3, 13: 0.2}), frame(15, 1, {3: 0.3, 13: 0.4})]
    seeds = plot_seeds({"experts": tables}, "routing_flips")
    line, band = seeds.get_lines()[0], seeds.collections[0].get_paths()[0].vertices[:, 1]
    assert line.get_xdata().tolist() == [3, 8, 13]
    np.testing.assert_allclose(line.get_ydata(), [0.2, 0.3, 0.3])
    assert np.isfinite(band).all() and (band.min(), band.max()) == pytest.approx((0.1, 0.4))
    assert "2 seeds" in seeds.get_legend().get_texts()[0].get_text()


def test_a_notebook_keeps_a_figure_with_its_words():
    figure = new_figure(4, 3)
    left, right, hidden = figure.subplots(1, 3)
    dress(left, title="Which one\nlearns?", x="step", y="accuracy")
    for label in ("GRPO", "GRPO", "_unnamed"):  # two seeds of one name
        left.plot([0, 1], [0, 1], label=label)
    right.set_xlabel(r"cost in \$")
    hidden.set_visible(False)
    data, metadata = figure._repr_mimebundle_()
    assert data["text/plain"] == "2 graphs. Which one learns?: accuracy against step: GRPO. cost in $."
    assert metadata["image/png"]["alt"] == data["text/plain"]
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
