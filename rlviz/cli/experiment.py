"""`rlviz experiment NAME` or `--all`: the sources' claims, tested; their verdicts, numbers and pictures in a folder.

One claim alone joins the table of a folder that has one already, so that a new claim does not ask for all others to run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from rlviz.cli.options import On
from rlviz.cli.terminal import console, plain, run_under_a_bar, say

if TYPE_CHECKING:
    import pandas as pd

    from rlviz.study import Claim, Verdict


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
    from rlviz.study import claims

    if listed:
        table = Table(Column("name", no_wrap=True), "claim", "seconds a seed")
        for each in claims.CLAIMS:
            table.add_row(each.name, plain(each.claim), f"{each.seconds:.0f}")
        console.print(table)
        return
    if every == (name is not None):
        raise ValueError("give the name of one experiment, or --all; `rlviz experiment --list` lists them")
    chosen = claims.CLAIMS if every else (claims.find_claim(name or ""),)
    _run(chosen, range(seeds), out, jobs, every, on)


def _run(chosen: Sequence[Claim], seeds: range, out: Path, jobs: int | None, every: bool, on: str) -> None:
    """Run, judge and draw."""
    import os

    from rlviz.parallel import elsewhere
    from rlviz.study.claim import Trials, verdict_table
    from rlviz.study.claims import CLAIMS
    from rlviz.training.files import write_text

    trials = Trials(chosen, seeds, out, jobs=jobs or (None if elsewhere(on) else os.cpu_count()), on=on)
    known, verdicts = {each.name: each for each in chosen}, {}
    missing = Counter(name for name, _ in (trial.key for trial in trials.missing))

    def conclude(name: str) -> None:
        verdicts[name] = _conclude(known[name], trials.frame(known[name]), out)
        console.print(f"[bold]{name}[/]: [bold]{verdicts[name]}[/]", soft_wrap=True)
        say(verdicts[name].says)

    def said(step: tuple[str, int]) -> str:
        name, seed = step
        missing[name] -= 1
        if not missing[name]:
            conclude(name)
        return f"{name}, seed {seed}"

    for name in known:
        if not missing[name]:
            conclude(name)
    run_under_a_bar(trials, "trials", said)
    written, table = out / f"{chosen[0].name}.png", out / "verdicts.md"
    if every or table.is_file():
        others = [each for each in CLAIMS if each.name not in verdicts]
        kept = {each.name: frame for each in others if (frame := _kept(each, seeds, out)) is not None}
        if without := [each.name for each in others if each.name not in kept]:
            say(f"{table} stays as it is: it has no {len(seeds)} seeds of {', '.join(without)}.")
        else:
            listed = [(each, verdicts.get(each.name) or each.judge(kept[each.name])) for each in CLAIMS]
            write_text(table, verdict_table(listed, len(seeds)))
            written = table
    say(f"Written: {written}")


def _kept(claim: Claim, seeds: range, out: Path) -> pd.DataFrame | None:
    """Return the trials of a claim that an earlier run wrote into a folder, None where they are not of these seeds."""
    from rlviz.study.claim import read

    file = out / f"{claim.name}.csv"
    frame = read(file) if file.is_file() else None
    return frame if frame is not None and set(frame["seed"]) == set(seeds) else None


def _conclude(claim: Claim, frame: pd.DataFrame, out: Path) -> Verdict:
    """Judge and draw a claim's trials; write NAME.csv and NAME.png, and return the verdict."""
    from rlviz.page.style import save_figure
    from rlviz.runs.arms import draw_claim
    from rlviz.training.files import write_text

    verdict = claim.judge(frame)
    write_text(out / f"{claim.name}.csv", frame.to_csv(index=False))
    save_figure(draw_claim(claim, frame), out / f"{claim.name}.png", description=f"{claim.claim} {verdict.says}")
    return verdict
