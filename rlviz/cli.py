"""The command line: `rlviz train`, `compare`, `experiment`, `algorithms`, `diff`, `cost`, `plot`, `playground`, `lab`.

Heavy imports wait till needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import rlviz
from rlviz.compare_command import compare
from rlviz.experiment_command import experiment
from rlviz.pictures.catalogue import EXPLORERS
from rlviz.terminal import Format, OutputFormat, console, refusals
from rlviz.train_command import train

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="rlviz",
    help="Understand LLM policy optimisation by moving sliders and training small models yourself.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with **rlviz lab** (the course, in your browser) or **rlviz train** (a real run, in your terminal).",
)


def _version(asked: bool) -> None:
    if asked:
        console.print(f"rlviz {rlviz.__version__}")
        raise typer.Exit


@app.callback()
def _rlviz(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def lab(
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port on loopback; the next free one if it is taken.")
    ] = 8888,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            help="Folder to work in; the notebooks are copied there, never over files you changed. "
            "[default: the checkout's notebooks, else ./rlviz-course]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open the course in JupyterLab, on this machine only (loopback, token on)."""
    from rlviz.lab import copy_course, course_source, in_checkout, lab_command, serve

    with refusals():
        if directory is None and in_checkout():
            folder = course_source()
        else:
            folder = (directory or Path("rlviz-course")).resolve()
            report = copy_course(folder)
            console.print(f"{len(report.written)} notebooks copied to {escape(str(folder))}", soft_wrap=True)
            if report.kept:
                console.print(f"Left alone, because you changed them: {', '.join(report.kept)}", soft_wrap=True)
        code = serve(lab_command(folder, port=port, browser=browser))
    raise typer.Exit(code)


@app.command()
def playground(
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port on loopback; the next free one if it is taken.")
    ] = 8866,
) -> None:
    """Open the playground as a web page, without a notebook, on this machine only (loopback, token on)."""
    from rlviz.web import page_command, serve_page

    with refusals():
        code = serve_page(page_command(port=port, browser=browser))
    raise typer.Exit(code)


app.command()(train)


@app.command()
def algorithms(
    relatives: Annotated[
        bool, typer.Option("--relatives", help="The relatives that came later in place of the family.")
    ] = False,
    output: Format = OutputFormat.table,
) -> None:
    """List the family: each algorithm as what it changes in GRPO, and the models it needs."""
    from rlviz.algorithms import ALGORITHMS, GRPO, RELATIVES, changes, command_name, label

    listed = RELATIVES if relatives else ALGORITHMS

    if output is OutputFormat.json:
        rows = [
            {
                "name": command_name(algorithm),
                "algorithm": algorithm.name,
                "slots": {slot: label(piece) for slot, piece in algorithm.slots().items()},
                "beyond the slots": {name: label(part) for name, part in algorithm.beyond_the_slots().items()},
                "models": algorithm.models,
                "source": algorithm.source,
            }
            for algorithm in listed
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    who = "Relatives" if relatives else "The family"
    table = Table(title=f"{who}: GRPO, and what each other one has in place of its pieces", title_justify="left")
    for column in ("name", "slot", "piece"):
        table.add_column(column, no_wrap=column != "piece")
    for algorithm in (GRPO, *(a for a in listed if a is not GRPO)):
        sampling = any(piece is not None for piece in algorithm.slots().values())
        differing = {slot: new for slot, (_, new) in changes(GRPO, algorithm).items() if sampling} or GRPO.slots()
        parts = {slot: label(piece) for slot, piece in (differing.items() if sampling else ())}
        parts |= {name: label(part) for name, part in algorithm.beyond_the_slots().items()}
        if not sampling:
            parts = {"slots": "none of the eight: it learns from given pairs of responses", **parts}
        parts |= {"models": ", ".join(algorithm.models), "source": algorithm.source}
        for place, (slot, words) in enumerate(parts.items()):
            table.add_row("" if place else f"[bold]{command_name(algorithm)}[/]", slot, escape(words))
        table.add_section()
    console.print(table)
    console.print(
        "What differs, and why: rlviz diff grpo dapo. An algorithm on one page: rlviz show grpo", markup=False
    )


@app.command()
def diff(
    first: Annotated[str, typer.Argument(help="Algorithm, for example grpo.")],
    second: Annotated[str, typer.Argument(help="Algorithm, for example dapo.")],
    output: Format = OutputFormat.table,
) -> None:
    """Say in which slots two algorithms differ, and why the second one has what it has."""
    from dataclasses import asdict

    from rlviz.algorithms import differences, find_algorithm

    with refusals():
        a, b = find_algorithm(first), find_algorithm(second)
    rows = differences(a, b)
    if output is OutputFormat.json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False))
        return
    if not rows:
        console.print(f"{a.name} and {b.name} do not differ.", markup=False)
        return
    table = Table(title=f"From {a.name} to {b.name}", title_justify="left", show_lines=console.is_terminal)
    for column in ("slot", a.name, b.name, "why"):
        table.add_column(column)
    for row in rows:
        table.add_row(f"[bold]{row.slot}[/]", *(escape(text) for text in (row.before, row.after, row.why)))
    wide = console if console.is_terminal else Console(highlight=False, width=1000)  # in a file, a line a slot
    wide.print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Algorithm, for example grpo.")],
    against: Annotated[
        str | None,
        typer.Option(help="Mark what differs from this algorithm: - a line of it that is gone, + one that came."),
    ] = None,
) -> None:
    """Print an algorithm on one page: its own pieces in the order in which they are called, then its loss; Python that runs."""
    from rich.syntax import Syntax

    from rlviz.algorithms import find_algorithm
    from rlviz.algorithms.page import show as page_of

    with refusals():
        page = page_of(find_algorithm(name), against=None if against is None else find_algorithm(against))
    if console.is_terminal:
        language = "diff" if page.marked else "python"
        console.print(Syntax(str(page), language, theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        typer.echo(str(page))


@app.command(context_settings={"help_option_names": [], "allow_extra_args": True, "ignore_unknown_options": True})
def plot(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"Picture: {', '.join(EXPLORERS)}.", show_default=False)] = "--help",
) -> None:
    """Draw a picture of the course into a file: **rlviz plot clip --out clip.svg --eps-high .5**

    Every slider of the picture is an option: **rlviz plot clip --help** lists them. PNG, SVG or PDF, by the ending of --out.
    """
    if name in ("--help", "-h"):
        typer.echo(context.get_help())
        return
    from rlviz.plot_command import draw, options_of

    with refusals():
        if {"--help", "-h"} & set(context.args):
            typer.echo(options_of(name).format_help())
            return
        out, words = draw(name, context.args)
    console.print(f"{escape(str(out))}: {escape(words)}", soft_wrap=True)


app.command()(refusals()(compare))
app.command()(experiment)


@app.command()
def cost(
    task: Annotated[str, typer.Option(help="Task: chain, lookup, ramble, sort or trip.")] = "chain",
    policy: Annotated[
        str | None,
        typer.Option(help="Policy: a shipped name, a folder, or a hub name. [default: the task's warm start]"),
    ] = None,
    num_prompts: Annotated[int, typer.Option(help="Prompts in one rollout.")] = 32,
    group_size: Annotated[int, typer.Option(help="Responses to each prompt, an even number.")] = 8,
    updates: Annotated[int, typer.Option(help="Optimizer steps on each rollout.")] = 1,
    repeats: Annotated[int, typer.Option(help="Rounds in which the settings take turns; medians are shown.")] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Draw the table into this file too: PNG, SVG or PDF.")] = None,
    output: Format = OutputFormat.table,
) -> None:
    """Measure what the models of GRPO, PPO and DPO cost: bytes and seconds of real updates on the same responses.

    On *chain* about fifteen seconds. Nothing is trained: the learning rate is next to 0.
    """
    from dataclasses import asdict

    from rlviz.pictures.base import DESCRIPTION, save_figure
    from rlviz.runs.cost import ALT, plot_costs
    from rlviz.training import find_task
    from rlviz.training.cost import ModelCost, cost_table, model_costs
    from small_models.policies import load_policy

    with refusals(), console.status("Measuring"):
        if out is not None and out.suffix.lower() not in DESCRIPTION:  # before minutes of measuring
            raise ValueError(f"out must end in {', '.join(DESCRIPTION)}; got {out.name}")
        the_task = find_task(task)
        loaded = load_policy(policy or the_task.name, device=device)
        costs = model_costs(
            loaded,
            the_task,
            num_prompts=num_prompts,
            group_size=group_size,
            updates_per_rollout=updates,
            repeats=repeats,
        )
        sums = cost_table(costs)
        if out is not None:
            save_figure(plot_costs(sums), out, description=ALT)
    if output is OutputFormat.json:
        totals = sums[["bytes", "bytes_to_grpo"]].to_dict("records")
        typer.echo(json.dumps([asdict(cost) | row for cost, row in zip(costs, totals, strict=True)], indent=2))
        return
    console.print(
        f"{escape(loaded.source)}, {loaded.num_parameters:,} parameters on {loaded.device.type}: "
        f"{costs[0].responses} responses of together {costs[0].tokens:,} tokens a step, padding included",
        soft_wrap=True,
    )
    first_in: dict[ModelCost, str] = {}
    for cost in costs:
        for model in cost.models:
            first_in.setdefault(model, cost.name)
    _print_table(
        "What a model holds",
        ("model", "first in", "parameters", "weights", "gradients", "optimizer"),
        [
            (
                *(model.role, name, f"{model.parameters:,}"),
                *map(_bytes_said, (model.weights, model.gradients, model.optimizer_state)),
            )
            for model, name in first_in.items()
        ],
    )
    _print_table(
        "Memory at the peak of an update",
        ("setting", "models", "models hold", "activations", "together", "× GRPO"),
        [
            (
                *(cost.name, str(len(cost.models))),
                *map(_bytes_said, (cost.bytes - cost.activations, cost.activations, cost.bytes)),
                f"{ratio:.2f}",
            )
            for cost, ratio in zip(costs, sums["bytes_to_grpo"], strict=True)
        ],
    )
    _print_table(
        "Seconds",
        ("setting", "rollout", "an update", "step", "× GRPO"),
        [
            (
                *(cost.name, f"{cost.rollout_seconds:.3f}" if cost.rollout_seconds else "–"),
                *(f"{cost.update_seconds:.3f}", f"{cost.step_seconds:.3f}", f"{cost.seconds_to_grpo:.2f}"),
            )
            for cost in costs
        ],
    )
    if out is not None:
        console.print(f"Picture: {escape(str(out))}", soft_wrap=True)


def _print_table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in columns:
        words = column in ("model", "first in", "setting")
        table.add_column(column, justify="left" if words else "right", no_wrap=not words)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _bytes_said(count: int) -> str:
    from rlviz.runs.cost import UNITS

    unit, size = next(((unit, size) for unit, size in UNITS.items() if count >= size), ("B", 1))
    return f"{count / size:.3g} {unit}" if count else "–"


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
