"""An import of many modules at once, in a process that is a command of rlviz."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType


def import_without_gc(name: str) -> ModuleType:
    """Import a module with the garbage collector off, which would walk through all of it time and again.

    With torch that takes a tenth of the seconds. All objects alive afterwards are frozen: never collected.
    """
    if name in sys.modules or not gc.isenabled():
        return import_module(name)
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()
