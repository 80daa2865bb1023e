"""The numbers of single tokens that a step records: what the loss made of each, and how hard it pushes it."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.types import Batch, TokenRecord
from small_models.sampling import Samples


def token_weights(
    algorithm: PolicyGradient, mask: Bool[Tensor, "P G T"], selected: Int[Tensor, " N"]
) -> Float[Tensor, "P G T"]:
    """Return each token's share in the objective of a rollout: what `aggregate` gives it among the selected groups.

    mask: the tokens that the loss sees. selected: indices of groups. A group that was selected twice counts twice, one that
    was not has 0.
    """
    chosen = mask[selected]
    weights = algorithm.aggregate(chosen.flatten(0, 1).unsqueeze(1)).double().reshape(chosen.shape)
    return torch.zeros(mask.shape, dtype=torch.double, device=mask.device).index_add(0, selected, weights)


def pushes(algorithm: PolicyGradient, logp: Float[Tensor, "P G T"], batch: Batch) -> Float[Tensor, "P G T"]:
    """Return −∂loss/∂logp: how hard, and which way, this loss pushes each token's log-probability.

    Where a token's ratio is its own this is weight · ∂value/∂logp; where a response has one ratio for all its tokens, the
    values of all of them are in it.
    """
    leaf = logp.detach().requires_grad_()
    with torch.enable_grad():
        loss = algorithm.loss(leaf, batch).loss
        slope = torch.autograd.grad(loss, leaf, allow_unused=True)[0] if loss.requires_grad else None
    return torch.zeros_like(leaf) if slope is None else -slope


def token_records(
    algorithm: PolicyGradient,
    logp: Float[Tensor, "P G T"],
    batch: Batch,
    samples: Samples,
    tokenizer: Any,
    values: Float[Tensor, "P G T"] | None = None,
) -> list[list[tuple[TokenRecord, ...]]]:
    """Return the records of every response's tokens, observations included, [P][G].

    logp: after the updates; batch: with its weights; values: V.
    """
    assert batch.weights is not None
    output = algorithm.loss(logp, batch)
    columns = {
        "old_prob": samples.logp.exp(),
        "new_prob": logp.exp(),
        "ratio": output.ratio,
        "lower": output.lower,
        "upper": output.upper,
        "advantage": batch.advantages,
        "clipped": output.clipped & (batch.weights > 0),
        "objective": algorithm.objective(logp, batch).value.detach(),
        "weight": batch.weights,
        "push": pushes(algorithm, logp, batch),
        "observed": samples.observed,
    }
    kept = samples.there
    ids = samples.tokens[kept].tolist()
    lists: dict[str, list[Any]] = {name: column[kept].tolist() for name, column in columns.items()}
    lists["value"] = [None] * len(ids) if values is None else values[kept].tolist()
    lists["ref_prob"] = [None] * len(ids) if batch.ref_logp is None else batch.ref_logp[kept].exp().tolist()
    lists["upper"] = [None if limit == math.inf else limit for limit in lists["upper"]]
    text = {token: tokenizer.decode([token]) for token in set(ids)}
    lists["token"] = [text[token] for token in ids]
    records = (TokenRecord(**dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True))
    return [[tuple(islice(records, length)) for length in group] for group in kept.sum(-1).tolist()]
