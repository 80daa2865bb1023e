"""Relatives of the family: GRPO, but for the slots that are named, or DPO, but for its two pieces.

To add one, write its value here, and put it into RELATIVES.

RLOO          arXiv 2402.14740   A = R − mean of the others, J = r A summed over a response; the KL penalty in the reward
REINFORCE++   arXiv 2501.03262   A = R less the penalties still to come, whitened over all tokens of the batch
CISPO         arXiv 2506.13585   J = sg[clip(r)] A log r: the clip limits a weight, and no token loses its gradient
GMPO          arXiv 2507.20673   J = (Π_t clipped r_t)^(1/|o|) A: a geometric mean of ratios clipped one by one
SAPO          arXiv 2511.20347   J = 4/τ σ(τ (r − 1)) A: a gate that closes softly in place of the clip
DPPO-TV       arXiv 2602.04879   limits 1 ± δ/q: by how much a probability may change, whatever its ratio
prime-rl      arXiv 2602.04879   DPPO-TV's limits with δ .2, A = R − mean, and (log r)² as a KL to the policy that sampled
LUSPO         arXiv 2602.05261   J = clipped s A, GSPO's, summed over a response's tokens and not averaged
VESPO         arXiv 2602.10693   J = sg[φ(W)] A log r, φ(W) = W^k e^(λ (1 − W)) of the product W of a response's ratios
Unbiased KL   arXiv 2512.02556   β r k3 in place of β k3: the penalty's gradient is that of the KL
MaxRL         arXiv 2602.02710   A = (R − mean) / mean: up the logarithm of the accuracy
Pass@k        arXiv 2508.10751   A = how much more often k responses with this one hold a right one, standardised
RFT           arXiv 2308.01825   A = R: cross-entropy on one's own right responses, renewed at each step
ECHO          arXiv 2605.24517   GRPO, and λ times the cross-entropy of what a tool wrote, which all others leave out
OPO           arXiv 2505.23585   A = R − mean weighted by length, exactly on policy
KL-Cov        arXiv 2505.22617   J = r A − β |log r| on the few tokens where A and log π covary most
GDPO          arXiv 2601.05242   A = z(answer) + z(format), each standardised in its group, the sum whitened over the batch
Entropy bonus arXiv 1602.01783   J = the clipped objective + c H, H of the whole next-token distribution
Forking tokens  2506.01939       DAPO with A = 0 but on the fifth of tokens with the highest entropy
Distillation  arXiv 2306.13649   A_t = log π_teacher − log π_old: no reward, a teacher as reference
KDRL          arXiv 2506.02208   J = GRPO's clipped term − β KL to a teacher (k2): a reward and a teacher at once
IPO           arXiv 2310.12036   (margin − 1/2β)²: the margin of a pair has a goal, where DPO's has none
SimPO         arXiv 2405.14734   −log σ(margin − γ) of mean log-probabilities: no reference
ORPO          arXiv 2403.07691   imitation of the chosen response, − λ log σ of the log odds ratio: no reference

Where another engine samples than the one that trains, w = π_old / π_sampler:

TIS           Ionides 2008       A · min(w, 2): a weight of each token, truncated
IcePop        arXiv 2510.18855   A · w where .5 ≤ w ≤ 5, else 0: tokens on which the engines disagree are left out
Decoupled PPO arXiv 2505.24298   A · w, for asynchronous training: w corrects for the old sampler, the clip is around π_old
Sequence mask arXiv 2512.02556   J = 0 for a bad response whose mean log(π_sampler / π) is above δ

What they are not: CISPO with a lower limit of its own (no width is published), Clip-Cov (2505.22617, which draws at random the
tokens that lose their gradient, among those that no limit cuts at that moment: no surrogate is given a generator), GDPO with a
condition between rewards or with more kinds than a task grades, KTO (responses that are good or bad each by itself, not in pairs,
and a baseline from the pairs of other prompts), the optimal token baseline (2602.07078, which weighs by Σπ² of the distribution
that each token was drawn from: no advantage is given it), SDPO (2601.20802, whose teacher is the policy itself with feedback
before the prompt: ours are too small to read it; with a right answer there, they score a right response above a wrong one of the
same group in 19 % of the pairs on chain and 43 % on trip, where chance is 50 %).
"""

from __future__ import annotations

import math
from dataclasses import replace

from rlviz.algorithms.dapo import DAPO
from rlviz.algorithms.grpo import GRPO
from rlviz.algorithms.gspo import GSPO
from rlviz.algorithms.observing import ObservingPolicyGradient
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.pieces.advantages import (
    BestOfK,
    ForkingTokens,
    GroupAdvantage,
    LeaveOneOut,
    LengthWeighted,
    MeanScaled,
    StandardizedApart,
    TeacherLogRatio,
    WhitenedReturn,
    reward_alone,
)
from rlviz.pieces.aggregation import Constant, token_mean
from rlviz.pieces.bounds import ChangeBounds, FixedBounds, UpperBound, no_bounds
from rlviz.pieces.kl import KLInReward, KLToOld, KLToTeacher, UnbiasedKL, k2, k3
from rlviz.pieces.mismatch import FullWeight, MaskedWeight, TruncatedWeight
from rlviz.pieces.observation import ObservationCrossEntropy
from rlviz.pieces.preference import (
    LengthNormalized,
    MarginPreference,
    OddsRatioPreference,
    SquaredPreference,
    log_odds,
    log_ratio,
)
from rlviz.pieces.shaping import WeightedRules
from rlviz.pieces.surrogate import (
    CovariancePenalty,
    EntropyBonus,
    GammaWeight,
    SequenceMask,
    SoftGate,
    clipped_weight,
    geometric_mean,
    unclipped,
)

NO_KL = "–: the paper trains without a reference policy."
WITHOUT_KL = replace(GRPO, kl=None, from_grpo={"kl": NO_KL})

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
    WITHOUT_KL,
    name="CISPO",
    source="arXiv 2506.13585",
    bounds=UpperBound(max_ratio=5.0),
    surrogate=clipped_weight,
    aggregate=token_mean,
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
    WITHOUT_KL,
    name="SAPO",
    source="arXiv 2511.20347",
    bounds=no_bounds,
    surrogate=SoftGate(positive=1.0, negative=1.05),
)

DPPO_TV = replace(
    WITHOUT_KL,
    name="DPPO-TV",
    source="arXiv 2602.04879",
    bounds=ChangeBounds(delta=0.15),
)

PRIME_RL = replace(
    GRPO,
    name="prime-rl",
    source="arXiv 2602.04879",
    bounds=ChangeBounds(delta=0.2),
    advantage=GroupAdvantage(scale="none"),
    kl=KLToOld(beta=2e-3, estimator=k2),
    aggregate=token_mean,
    from_grpo={
        "kl": f"{KLToOld(beta=2e-3, estimator=k2)}: 0.001 (log r)², a soft leash to the policy that sampled, in place of a "
        "reference.",
    },
)

LUSPO = replace(
    GSPO,
    name="LUSPO",
    source="arXiv 2602.05261",
    aggregate=Constant(max_length=1),
    from_grpo={
        **GSPO.from_grpo,
        "aggregate": "constant 1/1: each response's term counts once for each of its tokens, so long ones are not held back.",
    },
)

VESPO = replace(
    WITHOUT_KL,
    name="VESPO",
    source="arXiv 2602.10693",
    bounds=no_bounds,
    surrogate=GammaWeight(),
    aggregate=token_mean,
)

UNBIASED_KL = replace(
    GRPO,
    name="Unbiased KL",
    source="arXiv 2512.02556",
    kl=UnbiasedKL(beta=0.04, estimator=k3),
)

MAX_RL = replace(
    WITHOUT_KL,
    name="MaxRL",
    source="arXiv 2602.02710",
    advantage=MeanScaled(),
)

PASS_AT_K = replace(
    WITHOUT_KL,
    name="Pass@k",
    source="arXiv 2508.10751",
    advantage=BestOfK(k=4),
)

RFT = replace(
    WITHOUT_KL,
    name="RFT",
    source="arXiv 2308.01825",
    bounds=no_bounds,
    surrogate=unclipped,
    advantage=reward_alone,
    aggregate=token_mean,
)

ECHO = ObservingPolicyGradient(
    **GRPO.slots(),
    name="ECHO",
    source="arXiv 2605.24517",
    observation_loss=ObservationCrossEntropy(),
)

OPO = replace(
    WITHOUT_KL,
    name="OPO",
    source="arXiv 2505.23585",
    bounds=no_bounds,
    surrogate=unclipped,
    advantage=LengthWeighted(),
)

KL_COV = replace(
    WITHOUT_KL,
    name="KL-Cov",
    source="arXiv 2505.22617",
    bounds=no_bounds,
    surrogate=CovariancePenalty(beta=1.0, share=0.002),
    aggregate=token_mean,
)

GDPO = replace(
    GRPO,
    name="GDPO",
    source="arXiv 2601.05242",
    advantage=StandardizedApart(answer=1.0, format=1.0),
    kl=None,
    aggregate=token_mean,
    shape=WeightedRules(answer=1.0, format=1.0),
    from_grpo={
        "kl": NO_KL,
        "shape": "1 answer + 1 format: what records show as the reward; the advantage sees the two apart.",
    },
)

ENTROPY_BONUS = replace(
    GRPO,
    name="Entropy bonus",
    source="arXiv 1602.01783",
    surrogate=EntropyBonus(entropy_weight=0.01),
    kl=None,
    from_grpo={"kl": "–: the bonus is the only thing added, so that what it does is seen."},
)

FORKING_TOKENS = replace(
    DAPO,
    name="Forking tokens",
    source="arXiv 2506.01939",
    advantage=ForkingTokens(share=0.2),
)

DISTILLATION = replace(
    GRPO,
    name="Distillation",
    source="arXiv 2306.13649",
    bounds=no_bounds,
    surrogate=unclipped,
    advantage=TeacherLogRatio(),
    kl=None,
    aggregate=token_mean,
    from_grpo={"kl": "–: the advantage itself is the KL to the teacher, a token at a time."},
)

KDRL = replace(
    GRPO,
    name="KDRL",
    source="arXiv 2506.02208",
    kl=KLToTeacher(),
    aggregate=token_mean,
)

IPO = PreferenceOptimization(
    name="IPO",
    source="arXiv 2310.12036",
    reward=log_ratio,
    pair_loss=SquaredPreference(beta=0.1),
)

SIMPO = PreferenceOptimization(
    name="SimPO",
    source="arXiv 2405.14734",
    reward=LengthNormalized(beta=2.0),
    pair_loss=MarginPreference(gamma=1.0),
)

ORPO = PreferenceOptimization(
    name="ORPO",
    source="arXiv 2403.07691",
    reward=log_odds,
    pair_loss=OddsRatioPreference(weight=0.1),
)

TIS = replace(GRPO, name="TIS", source="doi 10.1198/106186008X320456", advantage=TruncatedWeight(cap=2.0), from_grpo={})

ICE_POP = replace(
    GRPO, name="IcePop", source="arXiv 2510.18855", advantage=MaskedWeight(lowest=0.5, highest=5.0), from_grpo={}
)

DECOUPLED_PPO = replace(GRPO, name="Decoupled PPO", source="arXiv 2505.24298", advantage=FullWeight(), from_grpo={})

SEQUENCE_MASK = replace(
    GRPO, name="Sequence mask", source="arXiv 2512.02556", surrogate=SequenceMask(delta=0.5), from_grpo={}
)

TWO_ENGINES = (TIS, ICE_POP, DECOUPLED_PPO, SEQUENCE_MASK)
OF_TOKENS = KL_COV, GDPO, ENTROPY_BONUS, FORKING_TOKENS, DISTILLATION, KDRL
OF_PAIRS = IPO, SIMPO, ORPO
RELATIVES = (
    RLOO,
    REINFORCE_PP,
    CISPO,
    GMPO,
    SAPO,
    DPPO_TV,
    PRIME_RL,
    LUSPO,
    VESPO,
    UNBIASED_KL,
    MAX_RL,
    PASS_AT_K,
    RFT,
    ECHO,
    OPO,
    *OF_TOKENS,
    *TWO_ENGINES,
    *OF_PAIRS,
)
