"""What one token weighs under each aggregation, and what becomes of it when a batch is cut into two parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.curves.arrays import Array, array
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean, weighted_sum
from rlviz.pieces.words import label
from small_models.checks import checked


@dataclass(frozen=True)
class AggregationCurve:
    """What tokens weigh in a batch of B responses of `lengths`, under A aggregations; `name` is the algorithm's.

    names: of the aggregations: the four, and the algorithm's own if it is none of them; own: its place among them.
    weight: [A, B], of the first token of each response. whole: [B], the weight of all tokens of a response together, in the whole
    batch; parts: the same in the mean over two parts, each with the weights of its own, of which the first has `cut`
    responses. Both under the algorithm's own aggregation.
    """

    name: str
    names: tuple[str, ...]
    own: int
    lengths: tuple[int, ...]
    cut: int
    weight: Array
    whole: Array
    parts: Array


@checked
def aggregation_curve(
    algorithm: PolicyGradient, *, lengths: Sequence[int] = (2, 4, 8, 16), max_length: int = 16, cut: int | None = None
) -> AggregationCurve:
    """Return what a token of each response weighs, in the whole batch and as the mean of the means of its two parts.

    lengths: of the responses, tokens. max_length: of the `Constant` among the four. cut: responses in the first part, None:
    half of them, rounded down.
    Raises ValueError for fewer than two responses, a length or max_length below 1, a cut that leaves a part empty, or an
    algorithm without an aggregation.
    """
    if not isinstance(algorithm, PolicyGradient):
        raise ValueError(f"algorithm: {algorithm.name} has no aggregation")
    if len(lengths) < 2 or min(lengths) < 1:
        raise ValueError(f"lengths must be two or more numbers of tokens, each at least 1; got {tuple(lengths)}")
    cut = len(lengths) // 2 if cut is None else cut
    if not 1 <= cut < len(lengths):
        raise ValueError(f"cut must be from 1 to {len(lengths) - 1} responses; got {cut}")
    mask = torch.arange(max(lengths)) < torch.tensor(list(lengths)).view(1, -1, 1)
    every: list[Callable[[Tensor], Tensor]] = [sequence_mean, token_mean, Constant(max_length), sequence_sum]
    if algorithm.aggregate not in every:
        every.append(algorithm.aggregate)
    halves = mask[:, :cut], mask[:, cut:]
    of_parts = torch.cat([algorithm.aggregate(part) / len(halves) for part in halves], 1)
    each_alone = torch.eye(len(lengths), dtype=torch.double).unsqueeze(-1) * mask  # one row a response
    whole, parts = (
        torch.stack([weighted_sum(one.unsqueeze(0), weights, mask) for one in each_alone])
        for weights in (algorithm.aggregate(mask).double(), of_parts.double())
    )
    return AggregationCurve(
        name=algorithm.name,
        names=tuple(label(aggregate) for aggregate in every),
        own=every.index(algorithm.aggregate),
        lengths=tuple(lengths),
        cut=cut,
        weight=torch.stack([aggregate(mask)[0, :, 0].double() for aggregate in every]).numpy(),
        whole=array(whole),
        parts=array(parts),
    )
