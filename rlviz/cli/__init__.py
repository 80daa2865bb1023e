"""The command line: `rlviz lab`, `playground`, `train`, `algorithms`, `show`, `plot`, `compare`, `experiment`,
`map`, `inspect`, `diagnose`, `export`, `explain`, `import`, `site`, `course`, `predictions`, `grade`.

Each command is a function in a module of its own, which imports torch, matplotlib and the rest of rlviz when it runs, so that
help comes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import rlviz
from rlviz.cli import (
    compare,
    course,
    diagnose,
    experiment,
    family,
    interop,
    lab,
    map as regime_map,
    pages,
    plot,
    train,
)
from rlviz.cli.terminal import console, escape_unencodable, refuse_in_a_sentence

COMMANDS: tuple[Callable[..., None], ...] = (  # in the order of the help
    lab.lab,
    pages.playground,
    train.train,
    family.algorithms,
    family.show,
    plot.plot,
    compare.compare,
    experiment.experiment,
    regime_map.map_,
    pages.inspect,
    diagnose.diagnose,
    interop.export,
    interop.explain,
    interop.import_,
    pages.site,
    course.course,
    course.predictions,
    course.grade,
)

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


def _version(is_asked: bool) -> None:
    if is_asked:
        console.print(f"rlviz {rlviz.__version__}")
        raise typer.Exit


@app.callback()
def _rlviz(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


for command in COMMANDS:
    context = plot.READ_LATER if command is plot.plot else None
    app.command(command.__name__.strip("_"), context_settings=context)(refuse_in_a_sentence()(command))


def main() -> None:
    """Run the command line."""
    escape_unencodable()
    app()
