"""What a loss asks of the tokens that the task's environment wrote. (logp [P, G, T]) → loss of each token [P, G, T].

Every algorithm reads them as context, and by the mask none learns from them: the policy did not choose them. A loss on them
teaches another thing than a reward does, namely how the environment answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import Tokens


@explained(
    why="what a tool answers is a target, too: responses without a reward also say how the environment answers.",
    formula="−observation_weight · logp",
)
@dataclass(frozen=True)
class ObservationCrossEntropy(Checked):
    """The weighted cross-entropy of each token that the environment wrote, in nats: neither ratio nor advantage is in it.

    Its mean over all observed tokens of the batch is added to the loss. Raises ValueError unless observation_weight is above 0
    and finite.
    Source: ECHO (arXiv 2605.24517), L_GRPO + λ L_Env; observation_weight is λ, 0.1 as in prime-rl.
    """

    observation_weight: float = within(0.1, above=0, finite=True)

    def __str__(self) -> str:
        return f"{self.observation_weight:g} · cross-entropy of observations"

    def __call__(self, logp: Tokens) -> Tokens:
        return -self.observation_weight * logp
