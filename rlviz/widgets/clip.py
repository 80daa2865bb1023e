"""explore_clip: what clipping does to the objective and the gradient of one token."""

from __future__ import annotations

from rlviz.algorithms import GRPO, GroupPolicyGradient
from rlviz.curves import ClipCurve, clip_curve
from rlviz.plots.clip import draw_clip
from rlviz.plots.style import TEXT, new_figure
from rlviz.widgets.live import BlittedFigure, LivePicture, float_control

RANGES = {"eps_low": (0.01, 0.99, 0.01), "eps_high": (0.01, 1.0, 0.01)}


class ClipExplorer(LivePicture):
    """Objective and slope against the ratio for both signs of the advantage; made by `explore_clip`."""

    def __init__(self, algorithm: GroupPolicyGradient, old_prob: float) -> None:
        self.algorithm = algorithm
        widths = {name: getattr(algorithm.bounds, name) for name in RANGES if hasattr(algorithm.bounds, name)}
        self.controls = {name: float_control(name, value, *RANGES[name]) for name, value in widths.items()}
        self.controls["old probability"] = float_control("old probability", old_prob, 0.01, 1.0, 0.01)
        figure = new_figure(10, 4.4)
        curves = self._curves()
        self._sides = [draw_clip(curve, ax) for curve, ax in zip(curves, figure.subplots(1, 2), strict=True)]
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=TEXT - 1, frameon=False)
        picture = BlittedFigure(figure, [artist for side in self._sides for artist in side.back_to_front()])
        super().__init__(picture, [control.row for control in self.controls.values()])
        for control in self.controls.values():
            control.observe(self._redraw)
        self._redraw()

    def _curves(self) -> tuple[ClipCurve, ClipCurve]:
        widths = {name: self.controls[name].value for name in RANGES if name in self.controls}
        algorithm = self.algorithm.with_parameters(**widths)
        old_prob = self.controls["old probability"].value
        return (
            clip_curve(algorithm, advantage=1.0, old_prob=old_prob),
            clip_curve(algorithm, advantage=-1.0, old_prob=old_prob),
        )

    def _redraw(self) -> None:
        curves = self._curves()
        for side, curve in zip(self._sides, curves, strict=True):
            side.show(curve)
        caption = describe(self.algorithm.name, curves)
        arguments = [f"{name}={self.controls[name].value:g}" for name in RANGES if name in self.controls]
        arguments.append(f"old_prob={self.controls['old probability'].value:g}")
        self.show(
            alt=f"Two graphs of one token's objective and slope against its ratio, left A = +1, right A = −1. {caption}",
            caption=caption,
            call=f"explore_clip({', '.join(arguments)})",
        )


def describe(name: str, curves: tuple[ClipCurve, ClipCurve]) -> str:
    """Return in words what the picture of these two curves shows."""
    better, worse = curves
    q = better.old_prob
    words = [f"{name}, a token of old probability {q:.2f}."]
    if not better.clipped.any():
        words.append("A > 0: no gradient is cut at the ratios shown.")
    elif better.upper * q >= 1:
        words.append(
            f"A > 0: the upper limit {better.upper:.2f} lies beyond probability 1 (ratio {1 / q:.2f}), "
            "so this token is never clipped."
        )
    else:
        words.append(
            f"A > 0: no gradient above ratio {better.upper:.2f}, once its probability has grown to {better.upper * q:.3g}; "
            "below 1 the gradient stays, to repair a step the wrong way."
        )
    if not worse.clipped.any():
        words.append("A < 0: no gradient is cut at the ratios shown.")
    else:
        words.append(
            f"A < 0: no gradient below ratio {worse.lower:.2f}, once its probability has fallen to {worse.lower * q:.3g}; "
            "above 1 the gradient stays."
        )
    return " ".join(words)


def explore_clip(
    algorithm: GroupPolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    old_prob: float = 0.6,
) -> ClipExplorer:
    """Return a picture of one token's clipped objective and its slope, with sliders for the widths and the old probability.

    The curves come from the algorithm's own pieces, the slope from autograd. An algorithm whose bounds have no such
    width has no slider for it. Raises ValueError for a width or probability out of range.
    """
    widths = {name: value for name, value in (("eps_low", eps_low), ("eps_high", eps_high)) if value is not None}
    algorithm = algorithm.with_parameters(**widths)
    clip_curve(algorithm, advantage=1.0, old_prob=old_prob)  # refuses a probability that the slider would only move
    return ClipExplorer(algorithm, old_prob)
