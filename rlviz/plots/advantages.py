"""Advantages in a group: their distribution, groups without any, and their error against the group's size."""

from __future__ import annotations

from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch
from matplotlib.ticker import MultipleLocator

from rlviz.curves.advantages import AdvantagesCurve
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

TOPS = {0.25: 0.05, 0.5: 0.1, 1.0: 0.2}  # of the distribution's axis, whichever holds every bar → step of its ticks
BINS: tuple[dict[str, Any], ...] = (
    {"facecolor": "#bcdcf0", "edgecolor": BLUE, "label": "right responses"},
    {"facecolor": "none", "edgecolor": VERMILION, "hatch": "//", "label": "wrong responses"},
    {"facecolor": "black", "edgecolor": "black", "label": "in dead groups, A = 0"},
)


class AdvantagesPicture(Picture[AdvantagesCurve]):
    """Left the distribution of advantages, in the middle dead groups against success rate, right errors against group size."""

    size = (10, 4.7)
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
        dress(ax, title="Advantages", x="advantage A", y="share of all responses")
        ax.axvline(0, color=GREY, linewidth=1)
        self.bins: list[StepPatch] = [ax.stairs([0], [0, 1], fill=True, linewidth=2, **looks) for looks in BINS]
        ax.yaxis.set_major_formatter("{x:.2f}")
        self.left = ax
        return [*self.bins]

    def _draw_dead(self, ax: Axes) -> list[Artist]:
        dress(ax, title="Dead groups", x="success rate p", y="share of groups")
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.03), xticks=(0, 0.5, 1))
        (self.equal,) = ax.plot([], [], color=GREY, linewidth=LINE, label="all equal: pᴳ + (1 − p)ᴳ")
        (self.dead,) = ax.plot([], [], color=VERMILION, linestyle="none", marker="o", markersize=7)
        self.dead.set_label("every A = 0, simulated")
        self.dead_here = _mark(ax)
        return [self.equal, self.dead, self.dead_here]

    def _draw_errors(self, ax: Axes) -> list[Artist]:
        dress(ax, title="Error", x="group size G", y="error, units of R or A")
        ax.set(xscale="log", yscale="log", xlim=(1.7, 76), ylim=(0.01, 10))
        ax.set_xticks((2, 8, 32), ("2", "8", "32"))
        ax.set_xticks((4, 16, 64), ("", "", ""), minor=True)
        ax.set_yticks((0.01, 0.1, 1, 10), ("0.01", "0.1", "1", "10"))
        (self.mean_error,) = ax.plot([], [], color=GREY, linewidth=LINE, label="of the group's mean: ∝ 1/√G")
        (self.error,) = ax.plot([], [], color=GREEN, linewidth=LINE, linestyle="--", marker="s", markersize=7)
        self.error.set_label("of A, right responses")
        self.error_here = _mark(ax)
        return [self.mean_error, self.error, self.error_here]

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
        self.dead_here.set_data([curve.success_rate], [curve.dead_at])
        self.mean_error.set_data(curve.sizes, curve.mean_error)
        self.error.set_data(curve.sizes, curve.advantage_error)
        self.error_here.set_data([curve.group_size], [curve.advantage_error_at])

    def words(self, curve: AdvantagesCurve) -> str:
        p, size = curve.success_rate, curve.group_size
        said = [
            f"{curve.name}, A = {curve.rule}, at G = {size} and success rate {p:.2f}: over all {curve.groups:,} simulated "
            f"groups, dead ones too, A is {_say_means(curve)} on average.",
            _say_dead(curve),
        ]
        memory = curve.remembers and curve.visits > 1
        if curve.scores and curve.equal_size is not None and not memory:
            said.append(
                f"In a group that is all right or all wrong A is nothing but noise of the scores, {curve.equal_size:.2f} in size "
                "on average."
            )
        said.append(
            f"The A of a right response misses that of a very large group ({_signed(curve.limit)}) by "
            f"{curve.advantage_error_at:.2f}, root mean square over the same "
            f"groups; a group's mean reward errs by {curve.mean_error_at:.2f}."
        )
        if curve.whole_batch:
            said.append("The scale is that of the batch, whose prompts are all equally hard here.")
        return " ".join(said)


def _mark(ax: Axes) -> Line2D:
    (here,) = ax.plot([], [], color="black", linestyle="none", marker="D", markersize=10, markerfacecolor="none")
    here.set_label("at the slider")
    return here


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"


def _say_means(curve: AdvantagesCurve) -> str:
    named = (("right", curve.mean_right), ("wrong", curve.mean_wrong))
    return " and ".join(f"{_signed(mean)} for {name} responses" for name, mean in named if mean is not None)


def _say_dead(curve: AdvantagesCurve) -> str:
    said = f"{curve.dead_at:.1%} of the groups are dead (in theory {curve.equal_at:.1%} are all right or all wrong)"
    if curve.remembers and curve.visits > 1:
        said += f"; at visit {curve.visits} an all-equal group can learn from its prompt's past"
    return f"{said}."


@checked
def plot_advantages(curve: AdvantagesCurve) -> Figure:
    """Draw the distribution of advantages, dead groups against success rate, errors against group size; return the figure."""
    return AdvantagesPicture.alone(curve)
