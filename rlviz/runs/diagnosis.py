"""diagnose: what a person who has seen a hundred runs would say about this one, by the rules of `rlviz.runs.rules`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlviz.markup import Markup, element, joined
from rlviz.runs.logs import Imported, import_run, is_own, logged_beside
from rlviz.runs.measures import APART, Course
from rlviz.runs.rules import FEWEST, OPTIONS, RULES, Grade, Program, Rule
from rlviz.settings import Settings
from rlviz.training import RunFolder, TrainingRun, history
from rlviz.types import PairRecord, StepRecord
from small_models.checks import check_type
from small_models.files import said

PLAN = "comparison.json"  # of a comparison, which ends its runs by a budget
METRICS = "metrics.jsonl"
LESSONS = "notebooks"
SYMPTOMS = f"{LESSONS}/symptoms.md"


@dataclass(frozen=True)
class Finding:
    """One thing that is unusual in a run.

    rule: the name of the rule. grade: a warning, or a note on what only looks unusual. finding: what was seen. step: since which
    step. number: what the rule looked at, at the end of the run. usually: what it usually means. setting: which option to try, of
    the program that made the run, and advice: how. lesson: the notebook that explains it. symptom: the heading of
    notebooks/symptoms.md that says more, empty where there is none.
    """

    rule: str
    grade: Grade
    finding: str
    step: int
    number: float
    usually: str
    setting: str
    advice: str
    lesson: str
    symptom: str


@dataclass(frozen=True)
class Diagnosis:
    """The findings in a run, the most important first; `print` it, iterate over it, or show it in a notebook.

    run: what it is of. steps: how many the run has. lacking: columns that an imported run has not, which no rule could look at.
    few: what most rules need, where there is less.
    """

    run: str
    steps: int
    findings: tuple[Finding, ...]
    lacking: tuple[str, ...] = ()
    few: str = ""

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def summary(self) -> str:
        """The run and how much there is to say about it, in a line."""
        counts = {grade: sum(finding.grade == grade for finding in self) for grade in ("warning", "note")}
        told = ", ".join(f"{count} {grade}{'s'[: count > 1]}" for grade, count in counts.items() if count)
        few = f"; {self.few}" if self.few else ""
        blind = f"; not recorded: {', '.join(self.lacking)}" if self.lacking else ""
        return f"{self.run}, {self.steps} step{'s'[: self.steps > 1]}: {told or 'nothing unusual'}{few}{blind}."

    def as_json(self) -> list[dict[str, Any]]:
        """Return the findings as JSON has them: a list of objects, empty where nothing is unusual."""
        return [asdict(finding) for finding in self]

    def __str__(self) -> str:
        lines = [self.summary]
        for finding in self:
            lines += ["", f"{finding.grade.capitalize()}: {finding.finding}", *(f"  {line}" for line in told(finding))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [_row(finding) for finding in self]
        return element("div", element("p", element("b", self.summary)), element("ul", *rows) if rows else Markup())


def told(finding: Finding) -> list[str]:
    """Return what a finding means, what to try and what to read, a line each."""
    return [
        f"Meaning: {finding.usually}",
        f"Setting: {finding.setting}. {finding.advice}",
        f"Lesson: {finding.lesson}",
        *([f"Symptom: {finding.symptom} ({SYMPTOMS})"] if finding.symptom else []),
    ]


def _row(finding: Finding) -> Markup:
    first = element("b", f"{finding.grade.capitalize()}: {finding.finding}")
    return element("li", first, *(joined(element("br"), line) for line in told(finding)), style="margin-bottom: .6em")


def diagnose(
    run: str | os.PathLike[str] | RunFolder | TrainingRun[Any] | Imported | Sequence[StepRecord | PairRecord],
    settings: Settings | None = None,
) -> Diagnosis:
    """Return what is unusual in a run: what was seen, what it usually means, which setting to try, which lesson explains it.

    run: a run folder, a run that is kept in one, a list of the records that `train` gave, for which settings says what the run
    was trained with, if that is to be looked at too, or a run of TRL or verl: what `import_run` reads, or has read. Raises
    FileNotFoundError where there is no run, ValueError for what is none, for one without a step, and for damage.
    """
    check_type("settings", settings, Settings | None)
    read = _read(run, settings)
    frame = read.frame
    if frame.empty:
        raise ValueError(f"{read.name} has no step yet, so there is nothing to diagnose; come back after {FEWEST}")
    there = [column for column in frame if column not in frame.attrs.get("lacking", ())]
    course = Course({str(column): pd.to_numeric(frame[column]).to_numpy(dtype=float) for column in there}, read.known)
    few = "" if course.done >= FEWEST else f"most rules need {FEWEST}"
    if not few and not course.long_enough:
        few = f"they were logged in {len(frame)} rows, and most rules need {APART * course.window}"
    return Diagnosis(read.name, course.done, findings_in(course, program=read.program), read.lacking, few)


def findings_in(course: Course, rules: Sequence[Rule] = RULES, program: Program = "rlviz") -> tuple[Finding, ...]:
    """Return what these rules find, in their order; where one says more than another, only that one.

    program: in whose options it is said.
    """
    found = {rule.name: finding for rule in rules if (finding := _finding(rule, course, program)) is not None}
    silenced = {name for rule in rules if rule.name in found for name in rule.silences}
    return tuple(finding for name, finding in found.items() if name not in silenced)


def _finding(rule: Rule, course: Course, program: Program) -> Finding | None:
    if course.done < rule.fewest or (rule.fewest >= FEWEST and not course.long_enough):
        return None
    with np.errstate(all="ignore"):  # numbers from a damaged folder may be too large to compute with
        measured = [condition.of(course) for condition in rule.where]
        known = np.all(np.isfinite(measured), axis=0)
        held = np.all([each.met(values) for each, values in zip(rule.where, measured, strict=True)], axis=0)
    since = _last_stretch(known & held)
    if since == len(course.steps) or course.since(since) < rule.persists:
        return None
    if since == _last_stretch(known):  # ever since there is a median: before it, as far as its first rows say so
        since = _before_medians(rule, course, since)
    numbers = [float(values[-1]) for values in measured]
    step = int(course.steps[since])
    words = "from the first step on" if step == 1 else f"since step {step}"
    options = {name: names[program] for name, names in OPTIONS.items()}
    return Finding(
        rule=rule.name,
        grade=rule.grade,
        finding=_typeset(rule.seen.format(*numbers, step=step, since=words, part=course.lost_part)),
        step=step,
        number=numbers[0],
        usually=rule.usually.format(**options),
        setting=options[rule.setting],
        advice=rule.advice.format(**options),
        lesson=f"{LESSONS}/{rule.lesson}.ipynb",
        symptom=rule.symptom,
    )


def _before_medians(rule: Rule, course: Course, since: int) -> int:
    """Return the first place where the rule holds on the numbers themselves, of those before there is a median."""
    raw = np.stack([course.latest(condition.column) for condition in rule.where])
    first = int(np.flatnonzero(np.isfinite(raw).all(axis=0))[0])
    for place in range(first, min(since, first + 1 + rule.where[0].is_change)):
        if all(condition.met_at_first(course, place) for condition in rule.where):
            return place
    return since


def _typeset(text: str) -> str:
    """Return a text with a space before each per cent sign, and minus signs before numbers."""
    return re.sub(r"-(?=\d)", "−", re.sub(r"(?<=\d)%", " %", text))


def _last_stretch(true: NDArray[np.bool_]) -> int:
    """Return the place from which on it is true up to the end; the length where the end is not."""
    false = np.flatnonzero(~true)
    return int(false[-1]) + 1 if len(false) else 0


class _Run(NamedTuple):
    """A run's name, its numbers, the settings that are known, whose options it has, and columns that it lacks, as its program
    names them."""

    name: str
    frame: pd.DataFrame
    known: Mapping[str, Any]
    program: Program = "rlviz"
    lacking: tuple[str, ...] = ()


def _read(run: Any, settings: Settings | None) -> _Run:
    known = {} if settings is None else dict(vars(settings))
    if isinstance(run, TrainingRun):
        if run.folder is None:
            raise ValueError("run keeps no records of its own; give the list of them, and settings=run.settings")
        run = run.folder
    if isinstance(run, Imported):
        return _Run(f"{run.name} ({run.source})", run.logged, known, run.source, run.unseen)
    if isinstance(run, str | os.PathLike):
        if not is_own(run):
            imported = import_run(run)
            return _Run(f"{run}: {imported.name}", imported.logged, known, imported.source, imported.unseen)
        if (Path(run) / PLAN).is_file() and not (Path(run) / "config.json").exists():
            names = ", ".join(path.name for path in runs_in(run)) or "it has none yet"
            raise ValueError(f"run: {said(run)} holds a comparison; diagnose one of its runs: {names}")
        run = RunFolder.open(run)
    if isinstance(run, RunFolder):
        return _of_folder(run, known)
    if isinstance(run, Sequence) and all(isinstance(record, StepRecord | PairRecord) for record in run):
        return _Run("this run", history(run), known)
    raise ValueError(
        f"run must be a run folder, a run that is kept in one, a log, or a list of step records; got {type(run).__name__}"
    )


def _of_folder(run: RunFolder, known: Mapping[str, Any]) -> _Run:
    config, frame = run.config, run.metrics
    known = {**config["settings"], **known}
    if (run.path.parent / PLAN).is_file():
        known.pop("steps", None)  # a budget ends the run
    lacking = tuple(frame.attrs.get("lacking", ()))
    if "imported" in config:
        frame = frame.merge(logged_beside(run.path), on="step", how="left")
        frame.attrs["lacking"] = list(lacking)
    name = f"{run.path}: {config['algorithm']['name']} on {config['task']}"
    return _Run(name, frame, known, config.get("imported", "rlviz"), lacking)


def runs_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the run folders of a comparison that have a step, by their names; the folder itself where it is no comparison's."""
    path = Path(folder)
    if not (path / PLAN).is_file() or (path / "config.json").exists():
        return [path]
    runs = (each.parent for each in path.glob("*/config.json"))
    return sorted(run for run in runs if (run / METRICS).is_file() and (run / METRICS).stat().st_size)
