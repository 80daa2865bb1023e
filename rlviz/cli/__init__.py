"""The command line: `rlviz lab`, `playground`, `train`, `algorithms`, `show`, `plot`, `compare`, `experiment`,
`map`, `inspect`, `diagnose`, `export`, `explain`, `import`, `cost`, `site`, `course`, `predictions`, `grade`.

Each command is a function in a module of its own, which imports torch, matplotlib and the rest of rlviz when it runs, so that
help comes at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

import rlviz
from rlviz.cli import (
    compare,
    cost,
    course,
    diagnose,
    experiment,
    explain,
    export,
    family,
    importing,
    inspect,
    lab,
    map as map_command,
    plot,
    site,
    train,
)
from rlviz.cli.terminal import console, write_any_character

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


app.command()(lab.lab)
app.command()(lab.playground)
app.command()(train.train)
app.command()(family.algorithms)
app.command()(family.show)
app.command(context_settings=plot.OPTIONS_ARE_READ_LATER)(plot.plot)
app.command()(compare.compare)
app.command()(experiment.experiment)
app.command(name="map")(map_command.map_)
app.command()(inspect.inspect)
app.command()(diagnose.diagnose)
app.command()(export.export)
app.command()(explain.explain)
app.command(name="import")(importing.import_)
app.command()(cost.cost)
app.command()(site.site)
app.command()(course.course)
app.command()(course.predictions)
app.command()(course.grade)


def main() -> None:
    """Run the command line."""
    write_any_character()
    app()
