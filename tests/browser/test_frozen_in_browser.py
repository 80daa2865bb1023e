"""A regime map without a kernel, in a page of its own from disk: a click on a cell shows its runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlviz.pictures import explore_map
from rlviz.pictures.frozen import freeze, page
from rlviz.pictures.map import map_curve, say_cell

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_click_on_a_cell_of_a_map_shows_its_runs(browser: Browser, tmp_path: Path) -> None:
    explorer = explore_map()
    file = tmp_path / "map.html"
    frozen = freeze(explorer, {"row": (1, 2, 3), "column": (1, 2, 3)})
    file.write_text(page("map", frozen), encoding="utf-8")
    tab = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    tab.goto(file.as_uri())
    picture = tab.locator(".rl-picture > svg[viewBox]").first
    picture.wait_for()
    place = picture.bounding_box()
    assert place is not None
    left, top, width, height = explorer.axes[0]["box"]
    scale = place["width"] / explorer.size[0]
    x, y = left + width * 1.5 / 6, top + height * (1 - 2.5 / 6)  # the middles of column 2 and row 3, of six
    tab.mouse.click(place["x"] + scale * x, place["y"] + scale * y)
    expected = "explore_map(column=2, row=3)"
    tab.get_by_text(expected).wait_for(timeout=20_000)
    assert say_cell(map_curve(column=2, row=3)) in (tab.locator(".rl-explorer details p").last.text_content() or "")
    tab.close()
