"""`rlviz cost`: what the models of GRPO, PPO and DPO cost in memory and time, and how memory grows with G and T."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from rlviz.cli.options import Device, PolicyName, TaskName, refuse_beside
from rlviz.cli.terminal import Format, console, refusals

if TYPE_CHECKING:
    from rlviz.training.cost import Cost
    from rlviz.training.growth import Growth
    from small_models.policies import Policy
    from small_models.tasks import Task

MICRO_BATCH = 1024
OF_GROWTH = "growth", "task", "policy", "num_prompts", "micro_batch_tokens", "device", "out", "output"


def cost(
    context: typer.Context,
    task: TaskName = "chain",
    policy: PolicyName = None,
    num_prompts: Annotated[int, typer.Option(help="Prompts in one rollout.")] = 32,
    group_size: Annotated[int, typer.Option(help="Responses to each prompt, an even number.")] = 8,
    updates: Annotated[int, typer.Option(help="Optimizer steps on each rollout.")] = 1,
    repeats: Annotated[int, typer.Option(help="Rounds in which the settings take turns; medians are shown.")] = 5,
    growth: Annotated[
        bool, typer.Option("--growth", help="Measure how a step's memory grows with G and T, in place of models.")
    ] = False,
    micro_batch_tokens: Annotated[
        int, typer.Option(help="With --growth: tokens that an update in micro-batches holds at once.")
    ] = MICRO_BATCH,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Draw the table into this file too: PNG, SVG or PDF.")] = None,
    output: Format = "table",
) -> None:
    """Measure what the models of GRPO, PPO and DPO cost: bytes and seconds of real updates on the same responses.

    On *chain* about fifteen seconds. Nothing is trained: the learning rate is next to 0.
    """
    from rlviz.page.style import DESCRIPTION
    from rlviz.training import find_task
    from small_models.policies import load_policy

    with refusals(), console.status("Measuring"):
        if growth:
            refuse_beside(context, "--growth, which varies the group size", OF_GROWTH)
        elif micro_batch_tokens != MICRO_BATCH:
            raise ValueError("--micro-batch-tokens needs --growth")
        if out is not None and out.suffix.lower() not in DESCRIPTION:  # before minutes of measuring
            raise ValueError(f"out must end in {', '.join(DESCRIPTION)}; got {out.name}")
        the_task = find_task(task)
        loaded = load_policy(policy or the_task.name, device=device)
        if growth:
            _growth(loaded, the_task, num_prompts, micro_batch_tokens, out, output)
        else:
            _models(loaded, the_task, num_prompts, group_size, updates, repeats, out, output)
    if out is not None and output != "json":
        console.print(f"Picture: {escape(str(out))}", soft_wrap=True)


def _growth(
    policy: Policy, task: Task, num_prompts: int, micro_batch_tokens: int, out: Path | None, output: str
) -> None:
    from dataclasses import asdict

    from rlviz.page.style import save_figure
    from rlviz.runs.growth import ALT, plot_growth
    from rlviz.training.growth import growth_table, memory_growth

    measured = memory_growth(policy, task, num_prompts=num_prompts, micro_batch_tokens=micro_batch_tokens)
    if out is not None:
        save_figure(plot_growth(growth_table(*measured)), out, description=ALT)
    if output == "json":
        names = "group_size", "length"
        typer.echo(json.dumps({n: [*map(asdict, rows)] for n, rows in zip(names, measured, strict=True)}, indent=2))
        return
    _say_policy(policy, f"{num_prompts} prompts a step; all that is alive at once")
    console.print("An update reads a prompt once for all of its responses; unshared: again for each of them")
    for what, rows in zip(("responses to a prompt, G", "tokens of a response, T"), measured, strict=True):
        _print_growth(f"Memory by {what}", rows, f"{micro_batch_tokens:,} tokens at once")


def _print_growth(title: str, rows: Sequence[Growth], divided: str) -> None:
    _print_table(
        title,
        ("G", "T", "responses", "rollout", "unshared", "update", divided),
        [
            (
                *(str(row.group_size), str(row.length), f"{row.responses:,}"),
                *map(_bytes_said, (row.rollout, row.unshared, row.update, row.in_micro_batches)),
            )
            for row in rows
        ],
    )


def _say_policy(policy: Policy, more: str) -> None:
    said = f"{escape(policy.source)}, {policy.num_parameters:,} parameters on {policy.device.type}: {more}"
    console.print(said, soft_wrap=True)


def _models(
    policy: Policy,
    task: Task,
    num_prompts: int,
    group_size: int,
    updates: int,
    repeats: int,
    out: Path | None,
    output: str,
) -> None:
    from dataclasses import asdict

    from rlviz.page.style import save_figure
    from rlviz.runs.cost import ALT, plot_costs
    from rlviz.training.cost import cost_table, model_costs

    costs = model_costs(
        policy,
        task,
        num_prompts=num_prompts,
        group_size=group_size,
        updates_per_rollout=updates,
        repeats=repeats,
    )
    sums = cost_table(costs)
    if out is not None:
        save_figure(plot_costs(sums), out, description=ALT)
    ratios = list(sums["bytes_to_grpo"])
    if output == "json":
        totals = sums[["bytes", "bytes_to_grpo"]].to_dict("records")
        typer.echo(json.dumps([asdict(cost) | row for cost, row in zip(costs, totals, strict=True)], indent=2))
        return
    tokens = f"{costs[0].responses} responses of together {costs[0].tokens:,} tokens a step, padding included"
    _say_policy(policy, tokens)
    _print_models(costs, ratios)


def _print_models(costs: Sequence[Cost], ratios: Sequence[float]) -> None:
    first_in: dict[Any, str] = {}
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
            for cost, ratio in zip(costs, ratios, strict=True)
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
