"""Every explorer in a real JupyterLab, by keyboard alone: each slider to both ends and back, each dropdown and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rlviz.pictures.catalogue import EXPLORERS

if TYPE_CHECKING:
    from conftest import Notebook
    from playwright.sync_api import Locator, Page

SECONDS = 60
NAMES = sorted(EXPLORERS)


def cell_of(page: Page, name: str) -> Locator:
    """Return the explorer's cell, in view: JupyterLab does not draw what is far from the window."""
    code = f"explore_{name}()"
    cell = page.locator(".jp-Notebook .jp-CodeCell", has=page.locator(".jp-InputArea", has_text=code))

    def drawn() -> bool:
        cell.scroll_into_view_if_needed()
        page.wait_for_timeout(200)  # cells drawn for the first time change height and can push this one out again
        picture = cell.locator(".jupyter-widgets img")
        return bool(picture.evaluate("picture => picture.checkVisibility({contentVisibilityAuto: true})"))

    until(page, drawn, f"{code} in view")
    return cell


def picture(cell: Locator) -> str:
    """Return the picture as the browser holds it, all of its pixels: a PNG without losses, in base64."""
    source = cell.locator(".jupyter-widgets img").get_attribute("src") or ""
    assert source.startswith("data:image/png;base64,")
    return source


def until(page: Page, condition: Callable[[], bool], expected: str) -> None:
    for _ in range(SECONDS * 20):
        if condition():
            return
        page.wait_for_timeout(50)
    pytest.fail(f"still not after {SECONDS} s: {expected}")


def words(cell: Locator) -> str:
    return cell.get_by_role("status").text_content() or ""


@pytest.mark.parametrize("name", NAMES)
def test_a_slider_of_each_kind_to_both_ends_and_back(explorers: Notebook, name: str) -> None:
    """With a box for numbers, and with a list of them; tests/pictures/test_explorers.py moves every control."""
    page = explorers.page
    cell = cell_of(page, name)
    start, start_words = picture(cell), words(cell)
    assert start_words
    assert cell.locator(".jupyter-widgets img").get_attribute("alt")
    rows = cell.locator(".widget-hbox").filter(has=page.get_by_role("slider"))
    moved, kinds = 0, {}
    for row in rows.all():
        if row.is_visible():
            kinds.setdefault(row.locator("input, select").first.evaluate("box => box.tagName"), row)
    for row in kinds.values():
        slider, box = row.get_by_role("slider"), row.locator("input, select").first
        label = row.locator("label").first.text_content()
        value, seen = box.input_value(), start
        for key, end in (("Home", "aria-valuemin"), ("End", "aria-valuemax")):
            if float(slider.get_attribute("aria-valuenow") or 0) == float(slider.get_attribute(end) or 0):
                continue
            before = seen
            slider.press(key)
            until(page, lambda: picture(cell) != before, f"{name}: {label}, {key}")  # noqa: B023
            seen = picture(cell)
            moved += 1
        if box.evaluate("box => box.tagName") == "SELECT":
            box.select_option(value)
        else:
            box.fill(value)
            box.press("Enter")
        until(page, lambda: picture(cell) == start, f"{name}: {label} back at {value}")
        until(page, lambda: words(cell) == start_words, f"{name}: {label}: the words of the start")
    assert moved


@pytest.mark.parametrize("name", NAMES)
def test_the_dropdown_of_algorithms_answers_to_the_keyboard(explorers: Notebook, name: str) -> None:
    page = explorers.page
    cell = cell_of(page, name)
    start_words = words(cell)
    pick = cell.get_by_label("algorithm", exact=True)
    value = pick.input_value()
    pick.focus()
    page.keyboard.press("Space")  # opens the list; a bare arrow key would be JupyterLab's, and move to another cell
    page.keyboard.press("ArrowUp" if pick.evaluate("box => box.selectedIndex") else "ArrowDown")
    page.keyboard.press("Enter")
    until(page, lambda: words(cell) != start_words, f"{name}: another algorithm")
    assert not words(cell).startswith("Not possible")
    pick.select_option(value)
    until(page, lambda: words(cell) == start_words, f"{name}: the first algorithm again")


def test_browser_reported_no_error_and_asked_nobody_else(explorers: Notebook) -> None:
    """Comes last, to see what the tests above did."""
    assert not explorers.errors
    assert not explorers.outside
