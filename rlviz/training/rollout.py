"""A rollout: what a step sampled, and what each of its tokens earned.

P prompts (of all rounds of sampling), G responses to each, T tokens of the longest. A rollout is one class from the sampler to
the loss: as groups its tensors over tokens are [P, G, T]; as rows, of which an update is given some, they are [N, 1, T].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlviz.settings import TrainSettings
from small_models.policies import Policy
from small_models.routing import replay_routes
from small_models.sampling import Samples, response_logits, token_entropy, token_logp
from small_models.tasks import Grade

Routes = tuple[Tensor, Tensor] | None  # of prompts and of tokens, as `small_models.routing.routes_of` gives them
OVER_TOKENS = {
    "over_tokens": True
}  # marks a field with a number for each token; None where the algorithm has no use for it


@dataclass(frozen=True)
class Sampled:
    """Groups of responses to P prompts, those of all rounds of a step, and how the task grades them.

    places: of the prompts among the training prompts, [P]. texts, grades: [P][G]. outcomes: what groups are selected by, right or
    wrong, or what a reward model says, [P, G]. selected: indices of the groups to learn from. rounds: how often it was sampled.
    """

    places: Tensor
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
class Rollout:
    """Responses with all that the updates learn from.

    sampled: what it was made of, and rewards [P, G] after shaping (of single steps their mean), as groups. kl: to the reference,
    nats a token. prompt_ids, prompt_mask: [P, S], each prompt once; owner: which of them each response answers. mask: the tokens
    that the loss sees. old_logp: log π_old, the trainer's before the updates; sampler_logp: with which the tokens were really
    drawn, None where that is π_old. old_values, returns: a critic's, and its targets. weights: of the tokens in the
    objective of their minibatch; chosen: the tokens that the algorithm chose in it. observed: those that the environment wrote,
    None where the loss does not learn them; observed_weights: of these in their minibatch. prompt_routes, routes: the sampler's
    experts, as `small_models.routing.routes_of` gives them; None where they are not replayed. forward: to save
    time, logits and critic's values over all of these, with gradient: the first update takes them out in place of reading again.
    """

    sampled: Sampled
    rewards: Tensor
    kl: float
    prompt_ids: Tensor
    prompt_mask: Tensor
    owner: Tensor
    tokens: Tensor = field(metadata=OVER_TOKENS)
    mask: Tensor = field(metadata=OVER_TOKENS)
    old_logp: Tensor = field(metadata=OVER_TOKENS)
    advantages: Tensor = field(metadata=OVER_TOKENS)
    sampler_logp: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    ref_logp: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    old_values: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    returns: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    weights: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    chosen: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    observed: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    observed_weights: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    prompt_routes: Tensor | None = None
    routes: Tensor | None = field(default=None, metadata=OVER_TOKENS)
    forward: list[tuple[Tensor | None, Tensor]] = field(default_factory=list)

    @property
    def samples(self) -> Samples:
        """The tokens as they were sampled, [P, G, T]."""
        return self.sampled.samples

    @property
    def model_inputs(self) -> dict[str, Tensor]:
        """What a model is asked for the logits or values of the tokens that the loss sees."""
        read = {"prompt_ids": self.prompt_ids, "prompt_mask": self.prompt_mask, "owner": self.owner}
        return read | {"tokens": self.tokens, "wanted": self.learnt}

    @property
    def learnt(self) -> Tensor:
        """The tokens whose log-probabilities are in the loss."""
        return self.mask if self.observed is None else self.mask | self.observed

    @property
    def longest(self) -> int:
        """Tokens up to the last one that the loss sees in any response."""
        seen = self.learnt.flatten(0, 1).any(0).nonzero()
        return int(seen.max()) + 1 if len(seen) else 0

    @property
    def experts(self) -> Routes:
        """The sampler's experts of prompts and of tokens, None where they are not replayed."""
        return None if self.prompt_routes is None or self.routes is None else (self.prompt_routes, self.routes)

    def each(self, change: Callable[[Tensor], Tensor], **others: Any) -> Rollout:
        """Return it with every tensor over tokens changed in the same way."""
        over = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata}
        changed: dict[str, Any] = {name: change(value) for name, value in over.items() if value is not None}
        return replace(self, **changed, **others)

    def rows(self) -> Rollout:
        """Return the responses of the selected groups as groups of one."""
        groups = self.sampled.selected
        owner = torch.arange(len(groups), device=self.tokens.device).repeat_interleave(self.tokens.shape[1])
        return self.each(lambda values: values[groups].flatten(0, 1).unsqueeze(1), **self._prompts(groups), owner=owner)

    def take(self, index: Tensor) -> Rollout:
        """Return the rows at these indices, and no prompt that none of them answers."""
        left, owner = self.owner[index].unique(return_inverse=True)
        return self.each(lambda values: values[index], **self._prompts(left), owner=owner, forward=[])

    def _prompts(self, index: Tensor) -> dict[str, Tensor | None]:
        routes = None if self.prompt_routes is None else self.prompt_routes[index]
        return {"prompt_ids": self.prompt_ids[index], "prompt_mask": self.prompt_mask[index], "prompt_routes": routes}

    def cut(self, length: int) -> Rollout:
        """Return it without the tokens from `length` on."""
        return self.each(lambda values: values[..., :length], forward=[])

    def split(self, tokens: int) -> list[Rollout]:
        """Return the rows in their order as micro-batches of at most so many tokens, each cut to its longest row.

        Each row counts its prompt and as many tokens as the longest row beside it, since attention lays every response beside its
        prompt. A row that is longer than `tokens` stands alone; 0: all rows are one, as they are.
        """
        if not tokens:
            return [self]
        width, longest = self.prompt_ids.shape[1], 0
        parts: list[list[int]] = []
        place = torch.arange(1, self.mask.shape[-1] + 1, device=self.mask.device)
        for row, length in enumerate((self.learnt * place).amax((1, 2)).tolist()):
            longest = max(longest, length)
            if not parts or (len(parts[-1]) + 1) * (width + longest) > tokens:
                parts.append([])
                longest = length
            parts[-1].append(row)
        taken = [self.take(torch.tensor(part, device=self.mask.device)) for part in parts]
        return [part.cut(max(1, part.longest)) for part in taken]  # without any token there would be nothing to read


def of_grades(grades: Sequence[Sequence[Grade]], name: str, device: torch.device) -> Tensor:
    """Return "correct" or "format" of every grade as 1 or 0, [P, G]."""
    return torch.tensor([[float(getattr(grade, name)) for grade in row] for row in grades], device=device)


def logp_under(policy: Policy, samples: Samples, settings: TrainSettings, routes: Routes = None) -> Tensor:
    """Return log-probabilities of sampled tokens under a policy, [P, G, T], through these experts or through its own."""
    return _under(policy, samples, settings, partial(token_logp, temperature=settings.temperature), routes)


def entropy_under(policy: Policy, samples: Samples, settings: TrainSettings, routes: Routes = None) -> Tensor:
    """Return the entropy of the distributions that sampled tokens have under a policy, nats, [P, G, T]; routes: as before."""
    entropy = partial(token_entropy, temperature=settings.temperature)
    return _under(policy, samples, settings, lambda logits, _: entropy(logits), routes)


def routes_at(routes: Routes, groups: Tensor) -> Routes:
    """Return the experts of these groups' prompts and tokens."""
    return None if routes is None else (routes[0][groups], routes[1][groups])


def through(policy: Policy, routes: Routes, owner: Tensor | None = None) -> AbstractContextManager[None]:
    """Within it, what is read goes through these experts of `routes_of`, or through the policy's own."""
    if routes is None:
        return nullcontext()
    of_prompts, of_tokens = (experts.to(policy.device) for experts in routes)  # a record's rollout is on the host
    return replay_routes(policy, of_prompts, of_tokens, owner)


def _under(
    policy: Policy,
    samples: Samples,
    settings: TrainSettings,
    measure: Callable[[Tensor, Tensor], Tensor],
    routes: Routes,
) -> Tensor:
    """Return measure(logits, tokens), [P, G, T], of as many groups at once as fit a micro-batch."""
    prompts, group_size, length = samples.tokens.shape
    tokens = group_size * (samples.prompt_ids.shape[1] + length)
    at_once = max(1, settings.micro_batch_tokens // tokens) if settings.micro_batch_tokens else prompts
    if at_once >= prompts:
        with through(policy, routes):
            return measure(response_logits(policy, **samples.model_inputs), samples.tokens)
    parts = torch.arange(prompts, device=samples.tokens.device).split(at_once)
    return torch.cat([_under(policy, samples.take(part), settings, measure, routes_at(routes, part)) for part in parts])
