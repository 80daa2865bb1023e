"""The fragments of SVG: text stays text and is escaped, the house's colours are the page's, ids are the view's own."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

from rlviz.pictures.base import BLUE, new_figure
from rlviz.pictures.marks import Marks
from rlviz.pictures.svg import VIEW, SvgFigure

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
    assert (svg.axes[0]["x"], svg.axes[0]["y"], svg.axes[0]["scale"]) == ([0, 4], [0, 2], ["linear", "linear"])
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
        marks = Marks(ax, paper=True)
        marks.write([(HOSTILE, 1, 1), ("b", 2, 1)], sides=["left", "right"])
        ax.set_title(HOSTILE)
        return [marks, *line(ax, label=HOSTILE)]

    svg, _ = figure_of(words)
    still, moving = parsed(svg.still), parsed(svg.moving())
    safe = HOSTILE.replace(VIEW, "")
    assert safe in [text.text for text in still.iter("text")]
    assert [text.text for text in moving.iter("text")] == [safe, "b"]
    assert not list(still.iter("script")) + list(moving.iter("script"))
    assert any(path.get("data-curve") == f"0 {safe}" for path in moving.iter("path"))


def test_every_id_is_the_view_s_and_every_reference_leads_to_one():
    def bars(ax):
        poly = PolyCollection([[(0, 0), (0, 1), (1, 1), (1, 0)]], hatch="//", edgecolor="grey", facecolor=BLUE)
        ax.add_collection(poly)
        return [poly, *line(ax, marker="o", label="J")]

    svg, _ = figure_of(bars)
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


def test_a_formula_becomes_outlines():
    svg, _ = figure_of(lambda ax: [ax.set_title(r"$\pi_\theta$")] and line(ax))
    assert len(svg.still) > 2000
    parsed(svg.still)


@pytest.mark.parametrize("side", ["left", "center", "right"])
def test_marks_stand_at_their_side_in_svg_and_in_the_png(side):
    def words(ax):
        marks = Marks(ax, size=20)
        marks.write([("WWWW", 0.5, 0.5)], sides=[side])
        ax.set(xlim=(0, 1), ylim=(0, 1))
        ax.axis("off")
        return [marks]

    svg, ax = figure_of(words)
    (group,) = parsed(svg.moving()).iter("g")
    (text,) = group.iter("text")
    at = ax.transData.transform((0.5, 0.5))[0]
    assert float(text.get("x")) == pytest.approx(at, abs=0.01)
    assert group.get("text-anchor") == {"left": None, "center": "middle", "right": "end"}[side]
    ink = np.flatnonzero((np.asarray(Image.open(io.BytesIO(svg.png())).convert("L")) < 128).any(0))
    stands = {"left": ink[0], "center": (ink[0] + ink[-1]) / 2, "right": ink[-1]}[side]
    assert stands == pytest.approx(at, abs=3)


def test_a_legend_of_the_figure_is_in_the_parts_that_a_narrow_screen_stacks():
    """As many of its columns side by side as go into 560 pixels; each word lies in one part, and no part is wider."""
    figure = new_figure(10, 3)
    lines = [figure.subplots(1, 2)[0].plot([0, 1], [0, 1])[0]]
    names = [f"{place}: a name of some length" for place in range(4)]
    handles = [lines[0]] * 4
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=12)
    hidden = figure.legend(handles[:1], ["out of sight"], loc="lower center")
    hidden.set_visible(False)
    svg = SvgFigure(figure, [])
    parts = svg.panels[2:]
    assert len(svg.panels) == 2 + len(parts) and len(parts) == 2
    assert all(width <= 560 + 2 * 6 for _, _, width, _ in parts)
    words = {text.text: (float(text.get("x")), float(text.get("y"))) for text in parsed(svg.still).iter("text")}
    for name in names:
        x, y = words[name]
        holds = [left + 20 < x < left + width and top < y < top + height for left, top, width, height in parts]
        assert sum(holds) == 1, name  # with room on its left for its line


def test_axes_out_of_sight_cannot_be_pointed_at():
    def two(ax):
        other = ax.figure.add_subplot()
        other.set_visible(False)
        return line(ax)

    svg, _ = figure_of(two)
    assert [where["on"] for where in svg.axes] == [True, False]
    assert len(svg.panels) == 1
