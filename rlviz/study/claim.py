"""What a claim is, how its trials are run and kept, and the table of what became of all claims.

A claim is a file of `claims/`: it says CLAIM, SOURCE and SECONDS, has the functions `trial` and `judge`, and lists its PANELS.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from rlviz.names import closest
from rlviz.parallel import LOCAL
from rlviz.study.runner import Running, check_seeds, check_where
from rlviz.study.verdict import Verdict, in_counts
from rlviz.training.files import write_text

READING = """A claim has parts, and no claim is called seen as a whole. A part is **measured**, follows by **arithmetic** from \
definitions, or is **not testable here**. What was measured is

- **seen** when every seed has the claimed sign, the mean is more than two standard errors from 0 (with five seeds an interval \
of 88 %), and at least of the smallest size of interest (and of the claimed one, where the claim names one);
- **reversed** when all that holds for the opposite sign;
- **negligible** when the mean and its two standard errors lie within that smallest size;
- else **not seen at this scale**.

The smallest effect of interest stands in the experiment's file, and was fixed before the trials shown; settings and \
measures were chosen after earlier trials, some with other outcomes. A title in bold says in a picture what the parts shown \
below it came to, with the mean over the seeds; bars and lines are medians, which one seed far off does not move; dots and \
bands are of seeds. A seed of a table is a mean of its replicas, and most transformers of an experiment begin at one \
checkpoint. Parts are neither independent nor of equal weight: their number says how much was looked at, and no more."""


def _all_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


@dataclass(frozen=True)
class Panel:
    """One graph of a claim's picture: over `x` a line an arm, the median of its seeds in their band; without `x` a dot a seed.

    name: by which parts are shown in it. y, unit: what is drawn, and in which unit. rows: those that are drawn, made of all
    trials; one without a seed is no trial, and its arm a guide. title: where no part is shown. by: the column of a dot's arm.
    sets: a column of values that have dots of their own. smooth: over how many rows of a seed its mean moves. against: an arm
    that is subtracted, seed by seed. marked: values of y. from_zero: where the axis of dots begins. axes: what else is set of
    the axes, by matplotlib's names.
    """

    name: str
    y: str
    unit: str
    rows: Callable[[pd.DataFrame], pd.DataFrame] = _all_rows
    _: KW_ONLY
    x: str = ""
    title: str = ""
    by: str = "arm"
    sets: str | None = None
    smooth: int = 1
    against: str = ""
    marked: tuple[float, ...] = ()
    from_zero: bool = False
    axes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A claim and its test. name: as on the command line. claim, source: in words. seconds: of a trial, on one quiet core.

    trial: (seed, scale) → a tidy DataFrame without the seed; scale 1 is the real one, less of it a shorter one. judge: of the
    trials of all seeds in one DataFrame, with a column `seed`. panels: of its picture, rows of them.
    """

    name: str
    claim: str
    source: str
    seconds: float
    trial: Callable[[int, float], pd.DataFrame]
    judge: Callable[[pd.DataFrame], Verdict]
    panels: Sequence[Sequence[Panel]]

    def run(self, seeds: Iterable[int], scale: float = 1.0) -> pd.DataFrame:
        """Return the trials of these seeds, one after the other."""
        return pd.concat([self.trial(seed, scale).assign(seed=seed) for seed in seeds], ignore_index=True)


@dataclass(frozen=True)
class _Trial:
    """A claim's trial with one seed: a job of a study."""

    claim: Claim
    seed: int
    scale: float

    @property
    def key(self) -> tuple[str, int]:
        return self.claim.name, self.seed

    @property
    def cost(self) -> float:
        return self.claim.seconds

    def run(self) -> Generator[pd.DataFrame, None, None]:
        torch.set_num_threads(1)
        yield self.claim.run((self.seed,), self.scale)


class Trials(Running[_Trial, tuple[str, int]]):
    """Trials under way: each step is the name of a claim and the seed of which a trial is now kept, in `out`/trials."""

    def __init__(
        self,
        claims: Sequence[Claim],
        seeds: Sequence[int],
        out: Path,
        *,
        jobs: int | None = 1,
        scale: float = 1.0,
        on: str = LOCAL,
    ) -> None:
        check_where(jobs, on)
        check_seeds(len(seeds))
        self._file = partial(_file, out)
        (out / "trials").mkdir(parents=True, exist_ok=True)  # refused now, and not after the first trial
        every = [_Trial(claim, seed, scale) for seed in seeds for claim in claims]
        super().__init__(every, {trial.key for trial in every if self._file(*trial.key).exists()}, jobs=jobs, on=on)

    def keep(self, key: tuple[str, int], trial: pd.DataFrame) -> tuple[tuple[str, int], bool]:
        write_text(self._file(*key), trial.to_csv(index=False, float_format="%.6g"))
        return key, True

    def frame(self, claim: Claim) -> pd.DataFrame:
        """Return a claim's trials of all seeds, all of which are kept."""
        seeds = [seed for name, seed in (job.key for job in self.all) if name == claim.name]
        frames = [read(self._file(claim.name, seed)) for seed in seeds]
        return pd.concat([frame for frame in frames if len(frame)], ignore_index=True)


def _file(out: Path, name: str, seed: int) -> Path:
    return out / "trials" / f"{name}-{seed}.csv"


def read(file: Path) -> pd.DataFrame:
    """Return trials that were kept: an arm that is called 0.2 is a name and no number, else no rule would find it."""
    return pd.read_csv(file, dtype={"arm": str})


def verdict_table(verdicts: Sequence[tuple[Claim, Verdict]], seeds: int) -> str:
    """Return the verdicts as Markdown: a table of what became of each claim's parts, and below it the numbers."""
    lines = [
        "# The claims and what became of them",
        "",
        f"Written by `rlviz experiment --all --seeds {seeds}`; nothing is typed by hand. "
        f"**In all {in_counts(said for _, verdict in verdicts for said in verdict.said)}.**",
        "",
        READING,
        "",
        "| experiment | claim | its parts | picture |",
        "|---|---|---|---|",
        *(
            f"| [{e.name}](#{e.name}) | {e.claim.replace('|', chr(92) + '|')} | {v} | [{e.name}.png]({e.name}.png) |"
            for e, v in verdicts
        ),
        "",
    ]
    for experiment, verdict in verdicts:
        numbers = "\n".join(f"- {number}" for number in verdict.says.removesuffix(".").split("; "))
        lines += [
            f"## {experiment.name}",
            "",
            f"{experiment.claim} (Source: {experiment.source}.) **{str(verdict)[0].upper()}{str(verdict)[1:]}.**",
            "",
            numbers,
            "",
            f"![{experiment.name}]({experiment.name}.png)",
            "",
        ]
    return "\n".join(lines)


def quoted(name: str, about: str = "", *, folder: str | os.PathLike[str] = "experiments") -> list[str]:
    """Return what the table says of a claim, a line a part or number: those that hold `about`, each with tag and outcome.

    folder: that has the verdicts.md which `rlviz experiment --all` wrote; a lesson's is `experiments`. Raises FileNotFoundError
    where it has none, ValueError for a claim that is not in it, and where no line holds `about`.
    """
    table = Path(folder) / "verdicts.md"
    if not table.is_file():
        raise FileNotFoundError(f"folder: {folder} has no verdicts.md, which `rlviz experiment --all` writes")
    sections = table.read_text(encoding="utf-8").split("\n## ")[1:]
    claims = {section.partition("\n")[0]: section for section in sections}
    lines = [line[2:] for line in claims[closest("name", name, list(claims))].splitlines() if line.startswith("- ")]
    found = [line for line in lines if about in line]
    if not found:
        raise ValueError(f"about must be words that the table says of {name}; got {about!r}")
    return found
