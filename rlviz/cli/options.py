"""Options that are not typed into a command but read off declarations: a run's settings, the arguments of an explorer.

An option that is not given is None to typer, so that a default can depend on the algorithm; its help names the default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer

from rlviz.settings import RUN, declarations
from small_models.checks import short_repr
from small_models.tasks import TASKS

if TYPE_CHECKING:
    from rlviz.algorithms import Algorithm

SHIPPED = ", ".join(task.name for task in TASKS)
TaskName = Annotated[str, typer.Option(help=f"Task: {SHIPPED}.", rich_help_panel=RUN)]
TaskOrFile = Annotated[
    str,
    typer.Option(
        help=f'Task: {SHIPPED}. Or a FILE.jsonl of {{"prompt": …, "answer": …}} lines, with --rule and --policy.',
        rich_help_panel=RUN,
    ),
]
Rule = Annotated[
    str | None,
    typer.Option(
        help="How responses to a file's prompts are graded: last-number, exact, or FILE.py:function, which is imported and "
        "run: code of yours. It is given (prompt, response, answer) and returns True or False, or a reward.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
ChatTemplate = Annotated[
    Literal["auto", "on", "off"],
    typer.Option(
        help="Write a file's prompts by the policy's chat template; auto: where it has one.", rich_help_panel=RUN
    ),
]
PolicyName = Annotated[
    str | None,
    typer.Option(
        help="Starting policy: a shipped name, a folder (RUN/checkpoint), a .gguf file, or a hub name. "
        "[default: the task's warm start]",
        rich_help_panel=RUN,
    ),
]
ReferenceName = Annotated[
    str | None,
    typer.Option(
        help="Reference of a KL term, or teacher of distillation: a shipped name, a folder (RUN/checkpoint), or a hub name. "
        "[default: the starting policy]",
        rich_help_panel=RUN,
    ),
]
On = Annotated[
    str,
    typer.Option(
        help="What runs them: local (processes here), ray (a cluster here), or ray:ADDRESS of one that shares this folder.",
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

    def value(self, name: str, text: str) -> Any:
        """Return the parsed value. Raises ValueError, with name and text, for a text that cannot be read."""
        try:
            return self.read(text)
        except ValueError:
            if not self.words:
                raise
            raise ValueError(f"{flag(name)} must be {self.words}; got {short_repr(text)}") from None


PLAIN = {
    int: Reader(int, "<int>", "a whole number"),
    float: Reader(float, "<float>", "a number"),
    str: Reader(str, "<str>", "a text"),
    Path: Reader(Path, "<path>", "a path"),
}


def reader_of(hint: Any) -> Reader:
    """Return the reader of a number, path, text, or choice, which is checked where it is used. Raises KeyError for others."""
    kinds = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
    kind = next(kind for kind in kinds if kind is not NoneType)
    if get_origin(kind) is Literal:
        return Reader(str, f"<{'|'.join(get_args(kind))}>", "a text")
    return PLAIN[kind]


class Option(NamedTuple):
    """An option whose text is read by `reader`."""

    reader: Reader
    help: str
    panel: str | None = None

    def parameter(self, name: str) -> inspect.Parameter:
        """Return the option as a parameter of a command: a text, or None where it is not given."""
        option = typer.Option(
            help=self.help, metavar=self.reader.metavar, rich_help_panel=self.panel, show_default=False
        )
        hint = Annotated[str | None, option]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def with_options(**groups: Mapping[str, Option]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options in place of parameters of a command, which are dictionaries of those given.

    groups: by the name of the parameter, its options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            for group, options in groups.items():
                texts = {name: arguments.pop(name) for name in options}
                arguments[group] = {
                    name: options[name].reader.value(name, text) for name, text in texts.items() if text is not None
                }
            command(**arguments)

        signature = inspect.signature(command, eval_str=True)
        typed = [parameter for name, parameter in signature.parameters.items() if name not in groups]
        read = [option.parameter(name) for options in groups.values() for name, option in options.items()]
        run.__signature__ = signature.replace(parameters=[*typed, *read])  # type: ignore[attr-defined]
        return run

    return decorate


def options_of(kind: type[Any], pair_kind: type[Any] | None = None, without: Collection[str] = ()) -> dict[str, Option]:
    """Return an option for each setting that a dataclass declares, but for those in the panels of the help that are left out.

    pair_kind: what declares the settings of runs on pairs, which come too.
    """
    others = {} if pair_kind is None else declarations(pair_kind)
    hints = get_type_hints(kind) | ({} if pair_kind is None else get_type_hints(pair_kind))
    return {
        name: Option(reader_of(hints[name]), declaration.help_line(others.get(name)), declaration.panel)
        for name, declaration in (others | declarations(kind)).items()
        if declaration.panel not in without
    }


def refuse_beside(context: typer.Context, what: str, taken: Collection[str]) -> None:
    """Raise ValueError for an option on the command line that has no say beside `what`; the parameters `taken` have."""
    for name in context.params:
        if name not in taken and "COMMANDLINE" in str(context.get_parameter_source(name)):
            raise ValueError(f"{flag(name)} cannot be given with {what}")


def with_kl(algorithm: Any, beta: float) -> Any:
    """Return an algorithm with a KL term of this weight, 0 for none: of its own kind, or of GRPO's where it has none."""
    from rlviz.algorithms import PolicyGradient
    from rlviz.pieces.kl import KLInLoss

    if beta == 0 and isinstance(algorithm, PolicyGradient):
        return algorithm.without_kl()
    if isinstance(algorithm, PolicyGradient) and algorithm.kl is None:
        return replace(algorithm, kl=KLInLoss(beta=beta))
    return algorithm.with_parameters(beta=beta)


def without_usual_kl(algorithm: Algorithm) -> Algorithm:
    """Return an algorithm without a KL term that is GRPO's, since runs of this size need none; another kind stays."""
    from rlviz.algorithms import GRPO, GroupPolicyGradient

    return (
        algorithm.without_kl() if isinstance(algorithm, GroupPolicyGradient) and algorithm.kl == GRPO.kl else algorithm
    )
