"""`rlviz map`: where two algorithms differ over two settings, as a picture with a CSV beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlviz.cli.options import On, flag, number, options_of, with_options
from rlviz.cli.terminal import check_out, run_with_progress, say
from rlviz.names import closest
from rlviz.study.map_settings import AXES, MapSettings, Measure
from small_models.checks import short_repr


def _numbers(name: str, text: str | None) -> list[float] | None:
    return None if text is None else [number(name, one, float) for one in text.split(",")]


def _size(text: str) -> tuple[int, int]:
    columns, by, rows = text.lower().partition("x")
    if not by:
        raise ValueError(f"--cells must be columns x rows, such as 12x12; got {short_repr(text)}")
    return number("cells", columns, int), number("cells", rows, int)


@with_options(settings=options_of(MapSettings))
def map_(
    settings: dict[str, Any],
    algorithm: Annotated[str, typer.Option(help="Algorithm; `rlviz algorithms` lists them.")] = "dcpo",
    against: Annotated[str, typer.Option(help="The algorithm whose measure is subtracted.")] = "grpo",
    only: Annotated[
        str | None,
        typer.Option(help="Slots to take from --algorithm, such as bounds; all else is --against's. [default: all]"),
    ] = None,
    x: Annotated[str, typer.Option(help=f"From left to right: {', '.join(AXES)}.")] = "updates_per_rollout",
    y: Annotated[str, typer.Option(help="From bottom to top: another of them.")] = "groups",
    x_values: Annotated[str | None, typer.Option(help="Numbers with commas, in place of --cells.")] = None,
    y_values: Annotated[str | None, typer.Option(help="Numbers with commas, in place of --cells.")] = None,
    cells: Annotated[str, typer.Option(help="Columns and rows, over each axis's own range.")] = "8x8",
    measure: Annotated[
        Measure, typer.Option(help="What is drawn; all four are measured, so another is drawn without running again.")
    ] = "accuracy",
    out: Annotated[
        Path, typer.Option(help="PNG, SVG, PDF, or HTML that answers; the cells stand beside it, in a CSV.")
    ] = Path("map.png"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Cells at once. [default: a core each]")] = None,
    on: On = "local",
) -> None:
    """Draw where two algorithms differ: **rlviz map --algorithm dcpo --x updates_per_rollout --y groups**

    Each cell trains both on a table of logits, many replicas from the same draws. It is hatched where the sign is not certain:
    |mean difference| ≤ 2 standard errors. Neither has a KL term, and the learning rate, the same for both, is tuned for neither.
    Interrupted, the same command goes on.
    """
    import os

    from rlviz.algorithms import find_algorithm
    from rlviz.page.style import DESCRIPTION, save_figure
    from rlviz.page.widget import page
    from rlviz.parallel import is_remote
    from rlviz.pictures.map import explore_map
    from rlviz.study.maps import borrow, check_tabular, regime_map
    from rlviz.training.files import write_text

    check_out(out, *DESCRIPTION, ".html")
    axes = {option: closest(option, name.replace("-", "_"), list(AXES)) for option, name in (("x", x), ("y", y))}
    for axis in axes.values():
        if axis in settings:
            raise ValueError(f"{flag(axis)} cannot be given with an axis of that name")
    named = {"algorithm": algorithm, "against": against}
    mine, other = (check_tabular(option, find_algorithm(name)).without_kl() for option, name in named.items())
    table = out.with_suffix(".csv")
    running = regime_map(
        mine if only is None else borrow(mine, other, only.split(",")),
        other,
        **axes,
        x_values=_numbers("x_values", x_values),
        y_values=_numbers("y_values", y_values),
        cells=_size(cells),
        settings=MapSettings(**settings),
        out=table,
        jobs=jobs or (None if is_remote(on) else os.cpu_count()),
        on=on,
    )
    run_with_progress(running, "cells", lambda place: f"a cell at {place[0]:g}, {place[1]:g}")
    explorer = explore_map(table, measure=measure)
    if out.suffix.lower() == ".html":
        write_text(out, page(explorer.title, explorer.html()))
    else:
        save_figure(explorer.figure(), out, description=explorer.caption)
    say(f"{out}: {explorer.caption}")
    say(f"Numbers: {table}. In Python: explore_map({str(table)!r}, measure={measure!r})")
