"""What a piece is called, what it is there for, and its formula as text: data beside the code, which no docstring has to give."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from rlviz.pieces.formula import read

Piece = TypeVar("Piece", bound=Callable[..., Any])


@runtime_checkable
class Explained(Protocol):
    """A piece that says what it is there for."""

    why: str


def says(*, why: str | None = None, formula: str | None = None) -> Callable[[Piece], Piece]:
    """Return a decorator that gives a piece, a function or a class, its words.

    why: what it is there for, in a sentence, as lists of differences give it. formula: in the names of its arguments and
    parameters, with + − · / and min, max, clip, exp, log, tanh, sqrt, abs, sg; of bounds both limits, with a comma between them.
    The inspector fills in numbers, `rlviz.formulas` typesets it, and the docstring quotes it. Where a piece looks at more than
    one token, other names stand for what it makes of them: reward, mean, std, G (of a group), mean_log_ratio, length (of a
    response), B, tokens (how many the loss sees). The call of a piece, a parameter of this one or a function beside it, stands
    for that one's formula. Names of its own are defined behind semicolons, "exp(−x); x = ratio − 1"; comparisons, "a if b else c"
    and functions such as sum and mean (over a response's tokens) and sigmoid are typeset, and not worked out. Raises ValueError
    for a text that is no formula.
    """
    if formula is not None:
        read(formula)

    def give(piece: Piece) -> Piece:
        if why is not None:
            piece.why = why  # type: ignore[attr-defined]
        if formula is not None:
            piece.formula = formula  # type: ignore[attr-defined]
            if piece.__doc__:
                first, *more = inspect.cleandoc(piece.__doc__).split("\n\n")
                quoted = "    " + formula.replace("; ", "\n    ")
                piece.__doc__ = "\n\n".join([first, quoted, *more])
        return piece

    return give


def label(piece: Any) -> str:
    """Return a piece in a few words: a dataclass's own str, a function's name with spaces, – for None."""
    if piece is None:
        return "–"
    return piece.__name__.replace("_", " ") if hasattr(piece, "__name__") else str(piece)


def reason(piece: Any) -> str:
    """Return in a line what the piece is there for: its `why`, else the first paragraph of a docstring if it has one."""
    if isinstance(piece, Explained):
        return piece.why
    text = inspect.getdoc(piece if hasattr(piece, "__name__") else type(piece)) or "(it does not say)"
    return " ".join(text.split("\n\n")[0].split())
