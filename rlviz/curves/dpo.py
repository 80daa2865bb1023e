"""One preference pair: how hard a loss pulls at its margin, and where a small policy goes that is trained on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlviz.algorithms import DPO, DPO_LINEAR, GroupPolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.curves.arrays import Array, array
from rlviz.types import Batch
from small_models.checks import checked

STEPS, POINTS = 40, 401
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
    """Return whether the algorithm has a loss on a pair of responses, given as one or sampled as a group of two."""
    if isinstance(algorithm, GroupPolicyGradient):
        return not algorithm.asks_for("advantage", "step_ends")
    return isinstance(algorithm, PreferenceOptimization)


@checked
def dpo_curve(
    algorithm: PreferenceOptimization | GroupPolicyGradient,
    *,
    chosen_prob: float = 0.2,
    rejected_prob: float = 0.3,
    shared: float = 0.7,
    pace: float = 1.5,
) -> DpoCurve:
    """Return an algorithm's loss and pull against the margin of a pair, and a run of 40 steps of gradient descent on it.

    An algorithm of groups takes the pair for a group of two responses of one token that the reference sampled, with rewards
    1 and 0, and without its KL term. Against the margin m, half of it is the chosen response's, half the rejected one's.

    The run's policy is log-linear: softmax of log(start) + φ · θ with two features, φ = (1 − shared, shared) for the chosen
    response, (0, 1) for the rejected one, (0, 0) for all others, θ from 0. What pushes the rejected one's feature down takes the
    chosen one along by `shared`. The learning rate is set by `pace`: the nats of margin that the first step would gain were
    nothing shared, so that algorithms and betas start alike and differ in where they stop.

    chosen_prob, rejected_prob: under the reference, where the run starts. Raises ValueError for probabilities outside (0, 1) or
    that add up to 1 or more, a shared outside [0, 1], a pace that is not above 0 and finite, or an algorithm without a loss
    on pairs.
    """
    if not learns_from_a_pair(algorithm):
        raise ValueError(f"algorithm: {algorithm.name} has no loss on a pair of responses")
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
    reward = getattr(algorithm, "reward", DPO.reward)
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
        beta=getattr(getattr(algorithm, "reward", None), "beta", math.nan),
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
            rewards = (
                algorithm.reward(own, at.expand(own.shape)) for own, at in zip((chosen, rejected), ref, strict=True)
            )
            return algorithm.pair_loss(*rewards)

        return given
    without_kl = algorithm.without_kl()
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.double)
    one = torch.ones(1, 2, 1, dtype=torch.bool)
    under_the_reference = ref.view(1, 2, 1)
    advantages, _ = without_kl.advantages(rewards, one, old_logp=under_the_reference, ref_logp=under_the_reference)
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
    """Return a round margin by which a loss has let go of a pair, or None if it does not within 500 nats."""
    rounds = torch.tensor([0.0, *ROUND_MARGINS], dtype=torch.double)
    pull = _losses_and_pulls(pair_loss, ref, rounds)[1]
    let_go = (pull[1:] <= FADED * pull[0]).nonzero()
    return ROUND_MARGINS[int(let_go[0])] if len(let_go) else None


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
