"""The per-token objective, to be maximised. (ratio, advantages, lower, upper) → objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rlviz.pieces.words import explained, label
from rlviz.ranges import Checked, within
from rlviz.types import SameShape, SameShapeMask


@explained(
    why="no reward for moving further than the limits, but every mistake can still be undone.",
    formula="min(ratio · advantages, clip(ratio, lower, upper) · advantages)",
)
def pessimistic(ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape) -> SameShape:
    """Return the smaller of ratio · advantages and its clipped twin.

    The minimum takes the clipped term only where that is the smaller one, so a token that already moved too far the
    wrong way keeps its gradient.
    Source: PPO (arXiv 1707.06347) Eq. 7.
    """
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


@explained(
    why="a bad token whose ratio has run up to c would pull with a weight of c and more; there it is let go.",
    formula="max(min(ratio · advantages, clip(ratio, lower, upper) · advantages), c · min(advantages, 0))",
)
@dataclass(frozen=True)
class DualClip(Checked):
    """`pessimistic`, and for advantages < 0 no less than c · advantages; for others it never was below 0.

    Raises ValueError unless c > 1.
    Source: dual-clip PPO (arXiv 1912.09729). verl always applies c = 3; DCPO uses 10; TRL calls it delta.
    """

    c: float = within(3.0, above=1, reason="c = 1 would cut every gradient of a bad token")

    def __str__(self) -> str:
        return f"dual clip {self.c:g}"

    def __call__(self, ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape) -> SameShape:
        objective = pessimistic(ratio, advantages, lower, upper)
        return torch.where(advantages < 0, torch.maximum(objective, self.c * advantages), objective)


def sign_weighted(
    ratio: SameShape,
    advantages: SameShape,
    lower: SameShape,
    upper: SameShape,
    positive: float | Tensor,
    negative: float | Tensor,
) -> SameShape:
    """Return `pessimistic` with advantages · positive where they are above 0, and advantages · negative where they are below.

    Source: W-REINFORCE (arXiv 2506.01347), which has 0.1 and 1, and no clip.
    """
    return pessimistic(ratio, advantages * torch.where(advantages < 0, negative, positive), lower, upper)


@explained(
    why="the plain importance-weighted policy gradient; a penalty has to keep the policy near, or one update a rollout.",
    formula="ratio · advantages",
)
def unclipped(ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape) -> SameShape:
    """Return ratio · advantages; the limits are ignored.

    Source: PPO (arXiv 1707.06347) Eq. 6.
    """
    return ratio * advantages


@explained(
    why="the clipped ratio is a weight without a gradient of its own, so every token still learns.",
    formula="sg(clip(ratio, lower, upper)) · advantages · log(ratio)",
)
def clipped_weight(ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape) -> SameShape:
    """Return the log of a ratio above 0, weighted by advantages and by the clipped ratio, whose gradient sg stops.

    ∂J/∂logp = clip(ratio, lower, upper) · advantages on every token.

    Source: CISPO (arXiv 2506.13585) Eq. 4, which has log π for log(ratio): the same gradient.
    """
    return torch.clamp(ratio, lower, upper).detach() * advantages * ratio.log()


@explained(
    why="the gradient fades as the ratio leaves 1, and is cut nowhere; faster for bad tokens, whose push spreads over many.",
    formula="4 / tau · sigmoid(tau · (ratio − 1)) · advantages; tau = positive if advantages > 0 else negative",
)
@dataclass(frozen=True)
class SoftGate(Checked):
    """A sigmoid in place of the clip; the limits are ignored.

    At ratio 1 the slope is that of ratio · advantages. Raises ValueError unless both are above 0.
    Source: SAPO (arXiv 2511.20347), τ 1.0 and 1.05.
    """

    positive: float = within(1.0, above=0, finite=True)
    negative: float = within(1.05, above=0, finite=True)

    def __str__(self) -> str:
        return f"soft gate {self.positive:g}/{self.negative:g}"

    def __call__(self, ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape) -> SameShape:
        tau = torch.where(advantages > 0, ratio.new_tensor(self.positive), ratio.new_tensor(self.negative))
        return 4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantages


@explained(
    why="one wild token does not carry a whole response, and each token is clipped before the mean.",
    formula=(
        "exp(mean(log(clipped))) · advantages; clipped = min(ratio, upper) if advantages > 0 else max(ratio, lower)"
    ),
)
def geometric_mean(
    ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape, mask: SameShapeMask
) -> SameShape:
    """Return the geometric mean of the clipped ratios times advantages, on every token of a response.

    Each token's clip is its own pessimistic one.
    Source: GMPO (arXiv 2507.20673), which clips at e^±0.4.
    """
    clipped = torch.where(advantages > 0, torch.minimum(ratio, upper), torch.maximum(ratio, lower))
    logs = clipped.log().masked_fill(~mask, 0.0).sum(-1, keepdim=True)
    return (logs / mask.sum(-1, keepdim=True).clamp(min=1)).exp() * advantages


@explained(
    why="a whole response fades as its probability moves away from the old one, either way, and is cut nowhere.",
    formula=(
        "sg(phi) · advantages · log(ratio); phi = W ** k · exp(lam · (1 − W)); W = prod(ratio); "
        "k = k_negative if advantages < 0 else k_positive; lam = lambda_negative if advantages < 0 else lambda_positive"
    ),
)
@dataclass(frozen=True)
class GammaWeight(Checked):
    """The log ratio weighted by φ, a function of the response's ratio W; the limits are ignored.

    W has no root 1/|o| and no clip; sg stops the gradient, so ∂J/∂logp = φ(W) · advantages on every token, and φ(1) = 1. φ is
    largest at W = k/λ: with these values at ⅔ where advantages ≥ 0, at 1½ where they are below 0. Raises ValueError unless all
    four are above 0 and finite.
    Source: VESPO (arXiv 2602.10693); the four values are TRL's.
    """

    k_positive: float = within(2.0, above=0, finite=True)
    lambda_positive: float = within(3.0, above=0, finite=True)
    k_negative: float = within(3.0, above=0, finite=True)
    lambda_negative: float = within(2.0, above=0, finite=True)

    def __str__(self) -> str:
        return (
            f"φ(W) · A · log ratio, k {self.k_positive:g}/{self.k_negative:g}, "
            f"λ {self.lambda_positive:g}/{self.lambda_negative:g}"
        )

    def __call__(
        self, ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape, mask: SameShapeMask
    ) -> SameShape:
        log_ratio = ratio.log()
        log_W = log_ratio.detach().masked_fill(~mask, 0.0).sum(-1, keepdim=True)
        k = torch.where(advantages < 0, ratio.new_tensor(self.k_negative), ratio.new_tensor(self.k_positive))
        rate = torch.where(
            advantages < 0, ratio.new_tensor(self.lambda_negative), ratio.new_tensor(self.lambda_positive)
        )
        return (rate + k * log_W - rate * log_W.exp()).exp() * advantages * log_ratio


@explained(
    why="an uncertain policy earns a bonus, so that it goes on trying; a large bonus pays for noise.",
    formula="min(ratio · advantages, clip(ratio, lower, upper) · advantages) + entropy_weight · entropy",
)
@dataclass(frozen=True)
class EntropyBonus(Checked):
    """`pessimistic`, and a bonus for the entropy.

    entropy: H of the next-token distribution under the current policy, with gradient, so a token without an advantage learns too.
    Where no distribution is known, as in a picture of one token's ratio, it is None and J is `pessimistic`. Raises ValueError
    unless entropy_weight is above 0 and finite.
    Source: Williams & Peng (1991); A3C (arXiv 1602.01783) §4, .01; PPO (1707.06347) Eq. 9.
    """

    entropy_weight: float = within(0.01, above=0, finite=True)

    def __str__(self) -> str:
        return f"pessimistic + {self.entropy_weight:g} · entropy"

    def __call__(
        self,
        ratio: SameShape,
        advantages: SameShape,
        lower: SameShape,
        upper: SameShape,
        entropy: SameShape | None = None,
    ) -> SameShape:
        objective = pessimistic(ratio, advantages, lower, upper)
        return objective if entropy is None else objective + self.entropy_weight * entropy


@explained(
    why="entropy falls by a few tokens, likely ones with a high A; once an update has moved them, these are held back.",
    formula=(
        "ratio · advantages − beta · chosen · abs(log(ratio)); chosen = one(covariance >= quantile(1 − share)); "
        "covariance = (advantages − mean_of_batch(advantages)) · (old_logp − mean_of_batch(old_logp))"
    ),
)
@dataclass(frozen=True)
class CovariancePenalty(Checked):
    """ratio · advantages, less a penalty on the chosen tokens; the limits are ignored.

    Chosen are the ⌊share · n⌋ of n tokens, at least one, with the highest (A − mean A) · (log π_old − mean log π_old), means over
    all tokens: a policy gradient's step lowers the entropy by the covariance of A and log π. The paper and verl take log π of the
    moment, and of each micro-batch; old_logp is the same in the first update, and makes the choice one of the whole update. The
    penalty needs more than one update a rollout: in the first one log ratio is 0, or in float32 a rounding error, whose sign says
    nothing; below 1e-5 it counts as 0. Raises ValueError unless beta is above 0 and finite and share in (0, 1].
    Source: KL-Cov (arXiv 2505.22617) Eq. 13, share .002 and beta 1; |log ratio| as the KL is the authors' and verl's code.
    """

    beta: float = within(1.0, above=0, finite=True)
    share: float = within(0.002, above=0, at_most=1)

    def __str__(self) -> str:
        return f"ratio · A, {self.beta:g} · |log ratio| off where A and log π covary most ({100 * self.share:g} %)"

    def choose(self, advantages: SameShape, old_logp: SameShape, mask: SameShapeMask) -> SameShapeMask:
        """Return the tokens of highest covariance among all those of the mask."""
        count = mask.sum()
        better = advantages - advantages.masked_fill(~mask, 0.0).sum() / count
        likelier = old_logp - old_logp.masked_fill(~mask, 0.0).sum() / count
        covariance = (better * likelier).masked_fill(~mask, float("-inf"))
        rank = covariance.flatten().argsort(descending=True, stable=True).argsort().view(mask.shape)
        return mask & (rank < (self.share * count.double() + 1e-9).floor().clamp(min=1))

    def __call__(
        self, ratio: SameShape, advantages: SameShape, lower: SameShape, upper: SameShape, chosen: SameShapeMask
    ) -> SameShape:
        away = ratio.log().abs()
        return ratio * advantages - self.beta * chosen * torch.where(away > 1e-5, away, 0.0)


@explained(
    why="a bad response that the policy has moved away from teaches nothing reliable any more, so it is left out.",
    formula=(
        "surrogate(ratio, advantages, lower, upper) if advantages >= 0 or away <= delta else 0; "
        "away = mean(sampler_logp − sg(logp))"
    ),
)
@dataclass(frozen=True)
class SequenceMask(Checked):
    """Another surrogate, without the bad responses that the policy has moved away from.

    `away`, without a gradient, is of a whole response, from the engine that sampled it to the policy as it is now: it grows with
    the mismatch of the two engines and with every update. Raises ValueError unless delta > 0.
    Source: off-policy sequence masking (DeepSeek-V3.2, arXiv 2512.02556, Eq. 9), which does not publish delta; TRL suggests 0.5.
    """

    delta: float = within(0.5, above=0, finite=True)
    surrogate: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = pessimistic

    def __str__(self) -> str:
        return f"{label(self.surrogate)}, bad responses within {self.delta:g} nats"

    def __call__(
        self,
        ratio: SameShape,
        advantages: SameShape,
        lower: SameShape,
        upper: SameShape,
        mask: SameShapeMask,
        logp: SameShape,
        sampler_logp: SameShape,
    ) -> SameShape:
        away = (sampler_logp - logp.detach()).masked_fill(~mask, 0.0).sum(-1, keepdim=True)
        near = away / mask.sum(-1, keepdim=True).clamp(min=1) <= self.delta
        return torch.where((advantages >= 0) | near, self.surrogate(ratio, advantages, lower, upper), 0.0)


def is_clipped(
    surrogate: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    ratio: SameShape,
    advantages: SameShape,
    lower: SameShape,
    upper: SameShape,
) -> tuple[SameShapeMask, SameShapeMask, SameShapeMask]:
    """Return where the surrogate cuts the gradient of a token with advantages ≠ 0: low, high, dual.

    low: at ratios below 1. high: above 1, advantages > 0. dual: above 1, advantages < 0. Asked of autograd,
    ∂J/∂ratio = 0, so it holds for any surrogate. For `pessimistic`, low is where (ratio < lower and A < 0), high where
    (ratio > upper and A > 0), and dual is empty; `DualClip` adds (ratio > c and A < 0).
    """
    with torch.enable_grad():
        leaf = ratio.detach().requires_grad_()
        objective = surrogate(leaf, advantages.detach(), lower, upper)
        slope = None
        if objective.requires_grad:
            (slope,) = torch.autograd.grad(objective.sum(), leaf, allow_unused=True)
    cut = advantages != 0
    if slope is not None:
        cut = cut & (slope == 0)
    above = cut & (ratio > 1)
    return cut & (ratio < 1), above & (advantages > 0), above & (advantages < 0)
