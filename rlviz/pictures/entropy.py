"""Whole training runs of a table of logits: what happens to entropy and accuracy, and to the probabilities themselves.

The page trains: a step is a rollout, advantages, and updates through the algorithm's own objective, as in `rlviz.tabular`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, GRPO, Algorithm, GroupPolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import (
    Area,
    Axis,
    Bars,
    Beside,
    Choice,
    Draws,
    Line,
    Mark,
    Panel,
    Picture,
    Rule,
    Say,
    Slider,
    Text,
)
from rlviz.page.tracing import Curve, iterated, repeated
from rlviz.pictures.groups import LARGEST_GROUP
from rlviz.pictures.idea import WIDTHS, Algorithms, explorer
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.kl import KLInLoss
from rlviz.pieces.values import entropy
from rlviz.tabular import (
    TableTask,
    entropy_at,
    good_actions,
    judged,
    judges_together,
    random_reward,
    rare_good_action,
    slope,
)
from rlviz.types import Batch, TokenObjective

STEPS, REPLICAS = 60, 16
LEVELS = tuple(round(0.05 * place, 2) for place in range(1, 20))
HISTORY = tuple(f.name for f in fields(PromptHistory))


@dataclass(frozen=True)
class Lesson:
    """Something for a table to learn. groups: sampled for each prompt in a step. good: the actions that are (mostly) right."""

    task: TableTask
    groups: int
    good: tuple[int, ...]


REWARDS: Mapping[str, Lesson] = MappingProxyType(
    {
        "3 good of 20": Lesson(good_actions(3, 20), 1, (0, 1, 2)),
        "2 positions, both good": Lesson(good_actions(3, 10, positions=2), 1, (0, 1, 2)),
        "rare good": Lesson(rare_good_action(0.02), 4, (1,)),
        "random": Lesson(random_reward(20), 1, ()),
    }
)


def has_groups(algorithm: Algorithm) -> bool:
    """Return whether a table can be trained with it: groups of responses with one reward each, and no teacher."""
    return (
        isinstance(algorithm, GroupPolicyGradient)
        and not algorithm.asks_for("advantage", "step_ends")
        and not algorithm.can.from_teacher
    )


@dataclass(frozen=True)
class Training:
    """The curve: 16 replicas of a table, trained for so many steps under an algorithm. Equal for equal algorithms.

    Every algorithm aggregates by the token mean: a table's responses all have the same length, so its own aggregation would only
    be a factor on the learning rate. Its own KL makes way for the picture's, a k3 term to the start.
    """

    algorithm: GroupPolicyGradient
    steps: int = STEPS

    def __post_init__(self) -> None:
        rule = TableRule(replace(self.algorithm, kl=None, aggregate=token_mean))
        object.__setattr__(self, "rule", rule)  # made here: it reads numbers, which a curve that is recorded cannot

    def __call__(
        self,
        group_size: Tensor,
        lr: Tensor,
        updates_per_rollout: Tensor,
        temperature: Tensor,
        entropy_weight: Tensor,
        kl_weight: Tensor,
        step: Tensor,
        start: Tensor,
        success: Tensor,
        good: Tensor,
        draws: Tensor,
        luck: Tensor,
        **widths: Tensor,
    ) -> dict[str, Tensor]:
        """Return what `_told` tells.

        start: logits [T, A]. success: of each action, good: 1 for the right ones, [A]. draws [S, R, T, K, G] or [S, R, T · K, G],
        luck [S, R, K, G]: what chance gives.
        """
        how = (lr, updates_per_rollout, temperature, entropy_weight, kl_weight)
        logits = self.run(*how, start, success, draws, luck, **widths)
        return _told(logits, success, good, step)

    def run(
        self,
        lr: Tensor,
        updates_per_rollout: Tensor,
        temperature: Tensor,
        entropy_weight: Tensor,
        kl_weight: Tensor,
        start: Tensor,
        success: Tensor,
        draws: Tensor,
        luck: Tensor,
        **widths: Tensor,
    ) -> Tensor:
        """Return the logits of all replicas before training and after each step, [S + 1, R, T, A]; see `__call__`."""
        rule: TableRule = vars(self)["rule"]
        now = with_tensors(rule.algorithm, widths)
        to_start = KLInLoss(beta=1.0)
        positions, actions = start.shape
        groups, size = luck.shape[2:]
        begin = start.expand(REPLICAS, 1, positions, actions)
        first = torch.log_softmax(begin, -1)
        table = positions * actions

        def objective(logp: Tensor, batch: Batch) -> TokenObjective:
            part = now.objective(logp, batch)
            assert batch.ref_logp is not None
            return replace(part, value=part.value - kl_weight * to_start(logp, batch.ref_logp))

        def one_step(state: Tensor) -> tuple[Tensor, Tensor]:
            """Sample, judge, and climb as often as asked for; a state is a replica's step, logits and history, side by side."""
            place, scaled = state[0, 0].long(), state[:, 1 : 1 + table].view(first.shape)
            log_probs = torch.log_softmax(scaled, -1)
            index, rewards = _sample(log_probs, success, draws[place], luck[place])
            of_tokens = [at_index(log_probs, index), at_index(first, index)]
            if rule.asks_for_entropy:
                of_tokens.append(entropy_at(log_probs, index))
            advantages, history = rule.judge(rewards, of_tokens, state[:, 1 + table :])
            uses = rule.algorithm.uses(rewards).unsqueeze(-1).expand(REPLICAS, groups, size).flatten(1).unsqueeze(-1)
            batch = rule.batch(of_tokens[0], of_tokens[1], advantages, uses.expand(index.shape))

            def climb(scaled: Tensor) -> Tensor:
                log_probs = torch.log_softmax(scaled, -1)
                by, _ = slope(objective, scaled, log_probs, index, batch, rule.with_entropy, entropy_weight)
                return scaled + lr / temperature**2 * by

            after = iterated(climb, scaled, updates_per_rollout).flatten(1)
            return torch.cat([state[:, :1] + 1, after, history], 1), after

        begun = rule.history_before(REPLICAS * groups).view(REPLICAS, -1)
        state = torch.cat([torch.zeros(REPLICAS, 1, dtype=torch.double), begin.flatten(1), begun], 1)
        logits = torch.cat([begin.flatten(1).unsqueeze(0), repeated(one_step, state, self.steps, in_slices=True)])
        return logits.view(self.steps + 1, REPLICAS, positions, actions)


class TableRule:
    """An algorithm as a table's rollout asks it: how replicas are judged, each by itself."""

    def __init__(self, algorithm: GroupPolicyGradient) -> None:
        self.algorithm = algorithm
        self.asks_for_entropy = algorithm.asks_for("advantage", "old_entropy")
        self.with_entropy = algorithm.asks_for("surrogate", "entropy")
        self.remembers = algorithm.asks_for("advantage", "history")
        self.together = judges_together(algorithm)

    def history_before(self, prompts: int) -> Tensor:
        """Return what is remembered of prompts that were never sampled, [P, 5]; nothing where no history is asked for."""
        if not self.remembers:
            return torch.zeros(prompts, 0, dtype=torch.double)
        return torch.stack([value.double() for value in vars(PromptHistory.empty(prompts)).values()], -1)

    def judge(self, rewards: Tensor, of_tokens: list[Tensor], history: Tensor) -> tuple[Tensor, Tensor]:
        """Return the advantages [R, N, T] of rewards [R, K, G], and the history, [R, K · 5], after them."""
        of_groups = [values.unflatten(1, rewards.shape[1:]) for values in of_tokens]
        if not self.together:
            apart = torch.vmap(lambda *own: judged(self.algorithm, *own)[0])(rewards, *of_groups)
            return apart.flatten(1, 2), history
        before = None
        if self.remembers:
            columns = dict(zip(HISTORY, history.reshape(-1, len(HISTORY)).unbind(1), strict=True))
            before = PromptHistory(**{**columns, "visits": columns["visits"].long()})
        advantages, after = judged(
            self.algorithm, rewards.flatten(0, 1), *(values.flatten(0, 1) for values in of_groups), history=before
        )
        if self.remembers:
            history = torch.stack([value.double() for value in vars(after).values()], -1).view(history.shape)
        return advantages.view(of_tokens[0].shape), history

    def batch(self, old_logp: Tensor, ref_logp: Tensor, advantages: Tensor, uses: Tensor) -> Batch:
        """Return tokens as the loss sees them, as groups of one, [R · N, 1, T]; uses: how often each counts in its mean."""
        weights = uses / uses.sum((1, 2), keepdim=True).clamp(min=1e-9)
        mask, chosen = torch.ones(uses.shape, dtype=torch.bool), None
        if self.algorithm.can.choose is not None:
            chosen = torch.vmap(self.algorithm.can.choose)(advantages, old_logp, mask)
        shape = (-1, 1, uses.shape[-1])
        return Batch(
            old_logp.reshape(shape),
            advantages.reshape(shape),
            mask.reshape(shape),
            ref_logp.reshape(shape),
            weights.reshape(shape),
            chosen=None if chosen is None else chosen.reshape(shape),
        )


def _sample(log_probs: Tensor, success: Tensor, draws: Tensor, luck: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens, as places in a table's rows, [R, K · G, T], and their responses' rewards, [R, K, G]."""
    replicas, _, positions, actions = log_probs.shape
    cdf = log_probs.squeeze(1).exp().cumsum(-1)
    drawn = draws.reshape(replicas, positions, -1) * cdf[..., -1:]
    action = torch.searchsorted(cdf, drawn).clamp(max=actions - 1)
    right = success[action].prod(1).view(luck.shape)
    first_of_row = (torch.arange(positions) * actions).unsqueeze(-1)
    return (action + first_of_row).transpose(1, 2), (luck < right).double()


def at_index(table: Tensor, index: Tensor) -> Tensor:
    """Return the numbers of tables [R, …] at the places of their tokens, `index` [R, N, T]."""
    return table.flatten(1).gather(1, index.flatten(1)).view(index.shape)


def _told(logits: Tensor, success: Tensor, good: Tensor, step: Tensor) -> dict[str, Tensor]:
    """Return what the picture tells of logits [S + 1, R, T, A]."""
    log_probs = torch.log_softmax(logits, -1)
    left, right = entropy(log_probs).mean(-1), (log_probs.exp() * success).sum(-1).prod(-1)  # [S + 1, R]
    means = torch.stack([left.mean(1), right.mean(1)])
    probs = log_probs[:, 0, 0].exp()[step.long()]
    levels = torch.tensor(LEVELS, dtype=torch.double)
    at_level = at_levels(left, right, levels)
    known = at_level.isfinite()
    last = torch.where(known, levels, -1.0).argmax()
    at_step = means.T[step.long()]
    return {
        **histories(left, right),
        "levels": levels,
        "at_level": at_level,
        "reached": known.any().double(),
        "nowhere": (means[0, -1].isfinite() & ~known.any()).double(),
        "last_level": levels[last],
        "at_last_level": at_level[last],
        "most": 1.05 * torch.full_like(step, logits.shape[-1]).log(),
        "actions": torch.arange(logits.shape[-1], dtype=torch.double) + 1,
        "right_of_actions": torch.full_like(step, logits.shape[-1] + 0.7),
        "probs": probs,
        "is_good": good,
        "is_other": 1 - good,
        "has_good": good.amax(),
        "likely": probs.argmax() + 1.0,
        "highest": probs.amax(),
        "left": at_step[0],
        "left_there": at_step[0].isfinite().double(),
        "right": at_step[1],
        "begun": means[0, 0],
        "end": means[0, -1],
        "end_low": torch.quantile(left[-1], 0.1),
        "end_high": torch.quantile(left[-1], 0.9),
        "end_right": means[1, -1],
        "trained": means[0].isfinite().sum() - 1.0,
        "done": means[0, -1].isfinite().double(),
    }


def histories(left: Tensor, right: Tensor) -> dict[str, Tensor]:
    """Return entropy and accuracy [S + 1, R] as lines over the steps: the mean of replicas, and their middle 80 %."""
    found = {"steps": torch.arange(left.shape[0], dtype=torch.double)}
    for name, values in (("entropy", left), ("accuracy", right)):
        found |= {name: values.mean(1)}
        found |= {f"{name}_{end}": torch.quantile(values, q, 1) for end, q in (("low", 0.1), ("high", 0.9))}
    return found


def at_levels(left: Tensor, right: Tensor, levels: Tensor) -> Tensor:
    """Return the mean entropy where replicas first reach each accuracy, on the line between two steps; NaN where half do not.

    NaN, too, of accuracies at which one of them begins.
    """
    reached = right.unsqueeze(-1) >= levels  # [S + 1, R, L]
    ever, after = reached.any(0), reached.double().argmax(0)
    before = (after - 1).clamp(min=0)
    low, high = right.T.gather(1, before), right.T.gather(1, after)
    share = torch.where(high > low, (levels - low) / torch.where(high > low, high - low, 1.0), 0.0)
    from_, to = left.T.gather(1, before), left.T.gather(1, after)
    there = torch.where(ever, from_ + share * (to - from_), 0.0)
    count = ever.double().sum(0)
    enough = (2 * count >= right.shape[1]) & (right[0].amax() < levels)
    return torch.where(enough, there.sum(0) / count.clamp(min=1), torch.nan)


def data(algorithm: GroupPolicyGradient, reward: str) -> dict[str, Any]:
    """Return what a reward gives: the table before training, which actions are right, and the recipes of chance."""
    lesson = REWARDS[reward]
    task, actions = lesson.task, len(lesson.task.success)
    start = torch.zeros(1, actions, dtype=torch.double)
    if task.start is not None:
        start = torch.tensor(task.starts, dtype=torch.double).log()
    chance = (STEPS, REPLICAS)
    return {
        "start": start.expand(task.positions, actions),
        "success": torch.tensor(task.success, dtype=torch.double),
        "good": torch.tensor([float(action in lesson.good) for action in range(actions)], dtype=torch.double),
        "draws": Draws("uniform", (*chance, task.positions * lesson.groups, "group_size"), 1, LARGEST_GROUP),
        "luck": Draws("uniform", (*chance, lesson.groups, "group_size"), 2, LARGEST_GROUP),
    }


def entropy_curve(algorithm: GroupPolicyGradient, reward: str) -> Curve:
    """Return the training of the algorithm: what is rewarded is data, so all rewards share a program."""
    return Training(algorithm)


EXAMPLE = {  # sizes that are independent, and none of them 1
    "group_size": 7,
    "start": torch.linspace(0, 1, 33, dtype=torch.double).view(3, 11),
    "success": torch.linspace(0, 1, 11, dtype=torch.double),
    "good": torch.linspace(0, 1, 11, dtype=torch.double).round(),
    "draws": Draws("uniform", (STEPS, REPLICAS, 3 * 5, "group_size"), 1),
    "luck": Draws("uniform", (STEPS, REPLICAS, 5, "group_size"), 2),
}
BESIDE = {"colour": "vermilion", "when": "b1_name"}


def lines_of(name: str) -> tuple[Mark, ...]:
    """Return a line with the middle 80 % of replicas, of the chosen algorithm and of the one beside it, and the step."""
    return (
        Area("steps", f"{name}_low", f"{name}_high"),
        Area("b1_steps", f"b1_{name}_low", f"b1_{name}_high", **BESIDE),  # type: ignore[arg-type]
        Rule("step", drag="step", label="step {step:d}", direct=True, colour="ink"),
        Line("b1_steps", f"b1_{name}", "5 3", label="{b1_name}", direct=True, **BESIDE),  # type: ignore[arg-type]
        Line("steps", name, width=3, label="{name}", direct=True),
    )


_STEP = Axis("step", -1, STEPS + 1, whole=True)
_ACTION = Axis("action", 0.3, "right_of_actions", whole=True)
ENTROPY = Picture(
    title="What happens to the entropy while a policy learns?",
    look="Drag the step, add an algorithm beside this one, then let each rollout be used for more updates.",
    notice="Entropy falls while the policy learns. Compare two algorithms at the same accuracy rather than at the same step.",
    alt="Four graphs of a table of logits in training: entropy against the step, accuracy against the step, entropy against "
    "accuracy, and bars of the actions' probabilities at one step.",
    panels=(
        Panel("Entropy of the policy", _STEP, Axis("entropy, nats", 0, "most"), lines_of("entropy")),
        Panel("What is learned", _STEP, Axis("accuracy", 0, 1.02), lines_of("accuracy")),
        Panel(
            "Entropy when an accuracy is first reached",
            Axis("accuracy", 0, 1),
            Axis("entropy, nats", 0, "most"),
            (
                Text("{name}: none by half of the replicas", corner="nw", when="nowhere"),
                Line(
                    "b1_levels",
                    "b1_at_level",
                    "5 3",
                    marker="s",
                    label="{b1_name}",
                    direct=True,
                    **BESIDE,  # type: ignore[arg-type]
                ),
                Line("levels", "at_level", width=3, marker="o", label="{name}", direct=True),
            ),
        ),
        Panel(
            "Probabilities in one replica at step {step:d}",
            _ACTION,
            Axis("probability", 0, 1.02),
            (
                Bars("actions", "probs", where="is_other", colour="grey", label="other action"),
                Bars("actions", "probs", where="is_good", fill="hatch", label="good action", when="has_good"),
            ),
        ),
    ),
    controls={
        "reward": Choice({name: name for name in REWARDS}, "3 good of 20", "reward", picks=True),
        "updates_per_rollout": Slider(stops=(1, 2, 4, 8, 16), value=4, label="updates per rollout"),
        "step": Slider(0, STEPS, 1, 12, "step", plays=True),
        "beside": Beside(1, value=(DAPO.name,)),
        "group_size": Slider(stops=(2, 4, 8, 16, 32, 64), value=8, label="group size G", rare=True),
        "lr": Slider(stops=(0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0), value=0.5, label="learning rate", rare=True),
        "temperature": Slider(stops=(0.5, 0.7, 1.0, 1.4, 2.0), value=1.0, label="temperature", rare=True),
        "entropy_weight": Slider(
            stops=(0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), value=0.0, label="entropy bonus", rare=True
        ),
        "kl_weight": Slider(stops=(0.0, 0.01, 0.04, 0.1, 0.3, 1.0), value=0.0, label="KL to the start", rare=True),
    },
    conclusion=(
        Say("The table trains: step {trained:d} of 60.", "!left_there"),
        Say(
            "At step {step:d} {name}'s entropy is {left:.2f} nats, {begun:.2f} at first, at accuracy {right:.2f}; "
            "{b1_name}: {b1_left:.2f}, at {b1_right:.2f}.",
            "b1_left_there",
        ),
        Say("At step {step:d} {name}'s entropy is {left:.2f} nats, {begun:.2f} at first, at accuracy {right:.2f}."),
    ),
    says=(
        Say(
            "{name}: from {begun:.2f} to {end:.2f} nats after 60 steps (middle 80 % of 16 replicas: {end_low:.2f} to "
            "{end_high:.2f}), accuracy {end_right:.2f}.",
            "done",
        ),
        Say(
            "{b1_name}: from {b1_begun:.2f} to {b1_end:.2f} nats after 60 steps (middle 80 % of 16 replicas: {b1_end_low:.2f} to "
            "{b1_end_high:.2f}), accuracy {b1_end_right:.2f}.",
            "b1_done",
        ),
        Say(
            "The reward is pure chance: nothing can be learned, so no accuracy is reached below left, and the entropy falls all "
            "the same.",
            "reward=random",
        ),
        Say("When {name} first reaches accuracy {last_level:.2f}, its entropy is {at_last_level:.2f} nats.", "reached"),
        Say(
            "When {b1_name} first reaches accuracy {b1_last_level:.2f}, its entropy is {b1_at_last_level:.2f} nats.",
            "b1_reached",
        ),
        Say(
            "At step {step:d} of the replica shown the likeliest action is {likely:d}, with {highest:.2f}.",
            "left_there",
        ),
    ),
)

explore_entropy = explorer(
    "entropy",
    ENTROPY,
    entropy_curve,
    algorithms=Algorithms(has_groups, GRPO, WIDTHS),
    data=data,
    free=True,
    example=EXAMPLE,
    named={
        "three good actions of twenty": {},
        "a rare good action, 16 updates a rollout": {
            "reward": "rare good",
            "updates_per_rollout": 16,
            "beside": (DCPO,),
        },
        "a reward of pure chance": {"reward": "random", "updates_per_rollout": 8, "beside": (DCPO,)},
    },
)
