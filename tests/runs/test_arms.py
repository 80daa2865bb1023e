"""Pictures of experiments: medians, differences from one arm, lines that stay to be seen, and titles that fit their axes."""

import numpy as np
import pandas as pd
import pytest

from rlviz.runs.arms import panels, plot_against, plot_arms, plot_course, state
from rlviz.study.verdict import Title


@pytest.fixture
def frame():
    """Three arms of five seeds and two steps; seed 4 of b is far off; c is as a, but 2 more in the second step."""
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "step": step,
            "right": seed + 2 * (arm == "c" and step == 2) + 50 * (arm == "b" and seed == 4),
        }
        for arm in "abc"
        for seed in range(5)
        for step in (1, 2)
    ]
    return pd.DataFrame(rows)


def test_one_seed_far_off_moves_neither_bar_nor_line(frame):
    _, (ax, course) = panels(("dots", "course"))
    plot_arms(ax, frame, "right")
    bars = {round(np.mean(line.get_ydata())): line.get_xdata()[0] for line in ax.lines if line.get_color() == "black"}
    assert bars == {0: 2, 1: 2, 2: 3}
    assert max(line.get_xdata().max() for line in ax.lines) == 54  # the seed is there
    plot_course(course, frame, "right")
    assert [line.get_ydata().tolist() for line in course.lines] == [[2, 2], [2, 2], [2, 4]]
    assert ax.get_label() == "dots"


def test_lines_that_lie_on_each_other_are_all_to_be_seen(frame):
    ax = plot_course(panels(("course",))[1][0], frame, "right")
    widths = [line.get_linewidth() for line in ax.lines]
    assert widths == sorted(widths, reverse=True) and len({*widths}) == 3
    assert min(widths) >= 2.5


def test_against_an_arm_is_seed_by_seed_and_keeps_the_colours(frame):
    _, (both, ax) = panels(("both", "against"))
    plot_course(both, frame, "right")
    plot_against(ax, frame.sample(frac=1, random_state=0).sort_values("arm"), "right", "a", unit="share")
    b, c = (line for line in ax.lines if not line.get_label().startswith("_"))
    assert b.get_ydata().tolist() == [0, 0] and c.get_ydata().tolist() == [0, 2]
    assert [b.get_color(), c.get_color()] == [line.get_color() for line in both.lines[1:]]
    assert ax.get_ylabel() == "share, minus a"


def test_titles_are_as_wide_as_their_axes_and_nothing_is_cut_off(frame):
    figure, axes = panels(("first", "second"), ("third",))
    for ax in axes:
        plot_arms(ax, frame, "right", title="plain")
    height = figure.get_figheight()
    line = "one $x needs more of all that wide Widening words MAKE than another (12.3), a third (45.6): not seen at this scale"
    state(figure, {"first": Title([line, "k3 is short: seen"], {"b": "reversed"}), "third": Title([line], {})})
    figure.draw_without_rendering()
    whole = figure.bbox
    for ax in axes:
        ends = ax.get_tightbbox()
        assert ends.x0 >= whole.x0 and ends.x1 <= whole.x1 and ends.y0 >= whole.y0 and ends.y1 <= whole.y1
    first, second, third = (ax.get_title(loc="left") for ax in axes)
    assert second == "plain" and figure.get_figheight() > height
    assert first.startswith("One \\$x") and first.endswith("\nk3 is short: seen.") and len(first.split("\n")) > 3
    assert len(third.split("\n")) < len(first.split("\n")) - 1  # it is wider
    (word,) = (text for text in axes[0].texts if text.get_text() == "reversed")
    assert word.xy[1] == 1
    with pytest.raises(KeyError):
        state(figure, {"elsewhere": Title(["it is seen"], {})})
