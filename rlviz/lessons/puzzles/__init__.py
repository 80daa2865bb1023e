"""Bugs to spot and runs without a label: what a lesson has of them, how they are shown, and what is said to an answer."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from rlviz.lessons.exercise import edited, lines_of, made_of, read_edits, source_of
from rlviz.lessons.judge import Verdict
from rlviz.markup import element, joined


@dataclass(frozen=True)
class Bug:
    """A right function, and the edits that make it run and be wrong: the lines to blame are those that they change.

    edits: `old → new`, one a line. or_at: further lines, from 1, where it could be mended as well. choices: what it might do;
    does: what it does; why: in a sentence.
    """

    right: Callable[..., Any]
    edits: str
    choices: tuple[str, ...]
    does: str
    why: str
    or_at: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        """The wrong function's source, with its name hidden."""
        source = edited(source_of(self.right), read_edits(self.edits))
        return source.replace(f"def {self.right.__name__}(", "def suspect(")

    @property
    def lines(self) -> tuple[int, ...]:
        """The line or lines to blame, from 1."""
        return lines_of(source_of(self.right), read_edits(self.edits)) + self.or_at

    @property
    def wrong(self) -> Callable[..., Any]:
        """The wrong function."""
        return made_of(edited(source_of(self.right), read_edits(self.edits)), self.right)


@dataclass(frozen=True)
class Unlabelled:
    """A run whose setting is not told.

    draw: makes it, and its picture. does: the choice that made it. why: of each choice, what the picture says for it or
    against it.
    """

    draw: Callable[[], Figure]
    does: str
    why: Mapping[str, str]

    @property
    def choices(self) -> tuple[str, ...]:
        """The settings that may have made it."""
        return tuple(self.why)


@dataclass(frozen=True)
class Shown:
    """A source with its lines numbered, and the choices."""

    source: str
    choices: tuple[str, ...]

    def __repr__(self) -> str:
        lines = [f"{number:2}  {line}" for number, line in enumerate(self.source.splitlines(), 1)]
        return "\n".join([*lines, "", "What does it do?", *(f"- {choice}" for choice in self.choices)])

    def _repr_html_(self) -> str:
        numbered, _, _ = repr(self).partition("\n\nWhat does it do?")
        choices = element("ul", *(element("li", choice) for choice in self.choices))
        return joined(element("pre", numbered), element("p", "What does it do?"), choices)


def _of(lesson: str, kind: str) -> Any:
    """Return a lesson's BUG or RUN, by its name without the number, which may change. Raises ValueError where it has none."""
    known = [
        file.stem
        for file in sorted(Path(__file__).parent.glob("[a-z]*.py"))
        if re.search(rf"^{kind} = ", file.read_text(encoding="utf-8"), re.M)
    ]
    if lesson not in known:
        raise ValueError(f"lesson must be one of {', '.join(known)}; got {lesson!r}")
    return getattr(importlib.import_module(f"rlviz.lessons.puzzles.{lesson}"), kind)


def wrong_answers(check: str, lesson: str) -> list[tuple[str, str]]:
    """Return the wrong ones of the choices of a lesson's `bug` or `unlabelled`, each with what is said to it, if anything."""
    puzzle: Bug | Unlabelled = _of(lesson, {"bug": "BUG", "unlabelled": "RUN"}[check])
    says = puzzle.why if isinstance(puzzle, Unlabelled) else {}
    return [(choice, says.get(choice, "")) for choice in puzzle.choices if choice != puzzle.does]


def show_bug(lesson: str) -> Shown:
    """Return the source of a lesson's suspect, with its lines numbered and its name hidden, and what it might do."""
    bug: Bug = _of(lesson, "BUG")
    return Shown(bug.source, bug.choices)


def unlabelled(lesson: str) -> None:
    """Make a lesson's run, show its picture, and name the settings of which one made it."""
    from IPython.display import display

    run: Unlabelled = _of(lesson, "RUN")
    display(run.draw())
    choices = element("ul", *(element("li", choice) for choice in run.choices))
    text = "\n".join(["Which setting made this run?", *(f"- {choice}" for choice in run.choices)])
    display({"text/plain": text, "text/html": joined(element("p", "Which setting made this run?"), choices)}, raw=True)


def judge_bug(lesson: str, line: int, does: str) -> Verdict:
    """Judge which line is to blame and what it does."""
    bug: Bug = _of(lesson, "BUG")
    count = len(bug.source.splitlines())
    if not isinstance(line, int) or not 1 <= line <= count:
        return Verdict(False, f"line is the number of a line of the source, from 1 to {count}.")
    if does not in bug.choices:
        return _choose("does", bug.choices)
    if line in bug.lines and does == bug.does:
        return Verdict(True, bug.why)
    if line in bug.lines:
        return Verdict(
            False,
            f"the line is right; it does something else than “{does}”. Put in small numbers, and see what comes out.",
        )
    if does == bug.does:
        return Verdict(False, "that is what it does; another line is to blame.")
    return Verdict(
        False,
        "neither the line nor what it does. Put in small numbers, and say after each line what ought to come out.",
    )


def judge_unlabelled(lesson: str, answer: str) -> Verdict:
    """Judge which setting made the run."""
    run: Unlabelled = _of(lesson, "RUN")
    if answer not in run.choices:
        return _choose("the answer", run.choices)
    return Verdict(answer == run.does, run.why[answer])


def _choose(what: str, choices: Sequence[str]) -> Verdict:
    return Verdict(False, f"{what} is one of: {'; '.join(choices)}.")
