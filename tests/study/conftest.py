"""Evaluations in tests of studies take few prompts: what they say is asked for, and not how sure it is."""

import pytest

from small_models.evaluation import evaluate

FEW = 24


@pytest.fixture(autouse=True)
def few_held_out_prompts(monkeypatch):
    monkeypatch.setitem(evaluate.__kwdefaults__, "num_prompts", FEW)
