"""A recorded token's objective, written out: the formula that the surrogate has as text, with the token's numbers in it.

No formula is repeated here. The surrogate's `formula` is read, filled in, and shown only where it gives what the algorithm gives.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import combinations
from typing import Any

import torch

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.slots import CALLS
from rlviz.pieces.words import Written, label
from rlviz.types import Batch, TokenRecord

FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min,
    "max": max,
    "clip": lambda x, low, high: min(max(x, low), high),
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "sqrt": math.sqrt,
    "abs": abs,
}
ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div
PYTHON = str.maketrans({"·": "*", "−": "-"})
PRINTED = str.maketrans({"*": "·", "-": "−"})
NEGATIVE = re.compile(r"(?:(?<=[·/+−] )|(?<=−))−[^\s,()]+")  # a number behind a sign
SAME = 1e-5  # records are float32


def shown(value: float, decimals: int = 3) -> str:
    """Return a number as one reads it: 1.310, −0.0312, 1.2e−05, 10, ∞, not a number."""
    if math.isnan(value):
        text = "not a number"
    elif math.isinf(value):
        text = "∞" if value > 0 else "-∞"
    elif value == round(value):
        text = f"{value:.0f}"
    else:
        text = f"{value:.{decimals}f}" if abs(value) >= 0.0995 else f"{value:.3g}"
    return text.replace("-", "−")


def decimals_for(token: TokenRecord) -> int:
    """Return with how many decimals, from 3 to 6, the token's ratio, its limits and 1 read differently where they differ."""
    limits = [token.lower] if token.upper is None else [token.lower, token.upper]
    pairs = [(a, b) for a, b in combinations([1.0, token.ratio, *limits], 2) if abs(a - b) > 1e-6]
    return next((d for d in range(3, 6) if all(f"{a:.{d}f}" != f"{b:.{d}f}" for a, b in pairs)), 6)


@dataclass(frozen=True)
class Formula:
    """An expression of numbers, names and functions, as in "min(ratio · advantages, clip(ratio, lower, upper) · advantages)"."""

    node: ast.expr

    @classmethod
    def read(cls, text: str, names: Mapping[str, float]) -> Formula | None:
        """Return the expression in these names that `text` is, None where it is none."""
        try:
            node = ast.parse(" ".join(text.translate(PYTHON).split()), mode="eval").body
        except (SyntaxError, ValueError):
            return None
        return cls(node) if _is_expression(node, names) else None

    def value(self, names: Mapping[str, float]) -> float:
        """Return what it comes to."""
        return _value(self.node, names)

    def text(self, names: Mapping[str, float] | None = None, decimals: int = 3) -> str:
        """Return it in words, or with numbers for its names; a negative number behind a sign is in brackets."""
        node = self.node if names is None else _WithNumbers(names, decimals).visit(deepcopy(self.node))
        return NEGATIVE.sub(lambda number: f"({number[0]})", ast.unparse(node).translate(PRINTED))

    def last_step(self, names: Mapping[str, float], decimals: int = 3) -> str | None:
        """Return its outermost function with the arguments worked out, None where it has none."""
        if not isinstance(self.node, ast.Call):
            return None
        numbers = ", ".join(shown(_value(part, names), decimals) for part in self.node.args)
        return f"{ast.unparse(self.node.func)}({numbers})"


class _WithNumbers(ast.NodeTransformer):
    """Puts numbers, as they are shown, in place of names."""

    def __init__(self, names: Mapping[str, float], decimals: int) -> None:
        self.names, self.decimals = names, decimals

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(shown(self.names[node.id], self.decimals))

    def visit_Call(self, node: ast.Call) -> ast.Call:
        return ast.Call(node.func, [self.visit(part) for part in node.args], [])


def _is_expression(node: ast.expr, names: Mapping[str, float]) -> bool:
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


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    """Return what an expression comes to that `_is_expression` let pass, so that it holds nothing but arithmetic."""
    return eval(compile(ast.Expression(node), "formula", "eval"), {"__builtins__": {}}, {**names, **FUNCTIONS})


def formula_of(piece: Any, names: Mapping[str, float]) -> Formula | None:
    """Return the piece's `formula`, None where it has none, or none in these names."""
    return Formula.read(str(piece.formula), names) if isinstance(piece, Written) else None


def written_out(algorithm: PolicyGradient, token: TokenRecord) -> list[str]:
    """Return the token's objective as lines: the formula, the same with numbers, worked out, and its recorded value last.

    A surrogate without a formula in these numbers stands as a function of its arguments. Raises ValueError where the algorithm
    does not give the recorded value.
    """
    decimals, numbers = decimals_for(token), _numbers(token)
    j, penalty = _at_these_numbers(algorithm, token)
    total = j - (penalty or 0.0)
    if not math.isclose(total, token.objective, rel_tol=SAME, abs_tol=SAME):
        raise ValueError(
            f"{algorithm.name} gives {shown(total)} at this token's numbers, its record says {shown(token.objective)}: the run "
            "was trained with another algorithm, or a piece looks at more than one token"
        )
    lines = _surrogate_lines(algorithm.surrogate, numbers, token.objective if penalty is None else j, decimals)
    if penalty is not None:
        arguments = ["logp", *(name for name in CALLS["kl"][1] if name in numbers and algorithm.asks_for("kl", name))]
        given = ", ".join(f"{name} {shown(numbers[name], decimals)}" for name in arguments)
        lines.append(f"KL = [{label(algorithm.kl)}]({given}) = {shown(penalty, decimals)}")
        whole = f"{shown(j, decimals)} − {_bracketed(penalty, decimals)} = {shown(token.objective, decimals)}"
        lines.append(f"J − KL = {whole}")
    return lines


def gradient_in_words(algorithm: PolicyGradient | None, token: TokenRecord) -> str:
    """Say whether the token's gradient is cut and why, else what it is, and which way the token is pushed."""
    if token.observed:
        return "It is not in the loss: the task's environment wrote it, and the policy only read it."
    if not token.weight:
        return "It is not in the loss: its group was not selected, or its response was left out."
    decimals = decimals_for(token)
    push = f"it is pushed {'up' if token.push > 0 else 'down'} by {shown(abs(token.push))}"
    if token.clipped:
        others = "The KL term" if algorithm is not None and algorithm.kl_in_loss else "The rest of the loss"
        rest = f" {others} still counts: {push}." if token.push else ""
        return f"Its gradient is cut: {_why_cut(token, decimals)}.{rest}"
    if not token.push:
        return "Its advantage is 0, so it is not pushed." if not token.advantage else "It is not pushed."
    slope = token.push / token.weight
    how = "by log π is "
    if algorithm is not None and algorithm.kl_in_loss:
        how = "∂(J − KL)/∂log π = "
    elif algorithm is not None:
        parts = f"{shown(token.ratio, decimals)} · {_bracketed(slope / token.ratio, decimals)}"
        how = f"∂J/∂log π = ratio · ∂J/∂ratio = {parts} = "
    return f"Its gradient {how}{shown(slope, decimals)}; times its weight {shown(token.weight)}, {push}."


def _why_cut(token: TokenRecord, decimals: int) -> str:
    ratio, sign = shown(token.ratio, decimals), "A > 0" if token.advantage > 0 else "A < 0"
    if token.advantage > 0 and token.upper is not None and token.ratio > token.upper:
        return f"the ratio {ratio} is above the upper limit {shown(token.upper, decimals)} and {sign}"
    if token.advantage < 0 and token.ratio < token.lower:
        return f"the ratio {ratio} is below the lower limit {shown(token.lower, decimals)} and {sign}"
    return f"the surrogate is flat at the ratio {ratio} where {sign}"


def _bracketed(value: float, decimals: int) -> str:
    text = shown(value, decimals)
    return f"({text})" if text.startswith("−") else text


def _numbers(token: TokenRecord) -> dict[str, float]:
    """Return what a piece may be given of this token: argument's name → number."""
    numbers = {
        "ratio": token.ratio,
        "advantages": token.advantage,
        "lower": token.lower,
        "upper": math.inf if token.upper is None else token.upper,
        "logp": _log(token.new_prob),
        "old_logp": _log(token.old_prob),
    }
    return numbers if token.ref_prob is None else {**numbers, "ref_logp": _log(token.ref_prob)}


def _log(probability: float) -> float:
    return math.log(max(probability, sys.float_info.min))  # a probability of 0 is one that float32 could not hold


def _at_these_numbers(algorithm: PolicyGradient, token: TokenRecord) -> tuple[float, float | None]:
    """Return J as the algorithm gives it at the token's ratio and limits, and the KL penalty taken off it, if there is one."""
    tensors = {name: torch.full((1, 1, 1), number, dtype=torch.double) for name, number in _numbers(token).items()}
    alone = replace(
        algorithm,
        ratio=lambda logp, old_logp, mask: tensors["ratio"],
        bounds=lambda old_logp: (tensors["lower"], tensors["upper"]),
    )
    mask = torch.ones(1, 1, 1, dtype=torch.bool)
    batch = Batch(tensors["old_logp"], tensors["advantages"], mask, tensors.get("ref_logp"))
    j = float(alone.without_kl().objective(tensors["logp"], batch).value)
    return j, j - float(alone.objective(tensors["logp"], batch).value) if algorithm.kl_in_loss else None


def _surrogate_lines(surrogate: Any, numbers: dict[str, float], value: float, decimals: int) -> list[str]:
    parameters = {f.name: getattr(surrogate, f.name) for f in fields(surrogate)} if is_dataclass(surrogate) else {}
    names = {name: number for name, number in (parameters | numbers).items() if isinstance(number, int | float)}
    formula, result = formula_of(surrogate, names), shown(value, decimals)
    if formula is None or not _gives(formula, names, value):
        given = ", ".join(f"{name} {shown(numbers[name], decimals)}" for name in CALLS["surrogate"][0])
        return [f"J = {getattr(surrogate, '__name__', label(surrogate))}({given}) = {result}"]
    steps = [formula.text(names, decimals), formula.last_step(names, decimals), result]
    return [f"J = {formula.text()}", *(f"  = {step}" for step in dict.fromkeys(steps) if step)]


def _gives(formula: Formula, names: dict[str, float], value: float) -> bool:
    try:
        return math.isclose(formula.value(names), value, rel_tol=SAME, abs_tol=SAME)
    except (ArithmeticError, ValueError, TypeError):  # a formula of one's own that cannot be worked out here
        return False
