"""One preference pair: how hard a loss pulls at its margin, and where a small policy goes that is trained on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.artist import Artist
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
from rlviz.pictures.arguments import OFFERED, Slider
from rlviz.pictures.arrays import Array, array
from rlviz.pictures.base import BLUE, GREEN, GREY, LINE, TEXT, VERMILION, Handle, Picture, dress
from rlviz.pictures.explore import Algorithms, explorer, with_given
from rlviz.pieces.preference import ImplicitReward
from rlviz.types import Batch
from small_models.checks import checked

STEPS, POINTS = 40, 201
FADED = 0.05  # of the pull at margin 0: the margins drawn reach to where no more than this is left
ROUND_MARGINS = tuple(step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5))  # 0.001 to 500 nats
PairLoss = Callable[[Tensor, Tensor], Tensor]  # log-probabilities of chosen and rejected response, [N] each → loss, [N]


@dataclass(frozen=True)
class PairCurve:
    """A pair's loss and pull against its margin, log π/π_ref of the chosen response minus that of the rejected, nats.

    margin, pull, loss: arrays over the grid. pull: −∂loss/∂margin as a share of its value at margin 0, which is `slope`.
    loss: less its value at margin 0, over `slope`, so that every loss leaves 0 with a slope of −1.
    """

    margin: Array
    loss: Array
    pull: Array
    slope: float


@dataclass(frozen=True)
class DpoCurve:
    """How hard an algorithm pulls at a pair, and a run on it; `name` is the algorithm's.

    own, sigmoid, linear: its curve, and those of DPO's two losses with its implicit reward, or with DPO's if it has none. beta:
    that of its implicit reward, NaN if it has none.
    log_probs: [3, S + 1], of the chosen response, the rejected one and all others together, before training and after each
    of S steps, nats. run_margin: [S + 1]. shared: as given.
    """

    name: str
    beta: float
    own: PairCurve
    sigmoid: PairCurve
    linear: PairCurve
    log_probs: Array
    run_margin: Array
    shared: float


def learns_from_a_pair(algorithm: Algorithm) -> bool:
    """Return whether the algorithm has a loss on a pair of responses, given as one or sampled as a group of two.

    Of a pair that is given it must be a function of two rewards alone: ORPO's, which imitates too, has no pull by the margin.
    """
    if isinstance(algorithm, GroupPolicyGradient):
        return not algorithm.asks_for("advantage", "step_ends")
    return isinstance(algorithm, PreferenceOptimization) and not algorithm.asks["pair_loss"]


@checked
def dpo_curve(
    algorithm: PreferenceOptimization | GroupPolicyGradient = DPO,
    *,
    beta: float | None = None,
    chosen_prob: float = 0.2,
    rejected_prob: float = 0.3,
    shared: float = 0.7,
    pace: float = 1.5,
) -> DpoCurve:
    """Return an algorithm's loss and pull against the margin of a pair, and a run of 40 steps of gradient descent on it.

    DPO's sigmoid fades once the pair is ordered, the linear loss never lets go, and a clip stops dead at its limits: an
    algorithm of groups takes the pair for a group of two responses of one token that the reference sampled, with rewards
    1 and 0, and without its KL term. Against the margin m, half of it is the chosen response's, half the rejected one's. All
    losses are drawn from 0 with a slope of −1 at margin 0.

    The run's policy is log-linear: softmax of log(start) + φ · θ with two features, φ = (1 − shared, shared) for the chosen
    response, (0, 1) for the rejected one, (0, 0) for all others, θ from 0. The margin grows, and yet the chosen response may
    become less likely: what pushes the rejected one's feature down takes the chosen one along by `shared`, and its probability
    goes to others that nobody asked for. The learning rate is set by `pace`: the nats of margin that the first step would gain
    were nothing shared, so that algorithms and betas start alike and differ in where they stop.

    beta: of the implicit reward; None: the algorithm's own. chosen_prob, rejected_prob: under the reference, where the run
    starts. Raises ValueError for probabilities outside (0, 1) or that add up to 1 or more, a shared outside [0, 1], a pace that
    is not above 0 and finite, or an algorithm without a loss on pairs.
    """
    algorithm = with_given(algorithm, beta=beta)
    if not learns_from_a_pair(algorithm):
        raise ValueError(f"algorithm: {algorithm.name} has no loss on the margin of a pair")
    for name, value in (("chosen_prob", chosen_prob), ("rejected_prob", rejected_prob)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be above 0 and below 1; got {value}")
    if chosen_prob + rejected_prob >= 1:
        raise ValueError(
            f"chosen_prob and rejected_prob must add up to less than 1; got {chosen_prob} and {rejected_prob}"
        )
    if not 0 <= shared <= 1:
        raise ValueError(f"shared must be from 0 to 1; got {shared}")
    if not 0 < pace < math.inf:
        raise ValueError(f"pace must be above 0 nats and finite; got {pace}")
    beta = of_the_implicit_reward(algorithm).get("beta", math.nan)
    reward = ImplicitReward(beta=beta) if math.isfinite(beta) else DPO.reward
    start = torch.tensor([chosen_prob, rejected_prob, 1 - chosen_prob - rejected_prob], dtype=torch.double).log()
    every = (algorithm, replace(DPO, reward=reward), replace(DPO_LINEAR, reward=reward))
    losses = [_pair_loss(each, start[:2]) for each in every]
    reach = next((reach for loss in losses if (reach := _reach(loss, start[:2])) is not None), ROUND_MARGINS[-1])
    margin = reach * torch.linspace(-1, 1, POINTS, dtype=torch.double)
    own, sigmoid, linear = (_pair_curve(loss, start[:2], margin) for loss in losses)
    # with nothing shared a step moves both logits, and with them the margin, by 2 · lr · slope
    log_probs = _run(losses[0], start, shared, pace / (2 * abs(own.slope)) if own.slope else 0.0)
    gain = log_probs - log_probs[:, :1]
    return DpoCurve(
        name=algorithm.name,
        beta=beta,
        own=own,
        sigmoid=sigmoid,
        linear=linear,
        log_probs=log_probs.numpy(),
        run_margin=(gain[0] - gain[1]).numpy(),
        shared=shared,
    )


def _pair_loss(algorithm: PreferenceOptimization | GroupPolicyGradient, ref: Tensor) -> PairLoss:
    """Return the algorithm's loss on N copies of a pair; ref: log-probabilities of its chosen and rejected response, [2]."""
    if isinstance(algorithm, PreferenceOptimization):

        def given(chosen: Tensor, rejected: Tensor) -> Tensor:
            one_token = torch.ones_like(chosen, dtype=torch.long)
            rewards = (
                algorithm.rewards(own, at.expand(own.shape), one_token)
                for own, at in zip((chosen, rejected), ref, strict=True)
            )
            return algorithm.pair_losses(*rewards)

        return given
    without_kl = algorithm.without_kl()
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.double)
    one = torch.ones(1, 2, 1, dtype=torch.bool)
    under_the_reference = ref.view(1, 2, 1)
    advantages, _ = without_kl.advantages(
        rewards,
        one,
        old_logp=under_the_reference,
        ref_logp=under_the_reference,
        old_entropy=torch.ones_like(under_the_reference),  # both were drawn from one distribution
        correct=rewards,
        well_formed=torch.ones_like(rewards),
    )
    advantages = advantages.double()
    weights = without_kl.aggregate(one).double()

    def sampled(chosen: Tensor, rejected: Tensor) -> Tensor:
        logp = torch.stack([chosen, rejected], -1).unsqueeze(-1)
        shape = logp.shape
        batch = Batch(ref.view(1, 2, 1).expand(shape), advantages.expand(shape), one.expand(shape))
        return -(without_kl.objective(logp, batch).value * weights).sum((1, 2))

    return sampled


def _losses_and_pulls(pair_loss: PairLoss, ref: Tensor, margin: Tensor) -> tuple[Tensor, Tensor]:
    moved = margin.clone().requires_grad_()
    loss = pair_loss(ref[0] + moved / 2, ref[1] - moved / 2)
    (gradient,) = torch.autograd.grad(loss.sum(), moved)
    return loss.detach(), -gradient


def _pair_curve(pair_loss: PairLoss, ref: Tensor, margin: Tensor) -> PairCurve:
    loss, pull = _losses_and_pulls(pair_loss, ref, margin)
    middle = len(margin) // 2
    slope = float(pull[middle])
    return PairCurve(array(margin), array((loss - loss[middle]) / (slope or 1)), array(pull / (slope or 1)), slope)


def _reach(pair_loss: PairLoss, ref: Tensor) -> float | None:
    """Return a round margin by which a loss has let go of a pair or pulls it back, or None if it does not within 500 nats."""
    rounds = torch.tensor([0.0, *ROUND_MARGINS], dtype=torch.double)
    pull = _losses_and_pulls(pair_loss, ref, rounds)[1]
    let_go = (pull[1:] <= FADED * pull[0]).nonzero()
    if not len(let_go):
        return None
    first = int(let_go[0])
    return ROUND_MARGINS[first + int(pull[1 + first] >= 0 > pull[-1])]  # where it pulls back, that is drawn too


def _run(pair_loss: PairLoss, start: Tensor, shared: float, lr: float) -> Tensor:
    """Return the log-probabilities of chosen, rejected and all others, [3, S + 1]; the run begins at `start`."""
    features = torch.tensor([[1 - shared, shared], [0, 1], [0, 0]], dtype=torch.double)
    theta = torch.zeros(2, dtype=torch.double)
    visited = []
    for _ in range(STEPS):
        theta.requires_grad_()
        logp = torch.log_softmax(start + features @ theta, 0)
        visited.append(logp.detach())
        (gradient,) = torch.autograd.grad(pair_loss(logp[:1], logp[1:2]).sum(), theta)
        if not gradient.any():
            break
        theta = (theta - lr * gradient).detach()
    rest = torch.log_softmax(start + features @ theta.detach(), 0)
    return torch.stack([*visited, *[rest] * (STEPS + 1 - len(visited))], 1)


LOWEST = -12.0  # of the log-probabilities drawn, nats; twice as low, or four times, … where a line goes further down
HIGHEST_PULL = 8.8  # a loss that pulls harder yet, as one without limits may, leaves the frame
LOSSES = (  # the further up one lies, the narrower it is, so that all can be seen where they agree
    ("the algorithm's", "black", "-", LINE - 0.5),
    ("sigmoid", GREEN, "-", LINE + 3.5),
    ("linear", "#AA4499", "-.", LINE + 1.5),
)
RESPONSES = (("chosen", BLUE, "-"), ("rejected", VERMILION, "--"), ("all others together", "#595959", "-."))


Limits = tuple[float, tuple[float, float], tuple[float, float], float]


def _doubled(usual: float, furthest: float) -> float:
    """Return the usual limit, or the least of 2, 4, 8, … times it that lies as far out."""
    return float(usual * 2.0 ** max(0, math.ceil(math.log2(max(furthest / usual, 1.0)))))


def _limits(curve: DpoCurve) -> Limits:
    """Return the largest margin drawn, and the limits of loss, pull and log-probabilities between which all lines lie."""
    pairs = (curve.own, curve.sigmoid, curve.linear)
    reach = float(curve.own.margin[-1])
    losses, pulls = (np.concatenate([getattr(pair, name) for pair in pairs]) for name in ("loss", "pull"))
    pull_low, pull_high = (min(_doubled(u, v), HIGHEST_PULL) for u, v in ((0.15, -pulls.min()), (2.2, pulls.max())))
    most = HIGHEST_PULL * reach
    loss_low, loss_high = (min(_doubled(u * reach, v), most) for u, v in ((1.15, -losses.min()), (2.05, losses.max())))
    return reach, (-loss_low, loss_high), (-pull_low, pull_high), -_doubled(-LOWEST, -float(curve.log_probs.min()))


class DpoPicture(Picture[DpoCurve]):
    """Left loss and pull of a pair against its margin, right the log-probabilities of a run on it."""

    size = (10, 4.9)
    alt = (
        "Left, the loss of a pair of responses and below it how hard it pulls, against the pair's margin. "
        "Right, log-probabilities of the chosen, the rejected and all other responses against training steps."
    )

    limits: Limits | None = None

    def draw(self, curve: DpoCurve) -> list[Artist]:
        grid = self.figure.add_gridspec(2, 2)
        self.loss_axes = self.figure.add_subplot(grid[0, 0])
        self.pull_axes = self.figure.add_subplot(grid[1, 0])
        self.run_axes = self.figure.add_subplot(grid[:, 1])
        dress(self.loss_axes, title="How hard is one pair pulled apart?", x="", y="loss, slope −1 at 0")
        dress(self.pull_axes, title="", x="margin, nats: log π/π_ref, chosen − rejected", y="pull, 1 at 0")
        dress(
            self.run_axes,
            title="Does the chosen response rise?",
            x="step of gradient descent",
            y="log-probability, nats",
        )
        for ax in (self.loss_axes, self.pull_axes):
            ax.axhline(0, color=GREY, linewidth=1)
            ax.axvline(0, color=GREY, linewidth=1)
        self.losses, self.pulls = (
            [
                ax.plot([], [], color=c, linestyle=s, linewidth=w, label=name, zorder=3 - w / 10)[0]
                for name, c, s, w in LOSSES
            ]
            for ax in (self.loss_axes, self.pull_axes)
        )
        (self.half,) = self.pull_axes.plot([], [], color="black", linestyle=(0, (1, 1)), linewidth=1.5)
        (self.end,) = self.pull_axes.plot(
            [], [], "o", markersize=11, markeredgecolor="black", markeredgewidth=2, zorder=4
        )
        self.end.set(markerfacecolor="white", label="where the run ends")
        self.starts = [
            self.run_axes.axhline(0, color=colour, linestyle=(0, (1, 2)), linewidth=1.5)
            for _, colour, _ in RESPONSES[:2]
        ]
        self.run = [
            self.run_axes.plot([], [], color=colour, linestyle=style, linewidth=LINE, label=name)[0]
            for name, colour, style in RESPONSES
        ]
        self.run_axes.set_xlim(0, curve.log_probs.shape[1] - 1)
        in_two_rows = [line for pair in zip(self.pulls, self.run, strict=True) for line in pair]
        self.figure.legend(
            handles=[*in_two_rows, self.end],
            loc="outside lower center",
            ncols=4,
            fontsize=TEXT - 1,
            frameon=False,
        )
        lines = sorted([*self.losses, *self.pulls], key=Artist.get_zorder)
        return [self.half, *lines, self.end, *self.starts, *self.run]

    def show(self, curve: DpoCurve) -> None:
        reach, losses, pulls, lowest = limits = _limits(curve)
        if self.limits != limits:
            self.limits = limits
            for ax in (self.loss_axes, self.pull_axes):
                ax.set(xlim=(-reach, reach), xticks=np.linspace(-reach, reach, 5))
            self.loss_axes.set(yticks=(-reach, 0, reach), ylim=losses, xticklabels=[])
            self.pull_axes.set_ylim(pulls)
            self.run_axes.set_ylim(lowest, -0.025 * lowest)
        for loss, pull, pair in zip(self.losses, self.pulls, (curve.own, curve.sigmoid, curve.linear), strict=True):
            loss.set_data(pair.margin, pair.loss)
            pull.set_data(pair.margin, pair.pull)
        half = _half_at(curve)
        self.half.set_data(*(([half, half], [pulls[0], 0.5]) if math.isfinite(half) else ([], [])))
        margin = curve.run_margin[-1]
        self.end.set_data([margin], [np.interp(margin, curve.own.margin, curve.own.pull)])
        for line, log_prob in zip(self.starts, curve.log_probs[:2, 0], strict=True):
            line.set_ydata([log_prob, log_prob])
        for line, values in zip(self.run, curve.log_probs, strict=True):
            line.set_data(np.arange(len(values)), values)

    def still(self, curve: DpoCurve) -> Hashable:
        return _limits(curve)

    def handles(self, curve: DpoCurve) -> list[Handle]:
        half, least = _half_at(curve), curve.own.margin[-1] / 1000
        return [
            *(
                Handle(self.run_axes, "y", float(log_prob), name, math.exp)
                for name, log_prob in zip(("chosen_prob", "rejected_prob"), curve.log_probs[:2, 0], strict=True)
            ),
            # β weighs the margin: where half of the pull is left, β · margin stays what it is
            Handle(self.pull_axes, "x", half, "beta", lambda margin: curve.beta * half / max(margin, least)),
        ]

    def conclusion(self, curve: DpoCurve) -> str:
        chosen, rejected = (f"{math.exp(run[0]):.2f} to {math.exp(run[-1]):.2g}" for run in curve.log_probs[:2])
        return (
            f"{curve.log_probs.shape[1] - 1} steps of {curve.name} take the chosen response from probability {chosen}, the "
            f"rejected one from {rejected}."
        )

    def words(self, curve: DpoCurve) -> str:
        start, end, margin = curve.log_probs[:, 0], curve.log_probs[:, -1], curve.run_margin[-1]
        steps = curve.log_probs.shape[1] - 1
        if curve.shared == 1:
            run = f"To this policy the two responses are one and the same, so {steps} steps leave the margin at 0."
        else:
            run = (
                f"After {steps} steps the margin is {margin:.3g} nats"
                f"{', more than is drawn on the left' if margin > curve.own.margin[-1] else ''}: the chosen log-probability went "
                f"{_went(start[0], end[0])}, the rejected one's {_went(start[1], end[1])}, "
                f"all others together went from probability {math.exp(start[2]):.2f} to {math.exp(end[2]):.2f}."
            )
            if margin > 0 and end[0] < start[0]:
                run += (
                    " The right order was learnt, and yet the chosen response is less likely than before: the two are "
                    "alike, and it went down with the other."
                )
        seen = f", β = {curve.beta:g}" if math.isfinite(curve.beta) else ", rewards 1 and 0 for two sampled responses"
        return f"{curve.name}{seen}: {_say_pull(curve)}. {run}"


def _went(start: float, end: float) -> str:
    if abs(end - start) < 0.005:
        return f"nowhere from {_nats(start)}"
    return f"{'up' if end > start else 'down'} from {_nats(start)} to {_nats(end)}"


def _nats(value: float) -> str:
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _first_below(pair: PairCurve, level: float) -> float | None:
    """Return the first margin of the grid from 0 on with a pull of at most `level`."""
    below = np.flatnonzero((pair.margin >= 0) & (pair.pull <= level))
    return float(pair.margin[below[0]]) if len(below) else None


def _half_at(curve: DpoCurve) -> float:
    """Return the margin at which half of the pull is left, if it fades and there is a β that says how soon; else ∞."""
    pair, after = curve.own, _first_below(curve.own, 0.5)
    if after is None or not pair.slope or not math.isfinite(curve.beta):
        return math.inf
    two = np.searchsorted(pair.margin, after) - np.arange(
        2
    )  # the points of the grid on either side, the later one first
    return float(np.interp(0.5, pair.pull[two], pair.margin[two]))


def _say_pull(curve: DpoCurve) -> str:
    pair = curve.own
    if not pair.slope:
        return "it does not pull at margin 0"
    if pair.pull[-1] < 0:
        turn = int(np.flatnonzero(pair.pull < 0)[0])
        goal = np.interp(0.0, pair.pull[[turn, turn - 1]], pair.margin[[turn, turn - 1]])
        return f"its pull is 0 at a margin of {float(f'{goal:.2g}'):g} nats, and beyond it pulls back"
    if not pair.pull[-1]:
        last = np.flatnonzero(pair.pull)[-1]
        return f"its pull stops dead at a margin of {pair.margin[last + 1]:.2g} nats"
    half = _first_below(pair, 0.5)
    if half is None:
        return f"its pull never lets go of a pair, here up to a margin of {pair.margin[-1]:g} nats"
    return f"its pull fades, half of it is left at a margin of {float(f'{half:.2g}'):g} nats"


def of_the_implicit_reward(algorithm: Algorithm) -> dict[str, int | float]:
    """Return the numbers that shape a loss on pairs; a KL term's β has no part in it."""
    return numbers(algorithm) if isinstance(algorithm, PreferenceOptimization) else {}


def _samples(algorithm: Algorithm) -> bool:
    """Return whether the algorithm samples the pair, rather than being given it."""
    return not isinstance(algorithm, PreferenceOptimization)


explore_dpo = explorer(
    "dpo",
    dpo_curve,
    DpoPicture,
    algorithms=Algorithms(
        fits=learns_from_a_pair,
        parameters=("beta",),
        among=(DPO, DPO_LINEAR, *sorted((a for a in OFFERED if a is not DPO), key=_samples)),
        numbers=of_the_implicit_reward,
    ),
    controls={
        "chosen_prob": Slider(0.02, 0.48, 0.02, "P(chosen)"),
        "rejected_prob": Slider(0.02, 0.48, 0.02, "P(rejected)"),
        "shared": Slider(0.0, 1.0, 0.05, "how alike, 0 to 1"),
        "pace": Slider(0.1, 3.0, 0.1, "first step, nats"),
    },
    grid={
        "algorithm": (DPO, DPO_LINEAR, GRPO),
        "shared": (0.0, 0.3, 0.5, 0.7, 0.9),
        "chosen_prob": (0.06, 0.12, 0.2, 0.3, 0.44),
    },
    twin={
        "DPO: fades, and the chosen response falls too": {},
        "DPO, less alike: the chosen response rises": {"shared": 0.3},
        "DPO (linear), less alike: never lets go": {"algorithm": DPO_LINEAR, "shared": 0.3},
        "GRPO on the same pair: the clip stops dead": {"algorithm": GRPO},
    },
)
