"""`rlviz cost`: what the models of GRPO, PPO and DPO cost in memory and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from rlviz.cli.options import Device, PolicyName, TaskName
from rlviz.cli.terminal import Format, check_out, check_picture, console, print_json, say

if TYPE_CHECKING:
    from rlviz.training.cost import Cost


def cost(
    task: TaskName = "chain",
    policy: PolicyName = None,
    num_prompts: Annotated[int, typer.Option(help="Prompts in one rollout.")] = 32,
    group_size: Annotated[int, typer.Option(help="Responses to each prompt, an even number.")] = 8,
    updates: Annotated[int, typer.Option(help="Optimizer steps on each rollout.")] = 1,
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, help="Rounds in which the settings take turns; medians are shown.")
    ] = 5,
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Draw the table into this file too: PNG, SVG or PDF.")] = None,
    output: Format = "table",
) -> None:
    """Measure what the models of GRPO, PPO and DPO cost: bytes and seconds of real updates on the same responses.

    On *chain* about fifteen seconds. Nothing is trained: the learning rate is next to 0.
    """
    from rlviz.page.style import save_figure
    from rlviz.runs.cost import ALT, plot_costs
    from rlviz.training import find_task
    from rlviz.training.cost import cost_table, model_costs
    from small_models.policies import load_policy

    with console.status("Measuring"):
        if out is not None:
            check_picture(out)
            check_out(out)
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
    if output == "json":
        totals = sums[["bytes", "bytes_to_grpo"]].to_dict("records")
        print_json([asdict(cost) | row for cost, row in zip(costs, totals, strict=True)])
        return
    tokens = f"{costs[0].responses} responses of together {costs[0].tokens:,} tokens a step, padding included"
    say(f"{loaded.source}, {loaded.num_parameters:,} parameters on {loaded.device.type}: {tokens}")
    _print_models(costs, list(sums["bytes_to_grpo"]))
    if out is not None:
        say(f"Picture: {out}")


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
    words = ("model", "first in", "setting")
    heads = (Column(name) if name in words else Column(name, justify="right", no_wrap=True) for name in columns)
    table = Table(*heads, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _bytes_said(count: int) -> str:
    from rlviz.runs.cost import UNITS

    unit, size = next(((unit, size) for unit, size in UNITS.items() if count >= size), ("B", 1))
    return f"{count / size:.3g} {unit}" if count else "–"
