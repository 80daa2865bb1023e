"""Which way a KL divergence pulls a policy, and how well k1, k2, k3 and k3+ stand for it: value and gradient, enumerated."""

from __future__ import annotations

from functools import cache

from torch import Tensor

from rlviz.algorithms import GRPO, PPO, UNBIASED_KL, PolicyGradient
from rlviz.page.picture import Axis, Choice, Line, Mark, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.kl_estimates import (
    DISTANCES,
    ESTIMATORS,
    MEASURES,
    NEITHER,
    NOWHERE,
    estimator_index,
    measure_function,
    policy_logits,
    pull_direction,
)
from rlviz.pictures.kl_fits import FITTED, FORWARD, PANELS, REVERSE, fits
from rlviz.pictures.spec import Algorithms, explorer

SHOWS = {"forward and reverse fit": "fits", "estimators: value": "value", "estimators: gradient": "gradient"}
VALUES, GRADIENTS = "show=estimators: value", "show=estimators: gradient"
PULLS = {
    None: "{name} has no KL term",
    FORWARD: "{name}'s KL term pulls towards the forward fit",
    REVERSE: "{name}'s KL term pulls towards the reverse fit",
    NEITHER: "{name}'s KL term pulls towards neither fit",
    NOWHERE: "{name}'s KL term pulls nowhere",
}
# estimator by estimator: colour, dash, width, sign and its size; wide ones first, so that a line on another shows both
LOOKS = (
    ("green", "", 2.0, "s", 8),
    ("vermilion", "7 4", 2.8, "^", 9),
    ("blue", "", 6.0, "o", 12),
    ("ink", "2 3", 2.2, "D", 5),
    ("purple", "9 3 2 3", 2.5, "v", 9),
)
DRAWN = (2, 0, 1, 4, 3)


def kl_curve(algorithm: PolicyGradient) -> Curve:
    """Return the curve: two fits, and each estimator against the exact KL at growing distance and at the one picked out.

    kl: the exact KL, nats. value0 …: mean of an estimate / exact KL. value_noise0 …: std of one token's estimate / exact KL.
    gradient_error0 …: ‖mean gradient − ∇KL‖ / ‖∇KL‖. gradient_noise0 …: root of the summed variances of one token's gradient /
    ‖∇KL‖. With _at: at the distance picked out. All by enumeration of 20 tokens, nothing is sampled. An algorithm without a KL
    term shows the estimators in a plain loss.
    """
    return _curve_of_term(algorithm if algorithm.kl is not None else GRPO)


@cache
def _curve_of_term(algorithm: PolicyGradient) -> Curve:
    measure = measure_function(algorithm)

    def curve(apart: Tensor, weight: Tensor, distance: Tensor, logits: Tensor) -> dict[str, Tensor]:
        grid, here = (measure(at, logits) for at in (DISTANCES, distance.reshape(1)))  # the page computes grid once
        outputs = {**fits(apart, weight), "kl": grid["kl"], "kl_at": here["kl"][0]}
        for name in MEASURES:
            outputs |= {f"{name}{i}": row for i, row in enumerate(grid[name])}
            outputs |= {f"{name}{i}_at": row[0] for i, row in enumerate(here[name])}
        return outputs

    return curve


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return the sentence on the direction in which the KL term pulls, and flags of that fit and of its estimator."""
    index, pull = estimator_index(algorithm), pull_direction(algorithm)
    return {"pull": PULLS[pull].replace("{name}", algorithm.name), f"pulls_{pull}": "yes", f"is_{index}": "yes"}


def _panel(measure: str, title: str, y: Axis, exactly: float | None, when: str) -> Panel:
    """Return a panel: one measure of every estimator against the exact KL, and where the chosen distance is."""
    marks: list[Mark] = [Rule("kl_at", drag="distance")]
    if exactly is not None:
        marks.append(Rule(exactly, axis="y", dash="", width=1))
    for i in DRAWN:
        colour, dash, width, sign, size = LOOKS[i]
        name, at = [*ESTIMATORS, "its own"][i], f"{measure}{i}_at"
        marks += [
            Points("kl_at", at, size=20, fill="none", colour="ink", label="{name}'s own", when=f"is_{i}"),
            Line("kl", f"{measure}{i}", dash, width, colour=colour, label=name, direct=True),
            Points("kl_at", at, sign, size, colour=colour),
        ]
    x = Axis("exact KL of the two policies, nats per token", 0.001, 3, log=1, ticks=(0.001, 0.01, 0.1, 1.0))
    return Panel(title, x, y, tuple(marks), when=when)


KL = Picture(
    title="What does a KL penalty pull a policy towards?",
    look="Drag a handle: the humps of the target, or how far the policy has moved.",
    notice="One direction of the KL covers both humps, the other takes one. Of the estimators some are right on average, and "
    "others are less noisy.",
    alt="Two graphs of a KL divergence: either one-humped policies fitted to a two-humped target, or average and noise of "
    "the estimators k1, k2, k3 and k3+ against the exact KL.",
    panels=(
        *PANELS,
        _panel("value", "Value: is it right on average?", Axis("average estimate / exact KL", 0.5, 2), 1, VALUES),
        _panel("value_noise", "Value: how noisy is one token?", Axis("std / exact KL", 0.5, 60, log=1), None, VALUES),
        _panel(
            "gradient_error",
            "Gradient: is it right on average?",
            Axis("error / size of ∇KL", -0.25, 1.7, ticks=(0, 0.5, 1, 1.5)),  # room below 0 to grip
            0,
            GRADIENTS,
        ),
        _panel(
            "gradient_noise",
            "Gradient: how noisy is one token?",
            Axis("std / size of ∇KL", 0.08, 100, log=1),
            None,
            GRADIENTS,
        ),
    ),
    controls={
        "show": Choice(SHOWS, "forward and reverse fit", "show"),
        "apart": Slider(1.0, 8.0, 0.1, 6.0, "humps apart", when=FITTED, plays=True),
        "weight": Slider(0.1, 0.9, 0.05, 0.6, "weight of the left", when=FITTED),
        "distance": Slider(0.05, 2.0, 0.05, 1.0, "policy's distance", when=f"!{FITTED}"),
    },
    data={"logits": policy_logits()},
    conclusion=(
        Say("{pull}; the forward fit is {forward_width:.1f} wide, the reverse fit {reverse_width:.1f}.", FITTED),
        Say(
            "{name}, KL {kl_at:.2g} nats: on average k1, k2, k3 are {value0_at:.0%}, {value1_at:.0%}, {value2_at:.0%} of it, "
            "and their gradients are off by {gradient_error0_at:.0%}, {gradient_error1_at:.0%}, {gradient_error2_at:.0%}."
        ),
    ),
)
explore_kl = explorer(
    "kl",
    KL,
    kl_curve,
    algorithms=Algorithms(has_a_ratio, GRPO),
    texts=texts,
    named={
        "two fits": {},
        "value of k1, k2, k3": {"show": "value"},
        "k3 · ratio": {"algorithm": UNBIASED_KL, "show": "value"},
        "gradient in the loss": {"show": "gradient"},
        "gradient in the reward": {"algorithm": PPO, "show": "gradient"},
    },
)
