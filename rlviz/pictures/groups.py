"""Groups of responses as pictures need them: whose advantages rewards are enough for, and what these make of rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import Algorithm, GroupPolicyGradient
from rlviz.pieces.advantages import PromptHistory

LARGEST_GROUP, MOST_VISITS = 64, 10
FROM_REWARDS = {"mask", "history"}  # what an advantage may ask for that rewards are enough for
GROUP_NEEDS = "advantages from rewards of a group alone"


def learns_from_a_group(algorithm: Algorithm, *inputs: str) -> bool:
    """Return whether the algorithm's advantages need no more than rewards, those of earlier visits, and these inputs."""
    known = {*FROM_REWARDS, *inputs}
    return isinstance(algorithm, GroupPolicyGradient) and set(algorithm.can.asks["advantage"]) <= known


def group_advantages(algorithm: GroupPolicyGradient, rewards: Tensor, history: PromptHistory | None = None) -> Tensor:
    """Return the advantages [P, G] of rewards [P, G]; history: of what the prompts earned on visits before.

    Raises ValueError when the advantage needs more than rewards and history.
    """
    mask = torch.ones(*rewards.shape, 1, dtype=torch.bool)
    return algorithm.advantages(rewards, mask, history=history)[0].squeeze(-1)


def history_before(algorithm: GroupPolicyGradient, earlier: Tensor, visits: Tensor) -> PromptHistory | None:
    """Return the history of prompts before this visit; None where the algorithm asks for none.

    earlier: rewards of earlier visits, [P, V, G], the latest first. visits: how many count, the present one among them.
    """
    if not algorithm.asks_for("advantage", "history"):
        return None
    history = PromptHistory.empty(earlier.shape[0])
    mask = torch.ones(earlier.shape[0], earlier.shape[2], 1, dtype=torch.bool)
    for visit in reversed(range(MOST_VISITS - 1)):
        after = vars(algorithm.advantages(earlier[:, visit], mask, history=history)[1])
        counts = visits - 1 > visit
        columns = {name: torch.where(counts, value, getattr(history, name)) for name, value in after.items()}
        history = PromptHistory(**columns)
    return history


def share_all_equal(success_rate: Tensor, group_size: Tensor) -> Tensor:
    """p^G + (1 − p)^G: the share of groups that are all right or all wrong, at success rates p.

    G independent responses, each right with probability p, are all right with p · p · … = p^G, all wrong with (1 − p)^G,
    and never both.
    """
    return success_rate**group_size + (1 - success_rate) ** group_size
