"""A picture on paper is the picture of the page: panels, limits, ticks, and where each mark stands, at several settings.

Both draw one value, by matplotlib and as SVG; the SVG's pixels are compared with what paper's numbers are in the page's box.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from rlviz.page import paper
from rlviz.page.picture import Area, Bars, Cells, Line, Points, Rule, Runs, Span, Text, Tokens
from rlviz.page.widget import pack
from rlviz.pictures import Explorer
from tests.pictures.test_pictures import SPECS, at_random

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.usefixtures("axes_stay")
NEAR = 0.11  # pixels, of which the page writes tenths
FAR = 9999  # where the page puts what lies further away
# A panel as the page holds it: its box in pixels, words and ticks beside it, and each mark's paths, texts and squares.
READ = """async packed => {
  const place = await shown(packed);
  const panel = (figure) => {
    const svg = figure.querySelector("svg"), find = (of) => [...(svg?.querySelectorAll(of) ?? [])];
    const numbers = (one, ...names) => names.map((name) => +one.getAttribute(name));
    const clip = find("clipPath rect").map((one) => numbers(one, "x", "y", "width", "height"))[0];
    const word = (one) => [...numbers(one, "x", "y"), one.textContent, one.getAttribute("text-anchor")];
    const paths = (all) => all.map((one) => one.getAttribute("d"));
    const isThere = (one) => one.getAttribute("display") !== "none";
    const mark = (g) => ({
      isShown: isThere(g),
      paths: paths([...g.querySelectorAll("path")]),
      words: [...g.querySelectorAll("text")].filter(isThere).map(word),
      squares: [...g.querySelectorAll("rect.rlviz-cell")].filter(isThere)
        .map((one) => numbers(one, "x", "y", "width", "height")),
    });
    return {
      title: figure.querySelector("h3").textContent, clip,
      names: find(".rlviz-axes .rlviz-name").map(word),
      ticks: find(".rlviz-axes text:not(.rlviz-name)").map(word),
      dashes: { x: paths(find(".rlviz-axis")), y: paths(find(".rlviz-grid, .rlviz-zero")) },
      marks: find(".rlviz-area > g").map(mark),
    };
  };
  const rows = [...place.querySelectorAll(".rlviz-row")].map((row) =>
    [...row.children].map((column) => [...column.querySelectorAll("figure")].map(panel)));
  const said = place.querySelector(".rlviz-said").textContent;
  place.remove();
  return { rows, said };
}"""
# Pixels. A page holds what is further out at 9999, of a sign its corners, so that its middle is elsewhere.
OUTSIDE = 9000
NUMBERS = re.compile(r"-?[\d.]+")


def settings(spec) -> list[dict[str, Any]]:
    """Return arguments: the defaults, and others that a page's controls can have."""
    return [{}, at_random(spec, random.Random(3))]


@pytest.fixture
def drawn(monkeypatch):
    """Return what draws an explorer on paper, and tells each panel's axes, and of each mark what it put there."""

    def draw(explorer: Explorer) -> list[tuple[Any, Any, dict[Any, list[Any]]]]:
        panels: list[tuple[Any, Any, dict[Any, list[Any]]]] = []

        def panel(ax, spec, names, draw_panel=paper.draw_panel):
            panels.append((spec, ax, defaultdict(list)))
            return draw_panel(ax, spec, names)

        def noting(draw_mark):
            def noted(ax, mark, names, look):
                before = set(ax.get_children())
                draw_mark(ax, mark, names, look)
                panels[-1][2][id(mark)] += [one for one in ax.get_children() if one not in before]

            return noted

        monkeypatch.setattr(paper, "draw_panel", panel)
        monkeypatch.setattr(paper, "DRAW", {kind: noting(how) for kind, how in paper.DRAW.items()})
        explorer.figure()
        monkeypatch.undo()
        return panels

    return draw


@pytest.mark.parametrize("name", SPECS)
def test_paper_has_what_the_page_has(name, stage: Page, drawn) -> None:
    spec = SPECS[name]
    for arguments in settings(spec):
        explorer = Explorer(spec, arguments)
        page = stage.evaluate(READ, pack(explorer.page_payload()))
        assert page["said"] == explorer.conclusion
        names = explorer.names()
        specs = [panel for panel in spec.picture.panels if names.holds(panel.when)]
        rows = paper.arranged(specs, min(spec.picture.columns, len(specs)))
        assert [[len(column) for column in row] for row in page["rows"]] == [[len(c) for c in row] for row in rows]
        theirs = [panel for row in page["rows"] for column in row for panel in column]
        for panel, (panel_spec, ax, artists) in zip(theirs, drawn(explorer), strict=True):
            where = f"{name} {arguments}: {panel['title']}"
            assert panel["title"] == names.fill(panel_spec.title), where
            if panel["clip"] is None:  # words that flow, and no graph
                assert {type(mark) for mark in panel_spec.marks} == {Tokens}
                continue
            box = Box(panel["clip"], ax)
            compare_axes(panel, ax, box, where)
            for mark, drawing in zip(panel_spec.marks, panel["marks"], strict=True):
                assert drawing["isShown"] == paper.is_visible(mark, names), f"{where}, {mark}"
                if drawing["isShown"]:
                    compare_mark(mark, drawing, artists[id(mark)], box, f"{where}, {mark}")


class Box:
    """A panel's box in the page, with paper's limits at its ends: from paper's numbers to the page's pixels."""

    def __init__(self, clip: list[float], ax: Any) -> None:
        left, top, width, height = clip
        self.ends = {"x": (left, left + width), "y": (top + height - 3, top + 3)}
        self.limits = {"x": ax.get_xlim(), "y": ax.get_ylim()}
        self.logs = {"x": ax.get_xscale() == "log", "y": ax.get_yscale() == "log"}

    def pixels(self, along: str, values: Any) -> Any:
        """Return where these numbers stand; what is far away is at FAR, as in the page."""
        (low, high), (start, end) = self.limits[along], self.ends[along]
        values = np.asarray(values, dtype=float)
        if self.logs[along]:
            with np.errstate(divide="ignore", invalid="ignore"):
                low, high, values = np.log(low), np.log(high), np.log(values)
        return np.clip(start + (values - low) / (high - low) * (end - start), -FAR, FAR)

    def places(self, points: Any) -> Any:
        """Return numbers (x, y) as pixels."""
        points = np.asarray(points, dtype=float).reshape(-1, 2)
        return np.stack([self.pixels("x", points[:, 0]), self.pixels("y", points[:, 1])], 1)


def same(ours: Any, theirs: Any, where: str) -> None:
    """Each place of one has one of the other within NEAR, and turned round."""
    ours, theirs = (np.asarray(side, dtype=float).reshape(-1, 2) for side in (ours, theirs))
    assert (len(ours) == 0) == (len(theirs) == 0), f"{where}: {len(ours)} on paper, {len(theirs)} in the page"
    for one, other in ((ours, theirs), (theirs, ours)):
        for place in one:
            away = np.abs(other - place).max(1).min()
            if np.abs(place).max() > OUTSIDE:  # far outside on both, on the same side
                away = min(away, np.abs(other.clip(-OUTSIDE, OUTSIDE) - place.clip(-OUTSIDE, OUTSIDE)).max(1).min())
            assert away <= NEAR, f"{where}: nothing within {away:.2f} pixels of {place} in {other}"


def compare_axes(panel: dict[str, Any], ax: Any, box: Box, where: str) -> None:
    across = [word for word in panel["names"] if word[3] == "middle"]
    above = [word for word in panel["names"] if word[3] != "middle"]
    assert " ".join(word[2] for word in across) == plain(ax.get_xlabel()), where
    assert " ".join(word[2] for word in above).removeprefix("↑ ") == plain(ax.get_ylabel()), where
    for along, side, foot, dash in (("x", 0, 0, r"M(\S+) \S+v5"), ("y", 1, 4.5, r"M\S+ (\S+)H")):
        axis = getattr(ax, f"{along}axis")
        pixels = box.pixels(along, axis.get_majorticklocs())
        labels = list(zip(pixels, (label.get_text() for label in axis.get_majorticklabels()), strict=True))
        seen = [(word[side] - foot, word[2]) for word in panel["ticks"] if (word[3] == "middle") == (along == "x")]
        for at, word in seen:
            assert any(word == other and abs(at - tick) <= NEAR for tick, other in labels), where
        assert along == "x" or len(seen) == len(labels), where  # on x one that would lie on another is left out
        dashes = [float(match[1]) for d in panel["dashes"][along] if (match := re.match(dash, d))]
        if dashes or along == "x":  # words on the y axis have none
            same([(at, 0) for at in pixels], [(at, 0) for at in dashes], f"{where}: ticks of {along}")


def plain(text: str) -> str:
    return text.replace(r"\$", "$")


def stretches(d: str) -> list[Any]:
    """Return the lines of a path in pixels, each from M on."""
    return [pairs(part) for part in d.split("M")[1:]]


def pairs(d: str) -> Any:
    return np.array([float(x) for x in NUMBERS.findall(d)]).reshape(-1, 2)


def corners(d: str) -> list[tuple[float, float]]:
    """Return the corners of rectangles, which are Mx0 y0 Hx1 Vy1 Hx0 z."""
    points: list[tuple[float, float]] = []
    for part in d.split("M")[1:]:
        x0, y0, x1, y1, _ = map(float, NUMBERS.findall(part))
        if x0 != x1:  # a stretch of one point has no width, and on paper is none
            points += [(x, y) for x in (x0, x1) for y in (y0, y1)]
    return points


def centres(d: str, mark: Any) -> list[tuple[float, float]]:
    """Return the middles of signs, from where the path of each begins."""
    shape = getattr(mark, "shape", "") or mark.marker
    radius = mark.size / 1.6 if isinstance(mark, Points) else 4
    right, down = {"D": (0, 1), "s": (1, 1), "^": (0, 1), "v": (0, -1), "x": (1, 1)}.get(shape, (1, 0))
    starts = [part[0] for part in map(first_pair, d.split("M")[1:])]
    every = 2 if shape in ("x", "+") else 1  # strokes
    return [(x + right * radius, y + down * radius) for x, y in starts[::every]]


def first_pair(part: str) -> Any:
    return np.array([float(x) for x in NUMBERS.findall(part)[:2]]).reshape(1, 2)


def rectangles(artists: list[Any], box: Box, across: str = "") -> list[Any]:
    """Return the corners of rectangles; those that are as high or as wide as the panel have its ends there."""
    ends = []
    for one in artists:
        x, y, width, height = one.get_x(), one.get_y(), one.get_width(), one.get_height()
        for u in (x, x + width):
            for v in (y, y + height):
                at_x = box.pixels("x", u) if across != "x" else box.ends["x"][int(u == x + width)]
                at_y = box.pixels("y", v) if across != "y" else box.ends["y"][int(v == y + height)]
                ends.append((float(at_x), float(at_y)))
    return ends


def compare_mark(mark: Any, drawing: dict[str, Any], artists: list[Any], box: Box, where: str) -> None:
    """Compare what one mark put on paper with what it put into the page."""
    lines = [one for one in artists if isinstance(one, Line2D)]
    if isinstance(mark, Line):
        (line,) = lines
        ours = box.places(line.get_xydata())
        breaks = np.flatnonzero(np.isnan(ours).any(1))
        parts = [part[~np.isnan(part).any(1)] for part in np.split(ours, breaks)]
        theirs = stretches(drawing["paths"][0])
        assert [len(part) for part in parts if len(part)] == [len(part) for part in theirs], where
        for one, other in zip([part for part in parts if len(part)], theirs, strict=True):
            assert np.abs(one - other).max() <= NEAR, where
        if mark.marker:
            same(ours[~np.isnan(ours).any(1)], centres(drawing["paths"][1], mark), where)
    elif isinstance(mark, Area | Runs):
        (polygons,) = (one for one in artists if isinstance(one, PolyCollection))
        vertices = np.concatenate([np.zeros((0, 2)), *(path.vertices for path in polygons.get_paths())])
        if isinstance(mark, Runs):  # as high as the panel
            ours = np.stack([box.pixels("x", vertices[:, 0]), np.array(box.ends["y"])[vertices[:, 1].astype(int)]], 1)
            ends = [(x, y) for x, y in corners(drawing["paths"][0])]
            if not len(ours):  # nothing is cut: the page has nothing in sight
                assert all(x > max(box.ends["x"]) for x, _ in ends), where
                return
            same([place for place in ours if np.abs(np.array(ends)[:, 0] - place[0]).min() <= NEAR], ends, where)
            assert ours[:, 0].min() >= min(x for x, _ in ends) - NEAR, where
            assert ours[:, 0].max() <= max(x for x, _ in ends) + NEAR, where
        else:
            same(box.places(vertices), pairs(drawing["paths"][0]), where)
    elif isinstance(mark, Span):
        same(rectangles(artists, box, "x" if mark.axis == "y" else "y"), corners(drawing["paths"][0]), where)
    elif isinstance(mark, Rule):
        theirs = [float(NUMBERS.findall(part)[mark.axis == "y"]) for part in drawing["paths"][0].split("M")[1:]]
        data = [np.ravel(line.get_xdata() if mark.axis == "x" else line.get_ydata())[0] for line in lines]
        if data:
            same([(x, 0) for x in box.pixels(mark.axis, data)], [(x, 0) for x in theirs], where)
        else:  # a limit at infinity is no line on paper, and one far outside in the page
            assert all(abs(x) > OUTSIDE for x in theirs), where
    elif isinstance(mark, Bars):
        there_are = [one for one in artists if isinstance(one, Rectangle) and np.isfinite(one.get_height())]
        same(rectangles(there_are, box), corners(drawing["paths"][0]), where)
    elif isinstance(mark, Points):
        (line,) = lines
        ours = box.places(line.get_xydata())
        same(ours[~np.isnan(ours).any(1)], centres(drawing["paths"][0], mark), where)
    elif isinstance(mark, Text) and mark.corner:
        assert [plain(one.get_text()) for one in artists] == [" ".join(word[2] for word in drawing["words"])], where
    elif isinstance(mark, Text):
        aside = {"left": -7, "right": 7, "middle": 0}[mark.side]
        assert sorted(plain(one.get_text()) for one in artists) == sorted(word[2] for word in drawing["words"]), where
        ours = box.places([one.get_position() for one in artists])
        same(ours, [(x - aside, y - 4.5) for x, y, *_ in drawing["words"]], where)
    elif isinstance(mark, Cells):
        squares = [one for one in artists if isinstance(one, Rectangle) and one.get_fill() and not one.get_hatch()]
        theirs = [(x + dx * w, y + dy * h) for x, y, w, h in drawing["squares"] for dx in (0, 1) for dy in (0, 1)]
        same(rectangles(squares, box), theirs, where)
        assert [plain(one.get_text()) for one in artists if hasattr(one, "get_text")] == [
            w[2] for w in drawing["words"]
        ]
    else:
        raise TypeError(f"no comparison of {where}")
