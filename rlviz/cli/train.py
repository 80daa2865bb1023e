"""`rlviz train`: a run in the terminal, and what it did."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Column, Table

from rlviz.cli.options import Beginning, options_of, refuse_beside, with_kl, with_options, without_usual_kl
from rlviz.cli.terminal import console, exit_after, notes, plain, plain_lines, say
from rlviz.settings import (
    REWARDS,
    ROLLOUTS,
    RUN,
    UPDATES,
    PairSettings,
    TrainSettings,
    check_settings,
    declarations,
    setting,
)
from small_models.checks import cut

if TYPE_CHECKING:
    from rlviz.algorithms import Algorithm
    from rlviz.training import TrainingRun
    from rlviz.types import PairRecord, StepRecord
    from small_models.policies import Policy
    from small_models.tasks import Task


@dataclass(frozen=True)
class Changes:
    """What the command line changes in the pieces of an algorithm; None: what the algorithm has."""

    eps_low: float | None = setting(None, "Clip width below ratio 1.", UPDATES, unset="the algorithm's")
    eps_high: float | None = setting(None, "Clip width above ratio 1.", UPDATES, unset="the algorithm's")
    max_rounds: int | None = setting(
        None,
        "DAPO samples at most so many times num-prompts while groups are all right or all wrong; 1: drops them.",
        ROLLOUTS,
        unset="10",
    )
    beta: float | None = setting(
        None,
        "Weight of the KL term; 0: none.",
        UPDATES,
        at_least=0,
        reason="0: no KL term",
        unset="that of PPO, DPO and of a relative with a KL term of its own, else 0; GRPO's paper: 0.04",
    )
    supervision: Literal["outcome", "process"] = setting(
        "outcome", "Reward whole responses, or each step of them (chain marks its steps).", REWARDS
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def of(self, algorithm: Algorithm) -> Algorithm:
        """Return the algorithm with these changes."""
        from rlviz.algorithms import GRPO_PROCESS, GroupPolicyGradient

        widths = {"eps_low": self.eps_low, "eps_high": self.eps_high, "max_rounds": self.max_rounds}
        algorithm = algorithm.with_parameters(**{name: value for name, value in widths.items() if value is not None})
        algorithm = without_usual_kl(algorithm) if self.beta is None else with_kl(algorithm, self.beta)
        if self.supervision == "outcome":
            return algorithm
        if not isinstance(algorithm, GroupPolicyGradient):
            raise ValueError(f"--supervision process is for algorithms of groups, such as GRPO; got {algorithm.name}")
        if lost := set(algorithm.can.asks["advantage"]) - {"mask", "history"}:
            raise ValueError(
                f"--supervision process replaces the advantage, and {algorithm.name}'s is made of {' and '.join(sorted(lost))}, "
                "which would be lost; choose another algorithm, such as GRPO"
            )
        return replace(algorithm, name=f"{algorithm.name} (process)", advantage=GRPO_PROCESS.advantage)


@dataclass(frozen=True)
class Start(Beginning):
    """Also how the weights are trained, and by which rewards."""

    lora: int | None = setting(
        None,
        "Train a LoRA adapter of this rank, such as 16, in place of all weights; the run's folder then keeps adapters.",
        RUN,
        at_least=1,
        unset="all weights",
    )
    reward: Literal["rule", "learned"] = setting(
        "rule", "The task's rule, or a reward model learned from pairs first.", REWARDS
    )
    pairs: Path | None = setting(
        None,
        "JSON lines of prompt, chosen, rejected, for DPO or a learned reward.",
        REWARDS,
        unset="responses of the starting policy, higher against lower reward",
    )


@with_options(
    beginning=options_of(Start), settings=options_of(TrainSettings, PairSettings), changes=options_of(Changes)
)
def train(
    context: typer.Context,
    beginning: dict[str, Any],
    settings: dict[str, Any],
    changes: dict[str, Any],
    algorithm: Annotated[
        str, typer.Option(help="Algorithm; `rlviz algorithms` lists them.", rich_help_panel=RUN)
    ] = "grpo",
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for the run. [default: runs/TASK-ALGORITHM-NUMBER]", rich_help_panel=RUN),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with the run in this folder; its settings stay, but for --steps, --device. A --rule that is code "
            "is given again.",
            rich_help_panel=RUN,
        ),
    ] = None,
) -> None:
    """Train a small transformer and watch it learn. `rlviz train` alone trains GRPO on *chain* for about ten seconds.

    Ctrl-C (or SIGTERM, or a closed terminal) stops after the current step and keeps the run; `--resume DIR` goes on with it.
    """
    first = Start(**beginning)
    with console.status("Loading"):
        if resume is not None:
            refuse_beside(context, "--resume: the run keeps what it began with", ("resume", "steps", "device", "rule"))
            from rlviz.training import resume as resume_run

            with notes():
                run = resume_run(resume, steps=settings.get("steps"), device=first.device, rule=first.rule)
        else:
            from rlviz.algorithms import find_algorithm

            run = _begin(Changes(**changes).of(find_algorithm(algorithm)), first, out, settings)
    folder = str(run.folder.path) if run.folder else ""
    console.print(
        f"[bold]{plain(run.algorithm.name)}[/] on [bold]{plain(run.task.name)}[/]: {_step_size(run)}, "
        f"{_parameters(run.policy)} on {run.policy.device.type}, "
        f"seed {run.settings.seed}, in {plain(folder)}",
        soft_wrap=True,
    )
    stopped = _train(run)
    if stopped:
        rule = getattr(run.task, "rule", "")  # of a task from a file; code is never run because a folder names it
        more = f" --rule {rule}" if ".py:" in rule else ""
        say(f"Stopped after step {run.step}. Go on with: rlviz train --resume {folder}{more}")
    _print_summary(run)
    _draw_curves(run)
    if stopped:
        raise exit_after(stopped)


def _begin(algorithm: Algorithm, first: Start, out: Path | None, options: dict[str, Any]) -> TrainingRun[Any]:
    """Begin the run, in the folder that is asked for or in the next that is free."""
    from rlviz.algorithms import PreferenceOptimization
    from rlviz.training import default_settings, learn_reward, train
    from rlviz.training.reward_model import NUM_PAIRS
    from small_models.pairs import make_pairs, read_pairs

    is_preference, is_learned = isinstance(algorithm, PreferenceOptimization), first.reward == "learned"
    if is_learned and is_preference:
        raise ValueError(f"--reward learned: {algorithm.name} learns from pairs and has no use for a reward model")
    has_pairs = is_learned or is_preference
    if not has_pairs and ("num_pairs" in options or first.pairs):
        raise ValueError("--pairs and --num-pairs are for DPO or with --reward learned")
    num_pairs = options.get("num_pairs", NUM_PAIRS)
    declarations(PairSettings)["num_pairs"].check("num_pairs", num_pairs)  # a learned reward's, too
    if not is_preference:
        options.pop("num_pairs", None)
    settings = default_settings(algorithm, **options)
    task, policy = first.load(first.lora)
    number = settings.num_pairs if isinstance(settings, PairSettings) else num_pairs
    pairs = reward_model = None
    if has_pairs and first.pairs is not None:
        pairs = read_pairs(first.pairs)
    elif has_pairs:
        pairs = make_pairs(policy, task, number, seed=settings.seed, max_new_tokens=settings.max_new_tokens)
    if is_learned and pairs is not None:
        learned = learn_reward(policy, task, pairs, seed=settings.seed)
        reward_model, right = learned.model, f"{learned.held_out_accuracy:.2f}"
        console.print(f"Reward model: {len(pairs):,} pairs, held-out pairs in the right order {right}")
    more: dict[str, Any] = {"reward_model": reward_model, "pairs": pairs, "reference": first.reference}
    folder = out or _new_folder(task, algorithm)
    try:
        return train(policy, task, algorithm, settings, **more, out=folder)
    finally:
        if out is None:
            with suppress(OSError):  # what the run wrote is in it, but for a run that was refused
                folder.rmdir()


def _new_folder(task: Task, algorithm: Algorithm) -> Path:
    """Make the first folder runs/TASK-ALGORITHM-001, -002, … that is not there: no run begun at the same moment has it."""
    from rlviz.algorithms import command_name

    name = f"{task.name}-{command_name(algorithm).replace('(', '').replace(')', '')}"
    for number in count(1):
        with suppress(FileExistsError):
            (folder := Path("runs") / f"{name}-{number:03d}").mkdir(parents=True)
            return folder
    raise AssertionError


EVERY, SILENCE = 20, 10.0  # steps between two lines in a file, and seconds after which a slow run says where it is
LONGEST = 400  # characters of a response at the end

NUMBERS = {  # metric → how a line of progress says it, where the record has it
    "reward": "reward {:.2f}",
    "accuracy": "accuracy {:.2f}",
    "margin": "margin {:.2f}",
    "pair_accuracy": "pairs in order {:.2f}",
    "chosen_gain": "log-probability of chosen {:+.1f}",
    "rejected_gain": "of rejected {:+.1f}",
    "entropy": "entropy {:.2f}",
    "clip_fraction_low": "clipped low {:.1%}",
    "clip_fraction_high": "high {:.1%}",
    "explained_variance": "critic explains {:.0%}",
    "reward_agreement": "reward agrees with the rule {:.0%}",
}


def _numbers(record: StepRecord | PairRecord) -> str:
    values = ((words, getattr(record, metric, None)) for metric, words in NUMBERS.items())
    return "  ".join(words.format(value) for words, value in values if value is not None)


def _parameters(policy: Policy) -> str:
    trained = sum(weight.numel() for weight in policy.weights.parameters() if weight.requires_grad)
    words = f"{policy.num_parameters:,} parameters"
    return words if trained == policy.num_parameters else f"{trained:,} of {words}"


def _step_size(run: TrainingRun[Any]) -> str:
    settings = run.settings
    if isinstance(settings, PairSettings):
        return f"{settings.batch_size} of {len(run.pairs):,} pairs a step"  # type: ignore[attr-defined]
    responses = (
        f"{settings.num_prompts} prompts × {settings.group_size} response{'s'[: settings.group_size > 1]} a step"
    )
    return responses + ("" if run.algorithm.kl is not None else ", no KL term")


def _train(run: TrainingRun[Any]) -> int | None:
    """Run to the end, or until a signal such as Ctrl-C stops it, showing each step; return the number of that signal."""
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from rlviz.cli.signals import graceful_interrupt
    from rlviz.runs.progress import describe_sample, describe_seconds

    first, steps = run.step, run.settings.steps
    # The spinner and the time move during a first step of minutes, too.
    columns = SpinnerColumn(), TextColumn("step"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn()
    progress = Progress(*columns, TextColumn("{task.description}"), console=console)
    bar = progress.add_task("first step under way", total=steps, completed=first)
    live = Live(progress, console=console) if console.is_terminal else nullcontext()
    began = printed = time.monotonic()
    with graceful_interrupt() as signals, live:
        for record in run:
            if signals:  # saved before anything is shown: after a SIGHUP there may be no terminal
                run.close()
                return signals[0] if run.step < steps else None
            now = time.monotonic()
            left = (steps - record.step) * (now - began) / (record.step - first)
            words = f"{describe_seconds(left)} left" if left else ""
            progress.update(bar, completed=record.step, description=words)
            sample = Text(no_wrap=True, overflow="ellipsis")
            if record.groups:
                sample.append(Text.from_markup(plain(describe_sample(record))))
                sample.highlight_words(record.groups[0].control, "dim")
            if isinstance(live, Live):
                live.update(Group(progress, _numbers(record), sample))
            elif record.step % EVERY == 0 or record.step == steps or now - printed > SILENCE:
                console.print(f"step {record.step}/{steps}  {_numbers(record)}  {words}".rstrip(), soft_wrap=True)
                console.print(sample, soft_wrap=True)
                printed = now
    return None


def _print_summary(run: TrainingRun[Any]) -> None:
    """Print accuracy and reward before and after, what the run took, and three responses of the trained policy."""
    import torch

    from rlviz.training import summarize
    from small_models.sampling import sample
    from small_models.tasks.base import verdict

    summary = summarize(run)
    numbers = (Column(when, justify="right") for when in ("before", "after"))
    table = Table("", *numbers, title="Held-out prompts", title_justify="left")
    measured = ["accuracy"] if run.task.has_accuracy else []
    for metric in measured if run.task.reward_is_grade else [*measured, "reward"]:
        for words, name in ((", sampled at temperature 1", metric), (", greedy", f"greedy_{metric}")):
            table.add_row(metric + words, *(f"{summary[f'{name}_{when}']:.3f}" for when in ("before", "after")))
    console.print(table)
    steps, seconds, sampled = summary["steps"], summary["train_seconds"], summary["tokens_sampled"]
    tokens = f"; {sampled:,} tokens sampled, {sampled / max(seconds, 1e-9):,.0f} a second" if sampled else ""
    console.print(f"{steps} step{'' if steps == 1 else 's'} in {seconds:.1f} s of training{tokens}")
    prompts = run.task.held_out_prompts[:3]
    generator = torch.Generator().manual_seed(run.settings.seed)
    limit = run.settings.max_new_tokens or run.task.max_new_tokens
    texts = sample(run.policy, prompts, task=run.task, max_new_tokens=limit, generator=generator).texts(run.policy)
    table = Table("prompt", "response", "graded", title="Three held-out prompts", title_justify="left")
    for prompt, (text,) in zip(prompts, texts, strict=True):
        score = run.task.score(prompt, text)
        graded = verdict(score.correct, score.format)
        graded += f" (right: {run.task.gold(prompt)})" if run.task.has_answers and not score.correct else ""
        graded += "" if run.task.reward_is_grade else f", reward {score.reward:.2f}"
        table.add_row(*map(plain_lines, (run.task.user_text(prompt), cut(text.strip(), LONGEST), graded)))
    console.print(table)


def _draw_curves(run: TrainingRun[Any]) -> None:
    from rlviz.runs.learning import plot_learning_curves
    from rlviz.training.files import whole_file

    if run.folder is None or run.folder.metrics.empty:
        return
    picture = run.folder.path / "learning_curves.png"
    title = f"{run.algorithm.name} on {run.task.name}, seed {run.settings.seed}"
    with run.folder.writing(), whole_file(picture) as temporary:
        plot_learning_curves(run.folder.metrics, title=title).savefig(temporary, format="png")
    say(f"Curves: {picture}")
