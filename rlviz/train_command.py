"""`rlviz train`: a run in the terminal, and what it did. Heavy imports wait till needed."""

from __future__ import annotations

import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count as count_from
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from rlviz.processes import exit_code, interrupt_is_a_wish
from rlviz.terminal import console, errors, refusals, typed

if TYPE_CHECKING:
    from rlviz.algorithms import Algorithm
    from rlviz.training import TrainingRun
    from rlviz.types import PairRecord, StepRecord

SAMPLING, REWARDS, UPDATING, RUN = "Rollouts", "Rewards and pairs", "Updates", "Run"


class Reward(str, Enum):
    rule = "rule"
    learned = "learned"


class Supervision(str, Enum):
    outcome = "outcome"
    process = "process"


def train(
    context: typer.Context,
    algorithm: Annotated[
        str, typer.Option(help="Algorithm; `rlviz algorithms` lists them.", rich_help_panel=RUN)
    ] = "grpo",
    task: Annotated[
        str, typer.Option(help="Task: chain, lookup, ramble, sort or trip.", rich_help_panel=RUN)
    ] = "chain",
    steps: Annotated[int | None, typer.Option(help="Rollouts in the run. [default: 120]", rich_help_panel=RUN)] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same curve.", rich_help_panel=RUN)] = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Starting policy: a shipped name, a folder, or a hub name. [default: the task's warm start]",
            rich_help_panel=RUN,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", rich_help_panel=RUN)] = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for the run. [default: runs/TASK-ALGORITHM-NUMBER]", rich_help_panel=RUN),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with the run in this folder; its settings stay, but for --steps and --device.",
            rich_help_panel=RUN,
        ),
    ] = None,
    num_prompts: Annotated[
        int | None,
        typer.Option(
            help="Prompts in one rollout. [default: 32; with a critic 128]",
            rich_help_panel=SAMPLING,
            show_default=False,
        ),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            help="Responses to each prompt, G. [default: 8; with a critic 1]",
            rich_help_panel=SAMPLING,
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature. [default: 1]", rich_help_panel=SAMPLING)
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(help="Sample from the likeliest k tokens; 0: all. [default: 0]", rich_help_panel=SAMPLING),
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the likeliest mass p. [default: 1]", rich_help_panel=SAMPLING)
    ] = None,
    max_rounds: Annotated[
        int | None,
        typer.Option(
            help="DAPO samples at most so many times num-prompts while groups are all right or all wrong; 1: drops them. "
            "[default: 10]",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    prompt_pool: Annotated[
        int | None,
        typer.Option(
            help="Training prompts, drawn once, to learn from; 0: all. [default: 0]", rich_help_panel=SAMPLING
        ),
    ] = None,
    filter_solved: Annotated[
        int | None,
        typer.Option(
            help="Responses to each prompt of the pool at first; prompts that all of them solve leave it. [default: 0]",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    reward: Annotated[
        Reward,
        typer.Option(help="The task's rule, or a reward model learned from pairs first.", rich_help_panel=REWARDS),
    ] = Reward.rule,
    reward_format: Annotated[
        float | None,
        typer.Option(
            help="Added to the reward of a well-formed response; a right answer earns 1. [default: 0]",
            rich_help_panel=REWARDS,
        ),
    ] = None,
    supervision: Annotated[
        Supervision,
        typer.Option(
            help="Reward whole responses, or each step of them (chain marks its steps).", rich_help_panel=REWARDS
        ),
    ] = Supervision.outcome,
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines of prompt, chosen, rejected, for DPO or a learned reward. "
            "[default: right against wrong responses of the starting policy]",
            rich_help_panel=REWARDS,
        ),
    ] = None,
    num_pairs: Annotated[
        int | None,
        typer.Option(
            help="Pairs to sample where no file is given. [default: 1500; learned reward 1200]", rich_help_panel=REWARDS
        ),
    ] = None,
    label_noise: Annotated[
        float, typer.Option(help="Probability that a sampled pair is labelled the wrong way.", rich_help_panel=REWARDS)
    ] = 0.0,
    spurious: Annotated[
        float,
        typer.Option(
            help="Probability that a sampled pair is labelled by length instead: longer is chosen.",
            rich_help_panel=REWARDS,
        ),
    ] = 0.0,
    refresh_reward_every: Annotated[
        int | None,
        typer.Option(
            help="Steps between refreshes of a learned reward; 0: never. [default: 0]", rich_help_panel=REWARDS
        ),
    ] = None,
    eps_low: Annotated[
        float | None,
        typer.Option(help="Clip width below ratio 1. [default: the algorithm's]", rich_help_panel=UPDATING),
    ] = None,
    eps_high: Annotated[
        float | None,
        typer.Option(help="Clip width above ratio 1. [default: the algorithm's]", rich_help_panel=UPDATING),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="Weight of the KL term; 0: none. [default: PPO's and DPO's own, else 0; GRPO's paper: 0.04]",
            rich_help_panel=UPDATING,
        ),
    ] = None,
    reset_reference_every: Annotated[
        int | None,
        typer.Option(
            help="Steps after which the reference becomes the policy; 0: never. [default: 0]", rich_help_panel=UPDATING
        ),
    ] = None,
    min_old_prob: Annotated[
        float | None,
        typer.Option(help="Responses with a less likely token leave the loss. [default: 0]", rich_help_panel=UPDATING),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of AdamW. [default: 0.0003]", rich_help_panel=UPDATING)
    ] = None,
    updates_per_rollout: Annotated[
        int | None,
        typer.Option(
            help="Optimizer steps on each rollout; with 1 the ratio stays 1 and nothing clips. [default: 1; with a critic 2]",
            rich_help_panel=UPDATING,
            show_default=False,
        ),
    ] = None,
    minibatches: Annotated[
        int | None, typer.Option(help="Parts a rollout is split into. [default: 1]", rich_help_panel=UPDATING)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Pairs in each of DPO's updates. [default: 64]", rich_help_panel=UPDATING)
    ] = None,
    critic: Annotated[
        str | None,
        typer.Option(
            help="PPO's critic: separate, or shared (a head on the policy's trunk). [default: separate]",
            rich_help_panel=UPDATING,
        ),
    ] = None,
    critic_lr: Annotated[
        float | None,
        typer.Option(help="Learning rate of a separate critic. [default: 0.0003]", rich_help_panel=UPDATING),
    ] = None,
    critic_only_steps: Annotated[
        int | None,
        typer.Option(help="First steps in which only the critic learns. [default: 0]", rich_help_panel=UPDATING),
    ] = None,
) -> None:
    """Train a small transformer and watch it learn. `rlviz train` alone trains GRPO on *chain* for about ten seconds.

    Ctrl-C (or SIGTERM, or a closed terminal) stops after the current step and keeps the run; `--resume DIR` goes on with it.
    """
    with refusals(), console.status("Loading"):
        if resume is not None:
            _refuse_beside_resume(context)
            from rlviz.training import resume as resume_run

            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", UserWarning)
                run = resume_run(resume, steps=steps, device=device)
            for warning in said:
                errors.print(f"[bold]Note:[/] {escape(str(warning.message))}", soft_wrap=True)
        else:
            settings = {
                "steps": steps, "num_prompts": num_prompts, "group_size": group_size, "temperature": temperature,
                "top_k": top_k, "top_p": top_p, "reward_format": reward_format, "lr": lr, "batch_size": batch_size,
                "updates_per_rollout": updates_per_rollout, "minibatches": minibatches, "critic": critic,
                "critic_lr": critic_lr, "critic_only_steps": critic_only_steps, "min_old_prob": min_old_prob,
                "reset_reference_every": reset_reference_every, "refresh_reward_every": refresh_reward_every,
                "prompt_pool": prompt_pool, "filter_solved": filter_solved,
            }  # fmt: skip
            given = {"seed": seed} | {name: value for name, value in settings.items() if value is not None}
            pieces = {"eps_low": eps_low, "eps_high": eps_high, "max_rounds": max_rounds}
            chosen = _chosen_algorithm(algorithm, supervision, beta, pieces)
            judged = _Judged(reward is Reward.learned, pairs, num_pairs, label_noise, spurious)
            run = _new_run(chosen, task, policy, device, out, given, judged)
    stopped = _show_training(run)
    if stopped:
        words = f"Stopped after step {run.step}. Go on with: rlviz train --resume {_shown(run)}"
        console.print(words, soft_wrap=True, markup=False)
    with refusals():
        _show_summary(run)
    if stopped:
        raise typer.Exit(exit_code(stopped))


def _refuse_beside_resume(context: typer.Context) -> None:
    """Raise ValueError for an option that a resumed run would ignore: its settings are those it began with."""
    for name in context.params:
        if name not in ("resume", "steps", "device") and typed(context, name):
            raise ValueError(
                f"--{name.replace('_', '-')} cannot be given with --resume: the run keeps what it began with"
            )


@dataclass(frozen=True)
class _Judged:
    """How responses are judged beyond the task's rule: by a learned reward or not, and from which pairs."""

    learned: bool
    pairs: Path | None
    num_pairs: int | None
    label_noise: float
    spurious: float

    @property
    def asked(self) -> bool:
        return bool(self.pairs or self.num_pairs or self.label_noise or self.spurious)


def _chosen_algorithm(
    name: str, supervision: Supervision, beta: float | None, pieces: dict[str, float | None]
) -> Algorithm:
    from dataclasses import replace

    from rlviz.algorithms import GRPO_PROCESS, GroupPolicyGradient, PolicyGradient, find_algorithm
    from rlviz.pieces.kl import KLInLoss

    if beta is not None and beta < 0:
        raise ValueError(f"beta must be 0 (no KL term) or above; got {beta}")
    chosen = find_algorithm(name)
    chosen = chosen.with_parameters(**{name: value for name, value in pieces.items() if value is not None})
    if isinstance(chosen, GroupPolicyGradient):
        chosen = replace(chosen, kl=KLInLoss(beta=beta) if beta else None)
    elif beta == 0 and isinstance(chosen, PolicyGradient):
        chosen = chosen.without_kl()
    elif beta is not None:
        chosen = chosen.with_parameters(beta=beta)
    if supervision is Supervision.process:
        if not isinstance(chosen, GroupPolicyGradient):
            raise ValueError(f"--supervision process is for algorithms of groups, such as GRPO; got {chosen.name}")
        chosen = replace(chosen, name=f"{chosen.name} (process)", advantage=GRPO_PROCESS.advantage)
    return chosen


def _new_run(
    algorithm: Algorithm,
    task: str,
    policy: str | None,
    device: str,
    out: Path | None,
    given: dict[str, Any],
    judged: _Judged,
) -> TrainingRun[Any]:
    from rlviz.algorithms import PreferenceOptimization, command_name
    from rlviz.training import PairSettings, default_settings, find_task, learn_reward
    from rlviz.training import train as start
    from rlviz.training.reward_model import NUM_PAIRS
    from small_models.pairs import make_pairs, read_pairs
    from small_models.policies import load_policy

    of_pairs = isinstance(algorithm, PreferenceOptimization)
    if judged.learned and of_pairs:
        raise ValueError(f"--reward learned: {algorithm.name} learns from pairs and has no use for a reward model")
    if judged.asked and not (judged.learned or of_pairs):
        raise ValueError("--pairs, --num-pairs, --label-noise and --spurious are for DPO or with --reward learned")
    the_task, settings = find_task(task), default_settings(algorithm, **given)
    loaded = load_policy(policy or the_task.name, device=device)
    pairs, reward_model = None, None
    if judged.pairs is not None:
        pairs = read_pairs(judged.pairs)
    elif judged.learned or of_pairs:
        count = judged.num_pairs or (NUM_PAIRS if judged.learned else PairSettings.num_pairs)
        pairs = make_pairs(
            loaded, the_task, count, seed=settings.seed, label_noise=judged.label_noise, spurious=judged.spurious
        )
    if judged.learned and pairs is not None:
        learned = learn_reward(loaded, the_task, pairs, seed=settings.seed)
        reward_model = learned.model
        console.print(
            f"Reward model: {len(pairs):,} pairs, held-out pairs in the right order {learned.held_out_accuracy:.2f}"
        )
    begin = partial(start, loaded, the_task, algorithm, settings, reward_model=reward_model, pairs=pairs)
    if out is not None:
        return begin(out=out)
    name = command_name(algorithm).replace("(", "").replace(")", "")
    numbered = (Path("runs") / f"{the_task.name}-{name}-{number:03d}" for number in count_from(1))
    ours = next(folder for folder in numbered if _claimed(folder))
    try:
        return begin(out=ours)
    except (ValueError, OSError):
        with suppress(OSError):
            ours.rmdir()
        raise


def _claimed(folder: Path) -> bool:
    """Make the folder; return whether it is ours, and not that of a run begun at the same moment."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _shown(run: TrainingRun[Any]) -> str:
    return str(run.folder.path) if run.folder else ""


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
    said = ((words, getattr(record, metric, None)) for metric, words in NUMBERS.items())
    return "  ".join(words.format(value) for words, value in said if value is not None)


def _what_a_step_is(run: TrainingRun[Any]) -> str:
    settings = run.settings
    if hasattr(settings, "batch_size"):
        return f"{settings.batch_size} of {len(run.sampler.pairs):,} pairs a step"  # type: ignore[attr-defined]
    responses = (
        f"{settings.num_prompts} prompts × {settings.group_size} response{'s'[: settings.group_size > 1]} a step"
    )
    return responses + ("" if run.algorithm.kl is not None else ", no KL term")


def _show_training(run: TrainingRun[Any]) -> int | None:
    """Run to the end, or until a signal such as Ctrl-C stops it, showing each step; return the number of that signal."""
    settings = run.settings
    console.print(
        f"[bold]{escape(run.algorithm.name)}[/] on [bold]{escape(run.task.name)}[/]: {_what_a_step_is(run)}, "
        f"{run.policy.num_parameters:,} parameters on {run.policy.device.type}, "
        f"seed {settings.seed}, in {escape(_shown(run))}",
        soft_wrap=True,
    )
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("ETA"), TimeRemainingColumn()
    progress = Progress(*columns, console=console)
    bar = progress.add_task("", total=settings.steps, completed=run.step)
    live = Live(progress, console=console) if console.is_terminal else nullcontext()
    with interrupt_is_a_wish() as asked, refusals(), live:
        for record in run:
            if asked:  # saved before anything is shown: after a SIGHUP there may be no terminal
                run.close()
                return asked[0] if run.step < settings.steps else None
            progress.update(bar, completed=record.step)
            if isinstance(live, Live):
                live.update(Group(progress, _numbers(record)))
            elif record.step % 20 == 0 or record.step == settings.steps:
                console.print(f"step {record.step}/{settings.steps}  {_numbers(record)}", soft_wrap=True)
    return None


def _show_summary(run: TrainingRun[Any]) -> None:
    from rlviz.plots import plot_learning_curves
    from rlviz.training import summarize
    from rlviz.training.files import whole_file

    summary = summarize(run)
    table = Table(title="Held-out prompts", title_justify="left")
    for column in ("", "before", "after"):
        table.add_column(column, justify="right" if column else "left")
    table.add_row(
        "accuracy, sampled at temperature 1", *(f"{summary[f'accuracy_{w}']:.3f}" for w in ("before", "after"))
    )
    table.add_row("accuracy, greedy", *(f"{summary[f'greedy_accuracy_{w}']:.3f}" for w in ("before", "after")))
    console.print(table)
    seconds = summary["train_seconds"]
    rate = summary["tokens_sampled"] / max(seconds, 1e-9)
    tokens = f"; {summary['tokens_sampled']:,} tokens sampled, {rate:,.0f} a second" if rate else ""
    console.print(
        f"{summary['steps']} step{'' if summary['steps'] == 1 else 's'} in {seconds:.1f} s of training{tokens}"
    )
    _show_samples(run)
    if run.folder is not None and not run.folder.metrics.empty:
        picture = run.folder.path / "learning_curves.png"
        title = f"{run.algorithm.name} on {run.task.name}, seed {run.settings.seed}"
        with run.folder.writing(), whole_file(picture) as temporary:
            plot_learning_curves(run.folder.metrics, title=title).savefig(temporary, format="png")
        console.print(f"Curves: {escape(str(picture))}", soft_wrap=True)


def _show_samples(run: TrainingRun[Any]) -> None:
    import torch

    from small_models.sampling import sample

    prompts = run.task.held_out_prompts[:3]
    generator = torch.Generator().manual_seed(run.settings.seed)
    limit = run.settings.max_new_tokens or run.task.max_new_tokens
    texts = sample(run.policy, prompts, task=run.task, max_new_tokens=limit, generator=generator).texts(run.policy)
    table = Table(title="Three held-out prompts", title_justify="left")
    for column in ("prompt", "response", "graded"):
        table.add_column(column)
    for prompt, (text,) in zip(prompts, texts, strict=True):
        grade = run.task.grade(prompt, text)
        verdict = "right" if grade.correct else "wrong" if grade.format else "not well formed"
        verdict += "" if grade.correct else f" (right: {run.task.gold(prompt)})"
        table.add_row(escape(prompt), escape(text), escape(verdict))
    console.print(table)
