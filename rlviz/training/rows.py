"""Cutting a rollout into what an update is given: some of its groups, some of its responses, some of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from small_models.sampling import Samples


@dataclass(frozen=True)
class Credit:
    """What each token of a rollout earned, [P, G, T]: advantages; with a critic also its values then, and the returns."""

    advantages: Tensor
    old_values: Tensor | None = None
    returns: Tensor | None = None


@dataclass(frozen=True)
class Rows:
    """Responses as groups of one: every tensor over tokens is [N, 1, T]. Those that the algorithm has no use for are None."""

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor
    old_logp: Tensor
    advantages: Tensor
    ref_logp: Tensor | None
    old_values: Tensor | None
    returns: Tensor | None

    @classmethod
    def of(cls, samples: Samples, mask: Tensor, credit: Credit, ref_logp: Tensor | None, groups: Tensor) -> Rows:
        """Return the responses of these groups, one after the other.

        mask, credit, ref_logp: [P, G, T] of all groups; mask is true on the tokens that the loss sees.
        """
        group_size = samples.tokens.shape[1]

        def as_rows(values: Tensor) -> Tensor:
            return values[groups].flatten(0, 1).unsqueeze(1)

        def if_there(values: Tensor | None) -> Tensor | None:
            return None if values is None else as_rows(values)

        return cls(
            prompt_ids=samples.prompt_ids[groups].repeat_interleave(group_size, 0),
            prompt_mask=samples.prompt_mask[groups].repeat_interleave(group_size, 0),
            tokens=as_rows(samples.tokens),
            mask=as_rows(mask),
            old_logp=as_rows(samples.logp),
            advantages=as_rows(credit.advantages),
            ref_logp=if_there(ref_logp),
            old_values=if_there(credit.old_values),
            returns=if_there(credit.returns),
        )

    def take(self, index: Tensor) -> Rows:
        """Return the rows at these indices, or where a mask is true."""
        taken = {name: value[index] for name, value in vars(self).items() if value is not None}
        return Rows(**{**vars(self), **taken})

    @property
    def longest(self) -> int:
        """Tokens up to the last one that the loss sees in any row."""
        seen = self.mask.any(0).any(0).nonzero()
        return int(seen.max()) + 1 if len(seen) else 0

    def cut(self, length: int) -> Rows:
        """Return the rows without the tokens from `length` on."""
        over_tokens = {
            f: v[..., :length] for f, v in vars(self).items() if v is not None and not f.startswith("prompt")
        }
        return Rows(**{**vars(self), **over_tokens})


def take_groups(samples: Samples, groups: Tensor) -> Samples:
    """Return the groups at these indices."""
    return Samples(**{name: value[groups] for name, value in vars(samples).items()})


def joined(parts: Sequence[Samples]) -> Samples:
    """Return the groups of several rollouts as those of one, prompts padded on the left, responses on the right (with 0)."""
    if len(parts) == 1:
        return parts[0]

    def join(name: str) -> Tensor:
        values = [getattr(part, name) for part in parts]
        if values[0].dim() == 2 and not name.startswith("prompt"):
            return torch.cat(values)  # a number a response
        width = max(value.shape[-1] for value in values)
        sides = [((width - v.shape[-1], 0) if name.startswith("prompt") else (0, width - v.shape[-1])) for v in values]
        return torch.cat([F.pad(v, side) for v, side in zip(values, sides, strict=True)])

    return Samples(**{name: join(name) for name in vars(parts[0])})


def first_of_each_group(samples: Samples) -> Samples:
    """Return one response to each prompt."""
    grouped = {name: value[:, :1] for name, value in vars(samples).items() if not name.startswith("prompt")}
    return Samples(prompt_ids=samples.prompt_ids, prompt_mask=samples.prompt_mask, **grouped)


def repeated(samples: Samples) -> float:
    """Return the share of tokens that are the same as the one before them in their response."""
    both = samples.mask[..., 1:] & samples.mask[..., :-1]
    same = (samples.tokens[..., 1:] == samples.tokens[..., :-1]) & both
    return float(same.sum() / samples.mask.sum())


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """Return 1 − var(returns − values) / var(returns) over the tokens of `mask`; None where all returns are equal."""
    returns, values = returns[mask].double(), values[mask].double()
    if returns.numel() < 2 or bool(returns.max() == returns.min()):
        return None
    return float(1 - (returns - values).var() / returns.var())
