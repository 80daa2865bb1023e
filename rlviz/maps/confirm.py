"""Does a map carry over? Two of its cells by small transformers, five seeds each: `python -m rlviz.maps.confirm`.

It goes on where it was: what the file has is not run again.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rlviz.maps.regime import MEASURES, MapSettings, PolicyRegime

if TYPE_CHECKING:
    from rlviz.algorithms import GroupPolicyGradient

FILE = Path(__file__).with_name("confirmed.csv")
SEEDS = 5
COLUMNS = ("map", "column", "row", "lr", "seed", "lr_mine", "lr_other", "mine", "other")
CARRIES, NOT, REVERSED, OPEN = "carries over", "does not carry over", "is reversed", "is open"


@dataclass(frozen=True)
class Trial:
    """One cell of a map on a transformer.

    sign: what the map's sentence predicts there: 1 or −1, its certain sign, or 0, no difference that is worth speaking of
    (`Words.least`). slot: what the first algorithm differs in, of `algorithm`. settings: of each run, but for its replicas.
    """

    map: str
    column: int
    row: int
    sign: int
    algorithm: str
    slot: str
    regime: PolicyRegime
    settings: MapSettings


def _limits(row: int, sign: int, groups: int, lr: float, steps: int, level: float) -> Trial:
    regime = PolicyRegime("trip", "trip", updates_per_rollout=16, groups=groups, lr=lr)
    return Trial("dcpo-limits", 5, row, sign, "dcpo", "bounds", regime, MapSettings(steps=steps, level=level))


def _repeats(row: int, sign: int, group_size: int, steps: int) -> Trial:
    regime = PolicyRegime("chain", "chain", updates_per_rollout=1, groups=16, group_size=group_size, lr=3e-4)
    return Trial("dupo-repeats", 4, row, sign, "dupo", "select", regime, MapSettings(steps=steps, level=0.7))


def _whole(row: int, sign: int, updates: int, lr: float) -> Trial:
    regime = PolicyRegime("chain", "chain", updates_per_rollout=updates, lr=lr)
    return Trial("gspo-ratio", 6, row, sign, "gspo", "ratio", regime, MapSettings(steps=40))


def _higher(row: int, noise: float) -> Trial:
    regime = PolicyRegime("trip", "trip", updates_per_rollout=8, groups=32, noise=noise, lr=1e-4)
    return Trial("clip-higher-noise", 4, row, 0, "dapo", "bounds", regime, MapSettings(steps=30, level=0.5))


def _undivided(map: str, column: int, row: int, sign: int, policy: str, task: str) -> Trial:
    regime = PolicyRegime(policy, task, updates_per_rollout=1, groups=32, lr=3e-4)
    settings = MapSettings(steps=40, rates="tuned" if map == "std-division-tuned" else "same")
    return Trial(map, column, row, sign, "dr-grpo", "advantage", regime, settings)


TRIALS = (
    _limits(1, 1, groups=8, lr=1e-4, steps=60, level=0.5),
    _limits(1, 1, groups=8, lr=5e-5, steps=50, level=0.45),
    _limits(5, -1, groups=32, lr=1e-4, steps=40, level=0.7),
    _repeats(1, -1, group_size=2, steps=150),
    _repeats(5, 0, group_size=32, steps=80),
    _whole(2, 0, updates=2, lr=3e-4),
    _whole(5, 1, updates=16, lr=3e-4),
    _whole(5, 1, updates=16, lr=1e-4),
    _higher(1, noise=0.0),
    _higher(3, noise=0.4),
    _undivided("std-division", 1, 2, -1, "chain-rare", "chain"),
    _undivided("std-division", 4, 4, -1, "sort", "sort"),
    _undivided("std-division-tuned", 1, 2, 0, "chain-rare", "chain"),
    _undivided("std-division-tuned", 4, 4, 0, "sort", "sort"),
)


def algorithms(trial: Trial) -> tuple[GroupPolicyGradient, GroupPolicyGradient]:
    """Return GRPO with the trial's slot, and GRPO; both by the token mean, as on a table."""
    from rlviz.algorithms import GRPO, GroupPolicyGradient, find_algorithm
    from rlviz.maps.making import borrow
    from rlviz.pieces.aggregation import token_mean

    plain = replace(GRPO, kl=None, aggregate=token_mean)
    lender = find_algorithm(trial.algorithm)
    assert isinstance(lender, GroupPolicyGradient)
    return borrow(lender, plain, [trial.slot]), plain


def run(trial: Trial) -> Iterator[dict[str, str]]:
    """Yield a row of the file for each seed that it lacks.

    Tuned learning rates are those of the rows that it has; before the first one they are found by seeds of their own.
    """
    from rlviz.maps.cells import best_rate
    from rlviz.maps.measures import measures
    from rlviz.maps.policies import train_policy

    both, measure, before = algorithms(trial), measure_of(trial), rows_of(trial)
    if before:
        rates = [float(before[0]["lr_mine"]), float(before[0]["lr_other"])]
    elif trial.settings.rates == "tuned":
        rates = [best_rate(each, trial.regime, replace(trial.settings, replicas=SEEDS)) for each in both]
    else:
        rates = [trial.regime.lr, trial.regime.lr]
    for seed in sorted(set(range(SEEDS)) - {int(row["seed"]) for row in before}):
        courses = [
            train_policy(each, replace(trial.regime, lr=lr), trial.settings, seed)
            for each, lr in zip(both, rates, strict=True)
        ]
        found = [f"{measures(course, trial.settings.level)[measure][0]:.6g}" for course in courses]
        yield dict(zip(COLUMNS, (*_key(trial), str(seed), *(f"{lr:g}" for lr in rates), *found), strict=True))


def _key(trial: Trial) -> tuple[str, ...]:
    return trial.map, str(trial.column), str(trial.row), f"{trial.regime.lr:g}"


def rows_of(trial: Trial) -> list[dict[str, str]]:
    """Return what the file has of a trial, a row a seed."""
    return [row for row in _rows() if tuple(row.values())[:4] == _key(trial)]


def pairs(trial: Trial) -> list[tuple[float, float]]:
    """Return what the file has of a trial: the algorithm's value and GRPO's, a pair a seed."""
    return [(float(row["mine"]), float(row["other"])) for row in rows_of(trial)]


@cache
def _rows() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def carried(name: str) -> str:
    """Return in a sentence what became of a map's cells on transformers, by the rule of `outcome`, from the file beside this."""
    trials = [trial for trial in TRIALS if trial.map == name]
    places = [(trial.column, trial.row) for trial in trials]
    parts = []
    for trial, place in zip(trials, places, strict=True):
        rate = f" at learning rate {trial.regime.lr:g}" if places.count(place) > 1 else ""
        parts.append(f"cell {place}{rate} {outcome(trial.sign, pairs(trial), least(trial))}")
    return f"On small transformers, {SEEDS} seeds: {'; '.join(parts)}."


def measure_of(trial: Trial) -> str:
    """Return what the trial's map was made for."""
    from rlviz.maps.shipped import SHIPPED
    from rlviz.maps.stored import read_map

    return str(read_map(SHIPPED[trial.map].file).plan["measure"])


def least(trial: Trial) -> float:
    """Return the difference that is worth speaking of in what the trial's map measures."""
    return MEASURES[measure_of(trial)].least


def outcome(sign: int, found: Sequence[tuple[float, float]], least: float) -> str:
    """Return whether the seeds' pairs say what the map says, by the mean of their differences ± 2 standard errors.

    A sign carries over where theirs is certain and the same. "Nothing worth speaking of", sign 0, carries over where all of
    mean ± 2 standard errors lies within ± least, does not where all of it lies beyond, and is open else. Pairs of which one
    is NaN do not count; where fewer than three do, nothing is said.
    """
    gaps = [mine - other for mine, other in found if math.isfinite(mine - other)]
    if len(gaps) < 3:
        return f"could not be measured ({len(gaps)} of {len(found)} seeds)"
    mean, error = statistics.fmean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps))
    seen = 0 if abs(mean) <= 2 * error else int(math.copysign(1, mean))
    if sign:
        result = CARRIES if seen == sign else REVERSED if seen == -sign else NOT
    else:
        result = CARRIES if abs(mean) + 2 * error < least else NOT if abs(mean) - 2 * error > least else OPEN
    some = f", {len(gaps)} of {len(found)} seeds" if len(gaps) < len(found) else ""
    return f"{result} ({mean:+.2g} ± {error:.2g}{some})".replace("-", "−")


def main() -> None:
    """Run what is missing of every trial, a seed after the other."""
    from rlviz.training.files import append_line

    for trial in TRIALS:
        for row in run(trial):
            line = ",".join(row.values())
            append_line(FILE, line)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
