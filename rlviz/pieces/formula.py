"""A piece's formula: a text, parsed to a tree of names, numbers, operators and calls, and evaluated with numbers.

The text stands beside the piece (`rlviz.pieces.words.explained`), and the docstring quotes it. The mathematics of
`rlviz.formulas` and the inspector's lines with a token's numbers are made from its tree.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import math
import operator
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import reduce
from typing import Any, Literal

from small_models.checks import short_repr

Mark = Literal["", "all", "head"]
PYTHON = str.maketrans({"·": "*", "−": "-", "²": "**2"})
SIGNS: dict[type, str] = {ast.Gt: ">", ast.GtE: "≥", ast.Lt: "<", ast.LtE: "≤", ast.Eq: "="}
COMPARE = {">": operator.gt, "≥": operator.ge, "<": operator.lt, "≤": operator.le, "=": operator.eq}
# functions that are written without their name → number of arguments
ARGUMENTS = {"sg": 1, "abs": 1, "sqrt": 1, "groups_with": 1, "choose": 2}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "clip": lambda x, low, high: min(max(x, low), high),
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "sqrt": math.sqrt,
    "abs": abs,
    "sg": float,  # stops a gradient, and leaves the value
    "if": lambda body, test, other: body if test else other,
}


@dataclass(frozen=True)
class Node:
    """A part of a formula.

    op: "name", "number", "call", "+", "·", "/", "^", "−" (of one part), "if", "is" (a comparison), "or", or "list". text: of a
    name, a number, a function, the signs of a comparison. value: of a number or a parameter, or the piece that a call stands for.
    slot: the slot of its piece. mark: "all" where the node differs from the tree that it was compared with, "head" where it does
    without its parts.
    """

    op: str
    parts: tuple[Node, ...] = ()
    text: str = ""
    value: Any = None
    slot: str = field(default="", compare=False)
    mark: Mark = field(default="", compare=False)

    def walk(self) -> Iterator[Node]:
        """Yield the node and all nodes below it, from left to right."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def evaluate(self, numbers: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] = FUNCTIONS) -> Any:
        """Return the value of the node, for numbers or tensors by name. Raises KeyError for an unknown name or function."""
        parts = [part.evaluate(numbers, functions) for part in self.parts]
        match self.op:
            case "name":
                return numbers[self.text]
            case "number":
                return self.value
            case "+":
                return sum(parts[1:], parts[0])
            case "·":
                return math.prod(parts)
            case "−":
                return -parts[0]
            case "/":
                return parts[0] / parts[1]
            case "^":
                return parts[0] ** parts[1]
            case "or":
                return reduce(operator.or_, parts)
            case "is":
                pairs = zip(self.text.split(), parts, parts[1:], strict=False)
                return reduce(operator.and_, (COMPARE[sign](a, b) for sign, a, b in pairs))
        return functions["if" if self.op == "if" else self.text](*parts)


def chain(op: str, parts: Iterable[Node], slot: str = "") -> Node:
    """Return the sum, or the product, of these parts, flattened; a single part as it is."""
    flat = tuple(inner for part in parts for inner in terms_of(part, op))
    return flat[0] if len(flat) == 1 else Node(op, flat, slot=slot)


def terms_of(node: Node, op: str) -> tuple[Node, ...]:
    """Return the terms of a sum, the factors of a product; another node as a single term."""
    return node.parts if node.op == op else (node,)


@dataclass(frozen=True)
class Formula:
    """A formula. main: its value, of bounds a list of two. defined: (left, right) of each definition behind a semicolon."""

    main: Node
    defined: tuple[tuple[Node, Node], ...] = ()


def parse_formula(
    text: str, pieces: Mapping[str, Any] | None = None, replacements: Mapping[str, Node] | None = None
) -> Formula:
    """Return a text as a formula. Raises ValueError for a text that is none.

    pieces: by the names under which the text calls them; a call of one is replaced by its formula. replacements: name → node that
    replaces it.
    """
    main, *clauses = text.split(";")
    parser = _Parser(pieces or {}, replacements or {})
    try:
        result, definitions = parser.parse(main), []
        for clause in clauses:
            left, _, right = clause.partition(" = ")
            definitions.append((_Parser({}, {}).parse(left), parser.parse(right)))
    except RecursionError as error:
        raise ValueError(f"formula must have fewer terms; got {len(text)} characters") from error
    return Formula(result, (*definitions, *parser.defined))


def formula_of(piece: Any, *arguments: Node) -> Formula | None:
    """Return a piece's formula, with these arguments in its call; None where it has none, or one that cannot be parsed."""
    if not isinstance(text := getattr(piece, "formula", None), str):
        return None
    # The text may call the piece's parameters, and functions beside it in its module.
    home = piece if hasattr(piece, "__qualname__") else type(piece)
    module = vars(sys.modules[home.__module__]) if home.__module__ in sys.modules else {}
    beside = {name: value for name, value in module.items() if value is not home and value is not piece}
    parameters: dict[str, Any] = {f.name: getattr(piece, f.name) for f in fields(piece)} if is_dataclass(piece) else {}
    replacements = dict(zip(inspect.signature(piece).parameters, arguments, strict=False)) if arguments else {}
    try:
        return parse_formula(text, ChainMap(parameters, beside), replacements)
    except ValueError:
        return None


def call_of_name(piece: Any, arguments: Sequence[Node], slot: str = "") -> Node:
    """Return the call of a piece by its name, for a piece without a formula."""
    return Node("call", tuple(arguments), function_name(piece), piece, slot)


def function_name(piece: Any) -> str:
    """Return a name for a piece under which a formula may call it: an identifier, whatever its own name is."""
    name = re.sub(r"\W+", "_", str(getattr(piece, "__name__", type(piece).__name__))).strip("_")[:40]
    return f"{name}_" if keyword.iskeyword(name) else name if name.isidentifier() else "own_rule"


class _Parser:
    """Parses the clauses of one formula. defined: definitions in the formulas of the pieces that it calls."""

    def __init__(self, pieces: Mapping[str, Any], replacements: Mapping[str, Node]) -> None:
        self.pieces, self.replacements = pieces, replacements
        self.defined: list[tuple[Node, Node]] = []

    def parse(self, text: str) -> Node:
        try:
            tree = ast.parse(" ".join(text.translate(PYTHON).split()), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: brackets without end
            raise ValueError(
                f"formula must be an expression, such as ratio · advantages; got {short_repr(text)}"
            ) from error
        return self.convert(tree)

    def convert(self, tree: ast.expr) -> Node:
        match tree:
            case ast.Name(id=name):
                return self.replacements.get(name, Node("name", text=name))
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return Node("number", text=f"{number:g}", value=number)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return Node("−", (self.convert(inner),))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return chain("+", (self.convert(left), self.convert(right)))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return chain("+", (self.convert(left), Node("−", (self.convert(right),))))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return chain("·", (self.convert(left), self.convert(right)))
            case ast.BinOp(left=left, op=ast.Div() | ast.Pow() as op, right=right):
                return Node("/" if isinstance(op, ast.Div) else "^", (self.convert(left), self.convert(right)))
            case ast.IfExp(test=test, body=body, orelse=other):
                return Node("if", tuple(map(self.convert, (body, test, other))))
            case ast.BoolOp(op=ast.Or(), values=parts):
                return Node("or", tuple(map(self.convert, parts)))
            case ast.Compare(left=left, ops=ops, comparators=parts) if all(type(op) in SIGNS for op in ops):
                return Node("is", tuple(map(self.convert, (left, *parts))), " ".join(SIGNS[type(op)] for op in ops))
            case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
                return self.convert_call(name, tuple(map(self.convert, parts)))
            case ast.Tuple(elts=parts):
                return Node("list", tuple(map(self.convert, parts)))
        raise ValueError(
            f"formula must be made of names, numbers, + − · / **, comparisons and calls; got {short_repr(ast.unparse(tree))}"
        )

    def convert_call(self, name: str, arguments: tuple[Node, ...]) -> Node:
        if len(arguments) != ARGUMENTS.get(name, len(arguments)):
            raise ValueError(f"formula must give {name} {ARGUMENTS[name]} arguments; got {len(arguments)}")
        if not callable(piece := self.pieces.get(name)):
            return Node("call", arguments, name)
        if (inner := formula_of(piece, *arguments)) is not None:
            self.defined += inner.defined
            return inner.main
        # a function without a formula, such as whiten, has the name by which the text calls it
        return Node("call", arguments, name) if function_name(piece) == name else call_of_name(piece, arguments)
