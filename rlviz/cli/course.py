"""`rlviz course`, `rlviz predictions` and `rlviz grade`: what a teacher does with the course."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from rlviz.cli.lab import copy_course, course_source, told
from rlviz.cli.terminal import console, refusals, time_left


def course(
    out: Annotated[Path, typer.Option(help="Folder to write; files there that somebody changed stay as they are.")],
    edition: Annotated[
        Literal["read", "student", "instructor"],
        typer.Option(
            help="**read**: with outputs and folded answers. **student**: without outputs and answers, as `rlviz lab` copies it. "
            "**instructor**: with solutions, likely mistakes, plans and timing."
        ),
    ] = "student",
) -> None:
    """Write an edition of the course: the notebooks, the glossary and the verdicts that they link to."""
    with refusals():
        from rlviz.editions import edition_files

        told(copy_course(out.resolve(), edition_files(course_source(), edition)), out)


def predictions(
    folder: Annotated[Path, typer.Argument(help="Folder with the students' predictions/ folders, however deep.")],
    lesson: Annotated[str, typer.Option(help="The lesson, such as 04_grpo.")],
    out: Annotated[Path, typer.Option(help="Picture to write: .png, .svg or .pdf.")] = Path("room.png"),
) -> None:
    """Draw what a room predicted: a histogram for each question of a lesson, and the result."""
    with refusals():
        from rlviz.exercises import room
        from rlviz.pictures.base import save_figure

        save_figure(room(folder, lesson), out, description=f"What was predicted in lesson {lesson}")
        console.print(f"Written: {escape(str(out))}", soft_wrap=True)


def grade(
    folder: Annotated[Path, typer.Argument(help="Folder with a folder of notebooks for each student.")],
    out: Annotated[Path, typer.Option(help="Table to write; a page of the same name, .html, comes beside it.")] = Path(
        "grades.csv"
    ),
    limit: Annotated[int, typer.Option(min=1, help="Seconds that a notebook may take.")] = 600,
    memory: Annotated[float, typer.Option(min=1, help="GB of memory that a notebook may take (not on Windows).")] = 16,
) -> None:
    """Run the students' notebooks, each in a process and a folder of its own, and say what its checks found.

    This protects from endless loops, full memories and mishaps, not from hostile code: run it in a container for that.
    """
    with refusals():
        from rlviz.grading import as_page, as_table, grade_notebook, submissions

        found = submissions(folder)
        rows = []
        with time_left() as bar:
            for one in bar.track(found, description="notebooks"):
                rows += grade_notebook(one, course_source(), seconds=limit, gigabytes=memory)
        as_table(rows, out)
        as_page(rows, out.with_suffix(".html"))
        console.print(f"Written: {escape(str(out))} and {escape(str(out.with_suffix('.html')))}", soft_wrap=True)
