"""The grades of a class: a row for each notebook, as CSV, as a page, and as JSON, from which the same call goes on."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rlviz.lessons.verdict import Verdict
from rlviz.markup import element, joined, table as html_table
from rlviz.training.files import write_text
from small_models.checks import cut
from small_models.files import read_json

NO_WALL = (
    "Grading runs students' code on your machine and is no sandbox: a submission can read, change and delete your files, use the "
    "network, leave a process behind, stop the grader, and change the checks in its own process. What it installs or changes on "
    "this machine can also change the grades of others. For code that you do not trust, use a container or a machine of its own."
)
WAITING = "not graded yet"
ENDED = "the process ended by itself (by os._exit, or killed for its memory)"
RUNNING = "it runs, or the grader was stopped while it ran; then the same call grades it after the others"


@dataclass
class Grade:
    """What came of one notebook. verdicts: by exercise; asked: how many the lesson has.

    stage: "ended" where its process came to its end or to its time limit; all others are graded by the next call.
    """

    student: str
    lesson: str
    asked: int = 0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    predictions: list[str] = field(default_factory=list)
    solutions: list[str] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0
    stage: Literal["waiting", "begun", "ended"] = "waiting"

    def add_error(self, error: str) -> None:
        self.error = f"{self.error}; {error}" if self.error else error

    @property
    def passed(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict.passed]

    @property
    def mistakes(self) -> list[str]:
        wrong = {name: one for name, one in self.verdicts.items() if not one.passed}
        return [f"{name}: {one.mistake or cut(one.says, 80)}" for name, one in wrong.items()]


def read_grades(out: Path) -> dict[str, Grade]:
    """Return the grades that an earlier call left beside this table, by their keys. Raises ValueError for another file there."""
    file = out.with_suffix(".json")
    try:
        return read_json(file, dict[str, Grade])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{error}; move it away, and every notebook is graded anew") from None


def write_grades(out: Path, grades: dict[str, Grade]) -> None:
    """Write all rows, each file whole or not at all; first the state, which `read_grades` reads."""
    state = json.dumps({key: asdict(grade) for key, grade in grades.items()}, ensure_ascii=False, indent=1)
    write_text(out.with_suffix(".json"), _without_half_characters(state))
    write_text(out, table(list(grades.values())))
    write_text(out.with_suffix(".html"), page(list(grades.values())))


def _without_half_characters(text: str) -> str:
    """Return a text that UTF-8 can spell: a folder's name may hold half a character."""
    return text.encode(errors="replace").decode()


def _row(grade: Grade) -> dict[str, str]:
    """Return a grade's cells, by the names of their columns."""
    cells = {
        "student": grade.student,
        "lesson": grade.lesson,
        "passed": str(len(grade.passed)),
        "of": str(grade.asked),
        "right": "; ".join(grade.passed),
        "mistakes": "; ".join(grade.mistakes),
        "predictions": "; ".join(grade.predictions),
        "solutions used": "; ".join(grade.solutions),
        "error": grade.error,
        "seconds": f"{grade.seconds:.1f}",
    }
    plain = {name: "".join(one if one.isprintable() else " " for one in cell) for name, cell in cells.items()}
    formula = ("=", "+", "-", "@")  # what a spreadsheet would run begins so
    return {name: f"'{cell}" if cell.lstrip().startswith(formula) else cell for name, cell in plain.items()}


def table(done: list[Grade]) -> str:
    """Return the grades as CSV, a row for each notebook."""
    text = io.StringIO()
    rows = [_row(grade) for grade in done]
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def page(done: list[Grade]) -> str:
    """Return the grades as one HTML page that needs no other file."""
    style = "text-align: left; vertical-align: top; padding: 4px 10px; border-top: 1px solid"
    rows = []
    for grade in done:
        told = [
            element("li", f"{name} – {'right' if one.passed else one.mistake or 'not yet'}: {one.says}")
            for name, one in grade.verdicts.items()
        ]
        notes = [element("p", text) for text in (grade.error, *(f"opened {name}" for name in grade.solutions)) if text]
        said = [element("li", text) for text in grade.predictions]
        cells = (
            grade.student,
            grade.lesson,
            f"{len(grade.passed)} of {grade.asked}",
            joined(element("ul", *told), *notes),
            element("ul", *said) if said else "–",
            f"{grade.seconds:.1f} s",
        )
        rows.append(element("tr", *(element("td", cell, style=style) for cell in cells)))
    columns = ("student", "lesson", "checks", "what they say", "predictions", "time")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", "Grades"),
    )
    body = element(
        "body",
        element("h1", "Grades"),
        element("p", NO_WALL, style="max-width: 68ch"),
        html_table(
            columns, rows, heading=style, style="border-collapse: collapse", caption="One row for each notebook"
        ),
        style="font: 16px system-ui; margin: 2em",
    )
    return _without_half_characters(element("html", head, body, lang="en"))
