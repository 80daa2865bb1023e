"""explore_overlong: what is done about responses that grow too long."""

from __future__ import annotations

from typing import Literal

from rlviz.algorithms import DAPO, GroupPolicyGradient
from rlviz.curves.overlong import OverlongCurve, overlong_curve
from rlviz.plots.overlong import OverlongPicture
from rlviz.widgets.advantages import learns_from_a_group
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Pick, float_control, int_control
from small_models.checks import checked

SHAPINGS = (
    ("soft punishment", "soft"),
    ("the algorithm's own", "own"),
    ("overlong filter", "filter"),
    ("none", "none"),
)


@checked
def explore_overlong(
    algorithm: GroupPolicyGradient = DAPO,
    *,
    shaping: Literal["soft", "own", "filter", "none"] = "soft",
    max_length: int = 16,
    cache: int = 4,
    factor: float = 1.0,
    mean_length: int = 11,
    number_right: int = 5,
) -> Explorer[OverlongCurve]:
    """Return a picture of what shaping does to long responses: to their rewards, and to advantages in a group of eight.

    Left the reward of a right response against the length that it would have: past `max_length` it is cut off and counts as
    wrong, a cliff that the soft punishment turns into a slope. Right the algorithm's advantages of a group, its lengths spread
    around `mean_length`: bars with the shaping, diamonds without; a tick where A would be with 2 R + 1 in place of every R.

    shaping: "soft", DAPO's punishment of these three sliders; "own", the algorithm's; "filter", truncated responses leave the
    loss; "none". max_length: tokens. cache: tokens before max_length over which the punishment grows, below it. factor: the
    punishment at max_length; its floor is −1, so that never more than 1 is taken off. mean_length: tokens, 7 to 21.
    number_right: responses of the eight that would be right, 0 to 8.
    Raises ValueError for a value out of range, or an algorithm whose advantage needs more than rewards and their history.
    """
    return Explorer(
        explore_overlong,
        OverlongPicture,
        overlong_curve,
        [
            Pick("shaping", shaping, SHAPINGS),
            int_control("max_length", max_length, 9, 24, "maximum length"),
            int_control("cache", cache, 1, 8, "cache"),
            float_control("factor", factor, 0.25, 2.0, 0.25, "factor"),
            int_control("mean_length", mean_length, 8, 20, "mean length"),
            int_control("number_right", number_right, 0, 8, "right responses"),
        ],
        AlgorithmControl(algorithm, fits=learns_from_a_group),
    )
