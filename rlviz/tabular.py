"""A whole training run in a fraction of a second: the policy is a table of logits, the loss is the algorithm's own.

A response is one action at each of T positions; it is right when it is right at every position. Replicas are independent
runs side by side in one tensor. Updates are plain gradient ascent on the logits, so a learning rate means what it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from reprlib import repr  # of what may be long

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.slots import CALLS
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import is_clipped
from rlviz.pieces.values import entropy
from rlviz.types import Batch, TokenObjective
from small_models.checks import check_at_least, check_number, check_seed
from small_models.memory import check_fits

Array = NDArray[np.float64]
SURROGATE_MAY_ASK = CALLS["surrogate"][1]
COLDEST = 1e-6  # below it, a step's length, lr / temperature², leaves the numbers that a computer has
MOST_UNREAD = 500_000  # tokens whose clipping is not counted yet


def _are_numbers(values: object) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, Real) for value in values)


@dataclass(frozen=True)
class TableTask:
    """What there is to learn. success: the probability that each action is right, 0 to 1.

    prompts, positions: rows of the table. start: the actions' probabilities before training, uniform if None.
    Raises ValueError for probabilities outside [0, 1], a start that does not add up to 1, or fewer than two actions.
    """

    success: tuple[float, ...]
    prompts: int = 1
    positions: int = 1
    start: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not _are_numbers(self.success) or len(self.success) < 2 or not all(0 <= p <= 1 for p in self.success):
            raise ValueError(f"success must be two or more probabilities from 0 to 1; got {repr(self.success)}")
        check_at_least(1, prompts=self.prompts, positions=self.positions)
        if self.start is not None and (
            not _are_numbers(self.start)
            or len(self.start) != len(self.success)
            or not all(0 < p < 1 for p in self.start)
            or not math.isclose(sum(self.start), 1, abs_tol=1e-6)
        ):
            raise ValueError(
                f"start must be {len(self.success)} probabilities above 0 that add up to 1; got {repr(self.start)}"
            )


def good_actions(good: int = 3, actions: int = 20, *, positions: int = 1, prompts: int = 1) -> TableTask:
    """Return a task in which the first `good` of `actions` are right, and a response must be right at every position."""
    if not 0 < good < actions:
        raise ValueError(
            f"good must be from 1 to {actions - 1}, so that something is right and something wrong; got {good}"
        )
    return TableTask((1.0,) * good + (0.0,) * (actions - good), prompts, positions)


def rare_good_action(start: float = 0.008, *, right: float = 0.9, otherwise: float = 0.1) -> TableTask:
    """Return a task of two actions: a common one, seldom right, and a rare one that is usually right."""
    if not 0 < start < 1:
        raise ValueError(f"start must be above 0 and below 1; got {start}")
    return TableTask((otherwise, right), start=(1 - start, start))


def random_reward(actions: int = 20, *, positions: int = 1) -> TableTask:
    """Return a task without anything to learn: every response is right with probability ½."""
    return TableTask((0.5 ** (1 / positions),) * actions, positions=positions)


@dataclass(frozen=True)
class TableRun:
    """What happened, replica by replica. R replicas, S steps.

    entropy, accuracy: [R, S + 1], before training and after each step; entropy in nats, mean over prompts and positions;
    accuracy is exact, no sample. reward, clip_low, clip_high, clip_dual: [R, S]; clip fractions are shares of the tokens of
    the step's updates. probabilities: [R, S + 1, prompts, positions, actions].
    """

    entropy: Array
    accuracy: Array
    reward: Array
    clip_low: Array
    clip_high: Array
    clip_dual: Array
    probabilities: Array

    def entropy_at_accuracy(self, level: float) -> Array:
        """Return each replica's entropy after the first step with accuracy ≥ level, NaN where that never came: [R]."""
        reached = self.accuracy >= level
        first = reached.argmax(1)
        entropies = self.entropy[np.arange(len(first)), first]
        return np.where(reached.any(1), entropies, np.nan)

    def steps_to_accuracy(self, level: float) -> Array:
        """Return each replica's number of steps until accuracy ≥ level, NaN where that never came: [R]."""
        reached = self.accuracy >= level
        return np.where(reached.any(1), reached.argmax(1), np.nan)


def train_table(
    algorithm: GroupPolicyGradient,
    task: TableTask | None = None,
    *,
    steps: int = 300,
    group_size: int = 8,
    groups: int = 1,
    updates_per_rollout: int = 4,
    minibatches: int = 1,
    lr: float = 0.5,
    temperature: float = 1.0,
    entropy_weight: float = 0.0,
    replicas: int = 1,
    seed: int = 0,
) -> TableRun:
    """Train a softmax table and return every step. The default task is 3 good actions of 20.

    groups: groups sampled for each prompt in a step, as if several prompts shared a row of the table (each has a history of its
    own); group_size: responses in each. Pieces other than advantage and select must treat responses one by one, for the loss
    sees those of all replicas together. updates_per_rollout, minibatches, temperature: as in `TrainSettings`; entropy_weight:
    coefficient of the entropy bonus. The reference of a KL term is the table before training. The same seed gives the same
    run. Raises ValueError for a value out of its range or of another type.
    """
    task = good_actions() if task is None else task
    _check(
        algorithm,
        task,
        group_size=group_size,
        counts={
            "steps": steps,
            "groups": groups,
            "updates_per_rollout": updates_per_rollout,
            "minibatches": minibatches,
            "replicas": replicas,
        },
        lr=lr,
        temperature=temperature,
        entropy_weight=entropy_weight,
        seed=seed,
    )
    if updates_per_rollout % minibatches:
        raise ValueError(
            f"updates_per_rollout must be a multiple of minibatches ({minibatches}); got {updates_per_rollout}"
        )
    responses = task.prompts * groups * group_size
    if minibatches > responses:
        raise ValueError(f"minibatches must be at most prompts × groups × group_size = {responses}; got {minibatches}")
    _check_fits(task, replicas=replicas, responses=responses, steps=steps)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # these tensors are small, and on a busy machine a second thread waits more than it works
    try:
        return _run(
            _Table(algorithm, task, groups, group_size, temperature, float(entropy_weight), replicas, seed),
            steps,
            updates_per_rollout,
            minibatches,
            lr,
        )
    finally:
        torch.set_num_threads(threads)


def _run(table: _Table, steps: int, updates_per_rollout: int, minibatches: int, lr: float) -> TableRun:
    log_probs, rewards = [table.log_probs], []
    for _ in range(steps):
        rollout = table.roll_out()
        table.update(rollout, updates_per_rollout, minibatches, lr)
        rewards.append(rollout.rewards.mean((1, 2)))
        log_probs.append(table.log_probs)
    every_log = torch.stack(log_probs, 1)
    every = every_log.exp()
    right = (every * table.success).sum(-1).prod(-1).mean(-1)
    low, high, dual = table.clip_fractions()
    return TableRun(
        entropy=entropy(every_log).mean((-1, -2)).numpy(),
        accuracy=right.numpy(),
        reward=torch.stack(rewards, -1).numpy(),
        clip_low=low.numpy(),
        clip_high=high.numpy(),
        clip_dual=dual.numpy(),
        probabilities=every.numpy(),
    )


def _check(
    algorithm: GroupPolicyGradient,
    task: TableTask,
    group_size: int,
    counts: dict[str, int],
    lr: float,
    temperature: float,
    entropy_weight: float,
    seed: int,
) -> None:
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(
            f"algorithm must learn from groups of responses, as GRPO does; got {getattr(algorithm, 'name', repr(algorithm))}"
        )
    if not isinstance(task, TableTask):
        raise ValueError(f"task must be a TableTask, such as good_actions(3, 20); got {repr(task)}")
    if algorithm.asks_for("advantage", "step_ends"):
        raise ValueError(f"algorithm: {algorithm.name} needs rewards of single steps, which a table does not give")
    check_at_least(1, **counts)
    check_seed(seed)
    check_number("lr", lr, lambda number: number > 0, "above 0")
    check_number("temperature", temperature, lambda number: number >= COLDEST, f"at least {COLDEST:g}")
    least = algorithm.min_group_size
    check_number("group_size", group_size, lambda n: n >= least, f"at least {least} for {algorithm.name}", whole=True)
    check_number("entropy_weight", entropy_weight, lambda number: number >= 0, "0 or above")


def _check_fits(task: TableTask, *, replicas: int, responses: int, steps: int) -> None:
    """Raise ValueError where a step's log-probabilities, or the tables of all steps, cannot be in memory."""
    tokens = replicas * responses * task.positions
    tables = (steps + 1) * replicas * task.prompts * task.positions * len(task.success)
    what = f"{tokens:,} tokens a step and {tables:,} probabilities, those of all steps,"
    check_fits((tokens + tables) * 8, torch.device("cpu"), what, "lower steps, group_size, groups or replicas")


@dataclass(frozen=True)
class _Rollout:
    """What the updates of a step are given: N responses a replica, some of them empty places where `mask` is false.

    rewards: [R, P, G], all that were sampled. index: where each token's log-probability stands in a table read row by row.
    index, mask, old_logp, advantages, ref_logp: [R, N, T].
    """

    rewards: Tensor
    index: Tensor
    mask: Tensor
    old_logp: Tensor
    advantages: Tensor
    ref_logp: Tensor


@dataclass(frozen=True)
class _Part:
    """Responses of one update as the loss takes them: weights and batch [R · n, 1, T]; index [R, n · T], mask [R, n, T]."""

    index: Tensor
    mask: Tensor
    weights: Tensor
    batch: Batch


class _Table:
    """R tables of logits over temperature, [R, prompts, positions, actions], and what a run on them carries along."""

    def __init__(
        self,
        algorithm: GroupPolicyGradient,
        task: TableTask,
        groups: int,
        group_size: int,
        temperature: float,
        entropy_weight: float,
        replicas: int,
        seed: int,
    ) -> None:
        self.algorithm, self.task = algorithm, task
        self.groups, self.group_size = groups, group_size
        self.temperature, self.entropy_weight, self.replicas = temperature, entropy_weight, replicas
        self.generator = torch.Generator().manual_seed(int(seed))
        self.success = torch.tensor(task.success, dtype=torch.double)
        start = (
            torch.zeros_like(self.success) if task.start is None else torch.tensor(task.start, dtype=torch.double).log()
        )
        shape = (replicas, task.prompts, task.positions, len(task.success))
        self.scaled = start.expand(shape).clone()  # logits / temperature: one division less at every update
        self.log_probs = torch.log_softmax(self.scaled, -1)
        self.reference = self.log_probs
        rows = torch.arange(task.prompts * task.positions) * len(task.success)
        self.first_of_row = rows.view(task.prompts, task.positions, 1)
        self.history = None
        if algorithm.asks_for("advantage", "history"):
            self.history = PromptHistory.empty(replicas * task.prompts * groups)
        self.groups_apart, self.can_batch_replicas = self._how_groups_are_judged()
        self.can_batch_replicas &= self.history is None
        self.can_skip = algorithm.ignores_zero_advantages() and not entropy_weight
        self.surrogate_is_plain = not any(algorithm.asks_for("surrogate", name) for name in SURROGATE_MAY_ASK)
        self.weights: dict[int, Tensor] = {}
        self.step = 0
        self.unread: list[tuple[int, _Part, TokenObjective]] = []
        self.cut: dict[int, Tensor] = {}

    def _at(self, table: Tensor, index: Tensor) -> Tensor:
        return table.flatten(1).gather(1, index.flatten(1)).view(index.shape)

    def roll_out(self) -> _Rollout:
        cdf = self.log_probs.exp().cumsum(-1)
        shape = (*cdf.shape[:-1], self.groups * self.group_size)
        draws = torch.rand(shape, generator=self.generator, dtype=torch.double) * cdf[..., -1:]
        actions = torch.searchsorted(cdf, draws).clamp(max=cdf.shape[-1] - 1)
        right = self.success[actions].prod(2).flatten(1)
        rewards = (torch.rand(right.shape, generator=self.generator, dtype=torch.double) < right).double()
        rewards = rewards.unflatten(1, (-1, self.group_size))
        index = (actions + self.first_of_row).transpose(2, 3).flatten(1, 2)
        old_logp, ref_logp = self._at(self.log_probs, index), self._at(self.reference, index)
        advantages = self._advantages(rewards, old_logp, ref_logp)
        mask = torch.ones_like(index, dtype=torch.bool)
        if self.algorithm.select is keep_all:
            return _Rollout(rewards, index, mask, old_logp, advantages, ref_logp)
        rows = self._select(rewards)
        taken = rows.clamp(min=0).unsqueeze(-1).expand(-1, -1, self.task.positions)
        index, mask, old_logp, advantages, ref_logp = (
            values.gather(1, taken) for values in (index, mask, old_logp, advantages, ref_logp)
        )
        there = (rows >= 0).unsqueeze(-1)
        return _Rollout(rewards, index, mask & there, old_logp, advantages * there, ref_logp)

    def _shaped(self, rewards: Tensor) -> Tensor:
        """Return [P, G] rewards after shaping; every response has T tokens, ends by itself and is well formed."""
        if self.algorithm.shape is None:
            return rewards
        lengths = torch.full(rewards.shape, self.task.positions)
        nothing = torch.zeros(rewards.shape, dtype=torch.bool)
        everything = torch.ones_like(rewards)
        return self.algorithm.shaped(rewards, lengths, truncated=nothing, correct=rewards, well_formed=everything)

    def _judge(
        self, rewards: Tensor, old_logp: Tensor, ref_logp: Tensor, history: PromptHistory | None = None
    ) -> tuple[Tensor, PromptHistory | None]:
        """Return advantages [P, G, T] of rewards [P, G] and log-probabilities [P, G, T], and the history after them."""
        mask = torch.ones(old_logp.shape, dtype=torch.bool)
        shaped = self._shaped(rewards)
        return self.algorithm.advantages(shaped, mask, old_logp=old_logp, ref_logp=ref_logp, history=history)

    def _judge_apart(self, rewards: Tensor, old_logp: Tensor, ref_logp: Tensor) -> Tensor:
        """Return the advantages [R, P, G, T] of rewards [R, P, G], no r seeing another's."""
        return torch.vmap(lambda *of_one: self._judge(*of_one)[0])(rewards, old_logp, ref_logp)

    def _advantages(self, rewards: Tensor, old_logp: Tensor, ref_logp: Tensor) -> Tensor:
        """Return advantages [R, responses, T]; no replica sees the rewards of another."""
        old_logp, ref_logp = (values.unflatten(1, rewards.shape[1:]) for values in (old_logp, ref_logp))
        if not self.groups_apart and self.can_batch_replicas:
            return self._judge_apart(rewards, old_logp, ref_logp).flatten(1, 2)
        parts = [slice(0, self.replicas)] if self.groups_apart else [slice(r, r + 1) for r in range(self.replicas)]
        judged = []
        for part in parts:
            own = [values[part].flatten(0, 1) for values in (rewards, old_logp, ref_logp)]
            places = torch.arange(part.start * rewards.shape[1], part.stop * rewards.shape[1])
            before = None if self.history is None else self.history.take(places)
            advantages, after = self._judge(own[0], own[1], own[2], before)
            judged.append(advantages)
            if self.history is not None and after is not None:
                self.history = self.history.put(places, after)
        return torch.cat(judged).view(self.replicas, -1, self.task.positions)

    def _how_groups_are_judged(self) -> tuple[bool, bool]:
        """Return whether a group's advantages stay the same whatever other groups are in the batch, and whether vmap can
        run the piece, which a branch on a tensor's value forbids; both asked of the piece with a batch made up."""
        probe = torch.Generator().manual_seed(0)
        shape = (3, self.group_size, self.task.positions)
        rewards = torch.randint(0, 2, shape[:2], generator=probe).double()
        old_logp, ref_logp = (-torch.rand(shape, generator=probe, dtype=torch.double) for _ in range(2))
        together = self._judge(rewards, old_logp, ref_logp)[0]
        one_by_one = [values.unsqueeze(1) for values in (rewards, old_logp, ref_logp)]
        alone = torch.stack([self._judge(*own)[0] for own in zip(*one_by_one, strict=True)])
        apart = torch.allclose(together, alone.squeeze(1), rtol=1e-9, atol=1e-12)
        try:
            batched = self._judge_apart(one_by_one[0], one_by_one[1], one_by_one[2])
            return apart, torch.allclose(batched, alone, rtol=1e-9, atol=1e-12)
        except RuntimeError:
            return apart, False

    def _select(self, rewards: Tensor) -> Tensor:
        """Return the responses to train on, [R, N] indices into P · G, −1 on places that a replica leaves empty."""
        within = torch.arange(self.group_size)
        selected = [
            (self.algorithm.selected(own, self.generator).unsqueeze(1) * self.group_size + within).flatten()
            for own in rewards
        ]
        return torch.nn.utils.rnn.pad_sequence(selected, batch_first=True, padding_value=-1)

    def update(self, rollout: _Rollout, updates: int, minibatches: int, lr: float) -> None:
        """Take the step's updates."""
        self.step += 1
        count = rollout.index.shape[1]
        if not count or (self.can_skip and not rollout.advantages.any()):
            return
        parts: list[_Part] = []
        for _ in range(updates):
            if not parts:
                if minibatches == 1:
                    parts = [self._part(rollout)] * updates
                else:
                    order = torch.randperm(count, generator=self.generator).tensor_split(minibatches)
                    parts = [self._part(rollout, places) for places in order]
            part = parts.pop()
            self.unread.append((self.step, part, self._climb(part, lr)))
        if len(self.unread) * rollout.index.numel() > MOST_UNREAD:
            self._read_clipping()

    def _part(self, rollout: _Rollout, places: Tensor | None = None) -> _Part:
        """Return the responses at these places, all by default, as the loss takes them."""
        columns = list(vars(rollout).values())[1:]
        if places is not None:
            columns = [values[:, places] for values in columns]
        index, mask, old_logp, advantages, ref_logp = columns
        if self.algorithm.select is not keep_all and places is not None:  # each replica's empty places to the end
            first = mask.int().argsort(dim=1, descending=True, stable=True)
            index, mask, old_logp, advantages, ref_logp = (values.gather(1, first) for values in columns)
        as_rows = (-1, 1, self.task.positions)  # the loss sees responses as groups of one, as in training
        batch = Batch(
            old_logp.reshape(as_rows),
            advantages.reshape(as_rows),
            mask.reshape(as_rows),
            ref_logp.reshape(as_rows),
        )
        return _Part(index.flatten(1), mask, self._weights(mask), batch)

    def _climb(self, part: _Part, lr: float) -> TokenObjective:
        """Ascend the objective of these responses once, each replica in its own table."""
        logp = self.log_probs.flatten(1).gather(1, part.index).view(part.batch.mask.shape).requires_grad_()
        objective = self.algorithm.objective(logp, part.batch)
        # the gradient of Σ weights · J: weights are 0 on empty places
        (by_logp,) = torch.autograd.grad(objective.value, logp, part.weights)
        # ∂ log softmax(z)_a / ∂z = one-hot(a) − softmax(z): written out, because autograd takes longer than the rest
        by_log_probs = torch.zeros(part.index.shape[0], self.scaled[0].numel(), dtype=torch.double)
        by_log_probs = by_log_probs.scatter_add_(1, part.index, by_logp.view(part.index.shape)).view_as(self.scaled)
        gradient = torch.addcmul(by_log_probs, self.log_probs.exp(), by_log_probs.sum(-1, keepdim=True), value=-1)
        if self.entropy_weight:
            gradient = gradient + self.entropy_weight * self._entropy_gradient(part)
        self.scaled = torch.add(self.scaled, gradient, alpha=lr / self.temperature**2)
        self.log_probs = torch.log_softmax(self.scaled, -1)
        return objective

    def _entropy_gradient(self, part: _Part) -> Tensor:
        """Return the gradient of Σ weights · H, H being the entropy of the distribution that a token was drawn from."""
        scaled = self.scaled.clone().requires_grad_()
        of_rows = entropy(torch.log_softmax(scaled, -1)).flatten(1)
        bonus = of_rows.gather(1, part.index // self.scaled.shape[-1]) * part.weights.view(part.index.shape)
        return torch.autograd.grad(bonus.sum(), scaled)[0]

    def _weights(self, mask: Tensor) -> Tensor:
        """Return the weight of each token, [R · n, 1, T]: each replica's are computed on its own responses, mask [R, n, T]."""
        places = mask.shape[1]
        if not places:
            return self.algorithm.aggregate(mask.new_zeros(0, 1, mask.shape[2]))
        if places not in self.weights:  # of the first 0, 1, … `places` responses
            filled = torch.ones(places, places).tril().bool()
            some = [self.algorithm.aggregate(m.view(-1, 1, 1).expand(-1, 1, mask.shape[2])) for m in filled]
            self.weights[places] = torch.stack([torch.zeros_like(some[0]), *some])
        return self.weights[places][mask[..., 0].sum(1)].flatten(0, 1)

    def clip_fractions(self) -> Tensor:
        """Return the shares of the tokens of each step's updates that were clipped low, high and dual, [3, R, S]."""
        self._read_clipping()
        empty = torch.zeros(4, self.replicas, dtype=torch.double)
        cut = torch.stack([self.cut.get(step, empty) for step in range(1, self.step + 1)], -1)
        return cut[:3] / cut[3].clamp(min=1)

    def _read_clipping(self) -> None:
        """Count what was clipped in the updates since the last reading; many at once, which takes a tenth of the time."""
        if not self.unread:
            return
        shape = (self.replicas, -1, self.task.positions)
        objectives = [objective for _, _, objective in self.unread]
        sides: tuple[Tensor, ...]
        if self.surrogate_is_plain:
            columns = zip(*((o.ratio.detach(), o.advantages, o.lower, o.upper) for o in objectives), strict=True)
            sides = is_clipped(objectives[0].surrogate, *(torch.cat([v.view(shape) for v in c], 1) for c in columns))
        else:
            each = [is_clipped(o.surrogate, o.ratio, o.advantages, o.lower, o.upper) for o in objectives]
            sides = tuple(torch.cat([c.view(shape) for c in side], 1) for side in zip(*each, strict=True))
        masks = [part.mask for _, part, _ in self.unread]
        seen = torch.cat(masks, 1)
        counted = torch.stack([*(side & seen for side in sides), seen]).sum(-1, dtype=torch.double)  # [4, R, responses]
        for (step, _, _), part in zip(self.unread, counted.split([m.shape[1] for m in masks], -1), strict=True):
            self.cut[step] = self.cut.get(step, 0) + part.sum(-1)
        self.unread = []
