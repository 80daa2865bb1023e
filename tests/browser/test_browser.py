"""The first notebook in a real browser: what a person sees after moving a slider and pressing Train, Stop, Resume."""

from __future__ import annotations

import base64
import io
import re
import socket
import urllib.error
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from rlviz.algorithms import GRPO

if TYPE_CHECKING:
    from conftest import Lab, Notebook
    from playwright.sync_api import Locator, Page

PRESSES = 5
STEP_SECONDS = 60  # how long a training step or a redraw may take on a slow machine


def cell_with(page: Page, code: str) -> Locator:
    """Return the cell of this code, in view: JupyterLab does not draw what is far from the window."""
    cell = page.locator(".jp-Notebook .jp-CodeCell", has=page.locator(".jp-InputArea", has_text=code))

    def drawn() -> bool:
        cell.scroll_into_view_if_needed()
        page.wait_for_timeout(200)  # cells drawn for the first time change height and can push this one out again
        picture = cell.locator(".jupyter-widgets img")
        return bool(picture.evaluate("picture => picture.checkVisibility({contentVisibilityAuto: true})"))

    wait_until(page, drawn, f"{code} in view")
    return cell


def pixels(cell: Locator) -> np.ndarray:
    """Return the widget's picture as the browser holds it."""
    source = cell.locator(".jupyter-widgets img").get_attribute("src")
    assert source is not None
    head, data = source.split(",", 1)
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def changed(before: np.ndarray, after: np.ndarray) -> int:
    """Return how many pixels differ."""
    assert before.shape == after.shape
    return int((before != after).any(axis=-1).sum())


def alt_text(cell: Locator) -> str:
    return cell.locator(".jupyter-widgets img").get_attribute("alt") or ""


def caption(cell: Locator) -> str:
    return cell.get_by_role("status").text_content() or ""


def step(cell: Locator) -> int:
    """Return the step that the caption names; 0 before the first."""
    found = re.search(r"Step (\d+) of \d+", caption(cell))
    return int(found[1]) if found else 0


def wait_until(page: Page, condition: Callable[[], bool], expected: str) -> None:
    """Poll: the answer to a click comes from the kernel, in its own time."""
    for _ in range(STEP_SECONDS * 10):
        if condition():
            return
        page.wait_for_timeout(100)
    pytest.fail(f"still not after {STEP_SECONDS} s: {expected}")


def test_serves_this_machine_only(lab: Lab) -> None:
    assert lab.url.startswith("http://127.0.0.1:")
    socket.create_connection(("127.0.0.1", lab.port), timeout=10).close()
    # Another address of this same machine: a server on all interfaces would answer there.
    with pytest.raises(OSError):  # noqa: PT011 - refused here, unreachable on other systems
        socket.create_connection(("127.0.0.2", lab.port), timeout=3).close()


def test_refuses_whoever_has_no_token(lab: Lab) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        lab.ask("api/contents", token=False)
    assert refusal.value.code == 403
    assert lab.ask("api/contents").status == 200


def test_slider_moves_the_picture_and_back_again(page: Page) -> None:
    cell = cell_with(page, "explore_clip()")
    start, start_alt, start_value = pixels(cell), alt_text(cell), eps_high(cell)
    assert start_alt
    row = cell.locator(".widget-hbox", has=page.get_by_label("eps_high", exact=True))
    row.get_by_role("slider").focus()

    for _ in range(PRESSES):
        page.keyboard.press("ArrowRight")
    wait_until(page, lambda: np.isclose(eps_high(cell), start_value + PRESSES * 0.01), "eps_high five steps higher")
    assert changed(start, pixels(cell)) > 0
    assert alt_text(cell) not in {"", start_alt}

    for _ in range(PRESSES):
        page.keyboard.press("ArrowLeft")
    wait_until(page, lambda: np.isclose(eps_high(cell), start_value), "eps_high back where it was")
    assert changed(start, pixels(cell)) == 0
    assert alt_text(cell) == start_alt


def eps_high(cell: Locator) -> float:
    """Return the width in the call below the picture: the kernel sends it after the picture, so both are up to date.

    What the call leaves out is the default.
    """
    found = re.search(r"eps_high=([\d.]+)", cell.locator("code").text_content() or "")
    return float(found[1]) if found else GRPO.bounds.eps_high


def test_panel_trains_stops_and_resumes(page: Page) -> None:
    cell = cell_with(page, "training_panel()")
    empty = pixels(cell)
    assert alt_text(cell)
    assert step(cell) == 0

    press(cell, "Train")
    wait_until(page, lambda: step(cell) >= 2, "two steps, which make a line")
    early, early_pixels = step(cell), pixels(cell)
    assert changed(empty, early_pixels) > 0
    wait_until(page, lambda: step(cell) > early, "a further step")
    assert caption(cell).startswith("Training.")

    press(cell, "Stop")
    wait_until(page, lambda: caption(cell).startswith("Stopped"), "stopped")
    stopped, stopped_pixels = step(cell), pixels(cell)
    assert changed(early_pixels, stopped_pixels) > 0
    page.wait_for_timeout(1500)
    assert step(cell) == stopped
    assert changed(stopped_pixels, pixels(cell)) == 0

    press(cell, "Resume")
    wait_until(page, lambda: caption(cell).startswith("Training."), "training again")
    assert step(cell) > stopped
    press(cell, "Stop")
    wait_until(page, lambda: caption(cell).startswith("Stopped"), "stopped again")
    assert changed(stopped_pixels, pixels(cell)) > 0


def test_inspector_goes_from_run_to_step_to_token(page: Page) -> None:
    cell = cell_with(page, "inspect_run(records, algorithm=algorithm)")
    start, first = pixels(cell), views(cell)
    assert "Step 120 of 120" in first[0]
    assert "J = min(ratio · advantages, clip(ratio, lower, upper) · advantages)" in cell.text_content()

    button = cell.get_by_role("button", name="Previous step with tokens", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    wait_until(page, lambda: "Step 110 of 120" in views(cell)[0], "the step before that has tokens")
    assert changed(start, pixels(cell)) > 0
    assert views(cell)[1] != first[1]

    before = views(cell)
    token = cell.locator(".widget-hbox", has=page.get_by_label("token", exact=True)).get_by_role("slider").last
    token.focus()
    page.keyboard.press(
        "Home" if token.get_attribute("aria-valuenow") != token.get_attribute("aria-valuemin") else "End"
    )
    wait_until(page, lambda: views(cell)[2] != before[2], "another token")
    assert views(cell)[0] == before[0]

    cell.get_by_role("button", name="Next step with tokens", exact=True).click()
    wait_until(page, lambda: changed(start, pixels(cell)) == 0, "the picture of the last step again")


def views(cell: Locator) -> list[str]:
    """Return what the run, the step and the token are said to be."""
    return cell.get_by_role("status").all_text_contents()


def press(cell: Locator, name: str) -> None:
    cell.get_by_role("button", name=name, exact=True).click()


def test_browser_reported_no_error_and_asked_nobody_else(notebook: Notebook) -> None:
    """Comes last, to see what the tests above did."""
    assert not notebook.errors
    assert not notebook.outside
