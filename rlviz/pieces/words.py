"""A piece's name, its reason and its formula as text: data beside the code, which needs no docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from rlviz.pieces.formula import parse_formula

Piece = TypeVar("Piece", bound=Callable[..., Any])


def explained(*, why: str | None = None, formula: str | None = None) -> Callable[[Piece], Piece]:
    """Return a decorator that gives a piece, a function or a class, its reason and its formula.

    why: the reason for the piece, in a sentence. formula: in the names of its arguments and parameters, with + − · / and min,
    max, clip, exp, log, tanh, sqrt, abs, sg; of bounds both limits, with a comma between them. The inspector fills in numbers,
    `rlviz.formulas` typesets it, and the docstring quotes it. Where a piece looks at more than one token, these names stand
    for statistics: reward, mean, std, G (of a group), mean_log_ratio, length (of a response), B, tokens (of the batch). The
    call of a piece, a parameter of this one or a function beside it, stands for that one's formula. Further names are defined
    behind semicolons, "exp(−x); x = ratio − 1"; comparisons, "a if b else c" and functions such as sum and mean (over a
    response's tokens) and sigmoid are typeset, not evaluated. Raises ValueError for a text that is no formula.
    """
    if formula is not None:
        parse_formula(formula)

    def decorate(piece: Piece) -> Piece:
        if why is not None:
            piece.why = why  # type: ignore[attr-defined]
        if formula is not None:
            piece.formula = formula  # type: ignore[attr-defined]
            if piece.__doc__:
                first, *more = inspect.cleandoc(piece.__doc__).split("\n\n")
                quoted = "    " + formula.replace("; ", "\n    ")
                piece.__doc__ = "\n\n".join([first, quoted, *more])
        return piece

    return decorate


def label(piece: Any) -> str:
    """Return a piece's short name: a dataclass's own str, a function's name with spaces, – for None."""
    if piece is None:
        return "–"
    return piece.__name__.replace("_", " ") if hasattr(piece, "__name__") else str(piece)


def reason(piece: Any) -> str:
    """Return the reason for a piece, in a line: its `why`, else the first paragraph of its docstring."""
    if isinstance(why := getattr(piece, "why", None), str):
        return why
    text = inspect.getdoc(piece if hasattr(piece, "__name__") else type(piece)) or "(it does not say)"
    return " ".join(text.split("\n\n")[0].split())
