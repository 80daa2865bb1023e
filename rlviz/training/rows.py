"""Cutting a rollout into what an update is given: some of its groups, some of its responses, some of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from small_models.sampling import Samples


@dataclass(frozen=True)
class Rows:
    """Responses as groups of one: every tensor over tokens is [N, 1, T]."""

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor
    old_logp: Tensor
    advantages: Tensor
    ref_logp: Tensor | None

    @classmethod
    def of(cls, samples: Samples, mask: Tensor, advantages: Tensor, ref_logp: Tensor | None, groups: Tensor) -> Rows:
        """Return the responses of these groups, one after the other.

        mask, advantages, ref_logp: [P, G, T] of all groups; mask is true on the tokens that the loss sees.
        """
        chosen = take_groups(samples, groups)
        group_size = samples.tokens.shape[1]

        def as_rows(values: Tensor) -> Tensor:
            return values.flatten(0, 1).unsqueeze(1)

        return cls(
            prompt_ids=chosen.prompt_ids.repeat_interleave(group_size, 0),
            prompt_mask=chosen.prompt_mask.repeat_interleave(group_size, 0),
            tokens=as_rows(chosen.tokens),
            mask=as_rows(mask[groups]),
            old_logp=as_rows(chosen.logp),
            advantages=as_rows(advantages[groups]),
            ref_logp=None if ref_logp is None else as_rows(ref_logp[groups]),
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


def first_of_each_group(samples: Samples) -> Samples:
    """Return one response to each prompt."""
    grouped = {name: value[:, :1] for name, value in vars(samples).items() if not name.startswith("prompt")}
    return Samples(prompt_ids=samples.prompt_ids, prompt_mask=samples.prompt_mask, **grouped)
