"""The picture is the loss: lines hold what the pieces return."""

import base64
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rlviz.algorithms import DCPO, GRPO, GSPO
from rlviz.pictures.base import dress, new_figure
from rlviz.pictures.clip import clip_curve, plot_clip_small_multiples
from rlviz.pictures.difficulty import difficulty_curve, plot_difficulty
from rlviz.pictures.importance import importance_curve, plot_importance
from rlviz.pictures.weights import plot_token_weights, token_weights
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import Constant, sequence_mean
from rlviz.runs.learning import plot_bands, plot_learning_curves, plot_metrics, plot_seeds
from rlviz.training.records import pushes
from rlviz.types import Batch


@pytest.mark.parametrize("algorithm", [replace(GRPO, kl=None), DCPO, GSPO], ids=lambda a: a.name)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_push_is_what_the_inspector_shows(algorithm, sign):
    curve = clip_curve(algorithm, advantage=sign, old_prob=0.3, points=40)
    old_logp = torch.full((40, 1, 1), 0.3, dtype=torch.double).log()
    logp = old_logp + torch.from_numpy(curve.ratio).log().view(40, 1, 1)
    batch = Batch(old_logp, torch.full_like(logp, sign), torch.ones_like(logp).bool(), weights=torch.ones_like(logp))
    np.testing.assert_allclose(curve.push, pushes(algorithm, logp, batch).flatten().numpy(), rtol=1e-9, atol=1e-12)


def test_old_samples_tell_the_truth_on_average_and_are_worth_less_and_less():
    curve = importance_curve(old_prob=0.1, samples=16, batches=4000)
    # two actions: E_old[r²] = p²/q + (1 − p)²/(1 − q), so 16 samples are worth 16 / that; estimate p ± its sampling error
    p, q = curve.new_prob, 0.1
    second = p**2 / q + (1 - p) ** 2 / (1 - q)
    np.testing.assert_allclose(curve.effective, 16 / second, rtol=0.08)
    np.testing.assert_allclose(curve.mean, p, atol=4 * (p * np.sqrt((1 / q - 1) / 16 / 4000)).max())
    assert (curve.low <= curve.mean).all() and (curve.mean <= curve.high).all()
    figure = plot_importance(curve)
    line = next(line for line in figure.axes[0].get_lines() if line.get_label() == "mean of ratio · reward")
    np.testing.assert_array_equal(line.get_ydata(), curve.mean)


def test_token_weights_are_drawn_as_they_are():
    weights = {"mean": token_weights(sequence_mean, [2, 0, 4]), "constant": token_weights(Constant(8), [2, 0, 4])}
    assert [list(row) for row in weights["mean"]] == [[0.25] * 2, [], [0.125] * 4]
    assert [list(row) for row in weights["constant"]] == [[1 / 16] * 2, [], [1 / 16] * 4]
    figure = plot_token_weights(weights)
    assert len(figure.axes) == 6
    heights = [bar.get_height() for bar in figure.axes[4].patches]
    assert heights == [0.125] * 4


def test_difficulty_by_hand():
    # 1 of 4 right: mean ¼, unbiased std ½: A = 1.5 and −.5, Σ|A| = 3; undivided ¾ and −¼, Σ|A| = 1.5
    curve = difficulty_curve(GroupAdvantage(eps=0.0), group_size=4)
    assert curve.share_right.tolist() == [0.25, 0.5, 0.75]
    np.testing.assert_allclose([curve.right[0], curve.wrong[0], curve.size[0]], [1.5, -0.5, 3.0])
    np.testing.assert_allclose(difficulty_curve(GroupAdvantage(scale="none"), 4).size, [1.5, 2.0, 1.5])
    line = plot_difficulty({"GRPO": curve}).get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), curve.size / curve.size[1])


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
    pairs = [tuple(clip_curve(GRPO, advantage=sign) for sign in (1.0, -1.0))] * 2
    for figure in (plot_clip_small_multiples(pairs, ["a", "b"]), plot_learning_curves(frame())):
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
