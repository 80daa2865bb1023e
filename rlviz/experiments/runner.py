"""Running trials in processes of their own, each kept as soon as it is done, so that an interrupted run goes on."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd
import torch

from rlviz.experiments import find_experiment
from rlviz.experiments.base import Experiment
from rlviz.experiments.parts import Verdict, in_counts
from rlviz.parallel import LOCAL, run_on
from rlviz.pictures.base import save_figure
from rlviz.training.files import write_text


def kept(out: Path, name: str, seed: int) -> Path:
    """Return where a trial is kept."""
    return out / "trials" / f"{name}-{seed}.csv"


def write(file: Path, text: str) -> None:
    """Write a file whole or not at all, in a folder that is made where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, text)


def read(file: Path) -> pd.DataFrame:
    """Return trials that were written: an arm that is called 0.2 is a name and no number, else no rule would find it."""
    return pd.read_csv(file, dtype={"arm": str})


def one_trial(job: tuple[Path, str, int, float]) -> Iterator[tuple[str, int]]:
    """Run a trial (folder, experiment, seed, scale) on one thread, keep it, and yield experiment and seed."""
    out, name, seed, scale = job
    torch.set_num_threads(1)
    trial = find_experiment(name).run((seed,), scale)
    write(kept(out, name, seed), trial.to_csv(index=False, float_format="%.6g"))
    yield name, seed


def run_trials(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    out: Path,
    *,
    jobs: int | None = 1,
    scale: float = 1.0,
    on: str = LOCAL,
) -> Generator[tuple[Experiment, int], None, None]:
    """Run the trials that `out` does not have, `jobs` at a time, and yield each when it is there; first those that are.

    on: the engine that runs them; see `rlviz.parallel`.

    Stopping (an exception at the yield, or closing the iterator) ends the trials under way; those that are done stay.
    Raises what a trial raises.
    """
    known = {experiment.name: experiment for experiment in experiments}
    missing = []
    for seed in seeds:
        for experiment in experiments:
            if kept(out, experiment.name, seed).exists():
                yield experiment, seed
            else:
                missing.append((out, experiment.name, seed, scale))
    with closing(run_on(on, one_trial, missing, jobs=jobs, at_once=True)) as done:
        for name, seed in done:
            yield known[name], seed


def conclude(experiment: Experiment, seeds: Sequence[int], out: Path) -> Verdict:
    """Judge and draw an experiment from its trials in `out`; write NAME.csv and NAME.png there and return the verdict."""
    frame = pd.concat([read(kept(out, experiment.name, seed)) for seed in seeds], ignore_index=True)
    verdict = experiment.judge(frame)
    write(out / f"{experiment.name}.csv", frame.to_csv(index=False))
    save_figure(
        experiment.picture(frame), out / f"{experiment.name}.png", description=f"{experiment.claim} {verdict.says}"
    )
    return verdict


def verdict_table(verdicts: Sequence[tuple[Experiment, Verdict]], seeds: int) -> str:
    """Return the verdicts as Markdown: a table of what became of each claim's parts, and below it the numbers."""
    lines = [
        "# The claims and what became of them",
        "",
        f"Written by `rlviz experiment --all --seeds {seeds}`; nothing is typed by hand. "
        f"**In all {in_counts(said for _, verdict in verdicts for said in verdict.said)}.**",
        "",
        "A claim has parts, and no claim is called seen as a whole. A part is **measured**, follows by **arithmetic** from "
        "definitions, or is **not testable here**. The smallest effect worth speaking of stands in the experiment's file, and "
        "was fixed before the trials shown; settings and measures were chosen after earlier trials, some with other outcomes. A "
        "part is **seen** when every seed has the claimed sign, the mean is more than two standard errors from 0 (with five "
        "seeds an interval of 88 %), and at least of that size (and of the claimed one, where the claim names one); **reversed** "
        "when all that holds for the opposite sign; **negligible** when the mean and its two standard errors lie within that "
        "size; else **not seen at this scale**. A title in bold says in a picture what the parts shown below it came to, "
        "with the mean over the seeds; bars and lines are medians, which one seed far off does not move; dots and bands are of "
        "seeds. A seed of a table is a mean of its replicas, and most transformers of an experiment begin at one checkpoint. "
        "Parts are neither independent nor of equal weight: their number says how much was looked at, and no more.",
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
