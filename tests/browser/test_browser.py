"""The first notebook in a real browser: what a person sees after moving a slider and pressing Train, Stop, Resume."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.cells import caption, cell_with, drawn_in, wait_until

if TYPE_CHECKING:
    from conftest import Notebook
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.quick(0)  # the whole first lesson, in kernels that start from nothing

KERNELS = ""  # each started from nothing, as everybody's are
PRESSES = 5


def alt_text(cell: Locator) -> str:
    return cell.locator(".rlviz-panels").get_attribute("aria-label") or ""


def step(cell: Locator) -> int:
    """Return the step that the caption names; 0 before the first."""
    found = re.search(r"Step (\d+) of \d+", caption(cell))
    return int(found[1]) if found else 0


def test_slider_moves_the_picture_and_back_again(page: Page) -> None:
    cell = cell_with(page, "explore_clip()")
    picture = cell.locator(".rlviz-picture")
    start, said = picture.locator("svg").first.inner_html(), picture.get_by_role("status").first.inner_text()
    picture.get_by_label("ε high").first.focus()
    for _ in range(PRESSES):
        page.keyboard.press("ArrowRight")
    picture.locator(".rlviz-said", has_text="until its ratio is 1.25").wait_for()
    assert picture.locator("svg").first.inner_html() != start
    for _ in range(PRESSES):
        page.keyboard.press("ArrowLeft")
    picture.locator(".rlviz-said", has_text=said).wait_for()


def test_panel_trains_stops_and_resumes(page: Page) -> None:
    cell = cell_with(page, "training_panel()")
    empty = drawn_in(cell)
    assert alt_text(cell)
    assert step(cell) == 0

    press(cell, "Train")
    wait_until(page, lambda: step(cell) >= 2, "two steps, which make a line")
    early, early_pixels = step(cell), drawn_in(cell)
    assert empty != early_pixels
    wait_until(page, lambda: step(cell) > early, "a further step")
    assert caption(cell).startswith("Training.")

    press(cell, "Stop")
    wait_until(page, lambda: caption(cell).startswith("Stopped"), "stopped")
    stopped, stopped_pixels = step(cell), drawn_in(cell)
    assert early_pixels != stopped_pixels
    page.wait_for_timeout(1500)
    assert step(cell) == stopped
    assert drawn_in(cell) == stopped_pixels

    press(cell, "Resume")
    wait_until(page, lambda: caption(cell).startswith("Training."), "training again")
    assert step(cell) > stopped
    press(cell, "Stop")
    wait_until(page, lambda: caption(cell).startswith("Stopped"), "stopped again")
    assert drawn_in(cell) != stopped_pixels


def test_inspector_goes_from_run_to_step_to_token(page: Page) -> None:
    cell = cell_with(page, "inspect_run(records, algorithm=algorithm)")
    first = views(cell)
    assert "Step 120 of 120" in first[0]
    assert "min(ratio · advantages, clip(ratio, lower, upper) · advantages)" in cell.text_content()

    button = cell.get_by_role("button", name="Previous step with tokens", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    wait_until(page, lambda: "Step 115 of 120" in views(cell)[0], "the step before that has tokens")
    assert views(cell)[1] != first[1]

    before = views(cell)
    cell.locator(".tok[aria-pressed=true]").focus()
    page.keyboard.press("ArrowRight" if cell.locator(".tok[aria-pressed=true] + .tok").count() else "ArrowLeft")
    wait_until(page, lambda: views(cell)[1] != before[1], "another token")
    assert views(cell)[0] == before[0]
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"

    cell.get_by_role("button", name="Next step with tokens", exact=True).click()
    wait_until(page, lambda: "Step 120 of 120" in views(cell)[0], "the last step again")


def views(cell: Locator) -> list[str]:
    """Return what the step and the token are said to be."""
    return cell.get_by_role("status").all_text_contents()


def press(cell: Locator, name: str) -> None:
    cell.get_by_role("button", name=name, exact=True).click()


def test_browser_reported_no_error_and_asked_nobody_else(notebook: Notebook) -> None:
    """Comes last, to see what the tests above did."""
    assert not notebook.errors
    assert not notebook.outside
