"""`rlviz explain`: which algorithm a configuration of TRL or verl is, and what it will show."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from rlviz.cli.terminal import console, plain, refusals


@refusals("the configuration")
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
    output: Annotated[Literal["text", "json"], typer.Option("--format", help="For people, or for programs.")] = "text",
) -> None:
    """Say which algorithm a configuration is: **rlviz explain grpo.yaml --devices 8**, **rlviz explain run_dapo.sh**

    Slot by slot beside its paper's; what differs and what that does to the gradient; batch, log, first ten steps; what is
    set without effect; entries of the symptoms. Nothing in the file is run: of Python only literals are read.
    """
    from rlviz.interop import explain_config

    source = sys.stdin.read() if config == "-" else Path(config)
    told = explain_config(source, kind=kind, devices=devices)
    if output == "json":
        typer.echo(json.dumps(told.as_json(), indent=2))
    else:
        console.print(plain_lines(str(told)), soft_wrap=True)


def plain_lines(text: str) -> str:
    """Return a text of lines without what a terminal would obey."""
    return "\n".join(plain(line) for line in text.split("\n"))
