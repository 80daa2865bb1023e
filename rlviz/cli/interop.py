"""`rlviz export`, `explain` and `import`: algorithms in the words of TRL or verl, their configurations and their runs read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from rlviz.cli.options import options_of, refuse_beside, with_kl, with_options
from rlviz.cli.terminal import (
    Format,
    TextFormat,
    console,
    errors,
    notes,
    plain,
    plain_lines,
    print_json,
    say,
    wide_console,
)
from rlviz.cli.train import Changes
from rlviz.settings import RECORDS, PairSettings, TrainSettings

if TYPE_CHECKING:
    from rlviz.interop import Export

COLOURS = {"exact": "green", "approximate": "yellow", "inexpressible": "bold red"}
RUN_OPTIONS = ("what", "to", "strict", "out", "output", "accumulation")
CHANGES = {name: option for name, option in options_of(Changes).items() if name != "supervision"}
CURVES = "learning_curves.png"


@with_options(settings=options_of(TrainSettings, PairSettings, without=(RECORDS,)), changes=CHANGES)
def export(
    context: typer.Context,
    settings: dict[str, Any],
    changes: dict[str, Any],
    what: Annotated[
        str, typer.Argument(metavar="ALGORITHM|RUN", help="A name of `rlviz algorithms`, or a run folder.")
    ],
    to: Annotated[
        Literal["trl", "verl", "transformers"],
        typer.Option(
            help="The library; transformers: the policy of a run as a plain model, an adapter merged into it."
        ),
    ],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter of a piece, such as max_length=20480; once for each."
        ),
    ] = None,
    accumulation: Annotated[int, typer.Option(min=1, help="Parts of an update, one backward pass each.")] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Answer with 2 where a slot is inexpressible.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: a Python script for TRL, YAML for verl; for transformers a new folder."),
    ] = None,
    output: Format = "table",
) -> None:
    """Say an algorithm in the words of another library: **rlviz export dapo --to trl --out dapo.py**

    For each slot: exact, approximate (by how much), or inexpressible (why, and what would have to be written). Every
    default of the library that changes the algorithm is among the fields. A piece of your own is inexpressible, and the
    answer is 2.
    """
    run = Path(what) if Path(what).exists() or "/" in what else None
    if run is not None:
        refuse_beside(context, f"{what}: a run keeps what it began with", RUN_OPTIONS)
    if to == "transformers":
        _write_policy(run, out)
        return
    suffix = {"trl": ".py", "verl": ".yaml"}[to]
    if out is not None and out.suffix != suffix:
        raise ValueError(f"--out must end in {suffix} for {to}; got {out.name}")
    if out is not None and out.exists():
        raise ValueError(
            f"{out} is there already, and may have changes of yours; name another --out, or remove it first"
        )
    algorithm, run_settings = (
        _run_algorithm(run) if run is not None else _named_algorithm(what, settings, changes, set or [])
    )
    from rlviz.interop import to_trl, to_verl
    from rlviz.interop.writing import script, yaml_text
    from rlviz.training.files import write_text

    with notes():
        exported = (to_trl if to == "trl" else to_verl)(algorithm, run_settings, accumulation=accumulation)
    text = "" if out is None else script(exported, algorithm) if to == "trl" else yaml_text(exported)
    if output == "json":
        print_json(exported.as_json())
    else:
        _print_export(exported)
    if out is not None:
        write_text(out, text)
        say(f"Written: {out}", errors)
    lacking = [line.slot for line in exported.slots if line.fit == "inexpressible"]
    unknown = ", ".join(exported.unknown_slots)
    if unknown or (strict and lacking):
        why = f"a piece of your own in {unknown}" if unknown else f"no options for {', '.join(lacking)}"
        raise ValueError(f"{exported.algorithm} is not {to}'s: {why}")


def _write_policy(run: Path | None, out: Path | None) -> None:
    """Write the policy of a run's last checkpoint as a plain model into a new folder."""
    if run is None or out is None:
        raise ValueError("--to transformers writes the policy of a run: give a run folder, and --out FOLDER")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"--out: {out} is not empty; name a new folder")
    from rlviz.training import RunFolder
    from small_models.policies import load_policy

    load_policy(RunFolder.open(run).newest_checkpoint, device="cpu").merged().save(out)
    say(f"Written: {out}", errors)


def _named_algorithm(
    what: str, settings: dict[str, Any], changes: dict[str, Any], parameters: list[str]
) -> tuple[Any, Any]:
    """Return an algorithm as its paper has it, with these changes, and its settings."""
    from rlviz.algorithms import find_algorithm, numbers
    from rlviz.interop.exporting import settings_of_large_models
    from rlviz.names import closest

    algorithm = find_algorithm(what)
    known = numbers(algorithm)
    values = dict(changes)
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, such as max_length=20480; got {parameter!r}")
        name = closest("--set", name.strip(), list(known))
        try:
            values[name] = type(known[name])(value)
        except ValueError:
            kind = "a whole number" if isinstance(known[name], int) else "a number"
            raise ValueError(f"--set {name} must be {kind}; got {value!r}") from None
    if "beta" in values:
        algorithm = with_kl(algorithm, values.pop("beta"))
    return algorithm.with_parameters(**values), settings_of_large_models(algorithm, **settings)


def _run_algorithm(run: Path) -> tuple[Any, Any]:
    from rlviz.interop.exporting import algorithm_from_run
    from rlviz.settings import settings_from
    from rlviz.training import RunFolder

    config = RunFolder.open(run).config
    if "imported" in config:
        raise ValueError(
            f"{run} was imported from {config['imported']}, which does not say what trained it; name an algorithm"
        )
    return algorithm_from_run(config["algorithm"]), settings_from(config["settings"])


def _print_export(export: Export) -> None:
    title = f"{plain(export.algorithm)} in {export.to}, {export.kind}: {export.fit}"
    table = Table("slot", "piece", "fit", "why", title=title, title_justify="left", show_lines=console.is_terminal)
    for line in export.slots:
        table.add_row(plain(line.slot), plain(line.piece), f"[{COLOURS[line.fit]}]{line.fit}[/]", plain(line.why))
    wide_console().print(table)
    fields = [f"{name} = {value!r}" for name, value in export.fields.items()]
    say(f"Fields: {', '.join([*fields, *(f'+ {reward}' for reward in export.rewards)])}")
    if export.measured is not None:
        from rlviz.interop.exporting import measurements

        say(f"Measured: {export.measured}, {measurements()['how']}.")


def explain(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="File of TRL (.yaml, .json, .py, .ipynb, .sh) or verl (.yaml, .sh), or - for what is piped in.",
        ),
    ],
    kind: Annotated[
        Literal["GRPOConfig", "DPOConfig", "ppo_trainer.yaml"] | None,
        typer.Option(help="What it configures, where the options leave that open.", show_default=False),
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Processes of TRL, which its configuration does not name.")] = 1,
    output: TextFormat = "text",
) -> None:
    """Say which algorithm a configuration is: **rlviz explain grpo.yaml --devices 8**, **rlviz explain run_dapo.sh**

    Slot by slot beside its paper's; what differs and what that does to the gradient; batch, log, first ten steps; what is
    set without effect; entries of the symptoms. Nothing in the file is run: of Python only literals are read.
    """
    from rlviz.interop import explain_config

    source = sys.stdin.read() if config == "-" else Path(config)
    explanation = explain_config(source, kind=kind, devices=devices)
    if output == "json":
        print_json(explanation.as_json())
    else:
        console.print(plain_lines(str(explanation)), soft_wrap=True)


def import_(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="TRL's trainer_state.json or run folder, verl's .jsonl."),
    ],
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="New run folder, which other commands open.")] = None,
) -> None:
    """Bring a real run back: **rlviz import outputs/grpo --out runs/real**, then **rlviz diagnose runs/real**

    Pictures and diagnosis work with the columns that were logged; those that were not are named. Without --out it only
    says what is there. Nothing in the files is run.
    """
    from rlviz.runs import import_run
    from rlviz.runs.learning import plot_learning_curves
    from rlviz.training import RunFolder
    from rlviz.training.files import whole_file

    run = import_run(path, out)
    recorded = sorted({name for row in run.rows for name in row} - {"step"})
    groups = sum(len(groups) for groups in run.groups.values())
    for words in (
        f"{run.name} ({run.source}): {len(run.rows)} steps up to step {run.rows[-1]['step']}, {groups} groups of responses",
        f"Recorded: {', '.join(recorded)}",
        f"Not recorded: {', '.join(run.lacking) or 'nothing'}",
        *([f"Logged, without a name here: {', '.join(run.others)}"] if run.others else []),
        *run.notes,
    ):
        say(words)
    if out is not None:
        with whole_file(out / CURVES) as temporary:
            title = f"{run.name}, imported"
            plot_learning_curves(RunFolder.open(out).metrics, title=title).savefig(temporary, format="png")
        say(f"Kept in {out}; its curves: {out / CURVES}")
