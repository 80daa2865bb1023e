"""Losses on pairs of responses, one preferred to the other. One number a pair, [N]."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.pieces.words import says
from small_models.checks import check_fields


def response_logp(logp: Float[Tensor, "*n T"], mask: Bool[Tensor, "*n T"]) -> Float[Tensor, "*n"]:
    """Return log π of whole responses: the sum over their tokens, nats."""
    return logp.masked_fill(~mask, 0.0).sum(-1)


def bradley_terry(chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return −log σ(chosen − rejected): how surprising the preference is, given two scores.

    Source: Bradley & Terry (1952); reward models in InstructGPT (arXiv 2203.02155) Eq. 1.
    """
    return -logsigmoid(chosen - rejected)


@says(why="the policy is its own reward model; beta is the leash to the reference, which needs no KL term.")
@dataclass(frozen=True)
class ImplicitReward:
    """The reward of which a policy is the optimum under a KL leash: beta · (logp − ref_logp), per response.

    Raises ValueError unless beta > 0.
    Source: DPO (arXiv 2305.18290) Eq. 5, without the part that pairs share.
    """

    beta: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.beta < float("inf"):
            raise ValueError(f"beta must be above 0 and finite; got {self.beta}")

    def __str__(self) -> str:
        return f"{self.beta:g} · log(π/π_ref) of the response"

    def __call__(self, logp: Float[Tensor, " N"], ref_logp: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        return self.beta * (logp - ref_logp)


@says(why="the better a pair is ordered already, the less it pulls.")
@dataclass(frozen=True)
class SigmoidPreference:
    """−log σ(chosen − rejected) of two implicit rewards; with label_smoothing ε, (1 − ε) of it and ε of the flipped pair's.

    The gradient carries σ(rejected − chosen): it fades once the pair is ordered. Raises ValueError unless
    0 ≤ label_smoothing < ½.
    Source: DPO (arXiv 2305.18290) Eq. 7; label smoothing as in the authors' code (conservative DPO).
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.label_smoothing < 0.5:
            raise ValueError(f"label_smoothing must be from 0 to below 0.5; got {self.label_smoothing}")

    def __str__(self) -> str:
        return "−log σ(margin)" + (f", {self.label_smoothing:g} flipped" if self.label_smoothing else "")

    def __call__(self, chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        straight, flipped = bradley_terry(chosen, rejected), bradley_terry(rejected, chosen)
        return (1 - self.label_smoothing) * straight + self.label_smoothing * flipped


@says(why="the contrast to the sigmoid: every pair pulls for ever, ordered or not.")
def linear_preference(chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return −(chosen − rejected) of two implicit rewards: a constant gradient that never stops."""
    return rejected - chosen
