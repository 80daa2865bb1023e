"""A loop is recorded once, and a page runs it as often as Python does; two inputs stay two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlviz.page.tracing import evaluate, iterated, repeated, trace
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
    dict(zip(("start", "rate", "goal"), values, strict=True))
    for values in ((2, 0.02, 1), (0.5, 0.1, -1), (0.5, 0.1, 1))
]


@needs_node
@pytest.mark.parametrize("free", [False, True])
def test_a_loop_runs_in_a_page_as_in_python(free):
    program = trace(descent, CASES[0], free=free)
    assert len(program["rows"]) < 60  # 30 steps of some 10 rows would be more
    # one program is asked several times: what did not change is kept, and a loop begins at its start again
    cases = [*CASES, CASES[0]]
    for got, inputs in zip(run({"p": program}, [("p", case) for case in cases]), cases, strict=True):
        for name, value in evaluate(descent, inputs).items():
            np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-12, err_msg=f"{name} {inputs}")
    assert got["visited"].shape == (30, 3) and got["again"].shape == (4,)


def test_what_is_repeated_and_iterated_by_hand():
    # x ← 2 x: before each of four steps, and after three and none
    assert repeated(lambda x: (2 * x, x), torch.tensor(3.0), 4).tolist() == [3, 6, 12, 24]
    assert [iterated(lambda x: 2 * x, torch.tensor(3.0), torch.tensor(n)) for n in (3.0, 0.0)] == [24, 3]


def nested(rate, rounds, length):
    """Return what 5 rounds keep, each of which goes `rounds` steps down x⁴, and reads the other loop."""
    ramp = iterated(
        lambda x: x + torch.arange(3.0, dtype=torch.double), rate * torch.ones(3, dtype=torch.double), length
    )

    def outer(x):
        down = iterated(lambda y: y - rate * (y - ramp) ** 3, x, rounds)
        return down + 0.1, down

    return {"kept": repeated(outer, 2 * torch.ones(3, dtype=torch.double), 5, in_slices=True), "ramp": ramp}


NESTED = [{"rate": 0.02, "rounds": rounds, "length": length} for rounds, length in ((3.0, 1.0), (0.0, 2.0), (7.0, 0.0))]


@needs_node
def test_loops_in_loops_run_as_often_as_a_control_says():
    program = trace(nested, NESTED[0])
    for got, inputs in zip(run({"p": program}, [("p", case) for case in NESTED]), NESTED, strict=True):
        for name, value in evaluate(nested, inputs).items():
            np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-12, err_msg=f"{name} {inputs}")


@needs_node
def test_a_loop_in_slices_is_drawn_as_far_as_it_came_and_goes_on():
    program = trace(nested, NESTED[0])
    want = evaluate(nested, NESTED[1])["kept"].numpy()
    # a control that is moved halfway begins anew, and what is missing is NaN: two rounds of it are seen, then all five
    begun = [("p", NESTED[0], 2), ("p", NESTED[1], 2), ("p", NESTED[1], 3)]
    *_, partial, complete = run({"p": program}, begun)
    np.testing.assert_allclose(partial["kept"], np.concatenate([want[:2], np.full((3, 3), np.nan)]), rtol=1e-12)
    np.testing.assert_allclose(complete["kept"], want, rtol=1e-12)


@needs_node
def test_a_loop_that_may_not_be_seen_unfinished_is_never_interrupted():
    (got,) = run({"p": trace(descent, CASES[0])}, [("p", CASES[0], 1)])
    assert all(np.isfinite(value).all() for value in got.values())


@needs_node
def test_one_tensor_given_as_two_examples_is_two_inputs():
    same = torch.tensor([1.0, 2.0], dtype=torch.double)
    program = trace(lambda a, b: {"y": a - b}, {}, {"a": same, "b": same})
    inputs = {"a": torch.tensor([5.0, 7.0]), "b": torch.tensor([1.0, 2.0])}
    (got,) = run({"p": program}, [("p", inputs)])
    assert got["y"].tolist() == [4, 5]
