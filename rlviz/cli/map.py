"""`rlviz map`: where two algorithms differ over two settings, as a map with a CSV beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlviz.cli.options import On, Reader, flag, options_of, with_options
from rlviz.cli.terminal import check_out, check_picture, foreign, run_under_a_bar, say
from rlviz.study.regime import AXES, POLICY_AXES, MapSettings, Measure, Regime, regime_of

if TYPE_CHECKING:
    from rlviz.algorithms import GroupPolicyGradient


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _size(text: str) -> tuple[int, int]:
    columns, _, rows = text.lower().partition("x")
    if not (columns.isdecimal() and rows.isdecimal()):
        raise ValueError
    return int(columns), int(rows)


NUMBERS = Reader(_numbers, "<text>", "numbers with commas between them")
SIZE = Reader(_size, "<text>", "columns x rows, such as 12x12")
NAMES = f"{', '.join(AXES)}; with --policy {', '.join(POLICY_AXES)}"


@with_options(regime=options_of(Regime), settings=options_of(MapSettings))
def map_(
    regime: dict[str, Any],
    settings: dict[str, Any],
    algorithm: Annotated[str, typer.Option(help="Algorithm; `rlviz algorithms` lists them.")] = "dcpo",
    against: Annotated[str, typer.Option(help="The algorithm whose measure is subtracted.")] = "grpo",
    only: Annotated[
        str | None,
        typer.Option(help="Slots to take from --algorithm, such as bounds; all else is --against's. [default: all]"),
    ] = None,
    x: Annotated[str, typer.Option(help=f"From left to right: {NAMES}.")] = "updates_per_rollout",
    y: Annotated[str, typer.Option(help="From bottom to top: another of them.")] = "groups",
    x_values: Annotated[str | None, typer.Option(help="Numbers with commas, in place of --cells.")] = None,
    y_values: Annotated[str | None, typer.Option(help="Numbers with commas, in place of --cells.")] = None,
    cells: Annotated[
        str | None,
        typer.Option(help="Columns and rows, over each axis's own range. [default: 8x8, with --policy 3x3]"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Train this small transformer in place of the table: a shipped name, a folder, or a hub name."
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help="Task of --policy. [default: the one of its name]")] = None,
    measure: Annotated[
        Measure, typer.Option(help="What is drawn; all four are measured, so another is drawn without running again.")
    ] = "accuracy",
    out: Annotated[
        Path, typer.Option(help="PNG, SVG, PDF, or HTML that can be touched; cells are kept beside it, and a CSV.")
    ] = Path("map.png"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at once. [default: a core each]")] = None,
    on: On = "local",
) -> None:
    """Draw where two algorithms differ: **rlviz map --algorithm dcpo --x updates_per_rollout --y groups**

    Each cell trains both on a table of logits, many replicas from the same draws. It is hatched where the sign is not certain:
    |mean difference| ≤ 2 standard errors. Neither has a KL term, and the learning rate, the same for both, is tuned for neither.
    With --policy a cell trains a small transformer instead, with three seeds of each algorithm. Interrupted, the same command
    goes on.
    """
    import os

    from rlviz.parallel import elsewhere
    from rlviz.study import regime_map

    _check(out, regime, (x, y))
    if policy is not None:
        regime = {"policy": policy, "task": _task(task, policy), **regime}
    elif task is not None:
        raise ValueError(f"--task is for --policy; got {task} without one")
    mine, other = _algorithms(algorithm, against, only)
    kept = out.with_suffix(".jsonl")
    making = regime_map(
        mine,
        other,
        x=_name(x),
        y=_name(y),
        x_values=None if x_values is None else NUMBERS.value("x_values", x_values),
        y_values=None if y_values is None else NUMBERS.value("y_values", y_values),
        cells=None if cells is None else SIZE.value("cells", cells),
        measure=measure,
        regime=regime_of(regime),
        settings=MapSettings(**settings) if policy is None else MapSettings.for_policy(**settings),
        out=kept,
        jobs=jobs or (None if elsewhere(on) else os.cpu_count()),
        on=on,
    )
    run_under_a_bar(making, "cells", lambda _: f"{len(making.done)} of {len(making.all)} cells")
    _draw(kept, measure, out)


def _task(task: str | None, policy: str) -> str:
    """Return the task that is given, else that of a shipped policy: `chain` of `chain-experts`."""
    from rlviz.training.tasks import is_file
    from small_models.policies import shipped
    from small_models.tasks import TASKS

    if task is not None and is_file(task):
        raise ValueError(
            f"--task must be a shipped one on a map; compare takes a file: rlviz compare --task {task} --rule …"
        )
    own = [each.name for each in TASKS if policy in shipped() and policy.startswith(each.name)]
    if task is None and not own:
        raise ValueError(
            f"--policy {policy} is none of the shipped ones ({', '.join(shipped())}); name its task with --task"
        )
    return own[0] if task is None else task


def _name(axis: str) -> str:
    return axis.replace("-", "_")


def _check(out: Path, regime: dict[str, Any], axes: tuple[str, str]) -> None:
    """Raise ValueError, before minutes of work, for a file that cannot be drawn into and for a setting that is an axis."""
    check_picture(out, ".html")
    check_out(out)
    if (table := out.with_suffix(".csv")).exists() and not out.with_suffix(".jsonl").exists():  # the cells of a map
        raise foreign(table)
    for axis in axes:
        if _name(axis) in regime:
            raise ValueError(f"{flag(_name(axis))} cannot be given with an axis of that name")


def _algorithms(name: str, against: str, only: str | None) -> tuple[GroupPolicyGradient, GroupPolicyGradient]:
    """Return both algorithms without their KL terms."""
    from rlviz.algorithms import find_algorithm
    from rlviz.study.maps import borrow, of_groups

    named = (("algorithm", name), ("against", against))
    mine, other = (of_groups(option, find_algorithm(each)).without_kl() for option, each in named)
    return (mine if only is None else borrow(mine, other, only.split(","))), other


def _draw(kept: Path, measure: Measure, out: Path) -> None:
    """Write the picture and the CSV, and say what is to be seen."""
    from rlviz.page.style import TEXT, plain, save_figure
    from rlviz.page.widget import page
    from rlviz.pictures.map import explore_map
    from rlviz.study import read_map
    from rlviz.training.files import write_text

    found = read_map(kept)
    columns = found.shape[1]
    write_text(out.with_suffix(".csv"), found.to_csv())
    explorer = explore_map(str(kept), measure=measure, column=columns)
    words = explorer.caption
    if out.suffix.lower() == ".html":
        write_text(out, page(f"rlviz: {' − '.join(found.names)}", explorer.html()))
    else:
        figure = explorer.figure()
        figure.supxlabel(plain(explorer.names().fill("{rule}")), fontsize=TEXT - 2)  # what was trained
        save_figure(figure, out, description=words)
    say(f"{out}: {words}")
    call = f"explore_map({str(kept)!r}, measure={measure!r})"
    say(f"Numbers: {out.with_suffix('.csv')}. A cell's runs: {call}")
