"""How a student's function is judged: by its values and gradients, against the right one and the known mistakes."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlviz.lessons.verdict import Verdict

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Result:
    """output: in float64. slopes: its gradient by some of the inputs. overwritten: the inputs that were changed in place."""

    output: Tensor
    slopes: Inputs
    overwritten: tuple[str, ...]


@dataclass(frozen=True)
class Mistake:
    """wrong: called like the piece that it stands for. says: to the person who made it. name: in words, if it has one."""

    wrong: Callable[..., Any]
    says: str
    name: str = ""


class Unusable(Exception):
    """A student's function that gives nothing that could be compared; the message says so to the student."""


class Unwritten(Unusable):
    """A function as the lesson has it, before anybody wrote a line."""


def run(function: Callable[..., Any], inputs: Inputs, by: Sequence[str]) -> Result:
    """Return the output, and its gradient by each input that `by` names; the output's elements weigh 1, 2, 3, …"""
    values = {name: value.clone() for name, value in inputs.items()}
    leaves = [values[name].requires_grad_() for name in by]
    output = function(*values.values())
    if output is None:
        raise Unwritten("your function returns None: write your lines, and return their result.")
    if not isinstance(output, Tensor):
        kind = type(output).__name__
        article = "an" if kind[0] in "aeiou" else "a"
        raise Unusable(f"your function returns {article} {kind}: return a torch tensor.")
    if output.is_complex():
        raise Unusable("your function returns complex numbers: return real ones.")
    gradients: Sequence[Tensor | None] = [None] * len(leaves)
    if leaves and output.requires_grad:
        weights = torch.arange(1.0, output.numel() + 1, dtype=output.dtype).view(output.shape)
        gradients = torch.autograd.grad((output * weights).sum(), leaves, allow_unused=True)
    filled = [torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(leaves, gradients, strict=True)]
    return Result(
        output.detach().cpu().to_dense().double(),
        dict(zip(by, filled, strict=True)),
        tuple(name for name, value in inputs.items() if not torch.equal(values[name], value)),
    )


_ADVICE = {  # what torch says → what helps
    "ambiguous": "a comparison of whole tensors has no single answer: use torch.minimum or torch.where, element by element; two "
    "conditions are joined as (a) & (b), brackets and all.",
    "numpy": "stay in torch: numpy breaks the chain of gradients.",
    "converted to": "float(), int() and .item() take one number, and this tensor holds several: use the tensor itself.",
    "must match the size": "two shapes do not fit: a sum or mean drops a dimension, which keepdim=True or x.unsqueeze(-1) gives "
    "back, of size 1.",
    "place operation": "you change a tensor in place whose gradient is asked for: make a new one, with torch.where or "
    "x.masked_fill(…).",
}


def refuse_function(error: Exception) -> Verdict:
    """Return the verdict on a student's function that raised an error, or gave nothing to compare."""
    if isinstance(error, Unusable):
        return Verdict(False, str(error), is_attempt=not isinstance(error, Unwritten))
    return Verdict(False, broke_off(error))


def broke_off(error: Exception) -> str:
    for words, advice in _ADVICE.items():
        if words in str(error):
            return f"your function broke off ({type(error).__name__}): {advice}"
    text = textwrap.shorten(str(error), 200, placeholder=" …")
    return f"your function broke off with {type(error).__name__}{f': {text}' if text else '.'}"


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True)


def matches(ours: Result, theirs: Result) -> bool:
    """Return True if outputs and slopes are equal."""
    pairs = [(ours.output, theirs.output), *((slope, theirs.slopes[name]) for name, slope in ours.slopes.items())]
    return all(_same(a, b) for a, b in pairs)


def _reproduces(wrong: Callable[..., Any], cases: Sequence[Inputs], by: Sequence[str], got: Sequence[Result]) -> bool:
    """Return True if a mistake gives these results; False where it cannot be called, as in a loss whose parts do not fit.

    Without `by` the values alone are compared. With it they come first, on one case: slopes take most of the time.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a mistake is warned of is none of the student's
        try:
            if by and not _same(run(wrong, cases[0], ()).output, got[0].output):
                return False
            runs = (run(wrong, case, by) for case in cases)
            return all(matches(ours, theirs) for ours, theirs in zip(runs, got, strict=True))
        except (ValueError, TypeError, RuntimeError):
            return False


def _first_difference(expected: Tensor, got: Tensor, inputs: Inputs) -> str:
    """Return a sentence: where two results first differ, the inputs there, and both numbers."""

    def in_words(value: Tensor) -> str:
        return f"{value.item():.3g}" if value.dim() == 0 else f"[{', '.join(f'{x:.3g}' for x in value.tolist())}]"

    place = tuple(int(i) for i in (~torch.isclose(expected, got, rtol=1e-5, atol=1e-7)).nonzero()[0])
    # Of an input as large as the result its value there, of one with a dimension more its row; another vector whole.
    near = {
        name: value[place] if value.shape[: len(place)] == expected.shape else value for name, value in inputs.items()
    }
    values = [f"{name} {in_words(value)}" for name, value in near.items() if value.dim() < 2]
    if "mask" in inputs:
        values.insert(0, f"lengths {inputs['mask'].sum(-1).tolist()}")
    where = f" for {', '.join(values)}" if values else ""
    at = f"at {list(place)}{where}" if place else where.strip()
    # Both numbers get as many digits as it takes to see that they differ.
    due, value = expected[place].item(), got[place].item()
    texts = [(f"{due:.{digits}g}", f"{value:.{digits}g}") for digits in range(4, 10)]
    right, wrong = next((pair for pair in texts if pair[0] != pair[1]), texts[-1])
    no_number = ": no number, as from 0 / 0 or ln(−1)" if math.isnan(value) else ""
    if not at:
        return f"expected {right}, got {wrong}{no_number}."
    return f"{at}: expected {right}, got {wrong}{no_number}."


def is_library(student: Callable[..., Any]) -> bool:
    """Return True for a function of ours, or a partial one of it."""
    student = student.func if isinstance(student, partial) else student
    return str(getattr(student, "__module__", "")).startswith("rlviz.")


def judge(
    student: Callable[..., Any],
    right: Callable[..., Any],
    cases: Sequence[Inputs],
    *,
    known: Sequence[Mistake] = (),
    further: Iterable[Mistake] = (),
    by: str | Sequence[str] = (),
    per: str = "token",
    adapter: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
    praise: str = "",
) -> Verdict:
    """Compare a function with the right one on all cases: values, and gradients by the input named `by`, or by several.

    A wrong one is compared with the known mistakes, then with the right one's negative, then with further mistakes, which are
    only made one after the other, then with the known ones' values alone; else the first number that differs is shown. `per`:
    what has one value of the result. `adapter` makes of any of these functions the one that is compared. A function of the
    library's own does not pass. Raises nothing.
    """
    if not callable(student):
        return Verdict(
            False, "give the check your function itself, its name without brackets behind it: check.…(my_function)."
        )
    by = (by,) if isinstance(by, str) else tuple(by)
    # Whatever goes wrong in a student's function becomes a sentence; what goes wrong in the right one is our error.
    expected = [run(adapter(right), case, by) for case in cases]
    try:
        got = [run(adapter(student), case, by) for case in cases]
    except Exception as error:
        return refuse_function(error)
    # Shapes come first: values of another shape would differ everywhere, which says nothing.
    for ours, theirs in zip(expected, got, strict=True):
        due, shape = list(ours.output.shape), list(theirs.output.shape)
        if shape != due:
            advice = "" if shape else f" One value for each {per}: do not average or add over them."
            if len(shape) == len(due):
                advice = " Is a sum or mean over the wrong dimension?"
            advice = advice if due else " One number for the whole batch: take the mean."
            return Verdict(False, f"your result has shape {shape}; it has to be {due}.{advice}")
    if all(matches(ours, theirs) for ours, theirs in zip(expected, got, strict=True)):
        if is_library(student):
            name = getattr(right, "__name__", type(right).__name__)
            return Verdict(False, f"{name} is the library's own, and here to compare with: write yours.")
        praise = praise or f"it agrees with the library on every case, in {'value and gradient' if by else 'value'}."
        for name in got[0].overwritten[:1]:
            praise += (
                f" But it overwrites its input {name}, which the caller still needs: work on a copy, {name}.clone()."
            )
        return Verdict(True, praise)
    # A known mistake before the sign, since some of them only turn it; pairs of mistakes last, since there are many.
    for mistake in known:
        if _reproduces(adapter(mistake.wrong), cases, by, got):
            return Verdict(False, mistake.says, mistake.name)
    if all(_same(ours.output, -theirs.output) for ours, theirs in zip(expected, got, strict=True)):
        return Verdict(False, "the sign is wrong: everything is the negative of what it should be.")
    for mistake in further:
        if _reproduces(adapter(mistake.wrong), cases, by, got):
            return Verdict(False, mistake.says, mistake.name)
    # Nobody foresaw it: the first number that differs, or the gradient where all values are right.
    for ours, theirs, case in zip(expected, got, cases, strict=True):
        if not _same(ours.output, theirs.output):
            for mistake in known:
                if _reproduces(adapter(mistake.wrong), cases, (), got):
                    return Verdict(
                        False,
                        f"{mistake.says} And its gradient is not even that of these values: is something detached, or "
                        "rounded?",
                        mistake.name,
                    )
            return Verdict(False, _first_difference(ours.output, theirs.output, case))
    differs = next(
        name
        for ours, theirs in zip(expected, got, strict=True)
        for name in by
        if not _same(ours.slopes[name], theirs.slopes[name])
    )
    return Verdict(
        False, f"the values are right, but the gradient by {differs} is not: is something detached, or rounded?"
    )
