"""The picture of costs: bars as long as the numbers, and words that can be read."""

import pandas as pd
import pytest

from rlviz.runs.cost import plot_costs

TABLE = pd.DataFrame(
    {
        "name": ["GRPO", "PPO, separate critic, learned reward"],
        "weights": [1e6, 2e6],
        "gradients": [3e6, 4e6],
        "optimizer_state": [5e6, 6e6],
        "activations": [7e6, 8e6],
        "bytes": [16e6, 20e6],
        "bytes_to_grpo": [1.0, 1.25],
        "rollout_seconds": [0.25, 0.5],
        "update_seconds": [0.125, 0.25],
        "step_seconds": [0.5, 1.25],  # two updates in the first, three in the second
        "seconds_to_grpo": [1.0, 2.4],
    }
)


def bars(ax):
    """Label → (begin, length) of each setting's part of its bar."""
    return {part.get_label(): [(bar.get_x(), bar.get_width()) for bar in part] for part in ax.containers}


def test_bars_are_as_long_as_the_numbers():
    left, right = plot_costs(TABLE).axes
    assert bars(left) == {
        "weights": [(0, 1), (0, 2)],
        "gradients": [(1, 3), (2, 4)],
        "optimizer state": [(4, 5), (6, 6)],
        "activations": [(9, 7), (12, 8)],
    }
    assert bars(right) == {"rollout": [(0, 0.25), (0, 0.5)], "updates": [(0.25, 0.25), (0.5, 0.75)]}
    assert [text.get_text().strip() for text in left.texts] == ["16 (1.00×)", "20 (1.25×)"]
    assert [text.get_text().strip() for text in right.texts] == ["0.5 (1.00×)", "1.25 (2.40×)"]
    assert (
        right.get_xlabel() == "seconds, median of the rounds\n(median of the rounds' ratios to GRPO)"
    )  # 2.40 is not 1.25 / 0.5
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first setting is on top
    assert next(iter(left.get_yticklabels())).get_text() == "GRPO"


@pytest.mark.parametrize(
    ("factor", "unit", "longest"), [(1e-4, "kB", 2.0), (0.1, "MB", 2.0), (1, "MB", 20.0), (1e3, "GB", 20.0)]
)
def test_bytes_have_a_unit_that_can_be_read(factor, unit, longest):
    scaled = TABLE.assign(**{name: TABLE[name] * factor for name in (*list(TABLE)[1:5], "bytes")})
    left = plot_costs(scaled).axes[0]
    assert left.get_xlabel() == f"{unit} (against GRPO)"
    assert sum(lengths[1][1] for lengths in bars(left).values()) == pytest.approx(longest)


def test_parts_differ_in_grey_and_words_are_large_and_inside():
    figure = plot_costs(TABLE)
    figure.draw_without_rendering()
    for ax in figure.axes:
        looks = [(part[0].get_facecolor(), part[0].get_hatch()) for part in ax.containers]
        assert len(set(looks)) == len(looks)
        hatched = [part[0].get_hatch() for part in ax.containers if part[0].get_facecolor()[:3] == (1, 1, 1)]
        assert None not in hatched and len(set(hatched)) == len(hatched)
        words = [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.title, ax.xaxis.label]
        assert all(text.get_fontsize() >= 11 for text in words)
        assert all(text.get_window_extent().x1 <= ax.get_window_extent().x1 for text in ax.texts)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*bars(figure.axes[0]), *bars(figure.axes[1])]
    inside = figure.bbox
    for text in (*figure.axes[0].get_yticklabels(), *legend.get_texts()):
        box = text.get_window_extent()
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0
