"""What a test does with a cell of a notebook in JupyterLab: bring it into view, read it, wait for its kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

SECONDS = 60  # how long a training step or a redraw may take on a slow machine


def wait_until(page: Page, condition: Callable[[], bool], expected: str) -> None:
    """Poll: the answer to a click comes from the kernel, in its own time."""
    for _ in range(SECONDS * 20):
        if condition():
            return
        page.wait_for_timeout(50)
    pytest.fail(f"still not after {SECONDS} s: {expected}")


def cell_with(page: Page, code: str) -> Locator:
    """Return the cell of this code, in view: JupyterLab does not draw what is far from the window."""
    cell = page.locator(".jp-Notebook .jp-CodeCell", has=page.locator(".jp-InputArea", has_text=code))

    def drawn() -> bool:
        cell.scroll_into_view_if_needed()
        page.wait_for_timeout(200)  # cells drawn for the first time change height and can push this one out again
        picture = cell.locator(".rlviz-picture svg").first
        return bool(picture.evaluate("picture => picture.checkVisibility({contentVisibilityAuto: true})"))

    wait_until(page, drawn, f"{code} in view")
    return cell


def drawn_in(cell: Locator) -> str:
    """Return the lines of a run's curves as the browser holds them, without ghosts and handles."""
    return str(
        cell.locator(".rlviz-panels").evaluate(
            "all => [...all.querySelectorAll('.rlviz-area path')].map((one) => one.getAttribute('d')).join()"
        )
    )


def caption(cell: Locator) -> str:
    return cell.locator(".rlviz-said").first.text_content() or ""
