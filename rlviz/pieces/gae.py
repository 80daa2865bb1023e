"""Advantages from a critic. (rewards, values, mask), all [P, G, T] → (advantages, returns)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import Mask, SameShape, SameShapeMask, Tokens


def whiten(values: SameShape, mask: SameShapeMask, eps: float = 1e-8) -> SameShape:
    """Return (values − mean) / √(variance + eps) over true mask entries, 0 elsewhere; all 0 when the values are all equal.

    The variance is the unbiased one, and eps verl's 1e-8.
    """
    count = mask.sum()
    mean = values.masked_fill(~mask, 0.0).sum() / count.clamp(min=1)
    centred = (values - mean).masked_fill(~mask, 0.0)
    variance = centred.square().sum() / (count - 1).clamp(min=1)
    highest = values.masked_fill(~mask, float("-inf")).max()
    lowest = values.masked_fill(~mask, float("inf")).min()
    return (centred / (variance + eps).sqrt()).masked_fill(highest <= lowest, 0.0)


@explained(why="a critic judges every token; lam trades its bias against the variance of the sampled return.")
@dataclass(frozen=True)
class GAE(Checked):
    """Generalised advantage estimation, backwards over the tokens that the policy produced.

        whiten(A_raw)
        A_raw = td_error + gamma · lam · next_A_raw
        td_error = token_reward + gamma · next_value − value

    returns = A + V, before whitening. V and A after the last token are 0; a hole in the mask (a tool's observation) is skipped,
    not an end. lam=0 is TD(0), lam=1 Monte Carlo: A = return − V. whiten: subtract the mean and divide by the std of all valid
    tokens.
    Raises ValueError unless gamma and lam are in [0, 1].
    Source: arXiv 1506.02438 Eq. 16; PPO (1707.06347) Eq. 11–12.
    """

    gamma: float = within(1.0, at_least=0, at_most=1)
    lam: float = within(0.95, at_least=0, at_most=1)
    whiten: bool = True

    def __str__(self) -> str:
        return f"GAE(γ {self.gamma:g}, λ {self.lam:g}){', whitened' if self.whiten else ''}"

    @property
    def formula(self) -> str:
        """A as text."""
        result = "whiten(A_raw); A_raw" if self.whiten else "A_raw; A_raw"
        return f"{result} = td_error + gamma · lam · next_A_raw; td_error = token_reward + gamma · next_value − value"

    def __call__(self, rewards: Tokens, values: Tokens, mask: Mask) -> tuple[Tokens, Tokens]:
        next_value = next_advantage = torch.zeros_like(values[..., 0])
        columns = []
        for t in reversed(range(values.shape[-1])):
            valid = mask[..., t]
            delta = rewards[..., t] + self.gamma * next_value - values[..., t]
            advantage = delta + self.gamma * self.lam * next_advantage
            next_advantage = torch.where(valid, advantage, next_advantage)
            next_value = torch.where(valid, values[..., t], next_value)
            columns.append(advantage)
        advantages = torch.stack(columns[::-1], -1).masked_fill(~mask, 0.0)
        returns = (advantages + values).masked_fill(~mask, 0.0)
        return (whiten(advantages, mask) if self.whiten else advantages), returns
