"""The picture of a hacked reward: lines where the numbers are, bands over seeds, and words that can be read in grey too."""

import numpy as np
import pandas as pd
import pytest

from rlviz.runs.learning import OF_HACKING, plot_hacking

STEPS = 40


def history(shift=0.0, *, learned=True, accuracies=(0.5, 0.25)):
    """Forty steps in which every number rises by the step, from a place of its own."""
    steps = np.arange(1, STEPS + 1)
    held_out = [None] * STEPS
    held_out[19], held_out[39] = accuracies
    return pd.DataFrame(
        {
            "step": steps,
            "reward": steps / 10 - 1 + shift,
            "held_out_accuracy": held_out,
            "reward_agreement": 0.9 - steps / 100 + shift if learned else [None] * STEPS,
            "kl": steps / 10 + shift,
            "response_length": 5 + steps / 10 + shift,
            "repetition": steps / 100 + shift,
        }
    )


def axes_of(figure):
    return dict(zip(OF_HACKING, figure.axes, strict=True))


def bands(ax):
    """Return lowest and highest of each band at the last step."""
    return [tuple(np.quantile(band.get_paths()[0].vertices[:, 1], [0, 1])) for band in ax.collections]


def curves(ax):
    """Return the lines of settings: levels have no marker."""
    return [line for line in ax.get_lines() if line.get_marker() != "None"]


def level(ax):
    (line,) = (line for line in ax.get_lines() if line.get_marker() == "None")
    return line.get_ydata()[0]


def test_each_line_is_the_median_over_seeds_and_each_band_their_span():
    axes = axes_of(plot_hacking({"hacked": [history(), history(0.02), history(0.07)]}))
    # a running median of a straight line is the line; the median of the shifts is .02 (their mean .03), the highest .07
    for column, at_20 in {
        "reward": 1.0,
        "reward_agreement": 0.7,
        "kl": 2,
        "response_length": 7,
        "repetition": 0.2,
    }.items():
        (line,) = curves(axes[column])
        assert dict(zip(*line.get_data(), strict=True))[20] == pytest.approx(at_20 + 0.02), column
        (band,) = axes[column].collections
        at = band.get_paths()[0].vertices
        assert sorted(set(np.round(at[at[:, 0] == 20][:, 1], 9))) == pytest.approx([at_20, at_20 + 0.07]), column


def test_accuracy_stands_as_measured_where_it_was_measured():
    runs = {"hacked": [history(accuracies=(0.5, 0.1)), history(accuracies=(0.3, 0.2))]}
    (line,) = curves(axes_of(plot_hacking(runs))["held_out_accuracy"])
    assert [list(values) for values in line.get_data()] == [[20, 40], pytest.approx([0.4, 0.15])]
    ax = axes_of(plot_hacking(runs, start_accuracy=0.35))["held_out_accuracy"]
    (line,) = curves(ax)
    assert [list(values) for values in line.get_data()] == [[0, 20, 40], pytest.approx([0.35, 0.4, 0.15])]
    assert level(ax) == 0.35


def test_a_single_spike_is_no_signal():
    spiky = history()
    spiky.loc[spiky["step"] == 20, "kl"] = 500.0
    (line,) = curves(axes_of(plot_hacking({"hacked": [spiky]}))["kl"])
    # the five values round step 20 are 1.8, 1.9, 500, 2.1, 2.2
    assert dict(zip(*line.get_data(), strict=True))[20] == pytest.approx(2.1)


def test_a_run_on_a_rule_has_no_learned_reward_to_show():
    axes = axes_of(plot_hacking({"rule": [history(learned=False)], "hacked": [history()]}))
    assert {column: len(curves(ax)) for column, ax in axes.items()} == {
        column: 1 if column in ("reward", "reward_agreement") else 2 for column in OF_HACKING
    }
    # the one that is there keeps its colour and marker
    shown, reference = curves(axes["reward"])[0], curves(axes["kl"])[1]
    assert (shown.get_color(), shown.get_marker()) == (reference.get_color(), reference.get_marker())


def test_seeds_of_unequal_length_and_steps_without_a_measurement_are_drawn():
    short = history(0.02).head(30)
    gaps = history()
    gaps.loc[gaps["step"] > 10, "reward_agreement"] = np.nan
    axes = axes_of(plot_hacking({"hacked": [gaps, short]}))
    (line,) = curves(axes["kl"])
    assert line.get_ydata()[-1] == pytest.approx(3.9)  # the last three values of the one that is left: 3.8, 3.9, 4.0
    (line,) = curves(axes["reward_agreement"])
    assert max(line.get_xdata()) == 30 and np.isfinite(line.get_ydata()).all()


def test_settings_differ_in_grey_and_words_are_large_and_inside():
    runs = {
        name: [history(), history(0.05)] for name in ("no remedy", "a leash, β = 0.5", "fresh labels", "a length cost")
    }
    figure = plot_hacking(runs, start_accuracy=0.4, title="Four settings")
    figure.draw_without_rendering()
    for ax in figure.axes:
        looks = [(line.get_linestyle(), line.get_marker()) for line in curves(ax)]
        assert len(looks) == 4
        assert all(len(set(kind)) == 4 for kind in zip(*looks, strict=True))
        # markers of two lines do not stand on each other where the lines run together
        if ax is not axes_of(figure)["held_out_accuracy"]:
            assert len({line.get_markevery()[0] for line in curves(ax)}) == 4
        assert ax.get_xlabel() == "step" and ax.get_ylabel()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"{name} (2 seeds)" for name in runs]
    words = [text for ax in figure.axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts)]
    for ax in figure.axes:
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            words += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    words += legend.get_texts()
    assert all(text.get_fontsize() >= 11 for text in words)
    inside = figure.bbox
    for text in words:
        box = text.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1, text


def test_limits_hold_what_is_drawn():
    axes = axes_of(plot_hacking({"hacked": [history()]}))
    assert axes["held_out_accuracy"].get_ylim() == axes["reward_agreement"].get_ylim() == (0, 1.02)
    assert axes["kl"].get_yscale() == "log" and axes["kl"].get_ylim() == (0.005, 10)
    for column in ("response_length", "repetition"):
        low, high = axes[column].get_ylim()
        assert low == 0 and high >= max(curves(axes[column])[0].get_ydata())
    far = history()
    far["kl"] *= 100
    assert axes_of(plot_hacking({"far": [far]}))["kl"].get_ylim()[1] > 390
