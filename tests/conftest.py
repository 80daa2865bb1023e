"""Shapes are checked while the tests run: every jaxtyping annotation of the pieces and algorithms, by beartype.

Lessons that run along with the tests train on less, by `quick_lessons.py`; alone, as `pytest notebooks`, they run in full.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may wait for a hub


def _quick_kernels() -> None:
    """Let the kernels that this process starts run `quick_lessons.py` first, from a folder where IPython may write."""
    home = Path(tempfile.mkdtemp(prefix="rlviz-ipython-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    startup = home / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "quick_lessons.py", startup)
    os.environ["IPYTHONDIR"] = str(home)


_quick_kernels()
install_import_hook(["rlviz.pieces", "rlviz.algorithms"], "beartype.beartype")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
