"""The picture is the loss: lines hold what the pieces return."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rlviz.algorithms import GRPO
from rlviz.curves import clip_curve
from rlviz.pieces.surrogate import pessimistic
from rlviz.plots import plot_clip, plot_clip_small_multiples, plot_learning_curves, plot_loop, plot_metrics, plot_seeds


@pytest.mark.parametrize("advantage", [2.0, -0.5])
def test_the_curve_is_the_piece(advantage):
    curve = clip_curve(GRPO.with_parameters(eps_low=0.1, eps_high=0.3), advantage=advantage, old_prob=0.3)
    ratio = torch.tensor(curve.ratio)
    a, lower, upper = (torch.full_like(ratio, value) for value in (advantage, 0.9, 1.3))
    np.testing.assert_allclose(curve.objective, pessimistic(ratio, a, lower, upper).numpy(), rtol=1e-12)
    assert (curve.lower, curve.upper) == (0.9, 1.3)
    dead = curve.ratio > 1.3 if advantage > 0 else curve.ratio < 0.9
    near = np.isclose(curve.ratio, 1.3) | np.isclose(curve.ratio, 0.9)
    assert (curve.clipped == dead)[~near].all()
    np.testing.assert_allclose(curve.slope[~near], np.where(dead, 0.0, advantage)[~near], rtol=1e-9)


def test_the_slope_is_the_derivative_of_any_surrogate():
    mine = replace(GRPO, surrogate=lambda r, a, lower, upper: a * torch.sin(r))
    curve = clip_curve(mine, advantage=3.0)
    np.testing.assert_allclose(curve.slope, 3 * np.cos(curve.ratio), rtol=1e-9)


@pytest.mark.parametrize("wrong", [{"old_prob": 0.0}, {"old_prob": 1.5}, {"max_ratio": 0.0}])
def test_curves_refuse_what_has_no_meaning(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        clip_curve(GRPO, advantage=1.0, **wrong)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_the_picture_is_the_curve(advantage):
    curve = clip_curve(GRPO, advantage=advantage, old_prob=0.8)
    ax = plot_clip(curve)
    lines = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_array_equal(lines["objective"].get_ydata(), curve.objective)
    np.testing.assert_array_equal(lines["slope"].get_ydata(), curve.slope)
    np.testing.assert_array_equal(lines["objective"].get_xdata(), curve.ratio)
    assert lines["limits"].get_xdata()[0] == curve.lower
    assert lines["new probability = 1"].get_xdata()[0] == pytest.approx(1.25)
    (dead,) = (patch for patch in ax.patches if patch.get_label() == "no gradient")
    step = curve.ratio[1] - curve.ratio[0]
    expected = (1.2, 2.0) if advantage > 0 else (0.0, 0.8)
    assert dead.get_x() == pytest.approx(expected[0], abs=1.1 * step)
    assert dead.get_x() + dead.get_width() == pytest.approx(expected[1], abs=1.1 * step)


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
    pairs = [tuple(clip_curve(GRPO, advantage=sign) for sign in (1.0, -1.0))] * 2
    for figure in (plot_loop().figure, plot_clip_small_multiples(pairs, ["a", "b"]), plot_learning_curves(frame())):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        width, height = canvas.get_width_height()
        for ax in figure.axes:
            for text in [*ax.texts, ax.title, ax.xaxis.label, ax.yaxis.label]:
                if text.get_text():
                    box = text.get_window_extent()
                    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text
                    assert text.get_fontsize() >= 11
