"""Losses on pairs of responses, one preferred to the other. One number a pair, [N]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import PerPair


def response_logp(logp: Float[Tensor, "*n T"], mask: Bool[Tensor, "*n T"]) -> Float[Tensor, "*n"]:
    """Return log π of whole responses: the sum over their tokens, nats."""
    return logp.masked_fill(~mask, 0.0).sum(-1)


@explained(formula="−log(sigmoid(chosen − rejected))")
def bradley_terry(chosen: PerPair, rejected: PerPair) -> PerPair:
    """Return the negative log-likelihood of the preference, given two scores, in nats.

    Source: Bradley & Terry (1952); reward models in InstructGPT (arXiv 2203.02155) Eq. 1.
    """
    return -logsigmoid(chosen - rejected)


@explained(
    why="the policy is its own reward model; beta is the leash to the reference, which needs no KL term.",
    formula="beta · (logp − ref_logp)",
)
@dataclass(frozen=True)
class ImplicitReward(Checked):
    """The reward of which a policy is the optimum under a KL leash, per response.

    Raises ValueError unless beta > 0.
    Source: DPO (arXiv 2305.18290) Eq. 5, without the part that pairs share.
    """

    beta: float = within(0.1, above=0, finite=True)

    def __str__(self) -> str:
        return f"{self.beta:g} · log(π/π_ref) of the response"

    def __call__(self, logp: PerPair, ref_logp: PerPair) -> PerPair:
        return self.beta * (logp - ref_logp)


@explained(
    why="the policy's own log-probability against the reference's, in nats; how far it should go is the pair loss's to say.",
    formula="logp − ref_logp",
)
def log_ratio(logp: PerPair, ref_logp: PerPair) -> PerPair:
    """Return the log-ratio of whole responses, nats. Source: IPO (arXiv 2310.12036) Eq. 17."""
    return logp - ref_logp


@explained(formula="(logp − ref_logp) / lengths")
def mean_log_ratio(logp: PerPair, ref_logp: PerPair, lengths: Int[Tensor, " N"]) -> PerPair:
    """Return the log-ratio, nats per token: TRL's IPO, which says that the paper's authors did so too."""
    return (logp - ref_logp) / lengths


@explained(
    why="what is compared is what generates: the mean log-probability of a token, so no reference and no prize for length.",
    formula="beta · logp / lengths",
)
@dataclass(frozen=True)
class LengthNormalized(Checked):
    """The reward of a response without a reference; lengths are its tokens.

    Raises ValueError unless beta > 0.
    Source: SimPO (arXiv 2405.14734) Eq. 4, beta from 2 to 2.5 in its table of settings.
    """

    beta: float = within(2.0, above=0, finite=True)

    def __str__(self) -> str:
        return f"{self.beta:g} · mean log π of a token"

    def __call__(self, logp: PerPair, lengths: Int[Tensor, " N"]) -> PerPair:
        return self.beta * logp / lengths


@explained(
    why="odds grow without end as a probability nears 1, so the contrast is mild where both responses are likely.",
    formula="log(p / (1 − p)); p = exp(logp / lengths)",
)
def log_odds(logp: PerPair, lengths: Int[Tensor, " N"]) -> PerPair:
    """Return the log-odds of p, the geometric mean of the probabilities of a response's tokens.

    A type tells no p nearer to 1 than its eps; there the odds are 1 / eps, and have no gradient.
    Source: ORPO (arXiv 2403.07691) Eq. 4, 7.
    """
    mean = (logp / lengths).clamp(max=-torch.finfo(logp.dtype).eps)
    return mean - torch.log(-torch.expm1(mean))


@explained(why="the better a pair is ordered already, the less it pulls.")
@dataclass(frozen=True)
class SigmoidPreference(Checked):
    """`bradley_terry` of two implicit rewards; with label_smoothing ε, (1 − ε) of it and ε of the flipped pair's.

        bradley_terry(chosen, rejected)

    The gradient carries σ(rejected − chosen): it fades once the pair is ordered. Raises ValueError unless
    0 ≤ label_smoothing < ½.
    Source: DPO (arXiv 2305.18290) Eq. 7; label smoothing as in the authors' code (conservative DPO).
    """

    label_smoothing: float = within(0.0, at_least=0, below=0.5)

    def __str__(self) -> str:
        return "−log σ(margin)" + (f", {self.label_smoothing:g} flipped" if self.label_smoothing else "")

    @property
    def formula(self) -> str:
        """The loss as text."""
        if not self.label_smoothing:
            return "bradley_terry(chosen, rejected)"
        return "(1 − label_smoothing) · bradley_terry(chosen, rejected) + label_smoothing · bradley_terry(rejected, chosen)"

    def __call__(self, chosen: PerPair, rejected: PerPair) -> PerPair:
        straight, flipped = bradley_terry(chosen, rejected), bradley_terry(rejected, chosen)
        return (1 - self.label_smoothing) * straight + self.label_smoothing * flipped


@explained(
    why="the chosen response is imitated as well, so no reference has to hold the policy.",
    formula="chosen_nll − weight · log(sigmoid(chosen − rejected))",
)
@dataclass(frozen=True)
class OddsRatioPreference(Checked):
    """Imitation of the chosen response, and a penalty on the other's odds.

    chosen_nll: of the chosen response, nats per token. Raises ValueError unless weight is above 0 and finite.
    Source: ORPO (arXiv 2403.07691) Eq. 6, weight .1.
    """

    weight: float = within(0.1, above=0, finite=True)

    def __str__(self) -> str:
        return f"NLL of the chosen − {self.weight:g} · log σ(margin)"

    def __call__(self, chosen: PerPair, rejected: PerPair, chosen_nll: PerPair) -> PerPair:
        return chosen_nll + self.weight * bradley_terry(chosen, rejected)


@explained(
    why="a pair counts as ordered only from a distance on.",
    formula="−log(sigmoid(chosen − rejected − gamma))",
)
@dataclass(frozen=True)
class MarginPreference(Checked):
    """gamma is the margin of reward that the chosen response is asked for.

    Raises ValueError unless gamma is 0 or above, and finite.
    Source: SimPO (arXiv 2405.14734) Eq. 6.
    """

    gamma: float = within(1.0, at_least=0, finite=True)

    def __str__(self) -> str:
        return f"−log σ(margin − {self.gamma:g})"

    def __call__(self, chosen: PerPair, rejected: PerPair) -> PerPair:
        return bradley_terry(chosen, rejected + self.gamma)


@explained(
    why="the margin has a goal: a pair that is told apart further is pulled back, so preferences without noise do no harm.",
    formula="(chosen − rejected − 1 / (2 · beta))²",
)
@dataclass(frozen=True)
class SquaredPreference(Checked):
    """A margin of 1 / (2 beta) is aimed at, and not passed.

    Raises ValueError unless beta is above 0 and finite.
    Source: IPO (arXiv 2310.12036) Eq. 17, where beta is called τ.
    """

    beta: float = within(0.1, above=0, finite=True)

    def __str__(self) -> str:
        return f"(margin − {1 / (2 * self.beta):g})²"

    def __call__(self, chosen: PerPair, rejected: PerPair) -> PerPair:
        return (chosen - rejected - 1 / (2 * self.beta)).square()


@explained(why="the contrast to the sigmoid: every pair pulls for ever, ordered or not.", formula="rejected − chosen")
def linear_preference(chosen: PerPair, rejected: PerPair) -> PerPair:
    """Return the loss of two implicit rewards whose gradient is constant and never stops."""
    return rejected - chosen
