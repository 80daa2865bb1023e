"""Options that are not typed into a command but read off declarations: a run's settings, the arguments of an explorer.

An option that is not given is None to typer, so that a default can depend on the algorithm; its help names the default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer

from rlviz.settings import RUN, PairSettings, TrainSettings, declarations
from small_models.checks import shown

TaskName = Annotated[str, typer.Option(help="Task: chain, lookup, ramble, sort or trip.", rich_help_panel=RUN)]
PolicyName = Annotated[
    str | None,
    typer.Option(
        help="Starting policy: a shipped name, a folder, or a hub name. [default: the task's warm start]",
        rich_help_panel=RUN,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=RUN)]


def flag(name: str) -> str:
    """Return the option of a parameter."""
    return f"--{name.replace('_', '-')}"


class Reader(NamedTuple):
    """How the text of an option is read, what stands for it in the help, and what it must be in words.

    Without words, `read` says itself what is wrong.
    """

    read: Callable[[str], Any]
    metavar: str
    words: str


PLAIN = {
    int: Reader(int, "<int>", "a whole number"),
    float: Reader(float, "<float>", "a number"),
    str: Reader(str, "<str>", "a text"),
}


def reader_of(hint: Any) -> Reader | None:
    """Return what reads a number, a text or a choice, which is checked where it is used; else None."""
    if get_origin(hint) is Literal:
        return PLAIN[str]
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
    return PLAIN.get(kinds[0])


class Option(NamedTuple):
    """An option whose text is read by `reader`."""

    reader: Reader
    help: str
    panel: str | None = None

    def value(self, name: str, text: str) -> Any:
        """Return what the text stands for. Raises ValueError, with name and text, where it stands for nothing."""
        try:
            return self.reader.read(text)
        except ValueError:
            if not self.reader.words:
                raise
            raise ValueError(f"{flag(name)} must be {self.reader.words}; got {shown(text)}") from None

    def parameter(self, name: str) -> inspect.Parameter:
        """Return the option as a parameter of a command: a text, or None where it is not given."""
        told = typer.Option(help=self.help, metavar=self.reader.metavar, rich_help_panel=self.panel, show_default=False)
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, told]
        )


def with_options(into: str, options: Mapping[str, Option]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options in place of a command's parameter `into`: a dictionary of those that are given."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            texts = {name: given.pop(name) for name in options}
            values = {name: options[name].value(name, text) for name, text in texts.items() if text is not None}
            command(**given, **{into: values})

        signature = inspect.signature(command, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != into]
        parameters = [*own, *(option.parameter(name) for name, option in options.items())]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def settings_options(*, without: tuple[str, ...] = ()) -> dict[str, Option]:
    """Return an option for each setting of a run, but for those in the panels of the help that are left out."""
    sampling, of_pairs = declarations(TrainSettings), declarations(PairSettings)
    hints = get_type_hints(TrainSettings) | get_type_hints(PairSettings)
    options = {}
    for name, declaration in (of_pairs | sampling).items():
        reader = reader_of(hints[name])
        if reader is not None and declaration.panel not in without:
            options[name] = Option(reader, declaration.said(of_pairs.get(name)), declaration.panel)
    return options


def refuse_beside(context: typer.Context, what: str, taken: Collection[str]) -> None:
    """Raise ValueError for an option on the command line that has no say beside `what`; the parameters `taken` have."""
    for name in context.params:
        if name not in taken and "COMMANDLINE" in str(context.get_parameter_source(name)):
            raise ValueError(f"{flag(name)} cannot be given with {what}")
