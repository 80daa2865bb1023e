"""`rlviz compare`: algorithms side by side at the same budget, over seeds."""

from __future__ import annotations

import json
import math
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table

from rlviz.cli.options import (
    ChatTemplate,
    Device,
    On,
    PolicyName,
    ReferenceName,
    Rule,
    TaskOrFile,
    options_of,
    refuse_beside,
    with_options,
    without_usual_kl,
)
from rlviz.cli.terminal import Format, errors, exit_after, plain, print_json, say, wide_console
from rlviz.settings import RECORDS, RUN, PairSettings, TrainSettings

if TYPE_CHECKING:
    from rlviz.study import Comparison, Contender
    from rlviz.study.comparison import Comparing

SET_BY_THE_COMPARISON = (RUN, RECORDS)  # panels of settings: how long a run is, its seed, when it is evaluated
SAID_OF_FOLDERS = ("folders", "budget", "amount", "out", "output")


@with_options(settings=options_of(TrainSettings, PairSettings, without=SET_BY_THE_COMPARISON))
def compare(
    context: typer.Context,
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
    task: TaskOrFile = "chain",
    rule: Rule = None,
    chat: ChatTemplate = "auto",
    policy: PolicyName = None,
    reference: ReferenceName = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with the seeds 0, 1, …", rich_help_panel=RUN)] = 5,
    budget: Annotated[
        Literal["responses", "updates", "seconds"],
        typer.Option(
            help="What each run may use up: responses sampled, optimizer updates, or seconds of training.",
            rich_help_panel=RUN,
        ),
    ] = "responses",
    amount: Annotated[
        float | None,
        typer.Option(
            help="How much of it. [default: 15360 responses, 60 updates, 4 seconds; of run folders: as far as all reach]",
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
    device: Device = "auto",
    output: Format = "table",
) -> None:
    """Compare algorithms at the same budget: **rlviz compare --algorithms grpo,dapo --seeds 5**

    Trains what is missing, each algorithm as `rlviz train` has it, and draws curves over the budget. Ctrl-C stops after the
    current steps; the same command goes on, and shows again what is complete.
    """
    if folders:
        refuse_beside(context, "run folders: they are what they were trained as", SAID_OF_FOLDERS)
        from rlviz.study import read_comparison

        with errors.status("Reading"):
            comparison = read_comparison(folders, budget=budget, amount=amount)
        _show(comparison, out, output)
        return
    if algorithms is None:
        raise ValueError("give --algorithms, such as grpo,dapo, or folders of runs")
    with errors.status("Loading"):
        from rlviz.parallel import check_engine, elsewhere
        from rlviz.study import compare as begin
        from rlviz.training.start import task_and_policy

        check_engine(on)
        the_task, _ = task_and_policy(task, policy, rule=rule, chat=chat, device=device)
        comparing = begin(
            [_contender(name, settings, reference) for name in algorithms.split(",") if name.strip()],
            the_task,
            policy,
            seeds=seeds,
            budget=budget,
            amount=amount,
            out=out,
            jobs=jobs or (None if elsewhere(on) else _cores(budget, device)),
            device=device,
            on=on,
        )
    if stopped := _train(comparing):
        done = sum(job.complete for job in comparing.all)
        runs = f"{done} of {len(comparing.all)} runs are complete in {comparing.folder}"
        say(f"Stopped: {runs}. The same command goes on.", errors)
        raise exit_after(stopped)
    _show(comparing.result(), comparing.folder, output)


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


def _train(comparing: Comparing) -> int | None:
    """Train what is missing and show it; return the number of the signal that stopped it before all was complete."""
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from rlviz.cli.signals import interrupt_is_a_wish, stops_interrupt

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[said]}")
    bars = Progress(*columns, TimeRemainingColumn(), console=errors)
    runs = len(comparing.all)
    total = bars.add_task(f"{runs - len(comparing.missing)} of {runs} runs", total=len(comparing.missing), said="ETA")
    shares: dict[tuple[str, int], float] = {}
    rows: dict[tuple[str, int], Any] = {}
    done = runs - len(comparing.missing)
    shown = errors.is_terminal and bool(comparing.missing)
    live = Live(bars, console=errors, transient=True) if shown else nullcontext()
    wish: AbstractContextManager[list[int]]
    wish = interrupt_is_a_wish() if comparing.here else nullcontext([])  # a step of a worker is not cut in two
    with stops_interrupt() as stopped, wish as asked, closing(comparing), live:
        for now in comparing:
            key = (now.contender, now.seed)
            shares[key] = min(1.0, now.spent / now.amount)
            if now.done:
                done += 1
                if key in rows:
                    bars.remove_task(rows.pop(key))
                if not shown:
                    words = f"{now.contender}, seed {now.seed}: held-out accuracy {now.accuracy:.3f}"
                    say(f"{words} ({done} of {runs} runs)", errors)
            else:
                if key not in rows:
                    rows[key] = bars.add_task(f"{plain(now.contender)}, seed {now.seed}", total=1.0, said="")
                accuracy = "" if now.accuracy is None else f"accuracy {now.accuracy:.2f}"
                bars.update(rows[key], completed=shares[key], said=accuracy)
            bars.update(total, completed=sum(shares.values()), description=f"{done} of {runs} runs")
            if asked:
                break
    signals = [*asked, *stopped]
    return signals[0] if signals and done < runs else None


def _show(comparison: Comparison, folder: Path | None, output: str) -> None:
    picture = None if folder is None else folder / "comparison.png"
    if picture is not None:
        _draw(comparison, picture)
    if output == "json":
        print_json(_as_json(comparison, picture))
        return
    wide_console().print(_table(comparison))
    for sentence in comparison.verdict():
        say(sentence)
    if picture is not None:
        say(f"Picture: {picture}")


def _spent(comparison: Comparison) -> str:
    from rlviz.runs.comparison import BUDGET_WORDS

    return f"{comparison.amount:,.6g} {BUDGET_WORDS[comparison.budget]}"


def _draw(comparison: Comparison, picture: Path) -> None:
    from rlviz.page.style import save_figure
    from rlviz.runs.comparison import alt, plot_comparison

    title = f"{comparison.task}: held-out accuracy at {_spent(comparison)}"
    figure = plot_comparison(comparison.curves(), comparison.table(), comparison.at_budget(), title=title)
    save_figure(figure, picture, description=" ".join([alt(len(comparison.contenders)), *comparison.verdict()]))


def _as_json(comparison: Comparison, picture: Path | None) -> dict[str, Any]:
    return {
        "task": comparison.task,
        "budget": comparison.budget,
        "amount": comparison.amount,
        "contenders": json.loads(comparison.table().to_json(orient="records")),
        "differences": json.loads(comparison.differences().to_json(orient="records")),
        "verdict": comparison.verdict(),
        "picture": None if picture is None else str(picture),
    }


def _table(comparison: Comparison) -> Table:
    """Return the contenders as a table that fits 80 columns."""
    from rlviz.runs.comparison import BUDGET_WORDS

    title = f"Held-out accuracy on {plain(comparison.task)} after {_spent(comparison)}"
    spent_too = [name for name in BUDGET_WORDS if name != comparison.budget]
    numbers = ("runs", "IQM", "95 % interval", "mean", "low–high", *spent_too)
    columns = (Column(name, justify="right", no_wrap=True) for name in numbers)
    table = Table("", *columns, title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    for row in comparison.table().to_dict("records"):
        accuracies = (f"{row['iqm']:.3f}", _range(row["low"], row["high"]), f"{row['mean']:.3f}")
        table.add_row(
            *(plain(row["contender"]), str(row["runs"]), *accuracies, _range(row["lowest"], row["highest"])),
            *(_used(name, row[name]) for name in spent_too),
        )
    return table


def _range(low: float, high: float) -> str:
    return f"{low:.3f}–{high:.3f}"


def _used(budget: str, amount: float) -> str:
    if math.isnan(amount):
        return "–"
    return f"{amount:.1f}" if budget == "seconds" else f"{amount:,.0f}"
