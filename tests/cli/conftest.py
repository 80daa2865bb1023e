"""What every test of a command has: the command line in this process, and held-out evaluations of a few prompts."""

import inspect

import pytest
from typer.testing import CliRunner

from rlviz.cli import app
from small_models.evaluation import evaluate


@pytest.fixture
def rlviz():
    """Return the command line as a function: `rlviz("train", "--steps", 3)`."""
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def _axes_stay(axes_stay):
    """What is asked is that a picture is drawn, not where its axes stand."""


@pytest.fixture(autouse=True)
def _few_held_out_prompts(monkeypatch):
    """40 in place of 1000: what is asked is that a number is shown, not which."""
    monkeypatch.setitem(inspect.unwrap(evaluate).__kwdefaults__, "num_prompts", 40)
