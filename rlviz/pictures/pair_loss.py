"""Losses on one pair of responses, of labelled pairs or of a group of two, as functions of log-probabilities."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlviz.algorithms import Algorithm, GroupPolicyGradient, PreferenceOptimization, numbers
from rlviz.types import Batch

PairLoss = Callable[[Tensor, Tensor], Tensor]  # log-probabilities of chosen and rejected response, [N] each → loss, [N]


def learns_from_a_pair(algorithm: Algorithm) -> bool:
    """Return whether the algorithm has a loss on a pair of responses: one of labelled pairs, or a group of two.

    Of a labelled pair the loss must be a function of two rewards alone: ORPO's, which imitates too, has no pull by the margin.
    A group of two with rewards 1 and 0 must have advantages: Pass@k's are 0, and so are those of distillation.
    """
    if isinstance(algorithm, GroupPolicyGradient):
        return not algorithm.asks_for("advantage", "step_ends") and bool(
            group_of_two(algorithm, torch.full((2,), -1.0, dtype=torch.double)).any()
        )
    return isinstance(algorithm, PreferenceOptimization) and not algorithm.asks["pair_loss"]


def group_of_two(algorithm: GroupPolicyGradient, ref: Tensor) -> Tensor:
    """Return the advantages [1, 2, 1] of two responses of one token with rewards 1 and 0; ref: their log-probabilities, [2]."""
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.double)
    old_logp = ref.view(1, 2, 1)
    advantages, _ = algorithm.advantages(
        rewards,
        torch.ones(1, 2, 1, dtype=torch.bool),
        old_logp=old_logp,
        ref_logp=old_logp,
        old_entropy=torch.ones_like(old_logp),  # both were drawn from one distribution
        correct=rewards,
        well_formed=torch.ones_like(rewards),
    )
    return advantages.double()


def pair_loss(algorithm: PreferenceOptimization | GroupPolicyGradient, ref: Tensor) -> PairLoss:
    """Return the algorithm's loss on N copies of a pair; ref: log-probabilities of its chosen and rejected response, [2]."""
    if isinstance(algorithm, PreferenceOptimization):

        def of_labels(chosen: Tensor, rejected: Tensor) -> Tensor:
            one_token = torch.ones_like(chosen, dtype=torch.long)
            return algorithm.pair_losses(
                algorithm.rewards(chosen, ref[0].expand(chosen.shape), one_token),
                algorithm.rewards(rejected, ref[1].expand(rejected.shape), one_token),
            )

        return of_labels
    advantages, mask = group_of_two(algorithm, ref), torch.ones(1, 2, 1, dtype=torch.bool)
    weights = algorithm.aggregate(mask).double()

    def of_rewards(chosen: Tensor, rejected: Tensor) -> Tensor:
        logp = torch.stack([chosen, rejected], -1).unsqueeze(-1)
        shape = logp.shape
        batch = Batch(ref.view(1, 2, 1).expand(shape), advantages.expand(shape), mask.expand(shape))
        return -(algorithm.objective(logp, batch).value * weights).sum((1, 2))

    return of_rewards


def numbers_of_a_pair_loss(algorithm: Algorithm) -> dict[str, int | float]:
    """Return the numbers that shape a loss on pairs; a KL term's β has no part in it."""
    return numbers(algorithm) if isinstance(algorithm, PreferenceOptimization) else {}
