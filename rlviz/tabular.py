"""Training on a table of logits: the same step as a language model's, a whole run in a fraction of a second.

`table_step` is one step, sample → grade → advantages → updates, by the algorithm's own objective. It is a pure function that a
page can trace: pictures train with it, too. `train_table` is a run of such steps. A response is one action at each of T
positions. Replicas are independent runs side by side in one tensor, R tables [R, P, T, A] of P prompts and A actions. Updates
are plain gradient ascent on the logits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from reprlib import repr  # shortens long lists
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.selection import keep_all
from rlviz.pieces.surrogate import is_clipped
from rlviz.pieces.values import entropy
from rlviz.types import Batch, TokenObjective
from small_models.checks import check_at_least, check_number, check_seed, checked
from small_models.memory import check_fits

Array = NDArray[np.float64]
COLDEST = 1e-6  # below this temperature the length of a step, lr / temperature², overflows


@dataclass(frozen=True)
class TableTask:
    """A task for a table; a response is right when its actions are right at all positions.

    success: the probability that each action is right, 0 to 1. prompts, positions: rows of the table. start: the actions'
    probabilities before training, uniform if None; or a tuple of them for each prompt, so that prompts differ in difficulty.
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
        """The actions' probabilities before training, one tuple for all prompts or one for each prompt."""
        if self.start is None:
            return ((1 / len(self.success),) * len(self.success),)
        is_nested = isinstance(self.start, Sequence) and any(isinstance(row, list | tuple) for row in self.start)
        return self.start if is_nested else (self.start,)  # type: ignore[return-value]


def good_actions(good: int = 3, actions: int = 20, *, positions: int = 1, prompts: int = 1) -> TableTask:
    """Return a task in which the first `good` of `actions` are right."""
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
    """Return a task with nothing to learn: every response is right with probability ½."""
    return TableTask((0.5 ** (1 / positions),) * actions, positions=positions)


def _are_numbers(values: object) -> bool:
    return isinstance(values, Sequence) and all(isinstance(value, Real) for value in values)


def _check_probabilities(name: str, values: object, count: int) -> None:
    """Raise ValueError, naming the argument, unless the values are probabilities of so many actions."""
    numbers: Any = values if _are_numbers(values) else ()
    sums_to_1 = math.isclose(sum(numbers), 1, abs_tol=1e-6)
    if len(numbers) != count or not all(0 < p < 1 for p in numbers) or not sums_to_1:
        raise ValueError(f"{name} must be {count} probabilities above 0 that add up to 1; got {repr(values)}")


# --- one step ---


class TableTokens(NamedTuple):
    """Tokens of N responses in each of R tables, [R, N, T]; padding where `mask` is false.

    entries: the token's place in its flattened table. The other fields are those of `Batch`.
    """

    entries: Tensor
    old_logp: Tensor
    advantages: Tensor
    mask: Tensor
    ref_logp: Tensor

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> TableTokens:
        """Return the tokens with every tensor changed by the same function."""
        return TableTokens(*map(change, self))

    def as_minibatch(self, weights: Tensor, chosen: Tensor | None) -> Minibatch:
        """Return the tokens as the loss reads them; chosen: those that the surrogate chooses, both [R, N, T]."""
        shape = (-1, 1, self.mask.shape[-1])
        batch = Batch(*(v.reshape(shape) for v in (self.old_logp, self.advantages, self.mask, self.ref_logp, weights)))
        return Minibatch(self.entries, self.mask, replace(batch, chosen=None if chosen is None else chosen.view(shape)))


class Minibatch(NamedTuple):
    """Tokens of one update: entries and mask [R, N, T], and the batch that the loss reads, in groups of one [R · N, 1, T]."""

    entries: Tensor
    mask: Tensor
    batch: Batch


class TableRollout(NamedTuple):
    """Responses of a step. log_probs: before the updates. actions: [R, P, T, N]. rewards: [R, K, G]. history: after them."""

    log_probs: Tensor
    actions: Tensor
    rewards: Tensor
    tokens: TableTokens
    history: PromptHistory | None


Update = Callable[[Tensor, Minibatch], tuple[Tensor, TokenObjective]]


def table_step(
    rule: TableRule,
    scaled: Tensor,
    draws: Tensor,
    *,
    grade: Callable[[Tensor], Tensor],
    reference: Tensor,
    run_updates: Callable[[Update, Tensor, TableRollout], Tensor],
    rate: float | Tensor,
    history: PromptHistory | None = None,
    objective: Callable[[Tensor, Batch], TokenObjective] | None = None,
    entropy_weight: float | Tensor | None = None,
) -> tuple[Tensor, TableRollout]:
    """Return the logits after one step of training R tables, and the rollout that it learned from.

    scaled: logits over temperature, [R, P, T, A]. draws: uniform in [0, 1), [R, P, T, N], one for each action. grade: maps
    actions [R, P, T, N] to rewards [R, K, G]. reference: log π_ref, tables. run_updates: maps an update, logits and the rollout
    to the logits after all updates; it forms the minibatches. rate: length of an update, learning rate / temperature².
    history: of R · K prompts. objective: in place of the algorithm's own. entropy_weight: of an entropy bonus.
    """
    log_probs = torch.log_softmax(scaled, -1)
    actions, entries = sample_actions(log_probs, draws)
    rewards = grade(actions)

    # Old log-probabilities are frozen here, before the first update: from the second update on the ratio leaves 1.
    old_logp, ref_logp = at_entries(log_probs, entries), at_entries(reference, entries)
    entropies = [entropy_at(log_probs, entries)] if rule.needs_old_entropy else []
    # A group's advantages need all of its rewards, so they are computed on the whole rollout, before it is split.
    advantages, history = rule.advantages(rewards, old_logp, ref_logp, *entropies, history=history)
    mask = torch.ones(entries.shape, dtype=torch.bool)
    tokens = TableTokens(entries, old_logp, advantages, mask, ref_logp)
    rollout = TableRollout(log_probs, actions, rewards, tokens, history)

    def update(scaled: Tensor, minibatch: Minibatch) -> tuple[Tensor, TokenObjective]:
        """Ascend the objective of a minibatch once, each replica in its own table."""
        gradient, value = table_gradient(
            objective or rule.algorithm.objective, scaled, minibatch, rule.needs_entropy, entropy_weight
        )
        if isinstance(rate, Tensor):  # a control of a page
            return scaled + rate * gradient, value
        return torch.add(scaled, gradient, alpha=rate), value

    return run_updates(update, scaled, rollout), rollout


def sample_actions(log_probs: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Return the actions of tables at draws in [0, 1), both [R, P, T, N], and their entries in the tables, [R, P · N, T]."""
    cdf = log_probs.exp().cumsum(-1)
    actions = torch.searchsorted(cdf, draws * cdf[..., -1:]).clamp(max=cdf.shape[-1] - 1)
    prompts, positions, count = log_probs.shape[1:]
    row_starts = (torch.arange(prompts * positions) * count).view(prompts, positions, 1)
    return actions, (actions + row_starts).transpose(2, 3).flatten(1, 2)


def grade_by_luck(success: Tensor, luck: Tensor, actions: Tensor) -> Tensor:
    """Return rewards [R, K, G], 1 where luck, uniform in [0, 1), is below the product of the actions' success."""
    return (luck < success[actions].prod(2).view(luck.shape)).double()


def at_entries(tables: Tensor, entries: Tensor) -> Tensor:
    """Return the values of R tables at these entries, both [R, N, T]."""
    return tables.flatten(1).gather(1, entries.flatten(1)).view(entries.shape)


def entropy_at(log_probs: Tensor, entries: Tensor) -> Tensor:
    """Return the entropies of the rows in which these entries stand, both [R, N, T]."""
    entropies = entropy(log_probs).flatten(1)
    return entropies.gather(1, entries.flatten(1) // log_probs.shape[-1]).view(entries.shape)


def table_gradient(
    objective: Callable[[Tensor, Batch], TokenObjective],
    scaled: Tensor,
    minibatch: Minibatch,
    needs_entropy: bool,
    entropy_weight: float | Tensor | None = None,
) -> tuple[Tensor, TokenObjective]:
    """Return ∂(Σ weights · J)/∂ scaled, [R, P, T, A], and the tokens' objective J; the gradient is 0 where J has none.

    needs_entropy: whether J depends on the entropy of a token's distribution. entropy_weight: of an entropy bonus, weights · H.
    """
    log_probs, flat, weights = torch.log_softmax(scaled, -1), minibatch.entries.flatten(1), minibatch.batch.weights
    assert weights is not None
    logp = log_probs.flatten(1).gather(1, flat).view(weights.shape).detach().requires_grad_()
    entropies: Tensor | None = None
    if needs_entropy:
        entropies = entropy_at(log_probs, minibatch.entries).view(weights.shape).detach().requires_grad_()
    value = objective(logp, replace(minibatch.batch, entropy=entropies))
    if not value.value.requires_grad:
        return torch.zeros_like(scaled), value
    by_logp, *by_entropy = torch.autograd.grad(
        value.value, [logp] if entropies is None else [logp, entropies], weights, allow_unused=True
    )
    # ∂ log softmax(z)_a / ∂z = one-hot(a) − softmax(z): written out, because autograd takes longer than all else
    by_log_probs = torch.zeros_like(scaled).flatten(1).scatter_add(1, flat, by_logp.view(flat.shape)).view_as(scaled)
    gradient = torch.addcmul(by_log_probs, log_probs.exp(), by_log_probs.sum(-1, keepdim=True), value=-1)
    entropy_weights = [slope for slope in by_entropy if slope is not None]
    entropy_weights += [] if entropy_weight is None else [entropy_weight * weights]
    if entropy_weights:
        z = scaled.detach().clone().requires_grad_()
        by_token = entropy(torch.log_softmax(z, -1)).flatten(1).gather(1, flat // z.shape[-1])
        bonus = by_token * torch.stack(entropy_weights).sum(0).reshape(flat.shape)
        gradient = gradient + torch.autograd.grad(bonus.sum(), z)[0]
    return gradient, value


# --- advantages, each table by itself ---


class TableRule:
    """An algorithm applied to R tables side by side, none of which sees the rewards of another.

    Where a group's advantages do not depend on other groups, one call serves all tables. Else each table needs a call: one by
    vmap where the piece allows it (a branch on a tensor's value forbids that), or a loop. Which of them is right is tried out on
    example groups, so a rule is built before a page traces a step.
    """

    def __init__(self, algorithm: GroupPolicyGradient, group_size: int = 8, positions: int = 1) -> None:
        self.algorithm = algorithm
        self.needs_old_entropy = algorithm.asks_for("advantage", "old_entropy")
        self.needs_entropy = algorithm.asks_for("surrogate", "entropy")
        self.needs_history = algorithm.asks_for("advantage", "history")
        # At one size alone a dependence may not show: the fifth with the highest entropy of few tokens can be the same in each
        # group and in all.
        sizes = range(max(2, algorithm.min_group_size), 9)
        self.is_joint = all(self._agrees(self._judge_jointly, size, positions) for size in sizes)
        self.is_vmapped = not self.is_joint and not self.needs_history
        self.is_vmapped = self.is_vmapped and self._agrees(self._judge_by_vmap, group_size, positions)

    def advantages(
        self, rewards: Tensor, *tokens: Tensor, history: PromptHistory | None = None
    ) -> tuple[Tensor, PromptHistory | None]:
        """Return advantages [R, K · G, T] of rewards [R, K, G], and the history after them.

        tokens: log π_old, log π_ref and, if the advantage asks for it, the entropy, [R, K · G, T].
        """
        groups = [rewards, *(values.unflatten(1, rewards.shape[1:]) for values in tokens)]
        if self.is_joint:
            advantages, after = self._judge_jointly(*groups, history=history)
            history = history if after is None else after
        elif self.is_vmapped:
            advantages, _ = self._judge_by_vmap(*groups)
        else:
            parts = []
            for r, table in enumerate(zip(*groups, strict=True)):
                prompts = torch.arange(r * rewards.shape[1], (r + 1) * rewards.shape[1])
                past = None if history is None else history.index_select(prompts)
                part, past = self._judge(*table, history=past)
                parts.append(part)
                history = history if history is None or past is None else history.index_put(prompts, past)
            advantages = torch.stack(parts)
        return advantages.view(tokens[0].shape), history

    def weigh_by_use(self, rollout: TableRollout) -> Minibatch:
        """Return the whole rollout as a minibatch of one token mean, in which a group counts as often as it is selected."""
        tokens, chosen = rollout.tokens, None
        uses = self.algorithm.uses(rollout.rewards).unsqueeze(-1).expand(rollout.rewards.shape)
        uses = uses.flatten(1).unsqueeze(-1).expand(tokens.entries.shape)
        weights = uses / uses.sum((1, 2), keepdim=True).clamp(min=1e-9)
        if self.algorithm.can.choose is not None:
            chosen = torch.vmap(self.algorithm.can.choose)(tokens.advantages, tokens.old_logp, tokens.mask)
        return tokens.as_minibatch(weights, chosen)

    def _judge(
        self,
        rewards: Tensor,
        old_logp: Tensor,
        ref_logp: Tensor,
        old_entropy: Tensor | None = None,
        *,
        history: PromptHistory | None = None,
    ) -> tuple[Tensor, PromptHistory | None]:
        """Return advantages [P, G, T] of rewards [P, G] and the history after them; every response ends and is well formed."""
        mask, lengths = torch.ones(old_logp.shape, dtype=torch.bool), torch.full(rewards.shape, old_logp.shape[-1])
        nothing, everything = torch.zeros(rewards.shape, dtype=torch.bool), torch.ones_like(rewards)
        return self.algorithm.advantages(
            self.algorithm.shape_rewards(rewards, lengths, truncated=nothing, correct=rewards, well_formed=everything),
            mask,
            old_logp=old_logp,
            ref_logp=ref_logp,
            history=history,
            old_entropy=old_entropy,
            correct=rewards,
            well_formed=everything,
        )

    def _judge_jointly(self, *groups: Tensor, history: PromptHistory | None = None) -> Any:
        return self._judge(*(values.flatten(0, 1) for values in groups), history=history)

    def _judge_by_vmap(self, *groups: Tensor) -> Any:
        return torch.vmap(lambda *table: self._judge(*table)[0])(*groups), None

    def _agrees(self, judge: Callable[..., Any], size: int, positions: int) -> bool:
        """Return whether this way of computing advantages gives those of each table alone, on groups of so many responses.

        The example tables have different numbers of right responses and different ranges of log π and H: a statistic over all
        tables is then that of none. A share of the tokens with the highest H, say, would be all in the last one.
        """
        generator, right = torch.Generator().manual_seed(0), torch.tensor([1, 0, size // 2, size, size - 1])
        rewards = (torch.arange(size) < right.view(-1, 1, 1)).double()
        shape, offsets = (*rewards.shape, positions), torch.arange(len(right)).view(-1, 1, 1, 1)
        logps = [-offsets - torch.rand(shape, generator=generator, dtype=torch.double) for _ in range(2)]
        groups = [rewards, *logps, *([-logps[0]] if self.needs_old_entropy else [])]
        alone = torch.stack([self._judge(*table)[0] for table in zip(*groups, strict=True)])
        try:
            together, _ = judge(*groups)
        except RuntimeError:
            return False
        return torch.allclose(together.view(alone.shape), alone, rtol=1e-9, atol=1e-12)


# --- a run ---


@checked
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

    groups: groups sampled for each prompt in a step, as if several prompts shared a row of the table (each with a history);
    group_size: responses in each. Pieces other than advantage and select must treat responses one by one, for the loss
    sees those of all replicas together. updates_per_rollout, minibatches, temperature: as in `TrainSettings`; entropy_weight:
    coefficient of the entropy bonus. reference: the actions' probabilities under the reference of a KL term, or under a teacher;
    None: the table before training. The same seed gives the same run. Raises ValueError for a value out of its range or of
    another type.
    """
    task = good_actions() if task is None else task
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(f"algorithm must learn from groups of responses, as GRPO does; got {algorithm.name}")
    if algorithm.asks_for("advantage", "step_ends"):
        raise ValueError(f"algorithm: {algorithm.name} needs rewards of single steps, which a table does not give")
    if reference is not None:
        _check_probabilities("reference", reference, len(task.success))
    elif algorithm.can.from_teacher:
        raise ValueError(f"reference must be a teacher's probabilities of the actions for {algorithm.name}; got None")
    check_seed(seed)
    check_number("lr", lr, lambda number: number > 0, "above 0")
    check_number("temperature", temperature, lambda number: number >= COLDEST, f"at least {COLDEST:g}")
    check_number("entropy_weight", entropy_weight, lambda number: number >= 0, "0 or above")
    check_at_least(1, steps=steps, groups=groups, updates_per_rollout=updates_per_rollout, minibatches=minibatches)
    check_at_least(1, replicas=replicas)
    check_at_least(algorithm.min_group_size, group_size=group_size)
    responses = task.prompts * groups * group_size
    if updates_per_rollout % minibatches or minibatches > responses:
        raise ValueError(
            f"minibatches must divide updates_per_rollout ({updates_per_rollout}) and be at most prompts × groups × group_size "
            f"= {responses}; got {minibatches}"
        )
    tokens = replicas * responses * task.positions
    tables = (steps + 1) * replicas * task.prompts * task.positions * len(task.success)
    what = f"{tokens:,} tokens a step and {tables:,} probabilities, those of all steps,"
    check_fits((tokens + tables) * 8, torch.device("cpu"), what, "lower steps, group_size, groups or replicas")

    rule = TableRule(algorithm, group_size, task.positions)
    success = torch.tensor(task.success, dtype=torch.double)
    start = torch.zeros(1, 1, len(success), dtype=torch.double)
    if task.start is not None:
        start = torch.tensor(task.starts, dtype=torch.double).log().unsqueeze(1)
    scaled = start.expand(replicas, task.prompts, task.positions, len(success)).clone()
    ref_log_probs = torch.log_softmax(scaled, -1)
    if reference is not None:
        ref_log_probs = torch.tensor(reference, dtype=torch.double).log().expand_as(scaled)
    history = PromptHistory.empty(replicas * task.prompts * groups) if rule.needs_history else None
    generator = torch.Generator().manual_seed(int(seed))
    can_skip = not entropy_weight and algorithm.ignores_zero_advantages()
    clipped = torch.zeros(4, replicas, steps, dtype=torch.double)  # low, high, dual; all tokens
    log_probs, rewards = [], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # these tensors are small, and on a busy machine a second thread waits more than it works
    try:
        for step in range(steps):
            draws = torch.rand(*scaled.shape[:-1], groups * group_size, generator=generator, dtype=torch.double)
            luck = torch.rand(replicas, task.prompts * groups, group_size, generator=generator, dtype=torch.double)

            def run_updates(update: Update, scaled: Tensor, rollout: TableRollout, step: int = step) -> Tensor:
                selected = select_responses(algorithm, rollout, generator)
                if not selected.mask.numel() or (can_skip and not selected.advantages.any()):
                    return scaled
                for part in split_responses(algorithm, selected, updates_per_rollout, minibatches, generator):
                    scaled, objective = update(scaled, part)
                    algorithm.check_gradient(objective.value)
                    columns = objective.ratio.detach(), objective.advantages, objective.lower, objective.upper
                    counts = [
                        cut.view(part.mask.shape) & part.mask for cut in is_clipped(objective.surrogate, *columns)
                    ]
                    clipped[:, :, step] += torch.stack([*counts, part.mask]).sum((-1, -2))
                return scaled

            scaled, rollout = table_step(
                rule,
                scaled,
                draws,
                grade=partial(grade_by_luck, success, luck),
                reference=ref_log_probs,
                run_updates=run_updates,
                rate=lr / temperature**2,
                history=history,
                entropy_weight=entropy_weight or None,
            )
            history = rollout.history
            rewards.append(rollout.rewards.mean((1, 2)))
            log_probs.append(rollout.log_probs)
        log_probs.append(torch.log_softmax(scaled, -1))
        all_log_probs = torch.stack(log_probs, 1)
        probabilities = all_log_probs.exp()
        low, high, dual = clipped[:3] / clipped[3].clamp(min=1)
        return TableRun(
            entropy=entropy(all_log_probs).mean((-1, -2)).numpy(),
            accuracy=(probabilities * success).sum(-1).prod(-1).mean(-1).numpy(),
            reward=torch.stack(rewards, -1).numpy(),
            clip_low=low.numpy(),
            clip_high=high.numpy(),
            clip_dual=dual.numpy(),
            probabilities=probabilities.numpy(),
        )
    finally:
        torch.set_num_threads(threads)


def select_responses(algorithm: GroupPolicyGradient, rollout: TableRollout, generator: torch.Generator) -> TableTokens:
    """Return the responses of the selected groups; a replica with fewer of them than another has padding at its end."""
    tokens, group_size = rollout.tokens, rollout.rewards.shape[-1]
    if algorithm.select is keep_all:
        return tokens
    groups = [algorithm.select_groups(rewards, generator) for rewards in rollout.rewards]
    selected = [(group.unsqueeze(1) * group_size + torch.arange(group_size)).flatten() for group in groups]
    rows = torch.nn.utils.rnn.pad_sequence(selected, batch_first=True, padding_value=-1).unsqueeze(-1)
    index = rows.clamp(min=0).expand(-1, -1, tokens.entries.shape[-1])
    tokens, is_response = tokens.map_tensors(lambda values: values.gather(1, index)), rows >= 0
    return tokens._replace(mask=tokens.mask & is_response, advantages=tokens.advantages * is_response)


def split_responses(
    algorithm: GroupPolicyGradient, tokens: TableTokens, updates: int, minibatches: int, generator: torch.Generator
) -> Iterator[Minibatch]:
    """Yield the minibatch of each update: all responses, or a part of them, in a new random order for each pass."""
    if minibatches == 1:
        yield from [weigh(algorithm, tokens)] * updates
        return
    for _ in range(updates // minibatches):
        order = torch.randperm(tokens.mask.shape[1], generator=generator)
        for part in reversed(order.tensor_split(minibatches)):
            yield weigh(algorithm, tokens.map_tensors(lambda values, part=part: values[:, part]))  # type: ignore[misc]


def weigh(algorithm: GroupPolicyGradient, tokens: TableTokens) -> Minibatch:
    """Return the tokens as a minibatch; weights are those of the algorithm's aggregation, in each replica by itself."""
    masks = tokens.mask[:1] if tokens.mask.all() else tokens.mask
    weights = torch.cat([algorithm.aggregate(mask.unsqueeze(1)).transpose(0, 1) for mask in masks])
    chosen = None
    if algorithm.can.choose is not None:
        tables = zip(tokens.advantages, tokens.old_logp, tokens.mask, strict=True)
        chosen = torch.stack([algorithm.can.choose(*table) for table in tables])
    return tokens.as_minibatch(weights.expand(tokens.mask.shape), chosen)


# --- curves of a run ---


@dataclass(frozen=True)
class TableRun:
    """The curves of a run. R replicas, S steps.

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
        """Return each replica's number of steps until accuracy ≥ level, NaN if never: [R]."""
        return steps_to(self.accuracy, level)


def steps_to(accuracy: Array, level: float) -> Array:
    """Return each replica's number of steps until accuracy, [R, S + 1], is at least `level`, NaN if never: [R]."""
    reached = accuracy >= level
    return np.where(reached.any(1), reached.argmax(1), np.nan)


def at_accuracy(values: Array, accuracy: Array, level: float) -> Array:
    """Return each replica's value where its accuracy first is `level`, on the straight line between two steps: [R] of [R, S + 1].

    Without interpolation a faster learner would be read further beyond the level, where entropy is lower. NaN where the level is
    never reached; the value before training where accuracy begins above it.
    """
    first = steps_to(accuracy, level)
    after = np.where(np.isfinite(first), first, 0).astype(int)
    before, rows = np.maximum(after - 1, 0), np.arange(len(after))
    low, high = accuracy[rows, before], accuracy[rows, after]
    share = np.where(high > low, (level - low) / np.where(high > low, high - low, 1), 0)
    interpolated = values[rows, before] + share * (values[rows, after] - values[rows, before])
    return np.where(np.isfinite(first), interpolated, np.nan)
