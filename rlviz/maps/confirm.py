"""Does a map carry over? Two of its cells by small transformers, five seeds each: `python -m rlviz.maps.confirm`."""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("confirmed.csv")
SEEDS = 5
CARRIES, NOT, REVERSED = "carries over", "does not carry over", "is reversed"


@dataclass(frozen=True)
class Trial:
    """One cell of a map on a transformer. sign: the map's there. rollouts: at most, until held-out accuracy `level`.

    slot: what the first algorithm differs in, of `algorithm`. settings: of `TrainSettings`, all else by default.
    """

    map: str
    column: int
    row: int
    sign: int
    algorithm: str
    slot: str
    task: str
    measure: str
    level: float
    rollouts: int
    settings: Mapping[str, Any]


_LIMITS = ("dcpo", "bounds", "trip", "entropy")
_REPEATED = ("dupo", "select", "chain", "rollouts", 0.7)
TRIALS = (
    Trial("dcpo-limits", 5, 1, 1, *_LIMITS, 0.5, 60, {"num_prompts": 8, "updates_per_rollout": 16, "lr": 1e-4}),
    Trial("dcpo-limits", 5, 5, -1, *_LIMITS, 0.7, 40, {"num_prompts": 32, "updates_per_rollout": 16, "lr": 1e-4}),
    Trial("dupo-repeats", 4, 1, -1, *_REPEATED, 150, {"num_prompts": 16, "group_size": 2}),
    Trial("dupo-repeats", 4, 5, 0, *_REPEATED, 80, {"num_prompts": 16, "group_size": 32}),
)


def values(trial: Trial, seed: int) -> tuple[float, float]:
    """Return the measure of the algorithm with the slot, and of GRPO, from one policy and seed.

    Rollouts to the level of held-out accuracy (500 prompts, after every other rollout), or the entropy at it, on the line between
    two evaluations; all of the rollouts, or NaN, where a run does not reach it.
    """
    from rlviz.algorithms import GRPO, GroupPolicyGradient, find_algorithm
    from rlviz.maps.making import borrow
    from rlviz.pieces.aggregation import token_mean
    from rlviz.training import TrainSettings, find_task, train
    from small_models.evaluation import evaluate
    from small_models.policies import load_policy

    plain = replace(GRPO, kl=None, aggregate=token_mean)
    task, found = find_task(trial.task), []
    given = {"evaluate_every": 0, "details_every": 0, "lr_warmup_steps": 0, **trial.settings}
    settings = TrainSettings(steps=trial.rollouts, seed=seed, **given)
    lender = find_algorithm(trial.algorithm)
    assert isinstance(lender, GroupPolicyGradient)
    for algorithm in (borrow(lender, plain, [trial.slot]), plain):
        policy = load_policy(trial.task, device="cpu")
        reached = {"rollouts": float(trial.rollouts), "entropy": math.nan}
        before = evaluate(policy, task, num_prompts=500)
        for record in train(policy, task, algorithm, settings):
            if record.step % 2:
                continue
            seen = evaluate(policy, task, num_prompts=500)
            if seen.accuracy >= trial.level:
                share = (trial.level - before.accuracy) / (seen.accuracy - before.accuracy)
                between = before.entropy + share * (seen.entropy - before.entropy)
                reached = {"rollouts": float(record.step), "entropy": between}
                break
            before = seen
        found.append(reached[trial.measure])
    return found[0], found[1]


def work(job: tuple[int, int]) -> Iterator[tuple[int, int, float, float]]:
    """Yield the place of a trial, its seed and both values."""
    place, seed = job
    yield (place, seed, *values(TRIALS[place], seed))


def carried(name: str) -> str:
    """Return in a sentence what became of a map's cells on transformers, by the rule of `outcome`, from the file beside this."""
    parts = [
        f"cell ({trial.column}, {trial.row}) {outcome(trial.sign, found)}"
        for trial in TRIALS
        if trial.map == name and (found := pairs(trial))
    ]
    if not parts:
        return "Not confirmed on transformers."
    return f"On small transformers, {SEEDS} seeds: {'; '.join(parts)}."


def pairs(trial: Trial) -> list[tuple[float, float]]:
    """Return what the file has of a trial: the algorithm's value and GRPO's, a pair a seed."""
    where = (trial.map, str(trial.column), str(trial.row))
    rows = [row for row in _rows() if (row["map"], row["column"], row["row"]) == where]
    return [(float(row["mine"]), float(row["other"])) for row in rows]


@cache
def _rows() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def outcome(sign: int, found: Sequence[tuple[float, float]]) -> str:
    """Return whether the seeds' pairs say what the map says, by the mean of their differences and 2 standard errors.

    A cell without a certain sign carries over where the seeds have none either. Pairs of which one is NaN do not count; where
    fewer than three do, nothing is said.
    """
    gaps = [mine - other for mine, other in found if math.isfinite(mine - other)]
    if len(gaps) < 3:
        return f"could not be measured ({len(gaps)} of {len(found)} seeds)"
    mean, error = statistics.fmean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps))
    seen = 0 if abs(mean) <= 2 * error else int(math.copysign(1, mean))
    result = CARRIES if seen == sign else REVERSED if seen == -sign else NOT
    some = f", {len(gaps)} of {len(found)} seeds" if len(gaps) < len(found) else ""
    return f"{result} ({mean:+.2g} ± {error:.1g}{some})".replace("-", "−")


def main() -> None:
    """Run every trial and write the file."""
    from rlviz.processes import side_by_side
    from rlviz.training.files import write_text

    jobs = [(place, seed) for seed in range(SEEDS) for place in range(len(TRIALS))]
    rows = {}
    for place, seed, mine, other in side_by_side(work, jobs, jobs=2):
        trial = TRIALS[place]
        rows[place, seed] = f"{trial.map},{trial.column},{trial.row},{trial.measure},{seed},{mine:.6g},{other:.6g}"
        sys.stdout.write(f"{rows[place, seed]}\n")
        sys.stdout.flush()
        ordered = [rows[key] for key in sorted(rows)]
        write_text(FILE, "\n".join(["map,column,row,measure,seed,mine,other", *ordered]) + "\n")


if __name__ == "__main__":
    main()
