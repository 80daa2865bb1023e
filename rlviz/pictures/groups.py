"""Groups of responses as pictures need them: whose advantages rewards are enough for, and what these make of rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import Algorithm, GroupPolicyGradient
from rlviz.pieces.advantages import PromptHistory

LARGEST_GROUP, MOST_VISITS = 64, 10
FROM_REWARDS = {"mask", "history"}  # what an advantage may ask for that rewards are enough for


def learns_from_a_group(algorithm: Algorithm, *inputs: str) -> bool:
    """Return whether the algorithm's advantages need no more than rewards, those of earlier visits, and these inputs."""
    return isinstance(algorithm, GroupPolicyGradient) and not _missing_inputs(algorithm, inputs)


def why_no_group(algorithm: Algorithm) -> str:
    """Return the reason why rewards of a group are not enough for the algorithm; "" where they are."""
    if not isinstance(algorithm, GroupPolicyGradient):
        return f"{algorithm.name} does not learn from groups of responses"
    needs = " and ".join(_missing_inputs(algorithm, ()))
    return f"{algorithm.name}'s advantage needs {needs}, which a picture of rewards has not" if needs else ""


def _missing_inputs(algorithm: GroupPolicyGradient, inputs: Sequence[str]) -> list[str]:
    return sorted(set(algorithm.can.asks["advantage"]) - {*FROM_REWARDS, *inputs})


def group_advantages(algorithm: GroupPolicyGradient, rewards: Tensor, history: PromptHistory | None = None) -> Tensor:
    """Return the advantages [P, G] of rewards [P, G]; history: of what the prompts earned on visits before.

    Raises ValueError when the advantage needs more than rewards and history.
    """
    mask = torch.ones(*rewards.shape, 1, dtype=torch.bool)
    return algorithm.advantages(rewards, mask, history=history)[0].squeeze(-1)


def history_function(algorithm: GroupPolicyGradient) -> Callable[[Tensor, Tensor], PromptHistory | None]:
    """Return a function of earlier rewards [P, V, G], the latest visit first, and visits → the history of these prompts.

    visits: how many count, the present one among them; V is one less, or 1 where none counts. The history is None where none is
    asked for. DCPO's history is additive: V visits of G rewards leave what one visit of V · G leaves, so a page needs no loop. A
    rule of one's own that is not is given each visit by itself; how many there are, only the kernel can read.
    """
    if not algorithm.asks_for("advantage", "history"):
        return lambda earlier, visits: None

    def after_visits(earlier: Sequence[Tensor]) -> Any:
        """Return the history after visits that earned these rewards [P, G], the first one first."""
        history = None
        for rewards in earlier:
            history = algorithm.advantages(rewards, torch.ones(*rewards.shape, 1, dtype=torch.bool), history=history)[1]
        return history

    two = torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 0.5]], dtype=torch.double)
    apart, joined = after_visits(list(two.unsqueeze(1))), after_visits([two.reshape(1, -1)])
    joined = replace(joined, visits=2 * joined.visits)
    is_additive = all(torch.allclose(value, getattr(joined, name)) for name, value in vars(apart).items())

    def history(earlier: Tensor, visits: Tensor) -> PromptHistory | None:
        if not is_additive:
            return after_visits([earlier[:, visit] for visit in reversed(range(int(visits) - 1))])
        joined = after_visits([earlier.flatten(1)])
        joined = replace(joined, visits=(joined.visits * (visits - 1)).long())
        never = PromptHistory.empty(earlier.shape[0])
        columns = {name: torch.where(visits > 1, value, getattr(never, name)) for name, value in vars(joined).items()}
        return PromptHistory(**columns)

    return history


def share_all_equal(success_rate: Tensor, group_size: Tensor) -> Tensor:
    """p^G + (1 − p)^G: the share of groups that are all right or all wrong, at success rates p.

    G independent responses, each right with probability p, are all right with p · p · … = p^G, all wrong with (1 − p)^G,
    and never both.
    """
    return success_rate**group_size + (1 - success_rate) ** group_size
