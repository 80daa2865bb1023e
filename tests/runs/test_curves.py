"""The curves of runs: what the lines are bound to, how far the axes reach, what stands at a line, in a page and on paper."""

from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rlviz.page.picture import Line
from rlviz.runs.curves import (
    GROUP_GRAPHS,
    PAIR_GRAPHS,
    LiveCurves,
    Series,
    bind_data,
    build_picture,
    draw_figure,
    mean_over_seeds,
    page_payload,
)
from rlviz.training import TrainSettings, train

pytestmark = pytest.mark.usefixtures("axes_stay")


@pytest.fixture(scope="module")
def records():
    return list(train("chain", "grpo", TrainSettings(steps=3, num_prompts=3, group_size=4, evaluate_every=2)))


def with_rewards(records, *rewards):
    return [replace(record, reward=reward) for record, reward in zip(records, rewards, strict=False)]


def test_a_mean_over_seeds_is_that_of_those_that_have_come_so_far(records):
    seeds = [with_rewards(records, 1.0, 2.0, 3.0), with_rewards(records, 3.0, 5.0)]
    steps, means = mean_over_seeds(seeds, "reward")
    assert (steps.tolist(), means.tolist()) == ([1, 2, 3], [2.0, 3.5, 3.0])
    bound = bind_data([Series("a", seeds)], 3, "")
    assert bound["r0_reward_each"] == ["NaN", 1, 2, 3, "NaN", 3, 5]  # as JSON has it: a line each, with gaps between
    assert bound["r0_held_out_accuracy_at"] == [2, 3]


@pytest.mark.parametrize(
    ("rewards", "limits"),
    [
        ((0.1, 0.9, 1.0), (-0.051, 1.02)),  # −.05 · 1.02, so that a line of zeros does not lie on the axis
        ((0.1, 1.5, 1.0), (-0.0765, 1.53)),  # −.05 · 1.53, 1.02 · 1.5
        ((-0.1, 0.5, 0.2), (-0.102, 1.02)),  # −1.02 / 10
        ((-0.2, 4.0, float("nan")), (-0.2581875, 5.16375)),  # −.05 · 5.16375 below −.102 · 1.5², 1.02 · 1.5⁴
    ],
)
def test_the_axes_reach_as_far_as_the_lines_in_steps(records, rewards, limits):
    bound = bind_data([Series("", [with_rewards(records, *rewards)])], 3, "")
    assert (bound["low0"], bound["high0"]) == pytest.approx(limits)


def test_a_run_beside_earlier_ones_has_its_name_where_its_line_is_the_only_one():
    """Alone it needs none: the caption has it."""
    alone, beside = ([Series("a", [[]]), Series("b", [[]], "before")][:count] for count in (1, 2))
    names = [[m.label for m in build_picture(series).panels[1].marks if m.direct] for series in (alone, beside)]
    assert names == [[], ["b", "a"]]


@pytest.mark.parametrize("graphs", [GROUP_GRAPHS, PAIR_GRAPHS], ids=["groups", "pairs"])
def test_all_that_a_picture_names_is_bound_before_there_is_a_record(graphs):
    series = [Series("a", [[]]), Series("b", [[], []], "before")]
    picture, bound = build_picture(series, graphs), bind_data(series, 9, "said", graphs)
    named = {name for name, _, _ in picture.channels()}
    assert named <= set(bound) and page_payload(picture, bound)["data"] == bound
    assert len(draw_figure(picture, bound).axes) == 3


def test_new_numbers_alone_are_sent_until_the_lines_are_others(records):
    live, packed = LiveCurves(), []
    assert len(live.png) > 1000  # a watched cell shows it before there is a run
    live.observe(lambda change: packed.append(change["new"]), "packed")
    for place in (1, 2, 3):
        live.show([Series("", [records[:place]])], 3, f"step {place}")
    assert len(packed) == 1 and live.data["r0_reward"] == [record.reward for record in records]
    assert live.caption == "step 3" and len(live.png) > 1000
    live.show([Series("", [[]]), Series("old", [records], "before")], 3, "again")
    assert len(packed) == 2


def test_a_curve_that_is_seldom_there_is_not_drawn_at_zero(records):
    (dual,) = (
        mark
        for mark in build_picture([Series("", [records])]).marks()
        if isinstance(mark, Line) and "dual" in str(mark.y)
    )
    bound = bind_data([Series("", [records])], 3, "")
    assert dual.when == "r0_clip_fraction_dual_there" and bound[dual.when] == 0
    cut = [replace(record, clip_fraction_dual=0.1) for record in records]
    assert bind_data([Series("", [cut])], 3, "")[dual.when] == 1


def test_names_of_many_runs_stand_beside_the_graph_and_apart(records):
    names = ["GRPO", "overlong filter", "clip-higher", "soft punishment", "token mean", "dynamic sampling"]
    series = [*(Series(name, [records], "before") for name in names), Series("Lite PPO", [records])]
    figure = draw_figure(build_picture(series), bind_data(series, 3, ""))
    FigureCanvasAgg(figure).draw()
    for ax, count in zip(figure.axes, (8, 7, 2), strict=True):  # with reward and held out; a name a run; two limits
        boxes = [text.get_window_extent().padded(-0.5) for text in ax.texts]
        assert len(boxes) == count and all(box.x0 > ax.bbox.x1 for box in boxes)
        assert not any(a.overlaps(b) for a, b in combinations([*boxes, ax.title.get_window_extent()], 2))
        assert all(box.y1 < figure.bbox.y1 for box in boxes)


def test_empty_graphs_say_on_paper_what_to_do(records):
    curves = LiveCurves()
    curves.show([Series("", [[]])], 3, "Press Train.")
    assert [text.get_text() for text in curves.figure().axes[0].texts] == ["Press Train."]
    curves.show([Series("", [records])], 3, "Step 3 of 3.")
    assert "Step 3 of 3." not in [text.get_text() for text in curves.figure().axes[0].texts]
