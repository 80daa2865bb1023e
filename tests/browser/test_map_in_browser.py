"""A regime map in a page of its own from disk: a click on a cell shows its runs, and another map comes with its own cells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlviz.page.widget import page
from rlviz.pictures import explore_map
from rlviz.pictures.map import find_map
from rlviz.site import build, pages

if TYPE_CHECKING:
    import pytest
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


def test_on_the_site_a_cell_opens_the_tables_with_its_settings_and_is_held_against_them(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "EXPLORERS", ("map", "tables"))
    monkeypatch.setattr(pages, "FIRST_EXPLORER", "map")
    for file in (*pages.explorers(), build.script()):
        file.write(tmp_path)
    tab = browser.new_context(viewport={"width": 1280, "height": 720}).new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto((tmp_path / "explorers" / "map.html").as_uri())
    tab.locator("select").first.select_option(label="A ratio for the whole response: when does it help?")
    link = tab.get_by_role("link", name="Run this cell here")
    link.wait_for(timeout=20_000)
    tab.locator("rect.rlviz-cell").nth(3 * 6 + 3).click(position={"x": 8, "y": 8})
    cell = find_map("gspo-ratio").cells[3, 3].measured["accuracy"]
    link.click()
    words = f"The map's 64 tables: {cell.mine:.3g} against {cell.other:.3g} (accuracy)."
    tab.get_by_text(words).first.wait_for(timeout=60_000)
    said = tab.locator(".rlviz-said").inner_text()
    here, against = (float(said.split(name)[-1].split(",")[0].rstrip(".")) for name in ("GSPO's ratio ", "GRPO "))
    assert abs(here - cell.mine) < 0.15 and abs(against - cell.other) < 0.15  # 16 tables against 64
    tab.get_by_text("More", exact=True).first.click()
    assert tab.get_by_label("length of a response").get_attribute("aria-valuetext") == "4"
    assert not errors
    tab.close()
