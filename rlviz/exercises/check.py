"""Checks for the exercises: each takes the student's function, and says what is wrong with it rather than that it is.

    check.pessimistic(my_objective)

A check never raises for a wrong answer: it returns a Verdict, which shows itself in a notebook. `passed` says the rest.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlviz.exercises import mistakes
from rlviz.exercises.mistakes import Mistake
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean
from rlviz.pieces.kl import k1, k3
from rlviz.pieces.preference import ImplicitReward, bradley_terry, response_logp
from rlviz.pieces.ratios import sequence_ratio, token_ratio
from rlviz.pieces.surrogate import pessimistic as pessimistic_piece
from rlviz.pieces.values import entropy as entropy_piece

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Verdict:
    """passed, and in a sentence what is right or wrong."""

    passed: bool
    says: str

    def __repr__(self) -> str:
        return f"{'Right' if self.passed else 'Not yet'}: {self.says}"

    def _repr_html_(self) -> str:
        colour = "#00664a" if self.passed else "#9c3f00"
        word = "Right" if self.passed else "Not yet"
        return (
            f'<div role="status" style="border-left: 5px solid {colour}; padding: 4px 12px; font-size: 15px">'
            f"<b>{word}:</b> {html.escape(self.says)}</div>"
        )


class _Unusable(Exception):
    """A student's function that gives nothing that could be compared."""


def _run(function: Callable[..., Any], inputs: Inputs, by: str | None) -> tuple[Tensor, Tensor | None]:
    """Return the output, and its gradient by the input named `by`; the output's elements weigh 1, 2, 3, …"""
    values = {name: value.clone() for name, value in inputs.items()}
    if by is not None:
        values[by].requires_grad_()
    output = function(*values.values())
    if output is None:
        raise _Unusable("your function returns None: write your lines, and return their result.")
    if not isinstance(output, Tensor):
        raise _Unusable(
            f"your function returns a {type(output).__name__}: return a torch tensor{_HINTS.get(type(output).__name__, '')}."
        )
    gradient = None
    if by is not None and output.requires_grad:
        weights = torch.arange(1.0, output.numel() + 1, dtype=output.dtype).view(output.shape)
        (gradient,) = torch.autograd.grad((output * weights).sum(), values[by], allow_unused=True)
    if gradient is None and by is not None:
        gradient = torch.zeros_like(values[by])
    return output.detach().double(), gradient


_HINTS = {"min": ", such as the .values of this minimum", "max": ", such as the .values of this maximum"}
_ADVICE = (  # what torch says → what helps
    (
        "ambiguous",
        "a comparison of whole tensors has no single answer: use torch.minimum or torch.where, element by element.",
    ),
    ("numpy", "stay in torch: numpy breaks the chain of gradients."),
)


def _broke_off(error: Exception) -> str:
    for words, advice in _ADVICE:
        if words in str(error):
            return f"your function broke off ({type(error).__name__}): {advice}"
    return f"your function broke off with {type(error).__name__}: {error}"


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True)


def _matches(ours: tuple[Tensor, Tensor | None], theirs: tuple[Tensor, Tensor | None]) -> bool:
    return _same(ours[0], theirs[0]) and (ours[1] is None or theirs[1] is None or _same(ours[1], theirs[1]))


def _first_difference(expected: Tensor, got: Tensor, inputs: Inputs) -> str:
    place = tuple(int(i) for i in (~torch.isclose(expected, got, rtol=1e-5, atol=1e-7)).nonzero()[0])
    given = ", ".join(
        f"{name} {value[place].item():.3g}" for name, value in inputs.items() if value.shape == expected.shape
    )
    if "mask" in inputs:
        given = f"lengths {inputs['mask'].sum(-1).tolist()}, {given}"
    where = f" for {given}" if given else ""
    at = f"at {list(place)}{where}" if place else where.strip()
    return f"{at}: expected {expected[place].item():.4g}, got {got[place].item():.4g}."


def judge(
    student: Callable[..., Any],
    right: Callable[..., Any],
    cases: Sequence[Inputs],
    *,
    known: Sequence[Mistake] = (),
    by: str | None = None,
    praise: str = "",
) -> Verdict:
    """Compare a function with the right one on all cases: values, and gradients by the input named `by`.

    A wrong one is compared with the known mistakes, then with the right one's negative; else the first number that
    differs is shown. Raises nothing.
    """
    expected = [_run(right, case, by) for case in cases]
    try:
        got = [_run(student, case, by) for case in cases]
    except _Unusable as error:
        return Verdict(False, str(error))
    except Exception as error:
        return Verdict(False, _broke_off(error))
    for ours, (output, _) in zip(expected, got, strict=True):
        if output.shape != ours[0].shape:
            advice = " One value for each token: do not average." if output.dim() == 0 else ""
            advice = " One number for the whole batch: take the mean." if ours[0].dim() == 0 else advice
            return Verdict(
                False, f"your result has shape {list(output.shape)}; it has to be {list(ours[0].shape)}.{advice}"
            )
    if all(_matches(ours, theirs) for ours, theirs in zip(expected, got, strict=True)):
        what = "value" if by is None else "value and gradient"
        return Verdict(True, praise or f"it agrees with the library on every case, in {what}.")
    for mistake in known:
        wrong = [_run(mistake.wrong, case, by) for case in cases]
        if all(_matches(ours, theirs) for ours, theirs in zip(wrong, got, strict=True)):
            return Verdict(False, mistake.says)
    if all(_same(ours[0], -theirs[0]) for ours, theirs in zip(expected, got, strict=True)):
        return Verdict(False, "the sign is wrong: everything is the negative of what it should be.")
    for (value, _), (output, _), case in zip(expected, got, cases, strict=True):
        if not _same(value, output):
            return Verdict(False, _first_difference(value, output, case))
    return Verdict(False, f"the values are right, but the gradient by {by} is not: is something detached, or rounded?")


def _double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.double)


def _ragged(lengths: Sequence[int], width: int) -> Tensor:
    return torch.tensor([[[t < length for t in range(width)] for length in lengths]])


_RATIOS = _double([0.5, 0.9, 1.1, 1.5, 0.5, 0.9, 1.1, 1.5, 1.5, 5.0])
_SIGNS = _double([2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, 0.5, -2.0])
_SURROGATE_CASES = [  # two widths, and one that never clips: a wrong width cannot pass, nor a wrong branch hide
    {
        "ratio": _RATIOS,
        "A": _SIGNS,
        "lower": torch.full_like(_RATIOS, 1 - low),
        "upper": torch.full_like(_RATIOS, 1 + high),
    }
    for low, high in ((0.2, 0.2), (0.2, 0.28), (0.9, 9.0))
]
_LOGP_CASES = [
    {
        "logp": _double([[[0.6, 0.1, 0.3], [0.9, 0.4, 0.7]]]).log(),
        "old_logp": _double([[[0.5, 0.4, 0.3], [0.3, 0.8, 0.2]]]).log(),
        "mask": _ragged([3, 1], 3),
    }
]
_MASK_CASES = [
    {"mask": _ragged([1, 4, 0, 2], 5)},
    {"mask": torch.cat([_ragged([2, 0, 0], 3), _ragged([3, 1, 2], 3)])},
    {"mask": _ragged([3, 3], 3)},
]
_REWARD_CASES = [
    {"rewards": _double([[1, 0, 0, 0], [1, 1, 0, 1]])},
    {"rewards": _double([[0.1, 0.1, 0.1]])},
    {"rewards": _double([[5, 6, 8], [2, 2, 2], [0, 1, 9]])},
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


def pessimistic(student: Callable[..., Any]) -> Verdict:
    """Check (ratio, A, lower, upper) → the clipped objective of each token."""
    return judge(
        student,
        pessimistic_piece,
        _SURROGATE_CASES,
        known=mistakes.SURROGATE,
        by="ratio",
        praise="all four quadrants, in value and slope, at two widths and at one that never clips.",
    )


def importance_ratio(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask) → the ratio of each token, 1 on padding."""
    return judge(student, token_ratio, _LOGP_CASES, known=mistakes.TOKEN_RATIO, by="logp")


def sequence_importance_ratio(student: Callable[..., Any]) -> Verdict:
    """Check (logp, old_logp, mask) → the geometric mean of each response's ratios, on every token of it."""
    return judge(student, sequence_ratio, _LOGP_CASES, known=mistakes.SEQUENCE_RATIO, by="logp")


def group_advantage(student: Callable[..., Any]) -> Verdict:
    """Check rewards [P, G] → (R − mean) / (std + 1e-6) of the group."""
    return judge(student, GroupAdvantage(), _REWARD_CASES, known=mistakes.GROUP_ADVANTAGE)


def mean_of_responses(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → GRPO's weight of each token."""
    return judge(student, sequence_mean, _MASK_CASES, known=mistakes.SEQUENCE_MEAN)


def mean_of_tokens(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → DAPO's weight of each token."""
    return judge(student, token_mean, _MASK_CASES, known=mistakes.TOKEN_MEAN)


def constant_weight(student: Callable[..., Any], max_length: int) -> Verdict:
    """Check mask [P, G, T] → Dr.GRPO's weight of each token, for this maximum length; it knows the mistakes for 16."""
    return judge(student, Constant(max_length), _MASK_CASES, known=mistakes.CONSTANT if max_length == 16 else ())


def sum_of_responses(student: Callable[..., Any]) -> Verdict:
    """Check mask [P, G, T] → DCPO's weight of each token."""
    return judge(student, sequence_sum, _MASK_CASES, known=mistakes.SEQUENCE_SUM)


def kl_estimate_k1(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp) → k1."""
    return judge(student, k1, _KL_CASES, known=mistakes.K1, by="logp")


def kl_estimate_k3(student: Callable[..., Any]) -> Verdict:
    """Check (logp, ref_logp) → k3."""
    return judge(student, k3, _KL_CASES, known=mistakes.K3, by="logp")


def entropy(student: Callable[..., Any]) -> Verdict:
    """Check log_probs [*n, V] → the entropy over the last axis, in nats: [*n].

    Gradients are compared through the logits, where every right way of writing it has the same one.
    """

    def of_logits(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda logits: function(torch.log_softmax(logits, -1))

    known = [replace(mistake, wrong=of_logits(mistake.wrong)) for mistake in mistakes.ENTROPY]
    return judge(of_logits(student), of_logits(entropy_piece), _LOGITS_CASES, known=known, by="logits")


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
        known=mistakes.DPO_LOSS,
        by="logp",
        praise="the loss and its gradient, with responses of different lengths and at two betas.",
    )
