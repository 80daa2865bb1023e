"""The fragments of SVG: text stays text and is escaped, the house's colours are the page's, ids are the view's own."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from rlviz.page.style import BLUE, new_figure, plain
from rlviz.runs.svg import VIEW, SvgFigure

pytestmark = pytest.mark.filterwarnings("ignore:There are no gridspecs")  # of axes placed by hand
HOSTILE = "<script>alert(1)</script> & \"quoted\" 'so' \ue000x"


def figure_of(draw):
    """Return a figure of 400 × 300 pixels whose axes fill it, and what `draw` says moves there."""
    figure = new_figure(4, 3)
    ax = figure.add_subplot()
    moving = draw(ax)
    return SvgFigure(figure, moving), ax


def parsed(fragment):
    return ElementTree.fromstring(f"<svg>{fragment}</svg>")


def line(ax, **looks):
    (moving,) = ax.plot([0, 1, 2, 3, 4], [0, 1, 2, 1, 1], **looks)
    ax.set(xlim=(0, 4), ylim=(0, 2))
    return [moving]


def test_a_line_stands_where_its_numbers_are_and_straight_stretches_have_two_ends():
    svg, ax = figure_of(lambda ax: line(ax, label="J"))
    (path,) = parsed(svg.moving()).iter("path")
    assert path.get("data-curve") == "0 J"
    corners = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", path.get("d"))]
    wanted = ax.transData.transform([(0, 0), (2, 2), (3, 1), (4, 1)])  # at 1 it goes straight on
    np.testing.assert_allclose(corners, np.c_[wanted[:, 0], 300 - wanted[:, 1]], atol=0.01)
    x, y, width, height = svg.axes[0]["box"]
    assert (svg.axes[0]["x"], svg.axes[0]["y"]) == ([0, 4], [0, 2])
    np.testing.assert_allclose([corners[0], corners[1]], [(x, y + height), (x + width / 2, y)], atol=0.02)


def test_what_moves_is_not_in_what_stands_still_and_the_other_way_round():
    svg, _ = figure_of(lambda ax: line(ax, color=BLUE, label="J"))
    assert "data-curve" not in svg.still
    assert "<text" in svg.still and "<text" not in svg.moving()
    before = svg.still, svg.moving()
    svg.artists[0].set_ydata([2, 2, 2, 2, 2])
    assert svg.moving() != before[1]
    assert svg.still == before[0]


def test_colours_of_the_house_are_the_page_s_and_others_stay():
    svg, _ = figure_of(lambda ax: [*line(ax, color=BLUE), *line(ax, color="#123456")])
    assert 'stroke="var(--b)"' in svg.moving()
    assert 'stroke="#123456"' in svg.moving()
    assert 'fill="var(--k)"' in svg.still  # words
    assert "#ffffff" not in svg.still  # no paper: the page shows through


@pytest.mark.filterwarnings("ignore:Glyph")
def test_text_is_text_and_hostile_text_too():
    def words(ax):
        ax.set_title(HOSTILE)
        return [ax.text(1, 1, plain("$x$ b")), *line(ax, label=HOSTILE)]

    svg, _ = figure_of(words)
    still, moving = parsed(svg.still), parsed(svg.moving())
    safe = HOSTILE.replace(VIEW, "")
    assert safe in [text.text for text in still.iter("text")]
    assert [text.text for text in moving.iter("text")] == ["$x$ b"]
    assert not list(still.iter("script")) + list(moving.iter("script"))
    assert any(path.get("data-curve") == f"0 {safe}" for path in moving.iter("path"))


def test_every_id_is_the_view_s_and_every_reference_leads_to_one():
    svg, _ = figure_of(lambda ax: line(ax, marker="o", label="J"))
    for fragment in (svg.still, svg.moving()):
        ids = re.findall(r' id="([^"]*)"', fragment)
        assert ids and len(set(ids)) == len(ids) and all(name.startswith(VIEW) for name in ids)
        assert set(re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', fragment)) <= {(n, "") for n in ids} | {
            ("", n) for n in ids
        }
    assert not set(re.findall(r' id="([^"]*)"', svg.still)) & set(re.findall(r' id="([^"]*)"', svg.moving()))


def test_a_gap_in_a_line_stays_one():
    def gap(ax):
        (moving,) = ax.plot([0, 1, 2, 3, 4], [1, 1, np.nan, 1, 1], label="J")
        return [moving]

    svg, _ = figure_of(gap)
    (path,) = parsed(svg.moving()).iter("path")
    assert re.sub(r"[\d. ]", "", path.get("d")) == "MLML"


def still_only(draw):
    """Return the standing part of a figure of 400 × 300 pixels, parsed, and its axes, which fill it."""
    figure = new_figure(4, 3)
    figure.set_layout_engine("none")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 4), ylim=(0, 3))  # 100 pixels a unit: (x, y) stands at (100 x, 300 − 100 y)
    ax.axis("off")
    draw(ax)
    svg = SvgFigure(figure, [])
    return parsed(svg.still), svg


def test_what_is_clipped_is_clipped_at_its_frame():
    def inset(ax):
        inner = ax.inset_axes((0.25, 0.5, 0.5, 0.25))  # from (1, 1.5) to (3, 2.25): 200 × 75 pixels, its top at 75
        inner.axis("off")
        inner.plot([0, 1], [0, 1])

    still, _ = still_only(inset)
    rects = [next(iter(clip)) for clip in still.iter("clipPath")]
    assert [[float(rect.get(name)) for name in ("x", "y", "width", "height")] for rect in rects] == [[100, 75, 200, 75]]


def test_markers_stand_at_their_numbers():
    still, _ = still_only(lambda ax: ax.plot([1, 2.5], [2, 0.5], "s", markersize=7.2, label="m"))
    places = [(float(use.get("x")), float(use.get("y"))) for use in still.iter("use")]
    assert places == [(100, 100), (250, 250)]
    (form,) = [path for path in still.iter("path") if path.get("id")]
    corners = re.findall(r"(-?[\d.]+) (-?[\d.]+)", form.get("d"))
    assert sorted(set(corners)) == sorted((x, y) for x in ("-5", "5") for y in ("-5", "5"))  # 7.2 points are 10 pixels


@pytest.mark.parametrize("side", ["left", "center", "right"])
def test_words_stand_where_they_are_put(side):
    still, _ = still_only(lambda ax: ax.text(1, 2, "word", ha=side, va="baseline", fontsize=18))
    (group,) = still.iter("g")
    (text,) = group.iter("text")
    assert (float(text.get("x")), float(text.get("y"))) == pytest.approx((100, 100), abs=1)
    assert float(group.get("font-size")) == 25  # 18 points at 100 dots an inch
    assert group.get("text-anchor") == {"left": None, "center": "middle", "right": "end"}[side]


def test_a_turned_word_reads_upwards_around_its_middle():
    still, _ = still_only(lambda ax: ax.text(2, 1, "upwards", rotation=90, ha="center", va="center", fontsize=18))
    (group,) = still.iter("g")
    (text,) = group.iter("text")
    x, y = float(text.get("x")), float(text.get("y"))
    assert group.get("text-anchor") == "middle" and y == pytest.approx(200, abs=1)
    turn, *around = map(float, re.findall(r"-?[\d.]+", group.get("transform")))
    assert (turn, *around) == (-90, x, y)
    assert 200 < x < 212.5  # its baseline is right of its middle, by less than half of a line


def test_lines_keep_bends_dashes_and_widths_and_lose_what_is_far_outside():
    def three(ax):
        ax.plot([1, 2, 3], [1, 1.01, 1], label="bent")  # by a pixel
        ax.plot([0, 4], [2, 2], linestyle=(0, (3, 1.5)), linewidth=3.6, label="dashed")
        ax.plot([-40, 40], [0.5, 0.5], label="far", clip_on=False, alpha=0.25)

    still, _ = still_only(three)
    lines = {path.get("data-curve").partition(" ")[2]: path for path in still.iter("path") if path.get("data-curve")}
    numbers = {name: [float(n) for n in re.findall(r"-?[\d.]+", path.get("d"))] for name, path in lines.items()}
    assert numbers["bent"] == pytest.approx([100, 200, 200, 199, 300, 200])
    assert float(lines["dashed"].get("stroke-width")) == 5
    assert lines["dashed"].get("stroke-dasharray") == "15 7.5"  # in widths of the line
    assert -60 < min(numbers["far"]) <= 0 and 400 <= max(numbers["far"]) < 460
    assert {lines["far"].get("opacity"), lines["far"].get("stroke-opacity")} == {None, "0.25"}


def test_a_panel_holds_its_axes_and_their_words():
    svg, _ = figure_of(lambda ax: [ax.set(title="A title", xlabel="below")] and line(ax))
    ((x, y, width, height),) = svg.panels
    left, top, across, down = svg.axes[0]["box"]
    assert x < left and left + across < x + width + 1 and y < top and top + down < y + height
    for text in parsed(svg.still).iter("text"):
        assert y < float(text.get("y")) < y + height, text.text


def test_a_legend_of_the_figure_is_a_panel_of_its_own():
    """On a narrow screen it is stacked with the others: its words lie in it whole, and in no other panel."""
    figure = new_figure(10, 3)
    (drawn,) = figure.subplots(1, 2)[0].plot([0, 1], [0, 1])
    figure.legend([drawn] * 2, ["one run", "another run"], loc="outside upper center", ncols=2, fontsize=12)
    svg = SvgFigure(figure, [])
    assert len(svg.panels) == 3
    words = {text.text: (float(text.get("x")), float(text.get("y"))) for text in parsed(svg.still).iter("text")}
    for name in ("one run", "another run"):
        x, y = words[name]
        holds = [left < x < left + width and top < y < top + height for left, top, width, height in svg.panels]
        assert holds == [False, False, True], name
