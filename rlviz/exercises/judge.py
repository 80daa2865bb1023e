"""How a student's function is judged: by its values and gradients, against the right one and the known mistakes."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlviz.exercises.mistakes import Mistake

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


def _in_words(value: Tensor) -> str:
    return f"{value.item():.3g}" if value.dim() == 0 else f"[{', '.join(f'{x:.3g}' for x in value.tolist())}]"


def _first_difference(expected: Tensor, got: Tensor, inputs: Inputs) -> str:
    place = tuple(int(i) for i in (~torch.isclose(expected, got, rtol=1e-5, atol=1e-7)).nonzero()[0])
    given = ", ".join(
        f"{name} {_in_words(value if value.dim() == 0 else value[place])}"
        for name, value in inputs.items()
        if value.shape in (expected.shape, ()) or (not place and value.dim() == 1)
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
