"""Trials of claims, run so that they can be interrupted, and the table of what became of all claims (verdicts.md)."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from rlviz.names import closest
from rlviz.parallel import LOCAL
from rlviz.study.effects import NOT_TESTABLE, Claim, Effect, counts
from rlviz.study.runner import Running, check_seeds, check_where
from rlviz.training.files import write_text

READING = """A claim has parts, and no claim is called seen as a whole. A part is **measured**, follows by **arithmetic** from \
definitions, or is **not testable here**. What was measured is

- **seen** when every seed has the claimed sign, the mean is more than two standard errors from 0 (with five seeds an interval \
of 88 %), and at least of the smallest size of interest (and of the claimed one, where the claim names one);
- **reversed** when all that holds for the opposite sign;
- **negligible** when the mean and its two standard errors lie within that smallest size;
- else **not seen at this scale**.

The smallest effect of interest stands in the experiment's file, and was fixed before the trials shown; settings and \
measures were chosen after earlier trials, some with other outcomes. A picture has a row for each part with a number; of a \
measured one a dot per seed and the mean ± two standard errors, in units of the smallest effect of interest. A seed of a \
table is a mean of its replicas, and most transformers of an experiment begin at one checkpoint. Parts are neither \
independent nor of equal weight: their number says how much was looked at, and no more."""


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
        self._folder = out / "trials"
        self._folder.mkdir(parents=True, exist_ok=True)  # refused now, and not after the first trial
        every = [_Trial(claim, seed, scale) for seed in seeds for claim in claims]
        super().__init__(every, {trial.key for trial in every if self._file(*trial.key).exists()}, jobs=jobs, on=on)

    def save(self, key: tuple[str, int], trial: pd.DataFrame) -> tuple[tuple[str, int], bool]:
        write_text(self._file(*key), trial.to_csv(index=False, float_format="%.6g"))
        return key, True

    def frame(self, claim: Claim) -> pd.DataFrame:
        """Return a claim's trials of all seeds, all of which are kept."""
        frames = [read_trials(self._file(*job.key)) for job in self.all if job.claim.name == claim.name]
        return pd.concat([frame for frame in frames if len(frame)], ignore_index=True)

    def _file(self, name: str, seed: int) -> Path:
        return self._folder / f"{name}-{seed}.csv"


def read_trials(file: Path) -> pd.DataFrame:
    """Return trials that were written as CSV: an arm that is called 0.2 is a name and no number."""
    return pd.read_csv(file, dtype={"arm": str})


def verdict_lines(claim: Claim, frame: pd.DataFrame) -> list[str]:
    """Return a line for each effect of a claim's trials ("measured: …, seen"), each further number and each note."""
    notes = (f"{NOT_TESTABLE}: {note}" for note in claim.notes)
    return [*map(str, claim.effects(frame)), *claim.numbers(frame), *notes]


def verdict_table(frames: Mapping[Claim, pd.DataFrame]) -> str:
    """Return the verdicts on claims, by their trials, as Markdown: a table of counts, and below it a section a claim."""
    effects = {claim: claim.effects(frame) for claim, frame in frames.items()}
    every: list[Effect] = [effect for part in effects.values() for effect in part]
    in_all = counts(every, [note for claim in frames for note in claim.notes])
    seeds = max(frame["seed"].nunique() for frame in frames.values())
    rows, sections = [], []
    for claim, frame in frames.items():
        name, words = claim.name, counts(effects[claim], claim.notes)
        escaped = claim.says.replace("|", "\\|")
        rows.append(f"| [{name}](#{name}) | {escaped} | {words} | [{name}.png]({name}.png) |")
        sections += [
            f"## {name}\n",
            f"{claim.says} (Source: {claim.source}.) **{words[0].upper()}{words[1:]}.**\n",
            *(f"- {line}" for line in verdict_lines(claim, frame)),
            f"\n![{name}]({name}.png)\n",
        ]
    return "\n".join(
        [
            "# The claims and what became of them\n",
            f"Written by `rlviz experiment --all --seeds {seeds}`; nothing is typed by hand. **In all {in_all}.**\n",
            f"{READING}\n",
            "| experiment | claim | its parts | picture |",
            "|---|---|---|---|",
            *rows,
            "",
            *sections,
        ]
    )


def quoted(name: str, about: str = "", *, folder: str | os.PathLike[str] = "experiments") -> list[str]:
    """Return the lines of the table on a claim, one a part or number: those that hold `about`, each with tag and outcome.

    folder: that has the verdicts.md which `rlviz experiment --all` wrote; a lesson's is `experiments`. Raises FileNotFoundError
    where it has none, ValueError for a claim that is not in it, and where no line holds `about`.
    """
    table = Path(folder) / "verdicts.md"
    if not table.is_file():
        raise FileNotFoundError(f"folder: {folder} has no verdicts.md, which `rlviz experiment --all` writes")
    sections = table.read_text(encoding="utf-8").split("\n## ")[1:]
    claims = {section.partition("\n")[0]: section for section in sections}
    lines = [line[2:] for line in claims[closest("name", name, list(claims))].splitlines() if line.startswith("- ")]
    quotes = [line for line in lines if about in line]
    if not quotes:
        raise ValueError(f"about must be words that the table says of {name}; got {about!r}")
    return quotes
