"""Formulas that pieces have as text, with a token's numbers in them; and what the loss does to a token, in a sentence.

No formula is repeated here: a piece's `formula` is read, and filled in. A text with places for numbers, such as
"{ratio} · {advantages!}", is a template; behind "!" a negative number stands in brackets.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from types import CodeType
from typing import Any

from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.words import Written, clauses, parsed
from rlviz.types import TokenRecord

FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "clip": lambda x, low, high: min(max(x, low), high),
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "sqrt": math.sqrt,
    "abs": abs,
    "sg": float,  # stops a gradient, and leaves the value
}
ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div
PRINTED = str.maketrans({"*": "·", "-": "−"})
NEGATIVE = re.compile(r"(?:(?<=[·/+−] )|(?<=−))−[^\s,()]+")  # a number behind a sign
BEHIND_A_SIGN = re.compile(r"(?:(?<=[·/+−] )|(?<=−))\{(\w+)\}")
PLACE = re.compile(r"\{(\w+)(!?)\}")
SAME = 1e-5  # records are float32


def shown(value: float, decimals: int = 3) -> str:
    """Return a number as one reads it: 1.310, −0.0312, 1.2e−05, 10, ∞, not a number."""
    if math.isnan(value):
        text = "not a number"
    elif math.isinf(value):
        text = "∞" if value > 0 else "-∞"
    elif value == round(value):
        text = f"{value + 0.0:.0f}"  # −0.0 is 0
    else:
        text = f"{value:.{decimals}f}" if abs(value) >= 0.0995 else f"{value:.3g}"
    return text.replace("-", "−")


def decimals_for(token: TokenRecord) -> int:
    """Return with how many decimals, from 3 to 6, the token's ratio, its limits and 1 read differently where they differ."""
    limits = [token.lower] if token.upper is None else [token.lower, token.upper]
    pairs = [(a, b) for a, b in combinations([1.0, token.ratio, *limits], 2) if abs(a - b) > 1e-6]
    return next((d for d in range(3, 6) if all(f"{a:.{d}f}" != f"{b:.{d}f}" for a, b in pairs)), 6)


def filled(template: str, numbers: Mapping[str, str]) -> str:
    """Return a template with numbers, as they are shown, in its places."""
    return PLACE.sub(lambda place: _bracketed(numbers[place[1]]) if place[2] else numbers[place[1]], template)


@dataclass(frozen=True)
class Formula:
    """An expression of numbers, names and functions, as in "min(ratio · advantages, clip(ratio, lower, upper) · advantages)"."""

    node: ast.expr

    @classmethod
    def read(cls, text: str, names: Collection[str]) -> Formula | None:
        """Return the expression in these names that `text` is, None where it is none."""
        found = cls.read_all(text, names)
        return found[0] if len(found) == 1 else None

    @classmethod
    def read_all(cls, text: str, names: Collection[str]) -> tuple[Formula, ...]:
        """Return the expressions, with commas between them, in these names that `text` is; () where it is something else."""
        try:
            node = parsed(text)
        except ValueError:
            return ()
        nodes = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(map(cls, nodes)) if all(_is_expression(part, names) for part in nodes) else ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in it that stand for numbers, in the order in which it has them."""
        found = [part for part in ast.walk(self.node) if isinstance(part, ast.Name) and part.id not in FUNCTIONS]
        return tuple(dict.fromkeys(part.id for part in sorted(found, key=lambda part: part.col_offset)))

    def value(self, names: Mapping[str, float]) -> float:
        """Return what it comes to."""
        return eval(self._code, {"__builtins__": {}}, {**names, **FUNCTIONS})

    @cached_property
    def _code(self) -> CodeType:
        return compile(ast.Expression(self.node), "formula", "eval")  # arithmetic alone: `_is_expression` let it pass

    def text(self) -> str:
        """Return it in words."""
        return ast.unparse(self.node).translate(PRINTED)

    def template(self, known: Mapping[str, float] | None = None) -> str:
        """Return it with places for the numbers of its names; those that are known stand there."""
        text = ast.unparse(_WithPlaces(known or {}).visit(deepcopy(self.node))).translate(PRINTED)
        return BEHIND_A_SIGN.sub(r"{\1!}", NEGATIVE.sub(lambda number: f"({number[0]})", text))

    @cached_property
    def arguments(self) -> tuple[Formula, ...]:
        """What its outermost function is called with; () where it has none, and where they are numbers and names already."""
        parts = self.node.args if isinstance(self.node, ast.Call) else []
        return () if all(isinstance(part, ast.Name | ast.Constant) for part in parts) else tuple(map(Formula, parts))

    @property
    def function(self) -> str:
        """The name of its outermost function."""
        assert isinstance(self.node, ast.Call)
        return ast.unparse(self.node.func)


class _WithPlaces(ast.NodeTransformer):
    """Puts places, or numbers that are known, as they are shown, where names are."""

    def __init__(self, known: Mapping[str, float]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(shown(self.known[node.id]) if node.id in self.known else f"{{{node.id}}}")

    def visit_Call(self, node: ast.Call) -> ast.Call:
        return ast.Call(node.func, [self.visit(part) for part in node.args], [])


def _is_expression(node: ast.expr, names: Collection[str]) -> bool:
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.Name(id=name):
            return name in names
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_expression(operand, names)
        case ast.BinOp(left=left, op=op, right=right):
            return isinstance(op, ARITHMETIC) and _is_expression(left, names) and _is_expression(right, names)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
            return name in FUNCTIONS and all(_is_expression(part, names) for part in parts)
    return False


def formulas_of(piece: Any, names: Collection[str]) -> tuple[Formula, ...]:
    """Return the piece's formula, of bounds two; () where it has none, or none in these names."""
    return Formula.read_all(clauses(str(piece.formula))[0], names) if isinstance(piece, Written) else ()


def gradient_in_words(
    algorithm: PolicyGradient | None, token: TokenRecord, kl_slope: float | None = None
) -> tuple[str, dict[str, str]]:
    """Say whether the token's gradient is cut and why, else what it is, and which way it goes: a template, its numbers.

    kl_slope: ∂KL/∂log π of the penalty in the loss, where that is known.
    """
    if token.observed:
        return "It is not in the loss: the task's environment wrote it, and the policy only read it.", {}
    if not token.weight:
        return "It is not in the loss: its group was not selected, or its response was left out.", {}
    decimals = decimals_for(token)
    numbers = {
        "size": shown(abs(token.push)),
        "ratio": shown(token.ratio, decimals),
        "lower": shown(token.lower, decimals),
        "upper": "∞" if token.upper is None else shown(token.upper, decimals),
        "weight": shown(token.weight),
    }
    push = f"it is pushed {'up' if token.push > 0 else 'down'} by {{size}}"
    if token.clipped:
        others = "The KL term" if algorithm is not None and algorithm.kl_in_loss else "The rest of the loss"
        rest = f" {others} still counts: {push}." if token.push else ""
        return f"Its gradient is cut: {_why_cut(token)}.{rest}", numbers
    if not token.push:
        return "Its advantage is 0, so it is not pushed." if not token.advantage else "It is not pushed.", numbers
    only_kl = algorithm is not None and algorithm.kl_in_loss and not token.advantage
    if only_kl:
        return f"A is 0: the KL term alone moves it, {push}.", numbers
    slope = token.push / token.weight
    numbers["slope"] = shown(slope, decimals)
    how = "by log π is "
    if algorithm is not None and algorithm.kl_in_loss:
        how = "∂(J − KL)/∂log π, the slope and not the value, is "
        if kl_slope is not None:
            how += "{slope_j} − {slope_kl!} = "
            numbers |= {"slope_j": shown(slope + kl_slope, decimals), "slope_kl": shown(kl_slope, decimals)}
    elif algorithm is not None:
        how = "∂J/∂log π = ratio · ∂J/∂ratio = {ratio} · {slope_by_ratio!} = "
        numbers["slope_by_ratio"] = shown(slope / token.ratio, decimals)
    return f"Its gradient {how}{{slope}}; times its weight {{weight}}, {push}.", numbers


def _why_cut(token: TokenRecord) -> str:
    sign = "A > 0" if token.advantage > 0 else "A < 0"
    if token.advantage > 0 and token.upper is not None and token.ratio > token.upper:
        return f"the ratio {{ratio}} is above the upper limit {{upper}} and {sign}"
    if token.advantage < 0 and token.ratio < token.lower:
        return f"the ratio {{ratio}} is below the lower limit {{lower}} and {sign}"
    return f"the surrogate is flat at the ratio {{ratio}} where {sign}"


def _bracketed(number: str) -> str:
    return f"({number})" if number.startswith("−") else number
