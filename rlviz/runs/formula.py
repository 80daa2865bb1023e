"""A piece's formula with a token's numbers in it; and what the loss does to a token, in a sentence.

No formula is repeated here: a piece's own is read, and filled in. A text with places for numbers, such as
"{ratio} · {advantages!}", is a template; behind "!" a negative number stands in brackets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import combinations

from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.notation import Unicode
from rlviz.pieces.formula import Node
from rlviz.types import TokenRecord

NEGATIVE = re.compile(r"(?:(?<=[·/+−] )|(?<=−))−[^\s,()]+")  # a number behind a sign
BEHIND_A_SIGN = re.compile(r"(?:(?<=[·/+−] )|(?<=−))\{(\w+)\}")
PLACE = re.compile(r"\{(\w+)(!?)\}")
SAME = 1e-5  # records are float32


@lru_cache(maxsize=4096)  # of a long response most rewards, limits and weights are the same
def format_number(value: float, decimals: int = 3) -> str:
    """Return a number as one reads it: 1.310, −0.0312, 1.2e−05, 10, ∞, not a number."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == round(value):
        decimals, value = 0, value + 0.0  # −0.0 is 0
    text = f"{value:.{decimals}f}" if abs(value) >= 0.0995 or not decimals else f"{value:.3g}"
    return text.replace("-", "−")


@lru_cache(maxsize=4)  # the terms of a token ask several times
def decimals_for(token: TokenRecord) -> int:
    """Return with how many decimals, from 3 to 6, the token's ratio, its limits and 1 read differently where they differ."""
    limits = [token.lower] if token.upper is None else [token.lower, token.upper]
    pairs = [(a, b) for a, b in combinations([1.0, token.ratio, *limits], 2) if abs(a - b) > 1e-6]
    return next((d for d in range(3, 6) if all(f"{a:.{d}f}" != f"{b:.{d}f}" for a, b in pairs)), 6)


def fill_template(template: str, numbers: Mapping[str, str]) -> str:
    """Return a template with numbers, as they are shown, in its places."""

    def number(place: re.Match[str]) -> str:
        text = numbers[place[1]]
        return f"({text})" if place[2] and text.startswith("−") else text

    return PLACE.sub(number, template)


class InNames(Unicode):
    """Writes a formula in the names of the code."""

    times = " · "

    def symbol(self, name: str) -> str:
        return "∞" if name == "inf" else name

    def called(self, node: Node) -> str:
        return f"{node.text}({', '.join(map(self.write, node.parts))})"


class WithPlaces(InNames):
    """Writes a formula as a template; numbers that are known stand in it."""

    def __init__(self, known: Mapping[str, float]) -> None:
        self.known = known

    def symbol(self, name: str) -> str:
        return format_number(self.known[name]) if name in self.known else f"{{{name}}}"

    def power(self, base: str, exponent: str) -> str:
        base = f"({base})" if base.startswith("−") else re.sub(r"^\{(\w+)\}$", r"{\1!}", base)
        return super().power(base, exponent)


def formula_template(formula: Node, known: Mapping[str, float]) -> str:
    """Return a formula with places for the numbers of its names; those that are known stand there."""
    text = NEGATIVE.sub(lambda number: f"({number[0]})", WithPlaces(known).write(formula))
    return BEHIND_A_SIGN.sub(r"{\1!}", text)


def describe_gradient(
    algorithm: PolicyGradient | None, token: TokenRecord, kl_slope: float | None = None
) -> tuple[str, dict[str, str]]:
    """Return a template that says whether the token's gradient is cut and why, else what it is and where it goes; its numbers.

    kl_slope: ∂KL/∂log π of the penalty in the loss, where that is known.
    """
    if token.observed:
        return "It is not in the loss: the task's environment wrote it, and the policy only read it.", {}
    if not token.weight:
        return "It is not in the loss: its group was not selected, or its response was left out.", {}
    has_kl = algorithm is not None and algorithm.kl_in_loss
    decimals = decimals_for(token)
    numbers = {
        "size": format_number(abs(token.push)),
        "ratio": format_number(token.ratio, decimals),
        "lower": format_number(token.lower, decimals),
        "upper": "∞" if token.upper is None else format_number(token.upper, decimals),
        "weight": format_number(token.weight),
    }
    push = f"it is pushed {'up' if token.push > 0 else 'down'} by {{size}}"
    if token.clipped:
        sign = "A > 0" if token.advantage > 0 else "A < 0"
        why = f"the surrogate is flat at the ratio {{ratio}} where {sign}"
        if token.advantage > 0 and token.upper is not None and token.ratio > token.upper:
            why = f"the ratio {{ratio}} is above the upper limit {{upper}} and {sign}"
        elif token.advantage < 0 and token.ratio < token.lower:
            why = f"the ratio {{ratio}} is below the lower limit {{lower}} and {sign}"
        others = "The KL term" if has_kl else "The rest of the loss"
        return f"Its gradient is cut: {why}." + (f" {others} still counts: {push}." if token.push else ""), numbers
    if not token.push:
        return "Its advantage is 0, so it is not pushed." if not token.advantage else "It is not pushed.", numbers
    if has_kl and not token.advantage:
        return f"A is 0: the KL term alone moves it, {push}.", numbers
    slope = token.push / token.weight
    numbers["slope"] = format_number(slope, decimals)
    how = "by log π is "
    if has_kl:
        how = "∂(J − KL)/∂log π, the slope and not the value, is "
        if kl_slope is not None:
            how += "{slope_j} − {slope_kl!} = "
            numbers |= {
                "slope_j": format_number(slope + kl_slope, decimals),
                "slope_kl": format_number(kl_slope, decimals),
            }
    elif algorithm is not None:
        how = "∂J/∂log π = ratio · ∂J/∂ratio = {ratio} · {slope_by_ratio!} = "
        numbers["slope_by_ratio"] = format_number(slope / token.ratio, decimals)
    return f"Its gradient {how}{{slope}}; times its weight {{weight}}, {push}.", numbers
