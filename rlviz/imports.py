"""Importing much at once, in a process that is rlviz's own: a command."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType


def import_for_good(name: str) -> ModuleType:
    """Import a module and what it needs, unseen by the search for garbage, which would walk through it all time and again.

    With torch that search takes a tenth of the seconds. All that is alive by then is kept for good, too.
    """
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()
