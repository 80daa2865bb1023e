"""Credit from a critic over the tokens of one answer, and its bias and noise against λ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from rlviz.curves.gae import GAECurve
from rlviz.plots.marks import Marks
from rlviz.plots.picture import Picture
from rlviz.plots.style import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, dress
from small_models.checks import checked

TOPS = (0.5, 1.0)  # of bias and noise
HIGHEST = {
    True: (1.35, 1),
    False: (2.7, 2),
}  # has a critic? → top and tick of the advantages; standardised ones are larger
OWN = "the algorithm's own λ"
MOST_NUMBERS = 12  # of tokens; of a longer answer every other one has its number
PURPLE, BROWN, INDIGO = "#AA4499", "#8C510A", "#332288"  # a colour means the same thing in all three graphs


def _tops(curve: GAECurve) -> float:
    highest = np.hypot(curve.bias, curve.noise).max()
    return next((top for top in TOPS if highest < top), TOPS[-1])


class GAEPicture(Picture[GAECurve]):
    """Left values above and advantages below, token by token; right bias and noise of the credit against λ."""

    size = (10, 5.4)
    alt = (
        "Three graphs: what a critic says before each token of an answer beside the true value, the advantage of each "
        "token as bars, and bias and noise of such credit against λ."
    )

    def draw(self, curve: GAECurve) -> Sequence[Artist]:
        grid = self.figure.add_gridspec(2, 2, height_ratios=(2, 3))
        above, below = (self.figure.add_subplot(grid[row, 0]) for row in range(2))
        self.right = self.figure.add_subplot(grid[:, 1])
        self.below = below
        dress(above, title="One answer, token by token", x="", y="value")
        dress(below, title="", x="token", y="advantage A")
        dress(self.right, title="How far A + V is from the true chance", x="λ", y="root mean square, in rewards")
        for ax in (above, below):
            ax.set(xlim=(0, 1), xticks=[])
            ax.axhline(0, color=GREY, linewidth=1)
        above.set(ylim=(-0.55, 1.6), yticks=[0, 0.5, 1])
        below.xaxis.labelpad = 22
        self.numbers = Marks(below, size=TEXT - 1, where=below.get_xaxis_transform())
        self.right.set(xlim=(-0.03, 1.07), xticks=np.arange(6) / 5)
        (self.value,) = above.plot([], [], color="black", linewidth=1.8, marker="o", markersize=5, label="true value")
        (self.critic,) = above.plot([], [], color=PURPLE, linestyle="--", linewidth=LINE, label="critic's V")
        self.bars = PolyCollection([], facecolor="#a6cfe8", edgecolor=BLUE, linewidth=1, label="A of the algorithm")
        below.add_collection(self.bars, autolim=False)
        (self.one_step,) = below.plot(
            [], [], color=VERMILION, linestyle="--", linewidth=1.8, marker="^", markersize=7, label="A at λ = 0"
        )
        (self.whole,) = below.plot(
            [], [], color=GREEN, linestyle=":", linewidth=LINE, marker="D", markersize=6, label="A at λ = 1"
        )
        self.at = self.right.axvline(0, color=BLUE, linestyle="-.", linewidth=2, label=OWN)
        (self.bias,) = self.right.plot(
            [], [], color=BROWN, linestyle="--", linewidth=LINE + 0.5, label="bias: wrong on average"
        )
        (self.noise,) = self.right.plot(
            [], [], color=INDIGO, linestyle=":", linewidth=LINE + 0.5, label="noise: off by chance"
        )
        (self.both,) = self.right.plot([], [], color=GREY, linewidth=1.8, label="both together")
        (self.bias_at,) = self.right.plot([], [], color=BROWN, marker="o", markersize=10, linestyle="none")
        (self.noise_at,) = self.right.plot([], [], color=INDIGO, marker="s", markersize=9, linestyle="none")
        left = [self.value, self.critic, self.bars, self.one_step, self.whole]
        named = [*left, self.bias, self.noise, self.both, self.at]
        legend = self.figure.legend(
            named,
            [str(artist.get_label()) for artist in named],
            loc="outside lower center",
            ncols=3,
            fontsize=TEXT - 1,
            frameon=False,
        )
        self._own = legend.legend_handles[-1], legend.get_texts()[-1]
        return [self.numbers, *left, self.at, self.both, self.bias, self.noise, self.bias_at, self.noise_at]

    def show(self, curve: GAECurve) -> None:
        tokens = len(curve.advantages)
        middles = (np.arange(tokens) + 0.5) / tokens
        self.value.set_data(middles, curve.value)
        self.critic.set_data(middles, curve.critic)
        steps = range(0, tokens, 1 if tokens <= MOST_NUMBERS else 2)
        self.numbers.write((str(token + 1), middles[token], -0.08) for token in steps)
        half = 0.4 / tokens
        self.bars.set_verts(
            [
                [(x - half, 0), (x - half, a), (x + half, a), (x + half, 0)]
                for x, a in zip(middles, curve.advantages, strict=True)
            ]
        )
        self.one_step.set_data(middles, curve.one_step)
        self.whole.set_data(middles, curve.whole)
        self.bias.set_data(curve.lam, curve.bias)
        self.noise.set_data(curve.lam, curve.noise)
        self.both.set_data(curve.lam, np.hypot(curve.bias, curve.noise))
        here = [] if curve.lam_at is None else [curve.lam_at]
        handle, text = self._own
        if handle is not None:
            handle.set_visible(bool(here))
        text.set_text(OWN if here else " ")
        self.at.set_data(here * 2, [0, 1] if here else [])
        for mark, value in ((self.bias_at, curve.bias_at), (self.noise_at, curve.noise_at)):
            mark.set_data(here, [] if value is None else [value])
        highest, tick = HIGHEST[curve.has_critic]
        self.below.set(ylim=(-highest, highest), yticks=(-tick, 0, tick))  # as wide in words, so that nothing shifts
        self.right.set_ylim(-0.03 * _tops(curve), _tops(curve))

    def still(self, curve: GAECurve) -> Hashable:
        return curve.has_critic, curve.lam_at is None, _tops(curve)

    def words(self, curve: GAECurve) -> str:
        answer = f"a {'right' if curve.right else 'wrong'} answer of {len(curve.advantages)} tokens"
        if not curve.has_critic:
            return (
                f"{curve.name} has no critic and no λ: each token of {answer} gets the same A = "
                f"{_signed(curve.advantages[0])}, from the outcome alone. In rewards that credit is as good as a critic's at "
                f"λ = 1: no bias from the critic's errors, and the whole noise of the outcome, {curve.noise[-1]:.2f}. The lines "
                "are what a critic would give."
            )
        best, worst = int(curve.advantages.argmax()), int(curve.advantages.argmin())
        said = [
            f"{curve.name}{_numbers(curve)}, {answer}: most credit on token {best + 1} "
            f"({_signed(curve.advantages[best])}), least on token {worst + 1} ({_signed(curve.advantages[worst])})"
            f"{', before whitening, which shifts and scales all tokens of a batch alike' if curve.whitens else ''}."
        ]
        ends = [
            f"{bias:.2f} and {noise:.2f}" for bias, noise in zip(curve.bias[[0, -1]], curve.noise[[0, -1]], strict=True)
        ]
        at_the_ends = f"by {ends[0]} at λ = 0, by {ends[1]} at λ = 1."
        target = "A + V should be the chance of a right answer once the token is there; over many answers it is wrong on average"
        if curve.lam_at is None:
            said.append(f"{target} (bias) and off by chance (noise) {at_the_ends}")
        else:
            said.append(
                f"{target} by {curve.bias_at:.2f} (bias) and off by another {curve.noise_at:.2f} by chance (noise), "
                f"{at_the_ends}"
            )
        if curve.gamma == 0:
            said.append("With γ = 0 A is the token's own reward less V, whatever λ: nothing that follows counts.")
        elif curve.gamma is not None and curve.gamma < 1:
            said.append(f"γ = {curve.gamma:g} makes early tokens hear less of the outcome: a bias at every λ.")
        return " ".join(said)


def _numbers(curve: GAECurve) -> str:
    return "" if curve.gamma is None else f" at γ = {curve.gamma:g}, λ = {curve.lam_at:g}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


@checked
def plot_gae(curve: GAECurve) -> Figure:
    """Draw values, advantages, and bias and noise against λ; return the figure."""
    return GAEPicture.alone(curve)
