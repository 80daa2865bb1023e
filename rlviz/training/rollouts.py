"""A rollout as it grows in a step (groups, their rewards, what each token earned), and the rows of it that an update is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from small_models.sampling import Samples
from small_models.tasks import Grade


@dataclass(frozen=True)
class Groups:
    """Groups of responses to P prompts, those of all rounds of a step.

    chosen: indices of the prompts, on the policy's device. outcomes [P, G]: what they are selected by, right or wrong, or what a
    reward model says. selected: indices of the groups to update on. rounds: how often it was sampled.
    """

    chosen: Tensor
    prompts: list[str]
    samples: Samples
    texts: list[list[str]]
    grades: list[list[Grade]]
    outcomes: Tensor
    selected: Tensor
    rounds: int

    @property
    def correct(self) -> Tensor:
        """1 for a right response, 0 for a wrong one, [P, G]."""
        return of_grades(self.grades, "correct", self.samples.tokens.device)

    @property
    def well_formed(self) -> Tensor:
        """1 for a response in the task's format, 0 for another, [P, G]."""
        return of_grades(self.grades, "format", self.samples.tokens.device)


@dataclass(frozen=True)
class Rewarded(Groups):
    """Groups with their rewards. rewards [P, G]: after shaping, of single steps their mean.

    step_rewards, step_ends: of single steps and where these end, [P, G, T]; None for rewards of whole responses. mask: the tokens
    that the loss sees, [P, G, T]. ref_logp: log π_ref where the algorithm needs it, [P, G, T]. kl: to the reference, per token.
    """

    rewards: Tensor
    step_rewards: Tensor | None
    step_ends: Tensor | None
    mask: Tensor
    ref_logp: Tensor | None
    kl: float


@dataclass(frozen=True)
class Credit:
    """What each token of a rollout earned, [P, G, T]: advantages; with a critic also its values then, and the returns."""

    advantages: Tensor
    old_values: Tensor | None = None
    returns: Tensor | None = None


@dataclass(frozen=True)
class Rollout(Rewarded):
    """All that the updates of a step learn from."""

    credit: Credit

    @property
    def advantages(self) -> Tensor:
        return self.credit.advantages


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
    def of(cls, rollout: Rollout) -> Rows:
        """Return the responses of the selected groups, one after the other."""
        samples, groups = rollout.samples, rollout.selected
        group_size = samples.tokens.shape[1]

        def as_rows(values: Tensor) -> Tensor:
            return values[groups].flatten(0, 1).unsqueeze(1)

        def if_there(values: Tensor | None) -> Tensor | None:
            return None if values is None else as_rows(values)

        return cls(
            prompt_ids=samples.prompt_ids[groups].repeat_interleave(group_size, 0),
            prompt_mask=samples.prompt_mask[groups].repeat_interleave(group_size, 0),
            tokens=as_rows(samples.tokens),
            mask=as_rows(rollout.mask),
            old_logp=as_rows(samples.logp),
            advantages=as_rows(rollout.advantages),
            ref_logp=if_there(rollout.ref_logp),
            old_values=if_there(rollout.credit.old_values),
            returns=if_there(rollout.credit.returns),
        )

    def take(self, index: Tensor) -> Rows:
        """Return the rows at these indices, or where a mask is true."""
        taken: dict[str, Any] = {name: value if value is None else value[index] for name, value in vars(self).items()}
        return Rows(**taken)

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


def of_grades(grades: Sequence[Sequence[Grade]], name: str, device: torch.device) -> Tensor:
    """Return "correct" or "format" of every grade as 1 or 0, [P, G]."""
    return torch.tensor([[float(getattr(grade, name)) for grade in row] for row in grades], device=device)


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
