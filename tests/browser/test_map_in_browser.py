"""A map in a page of its own from disk: a click on a cell, another map and another measure change its words and its call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rlviz.page.widget import page
from rlviz.pictures import explore_map

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_map_answers_to_cell_map_measure_and_arrow_keys(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "map.html"
    file.write_text(page("map", explore_map().html()), encoding="utf-8")
    tab = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    tab.goto(file.as_uri())
    cells = tab.locator("rect.rlviz-cell")
    cells.first.wait_for()
    at = {"column": 2, "row": 3}
    cells.nth(2 * 6 + 1).click(position={"x": 8, "y": 8})  # row 3, column 2, of six; clear of what is written

    def shows(**arguments: object) -> None:
        expected = explore_map(**arguments)
        tab.get_by_text(expected.conclusion).first.wait_for(timeout=20_000)
        written = ", ".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())
        assert tab.locator(".rlviz-call code").text_content() == f"explore_map({written})"

    shows(**at)
    tab.locator("select").first.select_option(label="DUPO, repeating groups that teach: when is it faster?")
    shows(which="dupo-repeats", **at)
    tab.locator("select").nth(1).select_option(label="share of dead groups")
    shows(which="dupo-repeats", measure="dead", **at)
    tab.get_by_label("column", exact=True).press("ArrowRight")
    shows(which="dupo-repeats", measure="dead", column=3, row=3)
    tab.close()
