"""`rlviz export`: an algorithm, or that of a run, in the words of TRL or verl."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from rlviz.cli.options import options_of, refuse_beside, with_options
from rlviz.cli.terminal import Format, console, errors, refusals, wide_console
from rlviz.cli.train import Changes
from rlviz.settings import RECORDS, PairSettings, TrainSettings

if TYPE_CHECKING:
    from rlviz.interop import Export

COLOURS = {"exact": "green", "approximate": "yellow", "inexpressible": "bold red"}
OF_A_RUN = ("what", "to", "strict", "out", "output", "accumulation")
CHANGES = {name: option for name, option in options_of(Changes).items() if name != "supervision"}


@refusals("the export")
@with_options(settings=options_of(TrainSettings, PairSettings, without=(RECORDS,)), changes=CHANGES)
def export(
    context: typer.Context,
    settings: dict[str, Any],
    changes: dict[str, Any],
    what: Annotated[
        str, typer.Argument(metavar="ALGORITHM|RUN", help="A name of `rlviz algorithms`, or a run folder.")
    ],
    to: Annotated[Literal["trl", "verl"], typer.Option(help="The library.")],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter of a piece, such as max_length=20480; once for each."
        ),
    ] = None,
    accumulation: Annotated[int, typer.Option(min=1, help="Parts of an update, one backward pass each.")] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Answer with 2 where a slot is inexpressible.")] = False,
    out: Annotated[Path | None, typer.Option(help="File to write: a Python script for TRL, YAML for verl.")] = None,
    output: Format = "table",
) -> None:
    """Say an algorithm in the words of another library: **rlviz export dapo --to trl --out dapo.py**

    For each slot: exact, approximate (by how much), or inexpressible (why, and what would have to be written). Every
    default of the library that changes the algorithm is among the fields. A piece of your own is inexpressible, and the
    answer is 2.
    """
    run = Path(what) if Path(what).exists() or "/" in what else None
    if run is not None:
        refuse_beside(context, f"{what}: a run keeps what it began with", OF_A_RUN)
    suffix = {"trl": ".py", "verl": ".yaml"}[to]
    if out is not None and out.suffix != suffix:
        raise ValueError(f"--out must end in {suffix} for {to}; got {out.name}")
    algorithm, found = _of_run(run) if run is not None else _named(what, settings, changes, set or [])
    from rlviz.interop import to_trl, to_verl
    from rlviz.interop.writing import script, yaml_text
    from rlviz.training.files import write_text

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        told = (to_trl if to == "trl" else to_verl)(algorithm, found, accumulation=accumulation)
    for warning in said:
        errors.print(f"[bold]Note:[/] {escape(str(warning.message))}", soft_wrap=True)
    text = "" if out is None else script(told, algorithm) if to == "trl" else yaml_text(told)
    if output == "json":
        typer.echo(json.dumps(told.as_json(), indent=2))
    else:
        _show(told)
    if out is not None:
        write_text(out, text)
        errors.print(f"Written: {escape(str(out))}", soft_wrap=True)
    lacking = [line.slot for line in told.slots if line.fit == "inexpressible"]
    if told.own or (strict and lacking):
        why = f"a piece of your own in {', '.join(told.own)}" if told.own else f"no options for {', '.join(lacking)}"
        raise ValueError(f"{told.algorithm} is not {to}'s: {why}")


def _named(what: str, settings: dict[str, Any], changes: dict[str, Any], parameters: list[str]) -> tuple[Any, Any]:
    """Return an algorithm as its paper has it, with these changes, and its settings."""
    from dataclasses import replace

    from rlviz.algorithms import find_algorithm, numbers
    from rlviz.names import closest
    from rlviz.training import default_settings

    algorithm = find_algorithm(what)
    known = numbers(algorithm)
    asked = dict(changes)
    for each in parameters:
        name, equals, value = each.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, such as max_length=20480; got {each!r}")
        name = closest("--set", name.strip(), list(known))
        try:
            asked[name] = type(known[name])(value)
        except ValueError:
            kind = "a whole number" if isinstance(known[name], int) else "a number"
            raise ValueError(f"--set {name} must be {kind}; got {value!r}") from None
    beta = asked.pop("beta", None)
    if beta == 0 and hasattr(algorithm, "without_kl"):
        algorithm = algorithm.without_kl()
    elif beta is not None and "beta" in known:
        asked["beta"] = beta
    elif beta:
        algorithm = _with_kl(algorithm, replace, beta)
    return algorithm.with_parameters(**asked), default_settings(algorithm, **settings)


def _with_kl(algorithm: Any, replace: Any, beta: float) -> Any:
    from rlviz.pieces.kl import KLInLoss

    return replace(algorithm, kl=KLInLoss(beta=beta))


def _of_run(run: Path) -> tuple[Any, Any]:
    from rlviz.interop.exporting import algorithm_of
    from rlviz.settings import settings_from
    from rlviz.training import RunFolder

    config = RunFolder.open(run).config
    if "imported" in config:
        raise ValueError(
            f"{run} was imported from {config['imported']}, which does not say what trained it; name an algorithm"
        )
    return algorithm_of(config["algorithm"]), settings_from(config["settings"])


def _show(told: Export) -> None:
    title = f"{told.algorithm} in {told.to}, {told.kind}: {told.fit}"
    table = Table(title=title, title_justify="left", show_lines=console.is_terminal)
    for name in ("slot", "piece", "fit", "why"):
        table.add_column(name)
    for line in told.slots:
        table.add_row(escape(line.slot), escape(line.piece), f"[{COLOURS[line.fit]}]{line.fit}[/]", escape(line.why))
    wide_console().print(table)
    fields = [f"{name} = {value!r}" for name, value in told.fields.items()] + [f"+ {each}" for each in told.rewards]
    console.print(f"Fields: {', '.join(fields)}", soft_wrap=True, markup=False)
    if told.measured is not None:
        from rlviz.interop.exporting import measurements

        console.print(f"Measured: {told.measured}, {measurements()['how']}.", soft_wrap=True, markup=False)
