"""One runner for every study: it does the jobs of which nothing is kept yet, here, in processes or on a cluster.

A study is a list of jobs (an arm with a seed, all arms of a seed, a cell of a map) and a place where each is kept as soon as it
is done. Begun again with the same jobs it does those that are missing, so it ends as if nothing had stopped it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Generic, Protocol, TypeVar

from rlviz.parallel import check_engine, run_on, runs_in_this_process
from small_models.checks import check_number

MOST_SEEDS, MOST_JOBS = 10_000, 1024


class Job(Protocol):
    """A piece of a study. key: which it is. cost: about how long it takes, in a unit of the study's own."""

    @property
    def key(self) -> Any: ...

    @property
    def cost(self) -> float: ...

    def run(self) -> Generator[Any, None, None]:
        """Yield reports: progress on the way, or a result that is to be saved. A worker runs it, or this process."""


J = TypeVar("J", bound=Job)
R = TypeVar("R")


def check_where(jobs: int | None, on: str) -> None:
    """Raise ValueError for fewer than one job at once or more than MOST_JOBS, and for an engine that cannot be used."""
    _check_count("jobs", 1 if jobs is None else jobs, MOST_JOBS)
    check_engine(on)


def check_seeds(count: int) -> None:
    """Raise ValueError for no seed, and for more than MOST_SEEDS: each is a job, and all are planned before the first."""
    _check_count("seeds", count, MOST_SEEDS)


def _check_count(name: str, value: int, most: int) -> None:
    check_number(name, value, lambda number: 1 <= number <= most, f"from 1 to {most:,}", integer=True)


class Running(Iterator[R], Generic[J, R]):
    """A study under way; each step is what a job reports. all: its jobs. missing: those of which nothing was saved.

    here: whether they are done in this process, where a stop comes between two steps; workers are killed.
    """

    def __init__(self, every: Sequence[J], done: Collection[Any], *, jobs: int | None, on: str) -> None:
        self.all, self.missing = list(every), [job for job in every if job.key not in done]
        self._left = {job.key: job.cost for job in self.missing}
        self.here = runs_in_this_process(on, jobs, len(self.missing))
        self._reports = run_on(on, _report, self.missing, jobs=jobs)

    @property
    def share(self) -> float:
        """The share of all work that is done, by cost, from 0 to 1."""
        return 1 - sum(self._left.values()) / sum(job.cost for job in self.all)

    def __next__(self) -> R:
        key, report = next(self._reports)
        step, is_done = self.save(key, report)
        if is_done:
            self._left.pop(key, None)
        return step

    def save(self, key: Any, report: Any) -> tuple[R, bool]:
        """Save the report of a job; return it as the study's iterator gives it, and whether the job is done with it."""
        return report, True

    def close(self) -> None:
        """Stop; what is done is kept."""
        self._reports.close()

    def finish(self) -> None:
        """Run all jobs that are left."""
        for _ in self:
            pass


def _report(job: Job) -> Iterator[tuple[Any, Any]]:
    with closing(job.run()) as reports:
        for report in reports:
            yield job.key, report
