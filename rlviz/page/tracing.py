"""A curve as a program: what a function of tensors does, recorded by torch, as rows that `run.js` runs in a page.

    trace(curve, controls, data) → {"rows": […], "outputs": {name: row}}

A curve takes tensors by name (0-d for controls) and returns named tensors. The gradient that it takes inside is recorded with
it: differentiating a second time, in the page, would lose what stops a gradient. Rows are ATen's core operations in float64.
Sizes that may change are rows too, so one program serves every group size. A loop of many steps is recorded once (`repeated`).
What a page cannot follow raises `CannotTrace` with the line that read a number.
"""

from __future__ import annotations

import json
import linecache
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions
from torch._guards import TracingContext, tracing as told_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx
from torch.overrides import TorchFunctionMode

from small_models.host import recording

Curve = Callable[..., Mapping[str, Tensor]]
Program = dict[str, Any]
# operations that leave the numbers as they are
ALIASES = {"alias", "clone", "detach", "lift_fresh_copy", "lift_fresh", "contiguous"}
OPERATIONS = frozenset(Path(__file__).with_name("operations.txt").read_text(encoding="utf-8").split())  # of run.js
OF_LOOPS = {"loop_start", "loop", "loop_end"}
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "uniform")
VIEWS = {"alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice", "split", "squeeze"}
VIEWS |= {"t", "transpose", "unbind", "unfold", "unsqueeze", "view"}
TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format)  # of which a page has one each
WHOLE = {torch.ops.aten.mv.default, torch.ops.aten.dot.default}  # else each is a product of all places and a sum
READS = {
    getattr(Tensor, name)
    for name in ("__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "__array__")
}
# a loop is two operations: the state that each round begins with, and all that the rounds keep, or the last state, where the
# rows between are run again. While they are recorded they run once, which tells the shapes.
LOOPS = torch.library.Library("rlviz", "DEF")
LOOPS.define("loop_start(Tensor state) -> Tensor")
LOOPS.define("loop(Tensor start, Tensor after, Tensor kept, int times, bool in_slices) -> Tensor")
LOOPS.define("loop_end(Tensor start, Tensor after, Tensor times) -> Tensor")
LOOPS.impl("loop_start", lambda state: state.clone(), "CompositeExplicitAutograd")
LOOPS.impl("loop", lambda start, after, kept, times, _: torch.stack([kept] * times), "CompositeExplicitAutograd")
LOOPS.impl("loop_end", lambda start, after, times: after.clone(), "CompositeExplicitAutograd")


class CannotTrace(ValueError):
    """A curve does what a page cannot follow; the message says what, and where."""


class _NumbersMayBeTensors(TorchFunctionMode):
    """Lets a piece's number be a 0-d tensor where torch asks for a number, and lets none be read out of a recorded tensor."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if fn in READS and _recorded(args[0]):
            raise CannotTrace(f"a number is read out of a tensor, as an `if` does{_where()}")
        if fn is Tensor.__format__ and _recorded(args[0]):
            return "…"  # in a message that is made before it is needed
        if fn is torch.full_like and len(args) > 1 and isinstance(args[1], Tensor):
            return args[1].expand_as(args[0])
        if fn is Tensor.new_tensor and isinstance(args[1], Tensor):
            return args[1]
        if fn in (Tensor.std, torch.std) and len(args) < 2 and not {"dim", "correction"} & set(kwargs):
            return args[0].var().sqrt()
        if (
            fn is Tensor.__getitem__
            and isinstance(args[1], Tensor)
            and args[1].dim() == 0
            and args[1].dtype is torch.long
        ):
            return args[0][args[1].unsqueeze(0)].squeeze(0)
        return fn(*args, **kwargs)


def _recorded(value: object) -> bool:
    mode = get_proxy_mode()
    return mode is not None and get_proxy_slot(value, mode.tracer, None) is not None  # type: ignore[call-overload]


def _where() -> str:
    """Return the line of the caller's code that is running: ", at mine.py:3: if ratio > 1:"."""
    own, installed = __file__, str(Path(torch.__file__).parent)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith((installed, own)):
            line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
            return f", at {Path(frame.filename).name}:{frame.lineno}: {line}"
    return ""


@contextmanager
def tracing() -> Iterator[None]:
    """While it lasts, pieces take 0-d tensors for their numbers, and nothing is judged."""
    with recording(), _NumbersMayBeTensors():
        yield


def evaluate(curve: Curve, given: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the curve's outputs by torch, what a page's program computes: given are numbers and tensors, by name.

    Other than in a page, pieces judge what they are given: raises what they raise.
    """
    with _NumbersMayBeTensors():
        outputs = curve(**{name: _tensor(value) for name, value in given.items()})
    return {name: value.detach() for name, value in outputs.items()}


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.double)


def repeated(
    step: Callable[[Tensor], tuple[Tensor, Tensor]], state: Tensor, times: int, *, in_slices: bool = False
) -> Tensor:
    """Return what `times` rounds of a loop keep, stacked: a round makes (the next state, what is kept) of the state.

    In a program the round stands once, however often it runs; a state has the shape that it begins with. in_slices: a page may
    draw what is there before all rounds are done, with NaN for what is missing: for a long loop, such as a training.
    """
    if get_proxy_mode() is not None:
        start = torch.ops.rlviz.loop_start(state)
        return torch.ops.rlviz.loop(start, *step(start), times, in_slices)
    found = []
    for _ in range(times):
        state, kept = step(state)
        found.append(kept)
    return torch.stack(found)


def iterated(step: Callable[[Tensor], Tensor], state: Tensor, times: Tensor) -> Tensor:
    """Return the state after `times` rounds of a loop, a 0-d number of them that may be a control; see `repeated`."""
    if get_proxy_mode() is not None:
        start = torch.ops.rlviz.loop_start(state)
        return torch.ops.rlviz.loop_end(start, step(start), times)
    for _ in range(int(times)):
        state = step(state)
    return state


def trace(
    curve: Curve, controls: Mapping[str, float], data: Mapping[str, Tensor] | None = None, *, free: bool = False
) -> Program:
    """Return a curve as a program whose inputs are the controls and the data.

    controls, data: examples, of values that the curve can be computed for. free: whether sizes of the data may change; sizes
    that are equal in the examples are then one size, so give independent ones different numbers.
    Raises CannotTrace for what a page cannot follow.
    """
    examples = {name: _tensor(value) for name, value in {**controls, **(data or {})}.items()}
    keys: list[str] = []

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        with tracing():
            outputs = curve(**dict(zip(examples, tensors, strict=True)))
        keys[:] = list(outputs)
        return tuple(outputs.values())

    how: dict[str, Any] = {"tracing_mode": "symbolic", "_allow_non_fake_inputs": True} if free else {}
    # one tensor given twice would become one input
    apart = [value.clone() for value in examples.values()]
    try:
        with _at_twice_the_speed(free):
            graph = make_fx(flat, decomposition_table=_decompositions(), **how)(*apart)
    except CannotTrace:
        raise
    except Exception as error:  # a rule of one's own can do anything, and torch says so in many ways
        said = str(error).split("\n")[0][:160]
        raise CannotTrace(f"{type(error).__name__}: {said}") from error
    graph.graph.eliminate_dead_code()
    return _Rows(graph, list(examples)).program(keys)


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return {op: how for op, how in core_aten_decompositions().items() if op not in WHOLE}


@contextmanager
def _at_twice_the_speed(free: bool) -> Iterator[None]:
    """While it lasts, torch does without what takes half of a recording's seconds and changes nothing in it.

    It would make a new mode for each operation to keep a shape in, unless it knows of one; and where sizes are free, look up
    each operation among those that were recorded before, which takes longer than to find its shape anew.
    """
    from torch._dynamo import config  # which takes a second, and make_fx needs it too

    known = None if free else TracingContext(FakeTensorMode())
    with told_of(known), config.patch(fake_tensor_cache_enabled=False):
        yield


class _Rows:
    """The rows of a recorded graph."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Iterable[str]) -> None:
        self.graph, self.inputs = graph, iter(inputs)
        self.rows: list[list[Any]] = []
        self.place: dict[Any, Any] = {}  # node → its row; None for one that has none
        self.known: dict[str, int] = {}  # a row's text → its place, so that what is computed twice is computed once

    def program(self, keys: list[str]) -> Program:
        outputs: dict[str, int] = {}
        for node in self.graph.graph.nodes:
            if node.op == "output":
                outputs = dict(zip(keys, (self.place[value] for value in node.args[0]), strict=True))
            else:
                self.place[node] = getattr(self, f"_{node.op}")(node)
        return _pruned(self.rows, outputs)

    def _add(self, row: list[Any]) -> int:
        key = json.dumps(row)
        if key not in self.known:
            self.known[key] = len(self.rows)
            self.rows.append(row)
        return self.known[key]

    def _placeholder(self, node: Any) -> int:
        return self._add(["input", next(self.inputs)])

    def _get_attr(self, node: Any) -> int:
        value = getattr(self.graph, node.target)
        return self._add(["const", list(value.shape), [_number(x) for x in value.double().flatten().tolist()]])

    def _call_function(self, node: Any) -> Any:
        name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
        if name.endswith("_") and not name.endswith("__"):
            return self._in_place(node, name[:-1])
        return self._row(node, name)

    def _in_place(self, node: Any, name: str) -> Any:
        """Return the row of what a tensor is after it was written into, for all that asks for that tensor from here on."""
        written = node.args[0]
        if written.op == "call_function" and str(written.target).split(".")[1] in VIEWS:
            raise CannotTrace(f"numbers are written into a part of a tensor ({name}_)")
        self.place[written] = self._row(node, name)
        return self.place[written]

    def _row(self, node: Any, name: str) -> Any:
        if name in ALIASES:
            return self.place[node.args[0]]
        if name.startswith(RANDOM):
            raise CannotTrace("random numbers are drawn inside: they must be an input")
        value = node.meta.get("val")
        arguments = [self._argument(argument) for argument in node.args]
        keywords = {k: self._argument(v) for k, v in node.kwargs.items() if v is not None and not isinstance(v, TYPES)}
        if name == "index_put":
            return self._put(node, arguments)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            name = f"n_{name.strip('_')}"
        elif name == "_to_copy":
            return self._converted(node)
        if name not in OPERATIONS | OF_LOOPS:
            raise CannotTrace(f"a page has no operation {name}")
        return self._add([name, arguments, *([keywords] if keywords else [])])

    def _put(self, node: Any, arguments: list[Any]) -> int:
        """Return the row of numbers that are written where a mask is true, or added at places (a lookup's gradient)."""
        (mask,) = node.args[1]
        if len(node.args) > 3 and node.args[3] and mask.meta["val"].dtype is not torch.bool:
            return self._add(["index_put", arguments])
        if mask.meta["val"].dtype is not torch.bool or node.kwargs.get("accumulate") or len(node.args) > 3:
            raise CannotTrace("numbers are written at places that are counted")
        return self._add(["where", [arguments[1][0], arguments[2], arguments[0]]])

    def _converted(self, node: Any) -> Any:
        """Return the row of another type's numbers: all are float64 in a page, so only fractions and truth change."""
        to, of = node.kwargs.get("dtype"), node.args[0].meta.get("val")
        whole = (torch.long, torch.int, torch.bool)
        if to is torch.bool:
            return self._add(["ne", [self._argument(node.args[0]), 0]])
        if to in whole and (of is None or of.dtype not in whole):
            return self._add(["trunc", [self._argument(node.args[0])]])
        return self.place[node.args[0]]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return {"r": self.place[value]}
        if isinstance(value, list | tuple):
            return [self._argument(each) for each in value]
        if isinstance(value, float) and math.isnan(value):
            return "NaN"
        if isinstance(value, float):
            return {"inf": math.copysign(1, value)} if math.isinf(value) else value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
            return {"inf": math.copysign(1, value)}  # "to the end" of a slice
        return value if value is None or isinstance(value, bool | int | str) else None


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")


def _pruned(rows: list[list[Any]], outputs: dict[str, int]) -> Program:
    """Return the rows that outputs need, each after what it needs itself, numbered anew.

    The order comes from the outputs alone: looking at a tensor's size meanwhile, as a type checker does, changes nothing.
    """
    new: dict[int, int] = {}
    stack = list(reversed(outputs.values()))
    while stack:
        row = stack[-1]
        operation, *told = rows[row]
        needs = [] if operation in ("input", "const") else _references(told)
        missing = [each for each in needs if each not in new]
        if missing:
            stack += reversed(missing)
        else:
            stack.pop()
            new.setdefault(row, len(new))
    kept = [rows[row] if rows[row][0] in ("input", "const") else _renumbered(rows[row], new) for row in new]
    return {"rows": kept, "outputs": {name: new[row] for name, row in outputs.items()}}


def _references(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [value["r"]] if "r" in value else [r for each in value.values() for r in _references(each)]
    return [r for each in value for r in _references(each)] if isinstance(value, list) else []


def _renumbered(value: Any, new: Mapping[int, int]) -> Any:
    if isinstance(value, dict):
        return {"r": new[value["r"]]} if "r" in value else {k: _renumbered(v, new) for k, v in value.items()}
    return [_renumbered(each, new) for each in value] if isinstance(value, list) else value
