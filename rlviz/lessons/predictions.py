"""Predictions: fields ask for guesses before a cell reveals the numbers, and the lesson's end shows both beside each other."""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Any

from rlviz.markup import element, table
from rlviz.training.files import write_json
from small_models.checks import checked, cut
from small_models.files import read_json

if TYPE_CHECKING:
    from ipywidgets import Widget
    from matplotlib.figure import Figure

FOLDER = "predictions"  # beside the notebook
UNPREDICTED = "you made no prediction; the run says"  # before a result
Value = float | int | str


@dataclass(frozen=True)
class Prediction:
    """One question of a lesson, as it is kept."""

    question: str
    guess: float | str | None = None
    result: float | str | None = None

    def beside(self) -> str:
        """Return guess and result in a sentence."""
        before = UNPREDICTED if self.guess is None else f"you said {_format(self.guess)}; the run says"
        return f"{before} {_format(self.result)}"


@dataclass(frozen=True)
class LessonPredictions:
    """The predictions of a lesson, as their file holds them."""

    lesson: str
    predictions: dict[str, Prediction]


class Predictions:
    """The questions of a lesson, the guesses and the results, kept in predictions/LESSON.json beside the notebook.

    A question is a text, where a number is asked for (of per cent if it says "per cent": 75 % is 75 there, else .75), or a tuple
    (text, choice, choice, …). A text that says "(0 to 1)" takes numbers from 0 to 1 alone. As the last line of a cell it shows a
    field for each question. Raises ValueError for a name of a lesson that is no file name, and for a file that is damaged.
    """

    def __init__(self, lesson: str, /, **questions: str | tuple[str, ...]) -> None:
        _check_name(lesson)
        self._questions = {name: (texts,) if isinstance(texts, str) else texts for name, texts in questions.items()}
        self._file = Path(FOLDER) / f"{lesson}.json"
        self._lesson = lesson
        try:
            before = read_json(self._file, LessonPredictions).predictions
        except FileNotFoundError:
            before = {}
        except ValueError as error:
            raise ValueError(f"{error}; move it away, and the predictions begin anew") from None
        self.predictions = {
            name: replace(before.get(name, Prediction("")), question=question)
            for name, (question, *_) in self._questions.items()
        }

    def __call__(self, name: str) -> None:
        """Ask for a guess, unless one is saved already or nobody can answer here. An empty answer leaves it open."""
        question, *choices = self._question(name)
        if self.predictions[name].guess is not None or not is_answered():
            return
        words, hint = f" ({', '.join(choices)})" if choices else "", ""
        while answer := input(f"{hint}{question}{words} Your prediction: ").strip():
            if not (wrong := self.take(name, answer)):
                return
            hint = f"{wrong} (Enter alone leaves it open.) "

    def take(self, name: str, answer: str) -> str:
        """Save what somebody typed as the guess; return what is wrong with it, and save nothing, where it is no answer."""
        question, *choices = self._question(name)
        if choices:
            guess: float | str | None = find_choice(answer, choices, map(str, range(1, len(choices) + 1)))
            wanted = f"one of {', '.join(choices)}"
        else:
            guess, wanted = _parse_number(answer, question)
        if guess is None:
            return f"{cut(answer)} is not {wanted}."
        self._save(name, guess=guess)
        return ""

    def form(self) -> Widget:
        """Return a field for each question. A field is locked once the lesson has shown its result."""
        from ipywidgets import VBox

        return VBox([self._row(name) for name in self._questions])

    def _row(self, name: str) -> Widget:
        from ipywidgets import HTML, Dropdown, HBox, Layout, Text

        (question, *choices), before = self._questions[name], self.predictions[name]
        value = "" if before.guess is None else _format(before.guess)
        how = {"value": value, "disabled": before.result is not None, "layout": Layout(width="14em")}
        if choices:
            field = Dropdown(options=[("choose …", ""), *((choice, choice) for choice in choices)], **how)
        else:
            field = Text(placeholder="your guess", continuous_update=False, **how)
        note = HTML("kept" if value else "")

        def answer(change: Mapping[str, str]) -> None:
            text = change["new"].strip()
            late = "The result is shown already." if self.predictions[name].result is not None else ""
            wrong = late or (self.take(name, text) if text else "")
            note.value = str(element("span", wrong)) if wrong else "kept" if text else ""

        field.observe(answer, "value")
        words = HTML(element("span", question), layout=Layout(width="32em"))
        return HBox([words, field, note], layout=Layout(flex_flow="row wrap"))

    def _ipython_display_(self) -> None:
        if is_answered():
            from IPython.display import display

            display(self.form())

    def result(self, name: str, value: Value) -> None:
        """Save what came out, and print it beside the guess."""
        question = self._question(name)[0]
        self._save(name, result=value if isinstance(value, str) else float(value))
        print(f"{question} {self.predictions[name].beside()}.")  # noqa: T201 - it is the cell's output

    def table(self) -> Table:
        """Return all guesses and results side by side."""
        return Table(list(self.predictions.values()))

    def _question(self, name: str) -> tuple[str, ...]:
        if name not in self._questions:
            raise ValueError(f"name must be one of {', '.join(self._questions)}; got {name!r}")
        return self._questions[name]

    def _save(self, name: str, **changed: Any) -> None:
        self.predictions[name] = replace(self.predictions[name], **changed)
        self._file.parent.mkdir(exist_ok=True)
        write_json(self._file, asdict(LessonPredictions(self._lesson, self.predictions)))


@dataclass(frozen=True)
class Table:
    """Guesses beside results, as a notebook and a terminal show them."""

    rows: list[Prediction]

    def __repr__(self) -> str:
        return "\n".join(f"{row.question} {row.beside()}." for row in self.rows)

    def _repr_html_(self) -> str:
        style = "text-align: left; padding: 3px 10px"
        cells = [(row.question, _format(row.guess), _format(row.result)) for row in self.rows]
        rows = [element("tr", *(element("td", part, style=style) for part in row)) for row in cells]
        columns = ("question", "your prediction", "result")
        return table(columns, rows, heading=style, style="font-size: 15px", caption="What you predicted, and what came")


@checked
def room(folder: str | os.PathLike[str], lesson: str) -> Figure:
    """Return a histogram for each question of a lesson over all files LESSON.json below a folder; the result is a line.

    Where runs differ in their results, it is the one that most of them have. A file that cannot be read is named and left out.
    Raises ValueError where no prediction of that lesson is found.
    """
    from matplotlib.ticker import MaxNLocator

    from rlviz.pictures.base import VERMILION, dress, new_figure

    _check_name(lesson)
    guesses: dict[str, list[Any]] = defaultdict(list)
    results: dict[str, list[Any]] = defaultdict(list)
    for file in sorted(Path(folder).rglob(f"{lesson}.json")):
        try:
            predictions = read_json(file, LessonPredictions).predictions.values()
        except (ValueError, OSError) as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
            continue
        for prediction in predictions:
            for answers, value in ((guesses, prediction.guess), (results, prediction.result)):
                if value is not None:
                    answers[prediction.question].append(value)
    if not guesses:
        raise ValueError(
            f"folder must hold predictions of lesson {lesson!r}, such as a student's {FOLDER}/{lesson}.json; "
            f"{folder} holds none"
        )
    figure = new_figure(9, 3.2 * len(guesses))
    for ax, (question, values) in zip(figure.subplots(len(guesses), squeeze=False)[:, 0], guesses.items(), strict=True):
        result = [mode(results[question])] if results[question] else []
        if any(isinstance(one, str) for one in values + result):
            names = sorted({str(one) for one in values + result})
            bars = ax.bar(names, [sum(str(guess) == name for guess in values) for name in names])
            for one in result:
                bars[names.index(str(one))].set(edgecolor=VERMILION, linewidth=4, label="the result")
        else:
            ax.hist(values, bins=20)
            for one in result:
                ax.axvline(one, color=VERMILION, linewidth=3, label="the result")
        dress(ax, title=f"{cut(question, 80)} ({len(values)} said)", x="prediction", y="people")
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        if result:
            ax.legend(fontsize=12)
    return figure


def _check_name(lesson: str) -> None:
    """Raise ValueError for a lesson's name that could be a path or a pattern."""
    if not re.fullmatch(r"[\w-]+", str(lesson)):
        raise ValueError(f"lesson must be made of letters, digits, - and _, such as '03_grpo'; got {lesson!r}")


def find_kernel() -> Any:
    """Return the Jupyter kernel that this code runs in, or None."""
    return getattr(getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)(), "kernel", None)


def is_answered() -> bool:
    """Return True if a question reaches a person: a kernel says so itself; RLVIZ_ASK=0 asks nobody."""
    if os.environ.get("RLVIZ_ASK") == "0":
        return False
    kernel = find_kernel()
    return sys.stdin.isatty() if kernel is None else bool(getattr(kernel, "_allow_stdin", False))


def is_clickable() -> bool:
    """Return True if a person can click on what a cell shows."""
    return find_kernel() is not None and is_answered()


def _parse_number(answer: str, question: str) -> tuple[float | None, str]:
    """Return a number as people write it, .5, 0,5, 50 %, None for any other text, and what the question asks for.

    50 % is 50 where per cent are asked for, else .5. A question that says (0 to 1) takes no other numbers.
    """
    limits = re.search(r"\((-?[\d.]+) to (-?[\d.]+)", question.replace("−", "-"))
    low, high = (float(limits[1]), float(limits[2])) if limits else (-math.inf, math.inf)
    wanted = f"a number from {low:g} to {high:g}" if limits else "a number, such as 0.5"
    text = answer.replace(",", ".").replace("−", "-").strip()
    scale = 0.01 if text.endswith("%") and "per cent" not in question.lower() else 1.0
    try:
        value = float(text.removesuffix("%")) * scale
    except ValueError:
        return None, wanted
    return (value if math.isfinite(value) and low <= value <= high else None), wanted


SIGNS = str.maketrans("−–—’×", "---'x")  # that no keyboard has


def find_choice(answer: str, choices: Sequence[str], marks: Iterable[str]) -> str | None:
    """Return the choice that an answer names by its words or its mark: case, spaces and signs that look alike do not count."""

    def simplify(text: str) -> str:
        return " ".join(text.translate(SIGNS).casefold().split()).strip(" .)\"'“”")

    by_words = {simplify(choice): choice for choice in choices}
    return {**dict(zip(marks, choices, strict=False)), **by_words}.get(simplify(answer))


def _format(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"
