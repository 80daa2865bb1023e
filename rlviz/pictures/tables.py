"""The tabular playground: any group algorithm trains 16 tables of logits at once, with the settings of a regime map's cell.

A response is an action at each position, of twenty: one common good action, ten rare ones, nine wrong ones. A map links here with
the settings of its cell, and what it found there (`map_of`, `map_at`, `map_mine`, `map_other`) stands beside what this run gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlviz.algorithms import ALGORITHMS, DAPO, DCPO, DUPO, GRPO, GSPO, RELATIVES, GroupPolicyGradient
from rlviz.page.picture import Axis, Beside, Choice, Draws, Line, Panel, Picture, Points, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.entropy import LEVELS, REPLICAS, Training, at_levels, has_groups, histories, lines_of
from rlviz.pictures.groups import LARGEST_GROUP
from rlviz.pictures.idea import WIDTHS, Algorithms, explorer
from rlviz.pieces.values import entropy
from rlviz.study.cells import RARE_WAYS, WRONG_WAYS
from rlviz.study.maps import borrow

STEPS = 80
APART = 1e-9  # accuracies begin so far above a stop such as .85, which is a level, too: rounding shall not say which is more
BORROWED = {  # what the maps compare with GRPO: one slot of another algorithm; as Python writes it
    f'borrow({python}, GRPO, ["{slot}"])': borrow(algorithm, GRPO, [slot])
    for python, algorithm, slot in (
        ("DCPO", DCPO, "bounds"),
        ("DAPO", DAPO, "bounds"),
        ("GSPO", GSPO, "ratio"),
        ("DUPO", DUPO, "select"),
    )
}
OF_MAPS = ("none", "accuracy", "entropy", "rollouts")  # measures of a map that a run here can be held against


def start_of(success: Tensor, rare: Tensor, positions: Tensor) -> Tensor:
    """Return the probabilities of the twenty actions at first, [20], as `table_task` of the maps has them for one prompt."""
    right = success ** (1 / positions)
    ways = [(right * (1 - rare)).view(1), (right * rare / RARE_WAYS).expand(RARE_WAYS)]
    return torch.cat([*ways, ((1 - right) / WRONG_WAYS).expand(WRONG_WAYS)])


def paid(good: Tensor, noise: Tensor, positions: Tensor) -> Tensor:
    """Return each action's probability of passing the check: by a coin's throw of a share `noise`, half of all responses pass."""
    return (1 - noise) * good + noise * 0.5 ** (1 / positions)


@dataclass(frozen=True)
class InATable:
    """The curve: `Training` of an algorithm on such a table. Equal for equal algorithms."""

    training: Training

    def __call__(
        self,
        group_size: Tensor,
        lr: Tensor,
        updates_per_rollout: Tensor,
        kl_weight: Tensor,
        step: Tensor,
        success: Tensor,
        rare: Tensor,
        noise: Tensor,
        positions: Tensor,
        map_of: Tensor,
        map_at: Tensor,
        good: Tensor,
        draws: Tensor,
        luck: Tensor,
        **widths: Tensor,
    ) -> dict[str, Tensor]:
        """Return lines of entropy and accuracy, the entropy at accuracies, and the map's measure of this run.

        good: 1 for the right actions, [A]. draws [S, R, T, K, G], luck [S, R, K, G]: what chance gives.
        """
        start = start_of(success, rare, positions).log().expand(draws.shape[2], good.shape[0])
        one, none = torch.ones_like(lr), torch.zeros_like(lr)
        how = (lr, updates_per_rollout, one, none, kl_weight)
        logits = self.training.run(*how, start, paid(good, noise, positions), draws, luck, **widths)
        log_probs = torch.log_softmax(logits, -1)
        left, right = entropy(log_probs).mean(-1), (log_probs.exp() * good).sum(-1).prod(-1)  # [S + 1, R]
        lines = histories(left, right)
        right = torch.cat([right[:1] + APART, right[1:]])
        levels = torch.tensor(LEVELS, dtype=torch.double)
        here = _measured(left, right, map_of, map_at)
        end = {f"end_{name}": lines[name][-1] for name in ("entropy", "accuracy")}
        at = {f"{name}_at": lines[name][step.long()] for name in ("entropy", "accuracy")}
        done = end["end_entropy"].isfinite()
        return {
            **lines,
            **end,
            **at,
            "levels": levels,
            "at_level": at_levels(left, right, levels),
            "most": 1.05 * torch.full_like(step, good.shape[0]).log(),
            "there": at["entropy_at"].isfinite().double(),
            "trained": lines["entropy"].isfinite().sum() - 1.0,
            "done": done.double(),
            "here": here,
            "compared": (done & here.isfinite() & (map_of > 0)).double(),
            "missed": (done & ~here.isfinite() & (map_of > 0)).double(),
        }


def _measured(left: Tensor, right: Tensor, map_of: Tensor, map_at: Tensor) -> Tensor:
    """Return a map's measure of a run: accuracy after map_at rollouts; entropy at accuracy map_at, or rollouts to it."""
    after = right.mean(1)[map_at.clamp(max=STEPS).long()]
    reached = right >= map_at
    first = torch.where(reached.any(0), reached.double().argmax(0), STEPS).double().mean()
    first = torch.where(right[-1].isfinite().all(), first, torch.nan)
    found = torch.stack([torch.full_like(after, torch.nan), after, at_levels(left, right, map_at.view(1))[0], first])
    return found[map_of.long()]


def tables_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the training of the algorithm on the table."""
    return InATable(Training(algorithm, STEPS))


def _of_map(measure: str, *, turned: bool = False) -> tuple[Points, ...]:
    """Return what the map found, as points: at map_at of the panel's x, or of its y where turned."""
    points = []
    for name, colour in (("map_mine", "blue"), ("map_other", "vermilion")):
        x, y = (name, "map_at") if turned else ("map_at", name)
        points.append(
            Points(x, y, "D", 12, "none", colour=colour, when=f"map_of={measure}", label="the map", direct=True)
        )
    return tuple(points)


_STEP = Axis("step", -1, STEPS + 1, whole=True)
_SUCCESS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 0.85)
_HIDDEN = "never"
TABLES = Picture(
    title="Which algorithm learns this table, and what is left of its entropy?",
    look="Choose an algorithm and one beside it; then make success rare, rewards noisy, or use each rollout more often.",
    notice="16 tables train side by side, each with chances of its own: the band is the middle 80 % of them. Two algorithms "
    "whose bands lie over each other do not differ here.",
    alt="Three graphs of tables of logits in training: accuracy against the step, entropy against the step, entropy against "
    "accuracy.",
    panels=(
        Panel(
            "What is learned",
            _STEP,
            Axis("accuracy", 0, 1.02),
            (*lines_of("accuracy"), *_of_map("accuracy"), *_of_map("rollouts", turned=True)),
        ),
        Panel("Entropy of the policy", _STEP, Axis("entropy, nats", 0, "most"), lines_of("entropy")),
        Panel(
            "Entropy when an accuracy is first reached",
            Axis("accuracy", 0, 1),
            Axis("entropy, nats", 0, "most"),
            (
                Line(
                    "b1_levels",
                    "b1_at_level",
                    "5 3",
                    marker="s",
                    label="{b1_name}",
                    direct=True,
                    colour="vermilion",
                    when="b1_name",
                ),
                Line("levels", "at_level", width=3, marker="o", label="{name}", direct=True),
                *_of_map("entropy"),
            ),
        ),
    ),
    controls={
        "beside": Beside(1, value=(DCPO.name,)),
        "updates_per_rollout": Slider(stops=(1, 2, 4, 8, 16, 32), value=4, label="updates per rollout"),
        "group_size": Slider(stops=(2, 4, 8, 16, 32, 64), value=8, label="group size G"),
        "groups": Slider(stops=(1, 2, 4, 8, 16, 32), value=4, label="groups in a rollout"),
        "lr": Slider(stops=(0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0), value=1.0, label="learning rate"),
        "kl_weight": Slider(stops=(0.0, 0.01, 0.04, 0.1, 0.3, 1.0), value=0.0, label="β, KL to the start", rare=True),
        "success": Slider(stops=_SUCCESS, value=0.1, label="success rate at first"),
        "rare": Slider(
            stops=(0.05, 0.1, 0.25, 0.5, 0.75, 0.9), value=0.75, label="share of rare good actions", rare=True
        ),
        "noise": Slider(stops=(0.0, 0.2, 0.4, 0.6, 0.8, 0.9), value=0.0, label="noise of the reward", rare=True),
        "positions": Slider(stops=(1, 2, 3, 4, 6, 8), value=1, label="length of a response", rare=True),
        "step": Slider(0, STEPS, 1, 8, "step", plays=True),
        "map_of": Choice({name: name for name in OF_MAPS}, OF_MAPS[0], "measure of the map", when=_HIDDEN),
        "map_at": Slider(0.0, STEPS, 0.01, 0.0, "where the map measured", when=_HIDDEN),
        "map_mine": Slider(0.0, STEPS, 1e-6, 0.0, "the map's number", when=_HIDDEN),
        "map_other": Slider(0.0, STEPS, 1e-6, 0.0, "the map's number for the other", when=_HIDDEN),
    },
    conclusion=(
        Say("The tables train: step {trained:d} of 80.", "!there"),
        Say(
            "The map's 64 tables: {map_mine:.3g} against {map_other:.3g} ({map_of}). These 16: {name} {here:.3g}, {b1_name} "
            "{b1_here:.3g}.",
            "b1_compared",
        ),
        Say(
            "At step {step:d} the accuracy is {accuracy_at:.2f} under {name}, {b1_accuracy_at:.2f} under {b1_name}.",
            "b1_there",
        ),
        Say("At step {step:d} the accuracy is {accuracy_at:.2f}, the entropy {entropy_at:.2f} nats."),
    ),
    says=(
        Say("{name}: accuracy {end_accuracy:.2f} after 80 steps, entropy {end_entropy:.2f} nats.", "done"),
        Say("{b1_name}: accuracy {b1_end_accuracy:.2f}, entropy {b1_end_entropy:.2f} nats.", "b1_done"),
        Say("The map measured this where fewer than half of these 16 tables come.", "missed"),
        Say(
            "16 tables stray further from the mean than the map's 64: one standard error is twice as wide. Both train by plain "
            "gradient ascent at one learning rate, and aggregate by the token mean.",
            "compared",
        ),
        Say(
            "A response is one of twenty actions at each position: one common good one, ten rare ones, nine wrong ones."
        ),
    ),
)

TRAINED = Algorithms(
    has_groups,
    GRPO,
    WIDTHS,
    among=(*ALGORITHMS, *BORROWED.values(), *RELATIVES),
    written={algorithm.name: python for python, algorithm in BORROWED.items()},
)

explore_tables = explorer(
    "tables",
    TABLES,
    tables_curve,
    algorithms=TRAINED,
    data=lambda algorithm: {
        "good": torch.tensor([1.0] * (1 + RARE_WAYS) + [0.0] * WRONG_WAYS, dtype=torch.double),
        "draws": Draws("uniform", (STEPS, REPLICAS, "positions", "groups", "group_size"), 1, LARGEST_GROUP),
        "luck": Draws("uniform", (STEPS, REPLICAS, "groups", "group_size"), 2, LARGEST_GROUP),
    },
    free=True,
    example={  # sizes that are independent, and none of them 1
        "group_size": 7,
        "groups": 5,
        "positions": 3,
        "draws": Draws("uniform", (STEPS, REPLICAS, 3, 5, "group_size"), 1),
        "luck": Draws("uniform", (STEPS, REPLICAS, 5, "group_size"), 2),
    },
    named={
        "rare good actions": {},
        "a noisy reward": {"noise": 0.8, "success": 0.4, "beside": (DAPO,)},
        "eight positions": {"positions": 8, "groups": 2, "success": 0.4, "updates_per_rollout": 16, "beside": (GSPO,)},
    },
)
