"""What a piece is called, what it is there for, and its formula as text: data beside the code, which no docstring has to give."""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

Piece = TypeVar("Piece", bound=Callable[..., Any])
PYTHON = str.maketrans({"·": "*", "−": "-", "²": "**2"})


@runtime_checkable
class Explained(Protocol):
    """A piece that says what it is there for."""

    why: str


@runtime_checkable
class Written(Protocol):
    """A piece whose formula is there as text."""

    formula: str


def says(*, why: str | None = None, formula: str | None = None) -> Callable[[Piece], Piece]:
    """Return a decorator that gives a piece, a function or a class, its words.

    why: what it is there for, in a sentence, as lists of differences give it. formula: in the names of its arguments and
    parameters, with + − · / and min, max, clip, exp, log, tanh, sqrt, abs, sg; of bounds both limits, with a comma between them.
    The inspector fills in numbers, `rlviz.formulas` typesets it. Where a piece looks at more than one token, other names stand
    for what it makes of them: reward, mean, std, G (of a group), mean_log_ratio, length (of a response), B, tokens (how many the
    loss sees). Names of its own are defined behind semicolons, "exp(−x); x = ratio − 1"; comparisons, "a if b else c" and
    functions such as sum and mean (over a response's tokens) and sigmoid are typeset, and not worked out.
    """

    def give(piece: Piece) -> Piece:
        if why is not None:
            piece.why = why  # type: ignore[attr-defined]
        if formula is not None:
            piece.formula = formula  # type: ignore[attr-defined]
        return piece

    return give


def parsed(text: str) -> ast.expr:
    """Return a clause of a formula as Python's syntax tree. Raises ValueError for what is no expression."""
    try:
        return ast.parse(" ".join(text.translate(PYTHON).split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: brackets without end
        raise ValueError(f"formula must be an expression, such as ratio · advantages; got {text!r}") from error


def clauses(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the main clause of a formula, and what is defined behind it: (name, expression) for each."""
    main, *rest = text.split(";")
    return main.strip(), tuple(
        (name.strip(), inner.strip()) for name, _, inner in (one.partition(" = ") for one in rest)
    )


def written(piece: Callable[..., Any], *arguments: str) -> str:
    """Return a piece's formula with its arguments, in their order, called so; else the call of its name.

    Its name stands as well for a formula of several clauses.
    """
    called = piece  # for its signature, which a piece with a formula has, but no function in C
    if not isinstance(piece, Written) or ";" in str(piece.formula):
        return f"{function_name(piece)}({', '.join(arguments)})"
    renamed = dict(zip(inspect.signature(called).parameters, arguments, strict=False))
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: renamed.get(word[0], word[0]), str(piece.formula))


def function_name(piece: Any) -> str:
    """Return a name for a piece under which a formula may call it: an identifier, whatever its own name is."""
    name = re.sub(r"\W+", "_", str(getattr(piece, "__name__", type(piece).__name__))).strip("_")[:40]
    return f"{name}_" if keyword.iskeyword(name) else name if name.isidentifier() else "own_rule"


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
