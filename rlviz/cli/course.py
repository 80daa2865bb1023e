"""`rlviz course`, `predictions` and `grade`: the course's editions, what a room predicted, what students handed in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from rlviz.cli.lab import copy, course_source, print_left_alone
from rlviz.cli.terminal import errors, exit_after, notes, say


def course(
    edition: Annotated[
        Literal["read", "student", "instructor"],
        typer.Option(
            help="read: outputs, answers folded. student: no outputs, no answers, no solutions. instructor: with solutions, "
            "the mistakes that checks name, seconds of cells, the teacher's page."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write; what you changed in it is left alone.")],
    solutions_from: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            metavar="DATE",
            help="student: the day from which this call writes the solutions, too, such as 2027-01-15. [default: never]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write an edition of the course's notebooks into a folder."""
    from rlviz.lessons.editions import files

    if solutions_from is not None and edition != "student":
        raise ValueError(f"--solutions-from goes with --edition student; got --edition {edition}")
    are_due = solutions_from is not None and datetime.now() >= solutions_from
    with notes():
        report = copy(files("lab" if are_due else edition, course_source()), out)
    say(f"{len(report.written)} files written to {out}")
    if solutions_from is not None and not are_due:
        say(f"Without solutions: the same call writes them from {solutions_from:%Y-%m-%d} on.")
    print_left_alone(report)


def predictions(
    folder: Annotated[Path, typer.Argument(help="Shared folder with the students' predictions, nested as you like.")],
    lesson: Annotated[str, typer.Option(help="Lesson, such as 03_grpo.")],
    out: Annotated[Path, typer.Option(help="Picture to write: PNG, SVG or PDF.")] = Path("room.png"),
) -> None:
    """Draw what a room predicted: a histogram for each question, and the result as a line."""
    import warnings

    from rlviz.lessons.predictions import room

    if out.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--out must end in .png, .svg or .pdf; got {out}")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        figure = room(folder, lesson)
    for warning in warned:
        say(str(warning.message))
    figure.savefig(out)
    say(str(out))


def grade(
    folder: Annotated[Path, typer.Argument(help="Submissions: FOLDER/student/*.ipynb, or FOLDER/student.ipynb.")],
    out: Annotated[
        Path,
        typer.Option(
            help="Table to write, CSV; beside it come a page, .html, and what the same call goes on from, .json."
        ),
    ] = Path("grades.csv"),
    limit: Annotated[float, typer.Option(help="Seconds for each notebook.")] = 600.0,
    memory: Annotated[float, typer.Option(help="GB that each notebook may ask for (Linux).")] = 4.0,
    lessons: Annotated[
        Path | None,
        typer.Option(help="Folder of the lessons whose exercises are asked for. [default: the course's]"),
    ] = None,
) -> None:
    """Run what students handed in, each notebook in a process of its own, and say which checks pass and which mistakes were made.

    Grading runs students' code on your machine and is no sandbox: a submission can read, change and delete your files, and use
    the network; what it installs or changes there can also change the grades of others. A row is written as each notebook ends.
    After a stop, the same call goes on with the rest; a notebook that has changed is graded anew.
    """
    from rlviz.cli.signals import immediate_interrupt
    from rlviz.lessons.gradebook import NO_WALL
    from rlviz.lessons.grading import grades

    if out.suffix != ".csv" or out.is_dir():
        raise ValueError(f"--out must be a file that ends in .csv; got {out}")
    if not out.parent.is_dir():
        raise ValueError(f"--out must lie in a folder that exists; {out.parent} is none")
    errors.print(escape(NO_WALL))
    with immediate_interrupt() as stopped:
        for graded, is_earlier in grades(folder, lessons or course_source(), out, limit=limit, memory=memory):
            error = f" ({graded.error})" if graded.error else ""
            earlier = "; graded by an earlier call" if is_earlier else ""
            say(
                f"{graded.student} {graded.lesson}: {len(graded.passed)} of {graded.exercises} checks passed{error}{earlier}"
            )
    if stopped:
        say(f"Stopped. The grades up to here are in {out}; the same command goes on.")
        raise exit_after(stopped[0])
    say(f"{out} and {out.with_suffix('.html').name}")
