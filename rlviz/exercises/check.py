"""Checks for the exercises: each takes the student's function, and says what is wrong with it rather than that it is.

    check.pessimistic(my_objective)

A check never raises for a wrong answer: it returns a Verdict, which shows itself in a notebook. `passed` says the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rlviz.exercises import mistakes
from rlviz.exercises.judge import Unusable, Verdict, judge
from rlviz.pieces.advantages import GroupAdvantage, ProcessAdvantage
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean
from rlviz.pieces.bounds import DynamicBounds
from rlviz.pieces.gae import GAE
from rlviz.pieces.kl import k1, k3
from rlviz.pieces.preference import ImplicitReward, bradley_terry, response_logp
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.pieces.surrogate import clipped_weight as clipped_weight_piece, pessimistic as pessimistic_piece
from rlviz.pieces.values import entropy as entropy_piece


def _double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.double)


def _ragged(lengths: Sequence[int], width: int) -> Tensor:
    return torch.tensor([[[t < length for t in range(width)] for length in lengths]])


_RATIOS = _double([0.5, 0.9, 1.1, 1.5, 0.5, 0.9, 1.1, 1.5, 1.5, 5.0])
_SIGNS = _double([2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, 0.5, -2.0])


def _surrogate_case(low: Tensor, high: Tensor, *shape: int) -> dict[str, Tensor]:
    limits = {"lower": (1 - low).expand(10), "upper": (1 + high).expand(10)}
    return {name: x.reshape(shape) for name, x in {"ratio": _RATIOS, "A": _SIGNS, **limits}.items()}


_SURROGATE_CASES = [  # a wrong width cannot pass, nor a wrong branch hide, nor one limit stand for all
    _surrogate_case(_double(0.2), _double(0.2), 10),
    _surrogate_case(_double(0.2), _double(0.28), 10),
    _surrogate_case(_double(0.9), _double(9.0), 1, 2, 5),  # never clips; [P, G, T]
    _surrogate_case(  # each token has limits of its own, as DCPO gives it
        _double([0.2, 0.05, 0.3, 0.1, 0.4, 0.02, 0.2, 0.3, 0.1, 0.25]),
        _double([0.6, 0.3, 0.05, 0.7, 0.1, 0.2, 0.4, 0.3, 0.2, 0.8]),
        10,
    ),
]
_LOGP_CASES = [
    {
        "logp": _double([[[0.6, 0.1, 0.3], [0.9, 0.4, 0.7]]]).log(),
        "old_logp": _double([[[0.5, 0.4, 0.3], [0.3, 0.8, 0.2]]]).log(),
        "mask": _ragged([3, 1], 3),
    }
]
_RESPONSE_CASES = [  # responses of 1 to 4 tokens; what stands on padding must not matter
    {"logp": new.log(), "old_logp": old.log(), "mask": mask[0], "A": _double(A)}
    for new, old, mask, A in (
        (
            _double([[0.6, 0.1, 0.3, 0.8], [0.9, 0.4, 0.7, 0.2], [0.2, 0.7, 0.1, 0.6]]),
            _double([[0.5, 0.4, 0.3, 0.6], [0.3, 0.8, 0.2, 0.5], [0.4, 0.5, 0.6, 0.3]]),
            _ragged([4, 1, 2], 4),
            [1.5, -0.5, -1.0],
        ),
        (
            _double([[0.2, 0.3, 0.9], [0.7, 0.5, 0.4]]),
            _double([[0.3, 0.2, 0.4], [0.6, 0.6, 0.9]]),
            _ragged([3, 2], 3),
            [2.0, 0.5],
        ),
    )
]
_MASK_CASES = [
    {"mask": _ragged([1, 4, 0, 2], 5)},
    {"mask": torch.cat([_ragged([2, 0, 0], 3), _ragged([3, 1, 2], 3)])},
    {"mask": _ragged([3, 3], 3)},
]
_TURN_CASES = [  # two calls, one, none; cut off after a call, and within the answer of the tool; a batch without padding
    {"turn": torch.tensor(turns)}
    for turns in (
        [[[0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4], [0, 0, 0, 1, 1, 2, 2, 2, *[-1] * 5], [0, 0, 0, *[-1] * 10]]],
        [[[0, 0, 0, 1, 1, 1], [0, 0, -1, -1, -1, -1]], [[0, 1, 2, 3, 4, -1], [0, 0, 0, 0, 1, 2]]],
        [[[0, 1, 2, 2]], [[0, 0, 0, 0]]],
    )
]
_REWARD_CASES = [
    {"rewards": _double([[1, 0, 0, 0], [1, 1, 0, 1]])},
    {"rewards": _double([[0.1, 0.1, 0.1]])},
    {"rewards": _double([[5, 6, 8], [2, 2, 2], [0, 1, 9]])},
]
_STEP_CASES = [  # a step's reward may be 0, there are tokens after the last step, and no credit is 0 by cancelling
    {"rewards": _double(rewards), "step_ends": torch.tensor(ends, dtype=torch.bool)}
    for rewards, ends in (
        (
            [[[1, 0, 0, 0, 1], [0, 0, 1, 0, 0], [1, 0, 0, 1, 0]], [[1, 1, 0, 1, 0], [0, 1, 0, 1, 0], [0, 0, 0, 1, 1]]],
            [[[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 0, 0, 1, 0]], [[1, 1, 1, 1, 0], [1, 1, 0, 1, 0], [0, 0, 0, 1, 1]]],
        ),
        (  # the second group's step rewards are all equal
            [[[0.5, 0, -1, 0], [0, 2, 0, 0]], [[0.1, 0.1, 0, 0], [0, 0.1, 0, 0.1]]],
            [[[1, 1, 1, 0], [0, 1, 0, 0]], [[1, 1, 0, 0], [0, 1, 0, 1]]],
        ),
    )
]
_LOGITS_CASES = [
    {"logits": _double([[[0.0, 1.0, 2.0, -1.0], [0.5, 0.5, 0.5, 0.5], [4.0, 0.0, 0.0, 0.0]]])},
    {"logits": _double([[-1.0, 0.3, 0.9, 2.0, 0.1]])},
]
_KL_CASES = [{"logp": _double([0.5, 0.2, 0.9]).log(), "ref_logp": _double([0.25, 0.4, 0.9]).log()}]

_PAIR_CASES = [  # responses of 1 to 4 tokens; what stands on padding must not matter
    {"logp": new.log(), "ref_logp": ref.log(), "mask": mask, "beta": _double(beta)}
    for new, ref, mask, beta in (
        (
            _double([[[0.5, 0.9, 0.2, 0.7], [0.3, 0.1, 0.6, 0.4]], [[0.2, 0.8, 0.5, 0.1], [0.7, 0.9, 0.3, 0.2]]]),
            _double([[[0.4, 0.6, 0.5, 0.1], [0.6, 0.5, 0.2, 0.9]], [[0.6, 0.7, 0.9, 0.8], [0.3, 0.2, 0.6, 0.5]]]),
            torch.cat([_ragged([3, 2], 4), _ragged([1, 4], 4)]),
            0.1,
        ),
        (
            _double([[[0.9, 0.8], [0.05, 0.3]], [[0.1, 0.6], [0.9, 0.2]], [[0.5, 0.5], [0.4, 0.9]]]),
            _double([[[0.2, 0.3], [0.7, 0.6]], [[0.7, 0.9], [0.1, 0.4]], [[0.6, 0.2], [0.8, 0.3]]]),
            torch.cat([_ragged([2, 1], 2), _ragged([2, 2], 2), _ragged([1, 2], 2)]),
            2.0,
        ),
    )
]

_SCORE_CASES = [
    {"chosen": _double([1.2, -0.3, 0.5, 2.0]), "rejected": _double([0.2, 0.6, -1.5, 2.5])},
    {"chosen": _double([-0.7, 0.4]), "rejected": _double([1.1, 0.1])},
]
_FAR_SCORES = {"chosen": _double([0.0, 900.0]), "rejected": _double([900.0, 0.0])}  # σ(−900) is rounded to 0

_CREDIT_CASES = [  # answers of 1 to 4 tokens; rewards are 0 on padding, what values hold there must not matter
    {"rewards": _double(rewards), "values": _double(values), "mask": mask, "gamma": _double(gamma), "lam": _double(lam)}
    for rewards, values, mask, gamma, lam in (
        (
            [[[-0.1, 0.0, 0.05, 1.0], [0.02, -0.3, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]],
            [[[0.5, 0.6, 0.3, 0.8], [0.4, 0.1, -0.7, 0.9], [1.5, 0.2, 0.6, -0.4]]],
            _ragged([4, 2, 1], 4),
            0.9,
            0.5,
        ),
        (
            [[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [[0.1, 0.7, 0.0], [-0.2, -1.0, 0.0]]],
            [[[0.2, 0.7, 0.9], [0.2, 0.1, 0.3]], [[-0.5, 0.4, 3.0], [0.6, -0.8, 2.0]]],
            torch.cat([_ragged([3, 3], 3), _ragged([2, 2], 3)]),
            1.0,
            0.95,
        ),
    )
]
_PROB_CASES = [  # q below, at and above 4 · eps_low; a cap that is reached, and one that is not
    {"q": _double(probs), "eps_low": _double(low), "eps_high": _double(high), "max_ratio": _double(cap)}
    for probs, low, high, cap in (
        ([0.9, 0.01, 0.64, 0.3, 1.0, 0.002], 0.16, 0.2, 10.0),
        ([0.05, 0.97, 0.5], 0.1, 0.35, 3.0),
    )
]

_LENGTH_CASES = [  # one wrong way for every way to be off: below the ramp, on it, at both its ends and far beyond
    {"rewards": _double(rewards), "lengths": torch.tensor(lengths)}
    for rewards, lengths in (
        ([[1, 0, 1, 0, 1, 0], [1, 1, 0, 1, 0, 1]], [[3, 8, 12, 13, 14, 15], [11, 13, 16, 16, 17, 40]]),
        ([[0.5, 2.0, -1.0]], [[15, 18, 5]]),
    )
]


def pessimistic(student: Callable[..., Any]) -> Verdict:
    """Check (ratio, A, lower, upper) → the clipped objective of each token."""
    return judge(
        student,
        pessimistic_piece,
        _SURROGATE_CASES,
        known=mistakes.clipping.SURROGATE,
        by="ratio",
        praise="all four quadrants, in value and slope, at two widths and at one that never clips.",
    )


def clipped_weight(student: Callable[..., Any]) -> Verdict:
    """Check (ratio, A, lower, upper) → CISPO's objective of each token: the clipped ratio is a weight, frozen."""
    return judge(
        student,
        clipped_weight_piece,
        _SURROGATE_CASES,
        known=mistakes.family.CISPO_SURROGATE,
        by="ratio",
        praise="the objective and its slope, within the limits and beyond them: no token loses its gradient.",
    )


def importance_ratio(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask) → the ratio of each token, 1 on padding."""
    return judge(student, token_ratio, _LOGP_CASES, known=mistakes.ratios.TOKEN_RATIO, by="logp")


def sequence_importance_ratio(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask) → the geometric mean of each response's ratios, on every token of it."""
    return judge(student, sequence_ratio, _LOGP_CASES, known=mistakes.ratios.SEQUENCE_RATIO, by="logp")


def _sequence_objective(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    group = logp[None], old_logp[None], mask[None]
    return (sequence_ratio(*group) * A.unsqueeze(-1) * sequence_mean(group[-1])).sum()


def sequence_objective(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask [N, T], A [N]) → GSPO's objective without its clip, the mean of s · A: one number."""
    return judge(
        student,
        _sequence_objective,
        _RESPONSE_CASES,
        known=mistakes.gspo.SEQUENCE_OBJECTIVE,
        by="logp",
        praise="one ratio a response, in value and gradient, with responses of one to four tokens.",
    )


def group_advantage(student: Callable[..., Any]) -> Verdict:
    """Check rewards [P, G] → (R − mean) / (std + 1e-6) of the group."""
    return judge(student, GroupAdvantage(), _REWARD_CASES, known=mistakes.advantages.GROUP_ADVANTAGE, each="response")


def process_advantage(student: Callable[..., Any]) -> Verdict:
    """Check (rewards, step_ends) → GRPO's credit under process supervision; all [P, G, T], rewards 0 where no step ends."""
    return judge(
        student,
        ProcessAdvantage(),
        _STEP_CASES,
        known=mistakes.advantages.PROCESS_ADVANTAGE,
        praise="the credit of every token, in answers with one to four steps, and in a group whose steps all earned the same.",
    )


def mean_of_responses(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → GRPO's weight of each token."""
    return judge(student, sequence_mean, _MASK_CASES, known=mistakes.aggregation.SEQUENCE_MEAN)


def mean_of_tokens(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → DAPO's weight of each token."""
    return judge(student, token_mean, _MASK_CASES, known=mistakes.aggregation.TOKEN_MEAN)


def constant_weight(student: Callable[..., Any], max_length: int) -> Verdict:
    """Check mask [P, G, T] → Dr.GRPO's weight of each token, for this maximum length; it knows the mistakes for 16."""
    if not isinstance(max_length, int) or max_length < 1:
        return Verdict(False, "max_length of this check is a whole number of tokens, 1 or more, such as max_length=16.")
    return judge(
        student, Constant(max_length), _MASK_CASES, known=mistakes.aggregation.CONSTANT if max_length == 16 else ()
    )


def sum_of_responses(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → DCPO's weight of each token."""
    return judge(student, sequence_sum, _MASK_CASES, known=mistakes.aggregation.SEQUENCE_SUM)


def _own_token_weights(turn: Tensor) -> Tensor:
    return token_mean(turn % 2 == 0)  # of −1 the remainder is 1


def own_token_weights(student: Callable[..., Any]) -> Verdict:
    """Check turn [P, G, T] → the weight of each token in the mean over the policy's: even turns; odd: a tool's; −1: padding."""
    return judge(
        student,
        _own_token_weights,
        _TURN_CASES,
        known=mistakes.observations.OWN_TOKEN_WEIGHTS,
        praise="the weight of every token, with two calls, one and none, and where a response was cut off.",
    )


def kl_estimate_k1(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp) → k1."""
    return judge(student, k1, _KL_CASES, known=mistakes.kl.K1, by="logp")


def kl_estimate_k3(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp) → k3."""
    return judge(student, k3, _KL_CASES, known=mistakes.kl.K3, by="logp")


def entropy(student: Callable[..., Any]) -> Verdict:
    """Check log_probs [*n, V] → the entropy over the last axis, in nats: [*n].

    Gradients are compared through the logits, where every right way of writing it has the same one.
    """

    def of_logits(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda logits: function(torch.log_softmax(logits, -1))

    return judge(
        student,
        entropy_piece,
        _LOGITS_CASES,
        known=mistakes.entropy.ENTROPY,
        by="logits",
        each="distribution",
        through=of_logits,
    )


def _dpo_loss(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    both = (response_logp(x, mask).unbind(-1) for x in (logp, ref_logp))
    chosen, rejected = map(ImplicitReward(float(beta)), *both)
    return bradley_terry(chosen, rejected).mean()


def dpo_loss(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp, mask, beta) → DPO's loss, one number; logp, ref_logp, mask: [N, 2, T], the chosen one first."""
    return judge(
        student,
        _dpo_loss,
        _PAIR_CASES,
        known=mistakes.preferences.DPO_LOSS,
        by="logp",
        praise="the loss and its gradient, with responses of different lengths and at two betas.",
    )


def _gae_advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return GAE(gamma=float(gamma), lam=float(lam), whiten=False)(rewards, values, mask)[0]


def gae_advantages(student: Callable[..., Any]) -> Verdict:
    """Check (rewards, values, mask, gamma, lam) → the advantage of each token, not whitened, 0 on padding: [P, G, T]."""
    return judge(
        student,
        _gae_advantages,
        _CREDIT_CASES,
        known=mistakes.gae.GAE_ADVANTAGES,
        praise="the advantage of every token, with answers of one to four tokens, at two settings of gamma and lam.",
    )


def reward_model_loss(student: Callable[..., Any]) -> Verdict:
    """Check (chosen, rejected) → the Bradley–Terry loss of a batch, one number; both are scores of N responses, [N].

    First with scores near each other, where only the formula counts, then with scores far apart, where its rounding does.
    """
    right, known = (
        lambda chosen, rejected: bradley_terry(chosen, rejected).mean(),
        mistakes.reward_model.REWARD_MODEL_LOSS,
    )
    by = "chosen", "rejected"
    near = judge(student, right, _SCORE_CASES, known=known, by=by)
    if not near.passed:
        return near
    praise = "the loss and its gradient, also for a pair that is 900 points out of order."
    far = judge(student, right, [*_SCORE_CASES, _FAR_SCORES], known=known, by=by, praise=praise)
    if far.says.startswith("for chosen"):
        advice = "torch.nn.functional.logsigmoid stays exact."
        return Verdict(False, f"right for scores that are near each other, but {far.says} {advice}")
    return far


def soft_overlong_punishment(student: Callable[..., Any]) -> Verdict:
    """Check (rewards [P, G], lengths [P, G]) → rewards after DAPO's punishment from 12 to 16 tokens: max_length 16, cache 4."""
    return judge(
        student,
        SoftOverlongPunishment(max_length=16, cache=4),
        _LENGTH_CASES,
        known=mistakes.overlong.OVERLONG,
        each="response",
        praise="right for short responses, on the ramp, at max_length and far beyond, whatever they earned.",
    )


def _stacked(limits: Callable[..., Any]) -> Callable[..., Any]:
    """Return `limits` with both of its results in one tensor, [2, N], a number standing for every token."""

    def both(q: Tensor, *given: Tensor) -> Any:
        result = limits(q, *given)
        if result is None:
            return None
        if not (isinstance(result, tuple | list) and len(result) == 2 and all(isinstance(x, Tensor) for x in result)):
            raise Unusable("return two tensors, the lower limit and the upper one: return lower, upper.")
        for name, limit in zip(("lower", "upper"), result, strict=True):
            if limit.shape not in (q.shape, ()):
                raise Unusable(f"your {name} limit has shape {list(limit.shape)}; it has to be {list(q.shape)}, as q.")
        return torch.stack([limit.expand_as(q) for limit in result])

    return both


def _of_side(side: int) -> Callable[..., Any]:
    """Return what makes of limits one of them: side 0 the lower limit, 1 the upper one."""
    return lambda limits: lambda *given: _stacked(limits)(*given)[side]


def _dynamic_bounds(q: Tensor, eps_low: Tensor, eps_high: Tensor, max_ratio: Tensor) -> tuple[Tensor, Tensor]:
    return DynamicBounds(float(eps_low), float(eps_high), float(max_ratio))(q.log())


def dynamic_bounds(student: Callable[..., Any]) -> Verdict:
    """Check (q, eps_low, eps_high, max_ratio) → DCPO's limits (lower, upper) on the ratio of tokens of old probability q: [N]."""
    verdict = judge(
        student,
        _dynamic_bounds,
        _PROB_CASES,
        known=mistakes.bounds.DYNAMIC_BOUNDS,
        through=_stacked,
        praise="both limits, for rare and for likely tokens, at two settings of the widths and the cap.",
    )
    if not verdict.says.startswith("at ["):
        return verdict
    for side, name in enumerate(("lower", "upper")):  # say in words which limit, and of which probability
        alone = judge(student, _dynamic_bounds, _PROB_CASES, through=_of_side(side))
        if not alone.passed:
            says = alone.says.replace("as from 0 / 0", "as the root of a negative number is none")
            return Verdict(False, f"{name} limit, {says}")
    return verdict
