"""What algorithms refuse: pieces that do not fit their slots, names that there are not, inputs that a piece lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlviz.algorithms import (
    DAPO,
    DPO,
    GRPO,
    GRPO_PROCESS,
    IPO,
    KL_COV,
    ORPO,
    PPO,
    PPO_PENALTY,
    SIMPO,
    find_algorithm,
    formulas,
    show,
)
from rlviz.algorithms.describe import from_json, to_json
from rlviz.pieces.advantages import (
    BestOfK,
    GroupAdvantage,
    LeaveOneOut,
    LengthWeighted,
    MeanScaled,
    ProcessAdvantage,
    PromptHistory,
    SmoothStandardization,
    StandardizedApart,
    pass_at_k,
)
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.kl import AdaptivePenalty, KLInReward, k3
from rlviz.pieces.mismatch import MaskedWeight
from rlviz.types import Batch
from tests.refusals.row import table

MINE = replace(GRPO, name="Mine", kl=None)
LOGP, MASK = torch.zeros(1, 2, 3), torch.ones(1, 2, 3, dtype=torch.bool)
REWARDS = torch.zeros(1, 2)
ONE = torch.zeros(3, 1)  # groups of one response
PAIR = torch.zeros(3)


def to_the_old_policy(logp: Any, old_logp: Any) -> Any:
    return 0.5 * k3(old_logp, logp)


class Lagrange:
    """A weight of one's own, no parameter of a dataclass: nobody can change it by name."""

    beta = 0.3

    def __call__(self, logp: Any, ref_logp: Any) -> Any:
        return self.beta * (logp - ref_logp).square()


@dataclass(frozen=True)
class Impatient:
    """Says how many rounds it waits in words."""

    max_rounds: object = "ten"

    def __call__(self, rewards: Any) -> Any:
        return torch.arange(len(rewards))


@dataclass(frozen=True)
class Pairs:
    """Says that it needs no response at all."""

    min_group_size: object = 0

    def __call__(self, rewards: Any) -> Any:
        return rewards - rewards.mean(1, keepdim=True)


class Filter:
    """Its loss_mask does not ask which responses were cut off."""

    def __call__(self, rewards: Any, lengths: Any) -> Any:
        return rewards

    def loss_mask(self, mask: Any) -> Any:
        return mask


def dead(old_logp: Any) -> Any:
    return 1.2, 0.8


def crossing(old_logp: Any) -> Any:
    """Cross above ½ alone, which no probability is that is tried when it is built."""
    return torch.where((old_logp.exp() - 0.5).abs() < 1e-3, 2.0, 0.8), torch.full_like(old_logp, 1.2)


def limited(rule: Any) -> Any:
    """Build it, and take the loss of one batch, whose tokens were sampled with probability ½."""
    old_logp = torch.full((1, 1, 3), math.log(0.5))
    algorithm = replace(MINE, bounds=rule)
    return algorithm.loss(old_logp, Batch(old_logp, torch.ones_like(old_logp), torch.ones(1, 1, 3, dtype=torch.bool)))


def credited(rule: Any) -> Any:
    return replace(MINE, advantage=rule).advantages(torch.zeros(2, 3), torch.ones(2, 3, 4, dtype=torch.bool))


def selecting(index: Any) -> Any:
    return replace(GRPO, select=lambda rewards: index).selected(torch.zeros(2, 3))


def described(**changed: Any) -> Any:
    return from_json({**to_json(GRPO), **changed})


def of_own_piece() -> Any:
    return from_json(to_json(replace(GRPO, aggregate=lambda mask: mask.double())))


ROWS = table(
    globals(),
    r"""
# pieces that cannot be called as their slot is
replace(GRPO, surrogate=lambda ratio, advantages: ratio)
    → TypeError: surrogate must take 4 arguments (ratio, advantages, lower, upper)…
replace(GRPO, surrogate=lambda r, a, lo, hi, foo: r)
    → TypeError: surrogate must take 4 arguments (…), and may ask for mask, logp, old_logp, …; … does not:
    …foo…
replace(GRPO, bounds=FixedBounds)
    → TypeError: bounds must be a function of 1 argument (old_logp) or a built piece; got <class …>
replace(GRPO, advantage=lambda: 0)
    → TypeError: advantage must take 1 argument (rewards)…; <lambda> does not: …
replace(GRPO, aggregate=lambda mask, lengths: mask)
    → TypeError: aggregate must take 1 argument (mask); <lambda> does not: …
replace(GRPO, kl=lambda logp, reference: logp)
    → TypeError: kl must take 1 argument (logp), and may ask for ref_logp, old_logp, ratio, mask; <lambda>
    does not: …
replace(GRPO, kl=KLInReward)
    → TypeError: kl must be a function of 3 arguments (…) or a built piece; got <class …>
replace(GRPO, aggregate=torch.mean)
    → TypeError: aggregate must be a function of 1 argument (mask); mean does not say which arguments it
    takes: wrap it in a function
replace(GRPO, select=Impatient())
    → TypeError: select's max_rounds must be a whole number, at least 1; got 'ten'
replace(GRPO, select=Impatient(0)) → TypeError: select's max_rounds must be a whole number, at least 1; got 0
replace(GRPO, advantage=Pairs())
    → TypeError: advantage's min_group_size must be a whole number, at least 1; got 0
replace(GRPO, shape=Filter())
    → TypeError: shape's loss_mask must take 2 arguments (mask, truncated); … does not: …
replace(GRPO, bound=FixedBounds()) → TypeError: unknown slot 'bound'; did you mean bounds? slots: …
replace(PPO_PENALTY, kl=to_the_old_policy)
    → TypeError: controller changes the beta of the KL term, and kl, to the old policy, has none: give it a
    dataclass with a number beta, or controller=None
replace(PPO_PENALTY, kl=Lagrange())
    → TypeError: controller changes the beta of the KL term, and kl, …, has none: …
replace(PPO_PENALTY, kl=None) → TypeError: controller changes the beta of the KL term, and kl, –, has none: …
replace(PPO, controller=AdaptivePenalty)
    → TypeError: controller must be a function of 3 arguments (beta, kl, count) or a built piece…
replace(PPO, value_loss=lambda values: values)
    → TypeError: value_loss must take 3 arguments (values, old_values, returns)…; <lambda> does not: …
replace(PPO, value_weight=-0.5) → value_weight must be at least 0 and finite; got -0.5
replace(PPO, entropy_weight=math.inf) → entropy_weight must be at least 0 and finite; got inf
replace(SIMPO, reward=lambda logp, tokens: logp)
    → TypeError: reward must take 1 argument (logp), and may ask for ref_logp, lengths; <lambda> does not: …
replace(SIMPO, pair_loss=lambda chosen: chosen)
    → TypeError: pair_loss must take 2 arguments (chosen, rejected)…
# limits that are none
limited(dead)
    → Mine's bounds, dead, must give limits with lower ≤ upper; for old probability … got 1.2 and 0.8
limited(lambda old_logp: ⟨0.8 | None⟩)
    → Mine's bounds, <lambda>, must return two limits, lower and upper, …; got ⟨⟩
limited(lambda old_logp: (0.8, ⟨'wide' | 1.2, 2.0⟩))
    → Mine's bounds, <lambda>, must return two limits, lower and upper, …; got 0.8 and …
limited(lambda old_logp: ('low', 'high'))
    → Mine's bounds, <lambda>, must return two limits, lower and upper, …; got 'low' and 'high'
limited(lambda old_logp: torch.full((2, 1, 5), 0.8))
    → Mine's bounds, <lambda>, must return two limits, lower and upper, …; got a tensor [2, 1, 5]
limited(lambda old_logp: (torch.full((7,), 0.8), 1.2))
    → Mine's bounds, <lambda>, must return two limits, lower and upper, …; got a tensor [7] and 1.2
limited(lambda old_logp: (0.8, math.nan))
    → Mine's bounds, <lambda>, must give limits with lower ≤ upper; for old probability … got 0.8 and nan
limited(crossing)
    → Mine's bounds, crossing, must give limits with lower ≤ upper; for old probability 0.5 got 2 and 1.2
# what an advantage must return
credited(lambda rewards, history: rewards)
    → Mine's advantage, <lambda>, asks for history, so it must return (A, the history after this visit…); got
    …a tensor [2, 3]
credited(lambda rewards, history: (rewards, None))
    → Mine's advantage, <lambda>, asks for history, so it must return (A, the history after this visit…); got
    …a tensor [2, 3] and None
credited(lambda rewards, history: (rewards, PromptHistory.empty(5)))
    → Mine's advantage, <lambda>, …the history of the same prompts, 2 of them; got one of 5
credited(lambda rewards: (rewards, rewards))
    → Mine's advantage, <lambda>, must return a tensor [2, 3] or [2, 3, 4]; got a tensor [2, 3] and a tensor
    [2, 3]
credited(lambda rewards: rewards.sum())
    → Mine's advantage, <lambda>, must return a tensor [2, 3] or [2, 3, 4]; got a tensor []
credited(lambda rewards: rewards[:1])
    → Mine's advantage, <lambda>, must return a tensor [2, 3] or [2, 3, 4]; got a tensor [1, 3]
# what a selection must return
selecting(⟨torch.tensor([2]) | torch.tensor([-1]) | torch.tensor([0.0]) | [0] | torch.tensor([[0]])⟩)
    → select must return indices of groups, whole numbers from 0 to 1; got …
# groups of one
⟨GroupAdvantage | LeaveOneOut | SmoothStandardization | MeanScaled⟩()(ONE)
    → group_size must be at least 2: one response has no group to be compared with; got 1
LengthWeighted()(ONE, torch.ones(3, 1, 4, dtype=torch.bool))
    → group_size must be at least 2: one response has no group to be compared with; got 1
ProcessAdvantage()(torch.zeros(3, 1, 4), torch.ones(3, 1, 4, dtype=torch.bool))
    → group_size must be at least 2: one response has no group to be compared with; got 1
MeanScaled()(torch.tensor([[-1.0, 0.0]])) → rewards must have a mean above 0 in each group; got -0.5
StandardizedApart(answer=0.0, format=0.0) → answer and format must not both be 0: then nothing is rewarded
DAPO.with_parameters(cache=⟨0 | 17⟩) → cache must be above 0 and at most max_length (16): …; got ⟨⟩
DAPO.with_parameters(max_rounds=0) → max_rounds must be at least 1; got 0
MaskedWeight(lowest=⟨-1.0 | 2.0⟩)
    → lowest and highest must be finite, with 0 ≤ lowest ≤ 1 ≤ highest; got ⟨⟩ and 5.0
MaskedWeight(highest=⟨0.2 | math.nan | math.inf⟩)
    → lowest and highest must be finite, with 0 ≤ lowest ≤ 1 ≤ highest; got 0.5 and …
BestOfK(4)(torch.zeros(3, 1)) → group_size must be at least 2: one response has no group to be compared with; got 1
pass_at_k(torch.tensor(1), 3, 4) → k must be at least 1 and at most the number of samples, 3; got 4
# inputs that are not there
GRPO.loss(LOGP, Batch(LOGP, LOGP, MASK)) → GRPO's kl, …, needs ref_logp; got None
GRPO_PROCESS.advantages(LOGP, MASK) → GRPO (process)'s advantage, …, needs step_ends; got None
replace(GRPO, kl=KLInReward()).advantages(REWARDS, MASK)
    → GRPO has its KL in the reward and needs old_logp and ref_logp; got None
replace(GRPO_PROCESS, kl=KLInReward()).advantages(torch.zeros(1, 2, 3), MASK, step_ends=MASK)
    → GRPO (process): rewards of single steps take no KL in the reward; put it in the loss
PPO.token_rewards(REWARDS, MASK, LOGP) → PPO has its KL in the reward and needs ref_logp; got None
replace(KL_COV, surrogate=lambda ratio, advantages, lower, upper, chosen: ratio).loss(LOGP, Batch(LOGP, LOGP,
    MASK))
    → KL-Cov's surrogate, <lambda>, needs chosen; got None
SIMPO.loss(PAIR, PAIR) → SimPO's reward, 2 · mean log π of a token, needs lengths; got None
IPO.loss(PAIR, PAIR) → IPO's reward, log ratio, needs ref_logp; got None
ORPO.pair_losses(PAIR, PAIR) → ORPO's pair_loss, …, needs chosen_nll; got None
# names
find_algorithm('grop') → algorithm 'grop' is not known; did you mean …grpo…
show('grop') → algorithm 'grop' is not known; did you mean grpo…
show(7) → algorithm must be an algorithm, such as GRPO or a text; got 7
formulas('grop') → algorithm 'grop' is not known; did you mean grpo…
formulas(GRPO, against=7) → against must be an algorithm, such as GRPO or a text or None; got 7
GRPO.with_parameters(epsilon=0.2) → GRPO has no parameter 'epsilon'; its pieces have …eps_high…
GRPO.with_parameters(eps_low=1.5) → eps_low must be above 0 and below 1 (a ratio cannot fall below 0); got 1.5
GRPO.with_parameters(eps=0.2)
    → eps must be at most 0.01: it keeps a division by a std from 0 / 0, and the widths of the clip are
    eps_low and eps_high; got 0.2
DPO.with_parameters(eps_low=0.1) → DPO has no parameter 'eps_low'; its pieces have beta, label_smoothing
# descriptions in a file
described(select=None) → algorithm.select must be a function; got None
described(groups=3) → algorithm: GroupPolicyGradient has no 'groups' in this version of rlviz; train again
described(kl={'piece': 'rlviz.pieces.kl:KLInLos'})
    → algorithm.kl: this version of rlviz has no piece 'rlviz.pieces.kl:KLInLos'
of_own_piece() → …is not a piece of rlviz; from Python, resume(folder, algorithm=…)
described(kl={'piece': ⟨'os:system' | 'builtins:eval' | 'rlviz.cli:main' | 'rlviz.pieces.kl:torch.load' |
    'rlviz.pieces.kl:_x'⟩})
    → algorithm.kl: ⟨⟩ is not a piece of rlviz; from Python, resume(folder, algorithm=…)
""",
)
