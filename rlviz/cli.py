"""The command line: `rlviz train`, `algorithms`, `diff`, `plot`, `lab`. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import Enum
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import rlviz

if TYPE_CHECKING:
    from rlviz.training import TrainingRun
    from rlviz.types import StepRecord

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
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)
PICTURES = (
    "clip", "bounds", "advantages", "entropy", "ratio", "aggregation", "kl", "gae", "dpo", "overlong", "sampling", "process",
)  # fmt: skip
SAMPLING, UPDATING, RUN = "Rollouts", "Updates", "Run"


@contextmanager
def refusals() -> Iterator[None]:
    """Turn a refused value or file into one sentence and exit code 2."""
    try:
        yield
    except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: torch is out of memory
        errors.print(f"[bold red]Error:[/] {escape(_sentence(error))}", soft_wrap=True)
        raise typer.Exit(2) from None


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file of the run'} cannot be written or read ({error.strerror})"
    return " ".join(str(error).split())


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


@app.command()
def train(
    context: typer.Context,
    algorithm: Annotated[
        str, typer.Option(help="Algorithm; `rlviz algorithms` lists them.", rich_help_panel=RUN)
    ] = "grpo",
    task: Annotated[str, typer.Option(help="Task: chain, sort or trip.", rich_help_panel=RUN)] = "chain",
    steps: Annotated[int | None, typer.Option(help="Rollouts in the run. [default: 120]", rich_help_panel=RUN)] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same curve.", rich_help_panel=RUN)] = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Starting policy: a shipped name, a folder, or a hub name. [default: the task's warm start]",
            rich_help_panel=RUN,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=RUN)] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for the run. [default: runs/TASK-ALGORITHM-NUMBER]", rich_help_panel=RUN),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with the run in this folder; its settings stay, but for --steps and --device.",
            rich_help_panel=RUN,
        ),
    ] = None,
    num_prompts: Annotated[int, typer.Option(help="Prompts in one rollout.", rich_help_panel=SAMPLING)] = 32,
    group_size: Annotated[int, typer.Option(help="Responses to each prompt, G.", rich_help_panel=SAMPLING)] = 8,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.", rich_help_panel=SAMPLING)] = 1.0,
    top_k: Annotated[
        int, typer.Option(help="Sample from the likeliest k tokens; 0: all.", rich_help_panel=SAMPLING)
    ] = 0,
    top_p: Annotated[float, typer.Option(help="Sample from the likeliest mass p.", rich_help_panel=SAMPLING)] = 1.0,
    reward_format: Annotated[
        float,
        typer.Option(
            help="Added to the reward of a well-formed response; a right answer earns 1.", rich_help_panel=SAMPLING
        ),
    ] = 0.0,
    eps_low: Annotated[
        float | None,
        typer.Option(help="Clip width below ratio 1. [default: the algorithm's]", rich_help_panel=UPDATING),
    ] = None,
    eps_high: Annotated[
        float | None,
        typer.Option(help="Clip width above ratio 1. [default: the algorithm's]", rich_help_panel=UPDATING),
    ] = None,
    beta: Annotated[
        float,
        typer.Option(
            help="Weight of the KL to the starting policy (GRPO's paper: 0.04); 0: none.", rich_help_panel=UPDATING
        ),
    ] = 0.0,
    lr: Annotated[float, typer.Option(help="Learning rate of AdamW.", rich_help_panel=UPDATING)] = 3e-4,
    updates_per_rollout: Annotated[
        int,
        typer.Option(
            help="Optimizer steps on each rollout; with 1 the ratio stays 1 and nothing clips.",
            rich_help_panel=UPDATING,
        ),
    ] = 1,
    minibatches: Annotated[int, typer.Option(help="Parts a rollout is split into.", rich_help_panel=UPDATING)] = 1,
) -> None:
    """Train a small transformer and watch it learn. `rlviz train` alone trains GRPO on *chain* for about ten seconds.

    Ctrl-C stops after the current step and keeps the run; `--resume DIR` goes on with it.
    """
    with refusals(), console.status("Loading"):
        if resume is not None:
            _refuse_beside_resume(context)
            from rlviz.training import resume as resume_run

            run = resume_run(resume, steps=steps, device=device)
        else:
            settings = {
                "num_prompts": num_prompts, "group_size": group_size, "temperature": temperature, "top_k": top_k,
                "top_p": top_p, "reward_format": reward_format, "lr": lr, "updates_per_rollout": updates_per_rollout,
                "minibatches": minibatches, "seed": seed, **({} if steps is None else {"steps": steps}),
            }  # fmt: skip
            run = _new_run(algorithm, task, policy, device, out, eps_low, eps_high, beta, settings)
    stopped = _show_training(run)
    if stopped:
        words = f"Stopped after step {run.step}. Go on with: rlviz train --resume {_shown(run)}"
        console.print(words, soft_wrap=True, markup=False)
    with refusals():
        _show_summary(run)
    if stopped:
        raise typer.Exit(130)


class OutputFormat(str, Enum):
    table = "table"
    json = "json"


Format = Annotated[OutputFormat, typer.Option("--format", help="For people, or for programs.")]


@app.command()
def algorithms(output: Format = OutputFormat.table) -> None:
    """List the family: each algorithm as what it changes in GRPO, and the models it needs."""
    from rlviz.algorithms import ALGORITHMS, GRPO, changes, command_name, label

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
            for algorithm in ALGORITHMS
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(title="The family: GRPO, and what each other one has in place of its pieces", title_justify="left")
    for column in ("name", "slot", "piece"):
        table.add_column(column, no_wrap=column != "piece")
    for algorithm in (GRPO, *(a for a in ALGORITHMS if a is not GRPO)):
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
    console.print("What differs, and why: rlviz diff grpo dapo", markup=False)


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


@app.command(context_settings={"help_option_names": [], "allow_extra_args": True, "ignore_unknown_options": True})
def plot(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"Picture: {', '.join(PICTURES)}.", show_default=False)] = "--help",
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


def _refuse_beside_resume(context: typer.Context) -> None:
    """Raise ValueError for an option that a resumed run would ignore: its settings are those it began with."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in ("resume", "steps", "device") and source is not None and source.name == "COMMANDLINE":
            raise ValueError(
                f"--{name.replace('_', '-')} cannot be given with --resume: the run keeps what it began with"
            )


def _new_run(
    algorithm: str,
    task: str,
    policy: str | None,
    device: str,
    out: Path | None,
    eps_low: float | None,
    eps_high: float | None,
    beta: float,
    settings: dict[str, Any],
) -> TrainingRun:
    from dataclasses import replace

    from rlviz.algorithms import command_name, find_algorithm
    from rlviz.pieces.kl import KLInLoss
    from rlviz.training import TrainSettings, find_task, trainable
    from rlviz.training import train as start
    from small_models.policies import load_policy

    if beta < 0:
        raise ValueError(f"beta must be 0 (no KL term) or above; got {beta}")
    chosen, the_task, train_settings = trainable(find_algorithm(algorithm)), find_task(task), TrainSettings(**settings)
    widths = {name: value for name, value in (("eps_low", eps_low), ("eps_high", eps_high)) if value is not None}
    chosen = chosen.with_parameters(**widths)
    chosen = replace(chosen, kl=None if beta == 0 else KLInLoss(beta=beta))
    loaded = load_policy(policy or the_task.name, device=device)
    if out is not None:
        return start(loaded, the_task, chosen, train_settings, out=out)
    numbered = (Path("runs") / f"{the_task.name}-{command_name(chosen)}-{number:03d}" for number in count(1))
    ours = next(folder for folder in numbered if _claimed(folder))
    try:
        return start(loaded, the_task, chosen, train_settings, out=ours)
    except ValueError:
        ours.rmdir()
        raise


def _claimed(folder: Path) -> bool:
    """Make the folder; return whether it is ours, and not that of a run begun at the same moment."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _shown(run: TrainingRun) -> str:
    return str(run.folder.path) if run.folder else ""


@contextmanager
def _interrupt_is_a_wish() -> Iterator[list[bool]]:
    """Let the first Ctrl-C set a flag, so that a step is never cut in two; the second one interrupts as always."""
    asked: list[bool] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(True)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _numbers(record: StepRecord) -> str:
    return (
        f"reward {record.reward:.2f}  accuracy {record.accuracy:.2f}  entropy {record.entropy:.2f}  "
        f"clipped low {record.clip_fraction_low:.1%} high {record.clip_fraction_high:.1%}"
    )


def _show_training(run: TrainingRun) -> bool:
    """Run to the end or to Ctrl-C, showing each step; return whether it was stopped."""
    settings = run.settings
    console.print(
        f"[bold]{escape(run.algorithm.name)}[/] on [bold]{escape(run.task.name)}[/]: {settings.num_prompts} prompts × "
        f"{settings.group_size} responses a step, {run.policy.num_parameters:,} parameters on {run.policy.device.type}, "
        f"seed {settings.seed}, in {escape(_shown(run))}",
        soft_wrap=True,
    )
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("ETA"), TimeRemainingColumn()
    progress = Progress(*columns, console=console)
    bar = progress.add_task("", total=settings.steps, completed=run.step)
    live = Live(progress, console=console) if console.is_terminal else nullcontext()
    with _interrupt_is_a_wish() as asked, refusals(), live:
        for record in run:
            progress.update(bar, completed=record.step)
            if isinstance(live, Live):
                live.update(Group(progress, _numbers(record)))
            elif record.step % 20 == 0 or record.step == settings.steps:
                console.print(f"step {record.step}/{settings.steps}  {_numbers(record)}", soft_wrap=True)
            if asked:
                run.save()
                return run.step < settings.steps
    return False


def _show_summary(run: TrainingRun) -> None:
    from rlviz.plots import plot_learning_curves
    from rlviz.training import summarize

    summary = summarize(run)
    table = Table(title="Held-out prompts", title_justify="left")
    for column in ("", "before", "after"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row(
        "accuracy, sampled at temperature 1", *(f"{summary[f'accuracy_{w}']:.3f}" for w in ("before", "after"))
    )
    table.add_row("accuracy, greedy", *(f"{summary[f'greedy_accuracy_{w}']:.3f}" for w in ("before", "after")))
    console.print(table)
    seconds = summary["train_seconds"]
    rate = summary["tokens_sampled"] / max(seconds, 1e-9)
    tokens = f"{summary['tokens_sampled']:,} tokens sampled, {rate:,.0f} a second"
    console.print(
        f"{summary['steps']} step{'' if summary['steps'] == 1 else 's'} in {seconds:.1f} s of training; {tokens}"
    )
    _show_samples(run)
    if run.folder is not None and not run.folder.metrics.empty:
        picture = run.folder.path / "learning_curves.png"
        title = f"{run.algorithm.name} on {run.task.name}, seed {run.settings.seed}"
        temporary = picture.with_name(".learning_curves.png")
        plot_learning_curves(run.folder.metrics, title=title).savefig(temporary, format="png")
        temporary.replace(picture)
        console.print(f"Curves: {escape(str(picture))}", soft_wrap=True)


def _show_samples(run: TrainingRun) -> None:
    import torch

    from small_models.sampling import sample

    prompts = run.task.held_out_prompts[:3]
    generator = torch.Generator().manual_seed(run.settings.seed)
    limit = run.settings.max_new_tokens or run.task.max_new_tokens
    texts = sample(run.policy, prompts, max_new_tokens=limit, generator=generator).texts(run.policy)
    table = Table(title="Three held-out prompts", title_justify="left")
    for column in ("prompt", "response", "graded"):
        table.add_column(column)
    for prompt, (text,) in zip(prompts, texts, strict=True):
        grade = run.task.grade(prompt, text)
        verdict = "right" if grade.correct else "wrong" if grade.format else "not well formed"
        verdict += "" if grade.correct else f" (right: {run.task.gold(prompt)})"
        table.add_row(escape(prompt), escape(text), escape(verdict))
    console.print(table)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
