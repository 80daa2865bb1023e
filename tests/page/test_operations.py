"""Every operation of run.js against torch's: random shapes, broadcasting, NaN, infinities, signed zeros, empty sizes.

What IEEE 754 settles must be the same number; sums are of multiples of 1/64, whose order makes no difference. The rest
may be off by `ulps` units in the last place, of a number of at least `scale`.
"""

from __future__ import annotations

import json
import math
import operator
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

import rlviz.page
from rlviz.page.tracing import OPERATIONS

aten = torch.ops.aten
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="run.js is run by node, which is not installed")
RUN = Path(rlviz.page.__file__).parent / "run.js"

INF, NAN = math.inf, math.nan
HALVES = [sign * half / 2 for half in range(7) for sign in (1, -1)]
SPECIAL = torch.tensor([NAN, INF, -INF, -0.0, *HALVES, 0.1, -7.3, 1e-310, 1e300, 1e16], dtype=torch.double)
BROADCAST = [
    *product([(3, 4), (), (4,), (3, 1), (1, 4)], repeat=2),
    *(((2, 3, 4), shape) for shape in ((3, 1), (2, 1, 4), (2, 3, 1), (2, 1, 1))),
    *[((2, 1, 4), (3, 1)), ((1, 3), (3,)), ((0, 4), (4,)), ((0, 4), (1, 1)), ((0,), ()), ((3, 1), (0,))],
]
SHAPES = [(), (1,), (7,), (3, 4), (2, 3, 4), (2, 1, 4), (0,), (0, 3), (3, 0)]


def random(*shape: int, seed: int = 0) -> Tensor:
    """Multiples of 1/64 in [−4, 4]: their sums are exact in any order."""
    return torch.randint(-256, 257, shape, generator=torch.Generator().manual_seed(seed)).double() / 64


def spoiled(*shape: int, seed: int = 0, by: Sequence[float] = (NAN, INF, -INF, -0.0, 0.0)) -> Tensor:
    """Random numbers, of which a third are replaced by special ones."""
    generator = torch.Generator().manual_seed(seed + 1)
    out = random(*shape, seed=seed)
    chosen = torch.rand(shape, generator=generator) < 1 / 3
    return out.where(~chosen, torch.tensor(by, dtype=torch.double)[torch.randint(len(by), shape, generator=generator)])


@dataclass(frozen=True)
class Case:
    """An operation with its arguments, and what torch makes of them. either: whether 0 may come for −0."""

    name: str
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    expected: tuple[Any, ...]
    ulps: float = 0
    scale: float = 0
    either: bool = False

    def program(self) -> dict[str, Any]:
        """The case as a program."""
        rows: list[Any] = []
        inputs = {}

        def row(value: Any) -> Any:
            if isinstance(value, Tensor):
                inputs[f"x{len(rows)}"] = {"shape": list(value.shape), "data": numbers(value)}
                rows.append(["input", f"x{len(rows)}"])
                return {"r": len(rows) - 1}
            if isinstance(value, list | tuple):
                return [row(part) for part in value]
            if isinstance(value, float) and math.isinf(value):
                return {"inf": math.copysign(1, value)}
            if isinstance(value, torch.dtype):
                return str(value)
            return "NaN" if isinstance(value, float) and math.isnan(value) else value

        args = [row(value) for value in self.args]
        named = {name: row(value) for name, value in self.named.items()}
        place = len(rows)
        rows.append([self.name, args, *([named] if named else [])])
        if len(self.expected) == 1 and self.name != "split_with_sizes":
            return {"rows": rows, "inputs": inputs, "outputs": {"0": place}}
        parts = range(len(self.expected))
        rows += [["getitem", [{"r": place}, part]] for part in parts]
        return {"rows": rows, "inputs": inputs, "outputs": {str(part): place + 1 + part for part in parts}}


def numbers(value: Tensor) -> list[float | str]:
    """The numbers as JSON can have them and JavaScript's Number reads them."""
    words = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN", "-0.0": "-0"}
    return [words.get(repr(x), x) for x in value.double().flatten().tolist()]


def case(op: Any, *args: Any, ulps: float = 0, scale: float = 0, either: bool = False, **named: Any) -> Case:
    result = op(*args, **named)
    name = op.__name__.split(".")[0]
    return Case(
        name, args, named, tuple(result) if isinstance(result, tuple | list) else (result,), ulps, scale, either
    )


def elementwise() -> Iterator[Case]:
    exact = "neg reciprocal sign round relu isnan isinf logical_not abs floor ceil trunc"
    close = {
        1: "sqrt rsqrt exp log log1p log2 log10 expm1 sin cos tan asin acos atan",
        2: "exp2 sinh cosh tanh atanh sigmoid",
        3: "asinh acosh",
    }
    shaped = [spoiled(*shape) for shape in SHAPES]
    values = [SPECIAL, *shaped, torch.linspace(-1, 1, 201).double(), 1 + random(60).abs()]
    for ulps, names in ({0: exact} | close).items():
        for name, x in product(names.split(), values):
            yield case(getattr(aten, name).default, x, ulps=ulps)
    roots = random(500).abs()
    # torch's own is off by a unit in 1 % of numbers
    yield Case("sqrt", (roots,), {}, (torch.from_numpy(np.sqrt(roots.numpy())),))
    yield case(aten.bitwise_not.default, torch.tensor([True, False]))
    binaries = "add sub mul div maximum minimum remainder lt le gt ge eq ne logical_and logical_or"
    pairs = [(SPECIAL[:, None], SPECIAL), *((spoiled(*a), spoiled(*b, seed=5)) for a, b in BROADCAST)]
    for name, (x, y) in product(binaries.split(), pairs):
        op = getattr(aten, name)
        overload = op.Tensor if "Tensor" in op.overloads() else op.default
        yield case(overload, x, y, either=name in ("maximum", "minimum"))
    for x, y in pairs:
        yield case(aten.pow.Tensor_Tensor, x, y, ulps=1)
        yield case(aten.atan2.default, x, y, ulps=1)
        for mode in (None, "floor", "trunc"):
            yield case(aten.div.Tensor_mode, x, y, rounding_mode=mode)
        yield case(aten.add.Tensor, x, y, alpha=0.25)
        yield case(aten.sub.Tensor, x, y, alpha=-2)
    for number in (2.0, 0.5, 0.0, -1.0, 3.0, -0.5, 1.0, INF, NAN, 2):
        for op in (aten.add, aten.sub, aten.mul, aten.div, aten.remainder, aten.lt, aten.ge, aten.eq):
            yield case(getattr(op, "Scalar", None) or op.Tensor, SPECIAL, number)
        yield case(aten.pow.Tensor_Scalar, SPECIAL, number, ulps=2)
        yield case(aten.pow.Scalar, number, SPECIAL, ulps=1)
    integers = torch.arange(-7, 8)
    yield from (case(aten.remainder.Tensor, integers, torch.tensor(divisor)) for divisor in (3, -3, 1))
    yield case(aten.div.Tensor_mode, integers, torch.tensor(-2), rounding_mode="floor")
    for op in (aten.bitwise_and.Tensor, aten.bitwise_or.Tensor):
        yield case(op, integers, torch.arange(15)[:, None] - 4)
        yield case(op, integers > 2, integers % 2 == 0)
    for a, b in BROADCAST:
        condition = spoiled(*a) > 0
        yield case(aten.where.self, condition, spoiled(*b, seed=3), torch.tensor(2.0).double())
        yield case(aten.where.self, condition, torch.tensor(-INF).double(), spoiled(*b, seed=4))
    for x, low, high in product((SPECIAL, spoiled(0, 3)), (None, -1.0, NAN, 3.0), (None, 0.5, INF, NAN)):
        if (low, high) != (None, None):
            yield case(aten.clamp.default, x, low, high, either=True)
    bounds = spoiled(len(SPECIAL), seed=2)
    yield case(aten.clamp.Tensor, SPECIAL, bounds, bounds + 1, either=True)
    yield Case("clamp", (SPECIAL,), {"min": -1.0, "max": 2.0}, (SPECIAL.clamp(-1, 2),))


def special_functions() -> Iterator[Case]:
    """Against torch where torch is as good, and against mpmath."""
    mpmath.mp.dps = 40
    wide = line(-6, 27, 331, [0.0, -0.0, NAN, INF, -INF, 1e-300, -1e-9, 0.5, 1, 40])
    unit = line(0, 1, 201, [1e-300, 1e-20, 1e-9, 0.25, 0.75, 1 - 2**-53, NAN, -1, 2])
    plus = line(0.01, 30, 400, [1e-300, 1 + 1e-12, 2 - 1e-12, 1.4616, 1e5, 1e300])
    minus = line(-8.31, -0.1, 97, [])
    for op, x in product((aten.erf, aten.erfc), (wide, torch.zeros(0).double())):
        yield case(op.default, x, ulps=4)
    yield case(aten.special_ndtri.default, unit, ulps=8)
    ends = torch.tensor([0.0, -0.0, -1, -2, INF, -INF, NAN]).double()
    yield case(aten.lgamma.default, ends)
    yield true("erf", mpmath.erf, wide, ulps=2)
    yield true("erfc", mpmath.erfc, wide, ulps=4)
    inside = unit[(unit > 0) & (unit < 1)]
    yield true("special_ndtri", lambda p: -mpmath.sqrt(2) * root_erfc(2 * p), inside, ulps=3)
    yield true("lgamma", mpmath.loggamma, plus, ulps=8)
    yield true("lgamma", lambda x: mpmath.log(abs(mpmath.gamma(x))), minus, ulps=8, scale=1)


def line(low: float, high: float, n: int, more: list[float]) -> Tensor:
    return torch.cat([torch.linspace(low, high, n, dtype=torch.double), torch.tensor(more, dtype=torch.double)])


def root_erfc(y: Any) -> Any:
    """The x whose erfc is y, also where y is small."""
    if y > 0.5:
        return mpmath.erfinv(1 - y)
    return mpmath.findroot(lambda x: mpmath.log(mpmath.erfc(x)) - mpmath.log(y), mpmath.sqrt(-mpmath.log(y)))


def true(name: str, f: Callable[..., Any], x: Tensor, *, ulps: float, scale: float = 0) -> Case:
    x = x[x.isfinite()]
    expected = torch.tensor([float(f(mpmath.mpf(v))) for v in x.tolist()], dtype=torch.double)
    return Case(name, (x,), {}, (expected,), ulps, scale)


def constants() -> Iterator[Case]:
    x = random(2, 3)
    yield case(aten.full.default, [2, 3], -INF, dtype=torch.double)
    yield case(aten.full.default, [], True)
    yield case(aten.full_like.default, x, NAN)
    yield case(aten.scalar_tensor.default, 0.1, dtype=torch.double)
    yield case(aten.arange.default, 5)
    yield case(aten.arange.default, 0)
    yield case(aten.arange.start, 2, 6)
    yield case(aten.arange.start_step, 5, -2, -2)
    yield case(aten.arange.start_step, 0.0, 1.0, 0.125, dtype=torch.double)
    yield case(aten.arange.start_step, 0.0, 1.05, 0.1, dtype=torch.double, ulps=1)


def views() -> Iterator[Case]:
    x, z = spoiled(2, 3, 4), spoiled(7)
    for op, shape in product((aten.view, aten.reshape), ([6, 4], [-1], [2, -1, 2, 1], [24, 1])):
        yield case(op.default, x, shape)
    yield case(aten.view.default, spoiled(0, 3), [3, 0])
    yield case(aten.copy.default, x, spoiled(3, 1))
    for dim in (0, 1, 3, -1, -4):
        yield case(aten.unsqueeze.default, x, dim)
    yield case(aten.unsqueeze.default, spoiled(), -1)
    squeezed = spoiled(1, 3, 1, 2)
    yield case(aten.squeeze.default, squeezed)
    yield from (case(aten.squeeze.dim, squeezed, dim) for dim in (0, 1, -2))
    yield case(aten.squeeze.dims, squeezed, [0, 1, 2])
    small = ((3, 1), [2, 3, 4]), ((), [2, 3]), ((1, 4), [-1, 4]), ((3, 1), [3, 0]), ((3,), [3]), ((1, 3, 1), [2, -1, 2])
    yield from (case(aten.expand.default, spoiled(*before), after) for before, after in small)
    yield from (case(aten.permute.default, x, order) for order in ([0, 1, 2], [2, 0, 1], [-1, 0, 1], [1, 0, 2]))
    yield case(aten.permute.default, spoiled(0, 3), [1, 0])
    yield from (case(aten.transpose.int, x, a, b) for a, b in ((0, 1), (-1, 0), (2, 2)))
    yield from (case(aten.flip.default, x, dims) for dims in ([0], [1, -1], [], [0, 1, 2]))
    yield case(aten.flip.default, spoiled(0, 3), [0])
    yield from (case(aten.repeat.default, spoiled(2, 3), times) for times in ([1, 1], [2, 3], [2, 1, 2], [0, 1]))
    yield case(aten.repeat.default, spoiled(), [3])
    slices = [(0, None, None, 1), (1, 1, None, 1), (-1, -3, -1, 1), (2, 0, 2**63 - 1, 2), (0, 5, 9, 1), (1, 2, 1, 1)]
    for dim, start, end, step in slices:
        part = aten.slice.Tensor(x, dim, start, end, step)
        yield case(aten.slice.Tensor, x, dim, start, end, step)
        yield case(aten.slice_scatter.default, x, spoiled(*part.shape, seed=8), dim, start, end, step)
    yield case(aten.slice.Tensor, x)
    yield from (case(aten.select.int, x, dim, place) for dim, place in ((0, 1), (1, -1), (-1, 2), (0, 0)))
    yield case(aten.select.int, z, 0, 3)
    yield case(aten.split_with_sizes.default, x, [1, 0, 2], 1)
    yield case(aten.split_with_sizes.default, z, [7])
    yield Case("getitem", ([x, z], 1), {}, (z,))
    yield from (case(aten.cat.default, [x, spoiled(2, 3, 4, seed=2), x], dim) for dim in (0, 1, -1))
    yield case(aten.cat.default, [x, spoiled(2, 0, 4), spoiled(2, 1, 4)], 1)
    yield case(aten.cat.default, [spoiled(0), x], 1)
    yield case(aten.cat.default, [spoiled(0), spoiled(0)])
    pads = ([1, 2], [0, 1, 2, 0], [-1, 1, -1, 0, 1, -1])
    yield from (case(aten.constant_pad_nd.default, x, pad, -1.5) for pad in pads)
    yield case(aten.constant_pad_nd.default, spoiled(0, 2), [1, 1, 1, 0])


def indices() -> Iterator[Case]:
    x, y = spoiled(3, 4, 5), spoiled(3, 4)
    a, b, c = torch.tensor([0, -1, 2, 0]), torch.tensor([[1], [-3]]), torch.tensor(2)
    none = torch.zeros(0, dtype=torch.long)
    some_dims = [None, b], [None, a, b], [a, None, b], [None, c, None], [None, None, a]
    for at in ([a], [a, b], [b, c, a % 3], [none], [c], *some_dims):
        yield case(aten.index.Tensor, x, at)
        chosen = aten.index.Tensor(x, at)
        yield case(aten.index_put.default, random(3, 4, 5), at, random(*chosen.shape, seed=9), True)
        yield case(aten.index_put.default, x, at, torch.tensor(7.0).double())
    yield case(aten.index_put.default, x, [torch.tensor([2, 0])], spoiled(2, 1, 5, seed=4))
    yield from (case(aten.index_select.default, x, dim, torch.tensor([2, 0, 2])) for dim in (0, 1, -1))
    yield case(aten.index_select.default, x, 1, none)
    yield case(aten.embedding.default, y, torch.tensor([[2, 0, 1], [1, 1, 2]]))
    index = torch.tensor([[0, 2, 1], [1, 1, 0]])
    for dim in (0, 1, -1):
        yield case(aten.gather.default, y, dim, index)
        yield case(aten.scatter_add.default, random(3, 4), dim, index, random(2, 3, seed=7))
        yield case(aten.scatter_add.default, random(3, 4), dim, index, random(4, 4, seed=7))
        yield case(aten.scatter.value, y, dim, index, 2.5)
    yield case(aten.scatter.src, y, 1, torch.tensor([[0, 2, 1], [3, 1, 0]]), random(2, 3, seed=7))
    yield case(aten.gather.default, y, 0, index[:0])
    yield case(aten.gather.default, spoiled(5), 0, torch.tensor([4, 4, 0]))


def reductions() -> Iterator[Case]:
    for shape in SHAPES:
        rank = len(shape)
        dims = [None, *([d] for d in range(-rank, rank)), *[[0, 1]] * (rank > 1), *[[0, -1]] * (rank > 2)]
        for x, dim, keep in product((random(*shape), spoiled(*shape)), dims, (False, True)):
            is_filled = dim is None or all(shape[d] for d in dim)
            yield case(aten.sum.dim_IntList, x, dim, keep)
            yield case(aten.mean.dim, x, dim, keep)
            yield case(aten.any.dims, x, dim, keep)
            if dim is not None and len(dim) == 1:
                yield case(aten.prod.dim_int, x / 2, dim[0], keep, ulps=2)
            if is_filled and math.prod(shape):
                yield case(aten.amax.default, x, dim or [], keep, either=True)
                yield case(aten.amin.default, x, dim or [], keep, either=True)
            for correction in (0, 1, 2, 0.5, None):
                yield case(aten.var.correction, x, dim, correction=correction, keepdim=keep, ulps=8)
            for order in (2, 1, 0, 3.0) + ((INF, -INF) if is_filled and math.prod(shape) else ()):
                yield case(aten.linalg_vector_norm.default, x, order, dim, keep, ulps=4)
        for x in (random(*shape), spoiled(*shape), torch.zeros(shape).double()):
            yield case(aten.sum.default, x)
            yield case(aten.mean.default, x)
            yield case(aten.prod.default, x / 2, ulps=8)
            yield case(aten.any.default, x)
            if x.numel():
                for extreme, part in ((aten.max, aten.argmax), (aten.min, aten.argmin)):
                    yield case(extreme.default, x, either=True)
                    yield case(part.default, x)
                    yield case(part.default, x, None, True)
                    for d, keep in product(range(-rank, rank), (False, True)):
                        yield case(extreme.dim, x, d, keep, either=True)
                        yield case(part.default, x, d, keep)
    yield case(aten.max.other, spoiled(3, 4), spoiled(4, seed=3), either=True)
    yield case(aten.min.other, spoiled(3, 4), spoiled(4, seed=3), either=True)


def orders() -> Iterator[Case]:
    values = [x for shape in SHAPES for x in (random(*shape), spoiled(*shape), random(*shape).round())]
    values.append(torch.tensor([[0.0, -0.0, 1.0, -0.0, NAN], [2.0, 0.0, -1.0, -0.0, 0.0]], dtype=torch.double))
    for x in values:
        for dim, down in product(range(-max(x.dim(), 1), max(x.dim(), 1)), (False, True)):
            ordered = aten.sort.stable(x, stable=True, dim=dim, descending=down)
            yield case(aten.sort.stable, x, stable=True, dim=dim, descending=down)
            yield Case("sort", (x, dim, down), {}, tuple(ordered))
    yield Case("sort", (values[3],), {}, tuple(values[3].sort()))
    one, lists = spoiled(9).sort().values, spoiled(3, 9).sort().values
    queries = spoiled(3, 20, seed=4, by=(NAN, INF, -INF, *lists.flatten().tolist()))
    for right in (False, True):
        yield case(aten.searchsorted.Tensor, one, queries, right=right)
        yield case(aten.searchsorted.Tensor, lists, queries, right=right)
        yield case(aten.searchsorted.Tensor, lists, queries, side="right" if right else "left")
        yield case(aten.searchsorted.Scalar, one, 0.25, right=right)
        yield case(aten.searchsorted.Tensor, one[:0], queries, right=right)


def along() -> Iterator[Case]:
    low = torch.tensor([[-INF, -INF, -INF], [-INF, 1, 2], [INF, 1, 2], [NAN, 1, 2], [700, -700, 0], [0, 0, 0]]).double()
    values = [low, low.T, *(spoiled(*shape, by=(-INF,)) for shape in SHAPES), *(random(*shape) for shape in SHAPES)]
    for x in values:
        for dim in range(-max(x.dim(), 1), max(x.dim(), 1)):
            yield case(aten.cumsum.default, x, dim)
            yield case(aten._softmax.default, x, dim, False, ulps=4)
            yield case(aten._log_softmax.default, x, dim, False, ulps=4, scale=1)


def matrices() -> Iterator[Case]:
    for n, k, m in ((2, 3, 4), (1, 5, 1), (3, 0, 2), (0, 2, 3), (4, 1, 1), (3, 9, 5), (2, 11, 1)):
        x, y = random(n, k), random(k, m, seed=2)
        yield case(aten.mm.default, x, y, either=True)
        yield case(aten.bmm.default, random(3, n, k), random(3, k, m, seed=2), either=True)
        yield case(aten.mv.default, x, y[:, 0] if m else random(k), either=True)
        yield case(aten.dot.default, random(k), random(k, seed=4), either=True)
    zero = torch.tensor([[0.0, 1.0]]).double()
    yield case(aten.mm.default, zero, torch.tensor([[INF, NAN, 2.0], [1.0, 1.0, 1.0]]).double())


def sizes() -> Iterator[Case]:
    two: dict[str, Callable[..., Any]] = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "mod": operator.mod,
        "floordiv": operator.floordiv, "sym_max": torch.sym_max, "sym_min": torch.sym_min,
    }  # fmt: skip
    one: dict[str, Callable[..., Any]] = {
        "neg": operator.neg, "abs": abs, "sym_float": torch.sym_float, "sym_int": torch.sym_int, "sym_sqrt": math.sqrt,
        "ceil": math.ceil, "floor": math.floor, "trunc": math.trunc,
    }  # fmt: skip
    for (name, f), a, b in product(two.items(), (7, -7, 6.5), (2, -2, 3)):
        yield Case(f"n_{name}", (a, b), {}, (f(a, b),))
    yield from (Case("n_pow", pair, {}, (operator.pow(*pair),)) for pair in ((3, 4), (2, -1), (9, 0.5)))
    for (name, f), a in product(one.items(), (7, -7, 6.5, -0.5)):
        if name != "sym_sqrt" or a > 0:
            yield Case(f"n_{name}", (a,), {}, (f(a) + 0.0,), either=True)
    yield from (Case("n_sym_size", (random(2, 0, 3), d), {}, ((2, 0, 3)[d],)) for d in (0, 1, -1))
    yield from (Case("n_sym_numel", (random(*shape),), {}, (math.prod(shape),)) for shape in SHAPES)


GROUPS = (elementwise, special_functions, constants, views, indices, reductions, orders, along, matrices, sizes)


@cache
def all_cases() -> dict[str, list[Case]]:
    cases: dict[str, list[Case]] = {}
    for group in GROUPS:
        for case_ in group():
            cases.setdefault(case_.name, []).append(case_)
    return cases


# Programs that run again and again. A row's number stands beside it.
WORKS: dict[str, Any] = {
    "rows": [
        ["input", "a"], ["input", "b"], ["input", "x"],  # 0 1 2
        ["mul", [{"r": 2}, {"r": 0}]],  # 3: by a
        ["exp", [{"r": 2}]],  # 4: by x alone
        ["add", [{"r": 3}, {"r": 4}]],  # 5: by a → p
        ["mul", [{"r": 4}, {"r": 1}]],  # 6: by b
        ["view", [{"r": 6}, [-1]]],  # 7: by b → q
        ["n_sym_size", [{"r": 2}, -1]],  # 8: a size
        ["full", [[{"r": 8}], 2]],  # 9: by the size alone
        ["add", [{"r": 9}, {"r": 1}]],  # 10: by b → r
    ],
    "outputs": {"p": 5, "q": 7, "r": 10},
}  # fmt: skip


def array_json(x: Tensor, *, still: bool = True) -> dict[str, Any]:
    return {"shape": list(x.shape), "data": numbers(x), "still": still}


def series() -> dict[str, Any]:
    x = {
        "x": array_json(random(2, 3)),
        "y": array_json(random(2, 3, seed=1)),
        "loose": array_json(random(2, 3, seed=2), still=False),
    }
    steps = [
        ({"a": 2, "b": 3, "x": "x"}, None),
        ({"a": 2, "b": 3, "x": "x"}, None),
        ({"a": 2, "b": 4, "x": "x"}, None),
        ({"a": 5, "b": 4, "x": "x"}, None),
        ({"a": 5, "b": 6, "x": "x"}, ["p"]),
        ({"a": 5, "b": 6, "x": "x"}, ["q", "r"]),
        ({"a": 5, "b": 6, "x": "y"}, None),
        ({"a": 5, "b": 6, "x": "loose"}, ["q"]),
        ({"a": 5, "b": 6, "x": "loose"}, ["q"]),
    ]
    wanted = [{"inputs": inputs} | ({"only": only} if only else {}) for inputs, only in steps]
    return {"works": {"program": WORKS, "arrays": x, "steps": wanted}}


RECIPES: list[Any] = [
    [{"kind": "uniform", "shape": [40, "G"], "seed": 3, "of": 64}, {"G": 64}],
    [{"kind": "uniform", "shape": [40, "G"], "seed": 3, "of": 64}, {"G": 5}],
    [{"kind": "normal", "shape": [40, "G"], "seed": 3, "of": 64}, {"G": 64}],
    [{"kind": "normal", "shape": [40, "G"], "seed": 3, "of": 64}, {"G": 5}],
    [{"kind": "normal", "shape": [2, 3, 4], "seed": 4}, {}],
]
# what run.js has to refuse, rather than compute something else
REFUSED: dict[str, tuple[list[Any], str]] = {
    "no operation": ([["fft", [1]]], "no operation fft"),
    "a named argument": ([["full", [[2], 1]], ["sum", [{"r": 0}], {"where": True}]], "operation sum takes no where"),
    "shapes": ([["full", [[2], 1]], ["full", [[3], 1]], ["add", [{"r": 0}, {"r": 1}]]],
               "shapes 2 and 3 do not go together"),
    "a view": ([["full", [[6], 1]], ["view", [{"r": 0}, [4]]]], "6 numbers do not fill the shape 4"),
    "an index": ([["arange", [4]], ["full", [[2], 1]], ["index", [{"r": 1}, [{"r": 0}]]]],
                 "index 2 is not in a dimension of 2"),
    "an input": ([["input", "eps"]], "no input eps"),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that is asked of run.js in this file, by one node."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copy(RUN, folder / "run.mjs")  # node reads .js as a module only in some versions
    cases = [case_.program() for group in all_cases().values() for case_ in group]
    cases += [{"rows": rows, "inputs": {}, "outputs": {"0": len(rows) - 1}} for rows, _ in REFUSED.values()]
    questions = {"cases": cases, "series": series(), "recipes": RECIPES}
    (folder / "asked.json").write_text(json.dumps(questions, allow_nan=False))
    command = [
        str(NODE),
        str(Path(__file__).with_name("operations.mjs")),
        str(folder / "run.mjs"),
        str(folder / "asked.json"),
    ]
    replies: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return replies


def wrong(case_: Case, answer: Mapping[str, Any]) -> str:
    """Say where an answer is another one than torch's; "" where it is the same."""
    if "error" in answer:
        return str(answer["error"])
    for place, expected in enumerate(case_.expected):
        value = expected if isinstance(expected, Tensor) else torch.tensor(expected, dtype=torch.double)
        got = answer[str(place)]
        if list(value.shape) != got["shape"] or value.numel() != len(got["data"]):
            return f"shape {got['shape']} with {len(got['data'])} numbers, not {list(value.shape)}"
        want, have = value.double().flatten().numpy(), np.array(got["data"], dtype=float)
        with np.errstate(all="ignore"):
            allowed = case_.ulps * np.spacing(np.maximum(np.abs(want), case_.scale))
            good = (want == have) | (np.isnan(want) & np.isnan(have)) | (np.abs(want - have) <= allowed)
        if value.is_floating_point() and not (case_.either or case_.ulps):
            good &= (want != 0) | (np.signbit(want) == np.signbit(have))
        if not good.all():
            at = int(np.argmin(good))
            return f"result {place}, number {at} of {want.shape}: {have[at]}, not {want[at]}"
    return ""


def short(value: Any) -> str:
    return f"{list(value.shape)}: {numbers(value)}"[:90] if isinstance(value, Tensor) else str(value)[:90]


@pytest.mark.parametrize("name", sorted(all_cases()))
def test_an_operation_makes_the_numbers_that_torch_makes(answers: dict[str, Any], name: str) -> None:
    flat = [case_ for group in all_cases().values() for case_ in group]
    pairs = [(case_, answer) for case_, answer in zip(flat, answers["cases"], strict=False) if case_.name == name]
    bad = [(case_, reason) for case_, answer in pairs if (reason := wrong(case_, answer))]
    lines = [f"{why} in {name}({', '.join(map(short, one.args))}, {dict(one.named)})" for one, why in bad[:3]]
    assert not bad, "\n".join([f"{len(bad)} of {len(pairs)}:", *lines])


def test_every_operation_is_tried(answers: dict[str, Any]) -> None:
    assert set(answers["names"]) == set(all_cases()) == OPERATIONS


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_cannot_do_is_refused(answers: dict[str, Any], what: str) -> None:
    replies = dict(zip(REFUSED, answers["cases"][-len(REFUSED) :], strict=True))
    assert replies[what] == {"error": REFUSED[what][1]}


def test_only_what_depends_on_a_moved_input_runs_again_and_makes_what_a_fresh_program_makes(
    answers: dict[str, Any],
) -> None:
    steps = answers["series"]["works"]
    assert [step["again"] for step in steps] == [step["fresh"] for step in steps]
    first, same, b, a, hidden, later, x, loose, again = (step["count"] for step in steps)
    assert first == 8
    assert same == 0
    assert b == 3  # rows 6, 7, 10
    assert a == 2  # rows 3, 5
    assert hidden == 0  # b moved, and p does not depend on it
    assert later == 3
    assert x == 6  # rows 3 to 8: the size is the old one, so that 9 and 10 stay
    assert loose == again == 3  # rows 4, 6, 7: an array that is not `still` counts as changed


def hashed(place: int, seed: int) -> float:
    """The hash of run.js in Python's integers."""
    word = 2**32 - 1
    h = ((place ^ (seed * 0x9E3779B9 & word)) * 0x85EBCA6B) & word
    for shift, factor in ((13, 0xC2B2AE35), (16, 0x27D4EB2F)):
        h = ((h ^ (h >> shift)) * factor) & word
    return (h ^ (h >> 15)) / 2**32


def test_draws_are_a_hash_of_their_places(answers: dict[str, Any]) -> None:
    uniform, fewer, normal, few, plain = (np.array(draw["data"]).reshape(draw["shape"]) for draw in answers["draws"])
    assert uniform.shape == (40, 64)
    assert plain.shape == (2, 3, 4)
    assert uniform.ravel().tolist() == [hashed(place, 3) for place in range(40 * 64)]
    assert (fewer == uniform[:, :5]).all()  # a smaller group is a part of a larger one
    assert (few == normal[:, :5]).all()
    for place, value in enumerate(plain.ravel()):
        radius = math.sqrt(-2 * math.log(1 - hashed(2 * place, 4)))
        assert value == pytest.approx(radius * math.cos(2 * math.pi * hashed(2 * place + 1, 4)), rel=1e-14)
