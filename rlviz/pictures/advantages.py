"""What a response's luck in its group does to its advantage: distribution, groups without any, error against group size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from matplotlib.ticker import MultipleLocator, NullLocator
from torch import Tensor

from rlviz.algorithms import DCPO, DR_GRPO, GRPO, GroupPolicyGradient
from rlviz.pictures.arguments import Menu, Slider, WholeSlider
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress, signed
from rlviz.pictures.explore import Algorithms, explorer
from rlviz.pictures.groups import SEED, coins, group_advantages, learns_from_a_group, noise, share_all_equal, without_kl
from rlviz.pieces.advantages import LeaveOneOut
from rlviz.pieces.words import label
from small_models.checks import checked

NOISE = 0.25  # standard deviation of a score around 0 or 1
GROUPS, FEWER = 1000, 256  # simulated at the setting; at each other point of a line
LARGE = 20_000  # responses of a very large group
POINTS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
SIZES = (2, 4, 8, 16, 32, 64)
BINS = 41  # odd: 0 is the middle of one
REACHES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)  # of the bins, whichever holds every advantage


@dataclass(frozen=True)
class AdvantagesCurve:
    """Advantages in simulated groups of one success rate p.

    name, rule: of the algorithm and its advantage. success_rate, group_size, visits, scores: the setting. remembers: whether
    the advantage asks for earlier visits. whole_batch: whether it depends on the other groups of the batch.
    edges [BINS + 1]: of the bins, in units of advantage. right, wrong, dead [BINS]: share of all responses in each bin: right
    and wrong ones, and those of dead groups, whose advantages are all 0. mean_right, mean_wrong: mean advantage of right and of
    wrong responses; equal_size: mean |A| in groups all right or all wrong; each None where there is no such response.
    rates [N], equal_share [N]: p and p^G + (1 − p)^G. points [M], dead_share [M]: success rates, and the share of groups that
    are dead when simulated there. equal_at, dead_at: both at success_rate.
    sizes [K]: group sizes. mean_error [K]: standard error of a group's mean reward. advantage_error [K]: root mean square
    distance of right responses' advantages from those they have in a very large group, which is `limit` for a reward of 1.
    mean_error_at, advantage_error_at: both at group_size. All means and errors count dead groups, too. groups: how many were
    simulated at the setting.
    """

    name: str
    rule: str
    success_rate: float
    group_size: int
    visits: int
    scores: bool
    remembers: bool
    whole_batch: bool
    edges: Array
    right: Array
    wrong: Array
    dead: Array
    mean_right: float | None
    mean_wrong: float | None
    equal_size: float | None
    rates: Array
    equal_share: Array
    points: Array
    dead_share: Array
    equal_at: float
    dead_at: float
    sizes: Array
    mean_error: Array
    advantage_error: Array
    mean_error_at: float
    advantage_error_at: float
    limit: float
    groups: int


@dataclass(frozen=True)
class _Groups:
    """How groups are simulated: an algorithm on its prompts' visit number `visits`, with outcomes or scores as rewards."""

    algorithm: GroupPolicyGradient
    visits: int
    scores: bool

    def draw(self, success_rate: float, group_size: int, groups: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return which responses are right, their rewards, their advantages; all [groups, group_size]."""
        visits = self.visits if self.algorithm.asks_for("advantage", "history") else 1
        part = (slice(visits), slice(None), slice(group_size))
        right = coins(groups)[part] < success_rate
        rewards = right.double() + NOISE * noise(groups)[part] if self.scores else right.double()
        now, *earlier = rewards
        return right[0], now, group_advantages(self.algorithm, now, earlier)

    def dead_share(self, success_rate: float, group_size: int) -> float:
        """Return the share of simulated groups whose advantages are all 0."""
        return float(_dead(self.draw(success_rate, group_size, FEWER)[2]).double().mean())

    def in_a_very_large_group(self, success_rate: float) -> tuple[Array, Array]:
        """Return rewards in rising order and the advantages that they have in a group of `LARGE` with exactly that rate."""
        right = torch.arange(LARGE) >= round((1 - success_rate) * LARGE)
        rewards = right.double().unsqueeze(0)
        if self.scores:
            generator = torch.Generator().manual_seed(SEED)
            rewards = rewards + NOISE * torch.randn(1, LARGE, generator=generator, dtype=torch.double)
        rewards = rewards.sort(1).values
        return array(rewards), array(group_advantages(self.algorithm, rewards, [rewards] * (self.visits - 1)))


def _error(right: Tensor, rewards: Tensor, advantages: Tensor, large: tuple[Array, Array]) -> float:
    """Return the root mean square distance of right responses' advantages from those in a very large group."""
    off = array(advantages[right]) - np.interp(array(rewards[right]), *large)
    return float(np.sqrt(np.mean(off**2)))


def _dead(advantages: Tensor) -> Tensor:
    return ~advantages.any(1)


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if values.numel() else None


@checked
def advantages_curve(
    algorithm: GroupPolicyGradient = GRPO,
    *,
    success_rate: float = 0.8,
    group_size: int = 8,
    rewards: Literal["outcome", "score"] = "outcome",
    visits: int = 1,
    rule: Literal["own", "leave_one_out"] = "own",
) -> AdvantagesCurve:
    """Return the advantages that an algorithm gives to groups of responses, drawn by coin with a fixed seed.

    The advantages of right and wrong responses over many groups, all of prompts with one success rate and in one batch, and those
    of dead groups, whose advantages are all 0. The share of dead groups against the success rate, by the formula and simulated.
    And two errors against group size: that of the group's mean, and that of a right response's advantage. Shaping, selection and
    KL are left out.

    success_rate: of each response, 0.01 to 0.99. group_size: responses to a prompt, 2 to 64. rewards: "outcome", 1 or 0 for
    right or wrong; "score", the same plus normal noise of standard deviation 0.25, as of a reward model. visits: which visit
    of its prompt the group is, 1 to 10; matters where the advantage has a memory, as DCPO's. rule: "own", the algorithm's
    advantage, or "leave_one_out" (RLOO) in its place.
    Raises ValueError for a value out of range, or an algorithm whose advantage needs more than rewards and their history.
    """
    algorithm = without_kl(algorithm, success_rate=success_rate, group_size=group_size, visits=visits)
    if rule == "leave_one_out":
        algorithm = replace(algorithm, advantage=LeaveOneOut())
    scores = rewards == "score"
    groups = _Groups(algorithm, visits, scores)

    right, drawn, advantages = groups.draw(success_rate, group_size, GROUPS)
    dead = _dead(advantages).unsqueeze(1).expand_as(right)
    kinds = (right & ~dead, ~right & ~dead, dead)
    largest = float(advantages.abs().max())
    reach = next((r for r in REACHES if r > largest), 2.0 ** np.ceil(np.log2(max(largest, 1.0))))
    bins = [np.histogram(array(advantages[kind]), BINS, (-reach, reach))[0] / advantages.numel() for kind in kinds]
    alone, together = (group_advantages(algorithm, part)[: GROUPS // 2] for part in (drawn[: GROUPS // 2], drawn))

    rates = np.linspace(0, 1, 201)
    sizes = np.array(sorted({*SIZES, group_size}))
    large = groups.in_a_very_large_group(success_rate)
    at_sizes = [
        (right, drawn, advantages) if size == group_size else groups.draw(success_rate, int(size), FEWER)
        for size in sizes
    ]
    errors = np.array([_error(*at_size, large) for at_size in at_sizes])
    mean_error = np.sqrt((success_rate * (1 - success_rate) + scores * NOISE**2) / sizes)
    here = sizes == group_size
    return AdvantagesCurve(
        name=algorithm.name,
        rule=label(algorithm.advantage),
        success_rate=success_rate,
        group_size=group_size,
        visits=visits,
        scores=scores,
        remembers=algorithm.asks_for("advantage", "history"),
        whole_batch=not torch.allclose(alone, together),
        edges=np.linspace(-reach, reach, BINS + 1),
        right=bins[0],
        wrong=bins[1],
        dead=bins[2],
        mean_right=_mean(advantages[right]),
        mean_wrong=_mean(advantages[~right]),
        equal_size=_mean(advantages[right.all(1) | ~right.any(1)].abs()),
        rates=rates,
        equal_share=share_all_equal(rates, group_size),
        points=np.array(POINTS),
        dead_share=np.array([groups.dead_share(p, group_size) for p in POINTS]),
        equal_at=share_all_equal(success_rate, group_size),
        dead_at=float(_dead(advantages).double().mean()),
        sizes=sizes,
        mean_error=mean_error,
        advantage_error=errors,
        mean_error_at=float(mean_error[here][0]),
        advantage_error_at=float(errors[here][0]),
        limit=float(np.interp(1.0, *large)),
        groups=GROUPS,
    )


TOPS = {0.5: 0.1, 1.0: 0.2}  # of the distribution's axis, whichever holds every bar → step of its ticks
LOOKS: tuple[dict[str, Any], ...] = (
    {"facecolor": "#a6cfe8", "edgecolor": BLUE, "label": "right responses"},
    {"facecolor": "none", "edgecolor": VERMILION, "hatch": "//", "label": "wrong responses"},
    {"facecolor": "black", "edgecolor": "black", "label": "in dead groups, A = 0"},
)


class AdvantagesPicture(Picture[AdvantagesCurve]):
    """Left the distribution of advantages, in the middle dead groups against success rate, right errors against group size."""

    size = (10, 4.5)
    alt = (
        "Three graphs: a histogram of the advantages of right and of wrong responses; the share of dead groups against the "
        "success rate; errors against the group size, both axes logarithmic."
    )

    def draw(self, curve: AdvantagesCurve) -> list[Artist]:
        left, middle, right = self.figure.subplots(1, 3, width_ratios=(1.35, 1, 1))
        moving = [*self._draw_bins(left), *self._draw_dead(middle), *self._draw_errors(right)]
        for ax in (left, middle, right):
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=TEXT - 1, frameon=False)
        return moving

    def _draw_bins(self, ax: Axes) -> list[Artist]:
        dress(ax, title="Who gets how much credit?", x="advantage A", y="share of all responses")
        ax.axvline(0, color=GREY, linewidth=1)
        self.bins: list[StepPatch] = [ax.stairs([0], [0, 1], fill=True, linewidth=2, **looks) for looks in LOOKS]
        ax.yaxis.set_major_formatter("{x:.2f}")
        self.left = ax
        return [*self.bins]

    def _draw_dead(self, ax: Axes) -> list[Artist]:
        dress(ax, title="How many are dead?", x="success rate p", y="share of groups")
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.03), xticks=(0, 0.5, 1))
        (self.equal,) = ax.plot([], [], color=GREY, linewidth=LINE, label="all equal: pᴳ + (1 − p)ᴳ")
        (self.dead,) = ax.plot([], [], color=VERMILION, linestyle="none", marker="o", markersize=7)
        self.dead.set_label("every A = 0, simulated")
        self.middle, (self.rate, self.dead_here) = ax, _mark(ax)
        return [self.rate, self.equal, self.dead, self.dead_here]

    def _draw_errors(self, ax: Axes) -> list[Artist]:
        dress(ax, title="Larger groups err less", x="group size G", y="error, units of R or A")
        ax.set(xscale="log", yscale="log", xlim=(1.7, 76), ylim=(0.01, 10))
        ax.set_xticks((2, 8, 32), ("2", "8", "32"))
        ax.set_xticks((4, 16, 64), ("", "", ""), minor=True)
        ax.set_yticks((0.01, 0.1, 1, 10), ("0.01", "0.1", "1", "10"))
        ax.yaxis.set_minor_locator(NullLocator())
        (self.mean_error,) = ax.plot([], [], color=GREY, linewidth=LINE, label="of the group's mean: ∝ 1/√G")
        (self.error,) = ax.plot([], [], color=GREEN, linewidth=LINE, linestyle="--", marker="s", markersize=7)
        self.error.set_label("of A, right responses")
        self.sizes, (self.size_rule, self.error_here) = ax, _mark(ax)
        return [self.size_rule, self.mean_error, self.error, self.error_here]

    def still(self, curve: AdvantagesCurve) -> tuple[float, float]:
        highest = max(float(shares.max()) for shares in (curve.right, curve.wrong, curve.dead))
        return float(curve.edges[-1]), next(top for top in TOPS if top >= highest)

    def show(self, curve: AdvantagesCurve) -> None:
        reach, top = self.still(curve)
        if (self.left.get_xlim(), self.left.get_ylim()) != ((-reach, reach), (0, top)):
            self.left.set(xlim=(-reach, reach), ylim=(0, top), xticks=(-reach / 2, 0, reach / 2))
            self.left.yaxis.set_major_locator(MultipleLocator(TOPS[top]))
        for patch, shares in zip(self.bins, (curve.right, curve.wrong, curve.dead), strict=True):
            patch.set_data(shares, curve.edges)
        self.equal.set_data(curve.rates, curve.equal_share)
        self.dead.set_data(curve.points, curve.dead_share)
        self.rate.set_xdata([curve.success_rate] * 2)
        self.size_rule.set_xdata([curve.group_size] * 2)
        self.dead_here.set_data([curve.success_rate], [curve.dead_at])
        self.mean_error.set_data(curve.sizes, curve.mean_error)
        self.error.set_data(curve.sizes, curve.advantage_error)
        self.error_here.set_data([curve.group_size], [curve.advantage_error_at])

    def handles(self, curve: AdvantagesCurve) -> list[Handle]:
        return [
            Handle(self.middle, "x", curve.success_rate, "success_rate"),
            Handle(self.sizes, "x", curve.group_size, "group_size"),
        ]

    def conclusion(self, curve: AdvantagesCurve) -> str:
        return (
            f"At success rate {curve.success_rate:.2f}, {curve.dead_at:.1%} of {curve.name}'s groups of {curve.group_size} are "
            f"dead; on average A is {_say_means(curve)}."
        )

    def words(self, curve: AdvantagesCurve) -> str:
        said = [
            f"A = {curve.rule}; averages are over all {curve.groups:,} simulated groups, dead ones too.",
            _say_dead(curve),
        ]
        memory = curve.remembers and curve.visits > 1
        if curve.scores and curve.equal_size is not None and not memory:
            said.append(
                f"In a group that is all right or all wrong A is nothing but noise of the scores, {curve.equal_size:.2f} in size "
                "on average."
            )
        said.append(
            f"The A of a right response misses that of a very large group ({signed(curve.limit)}) by "
            f"{curve.advantage_error_at:.2f}, root mean square over the same "
            f"groups; a group's mean reward errs by {curve.mean_error_at:.2f}."
        )
        if curve.whole_batch:
            said.append("The scale is that of the batch, whose prompts are all equally hard here.")
        return " ".join(said)


def _mark(ax: Axes) -> tuple[Line2D, Line2D]:
    """Return a rule and a marker for the setting."""
    rule = ax.axvline(0.5, color="black", linestyle="-.", linewidth=1.5)
    (here,) = ax.plot([], [], color="black", linestyle="none", marker="D", markersize=10, markerfacecolor="none")
    here.set_label("at this setting")
    return rule, here


def _say_means(curve: AdvantagesCurve) -> str:
    named = (("right responses", curve.mean_right), ("wrong ones", curve.mean_wrong))
    return " and ".join(f"{signed(mean)} for {name}" for name, mean in named if mean is not None)


def _say_dead(curve: AdvantagesCurve) -> str:
    said = f"In theory {curve.equal_at:.1%} of the groups are all right or all wrong"
    if curve.remembers and curve.visits > 1:
        said += f"; at visit {curve.visits} an all-equal group can learn from its prompt's past"
    return f"{said}."


def _remembers(values: Mapping[str, Any]) -> bool:
    return values["rule"] == "own" and values["algorithm"].asks_for("advantage", "history")


explore_advantages = explorer(
    "advantages",
    advantages_curve,
    AdvantagesPicture,
    algorithms=Algorithms(fits=learns_from_a_group),
    controls={
        "success_rate": Slider(0.02, 0.98, 0.01, "success rate p"),
        "group_size": WholeSlider(2, 64, "group size G"),
        "rewards": Menu(
            {"right or wrong: 1 or 0": "outcome", f"scores: 1 or 0, and noise of sd {NOISE}": "score"},
            "rewards",
            rare=True,
        ),
        "visits": WholeSlider(1, 10, "visit of the prompt", shown=_remembers),
        "rule": Menu({"the algorithm's own": "own", "leave-one-out (RLOO)": "leave_one_out"}, "advantage", rare=True),
    },
    grid={
        "algorithm": (GRPO, DR_GRPO),
        "group_size": (2, 4, 8, 16),
        "success_rate": (0.05, 0.2, 0.5, 0.8, 0.9, 0.95),
    },
    twin={
        "GRPO, 8 responses, 0.8 of them right": {},
        "GRPO, 2 responses": {"group_size": 2},
        "Dr.GRPO, no division by the standard deviation": {"algorithm": DR_GRPO},
        "DCPO, fifth visit, an easy prompt": {"algorithm": DCPO, "visits": 5, "success_rate": 0.95},
    },
)
