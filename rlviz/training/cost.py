"""What the models of an algorithm cost: bytes and seconds of real runs, side by side on the same responses."""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from statistics import median
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlviz.algorithms import DPO, GRPO, PPO
from rlviz.settings import Critic, PairSettings, TrainSettings
from rlviz.training.adamw import AdamW
from rlviz.training.rollout import Rollout
from rlviz.training.run import TrainingRun
from rlviz.training.start import train
from small_models.checks import checked
from small_models.pairs import Pair
from small_models.policies import Policy, one_thread_if_small
from small_models.scorers import RewardModel
from small_models.tasks import Grade, Task
from small_models.tokenizer import encode

if TYPE_CHECKING:
    import pandas as pd

HELD = "parameters", "weights", "gradients", "optimizer_state"
TIMES = "rollout_seconds", "update_seconds", "step_seconds", "seconds_to_grpo"
STILL = 1e-12  # a learning rate so small that every run goes on sampling the same responses


@dataclass(frozen=True)
class ModelCost:
    """What one model holds: its number of parameters, and bytes. A frozen one has no gradients and no optimizer state."""

    role: str
    parameters: int
    weights: int
    gradients: int
    optimizer_state: int

    @classmethod
    def of(cls, role: str, model: nn.Module, optimizers: Iterable[AdamW] = ()) -> ModelCost:
        """Measure a model's own tensors and those that the optimizers keep for it; what shares its memory counts once."""
        weights, optimizers = list(model.parameters()), list(optimizers)
        kept = _bytes(weights), _bytes(_gradients(weights)), _bytes(_state(weights, optimizers))
        return cls(role, sum(weight.numel() for weight in weights), *kept)


@dataclass(frozen=True)
class Cost:
    """What one setting costs. models: those in play, first the actor. responses: in a step; tokens: theirs, padding included.

    activations: bytes that the peak of an update takes on top of weights, gradients and optimizer state. rollout_seconds:
    sampling, grading and all forwards before the first update (0 for DPO, which is given its responses); update_seconds: one
    update; step_seconds: a rollout and its updates; all medians. seconds_to_grpo: a step over GRPO's of the same round, median.
    """

    name: str
    models: tuple[ModelCost, ...]
    activations: int
    responses: int
    tokens: int
    rollout_seconds: float
    update_seconds: float
    step_seconds: float
    seconds_to_grpo: float

    @property
    def bytes(self) -> int:
        """The peak of an update: all that is in memory at once."""
        return self.activations + sum(m.weights + m.gradients + m.optimizer_state for m in self.models)


@checked
def model_costs(
    policy: Policy,
    task: Task,
    *,
    num_prompts: int = 32,
    group_size: int = 8,
    updates_per_rollout: int = 1,
    max_new_tokens: int | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> list[Cost]:
    """Measure GRPO with and without its KL and with a learned reward, PPO's critics with and without one, and DPO.

    Real runs on a copy of the policy take turns, `repeats` times, each time on the same num_prompts × group_size responses:
    every second one counts as right, so that no group drops out of an update, and the learning rate is next to 0. PPO gets
    the groups too, though one response a prompt is enough for it. DPO's pairs are texts of the same length; its reference
    works once, before the first update, but is counted. Without a KL term no reference is counted, though a run keeps the
    policy that it began with, for its records. All runs are in memory at once.
    Raises ValueError for a number out of range, and as `train` does.
    """
    for name, value in (
        ("num_prompts", num_prompts),
        ("updates_per_rollout", updates_per_rollout),
        ("repeats", repeats),
    ):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    if group_size < 2 or group_size % 2:
        raise ValueError(f"group_size must be even and at least 2, so that pairs can be made of it; got {group_size}")
    longest = task.max_new_tokens if max_new_tokens is None else max_new_tokens
    if longest < 2:
        raise ValueError(f"max_new_tokens must be at least 2, so that two responses can differ; got {longest}")
    policy = own_copy(policy)
    settings = TrainSettings(
        num_prompts=num_prompts, group_size=group_size, updates_per_rollout=updates_per_rollout, seed=seed,
        max_new_tokens=longest, lr=STILL, critic_lr=STILL,
    )  # fmt: skip
    graded, judge = every_second_is_right(task), RewardModel.of(policy)
    nn.init.ones_(judge.scorer.head.weight)  # of zeros it would score all responses alike
    with one_thread_if_small(policy):
        first: Rollout = train(policy, graded, GRPO, settings).collect()
        runs: dict[str, TrainingRun[Any]] = {
            "GRPO": train(policy, graded, GRPO, settings),
            "GRPO, no KL": train(policy, graded, replace(GRPO, kl=None), settings),
            "GRPO, learned reward": train(policy, graded, GRPO, settings, reward_model=judge),
        }
        for critic in get_args(Critic):
            own = replace(settings, critic=critic)
            runs[f"PPO, {critic} critic"] = train(policy, graded, PPO, own)
            runs[f"PPO, {critic} critic, learned reward"] = train(policy, graded, PPO, own, reward_model=judge)
        pairs = _pairs_like(first, policy, task)
        of_pairs = PairSettings(batch_size=len(pairs), lr=STILL, seed=seed)
        runs["DPO"] = train(policy, task, DPO, of_pairs, pairs=pairs)
        memory = {name: _memory(run) for name, run in runs.items()}
        rounds = [{name: _seconds(run, updates_per_rollout) for name, run in runs.items()} for _ in range(repeats)]
    costs = []
    for name in runs:
        rollout, update, step = (median(seconds) for seconds in zip(*(turn[name] for turn in rounds), strict=True))
        to_grpo = median(turn[name][-1] / turn["GRPO"][-1] for turn in rounds)
        responses, tokens = num_prompts * group_size, first.samples.tokens.numel()
        costs.append(Cost(name, *memory[name], responses, tokens, rollout, update, step, to_grpo))
    return costs


@checked
def cost_table(costs: Sequence[Cost]) -> pd.DataFrame:
    """Return a row a setting, its models together: bytes, and the seconds of `Cost`. bytes_to_grpo: over the first row's."""
    import pandas as pd

    return pd.DataFrame(
        {"name": cost.name, "models": ", ".join(model.role for model in cost.models)}
        | {name: sum(getattr(model, name) for model in cost.models) for name in HELD}
        | {"activations": cost.activations, "bytes": cost.bytes, "bytes_to_grpo": cost.bytes / costs[0].bytes}
        | {name: getattr(cost, name) for name in TIMES}
        for cost in costs
    )


def peak_bytes(work: Callable[[], object], held: Iterable[Tensor], device: torch.device) -> int:
    """Return the most bytes that are alive at once while work() runs: `held`, which is there before, and what it makes.

    On a GPU as the allocator counts them. On a CPU every tensor's storage is followed from the operation that makes it to its
    end; what an operation takes and gives back inside itself is not seen (below 1 % of an update, by the allocator's own events).
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        others = torch.cuda.memory_allocated(device) - _bytes(held)
        work()
        return torch.cuda.max_memory_allocated(device) - others
    living = _Living()
    living.add_all(held)
    with living:
        work()
    return living.peak


class _Living(TorchDispatchMode):
    """Follows storages: `now`, bytes alive; `peak`, the most at once. What was there before and was not added has no size."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._followed: dict[int, weakref.ref[Any]] = {}

    def add(self, tensor: Tensor, *, counted: bool) -> None:
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes() if counted else 0
        if place in self._followed:
            return

        def gone(_: object) -> None:
            del self._followed[place]
            self.now -= size

        self._followed[place] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)

    def add_all(self, values: Any, *, counted: bool = True) -> None:
        for value in values:
            if isinstance(value, Tensor):
                self.add(value, counted=counted)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.add_all(tree_leaves((args, kwargs)), counted=False)
        result = func(*args, **(kwargs or {}))
        self.add_all(tree_leaves(result))
        return result


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def _gradients(weights: Iterable[nn.Parameter]) -> Iterator[Tensor]:
    return (weight.grad for weight in weights if weight.grad is not None)


def _state(weights: Iterable[nn.Parameter], optimizers: Iterable[AdamW]) -> Iterator[Tensor]:
    return (tensor for weight in weights for o in optimizers for tensor in o.state.get(weight, {}).values())


def held_tensors(run: TrainingRun[Any]) -> list[Tensor]:
    """Return the weights of the models in play, their gradients, and what the optimizers keep for them."""
    weights = [weight for model in run.models.values() for weight in model.parameters()]
    return [*weights, *_gradients(weights), *_state(weights, run.state.optimizers)]


def _memory(run: TrainingRun[Any]) -> tuple[tuple[ModelCost, ...], int]:
    """Return the models in play after a first step, and what the peak of the second one's update has on top of them.

    That update is taken twice and measured the second time: at first it may begin with a forward that the rollout made.
    """
    run.update(run.collect())
    costs = tuple(ModelCost.of(role, model, run.state.optimizers) for role, model in run.models.items())
    collected = run.collect()
    run.update(collected)
    peak = peak_bytes(lambda: run.update(collected), held_tensors(run), run.policy.device)
    return costs, peak - sum(cost.weights + cost.gradients + cost.optimizer_state for cost in costs)


def _seconds(run: TrainingRun[Any], updates_per_rollout: int) -> tuple[float, float, float]:
    """Return the seconds of a rollout, of one update, and of both together with all the updates of a step."""
    begin = _now(run)
    collected = run.collect()
    between = _now(run)
    run.update(collected)
    collecting, updating = between - begin, _now(run) - between
    if not isinstance(collected, Rollout):  # pairs were there before, and make one update at a time
        return 0.0, updating, updates_per_rollout * updating
    return collecting, updating / updates_per_rollout, collecting + updating


def _now(run: TrainingRun[Any]) -> float:
    if run.policy.device.type == "cuda":
        torch.cuda.synchronize(run.policy.device)
    return time.perf_counter()


def own_copy(policy: Policy) -> Policy:
    """Return a copy with weights of its own, which a measurement may train."""
    return Policy(copy.deepcopy(policy.weights), policy.vocabulary, policy.source)


def every_second_is_right(task: Task) -> Task:
    """Return a copy of the task that grades every second response as right, so that every group has both."""
    graded, turn = copy.copy(task), cycle((True, False))
    graded.grade = lambda prompt, response: Grade(format=True, correct=next(turn))  # type: ignore[method-assign]
    return graded


def _pairs_like(rollout: Rollout, policy: Policy, task: Task) -> list[Pair]:
    """Return half as many pairs as the rollout has responses, on its prompts, each text as long as its longest response."""
    _, group_size, length = rollout.samples.tokens.shape
    some = [token for ids in encode(policy.vocabulary, task.train_prompts[:length]) for token in ids]
    endless = list(islice(cycle(some), 3 * length))
    windows = [policy.vocabulary.decode(endless[at : at + length - 1]) for at in range(2 * length)]
    chosen = windows[0]
    rejected = next((window for window in windows if window != chosen), chosen)
    return [Pair(prompt, chosen, rejected) for prompt in rollout.sampled.prompts for _ in range(group_size // 2)]
