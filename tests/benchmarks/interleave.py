"""Timing on a noisy machine: contenders take turns in one process, and only ratios of neighbours in time are believed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

Times = Mapping[str, list[float]]


def interleave(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 3
) -> dict[str, list[float]]:
    """Call every contender once a round (A B A B …) and return its milliseconds in each round, warm-up left out."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(warm_up + rounds):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            elapsed = time.perf_counter() - start
            if index >= warm_up:
                times[name].append(1e3 * elapsed)
    return times


def table(times: Times, ratios: Mapping[str, tuple[str, str]]) -> str:
    """Return a line a contender: its name, median ms and, where `ratios` names two, how often the second fits the first.

    A ratio is the median over rounds of the two times of one round, with the quartiles of the same behind it.
    """
    width = max(map(len, times))
    lines = []
    for name, values in times.items():
        line = f"  {name:{width}s} {np.median(values):9.2f}"
        if name in ratios:
            over, under = ratios[name]
            low, middle, high = np.percentile(np.divide(times[over], times[under]), (25, 50, 75))
            line += f"   {middle:6.2f}  ({low:.2f} … {high:.2f})"
        lines.append(line)
    return "\n".join(["  " + f"{'':{width}s} median ms    ratio  (quartiles)", *lines])
