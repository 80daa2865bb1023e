"""One preference pair: how hard a loss pulls at its margin, and where a small policy goes that is trained on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rlviz.algorithms import (
    DPO,
    DPO_LINEAR,
    GRPO,
    Algorithm,
    GroupPolicyGradient,
    PreferenceOptimization,
    numbers,
)
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures.idea import OFFERED, Algorithms, explorer
from rlviz.types import Batch

STEPS, POINTS = 40, 201
FADED = 0.05  # of the pull at margin 0: the margins drawn reach to where no more than this is left
ROUND_MARGINS = tuple(step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5))  # 0.001 to 500 nats
LOWEST = -3.0  # of the log-probabilities drawn, nats; twice as low, or four times, … where a line goes further down
HIGHEST_PULL = 8.8  # a loss that pulls harder yet, as one without limits may, leaves the frame
PairLoss = Callable[[Tensor, Tensor], Tensor]  # log-probabilities of chosen and rejected response, [N] each → loss, [N]


def learns_from_a_pair(algorithm: Algorithm) -> bool:
    """Return whether the algorithm has a loss on a pair of responses, given as one or sampled as a group of two.

    Of a pair that is given it must be a function of two rewards alone: ORPO's, which imitates too, has no pull by the margin.
    """
    if isinstance(algorithm, GroupPolicyGradient):
        return not algorithm.asks_for("advantage", "step_ends")
    return isinstance(algorithm, PreferenceOptimization) and not algorithm.asks["pair_loss"]


def check_learns_from_a_pair(algorithm: Algorithm) -> None:
    """Raise ValueError, which says what the algorithm lacks."""
    raise ValueError(f"algorithm: {algorithm.name} has no loss on the margin of a pair")


def dpo(algorithm: PreferenceOptimization | GroupPolicyGradient) -> Curve:
    """Return the curve: loss and pull against the margin of a pair, and a run of 40 steps of gradient descent on it.

    The margin m is log π/π_ref of the chosen response minus that of the rejected, in nats; half of it is the chosen one's, half
    the rejected one's. pull: −∂loss/∂m as a share of its value at margin 0, the slope; loss: less its value there, over the
    slope, so that all leave 0 with a slope of −1. Beside the algorithm's own are DPO's two losses with its β, or with DPO's if
    it has none. An algorithm of groups takes the pair for a group of two responses of one token that the reference sampled,
    with rewards 1 and 0, and without its KL term.

    The run's policy is log-linear: softmax of log(start) + φ · θ with two features, φ = (1 − shared, shared) for the chosen
    response, (0, 1) for the rejected one, (0, 0) for all others, θ from 0. The margin grows, and yet the chosen response may
    become less likely: what pushes the rejected one's feature down takes the chosen one along by `shared`. pace: the nats of
    margin that the first step would gain were nothing shared, so that algorithms and betas start alike and differ in where they
    stop.
    """
    own = algorithm if isinstance(algorithm, PreferenceOptimization) else algorithm.without_kl()

    def curve(
        step: Tensor, chosen_prob: Tensor, rejected_prob: Tensor, shared: Tensor, pace: Tensor, **beta: Tensor
    ) -> dict[str, Tensor]:
        start = torch.stack([chosen_prob, rejected_prob, 1 - chosen_prob - rejected_prob]).log()
        losses = {
            name: _pair_loss(with_tensors(each, beta), start[:2])
            for name, each in (("own", own), ("sigmoid", DPO), ("linear", DPO_LINEAR))
        }
        reach = _reach(list(losses.values()), start[:2])
        margin = reach * (torch.arange(POINTS, dtype=torch.double) / (POINTS // 2) - 1)
        outputs = {"reach": reach, "left": -reach, "margin": margin}
        for name, loss in losses.items():
            values, pull = _losses_and_pulls(loss, start[:2], margin)
            slope = pull[POINTS // 2]
            unit = torch.where(slope != 0, slope, 1.0)
            outputs |= {f"{name}_loss": (values - values[POINTS // 2]) / unit, f"{name}_pull": pull / unit}
            outputs[f"{name}_slope"] = slope
        slope = outputs["own_slope"]
        # with nothing shared a step moves both logits, and with them the margin, by 2 · lr · slope
        run = _run(losses["own"], start, shared, torch.where(slope != 0, pace / (2 * slope.abs()), 0.0))
        return (
            outputs
            | _limits(outputs, run)
            | _letting_go(margin, outputs["own_pull"], slope)
            | _told(run, outputs, step)
        )

    return curve


def _pair_loss(algorithm: PreferenceOptimization | GroupPolicyGradient, ref: Tensor) -> PairLoss:
    """Return the algorithm's loss on N copies of a pair; ref: log-probabilities of its chosen and rejected response, [2]."""
    if isinstance(algorithm, PreferenceOptimization):

        def given(chosen: Tensor, rejected: Tensor) -> Tensor:
            one_token = torch.ones_like(chosen, dtype=torch.long)
            return algorithm.pair_losses(
                algorithm.rewards(chosen, ref[0].expand(chosen.shape), one_token),
                algorithm.rewards(rejected, ref[1].expand(rejected.shape), one_token),
            )

        return given
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.double)
    one = torch.ones(1, 2, 1, dtype=torch.bool)
    under_the_reference = ref.view(1, 2, 1)
    advantages, _ = algorithm.advantages(
        rewards,
        one,
        old_logp=under_the_reference,
        ref_logp=under_the_reference,
        old_entropy=torch.ones_like(under_the_reference),  # both were drawn from one distribution
        correct=rewards,
        well_formed=torch.ones_like(rewards),
    )
    weights = algorithm.aggregate(one).double()

    def sampled(chosen: Tensor, rejected: Tensor) -> Tensor:
        logp = torch.stack([chosen, rejected], -1).unsqueeze(-1)
        shape = logp.shape
        batch = Batch(under_the_reference.expand(shape), advantages.double().expand(shape), one.expand(shape))
        return -(algorithm.objective(logp, batch).value * weights).sum((1, 2))

    return sampled


def _losses_and_pulls(pair_loss: PairLoss, ref: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    moved = margin.detach().requires_grad_()
    loss = pair_loss(ref[0] + moved / 2, ref[1] - moved / 2)
    (gradient,) = torch.autograd.grad(loss.sum(), moved)
    return loss.detach(), -gradient


def _reach(losses: list[PairLoss], ref: Tensor) -> Tensor:
    """Return a round margin by which the first loss that ever does has let go of a pair or pulls it back, at most 500 nats."""
    rounds = torch.tensor([0.0, *ROUND_MARGINS], dtype=torch.double)
    reach = rounds[-1]
    for loss in reversed(losses):
        pull = _losses_and_pulls(loss, ref, rounds)[1]
        first = _first(pull[1:] <= FADED * pull[0]).clamp(max=len(ROUND_MARGINS) - 1) + 1
        lets_go = (pull[1:] <= FADED * pull[0]).any()
        pulls_back = (pull[first] >= 0) & (pull[-1] < 0)  # that is drawn, too
        reach = torch.where(lets_go, rounds[first + pulls_back.long()], reach)
    return reach


def _first(true: Tensor) -> Tensor:
    """Return the place of the first that is true, or how many there are."""
    return (true.long().cumsum(0) == 0).sum()


def _crossing(x: Tensor, y: Tensor, level: float) -> Tensor:
    """Return where y, between the grid's points, first falls to the level at an x above 0; NaN where it does not."""
    at = _first((x >= 0) & (y <= level))
    place = at.clamp(1, len(x) - 1)
    before, after = y[place - 1], y[place]
    share = (before - level) / torch.where(before != after, before - after, 1.0)
    return torch.where(at < len(x), x[place - 1] + share * (x[place] - x[place - 1]), math.nan)


def _run(pair_loss: PairLoss, start: Tensor, shared: Tensor, lr: Tensor) -> Tensor:
    """Return the log-probabilities of chosen, rejected and all others, [S + 1, 3]; the run begins at `start`."""
    none, one = torch.zeros_like(shared), torch.ones_like(shared)
    features = torch.stack([1 - shared, shared, none, one, none, none]).reshape(3, 2)

    def step(theta: Tensor) -> tuple[Tensor, Tensor]:
        theta = theta.detach().requires_grad_()
        logp = torch.log_softmax(start + features @ theta, 0)
        (gradient,) = torch.autograd.grad(pair_loss(logp[:1], logp[1:2]).sum(), theta)
        return theta - lr * gradient, logp.detach()

    return repeated(step, torch.zeros(2, dtype=torch.double), STEPS + 1)


def _limits(outputs: Mapping[str, Tensor], run: Tensor) -> dict[str, Tensor]:
    """Return the limits of the axes, between which all lines lie: the usual ones, doubled as often as needed."""

    def doubled(usual: Tensor | float, furthest: Tensor) -> Tensor:
        return usual * 2 ** (furthest / usual).clamp(min=1.0).log2().ceil()

    reach = outputs["reach"]
    losses, pulls = (
        torch.stack([outputs[f"{name}_{what}"] for name in ("own", "sigmoid", "linear")]) for what in ("loss", "pull")
    )
    most = HIGHEST_PULL * reach
    return {
        "loss_low": -torch.minimum(doubled(1.15 * reach, -losses.amin()), most),
        "loss_high": torch.minimum(doubled(2.05 * reach, losses.amax()), most),
        "pull_low": -doubled(0.15, -pulls.amin()).clamp(max=HIGHEST_PULL),
        "pull_high": doubled(2.2, pulls.amax()).clamp(max=HIGHEST_PULL),
        "lowest": -doubled(-LOWEST, -run.amin()),
        "highest": doubled(-LOWEST, -run.amin()) * 0.025,
    }


def _letting_go(margin: Tensor, pull: Tensor, slope: Tensor) -> dict[str, Tensor]:
    """Return how the pull ends: at which margin half of it is left, it stops or turns round; and which of them it does."""
    pulls = slope != 0
    back, stops = pulls & (pull[-1] < 0), pulls & (pull[-1] == 0)
    half = torch.where(pulls, _crossing(margin, pull, 0.5), math.nan)
    last = ((pull != 0) * torch.arange(1, POINTS + 1)).amax()  # one after the last that pulls
    flags = {
        "pulls_not": ~pulls,
        "pulls_back": back,
        "stops_dead": stops,
        "never_lets_go": pulls & ~back & ~stops & half.isnan(),
        "fades": pulls & ~back & ~stops & ~half.isnan(),
    }
    return {
        "half": half,
        "stop": margin[last.clamp(max=POINTS - 1)],
        "goal": _crossing(margin, pull, 0.0),
        **flags,
    }


def _told(run: Tensor, outputs: Mapping[str, Tensor], step: Tensor) -> dict[str, Tensor]:
    """Return the run as lines, whole and up to a step, and as the numbers that are said of that step."""
    margin, pull = outputs["margin"], outputs["own_pull"]
    number, at = torch.arange(STEPS + 1, dtype=torch.double), step.long().reshape(1)
    gain, now = run - run[0], run[at][0]
    grown = gain[:, 0] - gain[:, 1]
    grown_now = grown[at]
    after = torch.searchsorted(margin, grown_now).clamp(1, POINTS - 1)[0]
    share = (grown_now[0] - margin[after - 1]) / (margin[after] - margin[after - 1])
    found = {"number": number, "run_margin": grown, "margin_now": grown_now[0]}
    found["pull_now"] = pull[after - 1] + share.clamp(0, 1) * (pull[after] - pull[after - 1])
    for place, name in enumerate(("chosen", "rejected", "others")):
        logp = run[:, place]
        found |= {f"{name}_logp": logp, f"{name}_walked": torch.where(number <= step, logp, math.nan)}
        found |= {f"{name}_from": logp[0], f"{name}_to": now[place]}
        found |= {f"{name}_prob_from": logp[0].exp(), f"{name}_prob_to": now[place].exp()}
    falls = (grown_now[0] > 1e-9) & (now[0] < run[0, 0])
    beyond = grown_now[0] > margin[-1]
    flags = {"falls": falls, "rises": ~falls & (now[0] - run[0, 0] > 1e-9), "beyond": beyond}
    return found | flags | {"alike": grown.abs().amax() < 1e-9}


def of_the_implicit_reward(algorithm: Algorithm) -> dict[str, int | float]:
    """Return the numbers that shape a loss on pairs; a KL term's β has no part in it."""
    return numbers(algorithm) if isinstance(algorithm, PreferenceOptimization) else {}


def texts(algorithm: PreferenceOptimization | GroupPolicyGradient) -> dict[str, str]:
    """Return which of the losses the algorithm's own is, and how it comes by the pair."""
    if not isinstance(algorithm, PreferenceOptimization):
        return {"sampled": "yes"}
    kinds = {"is_sigmoid": DPO, "is_linear": DPO_LINEAR}
    is_one = {
        name: type(algorithm.reward) is type(each.reward) and algorithm.pair_loss == each.pair_loss
        for name, each in kinds.items()
    }
    return {name: "yes" for name, flag in {**is_one, "has_beta": "beta" in numbers(algorithm)}.items() if flag}


def _lines(what: str) -> tuple[Line, ...]:
    """Return the three losses, or pulls; one that is the algorithm's own is there once."""
    return (
        Line("margin", f"sigmoid_{what}", "", 2.5, colour="green", when="!is_sigmoid", label="DPO", direct=True),
        Line(
            "margin", f"linear_{what}", "7 3 2 3", 2.5, colour="purple", when="!is_linear", label="linear", direct=True
        ),
        Line("margin", f"own_{what}", "", 3, colour="ink", label="{name}", direct=True),
    )


def _response(name: str, colour: str, dash: str, label: str) -> tuple[Line, Points]:
    """Return a response's log-probability, up to the step chosen, and where it stands then."""
    return (
        Line("number", f"{name}_walked", dash, 3, colour=colour, label=label, direct=True),
        Points("step", f"{name}_to", colour=colour, size=9),
    )


_FROM_TO = "from probability {chosen_prob_from:.2g} to {chosen_prob_to:.2g}"
_OTHER = "the rejected one from {rejected_prob_from:.2g} to {rejected_prob_to:.2g}"
DPO_PICTURE = Picture(
    title="Does training on a pair make the chosen response likelier?",
    look="Press ▶: both responses sink while their margin grows. Then move “how alike”.",
    notice=(
        "The margin of a pair grows, and yet the chosen response can become less likely: make the two responses more "
        "alike and look at the right-hand graph."
    ),
    alt="Left, log-probabilities of the chosen, the rejected and all other responses against training steps. Right, how hard a "
    "loss pulls at a pair of responses, and the loss below it, against the pair's margin.",
    panels=(
        Panel(
            "Does the chosen response rise?",
            Axis("step of gradient descent", -0.5, STEPS + 0.5, ticks=(0, 10, 20, 30, 40)),
            Axis("log-probability, nats", "lowest", "highest"),
            (
                Rule("chosen_from", axis="y", colour="blue", width=1.5, drag="chosen_prob", label="at the start"),
                Rule(
                    "rejected_from", axis="y", colour="vermilion", width=1.5, drag="rejected_prob", label="at the start"
                ),
                Rule("step", dash="6 2 1 2", width=1.5, colour="ink", drag="step"),
                *_response("others", "grey", "7 3 2 3", "all others"),
                *_response("rejected", "vermilion", "6 3", "rejected"),
                *_response("chosen", "blue", "", "chosen"),
            ),
            tall=1.15,
        ),
        Panel(
            "How hard is the pair pulled apart?",
            Axis("margin, nats: log π/π_ref, chosen − rejected", "left", "reach"),
            Axis("pull, 1 at margin 0", "pull_low", "pull_high"),
            (
                Rule(0.0, dash="", width=1),
                *_lines("pull"),
                Rule("half", dash="1 3", width=1.5, colour="ink", when="has_beta", drag="beta"),
                Points("margin_now", "pull_now", colour="ink", size=10, fill="none", label="the run at this step"),
            ),
            tall=0.63,
        ),
        Panel(
            "",
            Axis("margin, nats", "left", "reach"),
            Axis("loss, slope −1 at margin 0", "loss_low", "loss_high"),
            (Rule(0.0, dash="", width=1), *_lines("loss")),
            tall=0.52,
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
        Say(
            f"{{name}} learns the right order, and yet by step {{step:d}} the chosen response went down {_FROM_TO}; {_OTHER}.",
            "falls",
        ),
        Say(f"By step {{step:d}} of {{name}} the chosen response went up {_FROM_TO}, and {_OTHER}.", "rises"),
        Say(f"By step {{step:d}} of {{name}} the chosen response went {_FROM_TO}, and {_OTHER}."),
    ),
    says=(
        Say("{name}, β = {beta}.", "has_beta"),
        Say("{name}: rewards 1 and 0 for two sampled responses.", "sampled"),
        Say("It does not pull at margin 0.", "pulls_not"),
        Say("Its pull is 0 at a margin of {goal:.3g} nats, and beyond it pulls back.", "pulls_back"),
        Say("Its pull stops dead at a margin of {stop:.3g} nats.", "stops_dead"),
        Say("Its pull never lets go of a pair, here up to a margin of {reach} nats.", "never_lets_go"),
        Say("Its pull fades: half of it is left at a margin of {half:.3g} nats.", "fades"),
        Say(f"To this policy the two responses are one and the same, so {STEPS} steps leave the margin at 0.", "alike"),
        Say("At step {step:d} the margin is {margin_now:.3g} nats, more than is drawn.", "beyond"),
        Say("At step {step:d} the margin is {margin_now:.3g} nats.", "!beyond"),
        Say(
            "The chosen log-probability went from {chosen_from:.2f} to {chosen_to:.2f}, the rejected one's from "
            "{rejected_from:.2f} to {rejected_to:.2f}; all others together went from probability {others_prob_from:.2f} to "
            "{others_prob_to:.2f}."
        ),
        Say("The two are alike, and the chosen one went down with the other.", "falls"),
    ),
)

explore_dpo = explorer(
    "dpo",
    DPO_PICTURE,
    dpo,
    algorithms=Algorithms(
        learns_from_a_pair,
        DPO,
        ("beta",),
        check=check_learns_from_a_pair,
        among=(
            DPO,
            DPO_LINEAR,
            *sorted((a for a in OFFERED if a is not DPO), key=lambda a: not isinstance(a, PreferenceOptimization)),
        ),
        numbers=of_the_implicit_reward,
    ),
    texts=texts,
    named={
        "DPO": {},
        "less alike": {"shared": 0.3},
        "linear, never lets go": {"algorithm": DPO_LINEAR, "shared": 0.3},
        "GRPO, a clip": {"algorithm": GRPO},
    },
)
