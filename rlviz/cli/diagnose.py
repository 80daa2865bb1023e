"""`rlviz diagnose`: what is unusual in a run or a log, what it usually means, and which setting to try."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding

from rlviz.cli.terminal import TextFormat, check_out, console, plain, print_json, say_written

if TYPE_CHECKING:
    from rlviz.runs.diagnosis import Diagnosis

COLOURS = {"warning": "bold red", "note": "bold cyan"}


def diagnose(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Run folder, folder of a comparison, or a log of TRL, verl, W&B, TensorBoard."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Page to write with it, FILE.html: findings, curves, tokens.")
    ] = None,
    output: TextFormat = "text",
) -> None:
    """Say what is unusual in a run, what it usually means, which setting to try, and which lesson explains it.

    Warnings come first, then notes on what only looks unusual, such as a loss of zero. Of a comparison, each run is diagnosed.
    A log is read where it lies: TRL's output folder or trainer_state.json, verl's .jsonl, what either printed, W&B's or
    TensorBoard's .csv; settings then have that program's names.
    """
    from rlviz.runs.diagnosis import diagnose as diagnosis_of, runs_in
    from rlviz.runs.logs import is_rlviz_run
    from rlviz.runs.report import save_report

    if out is not None:
        check_out(out)
    folders = runs_in(run) if is_rlviz_run(run) else [run]
    if not folders:
        raise ValueError(f"{run} holds a comparison of which no run has a step yet")
    diagnoses = {folder: diagnosis_of(folder) for folder in folders}
    file = None if out is None else save_report(run, out)
    if output == "json":
        rows = [{**row, "run": str(folder)} for folder, diagnosis in diagnoses.items() for row in diagnosis.as_json()]
        print_json(rows)
        return
    for place, diagnosis in enumerate(diagnoses.values()):
        if place:
            console.print()
        _print(diagnosis)
    if file is not None:
        console.print()
        say_written(file)


def _print(diagnosis: Diagnosis) -> None:
    summary, *lines = diagnosis.lines
    console.print(f"[bold]{plain(summary)}[/]", soft_wrap=True)
    for line in lines:
        text = line.lstrip()
        if text == line and text:
            grade, _, finding = text.partition(":")
            console.print(f"[{COLOURS[grade.lower()]}]{grade}:[/]{plain(finding)}")
        else:
            console.print(Padding(plain(text), (0, 0, 0, len(line) - len(text)), expand=False))
