"""Relatives of the family: GRPO, but for the slots that are named. To add one, write its value here, and put it into RELATIVES.

RLOO          arXiv 2402.14740   A = R − mean of the others, J = r A summed over a response; the KL penalty in the reward
REINFORCE++   arXiv 2501.03262   A = R less the penalties still to come, whitened over all tokens of the batch
CISPO         arXiv 2506.13585   J = sg[clip(r)] A log r: the clip limits a weight, and no token loses its gradient
GMPO          arXiv 2507.20673   J = (Π_t clipped r_t)^(1/|o|) A: a geometric mean of ratios clipped one by one
SAPO          arXiv 2511.20347   J = 4/τ σ(τ (r − 1)) A: a gate that closes softly in place of the clip
DPPO-TV       arXiv 2602.04879   limits 1 ± δ/q: by how much a probability may change, whatever its ratio
MaxRL         arXiv 2602.02710   A = (R − mean) / mean: up the logarithm of the share right
OPO           arXiv 2505.23585   A = R − mean weighted by length, exactly on policy

What they are not: CISPO with a lower limit of its own (no width is published), TIS and IcePop (they need the sampler's own
log-probabilities), KL-Cov (a penalty that the surrogate would have to take), masks by entropy (the surrogate is not told it),
GDPO (rewards of several kinds, of which the advantage sees the sum).
"""

from __future__ import annotations

import math
from dataclasses import replace

from rlviz.algorithms.grpo import GRPO
from rlviz.pieces.advantages import LeaveOneOut, LengthWeighted, MeanScaled, WhitenedReturn
from rlviz.pieces.aggregation import Constant, token_mean
from rlviz.pieces.bounds import ChangeBounds, FixedBounds, UpperBound, no_bounds
from rlviz.pieces.kl import KLInReward
from rlviz.pieces.surrogate import SoftGate, clipped_weight, geometric_mean, unclipped

NO_KL = "–: the paper trains without a reference policy."

RLOO = replace(
    GRPO,
    name="RLOO",
    source="arXiv 2402.14740",
    bounds=no_bounds,
    surrogate=unclipped,
    advantage=LeaveOneOut(),
    kl=KLInReward(beta=0.05),
    aggregate=Constant(max_length=1),
    from_grpo={
        "aggregate": "constant 1/1: a response is one action, so its tokens' terms are summed, however many there are."
    },
)

REINFORCE_PP = replace(
    GRPO,
    name="REINFORCE++",
    source="arXiv 2501.03262",
    advantage=WhitenedReturn(beta=0.01),
    kl=None,
    aggregate=token_mean,
    from_grpo={"kl": "–: the penalty is part of the return, a token at a time."},
)

CISPO = replace(
    GRPO,
    name="CISPO",
    source="arXiv 2506.13585",
    bounds=UpperBound(max_ratio=5.0),
    surrogate=clipped_weight,
    kl=None,
    aggregate=token_mean,
    from_grpo={"kl": NO_KL},
)

GMPO = replace(
    GRPO,
    name="GMPO",
    source="arXiv 2507.20673",
    bounds=FixedBounds(eps_low=1 - math.exp(-0.4), eps_high=math.exp(0.4) - 1),
    surrogate=geometric_mean,
    kl=None,
    from_grpo={
        "kl": NO_KL,
        "bounds": f"{FixedBounds(1 - math.exp(-0.4), math.exp(0.4) - 1)}: e^±0.4, for a mean forgives more.",
    },
)

SAPO = replace(
    GRPO,
    name="SAPO",
    source="arXiv 2511.20347",
    bounds=no_bounds,
    surrogate=SoftGate(positive=1.0, negative=1.05),
    kl=None,
    from_grpo={"kl": NO_KL},
)

DPPO_TV = replace(
    GRPO,
    name="DPPO-TV",
    source="arXiv 2602.04879",
    bounds=ChangeBounds(delta=0.15),
    kl=None,
    from_grpo={"kl": NO_KL},
)

MAX_RL = replace(
    GRPO,
    name="MaxRL",
    source="arXiv 2602.02710",
    advantage=MeanScaled(),
    kl=None,
    from_grpo={"kl": NO_KL},
)

OPO = replace(
    GRPO,
    name="OPO",
    source="arXiv 2505.23585",
    bounds=no_bounds,
    surrogate=unclipped,
    advantage=LengthWeighted(),
    kl=None,
    from_grpo={"kl": NO_KL},
)

RELATIVES = (RLOO, REINFORCE_PP, CISPO, GMPO, SAPO, DPPO_TV, MAX_RL, OPO)
