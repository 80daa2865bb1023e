"""`rlviz experiment NAME` or `--all`: the sources' claims, tested; their verdicts, numbers and pictures in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from rlviz.cli.options import On
from rlviz.cli.terminal import console, exit_after, refusals, time_left

if TYPE_CHECKING:
    from rlviz.experiments import Experiment


def experiment(
    name: Annotated[str | None, typer.Argument(help="Experiment; `--list` lists them.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them, and a table of verdicts.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and their claims.")] = False,
    seeds: Annotated[int, typer.Option(min=2, help="Trials of each, seeds 0, 1, …; a verdict needs a spread.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder; trials that it holds are not run again.")] = Path(
        "runs/experiments"
    ),
    jobs: Annotated[int | None, typer.Option(min=1, help="Trials at once. [default: a core each]")] = None,
    on: On = "local",
) -> None:
    """Test the sources' claims on small models: what was seen of each, and what not, with numbers and pictures."""
    from rlviz.experiments import EXPERIMENTS, find_experiment

    if listed:
        table = Table()
        for column in ("name", "claim", "seconds a seed"):
            table.add_column(column, no_wrap=column == "name")
        for each in EXPERIMENTS:
            table.add_row(each.name, escape(each.claim), f"{each.seconds:.0f}")
        console.print(table)
        return
    with refusals("the experiment"):
        if every == (name is not None):
            raise ValueError("give the name of one experiment, or --all; `rlviz experiment --list` lists them")
        chosen = EXPERIMENTS if every else (find_experiment(name or ""),)
        stopped = _run(chosen, range(seeds), out, jobs, every, on)
    if stopped:
        raise exit_after(stopped)


def _run(chosen: Sequence[Experiment], seeds: range, out: Path, jobs: int | None, every: bool, on: str) -> int | None:
    """Run, judge and draw; return the number of the signal that stopped it."""
    import os
    from contextlib import closing

    from rlviz.cli.signals import stops_interrupt
    from rlviz.experiments.runner import conclude, kept, run_trials, verdict_table, write
    from rlviz.parallel import check_engine, elsewhere

    check_engine(on)
    jobs, waiting = jobs or (None if elsewhere(on) else os.cpu_count()), {each.name: len(seeds) for each in chosen}
    verdicts = {}
    (out / "trials").mkdir(parents=True, exist_ok=True)  # refused now, and not after the first trial
    before = {(each, seed) for each in chosen for seed in seeds if kept(out, each.name, seed).exists()}
    with (
        time_left() as progress,
        stops_interrupt(),
        closing(run_trials(chosen, seeds, out, jobs=jobs, on=on)) as trials,
    ):
        bar = progress.add_task(
            "trials",
            total=sum(each.seconds for each in chosen) * len(seeds),
            completed=round(sum(each.seconds for each, _ in before)),
        )
        try:
            for each, seed in trials:
                advance = 0 if (each, seed) in before else each.seconds
                progress.update(bar, advance=advance, description=f"{each.name}, seed {seed}")
                waiting[each.name] -= 1
                if not waiting[each.name]:
                    verdicts[each.name] = conclude(each, seeds, out)
                    console.print(f"[bold]{each.name}[/]: [bold]{verdicts[each.name]}[/]", soft_wrap=True)
                    console.print(escape(verdicts[each.name].says), soft_wrap=True)
        except KeyboardInterrupt as stop:
            console.print("Stopped. The trials that are done are kept; the same command goes on.")
            return stop.args[0]
    written = out / f"{chosen[0].name}.png"
    if every:
        written = out / "verdicts.md"
        write(written, verdict_table([(each, verdicts[each.name]) for each in chosen], len(seeds)))
    console.print(f"Written: {escape(str(written))}", soft_wrap=True)
    return None
