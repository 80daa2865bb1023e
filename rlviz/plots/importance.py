"""What old samples can say about a new policy."""

from __future__ import annotations

from matplotlib.figure import Figure

from rlviz.curves import ImportanceCurve
from rlviz.plots.style import BLUE, GREY, LINE, TEXT, VERMILION, dress, new_figure
from small_models.checks import checked


@checked
def plot_importance(curve: ImportanceCurve) -> Figure:
    """Draw the estimate with its spread, and what the old samples are worth, against the new policy's probability."""
    figure = new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    x = "new probability of the good action"
    left.fill_between(
        curve.new_prob, curve.low, curve.high, color=BLUE, alpha=0.2, linewidth=0, label="80 % of the batches"
    )
    left.plot(curve.new_prob, curve.mean, color=BLUE, linewidth=LINE, label="mean of ratio · reward")
    left.plot(curve.new_prob, curve.new_prob, color=VERMILION, linestyle="--", linewidth=LINE, label="the truth")
    left.set(xlim=(0, 1), ylim=(0, max(1.0, 1.05 * curve.high.max())))
    left.legend(fontsize=TEXT - 2, loc="upper left", framealpha=1)
    dress(left, title=f"Estimate from {curve.samples} old samples", x=x, y="reward of the new policy")
    right.plot(curve.new_prob, curve.effective, color=BLUE, linewidth=LINE)
    right.set(xlim=(0, 1), ylim=(0, 1.05 * curve.samples))
    dress(right, title="Effective sample size", x=x, y="samples / mean of ratio²")
    for ax in (left, right):
        ax.axvline(curve.old_prob, color=GREY, linestyle=":", linewidth=2)
        ax.text(curve.old_prob + 0.015, ax.get_ylim()[1] * 0.03, "sampled here", fontsize=TEXT - 2, color="#555555")
    return figure
