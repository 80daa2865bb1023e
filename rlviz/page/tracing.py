"""Tracing: a function of tensors, recorded by torch, as a program of rows that `run.js` runs in a page.

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
from torch._guards import TracingContext, tracing as torch_tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx
from torch.overrides import TorchFunctionMode

from rlviz.page.picture import finite
from small_models.host import recording

Curve = Callable[..., Mapping[str, Tensor]]
Program = dict[str, Any]
# Operations that leave the numbers as they are: their row is that of their argument.
ALIASES = {"alias", "clone", "detach", "lift_fresh_copy", "lift_fresh", "contiguous"}
OPERATIONS = frozenset(Path(__file__).with_name("operations.txt").read_text(encoding="utf-8").split())  # of run.js
LOOP_OPERATIONS = {"loop_start", "loop", "loop_end"}
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "uniform")
VIEWS = {"alias", "as_strided", "detach", "diagonal", "expand", "permute", "select", "slice", "split", "squeeze"}
VIEWS |= {"t", "transpose", "unbind", "unfold", "unsqueeze", "view"}
TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format)  # of which a page has one each
WHOLE = {torch.ops.aten.mv.default, torch.ops.aten.dot.default}  # else each is a product of all places and a sum
READS = {
    getattr(Tensor, name)
    for name in ("__bool__", "__float__", "__int__", "__index__", "item", "tolist", "numpy", "__array__")
}
# A loop is two operations: the state that each round begins with, and the results of all rounds, or the last state; the rows
# between are run again. While they are recorded they run once, which tells the shapes.
LOOPS = torch.library.Library("rlviz", "DEF")
LOOPS.define("loop_start(Tensor state) -> Tensor")
LOOPS.define("loop(Tensor start, Tensor after, Tensor result, int times, bool in_slices) -> Tensor")
LOOPS.define("loop_end(Tensor start, Tensor after, Tensor times) -> Tensor")
LOOPS.impl("loop_start", lambda state: state.clone(), "CompositeExplicitAutograd")
LOOPS.impl("loop", lambda start, after, result, times, _: torch.stack([result] * times), "CompositeExplicitAutograd")
LOOPS.impl("loop_end", lambda start, after, times: after.clone(), "CompositeExplicitAutograd")


class CannotTrace(ValueError):
    """A curve does what a page cannot follow; the message says what, and where."""


class _NumbersMayBeTensors(TorchFunctionMode):
    """Lets a piece's number be a 0-d tensor where torch asks for a number, and lets none be read out of a recorded tensor."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # What cannot be recorded is refused with its line; a message that is formatted early gets no number.
        if fn in READS and _is_recorded(args[0]):
            raise CannotTrace(f"a number is read out of a tensor, as an `if` does{_caller_line()}")
        if fn is Tensor.__format__ and _is_recorded(args[0]):
            return "…"
        # torch wants a number in these places; a control is a 0-d tensor, and stays one in the program.
        if fn is torch.full_like and len(args) > 1 and isinstance(args[1], Tensor):
            return args[1].expand_as(args[0])
        if fn is Tensor.new_tensor and isinstance(args[1], Tensor):
            return args[1]
        if fn in (Tensor.std, torch.std) and len(args) < 2 and not {"dim", "correction"} & set(kwargs):
            return args[0].var().sqrt()
        place = args[1] if fn is Tensor.__getitem__ else None
        if isinstance(place, Tensor) and place.dim() == 0 and place.dtype is torch.long:
            return args[0][place.unsqueeze(0)].squeeze(0)
        return fn(*args, **kwargs)


def _is_recorded(value: object) -> bool:
    mode = get_proxy_mode()
    return mode is not None and get_proxy_slot(value, mode.tracer, None) is not None  # type: ignore[call-overload]


def _caller_line() -> str:
    """Return the line of the caller's code that is running: ", at mine.py:3: if ratio > 1:"."""
    skipped = (str(Path(torch.__file__).parent), __file__)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(skipped):
            line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
            return f", at {Path(frame.filename).name}:{frame.lineno}: {line}"
    return ""


@contextmanager
def tracing() -> Iterator[None]:
    """Let pieces take 0-d tensors for their numbers, unchecked, while this context lasts."""
    with recording(), _NumbersMayBeTensors():
        yield


def evaluate(curve: Curve, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the curve's outputs by torch, as a page's program computes them. inputs: numbers and tensors, by name.

    Other than in a page, pieces check their arguments: raises what they raise.
    """
    with _NumbersMayBeTensors():
        outputs = curve(**{name: _tensor(value) for name, value in inputs.items()})
    return {name: value.detach() for name, value in outputs.items()}


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.double)


def repeated(
    step: Callable[[Tensor], tuple[Tensor, Tensor]], state: Tensor, times: int, *, in_slices: bool = False
) -> Tensor:
    """Return the results of `times` rounds of a loop, stacked; step: state → (next state, result).

    In a program the round stands once, however often it runs; the state keeps its first shape. in_slices: a page may draw before
    all rounds are done, with NaN for the missing ones: for a long loop, such as a training.
    """
    # While it is recorded, the step runs once, between the two marks of a loop.
    if get_proxy_mode() is not None:
        start = torch.ops.rlviz.loop_start(state)
        return torch.ops.rlviz.loop(start, *step(start), times, in_slices)
    results = []
    for _ in range(times):
        state, result = step(state)
        results.append(result)
    return torch.stack(results)


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

    controls, data: example values. free: whether sizes of the data may change; sizes that are equal in the examples are then one
    size, so give independent ones different numbers.
    Raises CannotTrace for what a page cannot follow.
    """
    examples = {name: _tensor(value) for name, value in {**controls, **(data or {})}.items()}
    keys: list[str] = []

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        with tracing():
            outputs = curve(**dict(zip(examples, tensors, strict=True)))
        keys[:] = list(outputs)
        return tuple(outputs.values())

    # Free sizes are symbols while it is recorded, and rows of the program afterwards.
    how: dict[str, Any] = {"tracing_mode": "symbolic", "_allow_non_fake_inputs": True} if free else {}
    # One tensor that stands for two examples would become one input.
    separate = [value.clone() for value in examples.values()]
    try:
        with _fast_fake_tensors(free):
            graph = make_fx(flat, decomposition_table=_decompositions(), **how)(*separate)
    except CannotTrace:
        raise
    except Exception as error:  # a rule of one's own can do anything, and torch says so in many ways
        reason = str(error).split("\n")[0][:160]
        raise CannotTrace(f"{type(error).__name__}: {reason}") from error
    # A gradient leaves rows behind that no output needs.
    graph.graph.eliminate_dead_code()
    return _Rows(graph, list(examples)).program(keys)


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    return {op: how for op, how in core_aten_decompositions().items() if op not in WHOLE}


@contextmanager
def _fast_fake_tensors(free: bool) -> Iterator[None]:
    """Let torch record twice as fast while this context lasts, with the same result.

    Torch would make a new mode for each operation to keep a shape in, unless it knows of one; and where sizes are free, it would
    look up each operation among the earlier ones, which takes longer than to find its shape anew.
    """
    from torch._dynamo import config  # which takes a second, and make_fx needs it too

    context = None if free else TracingContext(FakeTensorMode())
    with torch_tracing(context), config.patch(fake_tensor_cache_enabled=False):
        yield


class _Rows:
    """The rows of a recorded graph."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Iterable[str]) -> None:
        self.graph, self.inputs = graph, iter(inputs)
        self.rows: list[list[Any]] = []
        self.row_of: dict[Any, Any] = {}  # node → its row; None for one that has none
        self.known: dict[str, int] = {}  # a row's text → its number, so that what is computed twice is computed once

    def program(self, keys: list[str]) -> Program:
        """Return the rows as a program whose outputs have these names, in the graph's order."""
        outputs: dict[str, int] = {}
        for node in self.graph.graph.nodes:
            if node.op == "output":
                outputs = dict(zip(keys, (self.row_of[value] for value in node.args[0]), strict=True))
            elif node.op == "placeholder":
                self.row_of[node] = self._add(["input", next(self.inputs)])
            elif node.op == "get_attr":
                value = getattr(self.graph, node.target)
                numbers = [finite(x) for x in value.double().flatten().tolist()]
                self.row_of[node] = self._add(["const", list(value.shape), numbers])
            else:
                self._call(node)
        return _pruned(self.rows, outputs)

    def _add(self, row: list[Any]) -> int:
        key = json.dumps(row)
        if key not in self.known:
            self.known[key] = len(self.rows)
            self.rows.append(row)
        return self.known[key]

    def _call(self, node: Any) -> None:
        """Add the row of an operation. One that writes into a tensor, such as add_, is that tensor's row from here on."""
        name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
        if not name.endswith("_") or name.endswith("__"):
            self.row_of[node] = self._row(node, name)
            return
        target = node.args[0]
        if target.op == "call_function" and str(target.target).split(".")[1] in VIEWS:
            raise CannotTrace(f"numbers are written into a part of a tensor ({name})")
        self.row_of[target] = self.row_of[node] = self._row(node, name[:-1])

    def _row(self, node: Any, name: str) -> Any:
        if name in ALIASES:
            return self.row_of[node.args[0]]
        # A page would draw other numbers at every move; recipes (`Draws`) are inputs that stay.
        if name.startswith(RANDOM):
            raise CannotTrace("random numbers are drawn inside: they must be an input")
        arguments = [self._argument(argument) for argument in node.args]
        keywords = {k: self._argument(v) for k, v in node.kwargs.items() if v is not None and not isinstance(v, TYPES)}
        if name == "index_put":
            return self._index_put(node, arguments)
        # A size is a number, not an array: run.js has operations of its own for those.
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            name = f"n_{name.strip('_')}"
        elif name == "_to_copy":
            return self._convert(node)
        if name not in OPERATIONS | LOOP_OPERATIONS:
            raise CannotTrace(f"a page has no operation {name}")
        return self._add([name, arguments, *([keywords] if keywords else [])])

    def _index_put(self, node: Any, arguments: list[Any]) -> int:
        """Return the row of numbers that are written where a mask is true, or added at indices (a lookup's gradient)."""
        (mask,) = node.args[1]
        if len(node.args) > 3 and node.args[3] and mask.meta["val"].dtype is not torch.bool:
            return self._add(["index_put", arguments])
        if mask.meta["val"].dtype is not torch.bool or node.kwargs.get("accumulate") or len(node.args) > 3:
            raise CannotTrace("numbers are written at places that are counted")
        return self._add(["where", [arguments[1][0], arguments[2], arguments[0]]])

    def _convert(self, node: Any) -> Any:
        """Return the row of another type's numbers: all are float64 in a page, so only fractions and truth change."""
        dtype, before = node.kwargs.get("dtype"), node.args[0].meta.get("val")
        integers = (torch.long, torch.int, torch.bool)
        if dtype is torch.bool:
            return self._add(["ne", [self._argument(node.args[0]), 0]])
        if dtype in integers and (before is None or before.dtype not in integers):
            return self._add(["trunc", [self._argument(node.args[0])]])
        return self.row_of[node.args[0]]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            return {"r": self.row_of[value]}
        if isinstance(value, list | tuple):
            return [self._argument(item) for item in value]
        if isinstance(value, float) and math.isnan(value):
            return "NaN"
        if isinstance(value, float):
            return {"inf": math.copysign(1, value)} if math.isinf(value) else value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
            return {"inf": math.copysign(1, value)}  # "to the end" of a slice
        return value if value is None or isinstance(value, bool | int | str) else None


def _pruned(rows: list[list[Any]], outputs: dict[str, int]) -> Program:
    """Return the rows that outputs need, each after the rows that it reads, numbered anew.

    The order comes from the outputs alone: looking at a tensor's size meanwhile, as a type checker does, changes nothing.
    """

    def references(value: Any) -> list[int]:
        if isinstance(value, dict):
            return [value["r"]] if "r" in value else [row for part in value.values() for row in references(part)]
        return [row for part in value for row in references(part)] if isinstance(value, list) else []

    def renumbered(value: Any) -> Any:
        if isinstance(value, dict):
            return {"r": new[value["r"]]} if "r" in value else {key: renumbered(part) for key, part in value.items()}
        return [renumbered(part) for part in value] if isinstance(value, list) else value

    # Depth first from the outputs: a row gets its number when all rows that it reads have theirs.
    new: dict[int, int] = {}
    stack = list(reversed(outputs.values()))
    while stack:
        row = stack[-1]
        operation, *arguments = rows[row]
        needs = [] if operation in ("input", "const") else references(arguments)
        missing = [need for need in needs if need not in new]
        if missing:
            stack += reversed(missing)
        else:
            stack.pop()
            new.setdefault(row, len(new))
    pruned = [rows[row] if rows[row][0] in ("input", "const") else renumbered(rows[row]) for row in new]
    return {"rows": pruned, "outputs": {name: new[row] for name, row in outputs.items()}}
