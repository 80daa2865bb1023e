"""What tests of the numbers of pictures share."""

from __future__ import annotations

import pytest

from rlviz.page.tracing import CannotTrace
from rlviz.pictures.spec import ExplorerSpec


@pytest.fixture
def untraced(monkeypatch):
    """Let no rule of one's own be traced, which takes most of the seconds where its numbers alone are asked for."""

    def refuse(spec, key, members):
        raise CannotTrace("a test asks for numbers alone")

    monkeypatch.setattr(ExplorerSpec, "trace", refuse)
