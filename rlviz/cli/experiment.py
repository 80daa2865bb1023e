"""`rlviz experiment NAME` or `--all`: the sources' claims, tested; their verdicts, numbers and pictures in a folder.

One claim alone joins the table of a folder that has one already, so that a new claim does not ask for all others to run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from rlviz.cli.options import On
from rlviz.cli.terminal import console, plain, run_with_progress, say

if TYPE_CHECKING:
    import pandas as pd

    from rlviz.study import Claim


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
    import os

    from rlviz.study import claims

    if listed:
        table = Table(Column("name", no_wrap=True), "claim", "seconds a seed")
        for claim in claims.CLAIMS:
            table.add_row(claim.name, plain(claim.says), f"{claim.seconds:.0f}")
        console.print(table)
        return
    if every == (name is not None):
        raise ValueError("give the name of one experiment, or --all; `rlviz experiment --list` lists them")
    from rlviz.parallel import is_remote
    from rlviz.study.verdicts import Trials

    chosen: Sequence[Claim] = claims.CLAIMS if every else (claims.find_claim(name or ""),)
    numbers = range(seeds)
    trials = Trials(chosen, numbers, out, jobs=jobs or (None if is_remote(on) else os.cpu_count()), on=on)
    run_with_progress(trials, "trials", lambda step: f"{step[0]}, seed {step[1]}")
    for claim in chosen:
        _conclude(claim, trials.frame(claim), out)
    if every or (out / "verdicts.md").is_file():
        _write_table(out, chosen, set(numbers))
    else:
        say(f"Written: {out / chosen[0].name}.png")


def _conclude(claim: Claim, frame: pd.DataFrame, out: Path) -> None:
    """Write NAME.csv and NAME.png of a claim's trials, and print what became of its effects."""
    from rlviz.page.style import save_figure
    from rlviz.study.effects import counts, forest
    from rlviz.study.verdicts import verdict_lines
    from rlviz.training.files import write_text

    effects, lines = claim.effects(frame), verdict_lines(claim, frame)
    write_text(out / f"{claim.name}.csv", frame.to_csv(index=False))
    save_figure(forest(claim, effects), out / f"{claim.name}.png", description="\n".join([claim.says, *lines]))
    console.print(f"[bold]{claim.name}[/]: [bold]{counts(effects, claim.notes)}[/]", soft_wrap=True)
    for line in lines:
        say(f"- {line}")


def _write_table(out: Path, chosen: Sequence[Claim], seeds: set[int]) -> None:
    """Write verdicts.md from the trials of all claims in a folder, unless it lacks one that was run before with these seeds."""
    from rlviz.study.claims import CLAIMS
    from rlviz.study.verdicts import read_trials, verdict_table
    from rlviz.training.files import write_text

    table, files = out / "verdicts.md", {claim: out / f"{claim.name}.csv" for claim in CLAIMS}
    frames = {claim: read_trials(file) for claim, file in files.items() if file.is_file()}
    frames = {claim: frame for claim, frame in frames.items() if claim in chosen or set(frame["seed"]) == seeds}
    if lacking := [claim.name for claim in CLAIMS if claim not in frames]:
        say(f"{table} stays as it is: it has no {len(seeds)} seeds of {', '.join(lacking)}.")
        return
    write_text(table, verdict_table(frames))
    say(f"Written: {table}")
