"""A regime map in a page of its own from disk: a click on a cell shows its runs, and another map comes with its own cells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlviz.page.widget import page
from rlviz.pictures import explore_map
from rlviz.pictures.map import find_map

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_click_on_a_cell_of_a_map_shows_its_runs(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "map.html"
    file.write_text(page("map", explore_map().html()), encoding="utf-8")
    tab = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    tab.goto(file.as_uri())
    cells = tab.locator("rect.rlviz-cell")
    cells.first.wait_for()
    cells.nth(2 * 6 + 1).click(position={"x": 8, "y": 8})  # row 3, column 2, of six; clear of what is written
    for other in ("", "dupo-repeats"):
        arguments = {"which": other} if other else {}
        expected = explore_map(**arguments, column=2, row=3)
        tab.get_by_text(expected.conclusion).first.wait_for(timeout=20_000)
        assert tab.locator(".rlviz-call code").text_content() == expected.call.replace("'", '"')
        tab.locator("select").first.select_option(label="Repeating groups that teach: when is it faster?")
    tab.close()


def test_the_call_of_a_map_of_one_s_own_says_which(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "own.html"
    explorer = explore_map(find_map("gspo-ratio"), row=2)
    file.write_text(page("map", explorer.html()), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    code = tab.locator(".rlviz-call code")
    code.wait_for(state="attached")
    assert code.text_content() == explorer.call == "explore_map(row=2, which=which)"
    tab.close()
