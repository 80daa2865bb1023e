"""A run as an iterator of records: evaluation, checkpoints and errors around its steps, and its summary."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from torch import Tensor

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.settings import Settings
from rlviz.training.files import write_json
from rlviz.training.rewards import check_rewards
from rlviz.training.rollout import Rollout
from rlviz.training.run_folder import RunFolder, finite_weights
from rlviz.training.settings import default_settings
from rlviz.training.state import Beginning, State, checkpoint_data, first_state, restore
from rlviz.training.step import NotFiniteError, collect, run_updates, step
from rlviz.training.updates import Updates
from rlviz.types import PairRecord, StepRecord
from small_models.checks import checked
from small_models.evaluation import Evaluation, evaluate
from small_models.policies import SMALL, Policy, one_thread_if_small
from small_models.precision import in_bfloat16
from small_models.routing import has_experts
from small_models.tasks import RewardError

R = TypeVar("R", StepRecord, PairRecord)
SAVE_SECONDS = 2.0  # of work that a kill may cost
SAVE_SHARE = 0.02  # of that work that a save may cost
FAR = 3.0  # a setting this many times its default is suspected where a run diverges


class TrainingRun(ABC, Iterator[R], Generic[R]):
    """A run in progress: pull a record and one step is done; stop pulling and it waits; pull again and it goes on.

    policy (changed in place), start: the policy that the run began with, task, algorithm, settings, folder (None without
    `out`), step: steps done so far, train_seconds: seconds in those steps, tokens_sampled. state: all that the next step needs;
    path: the forward of its steps, "plain" where that is possible
    (`Policy.path`), else "transformers", from beginning to end. evaluation_is_due: in place of `evaluate_every`, a
    function of a step's fields, for a run that a budget ends. `train` and `resume` build runs.
    """

    kind: type[R]  # of its records
    evaluation_is_due: Callable[[Mapping[str, Any]], bool] | None = None

    def __init__(self, state: State, begun: Beginning, folder: RunFolder | None) -> None:
        self.state, self.start, self.task, self.folder = state, begun.start, begun.task, folder
        self.settings: Any = begun.settings
        self.path = state.policy.path
        self.evaluated: tuple[int, Evaluation] | None = None  # the step of the last evaluation, and what it measured
        self._saved: int | None = None  # the step of the last checkpoint
        self._is_between_steps = True
        self._unsaved_seconds = 0.0  # of work since the last checkpoint
        self._save_seconds = 0.0  # of the last checkpoint

    @abstractmethod
    def collect(self) -> Any:
        """Return the data of a step's updates."""

    @abstractmethod
    def update(self, collected: Any) -> Any:
        """Take the updates of a step; return their statistics."""

    @abstractmethod
    def advance(self) -> dict[str, Any]:
        """Do a step, and return its record's fields without those that every kind of record has."""

    @property
    def policy(self) -> Policy:
        return self.state.policy

    @property
    def algorithm(self) -> Any:
        return self.state.algorithm

    @property
    def step(self) -> int:
        return self.state.step

    @property
    def train_seconds(self) -> float:
        return self.state.train_seconds

    @property
    def tokens_sampled(self) -> int:
        return self.state.tokens_sampled

    @property
    def totals(self) -> dict[str, Any]:
        """Seconds, tokens and steps up to now, as they stand in summary.json."""
        return {"train_seconds": self.train_seconds, "tokens_sampled": self.tokens_sampled, "steps": self.step}

    def __next__(self) -> R:
        if self.step >= self.settings.steps:
            raise StopIteration
        with compute_precision(self.settings, self.policy):
            try:
                return self._next()
            except RewardError as error:
                error.args = (f"{error}; the run stops{self._safe}",)
                raise

    def _next(self) -> R:
        if self.folder is not None:
            self.folder.check_lock()
        self._is_between_steps = False
        start = time.perf_counter()
        with one_thread_if_small(self.policy):
            try:
                learned = self.advance()
            except NotFiniteError as error:
                raise FloatingPointError(self._divergence_message(*error.args)) from None
        seconds = time.perf_counter() - start
        self.state.train_seconds += seconds
        every = self.settings.evaluate_every
        evaluated = every and (self.step % every == 0 or self.step == self.settings.steps)
        if self.evaluation_is_due is not None:
            evaluated = self.evaluation_is_due({**learned, "seconds": seconds})
        now = None
        if evaluated:
            now = evaluate(self.policy, self.task, max_new_tokens=self.settings.max_new_tokens)
            self.evaluated = self.step, now
        record = self.kind(
            **learned,
            step=self.step,
            seconds=seconds,
            held_out_accuracy=None if now is None else now.accuracy,
            held_out_reward=None if now is None or self.task.reward_is_grade else now.reward,
            lr=self.state.optimizers[0].param_groups[0]["lr"],
            tokens_sampled=self.tokens_sampled,
        )
        self._is_between_steps = True
        if self.folder is not None:
            self.folder.append(record)
            work = time.perf_counter() - start
            self._unsaved_seconds += work
            if self._save_is_due(work):
                self.save()
            if self.step == self.settings.steps:
                self.folder.release("has done its steps")
        return record

    def _save_is_due(self, next_seconds: float) -> bool:
        """Return whether to save before the next step, which takes about so many seconds."""
        every = self.settings.checkpoint_every
        if self.step == self.settings.steps or (every and self.step % every == 0):
            return True
        return (
            self._save_seconds < SAVE_SHARE * self._unsaved_seconds
            and self._unsaved_seconds + next_seconds > SAVE_SECONDS
        )

    def save(self) -> None:
        """Write the state to the run folder, so that `resume` goes on from this step.

        A run does it itself at the beginning, at the end, every `checkpoint_every` steps, and before more than 2 s of work would
        be unsaved; where a save takes more than 2 % of that time, as much less often. Does nothing without a folder, when this
        step is saved, and in the middle of a step, which `resume` does again.
        Raises FloatingPointError in place of saving weights that are not finite, OSError in one sentence when the disk is full.
        """
        if self.folder is None or self._saved == self.step or not self._is_between_steps:
            return
        if not finite_weights(self.policy):
            raise FloatingPointError(self._divergence_message("largest weight"))
        start = time.perf_counter()
        self.folder.save_state(self.policy, *checkpoint_data(self.state, self.settings))
        self._save_seconds = time.perf_counter() - start
        self._saved, self._unsaved_seconds = self.step, 0.0

    def close(self) -> None:
        """Save, and let others have the folder; the run then ends. Does nothing without a folder, or when that is done."""
        if self.folder is not None and self.folder.lock is not None and self.folder.lock.why_not is None:
            self.save()
            self.folder.release("was closed")

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        """Continue from a checkpoint. Raises KeyError, ValueError, TypeError or RuntimeError where it does not fit."""
        restore(self.state, self.settings, tensors, counters)
        self._saved = self.step

    def _divergence_message(self, what: str, cause: str = "") -> str:
        """Return a sentence: the number that is not finite, the likeliest cause, and the last checkpoint."""
        return (
            f"the {what} of step {self.step + (not self._is_between_steps)} is not a finite number, so the run stops: "
            f"{cause or self._likeliest_cause()}{self._safe}"
        )

    @property
    def _safe(self) -> str:
        return "" if self._saved is None else f"; the last checkpoint, of step {self._saved}, is as it was"

    def _likeliest_cause(self) -> str:
        """Return advice on the setting that is furthest from its default, of those that can overflow a number by now."""
        updated = any(bool(state["step"]) for state in self.state.optimizers[0].state.values())
        if not updated and not finite_weights(self.policy):
            return "the policy that it began with has weights that are not finite, begin with another one"
        default, far = default_settings(self.algorithm), {}
        rates: list[str] = ["lr", "critic_lr"][: len(self.state.optimizers)] if updated else []
        for name in filter(vars(default).get, [*rates, "temperature"]):
            factor = getattr(self.settings, name) / getattr(default, name)
            far[name] = 1 / factor if name == "temperature" else factor  # the only one that divides
        worst = max(far, key=far.__getitem__, default="")
        if far.get(worst, 0.0) < FAR:
            return f"its settings are near their defaults, look at the rewards and the pieces of {self.algorithm.name} first"
        wrong, better = ("low", "larger") if worst == "temperature" else ("high", "smaller")
        return (
            f"most likely {worst} is too {wrong} ({getattr(self.settings, worst):g}; default {getattr(default, worst):g}), "
            f"begin again with a {better} one"
        )


class RolloutRun(TrainingRun[StepRecord]):
    """A run of an algorithm that samples; its step is `rlviz.training.step.step`."""

    kind = StepRecord

    def __init__(self, begun: Beginning, folder: RunFolder | None) -> None:
        policy, task, algorithm, settings = begun.policy, begun.task, begun.algorithm, begun.settings
        if settings.group_size < algorithm.min_group_size:
            raise ValueError(
                f"group_size must be at least {algorithm.min_group_size} for {algorithm.name}, which compares a response with "
                f"its group; got {settings.group_size}"
            )
        prompts = len(task.train_prompts)
        for name in ("num_prompts", "prompt_pool"):
            if getattr(settings, name) > prompts:
                raise ValueError(
                    f"{name} must be at most {prompts}, the training prompts of {task.name}; got {getattr(settings, name)}"
                )
        check_rewards(algorithm, settings, begun.reward_model, task)
        if settings.routing == "replayed" and (isinstance(algorithm, ActorCritic) or not has_experts(policy)):
            raise ValueError(
                "routing is replayed for a policy of experts, such as chain-experts, and an algorithm without a critic; got "
                f"{policy.source} and {algorithm.name}"
            )
        super().__init__(first_state(begun), begun, folder)

    def advance(self) -> dict[str, Any]:
        return step(self.state, self.task, self.settings)

    def collect(self) -> Rollout:
        return collect(self.state, self.task, self.settings)

    def update(self, collected: Rollout) -> Updates:
        return run_updates(self.state, collected, self.settings)


def compute_precision(settings: Settings, policy: Policy) -> AbstractContextManager[Any]:
    """Return a context in which models compute in the precision of the settings."""
    suits = policy.device.type == "cuda" and policy.num_parameters > SMALL
    precision = ("bfloat16" if suits else "float32") if settings.precision == "auto" else settings.precision
    return in_bfloat16(policy.device) if precision == "bfloat16" else nullcontext()


@checked
def summarize(run: TrainingRun[Any]) -> dict[str, Any]:
    """Return held-out accuracy and reward before and after, steps, seconds and tokens of a run, and write its summary.json.

    They are sampled at temperature 1, greedy_accuracy and greedy_reward are not sampled; before is of the policy from which the
    run started, on the same prompts and random numbers. Accuracies are None where the task has no right answers.
    """
    measured: dict[str, float | None] = {}
    for when, policy in (("before", run.start), ("after", run.policy)):
        for name, temperature in (("", 1.0), ("greedy_", 0.0)):
            if (name, when) == ("", "after") and run.evaluated is not None and run.evaluated[0] == run.step:
                result = run.evaluated[1]  # the last step's, on the same prompts and random numbers
            else:
                result = evaluate(policy, run.task, max_new_tokens=run.settings.max_new_tokens, temperature=temperature)
            measured |= {f"{name}accuracy_{when}": result.accuracy, f"{name}reward_{when}": result.reward}
    summary = measured | run.totals | {"finished": run.step >= run.settings.steps, "seed": run.settings.seed}
    if run.folder is not None:
        with run.folder.writing():
            write_json(run.folder.path / "summary.json", summary)
    return summary
