"""Bugs to spot and runs without a label: what a lesson has of them, how they are drawn, and what is answered to a choice."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from rlviz.lessons.exercise import Edit, apply_edits, compile_variant, read_source
from rlviz.lessons.messages import translate
from rlviz.lessons.predictions import find_choice, is_clickable
from rlviz.lessons.verdict import Verdict
from rlviz.markup import element, joined

if TYPE_CHECKING:
    from ipywidgets import Widget

LINE_QUESTION, BUG_QUESTION = "Which line is to blame?", "What does it do?"
RUN_QUESTION = "Which setting made this run?"


@dataclass(frozen=True)
class Puzzle:
    """does: the choice that is right. why: of each choice, in the order in which they are listed, what is answered to it."""

    does: str
    why: Mapping[str, str]

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(self.why)


@dataclass(frozen=True)
class Bug(Puzzle):
    """A right function, and the edits that make it run and be wrong: the lines to blame are those that they change.

    or_at: further lines, from 1, where it could be mended as well. The choices say what it might do.
    """

    right: Callable[..., Any]
    edits: Sequence[Edit]
    or_at: tuple[int, ...] = ()

    @property
    def source(self) -> str:
        """The wrong function's source, with its name hidden."""
        source = apply_edits(read_source(self.right), self.edits)
        return source.replace(f"def {self.right.__name__}(", "def suspect(")

    @property
    def lines(self) -> tuple[int, ...]:
        """The line or lines to blame, from 1."""
        before = read_source(self.right).splitlines()
        after = apply_edits(read_source(self.right), self.edits).splitlines()
        return tuple(number for number, line in enumerate(after, 1) if line not in before) + self.or_at

    @property
    def wrong(self) -> Callable[..., Any]:
        """The wrong function."""
        return compile_variant(apply_edits(read_source(self.right), self.edits), self.right)


@dataclass(frozen=True)
class Unlabelled(Puzzle):
    """A run whose setting is hidden. draw: its picture. The choices are the settings that may have made it."""

    draw: Callable[[], Figure]


def read_sections(kind: str) -> dict[str, str]:
    """Return the text of each lesson in `bugs.md` or `runs.md`."""
    parts = Path(__file__).with_name(f"{kind}.md").read_text(encoding="utf-8").split("\n## ")[1:]
    return {lesson: text for lesson, _, text in (part.partition(":") for part in parts)}


def read_choices(kind: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return of each lesson in `bugs.md` or `runs.md` the right choice, and of every choice what is answered to it.

    A choice is `- words`, the right one `+ words`; what is answered stands on the lines below it.
    """
    choices = {}
    for lesson, text in read_sections(kind).items():
        rows = re.findall(r"^([-+]) (.+)\n((?:  .+\n)*)", text, re.MULTILINE)
        (right,) = (choice for mark, choice, _ in rows if mark == "+")
        choices[lesson] = right, {choice: " ".join(words.split()) for _, choice, words in rows}
    return choices


def find_puzzle(check: str, lesson: str) -> Any:
    """Return a lesson's `bug` or `unlabelled`, by the lesson's name without its number. Raises ValueError where it has none."""
    from rlviz.lessons.puzzles.bugs import BUGS
    from rlviz.lessons.puzzles.runs import RUNS

    puzzles: Mapping[str, Puzzle] = BUGS if check == "bug" else RUNS
    if lesson not in puzzles:
        raise ValueError(f"lesson must be one of {', '.join(sorted(puzzles))}; got {lesson!r}")
    return puzzles[lesson]


def wrong_answers(check: str, lesson: str) -> list[tuple[str, str]]:
    """Return the wrong choices of a lesson's `bug` or `unlabelled`, each with what is answered to it, if anything."""
    puzzle = find_puzzle(check, lesson)
    return [(choice, why) for choice, why in puzzle.why.items() if choice != puzzle.does]


def lettered(choices: Sequence[str]) -> list[str]:
    """Return the choices in the reader's language, with the letters that an answer may give."""
    return [f"{letter}) {translate(choice)}" for letter, choice in zip(ascii_lowercase, choices, strict=False)]


def show_bug(lesson: str) -> None:
    """Show a lesson's suspect with its lines numbered and its name hidden, and what it might do: as buttons to who can answer."""
    from IPython.display import display

    bug = find_puzzle("bug", lesson)
    lines = "\n".join(f"{number:2}  {line}" for number, line in enumerate(bug.source.splitlines(), 1))
    if is_clickable():
        display({"text/plain": lines, "text/html": element("pre", lines)}, raw=True)
        display(bug_form(lesson))
    else:
        _display_choices(BUG_QUESTION, bug.choices, lines)


def unlabelled(lesson: str) -> None:
    """Show the picture of a lesson's run, and the settings of which one made it: as buttons to who can answer."""
    from IPython.display import display

    run = find_puzzle("unlabelled", lesson)
    display(run.draw())
    if is_clickable():
        display(run_form(lesson))
    else:
        _display_choices(RUN_QUESTION, run.choices)


def _display_choices(question: str, choices: Sequence[str], lines: str = "") -> None:
    from IPython.display import display

    rows = element("ul", *(element("li", choice) for choice in lettered(choices)), style="list-style: none")
    html = joined(*[element("pre", lines)] * bool(lines), element("p", translate(question)), rows)
    text = "\n".join([*[lines, ""] * bool(lines), translate(question), *lettered(choices)])
    display({"text/plain": text, "text/html": html}, raw=True)


def bug_form(lesson: str) -> Widget:
    """Return buttons for the lines and the choices of a lesson's bug, which show the verdict once both are chosen."""
    from ipywidgets import ToggleButtons

    bug = find_puzzle("bug", lesson)
    numbers = range(1, len(bug.source.splitlines()) + 1)
    lines = ToggleButtons(options=[(str(n), n) for n in numbers], value=None, style={"button_width": "2.6em"})

    def answer(line: int, does: str) -> tuple[Verdict, str]:
        return judge_bug(lesson, line=line, does=does), f'check.bug("{lesson}", line={line}, does="{does}")'

    return _form({LINE_QUESTION: lines, BUG_QUESTION: _radios(bug.choices)}, answer)


def run_form(lesson: str) -> Widget:
    """Return a button for each setting of a lesson's run without a label, which shows the verdict."""
    run = find_puzzle("unlabelled", lesson)

    def answer(letter: str) -> tuple[Verdict, str]:
        return judge_unlabelled(lesson, letter), f'check.unlabelled("{lesson}", "{letter}")'

    return _form({RUN_QUESTION: _radios(run.choices)}, answer)


def _radios(choices: Sequence[str]) -> Widget:
    from ipywidgets import Layout, RadioButtons

    options = list(zip(lettered(choices), ascii_lowercase, strict=False))
    return RadioButtons(options=options, value=None, layout=Layout(width="auto"))


def _form(fields: Mapping[str, Widget], answer: Callable[..., tuple[Verdict, str]]) -> Widget:
    """Return fields under their questions, and below them the verdict and the call that grading reads, once all have a value."""
    from ipywidgets import HTML, VBox

    result = HTML()

    def show_verdict(_: object) -> None:
        values = [field.value for field in fields.values()]
        if None not in values:
            verdict, call = answer(*values)
            result.value = joined(verdict.markup, element("p", translate("To hand it in: "), element("code", call)))

    for field in fields.values():
        field.observe(show_verdict, "value")
    return VBox([*(part for question, field in fields.items() for part in (HTML(translate(question)), field)), result])


def judge_bug(lesson: str, *, line: int, does: str) -> Verdict:
    """Check an answer to `show_bug(lesson)`: the line to blame, from 1, and the letter or words of the choice that it does."""
    bug = find_puzzle("bug", lesson)
    count = len(bug.source.splitlines())
    if not isinstance(line, int) or not 1 <= line <= count:
        return Verdict(False, f"line is the number of a line of the source, from 1 to {count}.", is_attempt=False)
    chosen = find_choice(str(does), bug.choices, ascii_lowercase)
    if chosen is None:
        says = f"does is a letter, from a to {ascii_lowercase[len(bug.choices) - 1]}."
        return Verdict(False, says, is_attempt=False)
    if line in bug.lines:
        if chosen == bug.does:
            return Verdict(True, bug.why[chosen])
        other = f"the line is right; it does something else than “{chosen}”."
        return Verdict(False, f"{other} Put in small numbers, and see what comes out.")
    if chosen == bug.does:
        return Verdict(False, "that is what it does; another line is to blame.")
    says = "neither the line nor what it does. Put in small numbers, and say after each line what ought to come out."
    return Verdict(False, says)


def judge_unlabelled(lesson: str, answer: str) -> Verdict:
    """Check which of the printed settings made the run of `unlabelled(lesson)`, by its letter or its words."""
    run = find_puzzle("unlabelled", lesson)
    chosen = find_choice(str(answer), run.choices, ascii_lowercase)
    if chosen is None:
        says = f"the answer is a letter, from a to {ascii_lowercase[len(run.choices) - 1]}."
        return Verdict(False, says, is_attempt=False)
    return Verdict(chosen == run.does, run.why[chosen])
