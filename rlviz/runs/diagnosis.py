"""diagnose: what a person who has seen a hundred runs would say about this one, by the rules of `rlviz.runs.rules`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rlviz.markup import Markup, element, joined
from rlviz.runs.log_names import WRITERS
from rlviz.runs.logs import Imported, import_run, is_own, logged_beside
from rlviz.runs.measures import APART, Course
from rlviz.runs.rules import ALL, FEWEST, OPTIONS, RULES, Grade, Program, Rule
from rlviz.settings import Settings
from rlviz.training import RunFolder, TrainingRun, history
from rlviz.types import PairRecord, StepRecord
from small_models.checks import check_type
from small_models.files import display_path

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
    notebooks/symptoms.md that says more, empty where there is none. follows: the rule of the finding that this one is a
    consequence of, empty where it is a cause of its own.
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
    follows: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The findings in a run, the most important first, each with its consequences after it.

    `print` it, iterate over it, or show it in a notebook.

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
    def causes(self) -> list[tuple[Finding, list[Finding]]]:
        """Each finding that is a cause of its own, with what follows from it."""
        return [(one, [other for other in self if other.follows == one.rule]) for one in self if not one.follows]

    @property
    def summary(self) -> str:
        """The run and how much there is to say about it, in a line."""
        counts = {grade: sum(finding.grade == grade for finding, _ in self.causes) for grade in ("warning", "note")}
        told = ", ".join(f"{count} {grade}{'s'[: count > 1]}" for grade, count in counts.items() if count)
        few = f"; {self.few}" if self.few else ""
        blind = f"; not recorded: {', '.join(self.lacking)}" if self.lacking else ""
        return f"{self.run}, {self.steps} step{'s'[: self.steps > 1]}: {told or 'nothing unusual'}{few}{blind}."

    def as_json(self) -> list[dict[str, Any]]:
        """Return the findings as JSON has them: a list of objects, empty where nothing is unusual."""
        return [asdict(finding) for finding in self]

    def __str__(self) -> str:
        lines = [self.summary]
        for finding, effects in self.causes:
            lines += ["", f"{finding.grade.capitalize()}: {finding.finding}", *(f"  {line}" for line in told(finding))]
            lines += effect_lines(effects)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [_row(finding, effects) for finding, effects in self.causes]
        return element("div", element("p", element("b", self.summary)), element("ul", *rows) if rows else Markup())


def told(finding: Finding) -> list[str]:
    """Return what a finding means, what to try and what to read, a line each."""
    return [
        f"Meaning: {finding.usually}",
        f"Setting: {finding.setting}. {finding.advice}",
        f"Lesson: {finding.lesson}",
        *([f"Symptom: {finding.symptom} ({SYMPTOMS})"] if finding.symptom else []),
    ]


def effect_lines(effects: Sequence[Finding]) -> list[str]:
    """Return what follows from a finding, a line each: seen in the log, and with no cause of its own."""
    return ["  What follows from it:", *(f"    {effect.finding}" for effect in effects)] if effects else []


def _row(finding: Finding, effects: Sequence[Finding]) -> Markup:
    first = element("b", f"{finding.grade.capitalize()}: {finding.finding}")
    lines = (joined(element("br"), line) for line in told(finding))
    listed = (
        element("br"),
        "What follows from it:",
        element("ul", *(element("li", effect.finding) for effect in effects)),
    )
    return element("li", first, *lines, *(listed if effects else ()), style="margin-bottom: .6em")


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
    steps_resumed = frame["step"][frame["resumed"] == 1].tolist() if "resumed" in frame else []
    course = Course({str(column): pd.to_numeric(frame[column]).to_numpy(dtype=float) for column in there}, read.known)
    few = "" if course.done >= FEWEST else f"most rules need {FEWEST}"
    if not few and not course.long_enough:
        few = f"they were logged in {len(frame)} rows, and most rules need {APART * course.window}"
    name = read.name + "".join(f", resumed at step {step}" for step in steps_resumed)
    return Diagnosis(name, course.done, findings_in(course, program=read.program), read.lacking, few)


def findings_in(course: Course, rules: Sequence[Rule] = RULES, program: Program = "rlviz") -> tuple[Finding, ...]:
    """Return what these rules find, causes in the rules' order, each before what follows from it; where one says more than
    another, only that one.

    program: in whose options it is said.
    """
    found = {rule.name: finding for rule in rules if (finding := _finding(rule, course, program)) is not None}
    silenced = {name for rule in rules if rule.name in found for name in rule.silences}
    return _caused([(rule, found[rule.name]) for rule in rules if rule.name in found and rule.name not in silenced])


def _caused(found: Sequence[tuple[Rule, Finding]]) -> tuple[Finding, ...]:
    """Return the findings, each cause before those that a rule explains and that began no earlier than it.

    Of two that may cause each other the earlier one does; of the same step, the one whose rule comes first.
    """
    roots: dict[int, int] = {}
    for place in sorted(range(len(found)), key=lambda place: (found[place][1].step, place)):
        earlier = (other for other in roots if _explains(found[other][0], found[place][1]))
        roots[place] = min((roots[other] for other in earlier), default=place)
    for place, (rule, _) in enumerate(found):
        included = [other for other, (_, finding) in enumerate(found) if finding.rule in rule.includes]
        roots = {other: roots[place] if root in included else root for other, root in roots.items()}
    order = sorted(roots, key=lambda place: (roots[place], roots[place] != place, place))
    return tuple(
        finding if roots[place] == place else replace(finding, follows=found[roots[place]][1].rule)
        for place, finding in ((place, found[place][1]) for place in order)
    )


def _explains(rule: Rule, finding: Finding) -> bool:
    return finding.rule in rule.explains or (rule.explains == ALL and finding.grade == "warning")


def _finding(rule: Rule, course: Course, program: Program) -> Finding | None:
    if course.done < rule.fewest or (rule.fewest >= FEWEST and not course.long_enough):
        return None
    with np.errstate(all="ignore"):  # numbers from a damaged folder may be too large to compute with
        measured = [condition.of(course) for condition in rule.where]
        known = np.asarray(np.isfinite(np.stack(measured)).all(axis=0))
        held = np.asarray(np.stack([each.met(x) for each, x in zip(rule.where, measured, strict=True)]).all(axis=0))
    since = _last_stretch(known & held)
    if since == len(course.steps) or course.since(since) < min(rule.persists, course.since(course.first_median)):
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
        finding=_typeset(
            rule.seen.format(*numbers, step=step, since=words, part=course.lost_part, nan=course.not_numbers)
        ),
        step=step,
        number=numbers[0],
        usually=rule.usually.format(*numbers, **options),
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
        return _of_log(run, known)
    if isinstance(run, str | os.PathLike):
        if not is_own(run):
            return _of_log(import_run(run), known, f"{run}: ")
        if (Path(run) / PLAN).is_file() and not (Path(run) / "config.json").exists():
            names = ", ".join(path.name for path in runs_in(run)) or "it has none yet"
            raise ValueError(f"run: {display_path(run)} holds a comparison; diagnose one of its runs: {names}")
        run = RunFolder.open(run)
    if isinstance(run, RunFolder):
        return _of_folder(run, known)
    if isinstance(run, Sequence) and all(isinstance(record, StepRecord | PairRecord) for record in run):
        return _Run("this run", history(run), known)
    raise ValueError(
        f"run must be a run folder, a run that is kept in one, a log, or a list of step records; got {type(run).__name__}"
    )


def _of_log(log: Imported, known: Mapping[str, Any], where: str = "") -> _Run:
    program = WRITERS[log.source].program
    return _Run(f"{where}names of {log.name}", log.logged, known, program, log.unseen)


def _of_folder(run: RunFolder, known: Mapping[str, Any]) -> _Run:
    config, frame = run.config, run.metrics
    known = {**config["settings"], **known}
    if (run.path.parent / PLAN).is_file():
        known.pop("steps", None)  # a budget ends the run
    lacking = tuple(frame.attrs.get("lacking", ()))
    if "imported" in config:
        frame = frame.merge(logged_beside(run.path), on="step", how="left")
        frame.attrs["lacking"] = list(lacking)
    name = f"{config['algorithm']['name']} on {config['task']}"
    program: Program = "rlviz"
    if "imported" in config:
        writer = WRITERS.get(config["imported"])
        name, program = f"names of {config['algorithm']['name']}", "plain" if writer is None else writer.program
    return _Run(f"{run.path}: {name}", frame, known, program, lacking)


def runs_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the run folders of a comparison that have a step, by their names; the folder itself where it is no comparison's."""
    path = Path(folder)
    if not (path / PLAN).is_file() or (path / "config.json").exists():
        return [path]
    runs = (each.parent for each in path.glob("*/config.json"))
    return sorted(run for run in runs if (run / METRICS).is_file() and (run / METRICS).stat().st_size)
