"""Shapes are checked while the tests run: every jaxtyping annotation of the pieces and algorithms, by beartype."""

from __future__ import annotations

import os

import pytest
import torch
from jaxtyping import install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may wait for a hub
install_import_hook(["rlviz.pieces", "rlviz.algorithms"], "beartype.beartype")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
