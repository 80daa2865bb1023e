"""explore_kl: which way a KL divergence pulls, and how well one token's estimate stands for it."""

from __future__ import annotations

from typing import Literal

from rlviz.algorithms import GRPO, PolicyGradient
from rlviz.curves.kl import KLCurve, kl_curve
from rlviz.plots.kl import KLPicture
from rlviz.widgets.clip import has_a_ratio
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Pick, float_control
from small_models.checks import checked

SHOW = [("forward and reverse fit", "fits"), ("estimators: value", "value"), ("estimators: gradient", "gradient")]


@checked
def explore_kl(
    algorithm: PolicyGradient = GRPO,
    *,
    show: Literal["fits", "value", "gradient"] = "fits",
    apart: float = 6.0,
    weight: float = 0.6,
    distance: float = 1.0,
) -> Explorer[KLCurve]:
    """Return a picture of what a KL term pulls at: mode covering against mode seeking, and k1, k2, k3, k3+ against the exact KL.

    The algorithm says which estimator it is and where it enters (loss, reward, to the old policy), which decides the gradients.
    Ringed are its estimator, and the fit whose direction has the gradient that its term has on average; none if neither has.
    show: "fits" (one hump fitted to two), "value" or "gradient" (of the estimators). apart: distance of the
    target's humps, in widths of one. weight: of its left hump. distance: of the policy from the reference, in standard deviations
    of its logits' shift.
    Raises ValueError for a value out of range, or an algorithm that is none of policy gradients.
    """
    pick = Pick("show", show, SHOW, "show")
    fits = [
        float_control("apart", apart, 0.0, 8.0, 0.1, "humps apart"),
        float_control("weight", weight, 0.1, 0.9, 0.05, "weight of the left"),
    ]
    estimators = [float_control("distance", distance, 0.05, 2.0, 0.05, "policy's distance")]

    def show_what_moves_it() -> None:
        for control in (*fits, *estimators):
            control.hide((control in fits) != (pick.value == "fits"))

    show_what_moves_it()
    pick.observe(show_what_moves_it)
    chosen = AlgorithmControl(algorithm, fits=has_a_ratio)
    return Explorer(explore_kl, KLPicture, kl_curve, [pick, *fits, *estimators], chosen)
