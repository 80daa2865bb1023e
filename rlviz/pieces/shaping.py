"""What is done to rewards before advantages. (rewards [P, G], lengths [P, G]) → rewards [P, G]."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import Mask, Responses


@explained(
    why="a small share for the form keeps answers readable by the rule that grades them.",
    formula="answer · correct + format · well_formed",
)
@dataclass(frozen=True)
class WeightedRules(Checked):
    """What two rules saw, weighted and summed, in place of other rewards.

    correct: the task's reward, well_formed: 0 or 1, [P, G]. Raises ValueError for a negative weight.
    Source: WebSailor (arXiv 2507.02592): 0.1 format, 0.9 answer.
    """

    answer: float = within(0.9, at_least=0, finite=True)
    format: float = within(0.1, at_least=0, finite=True)

    def __str__(self) -> str:
        return f"{self.answer:g} answer + {self.format:g} format"

    def __call__(
        self, rewards: Responses, lengths: Int[Tensor, "P G"], correct: Responses, well_formed: Responses
    ) -> Responses:
        return self.answer * correct + self.format * well_formed


@explained(
    why="a response is told smoothly that it grows too long, instead of being cut off and called wrong.",
    formula="reward + clip(−factor · (length − (max_length − cache)) / cache, floor, 0)",
)
@dataclass(frozen=True)
class SoftOverlongPunishment(Checked):
    """A punishment that grows from max_length − cache tokens on, down to `floor`.

    max_length, cache: tokens. floor: −1 in the paper and in TRL; −∞ as in verl, whose sampler stops at max_length.
    The paper pays 1 and −1: with rewards of 1 and 0, half as far apart, factor ½ and floor −½ weigh as much.
    cache = max_length punishes from the first token on. Raises ValueError unless 0 < cache ≤ max_length, factor > 0, floor < 0.
    Source: DAPO (arXiv 2503.14476) Eq. 13.
    """

    max_length: int
    cache: int
    factor: float = within(1.0, above=0, finite=True)
    floor: float = within(-1.0, below=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.cache <= self.max_length:
            raise ValueError(
                f"cache must be above 0 and at most max_length ({self.max_length}): punishment starts at max_length − cache "
                f"tokens; got {self.cache}"
            )
        if not 0 < self.factor < float("inf"):
            raise ValueError(f"factor must be above 0 and finite; got {self.factor}")
        if not self.floor < 0:
            raise ValueError(f"floor must be below 0; got {self.floor}")

    def __str__(self) -> str:
        return f"overlong punishment from {self.max_length - self.cache} to {self.max_length} tokens"

    def __call__(self, rewards: Responses, lengths: Int[Tensor, "P G"]) -> Responses:
        over = (lengths - (self.max_length - self.cache)).to(rewards.dtype) / self.cache
        return rewards + (-self.factor * over).clamp(self.floor, 0.0)


@explained(
    why="what a learned reward overpays for length is taken off again; responses of one length are ordered as before.",
    formula="reward − per_token · length",
)
@dataclass(frozen=True)
class LengthCost(Checked):
    """Every token costs the same, from the first one on.

    per_token: in the unit of R. Raises ValueError unless it is above 0 and finite.
    Source: the length-regularised objective of R-DPO (Park et al., arXiv 2403.19159), E[R − α · |y|].
    """

    per_token: float = within(above=0, finite=True)

    def __str__(self) -> str:
        return f"−{self.per_token:g} a token"

    def __call__(self, rewards: Responses, lengths: Int[Tensor, "P G"]) -> Responses:
        return rewards - self.per_token * lengths.to(rewards.dtype)


@explained(
    why="a response that was cut off is not known to be wrong, so its reward would be noise.",
    formula="reward; mask = mask · (1 − truncated)",
)
@dataclass(frozen=True)
class OverlongFilter:
    """Rewards as they are; truncated responses leave the loss by their mask, and nothing is sampled in their place.

    Source: DAPO (arXiv 2503.14476), overlong reward shaping.
    """

    def __str__(self) -> str:
        return "truncated responses leave the loss"

    def __call__(self, rewards: Responses, lengths: Int[Tensor, "P G"]) -> Responses:
        return rewards

    def loss_mask(self, mask: Mask, truncated: Bool[Tensor, "P G"]) -> Mask:
        """Return the mask without the truncated responses."""
        return mask & ~truncated.unsqueeze(-1)
