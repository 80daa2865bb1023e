"""Which algorithms a picture offers, which of their parameters it moves, how far those go, and what they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlviz.algorithms import ALGORITHMS, RELATIVES, Algorithm, numbers

OFFERED = (*ALGORITHMS, *RELATIVES)
FAMILY = tuple(algorithm.name for algorithm in ALGORITHMS)  # the others stand under "More"
# parameter of a piece → its slider: low, high, step
RANGES = {
    "eps_low": (0.01, 0.99, 0.01),
    "eps_high": (0.01, 1.0, 0.01),
    "max_ratio": (1.5, 20.0, 0.5),
    "gamma": (0.0, 1.0, 0.01),
    "lam": (0.0, 1.0, 0.01),
    "beta": (0.005, 1.0, 0.005),
    "cap": (0.5, 5.0, 0.1),
    "lowest": (0.0, 1.0, 0.05),
    "highest": (1.0, 10.0, 0.25),
    "delta": (0.05, 2.0, 0.05),
}
TINY = (1e-4, 0.05, 1e-4)  # for widths like GSPO's
# What a slider of this parameter is called, in every picture, panel and page.
LABELS = {
    "eps_low": "ε low",
    "eps_high": "ε high",
    "max_ratio": "largest ratio",
    "gamma": "γ",
    "lam": "λ",
    "beta": "β",
    "group_size": "group size G",
    "lr": "learning rate",
    "updates_per_rollout": "updates per rollout",
}
WIDTHS = ("eps_low", "eps_high", "max_ratio")  # of the bounds on a ratio


@dataclass(frozen=True)
class Algorithms:
    """Which algorithms a picture can show, and which of their parameters it moves."""

    fits: Callable[[Algorithm], bool]  # lets an algorithm in
    first: Algorithm  # the one to begin with
    parameters: Sequence[str] = ()  # names of `RANGES`
    needs: str = "what this picture shows"  # what those have that fit
    among: Sequence[Algorithm] = OFFERED  # what is offered, in order
    numbers: Callable[[Algorithm], Mapping[str, float]] = (
        numbers  # an algorithm's parameters that have a part in the picture
    )

    def members(self) -> dict[str, Algorithm]:
        """Return the algorithms that are offered, by name."""
        return {algorithm.name: algorithm for algorithm in self.among if self.fits(algorithm)}

    def slider_ranges(self, algorithm: Algorithm) -> dict[str, tuple[float, float, float, float]]:
        """Return the sliders that this algorithm has: parameter → (value, low, high, step)."""
        numbers = self.numbers(algorithm)
        return {
            name: (float(numbers[name]), *range_of(name, numbers[name])) for name in self.parameters if name in numbers
        }


def range_of(name: str, value: float) -> tuple[float, float, float]:
    """Return low, high and step of a parameter's slider, with the value in it."""
    low, high, step = TINY if name.startswith("eps") and value < RANGES[name][0] else RANGES[name]
    return min(low, value), max(high, value), step
