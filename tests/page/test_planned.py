"""Programs that planned.js runs in float32 by WebAssembly, against torch; its own exp, log and expm1."""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import tempfile
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from rlviz.page import kernels
from rlviz.page.tracing import trace
from tests.page.programs import needs_node

RUNNER = Path(__file__).parent / "run_planned.mjs"
pytestmark = needs_node


def run(cases=(), *, numbers=None):
    """Return what node makes of cases, {program, phases, runs: [{inputs, run}], reruns}, and of numbers by name of a function."""

    def to_json(value):
        return {"shape": list(value.shape), "data": [str(x) for x in value.flatten().tolist()]}

    ready = [
        {**case, "runs": [{**r, "inputs": {k: to_json(v) for k, v in r["inputs"].items()}} for r in case["runs"]]}
        for case in cases
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        bytes_ = base64.b64encode(kernels.BYTES.read_bytes()).decode()
        file.write_text(json.dumps({"kernels": bytes_, "cases": ready, "numbers": numbers}))
        done = subprocess.run(["node", str(RUNNER), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def compare(curve, *inputs, phases=None, rtol=2e-6, atol=2e-6):
    """Trace a curve at the first inputs, plan it once, and ask it at each of the inputs: all numbers must be torch's."""
    program = trace(curve, {}, {name: value.clone() for name, value in inputs[0].items()})
    phases = phases or dict.fromkeys(inputs[0], 0)
    order = sorted(set(phases.values()))
    case = {
        "program": program,
        "phases": phases,
        "reruns": False,
        "runs": [{"inputs": x, "run": order} for x in inputs],
    }
    (runs,) = run([case])["results"]
    for values, got in zip(inputs, runs, strict=True):
        for name, want in curve(**values).items():
            actual = np.array([float(x) for x in got[name]]).reshape(want.shape)
            np.testing.assert_allclose(actual, want.double().numpy(), rtol=rtol, atol=atol, err_msg=name)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


# around the kernels' blocks of 4 rows and 8 columns: one, below, exactly, beyond; every one of each
@pytest.mark.parametrize(("m", "n"), [(1, 19), (3, 7), (4, 8), (9, 1), (9, 19)])
def test_products_of_any_sizes_and_strides(m, n):
    k = 300 if m == 9 else 5  # more than a block

    def curve(x, y, z):
        flat = x.permute(1, 0)  # [m, k]
        pairs = z[:, :m].unsqueeze(-1).expand(2, m, k) * 1.0
        return {
            "mm": flat @ y,
            "rows": y.T @ flat.T,
            "bmm": pairs @ y.unsqueeze(0).expand(2, k, n),
            "sums": flat.T @ flat,
        }

    compare(curve, *({"x": random(k, m, seed=s), "y": random(k, n, seed=s), "z": random(2, 11, seed=s)} for s in (1, 2)),
            atol=1e-4)  # fmt: skip


def test_elements_of_any_layout():
    def curve(x, y, z):
        turned = x.permute(2, 0, 1)  # [5, 3, 4]
        a, b = x.chunk(2, 1)
        return {
            "turned": turned + y.permute(2, 0, 1),
            "column": x * y[:, :, :1],
            "row": x - z,
            "places": x[1:, 1:-1, ::1] / 3.0,
            "part": torch.cat([a, b, y[:, :1]], 1),
            "last": torch.cat([x[..., :1], y[..., 1:2], x[..., 2:]], -1),
            "stack": torch.stack([x[0], y[1]]),
            "turned_flat": turned.reshape(15, 4).neg(),
            "functions": torch.stack(
                [x.exp(), x.sigmoid(), (x * x).sqrt(), (x * x + 1).rsqrt(), x.clamp(max=0.1), x.pow(3)]
            ),
            "far": (100 * x).sigmoid() + (50 * x - 60).clamp(max=80.0).exp().sigmoid(),
            "one": (x.sum() * z[:1]).reshape(()),
        }

    compare(curve, *({"x": random(3, 4, 5, seed=s), "y": random(3, 4, 5, seed=s + 9), "z": random(5, seed=s)} for s in (1, 2)),
            )  # fmt: skip


def test_sums_and_means_over_any_dims():
    def curve(x):
        dims = [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (1, 3), (0, 2, 3), (0, 1, 2, 3)]
        sums = {f"sum {d}": x.permute(3, 1, 0, 2).sum(d) for d in dims}
        return sums | {f"mean {d}": x.mean(d, keepdim=True) for d in dims}

    compare(curve, *({"x": random(2, 3, 4, 5, seed=s)} for s in (1, 2)))


def test_a_long_sum_of_squares_keeps_its_digits():
    compare(lambda x: {"sum": (x * x).sum()}, {"x": random(100_000)}, rtol=3e-7)


def test_softmax_lookups_and_their_gradients():
    def curve(table, scores, ids):
        leaves = [leaf.detach().requires_grad_() for leaf in (table, scores)]
        rows = torch.cat([leaves[0][:1].detach(), leaves[0][1:]])[ids]
        logp = (leaves[1] + rows).log_softmax(-1)
        chosen = logp.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        by = torch.autograd.grad((chosen * rows.softmax(-1).sum(-1)).sum() + (rows * rows).sum(), leaves)
        results = {"logp": logp, "chosen": chosen, "by table": by[0], "by scores": by[1]}
        return {name: value.detach() for name, value in results.items()}

    cases = [
        {"table": random(7, 7, seed=s), "scores": 20 * random(5, 7, seed=s), "ids": torch.tensor(ids)}
        for s, ids in ((1, [3, 0, 3, 6, 1]), (2, [0, 0, 5, 2, 2]))
    ]
    compare(curve, *cases, atol=2e-5)


def test_what_is_masked_has_no_share_and_no_number_stays_none():
    scores = torch.tensor([[0.5, -1e9, 3.0], [-1e9, 0.0, -1e9], [90.0, 89.0, -200.0]])
    compare(lambda x: {"softmax": x.softmax(-1)}, {"x": scores}, atol=1e-30)
    broken = torch.tensor([[1.0, float("nan"), 2.0]])

    def curve(x):
        shares = {"softmax": x.softmax(-1), "logs": x.log_softmax(-1), "limited": x.clamp(max=0.5)}
        return shares | {"sum": (x * 2).sum(-1), "product": x @ x.T, "exp": x.exp(), "sigmoid": x.sigmoid()}

    compare(curve, {"x": broken})


def test_a_phase_that_runs_again_finds_what_the_phases_before_it_made():
    def curve(weights, x):
        joined = torch.cat([weights, weights * 2]).T  # known before x
        hidden = (x @ joined).exp()
        after = hidden @ joined.T + hidden.sum(-1, keepdim=True)  # joined is not read again: its place would be free
        return {"out": ((after * 2 + 1).sigmoid() * after).exp() - after}

    program = trace(curve, {}, {"weights": random(3, 4), "x": random(2, 4)})
    inputs = [{"weights": random(3, 4) / 9, "x": random(2, 4, seed=s) / 9} for s in range(3)]
    runs = [{"inputs": values, "run": [0, 1] if place == 0 else [1]} for place, values in enumerate(inputs)]
    (got,) = run([{"program": program, "phases": {"weights": 0, "x": 1}, "reruns": True, "runs": runs}])["results"]
    for values, actual in zip(inputs, got, strict=True):
        np.testing.assert_allclose(np.array(actual["out"], float), curve(**values)["out"].flatten(), rtol=1e-5)


@pytest.mark.parametrize(
    ("curve", "why"),
    [
        (lambda x: {"y": x.tanh()}, "planned.js has no tanh"),
        (lambda x: {"y": x**0.3}, "planned.js has no pow 0.3"),
        (lambda x: {"y": x.clamp(min=0.0)}, "planned.js has no clamp from below"),
    ],
)
def test_what_it_cannot_plan_it_says(curve, why):
    program = trace(curve, {}, {"x": random(3)})
    with pytest.raises(AssertionError, match=why):
        run(
            [
                {
                    "program": program,
                    "phases": {"x": 0},
                    "reruns": False,
                    "runs": [{"inputs": {"x": random(3)}, "run": [0]}],
                }
            ]
        )


def test_own_functions_are_exact_to_two_units_in_the_last_place():
    spread = np.random.default_rng(0)
    x = np.concatenate([spread.normal(0, 1, 4000), spread.uniform(-745, 709, 4000), [0.0, -0.0, 1e-300, 0.5, -0.5]])
    positive = np.concatenate(
        [np.exp(spread.uniform(-700, 700, 4000)), spread.uniform(0.5, 2, 4000), [1.0, 5e-324, 2**-1050]]
    )
    numbers = {"exp": x, "expm1": x, "log": positive}
    got = run(numbers={name: values.tolist() for name, values in numbers.items()})["numbers"]
    mpmath.mp.prec = 200
    for name, values in numbers.items():
        exact = np.array([float(getattr(mpmath, name)(mpmath.mpf(float(v)))) for v in values])
        actual = np.array([float(v) for v in got[name]])
        off = np.abs(actual - exact) / np.maximum(np.spacing(np.abs(exact)), 5e-324)
        assert off.max() <= 2, (name, values[off.argmax()], off.max())


def test_own_functions_at_the_ends():
    ends = {"exp": ["Infinity", "-Infinity", "NaN", "710", "-746"], "log": ["0", "-1", "Infinity", "NaN", "1"]}
    got = run(numbers=ends)["numbers"]
    assert got["exp"] == ["Infinity", "0", "NaN", "Infinity", "0"]
    assert got["log"] == ["-Infinity", "NaN", "Infinity", "NaN", "0"]


@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason=f"the kernels' compiler, {kernels.COMPILER}, is not there"
)
def test_the_kernels_are_what_their_source_says():
    assert kernels.compiled() == kernels.BYTES.read_bytes()
