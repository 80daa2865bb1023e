"""Shapes are checked while the tests run: every jaxtyping annotation of the pieces and algorithms, by beartype.

Lessons that run along with the tests train on less, by `quick_lessons.py`; alone, as `pytest notebooks`, they run in full.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook
from jupyter_client.provisioning import local_provisioner
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rlviz.parallel import STOPS
from tests.checked_once import check_each_kind_of_call_once
from tests.warm_kernels import launch_kernel

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may wait for a hub
if "PYTEST_XDIST_WORKER" in os.environ:
    # kernels and commands beside each other: with a thread a core each they wait for one another, and take four times as long
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def _prepare_kernels() -> None:
    """Let the kernels that this process starts run `quick_lessons.py` first, from a folder where IPython may write.

    On Linux, where that is safe, they are forked.
    """
    home = Path(tempfile.mkdtemp(prefix="rlviz-ipython-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    startup = home / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "quick_lessons.py", startup)
    os.environ["IPYTHONDIR"] = str(home)
    if sys.platform == "linux":
        local_provisioner.launch_kernel = launch_kernel


LONG = ("notebooks/0", "notebooks/1", "tests/browser", "tests/study")  # what takes longest, longest first


def pytest_xdist_auto_num_workers() -> int:
    """Return a worker a core, and one more: browsers and servers are waited for."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Let workers take files in the order of collection, and not the one with most tests first."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the search for garbage, which takes a fifth of the seconds and finds next to none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the long files first, so that no worker is left alone with one at the end. A file's tests keep their order."""

    items.sort(key=lambda item: next((n for n, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG)))


# only now, since it brings the hub's client, which reads the environment when it is imported
evaluate = importlib.import_module("small_models.evaluation").evaluate
ALL_HELD_OUT = evaluate.__kwdefaults__["num_prompts"]
evaluate.__kwdefaults__["num_prompts"] = 100  # most tests ask whether, not how much, is learnt; marked ones take all

_prepare_kernels()
check_each_kind_of_call_once()
install_import_hook(["rlviz.pieces", "rlviz.algorithms"], "beartype.beartype")


@pytest.fixture
def default_signals():
    """Let signals act as in a terminal, here and in what the test starts: `nohup … &` starts the suite to ignore some."""
    ignored = [number for number in STOPS if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _all_held_out_prompts(request, monkeypatch):
    """Let an evaluation take as many prompts as everybody's, for a test of how much was learnt."""
    if request.node.get_closest_marker("all_held_out"):
        monkeypatch.setitem(evaluate.__kwdefaults__, "num_prompts", ALL_HELD_OUT)


@pytest.fixture(scope="module")
def axes_stay():
    """For files in which it does not matter where axes stand: to lay them out is two thirds of the work of a new picture."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
        yield
