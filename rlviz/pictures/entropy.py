"""Whole training runs of a table of logits: what happens to entropy and accuracy, and to the probabilities themselves.

The page trains by the step of `rlviz.tabular`, through the algorithm's own objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import DCPO, GRPO, REINFORCE_PP, GroupPolicyGradient
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
    Points,
    Rule,
    Say,
    Slider,
    Text,
)
from rlviz.pictures.groups import LARGEST_GROUP
from rlviz.pictures.spec import WIDTHS, Algorithms, explorer
from rlviz.pictures.table import at_levels, has_groups, picture_rule, train_table_steps
from rlviz.pieces.kl import KLInLoss
from rlviz.pieces.values import entropy
from rlviz.tabular import TableRule, good_actions, grade_by_luck, random_reward, rare_good_action
from rlviz.types import Batch, TokenObjective

STEPS, REPLICAS = 60, 16
LEVELS = tuple(round(0.05 * i, 2) for i in range(1, 20))
REWARDS = {  # what there is to learn: the task, groups sampled in a step, and the actions that are (mostly) right
    "3 good of 20": (good_actions(3, 20), 1, (0, 1, 2)),
    "2 positions, both good": (good_actions(3, 10, positions=2), 1, (0, 1, 2)),
    "rare good": (rare_good_action(0.02), 4, (1,)),
    "random": (random_reward(20), 1, ()),
}


@dataclass(frozen=True)
class Training:
    """The curve: 16 replicas of a table, trained for 60 steps under an algorithm. Equal for equal algorithms.

    The picture's KL, a k3 term to the start, takes the place of the algorithm's.
    """

    algorithm: GroupPolicyGradient
    reward: str = field(default="", compare=False)  # is data, so that all rewards share a program
    rule: TableRule = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", picture_rule(self.algorithm))

    def __call__(
        self,
        group_size: Tensor,
        lr: Tensor,
        updates_per_rollout: Tensor,
        entropy_weight: Tensor,
        kl_weight: Tensor,
        step: Tensor,
        start: Tensor,
        success: Tensor,
        draws: Tensor,
        luck: Tensor,
        **widths: Tensor,
    ) -> dict[str, Tensor]:
        """Return `learning_curves`; the arguments are those of `logits`."""
        run = lr, updates_per_rollout, entropy_weight, kl_weight, start, success, draws, luck
        return learning_curves(self.logits(*run, in_slices=True, **widths), success, step)

    def logits(
        self,
        lr: Tensor,
        updates_per_rollout: Tensor,
        entropy_weight: Tensor,
        kl_weight: Tensor,
        start: Tensor,
        success: Tensor,
        draws: Tensor,
        luck: Tensor,
        *,
        in_slices: bool,
        **widths: Tensor,
    ) -> Tensor:
        """Return the logits before training and after each step, [S + 1, R, T, A]; in_slices: whether a page trains bit by bit.

        start: logits [T, A]. success: of each action, [A]. draws [S, R, T · K, G] and luck [S, R, K, G]: what chance gives.
        """
        now, to_start = with_tensors(self.rule.algorithm, widths), KLInLoss(beta=1.0)
        positions, actions = start.shape
        begin = start.expand(REPLICAS, 1, positions, actions)

        def objective(logp: Tensor, batch: Batch) -> TokenObjective:
            part = now.objective(logp, batch)
            assert batch.ref_logp is not None
            return replace(part, value=part.value - kl_weight * to_start(logp, batch.ref_logp))

        after = train_table_steps(
            self.rule,
            begin,
            STEPS,
            draws=lambda place: draws[place].reshape(REPLICAS, 1, positions, -1),
            grade=lambda place, actions: grade_by_luck(success, luck[place], actions),
            updates=updates_per_rollout,
            observe=lambda logits, rollout: logits.flatten(1),
            groups=luck.shape[2],
            in_slices=in_slices,
            rate=lr,
            objective=objective,
            entropy_weight=entropy_weight,
        )
        return torch.cat([begin.flatten(1).unsqueeze(0), after]).view(STEPS + 1, REPLICAS, positions, actions)


def learning_curves(logits: Tensor, success: Tensor, step: Tensor) -> dict[str, Tensor]:
    """Return entropy and accuracy by step, and the first replica's probabilities at one, of logits [S + 1, R, T, A].

    Of replicas the mean and the middle 80 %. While a page still trains, later steps are NaN and `now` is the last one done.
    """
    log_probs = torch.log_softmax(logits, -1)
    nats, right = entropy(log_probs).mean(-1), (log_probs.exp() * success).sum(-1).prod(-1)  # [S + 1, R]
    curves = {"at_level": at_levels(nats, right, torch.tensor(LEVELS, dtype=torch.double))}
    for name, values in (("entropy", nats), ("accuracy", right)):
        low, high = (torch.quantile(values, q, 1) for q in (0.1, 0.9))
        curves |= {name: values.mean(1), f"{name}_low": low, f"{name}_high": high}
    now = torch.minimum(step, curves["entropy"].isfinite().sum() - 1.0).long()
    curves |= {f"{name}_now": curves[name][now] for name in ("entropy", "accuracy")}
    return curves | {"now": now.double(), "entropy_first": curves["entropy"][0], "probs": log_probs[:, 0, 0].exp()[now]}


def data(algorithm: GroupPolicyGradient, reward: str) -> dict[str, Any]:
    """Return the data of a reward: the table before training, the actions that are right, and the recipes of chance."""
    task, groups, good = REWARDS[reward]
    actions = len(task.success)
    start = torch.zeros(1, actions, dtype=torch.double)
    if task.start is not None:
        start = torch.tensor(task.starts, dtype=torch.double).log()
    is_good = [float(action in good) for action in range(actions)]
    return {
        "start": start.expand(task.positions, actions),
        "success": torch.tensor(task.success, dtype=torch.double),
        "draws": Draws("uniform", (STEPS, REPLICAS, task.positions * groups, "group_size"), 1, LARGEST_GROUP),
        "luck": Draws("uniform", (STEPS, REPLICAS, groups, "group_size"), 2, LARGEST_GROUP),
        "actions": list(range(1, actions + 1)),
        "is_good": is_good,
        "is_other": [1 - flag for flag in is_good],
        "has_good": float(any(good)),
        "last_action": actions + 0.7,
        "most": 1.05 * math.log(actions),
    }


EXAMPLE = {  # sizes that are independent, and none of them 1
    "group_size": 7,
    "start": torch.linspace(0, 1, 33, dtype=torch.double).view(3, 11),
    "success": torch.linspace(0, 1, 11, dtype=torch.double),
    "draws": Draws("uniform", (STEPS, REPLICAS, 3 * 5, "group_size"), 1),
    "luck": Draws("uniform", (STEPS, REPLICAS, 5, "group_size"), 2),
}


def curve_marks(name: str) -> tuple[Mark, ...]:
    """Return a line with the middle 80 % of replicas, of the chosen algorithm and of the one beside it, and the step."""
    return (
        Area("steps", f"{name}_low", f"{name}_high", label="middle 80 % of replicas"),
        Area("steps", f"b1_{name}_low", f"b1_{name}_high", colour="vermilion", when="b1_name"),
        Rule("step", drag="step", colour="ink"),
        _line_beside("steps", f"b1_{name}"),
        Line("steps", name, width=3, label="{name}", direct=True),
    )


def _line_beside(x: str, y: str, marker: str = "") -> Line:
    return Line(x, y, "5 3", marker=marker, colour="vermilion", when="b1_name", label="{b1_name}", direct=True)


_STEP = Axis("step", -1, STEPS + 1, whole=True)
_ENTROPY = Axis("entropy, nats", 0, "most")
_NOW = "From {entropy_first:.2f} nats {name}'s entropy goes to {entropy_now:.2f} (accuracy {accuracy_now:.2f}, step {now:d})"
ENTROPY = Picture(
    title="What happens to the entropy while a policy learns?",
    look="Drag the step: GRPO settles on one of three good actions. Then raise its KL to the start.",
    notice="REINFORCE++ pays for leaving the start, so it does not settle on one. Compare two algorithms at the same "
    "accuracy rather than at the same step.",
    alt="Four graphs of a table of logits in training: entropy against the step, accuracy against the step, entropy against "
    "accuracy, and the actions' probabilities at one step.",
    panels=(
        Panel("Entropy of the policy", _STEP, _ENTROPY, curve_marks("entropy")),
        Panel("What is learned", _STEP, Axis("accuracy", 0, 1.02), curve_marks("accuracy")),
        Panel(
            "Entropy at equal accuracy",
            Axis("accuracy", 0, 1),
            _ENTROPY,
            (
                Text("a reward of chance: no accuracy to reach", corner="nw", when="reward=random"),
                _line_beside("levels", "b1_at_level", "s"),
                Line("levels", "at_level", width=3, marker="o", label="{name}", direct=True),
            ),
        ),
        Panel(
            "Probabilities in one replica at step {now:d}",
            Axis("action", 0.3, "last_action", whole=True),
            Axis("probability", 0, 1.02),
            (
                Bars("actions", "probs", where="is_other", colour="grey", label="{name}, other action"),
                Bars("actions", "probs", where="is_good", fill="hatch", label="{name}, good action", when="has_good"),
                Points("actions", "b1_probs", "D", 7, "none", colour="vermilion", when="b1_name", label="{b1_name}"),
            ),
        ),
    ),
    controls={
        "reward": Choice({name: name for name in REWARDS}, "3 good of 20", "reward", picks=True),
        "updates_per_rollout": Slider(stops=(1, 2, 4, 8, 16), value=4, label="updates per rollout"),
        "step": Slider(0, STEPS, 1, STEPS, "step", plays=True),
        "kl_weight": Slider(stops=(0.0, 0.01, 0.04, 0.1, 0.3, 1.0), label="KL to the start"),
        "beside": Beside(1, value=(REINFORCE_PP.name,)),
        "group_size": Slider(stops=(2, 4, 8, 16, 32, 64), value=8, label="group size G", rare=True),
        "lr": Slider(stops=(0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0), value=0.5, label="learning rate", rare=True),
        "entropy_weight": Slider(stops=(0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), label="entropy bonus", rare=True),
    },
    data={"steps": list(range(STEPS + 1)), "levels": list(LEVELS)},
    conclusion=(
        Say(
            f"{_NOW}, {{b1_name}}'s to {{b1_entropy_now:.2f}} (accuracy {{b1_accuracy_now:.2f}}, step {{b1_now:d}}).",
            "b1_entropy_first",
        ),
        Say(f"{_NOW}."),
    ),
)

explore_entropy = explorer(
    "entropy",
    ENTROPY,
    Training,
    algorithms=Algorithms(has_groups, GRPO, WIDTHS),
    data=data,
    free=True,
    example=EXAMPLE,
    named={
        "three good of twenty": {},
        "a rare good action": {"reward": "rare good", "updates_per_rollout": 16, "beside": (DCPO,)},
        "a reward of pure chance": {"reward": "random", "updates_per_rollout": 8, "beside": (DCPO,)},
    },
)
