"""A loop is recorded once, and a page runs it as often as Python does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlviz.page.tracing import evaluate, repeated, trace
from tests.page.programs import needs_node, run


def descent(start, rate, goal):
    """Return where 30 steps of gradient descent on Σ (x − goal)⁴ lead, and the sums of what they pass."""

    def step(x):
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(((x - goal) ** 4).sum(), x)
        return x - rate * slope, x.detach()

    visited = repeated(step, start * torch.ones(3, dtype=torch.double), 30)
    again = repeated(lambda x: (x + visited.mean(), x.sum()), visited[0], 4)  # another loop, that reads the first one's
    return {"visited": visited, "again": again}


CASES = [
    dict(zip(("start", "rate", "goal"), each, strict=True)) for each in ((2, 0.02, 1), (0.5, 0.1, -1), (0.5, 0.1, 1))
]


@needs_node
@pytest.mark.parametrize("free", [False, True])
def test_a_loop_runs_in_a_page_as_in_python(free):
    def curve(start, rate, goal):
        return descent(start, rate, goal)

    program = trace(curve, CASES[0], free=free)
    assert len(program["rows"]) < 60  # 30 steps of some 10 rows would be more
    # one program is asked several times: what did not change is kept, and a loop begins at its start again
    for got, given in zip(
        run({"p": program}, [("p", each) for each in (*CASES, CASES[0])]), (*CASES, CASES[0]), strict=True
    ):
        for name, value in evaluate(curve, given).items():
            np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-12, err_msg=f"{name} {given}")
    assert got["visited"].shape == (30, 3) and got["again"].shape == (4,)


def test_what_is_repeated_by_hand():
    # x ← 2 x, kept before each step
    kept = repeated(lambda x: (2 * x, x), torch.tensor(3.0), 4)
    assert kept.tolist() == [3, 6, 12, 24]
