"""Options that are not typed into a command but read off declarations: a run's settings, the arguments of an explorer.

An option that is not given is None to typer, so that a default can depend on the algorithm; its help names the default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import typer

from rlviz.settings import RUN, check_settings, declarations, setting
from small_models.checks import short_repr
from small_models.tasks import TASKS

if TYPE_CHECKING:
    from rlviz.algorithms import Algorithm
    from small_models.policies import Policy
    from small_models.tasks import Task

T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Beginning:
    """What a run begins with, by name."""

    task: str = setting(
        "chain",
        f"Task: {', '.join(task.name for task in TASKS)}. "
        'Or a FILE.jsonl of {"prompt": …, "answer": …} lines, with --rule and --policy.',
        RUN,
    )
    rule: str | None = setting(
        None,
        "How responses to a file's prompts are graded: last-number, exact, or FILE.py:function, which is imported and run: "
        "code of yours. It is given (prompt, response, answer) and returns True or False, or a reward.",
        RUN,
        unset="the task's own",
    )
    chat: Literal["auto", "on", "off"] = setting(
        "auto", "Write a file's prompts by the policy's chat template; auto: where it has one.", RUN
    )
    policy: str | None = setting(
        None,
        "Starting policy: a shipped name, a folder (RUN/checkpoint), a .gguf file, or a hub name.",
        RUN,
        unset="the task's warm start",
    )
    reference: str | None = setting(
        None,
        "Reference of a KL term, or teacher of distillation: a shipped name, a folder (RUN/checkpoint), or a hub name.",
        RUN,
        unset="the starting policy",
    )
    device: str = setting("auto", "auto, cpu or cuda.", RUN)

    def __post_init__(self) -> None:
        check_settings(self)

    def load(self, lora: int | None = None) -> tuple[Task, Policy]:
        """Return the task and the policy. lora: the rank of an adapter that is put on it."""
        from rlviz.training.start import task_and_policy

        return task_and_policy(self.task, self.policy, rule=self.rule, chat=self.chat, device=self.device, lora=lora)


On = Annotated[
    str,
    typer.Option(
        help="What runs them: local (processes here), ray (a cluster here), or ray:HOST:PORT of one that shares this folder.",
        rich_help_panel=RUN,
    ),
]


def flag(name: str) -> str:
    """Return the option of a parameter."""
    return f"--{name.replace('_', '-')}"


def number(name: str, text: str, kind: type[T]) -> T:
    """Return the number that an option's text is. Raises ValueError, with both."""
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{flag(name)} must be {what}; got {short_repr(text)}") from None


class Option(NamedTuple):
    """An option of a type that typer reads, but for numbers, whose refusals name the value here."""

    hint: Any
    help: str
    panel: str | None = None

    def parameter(self, name: str) -> inspect.Parameter:
        """Return the option as a parameter of a command, None where it is not given."""
        metavar, hint = (f"<{self.hint.__name__}>", str) if self.hint in (int, float) else (None, self.hint)
        option = typer.Option(help=self.help, metavar=metavar, rich_help_panel=self.panel, show_default=False)
        hint = Annotated[hint | None, option]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)

    def read(self, name: str, value: Any) -> Any:
        """Return the value of what typer read."""
        return number(name, value, self.hint) if self.hint in (int, float) else value


def with_options(**groups: Mapping[str, Option]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts options in place of parameters of a command, which are dictionaries of those given.

    groups: by the name of the parameter, its options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            for group, options in groups.items():
                values = {name: arguments.pop(name) for name in options}
                arguments[group] = {
                    name: options[name].read(name, value) for name, value in values.items() if value is not None
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
        name: Option(_without_none(hints[name]), declaration.help_line(others.get(name)), declaration.panel)
        for name, declaration in (others | declarations(kind)).items()
        if declaration.panel not in without
    }


def _without_none(hint: Any) -> Any:
    return next(kind for kind in get_args(hint) if kind is not NoneType) if NoneType in get_args(hint) else hint


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
