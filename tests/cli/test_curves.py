"""The picture of a run's curves comes from a second process, and from this one where that fails."""

import os
import sys

import pytest

from rlviz.cli import curves

ROWS = [{"step": n, "reward": n / 4, "held_out_accuracy": 0.5, "entropy": 1.0 / n} for n in (1, 2, 3)]


@pytest.mark.parametrize(("script", "code"), [(curves.DRAW, 0), ("raise SystemExit(1)", 1)], ids=["drawn", "fails"])
def test_a_picture_is_drawn_whether_the_second_process_can_or_not(script, code, monkeypatch):
    with curves.CurveDrawer() as here:
        expected = here.finish(ROWS, "GRPO")
    monkeypatch.setattr(curves, "DRAW", script)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "matplotlib")
        drawer = curves.CurveDrawer()
    with drawer:
        drawer.begin(ROWS, "GRPO")
        png = drawer.finish(ROWS, "GRPO")
        assert drawer._process.returncode == code
    assert png[:24] == expected[:24]  # a PNG of the same width and height
