"""A rollout: the responses of a step with their rewards, log-probabilities and advantages; micro-batches of it.

P prompts (of all rounds of sampling), G responses to each, T tokens of the longest. A rollout is one class from the sampler to
the loss: as groups its tensors over tokens are [P, G, T]; as rows, the form that an update takes, they are [N, 1, T].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rlviz.settings import TrainSettings
from small_models.policies import Policy
from small_models.routing import replay_routes
from small_models.sampling import Samples, compute_logp
from small_models.tasks import Score

Routes = tuple[Tensor, Tensor] | None  # of prompts and of tokens, as `small_models.routing.record_routes` gives them
OVER_TOKENS = {
    "over_tokens": True
}  # marks a field with a number for each token; None where the algorithm does not need it


@dataclass(frozen=True)
class Sampled:
    """Groups of responses to P prompts, those of all rounds of a step, and how the task grades and rewards them.

    places: indices of the prompts among the training prompts, [P]. texts, grades: [P][G]. outcomes: the numbers by which groups
    are selected, the task's rewards, or a reward model's scores, [P, G]. selected: indices of the groups to learn from. rounds:
    of sampling.
    """

    places: Tensor
    prompts: list[str]
    samples: Samples
    texts: list[list[str]]
    grades: list[list[Score]]
    outcomes: Tensor
    selected: Tensor
    rounds: int

    @property
    def task_rewards(self) -> Tensor:
        """The task's rewards, before weights and shaping, [P, G]; by default 1 for a right response, 0 for a wrong one."""
        return grade_tensor(self.grades, "reward", self.samples.tokens.device)

    @property
    def well_formed(self) -> Tensor:
        """1 for a response in the task's format, 0 for another, [P, G]."""
        return grade_tensor(self.grades, "format", self.samples.tokens.device)


@dataclass(frozen=True)
class Rollout:
    """Responses with rewards, advantages and all else that the updates read.

    sampled: the groups as they were sampled. rewards: [P, G] after shaping (of reasoning steps their mean). kl: to the
    reference, nats a token. prompt_ids, prompt_mask: [P, S], each prompt once; owner: the prompt that each response answers.
    mask: the tokens that the loss sees. old_logp: log π_old, the trainer's before the updates; sampler_logp: that with which
    the tokens were drawn, None where it is π_old. old_values, returns: a critic's, and its targets. weights: shares of the
    tokens in the objective of their minibatch; chosen: the tokens that the algorithm chose in it. observed: the tokens that the
    environment wrote, None where the loss does not learn them; observed_weights: their shares. prompt_routes, routes: the
    sampler's experts, as `small_models.routing.record_routes` returns them; None where they are not replayed. forward: logits and
    critic's values of these responses, with gradient: the first update pops them instead of a second forward.
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
    def model_inputs(self) -> dict[str, Any]:
        """Arguments of `compute_logp` for the tokens that the loss sees."""
        prompts = {"prompt_ids": self.prompt_ids, "prompt_mask": self.prompt_mask, "owner": self.owner}
        return prompts | {"tokens": self.tokens, "wanted": self.loss_mask}

    @property
    def loss_mask(self) -> Tensor:
        """The mask of the tokens whose log-probabilities are in the loss."""
        return self.mask if self.observed is None else self.mask | self.observed

    @property
    def longest(self) -> int:
        """The length up to the last token that the loss sees in any response."""
        used = self.loss_mask.flatten(0, 1).any(0).nonzero()
        return int(used.max()) + 1 if len(used) else 0

    @property
    def experts(self) -> Routes:
        """The sampler's experts of prompts and of tokens, None where they are not replayed."""
        return None if self.prompt_routes is None or self.routes is None else (self.prompt_routes, self.routes)

    def map_tensors(self, change: Callable[[Tensor], Tensor], **others: Any) -> Rollout:
        """Return the rollout with every tensor over tokens changed by the same function, and these other fields."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata}
        changed: dict[str, Any] = {name: change(value) for name, value in tensors.items() if value is not None}
        return replace(self, **changed, **others)

    def rows(self) -> Rollout:
        """Return the responses of the selected groups as groups of one."""
        groups = self.sampled.selected
        owner = torch.arange(len(groups), device=self.tokens.device).repeat_interleave(self.tokens.shape[1])
        return self.map_tensors(
            lambda values: values[groups].flatten(0, 1).unsqueeze(1), **self._prompts(groups), owner=owner
        )

    def take(self, index: Tensor) -> Rollout:
        """Return the rows at these indices, with the prompts that they answer."""
        prompts, owner = self.owner[index].unique(return_inverse=True)
        return self.map_tensors(lambda values: values[index], **self._prompts(prompts), owner=owner, forward=[])

    def _prompts(self, index: Tensor) -> dict[str, Tensor | None]:
        routes = None if self.prompt_routes is None else self.prompt_routes[index]
        return {"prompt_ids": self.prompt_ids[index], "prompt_mask": self.prompt_mask[index], "prompt_routes": routes}

    def truncate(self, length: int) -> Rollout:
        """Return the rollout without the tokens from `length` on."""
        return self.map_tensors(lambda values: values[..., :length], forward=[])

    def split(self, tokens: int) -> list[Rollout]:
        """Return the rows in their order as micro-batches of at most so many tokens, each cut to its longest row.

        Each row counts its prompt and as many tokens as the longest row beside it, since attention lays every response beside its
        prompt. A row that is longer than `tokens` stands alone; 0: all rows are one, as they are.
        """
        if not tokens:
            return [self]
        width, longest = self.prompt_ids.shape[1], 0
        parts: list[list[int]] = []
        position = torch.arange(1, self.mask.shape[-1] + 1, device=self.mask.device)
        for row, length in enumerate((self.loss_mask * position).amax((1, 2)).tolist()):
            longest = max(longest, length)
            if not parts or (len(parts[-1]) + 1) * (width + longest) > tokens:
                parts.append([])
                longest = length
            parts[-1].append(row)
        micro_batches = [self.take(torch.tensor(part, device=self.mask.device)) for part in parts]
        return [part.truncate(max(1, part.longest)) for part in micro_batches]  # a model cannot read no token at all


def grade_tensor(grades: Sequence[Sequence[Score]], field: str, device: torch.device) -> Tensor:
    """Return one field of the grades, "reward" or "format" (1 or 0), as a tensor [P, G]."""
    return torch.tensor([[float(getattr(grade, field)) for grade in row] for row in grades], device=device)


def logp_under(policy: Policy, samples: Samples, settings: TrainSettings, routes: Routes = None) -> Tensor:
    """Return log-probabilities of sampled tokens under a policy, [P, G, T]; routes: experts to replay, None for its own."""
    return _under(policy, samples, settings, routes)[0]


def entropy_under(policy: Policy, samples: Samples, settings: TrainSettings, routes: Routes = None) -> Tensor:
    """Return the entropy of a policy's distribution at each sampled token, nats, [P, G, T]; routes as in `logp_under`."""
    return _under(policy, samples, settings, routes, with_entropy=True)[1]


def routes_at(routes: Routes, groups: Tensor) -> Routes:
    """Return the experts of these groups' prompts and tokens."""
    return None if routes is None else (routes[0][groups], routes[1][groups])


def replay_routing(policy: Policy, routes: Routes, owner: Tensor | None = None) -> AbstractContextManager[None]:
    """Return a context in which a policy's forward replays these experts of `record_routes`; its own where routes is None."""
    if routes is None:
        return nullcontext()
    prompt_experts, token_experts = (
        experts.to(policy.device) for experts in routes
    )  # a record's rollout is on the host
    return replay_routes(policy, prompt_experts, token_experts, owner)


def _under(
    policy: Policy, samples: Samples, settings: TrainSettings, routes: Routes, *, with_entropy: bool = False
) -> tuple[Tensor, Any]:
    """Return `compute_logp` of the samples, of as many groups at once as fit a micro-batch."""
    prompts, group_size, length = samples.tokens.shape
    tokens = group_size * (samples.prompt_ids.shape[1] + length)
    at_once = max(1, settings.micro_batch_tokens // tokens) if settings.micro_batch_tokens else prompts
    if at_once >= prompts:
        with replay_routing(policy, routes):
            measure: dict[str, Any] = {"temperature": settings.temperature, "with_entropy": with_entropy}
            return compute_logp(policy, **samples.model_inputs, **measure)
    groups = torch.arange(prompts, device=samples.tokens.device).split(at_once)
    parts = [
        _under(policy, samples.take(part), settings, routes_at(routes, part), with_entropy=with_entropy)
        for part in groups
    ]
    logp, entropy = zip(*parts, strict=True)
    return torch.cat(logp), torch.cat(entropy) if with_entropy else None
