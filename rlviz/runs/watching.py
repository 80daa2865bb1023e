"""Runs that a long cell trains, one or one a seed, drawn meanwhile: the curves so far, the runs before in grey, the time left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from IPython import get_ipython
from IPython.display import display

from rlviz import training
from rlviz.algorithms.family import Algorithm
from rlviz.runs.curves import LiveCurves, Series
from rlviz.runs.progress import describe_last_step, describe_sample, describe_seconds
from rlviz.settings import Settings, TrainSettings
from rlviz.training import LearnedReward, TrainingRun
from rlviz.types import StepRecord
from small_models.checks import check_at_least, checked
from small_models.policies import Policy, load_policy
from small_models.tasks import Task

REDRAW_SECONDS = 0.25


class WatchedCell(LiveCurves):
    """The runs of one cell: those that train in colour, those before in grey.

    Runs of one name in a row are seeds of one thing: a mean, with each of them thin. of: how many runs the cell trains.
    """

    def __init__(self, of: int) -> None:
        self.of, self.steps, self.name = of, 1, ""
        self.before: list[Series] = []
        self.seeds: list[list[StepRecord]] = []
        self._began = self._drawn = time.monotonic()
        super().__init__()
        self._output: Any = display(self, display_id=True)

    @property
    def count(self) -> int:
        """How many runs have begun."""
        return sum(len(series.seeds) for series in self.before) + len(self.seeds)

    def begin(self, name: str, steps: int) -> None:
        """Begin a run of so many steps; those of another name become grey."""
        if name != self.name:
            if self.seeds:
                self.before.append(Series(self.name, self.seeds, "before"))
            self.name, self.seeds = name, []
        self.steps = steps
        self.seeds.append([])
        self.of = max(self.of, self.count)
        self.redraw()

    def add(self, record: StepRecord) -> None:
        """Add a step, and draw it unless the last drawing was a moment ago."""
        self.seeds[-1].append(record)
        if time.monotonic() - self._drawn >= REDRAW_SECONDS:
            self.redraw()

    def end(self) -> None:
        """End the run, wherever it stands; with the last one, what a saved notebook shows is the picture as it ended."""
        self.redraw()
        if self.count == self.of or len(self.seeds[-1]) < self.steps:
            self._output.update(self)

    def redraw(self) -> None:
        """Draw the runs as they are, and say how far they are."""
        self._drawn = time.monotonic()
        series = [*self.before, Series(self.name, self.seeds)]
        furthest = max([self.steps, *(records[-1].step for line in series for records in line.seeds if records)])
        words = f"Run {self.count} of {self.of}" if self.of > 1 else "Run"
        words += f" ({self.name})" if self.name else ""
        records = self.seeds[-1]
        if records:
            left = f", {describe_seconds(self.seconds_left)} left" if self.seconds_left else ""
            words += f", step {records[-1].step} of {self.steps}{left}: {describe_last_step(records)}."
            words += f" It says: {describe_sample(records[-1])}." if left else ""
        self.show(series, furthest, words if records else f"{words} begins.")

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last of the runs is done, if each step takes what the steps so far took; None before the first."""
        runs = [*(records for series in self.before for records in series.seeds), *self.seeds]
        done = sum(map(len, runs))
        left = (self.of - self.count + 1) * self.steps - len(self.seeds[-1])
        return (time.monotonic() - self._began) * left / done if done else None


# at most one: a shell, the number of its cell that runs, and its picture
_last: list[tuple[Any, int, WatchedCell]] = []


@checked
def watch(run: TrainingRun[Any], *, name: str = "", of: int = 1) -> Iterator[Any]:
    """Return the records of a run as it would give them, and in a notebook draw them below the cell while they come.

    All runs that a cell watches share one picture: `list(watch(train(task, algorithm, settings), name="GRPO", of=6))` for each of
    six, where `of` lets the time left count those to come. Those of one name in a row are drawn as seeds of one thing.
    In a script, and for runs on pairs, nothing is drawn.
    """
    check_at_least(1, of=of)
    return _watched(run, name, of)


def _watched(run: TrainingRun[Any], name: str, of: int) -> Iterator[Any]:
    shell = get_ipython()
    if not isinstance(run.settings, TrainSettings) or shell is None or not hasattr(shell, "kernel"):
        yield from run
        return
    # The cell's first run makes the picture, the others find it by the number of the cell.
    pictures = [picture for before, cell, picture in _last if before is shell and cell == shell.execution_count]
    picture = pictures[0] if pictures else WatchedCell(of)
    _last[:] = [(shell, shell.execution_count, picture)]
    picture.begin(name or run.algorithm.name, run.settings.steps)
    try:
        for record in run:
            picture.add(record)
            yield record
    finally:
        picture.end()


@checked
def train_seeds(
    policy: str | os.PathLike[str],
    task: Task | str,
    algorithm: Algorithm | str,
    settings: Settings,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    name: str = "",
    of: int = 1,
    judges: Mapping[int, LearnedReward] | Sequence[LearnedReward] | None = None,
) -> tuple[list[list[Any]], list[Policy]]:
    """Train the same start once for each seed; return the records of each run, and the trained policies.

    policy: the name or folder of the start, loaded anew for each seed. settings: their `seed` is replaced by each of the seeds.
    name: what the picture calls the runs, the algorithm's name unless given. of: how many arms of as many seeds the cell trains,
    for the time left. judges: for each seed the learned reward, `judges[seed]`, that scores in place of the task's rule.
    Raises ValueError for no seed at all, and what `train` raises.
    """
    if not seeds:
        raise ValueError("seeds must hold at least one seed; got none")
    runs, policies = [], []
    for seed in seeds:
        start = load_policy(policy)
        learned: dict[str, Any] = {}
        if judges is not None:
            learned = {"reward_model": judges[seed].model, "pairs": judges[seed].pairs}
        run = training.train(start, task, algorithm, replace(settings, seed=seed), **learned)
        runs.append(list(watch(run, name=name, of=of * len(seeds))))
        policies.append(start)
    return runs, policies
