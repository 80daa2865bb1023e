"""`rlviz compare`: algorithms side by side at the same budget, over seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from rlviz.cli.options import Beginning, On, options_of, refuse_beside, with_options, without_usual_kl
from rlviz.cli.terminal import errors, plain, run_with_progress, say, wide_console
from rlviz.settings import RECORDS, RUN, PairSettings, TrainSettings

if TYPE_CHECKING:
    from rlviz.study import Comparison, Contender
    from rlviz.study.budget import RunProgress

SET_BY_THE_COMPARISON = (RUN, RECORDS)  # panels of settings: how long a run is, its seed, when it is evaluated
SAID_OF_FOLDERS = ("folders", "budget", "amount", "out")
USED = {"responses": "{:,.0f}", "updates": "{:,.0f}", "seconds": "{:.1f}"}  # how a table writes what runs used up


@with_options(
    beginning=options_of(Beginning), settings=options_of(TrainSettings, PairSettings, without=SET_BY_THE_COMPARISON)
)
def compare(
    context: typer.Context,
    beginning: dict[str, Any],
    settings: dict[str, Any],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN_DIR]...",
            help="Compare these runs (or folders of runs) instead of training.",
            show_default=False,
        ),
    ] = None,
    algorithms: Annotated[
        str | None,
        typer.Option(
            help="Names as in `rlviz algorithms`, with commas. The others are compared with the first.",
            rich_help_panel=RUN,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with the seeds 0, 1, …", rich_help_panel=RUN)] = 5,
    budget: Annotated[
        Literal["responses", "seconds"],
        typer.Option(help="What each run may use up: responses sampled, or seconds of training.", rich_help_panel=RUN),
    ] = "responses",
    amount: Annotated[
        float | None,
        typer.Option(
            help="How much of it. [default: 15360 responses, 4 seconds; of run folders: as far as all reach]",
            rich_help_panel=RUN,
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the runs, or to go on in. [default: runs/compare-NUMBER; of run folders: no picture]",
            rich_help_panel=RUN,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=RUN,
            show_default=False,
            help="Processes. [default: as many as cores; 1 with seconds, which they would take from each other, and on a GPU]",
        ),
    ] = None,
    on: On = "local",
) -> None:
    """Compare algorithms at the same budget: **rlviz compare --algorithms grpo,dapo --seeds 5**

    Trains what is missing, each algorithm as `rlviz train` has it, and draws curves over the budget. Ctrl-C keeps what is done;
    the same command goes on, and shows again what is complete.
    """
    if folders:
        refuse_beside(context, "run folders: they are what they were trained as", SAID_OF_FOLDERS)
        from rlviz.study import read_comparison

        with errors.status("Reading"):
            comparison = read_comparison(folders, budget=budget, amount=amount)
        _answer(comparison, out)
        return
    if algorithms is None:
        raise ValueError("give --algorithms, such as grpo,dapo, or folders of runs")
    with errors.status("Loading"):
        from rlviz.parallel import is_remote
        from rlviz.study import compare as begin

        first = Beginning(**beginning)
        task, _ = first.load()
        comparing = begin(
            [_contender(name, settings, first.reference) for name in algorithms.split(",") if name.strip()],
            task,
            first.policy,
            seeds=seeds,
            budget=budget,
            amount=amount,
            out=out,
            jobs=jobs or (None if is_remote(on) else _cores(budget, first.device)),
            device=first.device,
            on=on,
        )
    if comparing.missing:
        run_with_progress(comparing, "runs", _words, errors)
    _answer(comparing.result(), comparing.folder)


def _contender(name: str, settings: dict[str, Any], reference: str | None) -> Contender:
    from rlviz.algorithms import find_algorithm
    from rlviz.study import Contender
    from rlviz.training import default_settings

    algorithm = without_usual_kl(find_algorithm(name))
    return Contender(algorithm.name, algorithm, default_settings(algorithm, **settings), reference)


def _cores(budget: str, device: str) -> int:
    import torch

    from small_models.policies import choose_device

    alone = budget == "seconds" or choose_device(device).type != "cpu"
    return 1 if alone else torch.get_num_threads()  # torch's own default: the physical cores that this process may use


def _words(now: RunProgress) -> str:
    """Return the progress line of a run; once it is done, print its accuracy."""
    run = f"{now.contender}, seed {now.seed}"
    if now.done:
        say(f"{run}: held-out accuracy {now.accuracy:.3f}", errors)
    return plain(f"{run}, {min(1.0, now.spent / now.amount):.0%}")


def _answer(comparison: Comparison, folder: Path | None) -> None:
    """Print the table and what it says, and draw the picture into the folder."""
    from rlviz.page.style import save_figure
    from rlviz.runs.comparison import ALT, plot_comparison

    verdict = comparison.verdict()
    wide_console().print(_table(comparison))
    for sentence in verdict:
        say(sentence)
    if folder is not None:
        picture = folder / "comparison.png"
        save_figure(plot_comparison(comparison), picture, description=" ".join([ALT, *verdict]))
        say(f"Picture: {picture}")


def _table(comparison: Comparison) -> Table:
    """Return the contenders as a table that fits 80 columns."""
    from rlviz.runs.comparison import BUDGET_WORDS

    spent = f"{comparison.amount:,.6g} {BUDGET_WORDS[comparison.budget]}"
    beside = {name: form for name, form in USED.items() if name != comparison.budget}
    names = ("runs", "IQM", "95 % interval", "mean", "low–high", *beside)
    columns = (Column(name, justify="right", no_wrap=True) for name in names)
    title = f"Held-out accuracy on {plain(comparison.task)} after {spent}"
    table = Table("", *columns, title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    for row in comparison.table().to_dict("records"):
        table.add_row(
            plain(row["contender"]),
            str(row["runs"]),
            f"{row['iqm']:.3f}",
            f"{row['low']:.3f}–{row['high']:.3f}",
            f"{row['mean']:.3f}",
            f"{row['lowest']:.3f}–{row['highest']:.3f}",
            *("–" if math.isnan(row[name]) else form.format(row[name]) for name, form in beside.items()),
        )
    return table
