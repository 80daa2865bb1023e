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

BEHIND_A_SIGN = re.compile(r"(?:(?<=[·/+−] )|(?<=−))\{(\w+)\}")
PLACE = re.compile(r"\{(\w+)(!?)\}")
LIMITS = ("ratio", "lower", "upper")
FINE = (*LIMITS, "J", "objective", "slope")  # written with as many decimals as it takes to tell a ratio from its limits


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


def format_numbers(values: Mapping[str, float]) -> dict[str, str]:
    """Return a token's numbers as texts: ratio, limits and 1 read differently where they differ, by up to 6 decimals."""
    pairs = combinations([1.0, *(values[name] for name in LIMITS if name in values)], 2)
    apart = [(a, b) for a, b in pairs if abs(a - b) > 1e-6]
    decimals = next((d for d in range(3, 6) if all(f"{a:.{d}f}" != f"{b:.{d}f}" for a, b in apart)), 6)
    return {
        name: format_number(value, decimals if name.partition("_")[0] in FINE else 3) for name, value in values.items()
    }


def fill_template(template: str, numbers: Mapping[str, str]) -> str:
    """Return a template with numbers, as they are shown, in their places; those of other names stay."""

    def number(place: re.Match[str]) -> str:
        text = numbers.get(place[1], place[0])
        return f"({text})" if place[2] and text.startswith("−") else text

    return PLACE.sub(number, template)


class FormulaLine(Unicode):
    """Writes a formula in the names of the code; with known numbers as a template: they stand there, the others have places."""

    times = " · "

    def __init__(self, known: Mapping[str, float] | None = None) -> None:
        self.known = known

    def symbol(self, name: str) -> str:
        return f"{{{name}}}" if self.known is not None else "∞" if name == "inf" else name

    def called(self, node: Node) -> str:
        return f"{node.text}({', '.join(map(self.write, node.parts))})"

    def power(self, base: str, exponent: str) -> str:
        return super().power(re.sub(r"^\{(\w+)\}$", r"{\1!}", base), exponent)

    def line(self, formula: Node) -> str:
        """Return the formula behind its sign of equality."""
        known = {name: format_number(value) for name, value in (self.known or {}).items()}
        return "= " + fill_template(BEHIND_A_SIGN.sub(r"{\1!}", self.write(formula)), known)


def describe_gradient(
    algorithm: PolicyGradient | None, token: TokenRecord, kl_slope: float | None = None
) -> tuple[str, dict[str, float]]:
    """Return a template that says whether the token's gradient is cut and why, else what it is and where it goes; its numbers.

    kl_slope: ∂KL/∂log π of the penalty in the loss, where that is known.
    """
    if token.observed:
        return "It is not in the loss: the task's environment wrote it, and the policy only read it.", {}
    if not token.weight:
        return "It is not in the loss: its group was not selected, or its response was left out.", {}
    has_kl = algorithm is not None and algorithm.kl_in_loss
    upper, slope = math.inf if token.upper is None else token.upper, token.push / token.weight
    numbers = {"ratio": token.ratio, "lower": token.lower, "upper": upper, "weight": token.weight}
    numbers |= {"size": abs(token.push), "slope": slope, "slope_by_ratio": slope / token.ratio}
    push = f"it is pushed {'up' if token.push > 0 else 'down'} by {{size}}"
    if token.clipped:
        why = "the surrogate is flat at the ratio {ratio}"
        if token.advantage > 0 and token.ratio > upper:
            why = "the ratio {ratio} is above the upper limit {upper}"
        elif token.advantage < 0 and token.ratio < token.lower:
            why = "the ratio {ratio} is below the lower limit {lower}"
        others = f" {'The KL term' if has_kl else 'The rest of the loss'} still counts: {push}." if token.push else ""
        return f"Its gradient is cut: {why}, and A {'>' if token.advantage > 0 else '<'} 0.{others}", numbers
    if not token.push:
        return "Its advantage is 0, so it is not pushed." if not token.advantage else "It is not pushed.", numbers
    how = "by log π is "
    if has_kl and kl_slope is not None:
        how = "∂(J − KL)/∂log π = {slope_j} − {slope_kl!} = "
        numbers |= {"slope_j": slope + kl_slope, "slope_kl": kl_slope}
    elif algorithm is not None and not has_kl:
        how = "∂J/∂log π = ratio · ∂J/∂ratio = {ratio} · {slope_by_ratio!} = "
    return f"Its gradient {how}{{slope}}; times its weight {{weight}}, {push}.", numbers
