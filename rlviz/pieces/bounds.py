"""Limits on the importance ratio, possibly a function of the old probability. (old_logp) → (lower, upper)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import SameShape

Limits = tuple[SameShape, SameShape]


@explained(
    why="a ratio that has left the limits the good way earns no more gradient in this rollout.",
    formula="1 − eps_low, 1 + eps_high",
)
@dataclass(frozen=True)
class FixedBounds(Checked):
    """The same limits, lower and upper, for every token.

    eps_low and eps_high are widths. Equal widths: PPO (arXiv 1707.06347) Eq. 7; eps_high > eps_low is DAPO's clip-higher
    (2503.14476) Eq. 10. Raises ValueError unless 0 < eps_low < 1 and eps_high > 0.
    """

    eps_low: float = within(0.2, above=0, below=1, reason="a ratio cannot fall below 0")
    eps_high: float = within(0.2, above=0, finite=True)

    def __str__(self) -> str:
        return f"1 − {self.eps_low:g} … 1 + {self.eps_high:g}"

    def __call__(self, old_logp: SameShape) -> Limits:
        """Return lower and upper limits on the ratio, shaped like old_logp."""
        return torch.full_like(old_logp, 1 - self.eps_low), torch.full_like(old_logp, 1 + self.eps_high)


@explained(
    why="under fixed limits a token of probability .01 may move by .002 only; here its ratio may go much further.",
    formula=(
        "0.5 + 0.5 · sqrt(max(1 − 4 · eps_low / exp(old_logp), 0)), "
        "min(0.5 + 0.5 · sqrt(1 + 4 · eps_high / exp(old_logp)), max_ratio)"
    ),
)
@dataclass(frozen=True)
class DynamicBounds(Checked):
    """Limits that widen as the old probability q = exp(old_logp) falls, from |(r − 1) · r q| ≤ eps.

    lower is ½ for every q ≤ 4 eps_low. Raises ValueError unless 0 < eps_low < 1, eps_high > 0 and max_ratio > 1.
    Source: DCPO (arXiv 2509.02333), dynamic-adaptive clipping; widths and max_ratio from its appendix A.9.
    """

    eps_low: float = within(0.16, above=0, below=1, reason="a ratio cannot fall below 0")
    eps_high: float = within(0.2, above=0, finite=True)
    max_ratio: float = within(10.0, above=1)

    def __str__(self) -> str:
        return f"dynamic {self.eps_low:g}/{self.eps_high:g}, ratio ≤ {self.max_ratio:g}"

    def __call__(self, old_logp: SameShape) -> Limits:
        """Return lower and upper limits on the ratio, shaped like old_logp."""
        q = old_logp.exp()
        lower = 0.5 + 0.5 * (1 - 4 * self.eps_low / q).clamp(min=0).sqrt()
        upper = (0.5 + 0.5 * (1 + 4 * self.eps_high / q).sqrt()).clamp(max=self.max_ratio)
        return lower, upper


@explained(
    why="what counts is by how much a probability changes: a rare token's ratio is free, a common one's is tied.",
    formula="max(1 − delta / exp(old_logp), 0), 1 + delta / exp(old_logp)",
)
@dataclass(frozen=True)
class ChangeBounds(Checked):
    """Limits on the change of a probability: |p − q| ≤ delta, with q = exp(old_logp) and p = r q.

    |p − q| is the total variation between the policies where only this token and all others together are told apart. Raises
    ValueError unless 0 < delta < 1.
    Source: DPPO-Binary-TV (arXiv 2602.04879); delta .15 from verl's recipe, which also cuts the ratio's weight at 20.
    """

    delta: float = within(0.15, above=0, below=1, reason="it is a change of a probability")

    def __str__(self) -> str:
        return f"|p − q| ≤ {self.delta:g}"

    def __call__(self, old_logp: SameShape) -> Limits:
        """Return lower and upper limits on the ratio, shaped like old_logp."""
        width = self.delta / old_logp.exp()
        return (1 - width).clamp(min=0), 1 + width


@explained(why="only a ratio that has grown too large is held back.", formula="0, max_ratio")
@dataclass(frozen=True)
class UpperBound(Checked):
    """An upper limit alone, for every token. Raises ValueError unless max_ratio > 1.

    Source: CISPO (arXiv 2506.13585) leaves the lower limit out and gives no width; ScaleRL (2510.13786) tries 4 to 8.
    """

    max_ratio: float = within(5.0, above=1, finite=True)

    def __str__(self) -> str:
        return f"ratio ≤ {self.max_ratio:g}"

    def __call__(self, old_logp: SameShape) -> Limits:
        """Return lower and upper limits on the ratio, shaped like old_logp."""
        return torch.zeros_like(old_logp), torch.full_like(old_logp, self.max_ratio)


@explained(why="something else holds the policy back, or nothing does.", formula="0, inf")
def no_bounds(old_logp: SameShape) -> Limits:
    """Return limits that no ratio reaches."""
    return torch.zeros_like(old_logp), torch.full_like(old_logp, float("inf"))
