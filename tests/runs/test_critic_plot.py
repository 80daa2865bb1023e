"""The picture of a critic: the line stands where the values are, ends at the score, and is cut off nowhere."""

from rlviz.runs.critic import plot_values

RIGHT = (["4", "#", "end"], [0.3, 0.7, 0.6], 1.0)
WRONG = (["#", "end"], [0.3, -0.2], 0.0)


def drawn(ax):
    """Return the points of the critic's line, of the way from its last value to the score, and of the score."""
    lines = {line.get_label(): line for line in ax.get_lines()}
    (way,) = (line for line in ax.get_lines() if line.get_linestyle() == ":")
    return [[list(x) for x in line.get_data()] for line in (lines["critic's V"], way, lines["score"])]


def test_each_answer_has_its_values_before_its_tokens_and_its_score_after_the_last():
    right, wrong = plot_values({"right": RIGHT, "wrong": WRONG}).axes
    assert drawn(right) == [[[0, 1, 2], [0.3, 0.7, 0.6]], [[2, 3], [0.6, 1.0]], [[3], [1.0]]]
    assert drawn(wrong) == [[[0, 1], [0.3, -0.2]], [[1, 2], [-0.2, 0.0]], [[2], [0.0]]]
    assert [ax.get_title() for ax in (right, wrong)] == ["right", "wrong"]


def test_a_token_stands_between_the_values_before_and_after_it():
    (ax,) = plot_values({"right": RIGHT}).axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["4", "#", "end"]
    assert list(ax.get_xticks()) == [0.5, 1.5, 2.5]


def test_all_answers_have_one_scale_that_holds_every_value():
    for score, values in ((3.0, [0.3, -0.2]), (0.0, [2.5, -1.5])):
        figure = plot_values({"wrong": (WRONG[0], values, score), "right": RIGHT})
        (limits,) = {ax.get_ylim() for ax in figure.axes}
        assert limits[0] <= min(*values, score)
        assert limits[1] >= max(*values, score, 1.0)


def test_the_lines_are_told_apart_without_colour_and_named_once():
    figure = plot_values({"right": RIGHT, "wrong": WRONG})
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["critic's V", "score"]
    value, score = (next(x for x in figure.axes[0].get_lines() if x.get_label() == n) for n in ("critic's V", "score"))
    assert value.get_marker() != score.get_marker()
