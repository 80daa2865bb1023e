"""An exercise: its answer in a student's words, and the slips that students make, each an edit of that answer.

A table above the answer holds them, each as it is made: what stands in the answer → what is written in its place, further edits
on lines of their own, then what a tutor says, and where it was published, if it was. From one row a slip is run, tested, and
recognised, alone and together with any other.

    * never clipped: return J → return free
      nothing is clipped: use lower and upper.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import torch

from rlviz.lessons.judge import Inputs, Mistake, judge
from rlviz.lessons.verdict import Verdict

Function = Callable[..., Any]
Edit = tuple[str, str]
_GLOBALS = {"math": math, "torch": torch, "F": torch.nn.functional}  # in every slip, beside what its answer uses


@dataclass(frozen=True)
class Slip:
    """A wrong answer, as the edits of the right one.

    edits: (old, new) texts; an old one that is empty stands for the whole last line, and ⏎ in a new one begins a line.
    says: to the student who made it. seen: where it was published.
    """

    name: str
    edits: tuple[Edit, ...]
    says: str
    seen: str = ""

    @property
    def markdown(self) -> str:
        """The edits in Markdown."""
        return ", ".join(
            f"`{old}` → `{new}`" if old and new else f"`{new}`" if new else f"no `{old}`" for old, new in self.edits
        )

    def __and__(self, other: Slip) -> Slip:
        """Return both slips at once."""
        says = f"two things. {self.says} And: {other.says}"
        return Slip(f"{self.name}, and {other.name}", self.edits + other.edits, says)


def read_slips(table: str) -> Iterator[Slip]:
    """Yield the slips of a table: `* name: old → new`, further edits, the words, and `Seen in …` if it was published."""
    for row in textwrap.dedent(table).strip().removeprefix("* ").split("\n* "):
        name, _, text = row.partition(":")
        words = " ".join(line.strip() for line in text.splitlines() if "→" not in line).strip()
        says, _, seen = words.partition(" Seen in ")
        yield Slip(name, read_edits(text), says, seen)


def read_edits(text: str) -> tuple[Edit, ...]:
    """Return the edits of a text, one on each line that has an arrow."""
    halves = [line.partition("→") for line in text.splitlines() if "→" in line]
    return tuple((old.strip(), new.strip()) for old, _, new in halves)


def read_source(function: Function) -> str:
    """Return the source of a function without its decorators."""
    source = inspect.getsource(inspect.unwrap(function))
    begins = re.search(r"^ *def ", source, re.MULTILINE)
    assert begins is not None
    return textwrap.dedent(source[begins.start() :]).rstrip()


def apply_edits(source: str, edits: Sequence[Edit]) -> str:
    """Return a function's source with all edits made at once.

    Raises ValueError where its body does not hold a text that is edited, and where two edits touch the same words.
    """
    head = source.index(":\n") + 2
    last = source.rindex("\n") + 1 + len("    ")
    # All places are found in the source as it is, so that what one edit brings in, another does not touch.
    spans: list[tuple[int, int, str]] = []
    for old, new in edits:
        matches = [match.span() for match in re.finditer(re.escape(old), source[head:])] if old else []
        if old and not matches:
            raise ValueError(f"{old!r} is not in the answer")
        places = [(start + head, end + head) for start, end in matches] or [(last, len(source))]
        spans += [(start, end, new.replace(" ⏎ ", "\n    ")) for start, end in places]
    parts, done = [], 0
    for start, end, new in sorted(spans):
        if start < done:
            raise ValueError("two edits touch the same words")
        parts += [source[done:start], new]
        done = end
    return "".join([*parts, source[done:]])


def compile_variant(source: str, function: Function) -> Function:
    """Compile an edited copy of a function, in the original's namespace."""
    original = inspect.unwrap(function)
    cells = (cell.cell_contents for cell in original.__closure__ or ())
    free = zip(original.__code__.co_freevars, cells, strict=True)
    names: dict[str, Any] = {**_GLOBALS, **original.__globals__, **dict(free)}
    exec(source, names)
    variant: Function = names[original.__name__]
    return variant


@dataclass(frozen=True, eq=False)
class Exercise:
    """Called with a student's function, it says what is wrong with it. Raises nothing.

    answer: what a student should write; like: the piece that it agrees with, or the answer itself where there is none. cases, by,
    per, adapter, praise: as in `judge`.
    """

    answer: Function
    like: Function
    cases: Sequence[Inputs]
    slips: tuple[Slip, ...]
    praise: str = ""
    by: str | tuple[str, ...] = ()
    per: str = "token"
    adapter: Callable[[Function], Function] = lambda function: function

    def __post_init__(self) -> None:
        for name in ("__name__", "__doc__"):  # what `help` and a notebook's ? show
            object.__setattr__(self, name, getattr(self.answer, name))

    def __call__(self, student: Function) -> Verdict:
        return judge(
            student,
            self.like,
            self.cases,
            known=self.mistakes,
            further=self.pairs(),
            by=self.by,
            per=self.per,
            adapter=self.adapter,
            praise=self.praise,
        )

    @cached_property
    def source(self) -> str:
        """The answer's source, without its docstring."""
        source = read_source(self.answer)
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.FunctionDef)
        words = tree.body[0] if ast.get_docstring(tree) is not None else None
        skipped = range(words.lineno, (words.end_lineno or 0) + 1) if words else ()
        return "\n".join(line for number, line in enumerate(source.splitlines(), 1) if number not in skipped)

    @cached_property
    def wrong(self) -> dict[str, Function]:
        """The answer with each slip, by the slip's name."""
        return {slip.name: compile_variant(apply_edits(self.source, slip.edits), self.answer) for slip in self.slips}

    @property
    def mistakes(self) -> list[Mistake]:
        """Each slip alone, as the judge knows it."""
        return [Mistake(self.wrong[slip.name], slip.says, slip.name) for slip in self.slips]

    def pairs(self) -> Iterator[Mistake]:
        """Yield any two slips that do not touch the same words, the likeliest first: a table begins with the likeliest."""
        for one, other in sorted(combinations(range(len(self.slips)), 2), key=sum):
            both = self.slips[one] & self.slips[other]
            with suppress(ValueError, SyntaxError):
                yield Mistake(compile_variant(apply_edits(self.source, both.edits), self.answer), both.says, both.name)


def exercise(
    praise: str = "", *, cases: Sequence[Inputs], slips: str, like: Function | None = None, **how: Any
) -> Callable[[Function], Exercise]:
    """Make of a function, the answer, an exercise. slips: their table."""
    return lambda answer: Exercise(answer, like or answer, cases, tuple(read_slips(slips)), praise, **how)
