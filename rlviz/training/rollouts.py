"""A rollout as it grows in a step (groups, their rewards, what each token earned), and the rows of it that an update is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlviz.settings import TrainSettings
from small_models.host import on_host
from small_models.policies import Policy
from small_models.sampling import Samples, response_logits, token_entropy, token_logp
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


class CriticForward:
    """A critic's forward over all responses of a rollout, with gradient: what the first update on all of them begins with.

    logits: the policy's, [P, G, T, V], where the same forward makes them, else None. values: V before each token, [P, G, T].
    """

    def __init__(self, logits: Tensor | None, values: Tensor) -> None:
        self._held: tuple[Tensor | None, Tensor] | None = (logits, values)

    def take(self) -> tuple[Tensor | None, Tensor] | None:
        """Return logits and values as those of `Rows`, [N, 1, T, V] and [N, 1, T], once: an update moves the weights."""
        if self._held is None:
            return None
        (logits, values), self._held = self._held, None
        return (None if logits is None else _as_rows(logits)), _as_rows(values)


@dataclass(frozen=True)
class Credit:
    """What each token of a rollout earned, [P, G, T]: advantages; with a critic also its values then, and the returns.

    forward: that which gave the values, where the first update can begin with it.
    """

    advantages: Tensor
    old_values: Tensor | None = None
    returns: Tensor | None = None
    forward: CriticForward | None = None


@dataclass(frozen=True)
class Rollout(Rewarded):
    """All that the updates of a step learn from."""

    credit: Credit

    @property
    def advantages(self) -> Tensor:
        return self.credit.advantages


@dataclass(frozen=True)
class Known:
    """What the host knows of N responses, so that no update waits for a device to learn it; each [N], on the CPU.

    seen: tokens that the loss sees. length: tokens up to the last one of these. teaches: whether any advantage is not 0.
    """

    seen: Tensor
    length: Tensor
    teaches: Tensor

    @classmethod
    def of(cls, mask: Tensor, advantages: Tensor) -> Known:
        """Return it of a mask and advantages, [N, 1, T] both, by one copy."""
        place = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
        return cls(*on_host(mask.sum((1, 2)), (mask * place).amax((1, 2)), advantages.flatten(1).any(1)))

    def take(self, index: Tensor) -> Known:
        """Return it of the responses at these indices."""
        return Known(**{name: value[index] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Rows:
    """Responses as groups of one: every tensor over tokens is [N, 1, T]. Those that the algorithm has no use for are None.

    prompt_ids, prompt_mask: [P, S], each prompt once. owner: [N], the prompt of each response, on the CPU. known: what the host
    knows of them. weights: of their tokens in the objective of the minibatch from which they are, None before there is one.
    chosen: those that the algorithm chose among all of the minibatch, if it chooses. sampler_logp: None where π_old sampled.
    forward: a critic's over just these rows, if there is one.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    owner: Tensor
    tokens: Tensor
    mask: Tensor
    old_logp: Tensor
    advantages: Tensor
    ref_logp: Tensor | None
    old_values: Tensor | None
    returns: Tensor | None
    known: Known
    sampler_logp: Tensor | None = None
    weights: Tensor | None = None
    chosen: Tensor | None = None
    forward: CriticForward | None = None

    @classmethod
    def of(cls, rollout: Rollout) -> Rows:
        """Return the responses of the selected groups, one after the other."""
        samples, groups = rollout.samples, rollout.selected
        group_size = samples.tokens.shape[1]

        def as_rows(values: Tensor) -> Tensor:
            return _as_rows(values[groups])

        def if_there(values: Tensor | None) -> Tensor | None:
            return None if values is None else as_rows(values)

        mask, advantages = as_rows(rollout.mask), as_rows(rollout.advantages)
        return cls(
            prompt_ids=samples.prompt_ids[groups],
            prompt_mask=samples.prompt_mask[groups],
            owner=torch.arange(len(groups)).repeat_interleave(group_size),
            tokens=as_rows(samples.tokens),
            mask=mask,
            old_logp=as_rows(samples.logp),
            sampler_logp=if_there(samples.sampler_logp),
            advantages=advantages,
            ref_logp=if_there(rollout.ref_logp),
            old_values=if_there(rollout.credit.old_values),
            returns=if_there(rollout.credit.returns),
            known=Known.of(mask, advantages),
            forward=rollout.credit.forward,
        )

    @property
    def place(self) -> dict[str, Tensor]:
        """What `response_logits` is asked for the tokens that the loss sees."""
        return {
            "prompt_ids": self.prompt_ids,
            "prompt_mask": self.prompt_mask,
            "owner": self.owner.to(self.tokens.device),
            "tokens": self.tokens,
            "wanted": self.mask,
        }

    def _over_tokens(self) -> dict[str, Tensor]:
        others = "prompt_ids", "prompt_mask", "owner"
        return {f: v for f, v in vars(self).items() if isinstance(v, Tensor) and f not in others}

    def take(self, index: Tensor) -> Rows:
        """Return the rows at these indices, which are on the CPU, and no prompt that none of them answers."""
        there = index.to(self.tokens.device)
        left, owner = self.owner[index].unique(return_inverse=True)
        prompts: dict[str, Any] = {
            name: getattr(self, name)[left.to(there.device)] for name in ("prompt_ids", "prompt_mask")
        }
        taken = {name: value[there] for name, value in self._over_tokens().items()}
        return replace(self, **prompts, **taken, owner=owner, known=self.known.take(index), forward=None)

    @property
    def longest(self) -> int:
        """Tokens up to the last one that the loss sees in any row."""
        return int(self.known.length.max()) if len(self.known.length) else 0

    def cut(self, length: int) -> Rows:
        """Return the rows without the tokens from `length` on."""
        cut: dict[str, Any] = {name: value[..., :length] for name, value in self._over_tokens().items()}
        return replace(self, **cut, forward=None)

    def split(self, tokens: int) -> list[Rows]:
        """Return the rows in their order as micro-batches of at most so many tokens, each cut to its longest row.

        Each row counts its prompt and as many tokens as the longest row beside it, since attention lays every response beside its
        prompt. A row that is longer than `tokens` stands alone; 0: all rows are one, as they are.
        """
        if not tokens:
            return [self]
        width = self.prompt_ids.shape[1]
        parts: list[list[int]] = []
        longest = 0
        for place, length in enumerate(self.known.length.tolist()):
            longest = max(longest, length)
            if not parts or (len(parts[-1]) + 1) * (width + longest) > tokens:
                parts.append([])
                longest = length
            parts[-1].append(place)
        taken = [self.take(torch.tensor(part)) for part in parts]
        return [part.cut(max(1, part.longest)) for part in taken]  # without any token there would be nothing to read


def _as_rows(values: Tensor) -> Tensor:
    """Return the responses of groups as groups of one: [P, G, …] → [P × G, 1, …]."""
    return values.flatten(0, 1).unsqueeze(1)


def of_grades(grades: Sequence[Sequence[Grade]], name: str, device: torch.device) -> Tensor:
    """Return "correct" or "format" of every grade as 1 or 0, [P, G]."""
    return torch.tensor([[float(getattr(grade, name)) for grade in row] for row in grades], device=device)


def take_groups(samples: Samples, groups: Tensor) -> Samples:
    """Return the groups at these indices."""
    return Samples(**{name: value[groups] for name, value in tensors_of(samples).items()})


def logp_under(policy: Policy, samples: Samples, settings: TrainSettings) -> Tensor:
    """Return log-probabilities of sampled tokens under a policy, [P, G, T]."""
    return _under(policy, samples, settings, partial(token_logp, temperature=settings.temperature))


def entropy_under(policy: Policy, samples: Samples, settings: TrainSettings) -> Tensor:
    """Return the entropy of the distributions that sampled tokens have under a policy, nats, [P, G, T]."""
    return _under(policy, samples, settings, lambda logits, _: token_entropy(logits, temperature=settings.temperature))


def _under(
    policy: Policy, samples: Samples, settings: TrainSettings, measure: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return measure(logits, tokens), [P, G, T], of as many groups at once as fit a micro-batch."""
    prompts, group_size, length = samples.tokens.shape
    tokens = group_size * (samples.prompt_ids.shape[1] + length)
    at_once = max(1, settings.micro_batch_tokens // tokens) if settings.micro_batch_tokens else prompts
    if at_once >= prompts:
        return measure(response_logits(policy, **samples.place), samples.tokens)
    parts = torch.arange(prompts, device=samples.tokens.device).split(at_once)
    return torch.cat([_under(policy, take_groups(samples, part), settings, measure) for part in parts])


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

    return Samples(**{name: join(name) for name in tensors_of(parts[0])})


def first_of_each_group(samples: Samples) -> Samples:
    """Return one response to each prompt."""
    grouped = {name: value[:, :1] for name, value in tensors_of(samples).items() if not name.startswith("prompt")}
    return Samples(**{**vars(samples), **grouped})


def tensors_of(samples: Samples) -> dict[str, Tensor]:
    """Return what the samples hold by name, without what is None."""
    return {name: value for name, value in vars(samples).items() if value is not None}
