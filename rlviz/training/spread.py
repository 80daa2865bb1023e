"""How far a step's updates move a policy: the spread of its ratios, by the token and by the response, and its routing."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.training.rows import Rows, first_of_each_group, take_groups
from small_models.policies import Policy
from small_models.routing import routed, routing_flips
from small_models.sampling import Samples

WATCHED = 32  # responses whose routing is followed: an eighth of a rollout of the default size


class Spread:
    """Token and sequence ratios of all updates of a step, whichever of them the algorithm's loss takes."""

    def __init__(self) -> None:
        self._tokens: list[Tensor] = []
        self._sequences: list[Tensor] = []

    def add(self, logp: Tensor, rows: Rows) -> None:
        """Count the ratios of an update: of each token that the loss sees, and of each response that has one."""
        logp, mask = logp.detach().double(), rows.mask
        old_logp = rows.old_logp.double()
        self._tokens.append(token_ratio(logp, old_logp, mask)[mask])
        of_rows = sequence_ratio(logp, old_logp, mask).gather(-1, mask.int().argmax(-1, keepdim=True)).squeeze(-1)
        self._sequences.append(of_rows[mask.any(-1)])

    def numbers(self) -> dict[str, float]:
        """Return their standard deviations as fields of the record, 0 where no response entered an update."""
        return {"token_ratio_std": _std(self._tokens), "sequence_ratio_std": _std(self._sequences)}


def _std(parts: list[Tensor]) -> float:
    values = torch.cat(parts) if parts else torch.empty(0)
    return float(values.std(correction=0)) if values.numel() else 0.0


class Routing:
    """The experts that the first tokens of a rollout are routed to, before the step's updates: one response a prompt."""

    def __init__(self, policy: Policy, samples: Samples) -> None:
        part = first_of_each_group(samples)
        self._part = take_groups(part, torch.arange(min(WATCHED, len(part.tokens)), device=part.tokens.device))
        self._before = self._of(policy)

    def _of(self, policy: Policy) -> Tensor | None:
        return routed(policy, self._part.prompt_ids, self._part.prompt_mask, self._part.tokens)

    def numbers(self, policy: Policy) -> dict[str, float | None]:
        """Return, as a field of the record, the share of decisions that are others now; None without experts."""
        now = None if self._before is None else self._of(policy)
        if self._before is None or now is None:
            return {"routing_flips": None}
        return {"routing_flips": routing_flips(self._before, now, self._part.mask)}
