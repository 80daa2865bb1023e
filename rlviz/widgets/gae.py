"""explore_gae: credit from a critic, token by token, and what γ and λ trade."""

from __future__ import annotations

from typing import Literal

from rlviz.algorithms import PPO, Algorithm, PolicyGradient
from rlviz.curves.gae import MOST_TOKENS, GAECurve, gae_curve
from rlviz.plots.gae import GAEPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Pick, float_control, int_control
from small_models.checks import checked


def judges_outcomes(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages of one reward an answer."""
    return isinstance(algorithm, PolicyGradient) and not algorithm.asks_for("advantage", "step_ends")


@checked
def explore_gae(
    algorithm: PolicyGradient = PPO,
    *,
    gamma: float | None = None,
    lam: float | None = None,
    tokens: int = 12,
    answer: Literal["right", "wrong"] = "right",
    start: float = 0.5,
    offset: float = 0.0,
    wiggle: float = 0.2,
) -> Explorer[GAECurve]:
    """Return a picture of the advantage of each token of an answer, and of bias and noise of such credit against λ.

    An algorithm without a critic gives one number to all tokens, from the outcome; the lines show what a critic would give.
    gamma, lam: of GAE; None: the algorithm's own. tokens: in the answer. answer: "right" or "wrong". start: the chance of a
    right answer before the first token. offset, wiggle: how wrong the critic is, everywhere alike and token by token, in
    rewards. Raises ValueError for a value out of range, or an algorithm that needs rewards of single steps.
    """
    chosen = AlgorithmControl(algorithm, ("gamma", "lam"), fits=judges_outcomes, starting={"gamma": gamma, "lam": lam})
    return Explorer(
        explore_gae,
        GAEPicture,
        gae_curve,
        [
            Pick("answer", answer, [("right", "right"), ("wrong", "wrong")], "the answer is"),
            int_control("tokens", tokens, 4, MOST_TOKENS, "tokens"),
            float_control("start", start, 0.1, 0.9, 0.05, "chance at the start"),
            float_control("offset", offset, -0.3, 0.3, 0.05, "critic: offset"),
            float_control("wiggle", wiggle, 0.0, 0.3, 0.05, "critic: wiggle"),
        ],
        chosen,
    )
