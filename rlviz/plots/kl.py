"""Which way a KL divergence pulls, and how well one token's estimate stands for it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.legend import Legend
from matplotlib.patches import StepPatch

from rlviz.curves.kl import FORWARD, LOSS, NEITHER, NOWHERE, OLD, REVERSE, REWARD, ROUNDING, Fits, KLCurve
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, FAINT, GREEN, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

# estimator by estimator: colour, line style, width, marker and its size; wide ones first, so that a line on another shows both
STYLES = (
    (GREEN, "-", 2.0, "s", 9),
    (VERMILION, (0, (4, 2)), 2.8, "^", 11),
    (BLUE, "-", 6.0, "o", 14),
    ("black", (0, (1, 1.5)), 2.2, "D", 5),
    ("#AA4499", (0, (7, 2, 1, 2)), LINE, "v", 10),
)
DRAWN = (2, 0, 1, 4, 3)
ESTIMATOR_NAMES = ("k1", "k2", "k3", "k3+")
NONE = np.empty(0)


class FitsView:
    """Left the target and its two fits, right the least KL for each place of the hump; a ring where the algorithm pulls."""

    def __init__(self, left: Axes, right: Axes) -> None:
        self.axes = (left, right)
        dress(left, title="A policy with one hump", x="position", y="probability")
        left.set(xlim=(-8, 8), ylim=(0, 0.115))
        dress(right, title="How far it is from the target", x="middle of the policy's hump", y="least KL, nats")
        right.set(xlim=(-5, 5), ylim=(-0.05, 1.6))
        self.target = StepPatch([0], [0, 1], fill=True, facecolor=FAINT, edgecolor=GREY, linewidth=1.5, label="target")
        left.add_artist(self.target)
        self.lines, self.bottoms = [], []
        for name, colour, style, marker in (
            ("forward fit, KL(target‖policy)", BLUE, "-", "o"),
            ("reverse fit, KL(policy‖target)", VERMILION, "--", "^"),
        ):
            (fit,) = left.plot([], [], color=colour, linestyle=style, linewidth=LINE + 0.5, label=name)
            (kl,) = right.plot([], [], color=colour, linestyle=style, linewidth=LINE + 0.5)
            (bottom,) = right.plot([], [], color=colour, linestyle="none", marker=marker, markersize=11)
            self.lines.append((fit, kl))
            self.bottoms.append(bottom)
        (self.ring,) = right.plot([], [], color="black", linestyle="none", marker="o", markersize=21)
        self.ring.set(markerfacecolor="none", markeredgewidth=2.5, label="algorithm's pull")
        self.named: list[Artist] = [self.target, self.lines[0][0], self.lines[1][0], self.ring]
        self.moving: list[Artist] = [
            self.target,
            *(line for pair in self.lines for line in pair),
            *self.bottoms,
            self.ring,
        ]

    def show(self, curve: KLCurve) -> None:
        fits = curve.fits
        half = (fits.position[1] - fits.position[0]) / 2
        self.target.set_data(fits.target, np.append(fits.position - half, fits.position[-1] + half))
        found = ((fits.forward, fits.forward_kl, fits.forward_at), (fits.reverse, fits.reverse_kl, fits.reverse_at))
        for (fit, kl), bottom, (probs, least, at) in zip(self.lines, self.bottoms, found, strict=True):
            fit.set_data(fits.position, probs)
            kl.set_data(fits.mean, least)
            bottom.set_data([at[0]], [at[2]])
        ringed = [at for way, (_, _, at) in zip((FORWARD, REVERSE), found, strict=True) if way == curve.pull]
        self.ring.set_data([mean for mean, _, _ in ringed], [kl for _, _, kl in ringed])


class EstimatesView:
    """Left what the estimates are on average, right how much one token's estimate is off; of the value, or of the gradient."""

    def __init__(self, left: Axes, right: Axes) -> None:
        self.axes = (left, right)
        for ax in self.axes:
            dress(ax, title=" ", x="exact KL of the two policies, nats per token", y=" ")
            ax.set(xscale="log", xlim=(0.001, 3))
        right.set_yscale("log")
        (self.exact,) = left.plot([], [], color=GREY, linewidth=1)
        self.at = [ax.axvline(0.1, color=GREY, linestyle=(0, (1, 1)), linewidth=2) for ax in self.axes]
        self.lines = [[ax.plot([], [])[0] for _ in STYLES] for ax in self.axes]
        self.marks = [[ax.plot([], [], linestyle="none")[0] for _ in STYLES] for ax in self.axes]
        for lines, marks in zip(self.lines, self.marks, strict=True):
            for line, mark, (colour, style, width, shape, size) in zip(lines, marks, STYLES, strict=True):
                line.set(color=colour, linestyle=style, linewidth=width)
                mark.set(color=colour, marker=shape, markersize=size)
        self.rings = [
            ax.plot([], [], color="black", linestyle="none", marker="o", markersize=21)[0] for ax in self.axes
        ]
        for ring in self.rings:
            ring.set(markerfacecolor="none", markeredgewidth=2.5)
        self.named: list[Artist] = [*self.lines[0], self.rings[0]]
        ordered = [side[place] for sides in (self.lines, self.marks) for side in sides for place in DRAWN]
        self.moving: list[Artist] = [self.exact, *self.at, *ordered, *self.rings]

    def show(self, curve: KLCurve) -> None:
        estimates, left, right = curve.estimates, *self.axes
        if curve.show == "value":
            sides, exactly = (estimates.value, estimates.value_noise), 1
            left.set(ylabel="average estimate / exact KL", ylim=(0.5, 2))
            right.set(ylabel="std / exact KL", ylim=(0.5, 60))
        else:
            sides, exactly = (estimates.gradient_error, estimates.gradient_noise), 0
            left.set(ylabel="error / size of ∇KL", ylim=(-0.08, 1.7))
            right.set(ylabel="std / size of ∇KL", ylim=(0.08, 100))
        for ax, question in zip(self.axes, ("is it right on average?", "how noisy is one token?"), strict=True):
            ax.title.set_text(f"{curve.show.capitalize()}: {question}")
        self.exact.set_data([0.001, 3], [exactly, exactly])
        for at, lines, marks, ring, rows in zip(self.at, self.lines, self.marks, self.rings, sides, strict=True):
            at.set_xdata([estimates.kl[-1]] * 2)
            for place, (line, mark) in enumerate(zip(lines, marks, strict=True)):
                x, y = (estimates.kl, rows[place]) if place < len(rows) else (NONE, NONE)
                line.set_data(x[:-1], y[:-1])
                mark.set_data(x[-1:], y[-1:])
            x, y = (NONE, NONE) if curve.estimator is None else (estimates.kl, rows[curve.estimator])
            ring.set_data(x[-1:], y[-1:])


class KLPicture(Picture[KLCurve]):
    """Forward and reverse fits, or average and noise of the estimators, whichever the curve asks for."""

    size = (10, 4.6)
    alt = (
        "Two graphs of a KL divergence: either one-humped policies fitted to a two-humped target, or average and noise of "
        "the estimators k1, k2, k3 and k3+ against the exact KL."
    )

    def draw(self, curve: KLCurve) -> Sequence[Artist]:
        grid = self.figure.add_gridspec(1, 2)
        both = [[self.figure.add_subplot(grid[0, column]) for column in range(2)] for _ in range(2)]
        self.fits, self.estimates = FitsView(*both[0]), EstimatesView(*both[1])
        fit_names = [str(artist.get_label()) for artist in self.fits.named]
        self.legends: dict[FitsView | EstimatesView, Legend] = {
            self.fits: _legend(self.figure, self.fits.named, fit_names),
            self.estimates: _legend(self.figure, self.estimates.named, [*ESTIMATOR_NAMES, " ", "the algorithm's own"]),
        }
        return [*self.fits.moving, *self.estimates.moving]

    def show(self, curve: KLCurve) -> None:
        shown = self.fits if curve.show == "fits" else self.estimates
        for view, legend in self.legends.items():
            words = [text for ax in view.axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
            for artist in (*view.axes, *words, *view.moving, legend, *legend.get_texts()):
                artist.set_visible(view is shown)
        shown.show(curve)
        _name_the_rest(self.legends[self.estimates], curve.estimates.names)

    def still(self, curve: KLCurve) -> Hashable:
        return curve.show, curve.estimates.names

    def words(self, curve: KLCurve) -> str:
        if curve.show == "fits":
            return f"{_say_fits(curve.fits)} {_say_direction(curve)}"
        return (_say_value if curve.show == "value" else _say_gradient)(curve)


def _legend(figure: Figure | SubFigure, artists: Sequence[Artist], names: Sequence[str]) -> Legend:
    return figure.legend(  # of one row: a legend out of sight keeps its place, and so two of a height take no more than one
        artists,
        names,
        loc="outside lower center",
        ncols=len(names),
        fontsize=TEXT - 1,
        frameon=False,
        markerscale=0.6,
        handlelength=2.4,
        columnspacing=1.4,
    )


def _name_the_rest(legend: Legend, names: Sequence[str]) -> None:
    place = len(STYLES) - 1
    there = len(names) > place
    legend.get_texts()[place].set_text(names[place] if there else " ")
    handle = legend.legend_handles[place]
    if handle is not None:
        handle.set_visible(there and legend.get_visible())


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 else f"{share:.1%}"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _say_fits(fits: Fits) -> str:
    forward, reverse = (
        f"middle {round(mean, 1) + 0.0:.1f}, width {width:.1f}, KL {abs(kl):.2f} nats".replace("-", "−")
        for mean, width, kl in (fits.forward_at, fits.reverse_at)
    )
    if fits.humps == 1:
        return f"The target has one hump, and the two fits lie close together. Forward: {forward}. Reverse: {reverse}."
    covered = "still covers both humps" if fits.covers else "takes one hump and leaves the other (mode seeking)"
    return (
        "The forward fit has the target's own mean and spread, so it fills the valley between the humps too (mode covering): "
        f"{forward}. The reverse fit {covered}: {reverse}."
    )


PULLS = {
    FORWARD: "has the gradient of KL({other}‖policy): it pulls towards the forward fit",
    REVERSE: "has the gradient of KL(policy‖{other}): it pulls towards the reverse fit",
    NEITHER: "has the gradient of neither direction",
    NOWHERE: "has a gradient of 0: it pulls nowhere",
}


def _measured(curve: KLCurve) -> str:
    """Return the KL that the tokens' estimates are meant for: a mean over the policy that the tokens come from."""
    return "KL(old‖policy)" if curve.enters == OLD else "KL(policy‖reference)"


def _say_direction(curve: KLCurve) -> str:
    if curve.estimator is None or curve.pull is None:
        return f"{curve.name} has no KL term: nothing ties it to a reference."
    whose, other, way = (
        ("the old policy's", "old", FORWARD) if curve.enters == OLD else ("the policy's own", "reference", REVERSE)
    )
    value = curve.estimates.value[curve.estimator, :-1]
    exact = np.ptp(value) < ROUNDING * value.max()  # the same multiple of the KL at every distance
    though = (
        f", though its value estimates {_measured(curve)}, the {way} direction" if exact and curve.pull != way else ""
    )
    pull = PULLS[curve.pull].format(other=other)
    return f"{curve.name}'s term ({curve.term}), averaged over {whose} tokens, {pull}{though}."


def _own(curve: KLCurve, mean: float) -> str:
    if curve.term is None:
        return f"{curve.name} has no KL term, so none of them is its own."
    if curve.beta is None:
        return f"{curve.name} has its own KL term, {curve.term}."
    return f"{curve.name}'s term is {curve.term}: {curve.beta * mean:.2g} per token on average."


def _say_value(curve: KLCurve) -> str:
    estimates = curve.estimates
    kl, values = estimates.kl[-1], estimates.value[:, -1]
    right = [name for name, value in zip(estimates.names, values, strict=True) if abs(value - 1) < ROUNDING]
    wrong = [
        f"that of {name} is {_percent(abs(value - 1))} too {'high' if value > 1 else 'low'}"
        for name, value in zip(estimates.names, values, strict=True)
        if abs(value - 1) >= ROUNDING
    ]
    noise = ", ".join(
        f"{value:.2g} ({name})" for name, value in zip(estimates.names, estimates.value_noise[:, -1] * kl, strict=True)
    )
    mean = 0.0 if curve.estimator is None else float(values[curve.estimator] * kl)
    return (
        f"At {_measured(curve)} = {kl:.2g} nats per token the average of {_and(right)} is exact; {_and(wrong)}. "
        f"One token's estimate has a standard deviation of {noise} nats. {_own(curve, mean)}"
    )


HOW = {
    LOSS: "As a loss, tokens from the policy that learns",
    REWARD: "As part of the reward, where only the estimate's value counts (no baseline taken off)",
    OLD: "As a loss, tokens from the old policy, which stands still",
}
WHY = {
    LOSS: "k1's gradient averages to 0, and k3's is that of KL(reference‖policy), the other direction.",
    REWARD: "Its value weighs ∇log π: with k1 that is the KL's gradient, with k3 the gradient that flows through the "
    "estimate itself is missing.",
    OLD: "How often a token comes does not change, so the gradient of the average is the average gradient: k1 and k3 are right, "
    "k2 with its other average is not, and k3+ has its gradient from k2.",
}


def _say_gradient(curve: KLCurve) -> str:
    estimates = curve.estimates
    errors = dict(zip(estimates.names, estimates.gradient_error[:, -1], strict=True))
    right = [name for name, error in errors.items() if error < ROUNDING]
    wrong = [f"{_percent(error)} for {name}" for name, error in errors.items() if error >= ROUNDING]
    own = (
        f"{curve.name} has no KL term, so none of them is its own."
        if curve.term is None
        else f"{curve.name}: {curve.term}."
    )
    return (
        f"{HOW[curve.enters]}, at {_measured(curve)} = {estimates.kl[-1]:.2g} nats per token: on average "
        f"{_and(right)} {'have' if len(right) > 1 else 'has'} its gradient; the error is {_and(wrong)}. {WHY[curve.enters]} {own}"
    )


@checked
def plot_kl(curve: KLCurve) -> Figure:
    """Draw the fits, or the estimators' value or gradient, as the curve asks; return the figure."""
    return KLPicture.alone(curve)
