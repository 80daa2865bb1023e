"""What a panel knows of the page that shows it: whether it is still there, and its address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from rlviz.page.script import module

TICK_SECONDS, SILENT_TICKS = 1.0, 15  # page.js tells every five seconds that it is there


class PageLink(anywidget.AnyWidget):
    """An invisible part of a panel. Once its page has been heard, and then falls silent for 15 seconds, `gone` is called.

    address: what the page's address says after #; wanted: what it said when the page was opened, or a person changed it.
    The kernel's event loop counts the seconds, so those in which a cell keeps it from listening do not count; in a script, where
    there is no loop and no page, nothing is counted.
    """

    _esm = module("page")
    beat = traitlets.Int().tag(sync=True)
    address = traitlets.Unicode().tag(sync=True)
    wanted = traitlets.Unicode().tag(sync=True)

    def __init__(self, gone: Callable[[], None]) -> None:
        super().__init__()
        self._gone = gone
        self._silent = 0
        self._counting: asyncio.TimerHandle | None = None

    @traitlets.observe("beat")
    def _heard(self, change: Any) -> None:
        self._silent = 0
        if self._counting is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return
            self._counting = loop.call_later(TICK_SECONDS, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._silent += 1
        if self._silent < SILENT_TICKS:
            self._counting = loop.call_later(TICK_SECONDS, self._tick, loop)
        else:
            self._counting = None
            self._gone()
