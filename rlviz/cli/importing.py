"""`rlviz import`: a real run of TRL or verl among rlviz's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlviz.cli.terminal import console, refusals

PICTURE = "learning_curves.png"


@refusals("the imported run")
def import_(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="TRL's trainer_state.json or run folder, verl's .jsonl."),
    ],
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="New run folder, which other commands open.")] = None,
) -> None:
    """Bring a real run back: **rlviz import outputs/grpo --out runs/real**, then **rlviz diagnose runs/real**

    Pictures and diagnosis work with the columns that were logged; those that were not are named. Without --out it only
    says what is there. Nothing in the files is run.
    """
    from rlviz.runs import import_run
    from rlviz.runs.learning import plot_learning_curves
    from rlviz.training import RunFolder
    from rlviz.training.files import whole_file

    run = import_run(path, out)
    there = [str(name) for name in run.metrics if name != "step"]
    groups = sum(len(told) for told in run.groups.values())
    for words in (
        f"{run.name} ({run.source}): {len(run.rows)} steps up to step {run.rows[-1]['step']}, {groups} groups of responses",
        f"Recorded: {', '.join(there)}",
        f"Not recorded: {', '.join(run.lacking) or 'nothing'}",
        *([f"Logged, without a name here: {', '.join(run.others)}"] if run.others else []),
        *run.notes,
    ):
        console.print(escape(words), soft_wrap=True)
    if out is not None:
        with whole_file(out / PICTURE) as temporary:
            title = f"{run.name}, imported"
            plot_learning_curves(RunFolder.open(out).metrics, title=title).savefig(temporary, format="png")
        console.print(f"Kept in {escape(str(out))}; its curves: {escape(str(out / PICTURE))}", soft_wrap=True)
