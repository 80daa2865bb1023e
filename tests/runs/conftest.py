"""A widget stays alive as long as its kernel: without an end each test's figures would stay until the last one."""

import ipywidgets
import pytest

from rlviz.algorithms import DAPO, DCPO, DPO, GRPO, PPO
from rlviz.runs import inspected
from tests.cli.conftest import rlviz

__all__ = ["rlviz"]
# rows under other algorithms: that of most runs, one that leaves groups out, one that remembers, a critic's, one of pairs
FAMILY = (GRPO, DAPO, DCPO, PPO, DPO)


@pytest.fixture(autouse=True)
def _close_widgets():
    yield
    while True:
        try:
            return ipywidgets.Widget.close_all()
        except (
            KeyError
        ):  # of a widget from before ipykernel was imported, which has a register of its own; the next call goes on
            continue


@pytest.fixture(scope="module")
def few_rows():
    """To ask all of the family is most of the work of a new inspector; test_terms.py and the browser's page do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inspected, "ALGORITHMS", FAMILY)
        yield
