"""What the tests of the playground's page share: how it is waited for, and what stands in sight."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 90  # how long what is waited for may take on a slow machine: five steps, say
IN_SIGHT = """one => { const { top, bottom, left, right } = one.getBoundingClientRect();
  return one.checkVisibility() && top >= 0 && bottom <= innerHeight && left >= 0 && right <= innerWidth; }"""


def until(page: Page, condition: str, seconds: float = SECONDS) -> None:
    """Wait for a condition; the page's policy lets Playwright's own waiting, which evaluates texts, not run."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition}; the page says {page.locator('.play-said').first.inner_text()!r}"
        page.wait_for_timeout(50)
