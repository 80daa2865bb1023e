"""Does a map carry over? Two of its cells by small transformers, five seeds each: `python -m rlviz.study.confirm`.

It goes on where it was: what the file has is not run again.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rlviz.parallel import LOCAL
from rlviz.study.difference import FEWEST, paired, standard_error
from rlviz.study.regime import MEASURES, MapSettings, PolicyRegime
from rlviz.study.runner import Running
from rlviz.training.files import append_line

if TYPE_CHECKING:
    from rlviz.algorithms import GroupPolicyGradient

FILE = Path(__file__).with_name("confirmed.csv")
SEEDS = 5
COLUMNS = ("map", "column", "row", "lr", "seed", "lr_mine", "lr_other", "mine", "other")
CARRIES, NOT, REVERSED, OPEN = "carries over", "does not carry over", "is reversed", "is open"


@dataclass(frozen=True)
class Trial:
    """One cell of a map on a transformer.

    sign: what the map's sentence predicts there: 1 or −1, its certain sign, or 0, no difference of interest
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

    @property
    def key(self) -> tuple[str, ...]:
        """What its rows of the file begin with."""
        return self.map, str(self.column), str(self.row), f"{self.regime.lr:g}"

    @property
    def cost(self) -> float:
        return self.settings.rollouts(self.regime)

    def run(self) -> Generator[dict[str, str], None, None]:
        """Yield a row of the file for each seed that it lacks.

        Tuned learning rates are those of the rows that it has; before the first one they are found by seeds of their own.
        """
        from rlviz.study.cells import best_rate, measures
        from rlviz.study.policies import train_policy

        both, measure, before = algorithms(self), measure_of(self), rows_of(self)
        if before:
            rates = [float(before[0]["lr_mine"]), float(before[0]["lr_other"])]
        elif self.settings.rates == "tuned":
            rates = [best_rate(each, self.regime, replace(self.settings, replicas=SEEDS)) for each in both]
        else:
            rates = [self.regime.lr, self.regime.lr]
        for seed in sorted(set(range(SEEDS)) - {int(row["seed"]) for row in before}):
            courses = [
                train_policy(each, replace(self.regime, lr=lr), self.settings, seed)
                for each, lr in zip(both, rates, strict=True)
            ]
            found = [f"{measures(course, self.settings.level)[measure][0]:.6g}" for course in courses]
            yield dict(zip(COLUMNS, (*self.key, str(seed), *(f"{lr:g}" for lr in rates), *found), strict=True))


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
    from rlviz.pieces.aggregation import token_mean
    from rlviz.study.maps import borrow

    plain = replace(GRPO, kl=None, aggregate=token_mean)
    lender = find_algorithm(trial.algorithm)
    assert isinstance(lender, GroupPolicyGradient)
    return borrow(lender, plain, [trial.slot]), plain


def rows_of(trial: Trial) -> list[dict[str, str]]:
    """Return what the file has of a trial, a row a seed."""
    return [row for row in _rows() if tuple(row.values())[:4] == trial.key]


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
    from rlviz.study.maps import read_map
    from rlviz.study.shipped import SHIPPED

    return str(read_map(SHIPPED[trial.map].file).plan["measure"])


def least(trial: Trial) -> float:
    """Return the difference of interest in what the trial's map measures."""
    return MEASURES[measure_of(trial)].least


def outcome(sign: int, found: Sequence[tuple[float, float]], least: float) -> str:
    """Return whether the seeds' pairs say what the map says, by the mean of their differences ± 2 standard errors.

    A sign carries over where theirs is certain and the same. "No difference of interest", sign 0, carries over where all of
    mean ± 2 standard errors lies within ± least, does not where all of it lies beyond, and is open else. Pairs of which one
    is NaN do not count; where fewer than three do, nothing is said.
    """
    gaps = [mine - other for mine, other in found if math.isfinite(mine - other)]
    if len(gaps) < FEWEST:
        return f"could not be measured ({len(gaps)} of {len(found)} seeds)"
    difference = paired(gaps)
    if sign:
        result = {sign: CARRIES, -sign: REVERSED, 0: NOT}[int(difference.sign)]
    else:
        result = CARRIES if difference.within(least) else NOT if difference.beyond(least) else OPEN
    some = f", {len(gaps)} of {len(found)} seeds" if len(gaps) < len(found) else ""
    return f"{result} ({difference.size:+.2g} ± {standard_error(gaps):.2g}{some})".replace("-", "−")


class Confirming(Running[Trial, dict[str, str]]):
    """What the file lacks of the trials, under way: each step is a row that it now has."""

    def __init__(self, *, jobs: int | None = 1, on: str = LOCAL) -> None:
        kept = {trial.key for trial in TRIALS if len(rows_of(trial)) == SEEDS}
        super().__init__(TRIALS, kept, jobs=jobs, on=on)

    def keep(self, key: tuple[str, ...], row: dict[str, str]) -> tuple[dict[str, str], bool]:
        append_line(FILE, ",".join(row.values()))
        return row, int(row["seed"]) == SEEDS - 1


def main() -> None:
    """Run what is missing of every trial, a seed after the other."""
    for row in Confirming():
        sys.stdout.write(f"{','.join(row.values())}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
