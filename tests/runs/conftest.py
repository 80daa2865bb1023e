"""A widget stays alive as long as its kernel: without an end each test's figures would stay until the last one."""

import ipywidgets
import pytest

from tests.cli.conftest import rlviz

__all__ = ["rlviz"]


@pytest.fixture(autouse=True)
def _close_widgets():
    yield
    ipywidgets.Widget.close_all()
