"""explore_clip: what clipping does to the objective and the gradient of one token."""

from __future__ import annotations

import math

from rlviz.algorithms import GRPO, PolicyGradient
from rlviz.curves import ClipCurve, clip_curve
from rlviz.plots.clip import dead_stretches, draw_clip
from rlviz.plots.style import TEXT, new_figure
from rlviz.widgets.live import BlittedFigure, LivePicture, float_control

RANGES = {"eps_low": (0.01, 0.99, 0.01), "eps_high": (0.01, 1.0, 0.01)}
TINY = (1e-4, 0.05, 1e-4)  # for widths like GSPO's


class ClipExplorer(LivePicture):
    """Objective and slope against the ratio for both signs of the advantage; made by `explore_clip`."""

    def __init__(self, algorithm: PolicyGradient, old_prob: float) -> None:
        self.algorithm = algorithm
        widths = {name: getattr(algorithm.bounds, name) for name in RANGES if hasattr(algorithm.bounds, name)}
        self.controls = {
            name: float_control(name, value, *(TINY if value < 0.01 else RANGES[name]))
            for name, value in widths.items()
        }
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
    q = curves[0].old_prob
    return " ".join([f"{name}, a token of old probability {q:.2f}.", *(_describe_side(curve) for curve in curves)])


def _describe_side(curve: ClipCurve) -> str:
    q, better = curve.old_prob, curve.advantage > 0
    sign = "A > 0" if better else "A < 0"
    stretches, step = dead_stretches(curve), curve.ratio[1] - curve.ratio[0]
    limit = curve.upper if better else curve.lower
    shown = f"{limit:.2f}" if abs(limit - 1) >= 0.01 else f"{limit:.4f}"
    never = better and limit * q >= 1 and math.isfinite(limit)
    if not stretches and not never:
        return f"{sign}: no gradient is cut at the ratios shown."
    if never and all(abs(a - limit) <= 2 * step for a, _ in stretches):
        return (
            f"A > 0: the upper limit {shown} lies beyond probability 1 (ratio {1 / q:.2f}), "
            "so this token is never clipped."
        )
    start, end = stretches[0]
    usual = start > 0 and end == curve.ratio[-1] if better else start <= 0
    if len(stretches) > 1 or not usual or abs((start if better else end) - limit) > 2 * step:
        where = " and ".join(f"from {max(a, 0):.2f} to {b:.2f}" for a, b in stretches)
        return f"{sign}: no gradient at ratios {where}."
    if better:
        return (
            f"A > 0: no gradient above ratio {shown}, once its probability has grown to {limit * q:.5g}; "
            "below 1 the gradient stays, to repair a step the wrong way."
        )
    return (
        f"A < 0: no gradient below ratio {shown}, once its probability has fallen to {limit * q:.5g}; "
        "above 1 the gradient stays."
    )


def explore_clip(
    algorithm: PolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    old_prob: float = 0.6,
) -> ClipExplorer:
    """Return a picture of one token's clipped objective and its slope, with sliders for the widths and the old probability.

    The curves come from the algorithm's own pieces, the slope from autograd. An algorithm whose bounds have no such
    width has no slider for it. Raises ValueError for a width or probability out of range, or without a ratio to clip.
    """
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no ratio that could be clipped")
    widths = {name: value for name, value in (("eps_low", eps_low), ("eps_high", eps_high)) if value is not None}
    algorithm = algorithm.with_parameters(**widths)
    clip_curve(algorithm, advantage=1.0, old_prob=old_prob)  # refuses a probability that the slider would only move
    return ClipExplorer(algorithm, old_prob)
