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
    """What came of one notebook. verdicts: by exercise; exercises: how many the lesson has.

    stage: "ended" where its process came to its end or to its time limit; all others are graded by the next call.
    """

    student: str
    lesson: str
    exercises: int = 0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    predictions: list[str] = field(default_factory=list)
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
    # A folder's name may hold half a character, which UTF-8 cannot spell.
    write_text(out.with_suffix(".json"), state.encode(errors="replace").decode())
    write_text(out, table(list(grades.values())))
    write_text(out.with_suffix(".html"), page(list(grades.values())))


def table(grades: list[Grade]) -> str:
    """Return the grades as CSV, a row for each notebook."""
    rows = []
    for grade in grades:
        cells = {
            "student": grade.student,
            "lesson": grade.lesson,
            "passed": str(len(grade.passed)),
            "of": str(grade.exercises),
            "right": "; ".join(grade.passed),
            "mistakes": "; ".join(grade.mistakes),
            "predictions": "; ".join(grade.predictions),
            "error": grade.error,
            "seconds": f"{grade.seconds:.1f}",
        }
        plain = {name: "".join(c if c.isprintable() else " " for c in cell) for name, cell in cells.items()}
        formula = ("=", "+", "-", "@")  # what a spreadsheet would run begins so
        rows.append({name: f"'{cell}" if cell.lstrip().startswith(formula) else cell for name, cell in plain.items()})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def page(grades: list[Grade]) -> str:
    """Return the grades as one HTML page that needs no other file."""
    style = "text-align: left; vertical-align: top; padding: 4px 10px; border-top: 1px solid"
    rows = []
    for grade in grades:
        verdicts = [
            element("li", f"{name} – {'right' if one.passed else one.mistake or 'not yet'}: {one.says}")
            for name, one in grade.verdicts.items()
        ]
        notes = [element("p", grade.error)] if grade.error else []
        predictions = [element("li", text) for text in grade.predictions]
        cells = (
            grade.student,
            grade.lesson,
            f"{len(grade.passed)} of {grade.exercises}",
            joined(element("ul", *verdicts), *notes),
            element("ul", *predictions) if predictions else "–",
            f"{grade.seconds:.1f} s",
        )
        rows.append(element("tr", *(element("td", cell, style=style) for cell in cells)))
    columns = ("student", "lesson", "checks", "what they say", "predictions", "time")
    look = "border-collapse: collapse"
    head = (
        element("meta", charset="utf-8"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", "Grades"),
    )
    body = (
        element("h1", "Grades"),
        element("p", NO_WALL, style="max-width: 68ch"),
        html_table(columns, rows, heading=style, style=look, caption="One row for each notebook"),
    )
    parts = element("head", *head), element("body", *body, style="font: 16px system-ui; margin: 2em")
    return element("html", *parts, lang="en").encode(errors="replace").decode()
