"""The explorers by name: each function `explore_NAME` that `__init__.pyi` lists, so that a line there is all that one needs."""

from __future__ import annotations

from typing import Any

from rlviz import pictures
from rlviz.names import closest

EXPLORERS = tuple(name.removeprefix("explore_") for name in dir(pictures) if name.startswith("explore_"))


def find_explorer(name: str) -> Any:
    """Return the function that explores this idea, an `Explore`; raises ValueError that offers the nearest names."""
    return getattr(pictures, f"explore_{closest('picture', name.replace('-', '_'), list(EXPLORERS))}")
