"""Estimators of KL(p‖q) on tokens sampled from p, where the estimate enters, and how its weight adapts.

An estimator takes (logp, ref_logp): the sampled token's log-probability under p, which sampled it, and under q.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import Mask, SameShape, Tokens

Estimator = Callable[[Tensor, Tensor], Tensor]
NO_KL = "kl=None leaves the KL term out"


@explained(formula="logp − ref_logp")
def k1(logp: SameShape, ref_logp: SameShape) -> SameShape:
    """Return k1: its mean is the KL, single values are noisy and may be negative.

    Source: Schulman, "Approximating KL divergence" (2020).
    """
    return logp - ref_logp


@explained(formula="(ref_logp − logp) · (ref_logp − logp) / 2")
def k2(logp: SameShape, ref_logp: SameShape) -> SameShape:
    """Return k2: biased as a value, its expected gradient is the KL's.

    Source: Schulman, "Approximating KL divergence" (2020).
    """
    return (ref_logp - logp).square() / 2


@explained(formula="exp(ref_logp − logp) − (ref_logp − logp) − 1")
def k3(logp: SameShape, ref_logp: SameShape) -> SameShape:
    """Return k3: never negative, its mean is the KL, its gradient is not.

    Source: GRPO (arXiv 2402.03300) Eq. 4; Schulman, "Approximating KL divergence" (2020).
    """
    x = ref_logp - logp
    return torch.expm1(x) - x


@explained(formula="gradient(logp, ref_logp) − sg(gradient(logp, ref_logp)) + sg(value(logp, ref_logp))")
@dataclass(frozen=True)
class StraightThrough:
    """The value of one estimator with the gradient of another."""

    value: Estimator
    gradient: Estimator

    def __call__(self, logp: SameShape, ref_logp: SameShape) -> SameShape:
        slope = self.gradient(logp, ref_logp)
        return slope - slope.detach() + self.value(logp, ref_logp).detach()


@explained(formula="k2(logp, ref_logp) − sg(k2(logp, ref_logp)) + sg(k3(logp, ref_logp))")
def k3_plus(logp: SameShape, ref_logp: SameShape) -> SameShape:
    """Return k3 with the gradient of k2: low variance as a value, right as an expected gradient. Source: verl's k3+."""
    return StraightThrough(value=k3, gradient=k2)(logp, ref_logp)


def _name(estimator: Estimator) -> str:
    return getattr(estimator, "__name__", str(estimator)).replace("_plus", "+")


@explained(
    why="a leash to the reference policy, with a gradient of its own on every token.",
    formula="beta · estimator(logp, ref_logp)",
)
@dataclass(frozen=True)
class KLInLoss(Checked):
    """An estimate of beta · KL(π_θ‖π_ref), subtracted from each token's objective.

    Raises ValueError unless beta > 0; no KL term is written kl=None.
    Source: GRPO (arXiv 2402.03300) Eq. 3, beta 0.04.
    """

    beta: float = within(0.04, above=0, finite=True, reason=NO_KL)
    estimator: Estimator = k3

    def __str__(self) -> str:
        return f"{self.beta:g} · {_name(self.estimator)} to reference, in the loss"

    def __call__(self, logp: SameShape, ref_logp: SameShape) -> SameShape:
        return self.beta * self.estimator(logp, ref_logp)


@explained(
    why="a leash to a teacher in the place of the reference: it judges each token, and the reward the whole response."
)
@dataclass(frozen=True)
class KLToTeacher(KLInLoss):
    """An estimate of beta · KL(π_θ‖π_teacher), subtracted from each token's objective.

    The teacher stands where the reference does, and must be given: the start teaches nothing. k2, whose expected gradient is the
    KL's, is the one that the paper found best. Raises ValueError unless beta > 0.
    Source: KDRL (arXiv 2506.02208), its joint loss; beta is chosen here.
    """

    from_teacher: ClassVar[bool] = True

    beta: float = within(0.1, above=0, finite=True, reason=NO_KL)
    estimator: Estimator = k2

    def __str__(self) -> str:
        return f"{self.beta:g} · {_name(self.estimator)} to teacher, in the loss"


@explained(
    why="the leash to the reference policy, weighted by the ratio, so that its expected gradient is that of the KL.",
    formula="beta · ratio · estimator(logp, ref_logp)",
)
@dataclass(frozen=True)
class UnbiasedKL(Checked):
    """A penalty subtracted from each token's objective, whose ratio has a gradient, too.

    E over π_old of ratio · k3 is the KL of the policy as it is now, whatever it is, so the gradient of the one is that of the
    other, in the first update and in later ones. Without the ratio k3's expected gradient is that of KL(π_ref‖π_θ) at first, and
    its value in later updates is weighted by the old policy. Raises ValueError unless beta > 0.
    Source: DeepSeek-V3.2 (arXiv 2512.02556) Eq. 7; the default of TRL 1.16 (use_bias_correction_kl).
    """

    beta: float = within(0.04, above=0, finite=True, reason=NO_KL)
    estimator: Estimator = k3

    def __str__(self) -> str:
        return f"{self.beta:g} · ratio · {_name(self.estimator)} to reference, in the loss"

    def __call__(self, logp: SameShape, ref_logp: SameShape, ratio: SameShape) -> SameShape:
        return self.beta * ratio * self.estimator(logp, ref_logp)


@explained(
    why="a leash to the reference policy that is part of what is rewarded, so advantages and critic know of it.",
    formula="beta · estimator(old_logp, ref_logp)",
)
@dataclass(frozen=True)
class KLInReward(Checked):
    """A penalty subtracted from the reward of each token when it was sampled; 0 on padding.

    Raises ValueError unless beta > 0; no KL term is written kl=None.
    Source: InstructGPT (arXiv 2203.02155) Eq. 2; Ziegler et al. (1909.08593) Eq. 2.
    """

    beta: float = within(0.02, above=0, finite=True, reason=NO_KL)
    estimator: Estimator = k1
    in_reward: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.beta:g} · {_name(self.estimator)} to reference, in the reward"

    def __call__(self, old_logp: Tokens, ref_logp: Tokens, mask: Mask) -> Tokens:
        return (self.beta * self.estimator(old_logp, ref_logp)).masked_fill(~mask, 0.0)


@explained(
    why="instead of a clip, a penalty keeps the policy near the one that sampled; there is no limit to hit.",
    formula="beta · estimator(old_logp, logp)",
)
@dataclass(frozen=True)
class KLToOld(Checked):
    """An estimate of beta · KL(π_old‖π_θ), subtracted from each token's objective.

    The tokens come from π_old, so with k3 this is beta · (r − 1 − log r), and its expected gradient is the KL's.
    Raises ValueError unless beta > 0.
    Source: PPO (arXiv 1707.06347) Eq. 8.
    """

    beta: float = within(1.0, above=0, finite=True, reason=NO_KL)
    estimator: Estimator = k3

    def __str__(self) -> str:
        return f"{self.beta:g} · {_name(self.estimator)} to old policy, in the loss"

    def __call__(self, logp: SameShape, old_logp: SameShape) -> SameShape:
        return self.beta * self.estimator(old_logp, logp)


@explained(
    why="nobody knows the right beta in advance; the KL aimed at is easier to say.",
    formula="beta / 2 if kl < target / 1.5 else (2 · beta if kl > 1.5 · target else beta)",
)
@dataclass(frozen=True)
class AdaptivePenalty(Checked):
    """The next beta, after each update: halved where the KL was well below its target, doubled where it was well above.

    target: the KL aimed at, nats per token. Raises ValueError unless target > 0.
    Source: PPO (arXiv 1707.06347) §4.
    """

    target: float = within(0.02, above=0, finite=True)

    def __str__(self) -> str:
        return f"β halved or doubled around KL {self.target:g}"

    def __call__(self, beta: float, kl: float, count: int = 1) -> float:
        """Return the next beta. count, the number of responses behind `kl`, has no part in this rule."""
        if kl < self.target / 1.5:
            return beta / 2
        return beta * 2 if kl > 1.5 * self.target else beta


@explained(
    why="beta moves in proportion to the miss, and slowly.",
    formula="beta · (1 + clip(kl / target − 1, −0.2, 0.2) · count / horizon)",
)
@dataclass(frozen=True)
class ProportionalController(Checked):
    """The next beta, after each update: moved in proportion to how far the KL missed its target.

    target: the KL aimed at. horizon: responses over which beta reacts. Raises ValueError unless both are above 0.
    Source: Ziegler et al. (arXiv 1909.08593) §2.2.
    """

    target: float = within(6.0, above=0, finite=True)
    horizon: float = within(10_000.0, above=0)

    def __str__(self) -> str:
        return f"β in proportion to KL / {self.target:g}"

    def __call__(self, beta: float, kl: float, count: int) -> float:
        """Return the next beta; count is the number of responses behind `kl`."""
        return beta * (1 + min(max(kl / self.target - 1, -0.2), 0.2) * count / self.horizon)
