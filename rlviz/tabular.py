"""A whole training run in a fraction of a second: the policy is a table of logits, the loss is the algorithm's own.

A response is one action at each of T positions; it is right when it is right at every position. Replicas are independent
runs side by side in one tensor. Updates are plain gradient ascent on the logits, so a learning rate means what it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from reprlib import repr  # of what may be long
from typing import Any

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


def _check_probabilities(name: str, values: object, count: int) -> None:
    """Raise ValueError, naming the argument, unless the values are probabilities of so many actions."""
    of_numbers: Any = values if _are_numbers(values) else ()
    if (
        len(of_numbers) != count
        or not all(0 < p < 1 for p in of_numbers)
        or not math.isclose(sum(of_numbers), 1, abs_tol=1e-6)
    ):
        raise ValueError(f"{name} must be {count} probabilities above 0 that add up to 1; got {repr(values)}")


@dataclass(frozen=True)
class TableTask:
    """What there is to learn. success: the probability that each action is right, 0 to 1.

    prompts, positions: rows of the table. start: the actions' probabilities before training, uniform if None; or for each prompt
    its own, so that some prompts are harder than others.
    Raises ValueError for probabilities outside [0, 1], a start that does not add up to 1, or fewer than two actions.
    """

    success: tuple[float, ...]
    prompts: int = 1
    positions: int = 1
    start: tuple[float, ...] | tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if not _are_numbers(self.success) or len(self.success) < 2 or not all(0 <= p <= 1 for p in self.success):
            raise ValueError(f"success must be two or more probabilities from 0 to 1; got {repr(self.success)}")
        check_at_least(1, prompts=self.prompts, positions=self.positions)
        for start in self.starts:
            _check_probabilities("start", start, len(self.success))
        if len(self.starts) not in (1, self.prompts):
            raise ValueError(f"start must be one, or one for each of {self.prompts} prompts; got {len(self.starts)}")

    @property
    def starts(self) -> tuple[tuple[float, ...], ...]:
        """The actions' probabilities before training, of all prompts or of each."""
        if self.start is None:
            return ((1 / len(self.success),) * len(self.success),)
        own = isinstance(self.start, Sequence) and any(isinstance(row, list | tuple) for row in self.start)
        return self.start if own else (self.start,)  # type: ignore[return-value]


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
        """Return each replica's entropy where its accuracy first is `level`, see `at_accuracy`: [R]."""
        return at_accuracy(self.entropy, self.accuracy, level)

    def steps_to_accuracy(self, level: float) -> Array:
        """Return each replica's number of steps until accuracy ≥ level, NaN where that never came: [R]."""
        return steps_to(self.accuracy, level)


def steps_to(accuracy: Array, level: float) -> Array:
    """Return each replica's number of steps until accuracy, [R, S + 1], is at least `level`, NaN where that never came: [R]."""
    reached = accuracy >= level
    return np.where(reached.any(1), reached.argmax(1), np.nan)


def at_accuracy(values: Array, accuracy: Array, level: float) -> Array:
    """Return each replica's value where its accuracy first is `level`, on the straight line between two steps: [R] of [R, S + 1].

    Without the line a faster learner is read further beyond the level, where entropy is lower, and passes for a greedier one.
    NaN where the level is never reached; the value before training where accuracy begins above it.
    """
    first = steps_to(accuracy, level)
    after = np.where(np.isfinite(first), first, 0).astype(int)
    before, rows = np.maximum(after - 1, 0), np.arange(len(after))
    low, high = accuracy[rows, before], accuracy[rows, after]
    share = np.where(high > low, (level - low) / np.where(high > low, high - low, 1), 0)
    there = values[rows, before] + share * (values[rows, after] - values[rows, before])
    return np.where(np.isfinite(first), there, np.nan)


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
    reference: Sequence[float] | None = None,
    replicas: int = 1,
    seed: int = 0,
) -> TableRun:
    """Train a softmax table and return every step. The default task is 3 good actions of 20.

    groups: groups sampled for each prompt in a step, as if several prompts shared a row of the table (each has a history of its
    own); group_size: responses in each. Pieces other than advantage and select must treat responses one by one, for the loss
    sees those of all replicas together. updates_per_rollout, minibatches, temperature: as in `TrainSettings`; entropy_weight:
    coefficient of the entropy bonus. reference: the actions' probabilities under the reference of a KL term, or under a teacher;
    None: the table before training. The same seed gives the same run. Raises ValueError for a value out of its range or of
    another type.
    """
    setup = _Setup(
        algorithm,
        good_actions() if task is None else task,
        steps,
        group_size,
        groups,
        updates_per_rollout,
        minibatches,
        lr,
        temperature,
        entropy_weight,
        reference,
        replicas,
        seed,
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # these tensors are small, and on a busy machine a second thread waits more than it works
    try:
        return _run(setup)
    finally:
        torch.set_num_threads(threads)


def _run(setup: _Setup) -> TableRun:
    table, judge, clipping = _Table(setup), _Judge(setup), _Clipping(setup)
    reference, log_probs, rewards = table.log_probs, [table.log_probs], []
    if setup.reference is not None:
        reference = torch.tensor(setup.reference, dtype=torch.double).log().expand_as(table.log_probs)
    for step in range(setup.steps):
        index, earned = table.sample()
        old_logp, ref_logp = _at(table.log_probs, index), _at(reference, index)
        drawn_from = [table.entropy_at(index)] if judge.asks_for_entropy else []
        advantages = judge(earned, old_logp, ref_logp, *drawn_from)
        everywhere = torch.ones_like(index, dtype=torch.bool)
        responses = table.selected(_Responses(index, everywhere, old_logp, advantages, ref_logp), earned)
        for part in table.minibatches(responses):
            clipping.add(step, part, table.climb(part))
        rewards.append(earned.mean((1, 2)))
        log_probs.append(table.log_probs)
    every_log = torch.stack(log_probs, 1)
    every = every_log.exp()
    low, high, dual = clipping.fractions()
    return TableRun(
        entropy=entropy(every_log).mean((-1, -2)).numpy(),
        accuracy=(every * table.success).sum(-1).prod(-1).mean(-1).numpy(),
        reward=torch.stack(rewards, -1).numpy(),
        clip_low=low.numpy(),
        clip_high=high.numpy(),
        clip_dual=dual.numpy(),
        probabilities=every.numpy(),
    )


@dataclass(frozen=True)
class _Setup:
    """The arguments of `train_table`, each in its range."""

    algorithm: GroupPolicyGradient
    task: TableTask
    steps: int
    group_size: int
    groups: int
    updates_per_rollout: int
    minibatches: int
    lr: float
    temperature: float
    entropy_weight: float
    reference: Sequence[float] | None
    replicas: int
    seed: int

    def __post_init__(self) -> None:
        algorithm, task = self.algorithm, self.task
        if not isinstance(algorithm, GroupPolicyGradient):
            said = getattr(algorithm, "name", repr(algorithm))
            raise ValueError(f"algorithm must learn from groups of responses, as GRPO does; got {said}")
        if not isinstance(task, TableTask):
            raise ValueError(f"task must be a TableTask, such as good_actions(3, 20); got {repr(task)}")
        if algorithm.asks_for("advantage", "step_ends"):
            raise ValueError(f"algorithm: {algorithm.name} needs rewards of single steps, which a table does not give")
        if self.reference is not None:
            _check_probabilities("reference", self.reference, len(task.success))
        elif algorithm.can.from_teacher:
            raise ValueError(
                f"reference must be a teacher's probabilities of the actions for {algorithm.name}; got None"
            )
        counts = ("steps", "groups", "updates_per_rollout", "minibatches", "replicas")
        check_at_least(1, **{name: getattr(self, name) for name in counts})
        check_seed(self.seed)
        check_number("lr", self.lr, lambda number: number > 0, "above 0")
        check_number("temperature", self.temperature, lambda number: number >= COLDEST, f"at least {COLDEST:g}")
        least = algorithm.min_group_size
        said = f"at least {least} for {algorithm.name}"
        check_number("group_size", self.group_size, lambda number: number >= least, said, integer=True)
        check_number("entropy_weight", self.entropy_weight, lambda number: number >= 0, "0 or above")
        if self.updates_per_rollout % self.minibatches:
            raise ValueError(
                f"updates_per_rollout must be a multiple of minibatches ({self.minibatches}); got {self.updates_per_rollout}"
            )
        responses = task.prompts * self.groups * self.group_size
        if self.minibatches > responses:
            raise ValueError(
                f"minibatches must be at most prompts × groups × group_size = {responses}; got {self.minibatches}"
            )
        tokens = self.replicas * responses * task.positions
        tables = (self.steps + 1) * self.replicas * task.prompts * task.positions * len(task.success)
        what = f"{tokens:,} tokens a step and {tables:,} probabilities, those of all steps,"
        check_fits((tokens + tables) * 8, torch.device("cpu"), what, "lower steps, group_size, groups or replicas")


@dataclass(frozen=True)
class _Responses:
    """N responses a replica, some of them empty places where `mask` is false; all [R, N, T].

    index: where each token's log-probability stands in a table that is read row by row.
    """

    index: Tensor
    mask: Tensor
    old_logp: Tensor
    advantages: Tensor
    ref_logp: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> _Responses:
        """Return the responses with every tensor changed in the same way."""
        return _Responses(*map(change, vars(self).values()))

    def batch(self, weights: Tensor, chosen: Tensor | None) -> Batch:
        """Return them as the loss sees them, and in training too: as groups of one, [R · N, 1, T]."""
        rows = self.each(lambda values: values.reshape(-1, 1, values.shape[-1]))
        shape = rows.mask.shape
        chosen = None if chosen is None else chosen.reshape(shape)
        return Batch(rows.old_logp, rows.advantages, rows.mask, rows.ref_logp, weights.reshape(shape), chosen=chosen)


def _at(table: Tensor, index: Tensor) -> Tensor:
    """Return the entries of R tables at these places, [R, N, T]."""
    return table.flatten(1).gather(1, index.flatten(1)).view(index.shape)


class _Table:
    """R policies: tables of logits [R, prompts, positions, actions], each a softmax over actions in every row.

    scaled: logits over temperature. log_probs: logarithms of the probabilities that they make.
    """

    def __init__(self, setup: _Setup) -> None:
        self.setup, self.algorithm, task = setup, setup.algorithm, setup.task
        self.generator = torch.Generator().manual_seed(int(setup.seed))
        self.success = torch.tensor(task.success, dtype=torch.double)
        start = torch.tensor(task.starts, dtype=torch.double).log().unsqueeze(1)  # of each position
        if task.start is None:
            start = torch.zeros_like(start)
        self.scaled = start.expand(setup.replicas, task.prompts, task.positions, len(task.success)).clone()
        self.log_probs = torch.log_softmax(self.scaled, -1)
        rows = torch.arange(task.prompts * task.positions) * len(task.success)
        self.first_of_row = rows.view(task.prompts, task.positions, 1)
        self.can_skip = self.algorithm.ignores_zero_advantages() and not setup.entropy_weight
        self.weights: dict[int, Tensor] = {}

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return the tokens of a step, as `index` of `_Responses`, and the rewards of their responses, [R, P, G]."""
        cdf = self.log_probs.exp().cumsum(-1)
        shape = (*cdf.shape[:-1], self.setup.groups * self.setup.group_size)
        draws = torch.rand(shape, generator=self.generator, dtype=torch.double) * cdf[..., -1:]
        actions = torch.searchsorted(cdf, draws).clamp(max=cdf.shape[-1] - 1)
        right = self.success[actions].prod(2).flatten(1)
        rewards = (torch.rand(right.shape, generator=self.generator, dtype=torch.double) < right).double()
        index = (actions + self.first_of_row).transpose(2, 3).flatten(1, 2)
        return index, rewards.unflatten(1, (-1, self.setup.group_size))

    def selected(self, responses: _Responses, rewards: Tensor) -> _Responses:
        """Return the responses to train on; a replica that keeps fewer than another has empty places at its end."""
        if self.algorithm.select is keep_all:
            return responses
        within = torch.arange(self.setup.group_size)
        kept = [
            (self.algorithm.selected(own, self.generator).unsqueeze(1) * self.setup.group_size + within).flatten()
            for own in rewards
        ]
        rows = torch.nn.utils.rnn.pad_sequence(kept, batch_first=True, padding_value=-1).unsqueeze(-1)
        taken = rows.clamp(min=0).expand(-1, -1, responses.index.shape[-1])
        responses, there = responses.each(lambda values: values.gather(1, taken)), rows >= 0
        return replace(responses, mask=responses.mask & there, advantages=responses.advantages * there)

    def minibatches(self, responses: _Responses) -> Iterator[_Part]:
        """Give the responses of each update: all of them, or a part, in another order at each pass; none if none can teach."""
        count, setup = responses.index.shape[1], self.setup
        if not count or (self.can_skip and not responses.advantages.any()):
            return
        if setup.minibatches == 1:
            yield from [self._part(responses)] * setup.updates_per_rollout
            return
        for _ in range(setup.updates_per_rollout // setup.minibatches):
            order = torch.randperm(count, generator=self.generator)
            for places in reversed(order.tensor_split(setup.minibatches)):
                yield self._part(responses.each(lambda values, places=places: values[:, places]))  # type: ignore[misc]

    def _part(self, responses: _Responses) -> _Part:
        """Return responses with their tokens' weights, each replica's computed on its own responses."""
        count, positions = responses.mask.shape[1:]
        if count not in self.weights:  # a token's weight where 0, 1, … `count` of the places hold a response
            filled = torch.ones(count + 1, count).tril(-1).bool()
            some = [self.algorithm.aggregate(rows.view(-1, 1, 1).expand(-1, 1, positions)) for rows in filled]
            self.weights[count] = torch.stack([weights[:1].sum((0, 1)) for weights in some])
        weights = self.weights[count][responses.mask[..., 0].sum(1)].unsqueeze(1) * responses.mask
        chosen = None
        if self.algorithm.can.choose is not None:  # each replica among its own
            own = zip(responses.advantages, responses.old_logp, responses.mask, strict=True)
            chosen = torch.stack([self.algorithm.can.choose(*of_one) for of_one in own])
        return _Part(responses.index, responses.mask, responses.batch(weights, chosen))

    def climb(self, part: _Part) -> TokenObjective:
        """Ascend the objective of these responses once, each replica in its own table."""
        setup, algorithm = self.setup, self.algorithm
        gradient, objective = slope(
            algorithm.objective,
            self.scaled,
            self.log_probs,
            part.index,
            part.batch,
            algorithm.asks_for("surrogate", "entropy"),
            setup.entropy_weight or None,
        )
        algorithm.check_gradient(objective.value)
        self.scaled = torch.add(self.scaled, gradient, alpha=setup.lr / setup.temperature**2)
        self.log_probs = torch.log_softmax(self.scaled, -1)
        return objective

    def entropy_at(self, index: Tensor) -> Tensor:
        """Return the entropy, now, of the distribution that each of these tokens is drawn from, [R, N, T]."""
        return entropy_at(self.log_probs, index)


def entropy_at(log_probs: Tensor, index: Tensor) -> Tensor:
    """Return the entropies [R, N, T] of the rows of tables in which tokens stand, as `index` of `_Responses` says."""
    of_rows = entropy(log_probs).flatten(1)
    return of_rows.gather(1, index.flatten(1) // log_probs.shape[-1]).view(index.shape)


def slope(
    objective_of: Callable[[Tensor, Batch], TokenObjective],
    scaled: Tensor,
    log_probs: Tensor,
    index: Tensor,
    batch: Batch,
    with_entropy: bool,
    entropy_weight: float | Tensor | None = None,
) -> tuple[Tensor, TokenObjective]:
    """Return the gradient of Σ weights · J by logits over temperature, tables [R, P, T, A], and the tokens' objective.

    log_probs: of these logits. index: where tokens stand in their tables, [R, N, T]. batch: the same tokens, [R · N, 1, T], with
    weights, 0 on empty places. with_entropy: whether the objective asks for the entropy that a token was drawn with.
    entropy_weight: of an entropy bonus under the same weights. An objective without a gradient is for the caller to refuse.
    """
    flat, weights = index.flatten(1), batch.weights
    assert weights is not None
    logp = log_probs.flatten(1).gather(1, flat).view(weights.shape).detach().requires_grad_()
    of_rows = None
    if with_entropy:
        of_rows = entropy_at(log_probs, index).view(weights.shape).detach().requires_grad_()
    objective = objective_of(logp, replace(batch, entropy=of_rows))
    if not objective.value.requires_grad:
        return torch.zeros_like(scaled), objective
    by_logp, *by_entropy = torch.autograd.grad(
        objective.value, [logp] if of_rows is None else [logp, of_rows], weights, allow_unused=True
    )
    # ∂ log softmax(z)_a / ∂z = one-hot(a) − softmax(z): written out, because autograd takes longer than the rest
    by_log_probs = torch.zeros_like(scaled).flatten(1).scatter_add(1, flat, by_logp.view(flat.shape)).view_as(scaled)
    gradient = torch.addcmul(by_log_probs, log_probs.exp(), by_log_probs.sum(-1, keepdim=True), value=-1)
    wanted = [slope for slope in by_entropy if slope is not None]
    wanted += [] if entropy_weight is None else [entropy_weight * weights]
    if wanted:
        gradient = gradient + _entropy_slope(scaled, flat, torch.stack(wanted).sum(0))
    return gradient, objective


def _entropy_slope(scaled: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Return the gradient of Σ weights · H, H being the entropy of the distribution that a token was drawn from."""
    scaled = scaled.detach().clone().requires_grad_()
    of_rows = entropy(torch.log_softmax(scaled, -1)).flatten(1)
    bonus = of_rows.gather(1, index // scaled.shape[-1]) * weights.reshape(index.shape)
    return torch.autograd.grad(bonus.sum(), scaled)[0]


@dataclass(frozen=True)
class _Part:
    """Responses of one update: index and mask [R, n, T], and their batch with weights, [R · n, 1, T]."""

    index: Tensor
    mask: Tensor
    batch: Batch


class _Judge:
    """The advantages of all replicas' responses, no replica seeing the rewards of another.

    In one call where a group's advantages are the same whatever other groups are beside it, else a replica at a time, by vmap if
    it can run the piece, which a branch on a tensor's value forbids; both are asked of the piece with a batch made up. In it
    replicas have another number of right responses and another range of log π and H each, so that a statistic over all of them
    is none of a replica's own: a share of the tokens with the highest H would all be the last replica's.
    """

    def __init__(self, setup: _Setup) -> None:
        self.algorithm = setup.algorithm
        self.asks_for_entropy = self.algorithm.asks_for("advantage", "old_entropy")
        self.history = None
        if self.algorithm.asks_for("advantage", "history"):
            self.history = PromptHistory.empty(setup.replicas * setup.task.prompts * setup.groups)
        probe = made_up_groups(self.algorithm, setup.group_size, setup.task.positions)
        self.in_one_call = judges_together(self.algorithm, setup.task.positions)
        self.by_vmap = False
        with suppress(RuntimeError):
            self.by_vmap = self.history is None and torch.allclose(
                self._vmapped(*probe), _apart(self.algorithm, probe), rtol=1e-9, atol=1e-12
            )

    def __call__(self, rewards: Tensor, *of_tokens: Tensor) -> Tensor:
        """Return advantages [R, P · G, T] of rewards [R, P, G], of log π_old, log π_ref and, if asked for, H, [R, P · G, T]."""
        replicas, prompts, group_size = rewards.shape
        of_groups = [values.view(replicas, prompts, group_size, -1) for values in of_tokens]
        if not self.in_one_call and self.by_vmap:
            return self._vmapped(rewards, *of_groups).flatten(1, 2)
        judged = []
        for start in range(0, replicas, replicas if self.in_one_call else 1):
            own = slice(start, replicas if self.in_one_call else start + 1)
            places = torch.arange(start * prompts, own.stop * prompts)
            before = None if self.history is None else self.history.take(places)
            advantages, after = self._judge(
                *(values[own].flatten(0, 1) for values in (rewards, *of_groups)), history=before
            )
            judged.append(advantages)
            if self.history is not None and after is not None:
                self.history = self.history.put(places, after)
        return torch.cat(judged).view(replicas, prompts * group_size, -1)

    def _vmapped(self, *of_all: Tensor) -> Tensor:
        return torch.vmap(lambda *of_one: self._judge(*of_one)[0])(*of_all)

    def _judge(self, *of_groups: Tensor, history: PromptHistory | None = None) -> tuple[Tensor, PromptHistory | None]:
        return judged(self.algorithm, *of_groups, history=history)


def made_up_groups(algorithm: GroupPolicyGradient, size: int, positions: int = 1) -> tuple[Tensor, ...]:
    """Return rewards [R, 1, G] of replicas and their tokens' log π_old, log π_ref and, if asked for, H, [R, 1, G, T]."""
    generator = torch.Generator().manual_seed(0)
    right = torch.tensor([1, 0, size // 2, size, size - 1]).view(-1, 1, 1)
    rewards = (torch.arange(size) < right).double()
    shape = (*rewards.shape, positions)
    own_range = torch.arange(len(right)).view(-1, 1, 1, 1)
    logps = [-own_range - torch.rand(shape, generator=generator, dtype=torch.double) for _ in range(2)]
    entropies = [-logps[0]] if algorithm.asks_for("advantage", "old_entropy") else []
    return rewards, *logps, *entropies


def judges_together(algorithm: GroupPolicyGradient, positions: int = 1) -> bool:
    """Return whether a group's advantages are the same whatever other groups are beside it, at all of several sizes.

    At one size alone it may look so: of few tokens, the fifth with the highest entropy can be the same in each group and in all.
    """
    sizes = range(max(2, algorithm.min_group_size), 9)
    return all(_judges_together(algorithm, made_up_groups(algorithm, size, positions)) for size in sizes)


def _judges_together(algorithm: GroupPolicyGradient, groups: tuple[Tensor, ...]) -> bool:
    together = judged(algorithm, *(values.squeeze(1) for values in groups))[0].unsqueeze(1)
    return torch.allclose(together, _apart(algorithm, groups), rtol=1e-9, atol=1e-12)


def _apart(algorithm: GroupPolicyGradient, groups: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([judged(algorithm, *own)[0] for own in zip(*groups, strict=True)])


def judged(
    algorithm: GroupPolicyGradient,
    rewards: Tensor,
    old_logp: Tensor,
    ref_logp: Tensor,
    old_entropy: Tensor | None = None,
    *,
    history: PromptHistory | None = None,
) -> tuple[Tensor, PromptHistory | None]:
    """Return advantages [P, G, T] of rewards [P, G] and what is known of tokens [P, G, T], and the history after them.

    Every response has T tokens, ends by itself and is well formed.
    """
    mask, lengths = torch.ones(old_logp.shape, dtype=torch.bool), torch.full(rewards.shape, old_logp.shape[-1])
    nothing, everything = torch.zeros(rewards.shape, dtype=torch.bool), torch.ones_like(rewards)
    shaped = algorithm.shaped(rewards, lengths, truncated=nothing, correct=rewards, well_formed=everything)
    return algorithm.advantages(
        shaped,
        mask,
        old_logp=old_logp,
        ref_logp=ref_logp,
        history=history,
        old_entropy=old_entropy,
        correct=rewards,
        well_formed=everything,
    )


class _Clipping:
    """Counts the tokens whose gradient is cut; of many updates at once, which takes a tenth of the time."""

    def __init__(self, setup: _Setup) -> None:
        self.shape = (setup.replicas, -1, setup.task.positions)
        self.unread: list[tuple[int, _Part, TokenObjective]] = []
        self.cut = torch.zeros(4, setup.replicas, setup.steps, dtype=torch.double)  # low, high, dual, and all tokens
        self.is_plain = not any(setup.algorithm.asks_for("surrogate", name) for name in SURROGATE_MAY_ASK)

    def add(self, step: int, part: _Part, objective: TokenObjective) -> None:
        """Count an update of this step, from 0."""
        self.unread.append((step, part, objective))
        if len(self.unread) * part.mask.numel() > MOST_UNREAD:
            self._read()

    def fractions(self) -> Tensor:
        """Return the shares of the tokens of each step's updates that were clipped low, high and dual, [3, R, S]."""
        self._read()
        return self.cut[:3] / self.cut[3].clamp(min=1)

    def _read(self) -> None:
        """Count what was clipped in the updates since the last reading."""
        if not self.unread:
            return
        steps, parts, objectives = zip(*self.unread, strict=True)
        columns = [(o.ratio.detach(), o.advantages, o.lower, o.upper) for o in objectives]
        sides: list[Tensor]
        if self.is_plain:
            together = (
                torch.cat([values.view(self.shape) for values in column], 1) for column in zip(*columns, strict=True)
            )
            sides = list(is_clipped(objectives[0].surrogate, *together))
        else:
            each = [is_clipped(o.surrogate, *column) for o, column in zip(objectives, columns, strict=True)]
            sides = [torch.cat([cut.view(self.shape) for cut in side], 1) for side in zip(*each, strict=True)]
        seen = torch.cat([part.mask for part in parts], 1)
        counted = torch.stack([*(side & seen for side in sides), seen]).sum(-1, dtype=torch.double)  # [4, R, responses]
        of_steps = torch.tensor(steps).repeat_interleave(torch.tensor([part.mask.shape[1] for part in parts]))
        self.cut.index_add_(2, of_steps, counted)
        self.unread = []
