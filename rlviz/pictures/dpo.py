"""One preference pair: how hard a loss pulls at its margin, and where a small policy goes that is trained on it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlviz.algorithms import (
    DPO,
    DPO_LINEAR,
    GRPO,
    IPO,
    SIMPO,
    Algorithm,
    GroupPolicyGradient,
    PreferenceOptimization,
)
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures.pair_loss import PairLoss, learns_from_a_pair, numbers_of_a_pair_loss, pair_loss
from rlviz.pictures.spec import OFFERED, Algorithms, explorer

STEPS, POINTS = 40, 201
FADED = 0.05  # of the pull at margin 0: the margins drawn reach to where no more than this is left
ROUND_MARGINS = tuple(step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5))  # 0.001 to 500 nats
HIGHEST_PULL = 8.8  # a loss that pulls harder yet, as one without limits may, leaves the frame


def dpo_curve(algorithm: PreferenceOptimization | GroupPolicyGradient) -> Curve:
    """Return the curve: how hard a loss pulls against the margin of a pair, and a run of 40 steps of gradient descent on it.

    The margin m is log π/π_ref of the chosen response minus that of the rejected, in nats; half of it is the chosen one's, half
    the rejected one's. pull: −∂loss/∂m as a share of its value at margin 0. Beside the algorithm's own are the pulls of DPO's
    two losses with its β, or with DPO's if it has none. An algorithm of groups takes the pair for a group of two responses of
    one token that the reference sampled, with rewards 1 and 0, and without its KL term.

    The run's policy is log-linear: softmax of log(start) + φ · θ with two features, φ = (1 − shared, shared) for the chosen
    response, (0, 1) for the rejected one, (0, 0) for all others, θ from 0. What pushes the rejected one's feature down takes the
    chosen one along by `shared`. pace: the nats of margin that the first step would gain were nothing shared, so that algorithms
    and betas start alike and differ in where they stop.
    """
    bare = algorithm if isinstance(algorithm, PreferenceOptimization) else algorithm.without_kl()

    def curve(
        step: Tensor, chosen_prob: Tensor, rejected_prob: Tensor, shared: Tensor, pace: Tensor, **beta: Tensor
    ) -> dict[str, Tensor]:
        start = torch.stack([chosen_prob, rejected_prob, 1 - chosen_prob - rejected_prob]).log()
        ref = start[:2]
        losses = [pair_loss(with_tensors(rule, beta), ref) for rule in (bare, DPO, DPO_LINEAR)]
        reach = margins_in_sight(losses, ref)
        margin = reach * (torch.arange(POINTS, dtype=torch.double) / (POINTS // 2) - 1)
        pulls = torch.stack([pull_at(loss, ref, margin) for loss in losses])
        slopes = pulls[:, POINTS // 2]
        pulls = pulls / torch.where(slopes != 0, slopes, 1.0).unsqueeze(1)

        # The run. With nothing shared a step moves both logits, and with them the margin, by 2 · lr · slope.
        lr = torch.where(slopes[0] != 0, pace / (2 * slopes[0].abs()), 0.0)
        none, one = torch.zeros_like(shared), torch.ones_like(shared)
        features = torch.stack([1 - shared, shared, none, one, none, none]).reshape(3, 2)

        def descent_step(theta: Tensor) -> tuple[Tensor, Tensor]:
            theta = theta.detach().requires_grad_()
            logp = torch.log_softmax(start + features @ theta, 0)
            (gradient,) = torch.autograd.grad(losses[0](logp[:1], logp[1:2]).sum(), theta)
            return theta - lr * gradient, logp.detach()

        run = repeated(descent_step, torch.zeros(2, dtype=torch.double), STEPS + 1)  # log π, [S + 1, 3]
        number, now = torch.arange(STEPS + 1, dtype=torch.double), run[step.long().reshape(1)][0]
        lowest = doubled(3.0, -run.amin())
        outputs = {
            "margin": margin,
            "left": -reach,
            "reach": reach,
            "pull": pulls[0],
            "sigmoid_pull": pulls[1],
            "linear_pull": pulls[2],
            "pull_low": -doubled(0.15, -pulls.amin()).clamp(max=HIGHEST_PULL),
            "pull_high": doubled(2.2, pulls.amax()).clamp(max=HIGHEST_PULL),
            "half": crossing(margin, pulls[0], 0.5),
            "margin_now": now[0] - run[0, 0] - (now[1] - run[0, 1]),
            "number": number,
            "lowest": -lowest,
            "highest": lowest * 0.025,
            "chosen_from": start[0],
            "rejected_from": start[1],
            "chosen_prob_now": now[0].exp(),
            "chosen_falls": now[0] < start[0] - 0.01,
            "rejected_prob_now": now[1].exp(),
        }
        for i, name in enumerate(("chosen", "rejected", "others")):
            outputs |= {f"{name}_logp": torch.where(number <= step, run[:, i], math.nan), f"{name}_now": now[i]}
        return outputs

    return curve


def pull_at(loss: PairLoss, ref: Tensor, margin: Tensor) -> Tensor:
    """Return −∂loss/∂m at each margin m, half of which lies on the chosen response and half on the rejected one."""
    moved = margin.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(ref[0] + moved / 2, ref[1] - moved / 2).sum(), moved)
    return -gradient


def margins_in_sight(losses: list[PairLoss], ref: Tensor) -> Tensor:
    """Return a round margin by which the first loss that ever does lets go of a pair or pulls it back, at most 500 nats."""
    rounds = torch.tensor([0.0, *ROUND_MARGINS], dtype=torch.double)
    reach = rounds[-1]
    for loss in reversed(losses):
        pull = pull_at(loss, ref, rounds)
        is_faded = pull[1:] <= FADED * pull[0]
        first = first_true(is_faded).clamp(max=len(ROUND_MARGINS) - 1) + 1
        pulls_back = (pull[first] >= 0) & (pull[-1] < 0)  # that is drawn, too
        reach = torch.where(is_faded.any(), rounds[first + pulls_back.long()], reach)
    return reach


def crossing(x: Tensor, y: Tensor, level: float) -> Tensor:
    """Return the first x ≥ 0 at which y falls to the level, by a straight line between grid points; NaN where it does not."""
    first = first_true((x >= 0) & (y <= level))
    i = first.clamp(1, len(x) - 1)
    before, after = y[i - 1], y[i]
    share = (before - level) / torch.where(before != after, before - after, 1.0)
    return torch.where(first < len(x), x[i - 1] + share * (x[i] - x[i - 1]), math.nan)


def first_true(flags: Tensor) -> Tensor:
    """Return the index of the first flag that is true, or how many flags there are."""
    return (flags.long().cumsum(0) == 0).sum()


def doubled(usual: float, furthest: Tensor) -> Tensor:
    """Return the usual limit of an axis, doubled until it is as far out as `furthest`."""
    return usual * 2 ** (furthest / usual).clamp(min=1.0).log2().ceil()


def texts(algorithm: Algorithm) -> dict[str, str]:
    """Return flags: which of DPO's two losses the algorithm is, so that no line is there twice, and whether it has a β."""
    has_beta = "beta" in numbers_of_a_pair_loss(algorithm)
    flags = {"is_sigmoid": algorithm == DPO, "is_linear": algorithm == DPO_LINEAR, "has_beta": has_beta}
    return {name: "yes" for name, flag in flags.items() if flag}


def _response(name: str, colour: str, dash: str, label: str) -> tuple[Line, Points]:
    """Return a response's log-probability, up to the step chosen, and where it stands then."""
    return (
        Line("number", f"{name}_logp", dash, 3, colour=colour, label=label, direct=True),
        Points("step", f"{name}_now", colour=colour, size=9),
    )


_REJECTED = (
    "by step {step:d} of {name}, the rejected one from {rejected_prob:.2g} to {rejected_prob_now:.2g}; their margin is "
    "{margin_now:.3g} nats."
)
DPO_PICTURE = Picture(
    title="Does training on a pair make the chosen response likelier?",
    look="Press ▶: both responses sink while their margin grows. Then move “how alike”.",
    notice="The margin grows, and yet the chosen response can become less likely. Try other values of “how alike”.",
    alt="Left, log-probabilities of the chosen, the rejected and all other responses against training steps. Right, how hard a "
    "loss pulls at a pair of responses, against the pair's margin.",
    panels=(
        Panel(
            "Does the chosen response rise?",
            Axis("step of gradient descent", -0.5, STEPS + 0.5, ticks=(0, 10, 20, 30, 40)),
            Axis("log-probability, nats", "lowest", "highest"),
            (
                Rule("chosen_from", axis="y", colour="blue", width=1.5, drag="chosen_prob", label="at the start"),
                Rule("rejected_from", axis="y", colour="vermilion", width=1.5, drag="rejected_prob"),
                Rule("step", dash="6 2 1 2", width=1.5, colour="ink", drag="step"),
                *_response("others", "grey", "7 3 2 3", "all others"),
                *_response("rejected", "vermilion", "6 3", "rejected"),
                *_response("chosen", "blue", "", "chosen"),
            ),
        ),
        Panel(
            "How hard is the pair pulled apart?",
            Axis("margin, nats: log π/π_ref, chosen − rejected", "left", "reach"),
            Axis("pull, 1 at margin 0", "pull_low", "pull_high"),
            (
                Rule(0.0, dash="", width=1),
                Line("margin", "sigmoid_pull", colour="green", when="!is_sigmoid", label="DPO", direct=True),
                Line(
                    "margin", "linear_pull", "7 3 2 3", colour="purple", when="!is_linear", label="linear", direct=True
                ),
                Line("margin", "pull", width=3, colour="ink", label="{name}", direct=True),
                Rule("half", dash="1 3", colour="ink", when="has_beta", drag="beta", label="half of the pull is left"),
                Rule("margin_now", dash="6 2 1 2", width=1.5, colour="blue", label="margin after {step:d} steps"),
            ),
        ),
    ),
    controls={
        "step": Slider(0, STEPS, 1, STEPS, "step", plays=True),
        "chosen_prob": Slider(0.02, 0.48, 0.02, 0.2, "P(chosen)"),
        "rejected_prob": Slider(0.02, 0.48, 0.02, 0.3, "P(rejected)"),
        "shared": Slider(0.0, 1.0, 0.05, 0.7, "how alike, 0 to 1"),
        "pace": Slider(0.1, 3.0, 0.1, 1.5, "first step, nats"),
    },
    conclusion=(
        # Three digits: a fall of 1 % is to be seen.
        Say(
            f"No: the chosen response falls from probability {{chosen_prob:.3g}} to {{chosen_prob_now:.3g}} {_REJECTED}",
            "chosen_falls",
        ),
        Say(f"The chosen response goes from probability {{chosen_prob:.2g}} to {{chosen_prob_now:.2g}} {_REJECTED}"),
    ),
)

explore_dpo = explorer(
    "dpo",
    DPO_PICTURE,
    dpo_curve,
    algorithms=Algorithms(
        learns_from_a_pair,
        DPO,
        ("beta",),
        among=(DPO, DPO_LINEAR, IPO, SIMPO, *OFFERED),
        numbers=numbers_of_a_pair_loss,
    ),
    texts=texts,
    named={
        "DPO": {},
        "less alike": {"shared": 0.3},
        "linear, never lets go": {"algorithm": DPO_LINEAR, "shared": 0.3},
        "GRPO, a clip": {"algorithm": GRPO},
    },
)
