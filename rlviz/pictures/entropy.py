"""Whole training runs of a table of logits: what happens to entropy and accuracy, and to the probabilities themselves."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from rlviz.algorithms import DAPO, DCPO, GRPO, Algorithm, GroupPolicyGradient
from rlviz.pictures.arguments import Menu, Second, Stops, WholeSlider
from rlviz.pictures.arrays import Array, remembered
from rlviz.pictures.base import BLUE, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.explore import WIDTHS, Algorithms, explorer, with_given
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.kl import KLInLoss
from rlviz.tabular import TableTask, good_actions, random_reward, rare_good_action, train_table
from small_models.checks import checked

STEPS, REPLICAS = 60, 16
LEVELS = np.linspace(0.05, 0.95, 19)


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


@dataclass(frozen=True)
class TableHistory:
    """One algorithm's runs. R replicas, S steps.

    entropy (nats), accuracy: [R, S + 1]. levels: accuracies; entropy_at_level: mean entropy where a replica first reached
    each, NaN where fewer than half of them did, or all began above. probs: [S + 1, actions], of the first replica's first
    position.
    """

    name: str
    entropy: Array
    accuracy: Array
    levels: Array
    entropy_at_level: Array
    probs: Array


@dataclass(frozen=True)
class EntropyCurve:
    """What `explore_entropy` shows. histories: of the explored algorithm, then of the one beside it, if any.

    step: whose probabilities are shown. good: the actions that are right, or mostly. reward: which reward was given.
    """

    histories: tuple[TableHistory, ...]
    step: int
    good: tuple[int, ...]
    reward: str


@checked
def entropy_curve(
    algorithm: GroupPolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    reward: Literal["3 good of 20", "2 positions, both good", "rare good", "random"] = "3 good of 20",
    group_size: int = 8,
    lr: float = 0.5,
    updates_per_rollout: int = 4,
    temperature: float = 1.0,
    entropy_weight: float = 0.0,
    kl_weight: float = 0.0,
    beside: GroupPolicyGradient | None = None,
    step: int = STEPS,
) -> EntropyCurve:
    """Train 16 replicas of a table for 60 steps under an algorithm, and under one beside it, with the same seed.

    Every algorithm aggregates by the token mean: a table's responses all have the same length, so its own aggregation would only
    be a factor on the learning rate.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. reward: one of `REWARDS`: "3 good of 20" actions;
    "2 positions, both good" of 10 actions each; "rare good": a rare action that is right 9 times in 10 and a common one that is
    right once; "random": every response right with probability ½. group_size, lr, updates_per_rollout, temperature: of the
    training. entropy_weight: of an entropy bonus. kl_weight: β of a k3 term to the start, in place of the algorithm's; 0: none.
    beside: a second algorithm under the same settings. step: whose probabilities the bars show.
    Raises ValueError for an unknown reward, a step outside 0 to 60, what `train_table` refuses, and an algorithm that needs a
    critic, pairs or rewards of single steps.
    """
    algorithm = with_given(algorithm, eps_low=eps_low, eps_high=eps_high, max_ratio=max_ratio)
    if not 0 <= step <= STEPS:
        raise ValueError(f"step must be from 0 to {STEPS}; got {step}")
    lesson = REWARDS[reward]
    every = [algorithm] if beside is None else [algorithm, beside]
    for each in every:
        if not has_groups(each):
            raise ValueError(f"algorithm: {each.name} does not learn from groups with one reward a response")
    kl = KLInLoss(beta=kl_weight) if kl_weight else None
    settings = (group_size, lr, updates_per_rollout, temperature, entropy_weight)
    histories = [
        _train(replace(each, kl=kl, aggregate=token_mean), lesson.task, lesson.groups, *settings) for each in every
    ]
    return EntropyCurve(tuple(histories), step, lesson.good, reward)


def has_groups(algorithm: Algorithm) -> bool:
    """Return whether a table can be trained with it: groups of responses with one reward each, and no teacher."""
    return (
        isinstance(algorithm, GroupPolicyGradient)
        and not algorithm.asks_for("advantage", "step_ends")
        and not algorithm.can.from_teacher
    )


@remembered(maxsize=256)  # a slider that goes back, or a step slider, trains nothing again; 30 kB each
def _train(
    algorithm: GroupPolicyGradient,
    task: TableTask,
    groups: int,
    group_size: int,
    lr: float,
    updates_per_rollout: int,
    temperature: float,
    entropy_weight: float,
) -> TableHistory:
    run = train_table(
        algorithm,
        task,
        steps=STEPS,
        groups=groups,
        group_size=group_size,
        lr=lr,
        updates_per_rollout=updates_per_rollout,
        temperature=temperature,
        entropy_weight=entropy_weight,
        replicas=REPLICAS,
    )
    at = np.stack([run.entropy_at_accuracy(level) for level in LEVELS])
    enough = (np.isfinite(at).mean(1) >= 0.5) & (run.accuracy[:, 0].max() < LEVELS)
    means = np.full(len(LEVELS), np.nan)
    means[enough] = np.nanmean(at[enough], axis=1)
    return TableHistory(algorithm.name, run.entropy, run.accuracy, LEVELS, means, run.probabilities[0, :, 0, 0].copy())


NOTHING = "no accuracy above the first\nis reached by half of the replicas"
STYLES = ((BLUE, "-", LINE + 0.5), (VERMILION, "--", LINE))  # of the explored algorithm, of the one beside it


class _Bands:
    """Means over replicas as lines, with a band from the 10th to the 90th percentile, of up to two algorithms."""

    def __init__(self, ax: Axes) -> None:
        self.ax = ax
        self.lines = [ax.plot([], [], color=c, linestyle=s, linewidth=w)[0] for c, s, w in STYLES]
        self.bands = [PolyCollection([], facecolor=c, alpha=0.18, linewidth=0) for c, _, _ in STYLES]
        for band in self.bands:
            ax.add_collection(band, autolim=False)

    def show(self, values: list[Array]) -> None:
        for place, (line, band) in enumerate(zip(self.lines, self.bands, strict=True)):
            if place >= len(values):
                line.set_data([], [])
                band.set_verts([])
                continue
            steps = np.arange(values[place].shape[1])
            low, high = np.percentile(values[place], [10, 90], axis=0)
            line.set_data(steps, values[place].mean(0))
            band.set_verts([np.column_stack([np.r_[steps, steps[::-1]], np.r_[low, high[::-1]]])])


class EntropyPicture(Picture[EntropyCurve]):
    """Four panels of a table in training: entropy, accuracy, one against the other, and the probabilities at a step."""

    size = (10, 4.7)
    alt = (
        "Four graphs of a table of logits in training: entropy against the step, accuracy against the step, entropy "
        "against accuracy, and bars of the actions' probabilities at one step."
    )

    def draw(self, curve: EntropyCurve) -> list[Artist]:
        (up_left, up_right), (down_left, down_right) = self.figure.subplots(2, 2)
        dress(up_left, title="What is left of the entropy", x="step", y="nats")
        dress(up_right, title="What is learned", x="step", y="accuracy")
        dress(down_left, title="Entropy when an accuracy is first reached", x="accuracy", y="nats")
        dress(down_right, title="Probabilities in one replica, at the step", x="action", y="probability")
        for ax in (up_left, up_right):
            ax.set_xlim(-1, curve.histories[0].entropy.shape[1])  # so that the step is seen at both ends
        for ax in (up_right, down_right):
            ax.set_ylim(0, 1.02)
        down_left.set_xlim(0, 1)
        self.entropy, self.accuracy = _Bands(up_left), _Bands(up_right)
        self.at = [
            ax.axvline(0, color="black", linestyle=":", linewidth=2.5, label="the step") for ax in (up_left, up_right)
        ]
        self.against = [
            down_left.plot([], [], color=c, linestyle=s, linewidth=w, marker=m, markersize=6)[0]
            for (c, s, w), m in zip(STYLES, "os", strict=True)
        ]
        self.others = PolyCollection([], facecolor=GREY, edgecolor="white", linewidth=0.5)
        self.good = PolyCollection([], facecolor=BLUE, edgecolor="white", linewidth=0.5, hatch="//")
        for bars in (self.others, self.good):
            down_right.add_collection(bars, autolim=False)
        self.bars, self.heights = down_right, (up_left, down_left)
        self.nothing = down_left.text(0.5, 0.45, NOTHING, transform=down_left.transAxes, fontsize=TEXT, ha="center")
        self.legend = self.figure.legend(
            [self.entropy.lines[0], self.entropy.lines[1], self.entropy.bands[0], self.at[0], self.good, self.others],
            ["", "", _middle(curve.histories[0]), "the step", "good action", "other action"],
            loc="outside lower center",
            ncols=6,
            fontsize=TEXT - 1,
            frameon=False,
            columnspacing=1.2,
            handlelength=1.6,
        )
        moving = [*self.entropy.bands, *self.accuracy.bands, *self.at, *self.entropy.lines, *self.accuracy.lines]
        return [*moving, *self.against, self.nothing, self.others, self.good]

    def show(self, curve: EntropyCurve) -> None:
        histories = curve.histories
        actions = histories[0].probs.shape[1]
        for ax in self.heights:
            ax.set_ylim(0, 1.05 * math.log(actions))
        self.bars.set_xlim(0.3, actions + 0.7)
        self.bars.set_xticks(range(1, actions + 1, 1 if actions < 12 else 3))
        self.entropy.show([history.entropy for history in histories])
        self.accuracy.show([history.accuracy for history in histories])
        for line in self.at:
            line.set_xdata([curve.step, curve.step])
        for line in self.against[len(histories) :]:
            line.set_data([], [])
        for line, history in zip(self.against, histories, strict=False):
            line.set_data(history.levels, history.entropy_at_level)
        self.nothing.set_visible(not any(np.isfinite(history.entropy_at_level).any() for history in histories))
        probs = histories[0].probs[curve.step]
        for bars, good in ((self.good, True), (self.others, False)):
            chosen = [a for a in range(actions) if (a in curve.good) == good]
            bars.set_verts([[(a + 0.6, 0), (a + 0.6, probs[a]), (a + 1.4, probs[a]), (a + 1.4, 0)] for a in chosen])
        names = [history.name for history in histories]
        for handle, text, name in zip(
            self.legend.legend_handles, self.legend.get_texts(), [*names, " "][:2], strict=False
        ):
            text.set_text(name)
            if handle is not None:
                handle.set_visible(bool(name.strip()))

    def still(self, curve: EntropyCurve) -> Hashable:
        return curve.histories[0].probs.shape[1], tuple(history.name for history in curve.histories)

    def handles(self, curve: EntropyCurve) -> list[Handle]:
        return [Handle(line.axes, "x", curve.step, "step") for line in self.at if line.axes is not None]

    def conclusion(self, curve: EntropyCurve) -> str:
        first, *others = (
            (history.name, history.entropy[:, curve.step].mean(), history.accuracy[:, curve.step].mean())
            for history in curve.histories
        )
        begun = curve.histories[0].entropy[:, 0].mean()
        beside = "".join(f"; {name} has {entropy:.2f}, at {accuracy:.2f}" for name, entropy, accuracy in others)
        return (
            f"At step {curve.step} {first[0]} has {first[1]:.2f} of {begun:.2f} nats of entropy left, at accuracy {first[2]:.2f}"
            f"{beside}."
        )

    def words(self, curve: EntropyCurve) -> str:
        said = [_say_run(history) for history in curve.histories]
        if not curve.good:
            said.append(
                "The reward is pure chance: nothing can be learned, so no accuracy is reached below left, and the entropy "
                "falls all the same."
            )
        else:
            said.append(_say_matched(curve.histories))
        first = curve.histories[0].probs[curve.step]
        likely = int(first.argmax())
        said.append(
            f"At step {curve.step} of the replica shown the likeliest action is {likely + 1}, with {first[likely]:.2f}."
        )
        return " ".join(said)


def _say_run(history: TableHistory) -> str:
    end = history.entropy[:, -1]
    low, high = np.percentile(end, [10, 90])
    return (
        f"{history.name}: from {history.entropy[:, 0].mean():.2f} to {end.mean():.2f} nats after {history.entropy.shape[1] - 1} "
        f"steps ({_middle(history)}: {low:.2f} to {high:.2f}), accuracy {history.accuracy[:, -1].mean():.2f}."
    )


def _middle(history: TableHistory) -> str:
    return f"middle 80 % of {len(history.entropy)} replicas"


def _say_matched(histories: tuple[TableHistory, ...]) -> str:
    reached = np.all([np.isfinite(history.entropy_at_level) for history in histories], axis=0)
    if not reached.any():
        return "No accuracy above the start is reached by half of the replicas."
    place = int(np.flatnonzero(reached)[-1])
    level = histories[0].levels[place]
    each = " and ".join(f"{history.entropy_at_level[place]:.2f} ({history.name})" for history in histories)
    return f"When accuracy {level:.2f} is first reached, the entropy is {each}."


explore_entropy = explorer(
    "entropy",
    entropy_curve,
    EntropyPicture,
    algorithms=Algorithms(fits=has_groups, parameters=WIDTHS),
    controls={
        "reward": Menu({name: name for name in REWARDS}, "reward"),
        "group_size": Stops((2, 4, 8, 16, 32, 64), "group size", rare=True),
        "lr": Stops((0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0), "learning rate", rare=True),
        "updates_per_rollout": Stops((1, 2, 4, 8, 16), "updates per rollout"),
        "temperature": Stops((0.5, 0.7, 1.0, 1.4, 2.0), "temperature", rare=True),
        "entropy_weight": Stops((0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "entropy bonus", rare=True),
        "kl_weight": Stops((0.0, 0.01, 0.04, 0.1, 0.3, 1.0), "KL to the start", rare=True),
        "beside": Second(has_groups),
        "step": WholeSlider(0, STEPS, "step of the bars"),
    },
    grid={"algorithm": (GRPO, DAPO), "updates_per_rollout": (1, 4, 16), "step": tuple(range(0, STEPS + 1, 3))},
    twin={
        "three good actions of twenty": {"beside": DAPO},
        "a rare good action, 16 updates a rollout": {"reward": "rare good", "updates_per_rollout": 16, "beside": DCPO},
        "a reward of pure chance": {"reward": "random", "updates_per_rollout": 8, "beside": DCPO},
    },
)
