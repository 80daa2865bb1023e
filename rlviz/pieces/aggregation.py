"""From token objectives to one number, as the weight that each token gets. (mask [P, G, T]) → weights [P, G, T].

The objective is Σ weights · J. Weights depend on the mask alone, so they can be drawn, and they stay right when the
batch is cut into parts: compute them on the whole, then cut. They are float64, and take the objective's type when used.
B counts the responses that have a token.

    here            verl                        TRL
    sequence_mean   seq-mean-token-mean         grpo
    token_mean      token-mean                  bnpo, dapo
    Constant        seq-mean-token-sum-norm     dr_grpo
    sequence_sum    –                           –
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import Mask, Scalar, Tokens


def _responses(mask: Tensor) -> Tensor:
    return mask.any(-1).sum().clamp(min=1)


@explained(
    why="every response weighs the same, so a token of a long one weighs less than a token of a short one.",
    formula="1 / (B · length)",
)
def sequence_mean(mask: Mask) -> Tokens:
    """Return the weights of the mean over responses of each response's own mean; length is |o_i|.

    Source: GRPO (arXiv 2402.03300) Eq. 3.
    """
    return sequence_sum(mask) / _responses(mask)


@explained(why="every token weighs the same, so long responses are neither diluted nor spared.", formula="1 / tokens")
def token_mean(mask: Mask) -> Tokens:
    """Return the weights of the mean over all tokens of the batch, of which there are Σ_i |o_i|.

    Source: DAPO (arXiv 2503.14476) Eq. 12, whose mean is over a group's tokens, then over prompts; every public
    implementation takes the whole batch, and so does this one.
    """
    return mask.double() / mask.sum().clamp(min=1)


@explained(
    why="every token weighs the same from step to step, so no length of response is favoured.",
    formula="1 / (B · max_length)",
)
@dataclass(frozen=True)
class Constant(Checked):
    """The same weight for every token, with a *fixed* maximum length: the sum over tokens, whatever their number.

    Raises ValueError unless max_length ≥ 1.
    Source: Dr.GRPO (arXiv 2503.20783) §3.2.
    """

    max_length: int = within(at_least=1)

    def __str__(self) -> str:
        return f"constant 1/{self.max_length}"

    def __call__(self, mask: Mask) -> Tokens:
        return mask.double() / (_responses(mask) * self.max_length)


@explained(
    why="advantages were standardized already, so responses are compared by them alone and not averaged once more.",
    formula="1 / length",
)
def sequence_sum(mask: Mask) -> Tokens:
    """Return the weights of the sum over responses of each response's own mean; length is |o_i|.

    Source: DCPO (arXiv 2509.02333) Eq. 8, "only token mean"; the authors' code takes a plain sum over tokens instead.
    """
    return mask.double() / mask.sum(-1, keepdim=True).clamp(min=1)


def weighted_sum(values: Tokens, weights: Tokens, mask: Mask) -> Scalar:
    """Return Σ weights · values over true mask entries; whatever stands on padding has no part and gets no gradient."""
    return (values.masked_fill(~mask, 0.0) * weights.to(values.dtype)).sum()
