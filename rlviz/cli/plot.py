"""`rlviz plot NAME`: an explorer's picture in a file, its arguments as options. They are read off the explorer's signature."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

from rlviz.cli.terminal import console, refusals
from rlviz.names import nearest

if TYPE_CHECKING:
    from rlviz.algorithms import Algorithm

PICTURES = (
    "clip", "bounds", "advantages", "entropy", "ratio", "aggregation", "kl", "gae", "dpo", "overlong", "sampling", "process",
)  # fmt: skip
OPTIONS_ARE_READ_LATER = {"help_option_names": [], "allow_extra_args": True, "ignore_unknown_options": True}


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
    with refusals():
        if {"--help", "-h"} & set(context.args):
            typer.echo(options_of(name).format_help())
            return
        out, words = draw(name, context.args)
    console.print(f"{escape(str(out))}: {escape(words)}", soft_wrap=True)


class _Options(argparse.ArgumentParser):
    """Options whose mistakes are ValueErrors in one sentence, like every other refusal."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message.removeprefix("argument "))


def _several(text: str) -> tuple[Algorithm, ...]:
    from rlviz.algorithms import find_algorithm

    return tuple(find_algorithm(name) for name in text.split(",") if name.strip())


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _reader(hint: Any) -> tuple[Callable[[str], Any], str]:
    """Return what reads an argument of this type from the command line, and what to write for it in the help."""
    from rlviz.algorithms import find_algorithm

    if get_origin(hint) is Literal:
        return str, "TEXT"
    several = get_origin(hint) in (tuple, Sequence)
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
    if kinds[0] is int and several:
        return _counts, "N,N,…"
    if kinds[0] in (int, float, str):
        return kinds[0], {int: "N", float: "NUMBER", str: "TEXT"}[kinds[0]]
    return (_several, "NAME,NAME") if several else (find_algorithm, "NAME")


def _written(default: Any) -> str:
    """Return a default value as one would type it."""
    from rlviz.algorithms import command_name

    if default is None:
        return "not set"
    if isinstance(default, tuple):
        return ",".join(map(_written, default)) or "none"
    return command_name(default) if hasattr(default, "slots") else str(default)


def _readers(name: str) -> Mapping[str, tuple[Callable[[str], Any], str]]:
    """Return for each argument of the explorer what reads it and what to write for it. Raises ValueError for an unknown name."""
    from rlviz.widgets.catalogue import find_explorer

    explore = find_explorer(name).explore
    hints = get_type_hints(explore)
    return {argument: _reader(hints[argument]) for argument in inspect.signature(explore).parameters}


def options_of(name: str) -> argparse.ArgumentParser:
    """Return the options of one picture: `--out`, `--small-multiples`, and one for each of the explorer's arguments.

    Raises ValueError for an unknown name.
    """
    from rlviz.algorithms import ALGORITHMS, command_name
    from rlviz.widgets.catalogue import find_explorer

    explore = find_explorer(name).explore
    options = _Options(
        prog=f"rlviz plot {name}",
        description=inspect.getdoc(explore),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog=f"algorithms: {', '.join(command_name(member) for member in ALGORITHMS)}",
    )
    options.add_argument("--out", default=f"{name}.png", metavar="FILE", help="PNG, SVG or PDF [%(default)s]")
    options.add_argument(
        "--small-multiples", action="store_true", help="several settings below each other, as the course prints them"
    )
    defaults, hints = inspect.signature(explore).parameters, get_type_hints(explore)
    for argument, (_, shape) in _readers(name).items():
        choices = get_args(hints[argument]) if get_origin(hints[argument]) is Literal else ()
        told = f"[{_written(defaults[argument].default)}]" + (f" one of: {'; '.join(choices)}" if choices else "")
        options.add_argument(_option(argument), default=argparse.SUPPRESS, metavar=shape, help=told.replace("%", "%%"))
    return options


def _option(argument: str) -> str:
    return f"--{argument.replace('_', '-')}"


def draw(name: str, arguments: Sequence[str]) -> tuple[Path, str]:
    """Draw a picture as the command line asks; return the file and what it shows in words.

    Raises ValueError for an unknown picture, option or value, and OSError as it comes.
    """
    from rlviz.algorithms import find_algorithm
    from rlviz.plots import save_figure
    from rlviz.widgets.catalogue import find_explorer
    from rlviz.widgets.explorer import drawn_together

    options = options_of(name)
    given, unknown = options.parse_known_args(list(arguments))
    if unknown:
        known = sorted(options._option_string_actions)
        raise ValueError(
            f"{unknown[0]} is no option of this picture; {nearest(unknown[0], known)}it has {', '.join(known)}"
        )
    texts, values = vars(given), {}
    out, multiples = Path(texts.pop("out")), texts.pop("small_multiples")
    for argument, text in texts.items():
        read, shape = _readers(name)[argument]
        try:
            values[argument] = read(text)
        except ValueError as error:
            named = read in (find_algorithm, _several)  # these say themselves what is wrong
            raise ValueError(str(error) if named else f"{_option(argument)} must be {shape}; got {text!r}") from None
    entry = find_explorer(name)
    if multiples:
        made = {label: entry.explore(**{**twin, **values}) for label, twin in entry.twin.items()}
        figure, words = drawn_together(made), " ".join(f"{label}: {one.caption}" for label, one in made.items())
    else:
        explorer = entry.explore(**values)
        figure, words = type(explorer.picture).alone(explorer.curve), explorer.caption
    save_figure(figure, out, description=words)
    return out, words
