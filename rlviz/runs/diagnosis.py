"""diagnose: findings in a run or a log, with causes before what follows from them, by the rules of `rlviz.runs.rules`.

A run becomes `RunSeries` (columns and settings); `find` tries each rule on it and orders what it finds; `Diagnosis` shows that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlviz.markup import element
from rlviz.runs.log_names import program_of
from rlviz.runs.logs import ImportedRun, import_run, is_rlviz_run, read_extras
from rlviz.runs.measures import APART, RunSeries
from rlviz.runs.rules import ALL, FEWEST, OPTIONS, RULES, Grade, Program, Rule
from rlviz.settings import Settings
from rlviz.training import RunFolder, history
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
        return [
            (cause, [effect for effect in self if effect.follows == cause.rule]) for cause in self if not cause.follows
        ]

    @property
    def summary(self) -> str:
        """The run and how much there is to say about it, in a line."""
        counts = {grade: sum(finding.grade == grade for finding, _ in self.causes) for grade in ("warning", "note")}
        findings = ", ".join(f"{count} {grade}{'s'[: count > 1]}" for grade, count in counts.items() if count)
        few = f"; {self.few}" if self.few else ""
        blind = f"; not recorded: {', '.join(self.lacking)}" if self.lacking else ""
        return f"{self.run}, {self.steps} step{'s'[: self.steps > 1]}: {findings or 'nothing unusual'}{few}{blind}."

    def as_json(self) -> list[dict[str, Any]]:
        """Return the findings as JSON has them: a list of objects, empty where nothing is unusual."""
        return [asdict(finding) for finding in self]

    @property
    def lines(self) -> list[str]:
        """What there is to say, a line each: causes, with what to do about them and what follows from them further in."""
        lines = [self.summary]
        for cause, effects in self.causes:
            lines += [
                "",
                f"{cause.grade.capitalize()}: {cause.finding}",
                f"  Meaning: {cause.usually}",
                f"  Setting: {cause.setting}. {cause.advice}",
                f"  Lesson: {cause.lesson}",
            ]
            if cause.symptom:
                lines.append(f"  Symptom: {cause.symptom} ({SYMPTOMS})")
            if effects:
                lines += ["  What follows from it:", *(f"    {effect.finding}" for effect in effects)]
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        rows = []
        for line in self.lines:
            text = line.lstrip()
            style = f"margin: .3em 0 0 {len(line) - len(text)}em"
            rows.append(element("div", element("b", text) if text == line else text, style=style))
        return element("div", *rows)


def diagnose(
    run: str | os.PathLike[str] | RunFolder | ImportedRun | Sequence[StepRecord | PairRecord],
    settings: Settings | None = None,
) -> Diagnosis:
    """Return what is unusual in a run: what was seen, what it usually means, which setting to try, which lesson explains it.

    run: a run folder, a list of the records that `train` gave, for which settings says what the run was trained with, if that is
    to be looked at too, or a run of another program: what `import_run` reads, or has read. Raises FileNotFoundError where there
    is no run, ValueError for what is none, for one without a step, and for damage.
    """
    check_type("settings", settings, Settings | None)
    name, known = "this run", {} if settings is None else dict(vars(settings))
    program: Program = "rlviz"
    lacking: tuple[str, ...] = ()  # columns, as the run's program names them
    if isinstance(run, str | os.PathLike) and is_rlviz_run(run):
        if is_comparison(Path(run)):
            names = ", ".join(path.name for path in runs_in(run)) or "it has none yet"
            raise ValueError(f"run: {display_path(run)} holds a comparison; diagnose one of its runs: {names}")
        run = RunFolder.open(run)
    if isinstance(run, RunFolder):
        config, frame = run.config, run.metrics
        known = {**config["settings"], **known}
        if (run.path.parent / PLAN).is_file():
            known.pop("steps", None)  # a budget ends the run
        name, lacking = f"{config['algorithm']['name']} on {config['task']}", tuple(frame.attrs.get("lacking", ()))
        # A column that was not logged stands in the frame as not a number, or 0 of what is counted: no rule may see it.
        frame = frame.drop(columns=[*lacking], errors="ignore")
        if "imported" in config:
            frame = frame.merge(read_extras(run.path), on="step", how="left")
            name, program = f"names of {config['algorithm']['name']}", program_of(config["imported"])
        name = f"{run.path}: {name}"
    elif isinstance(run, str | os.PathLike | ImportedRun):
        log = run if isinstance(run, ImportedRun) else import_run(run)
        name = f"{'' if log is run else f'{run}: '}names of {log.name}"
        frame, program, lacking = log.logged, program_of(log.source), log.unseen
    elif isinstance(run, Sequence) and all(isinstance(record, StepRecord | PairRecord) for record in run):
        frame = history([*run])
    else:
        what = "a run folder, a log, or a list of step records, which goes with settings=run.settings"
        raise ValueError(f"run must be {what}; got {type(run).__name__}")
    if frame.empty:
        raise ValueError(f"{name} has no step yet, so there is nothing to diagnose; come back after {FEWEST}")
    series = RunSeries({str(column): pd.to_numeric(frame[column]).to_numpy(dtype=float) for column in frame}, known)
    few = "" if series.done >= FEWEST else f"most rules need {FEWEST}"
    if not few and not series.is_long:
        few = f"they were logged in {len(frame)} rows, and most rules need {APART * series.window}"
    resumed = frame["step"][frame["resumed"] == 1].tolist() if "resumed" in frame else []
    name += "".join(f", resumed at step {step}" for step in resumed)
    return Diagnosis(name, series.done, find(series, program=program), lacking, few)


def find(series: RunSeries, rules: Sequence[Rule] = RULES, program: Program = "rlviz") -> tuple[Finding, ...]:
    """Return what these rules find, causes in the rules' order, each before what follows from it; where one says more than
    another, only that one.

    program: in whose options it is said.
    """
    findings = {rule.name: finding for rule in rules if (finding := _apply_rule(rule, series, program)) is not None}
    silenced = {name for rule in rules if rule.name in findings for name in rule.silences}
    loud = {rule.name: rule for rule in rules if rule.name in findings and rule.name not in silenced}
    rank = {name: place for place, name in enumerate(loud)}

    # Each finding gets a root, its cause. Of two that may cause each other the earlier one does; of the same step, the one whose
    # rule comes first.
    roots: dict[str, str] = {}
    for name in sorted(loud, key=lambda name: findings[name].step):
        targets = {name, *ALL} if findings[name].grade == "warning" else {name}
        causes = [root for cause, root in roots.items() if targets & set(loud[cause].explains)]
        roots[name] = min(causes, key=rank.__getitem__, default=name)
    # What a finding includes moves beneath it, with all that followed from it, whenever it began.
    for name, rule in loud.items():
        roots = {other: roots[name] if root in rule.includes else root for other, root in roots.items()}
    order = sorted(loud, key=lambda name: (rank[roots[name]], roots[name] != name, rank[name]))
    return tuple(replace(findings[name], follows="" if roots[name] == name else roots[name]) for name in order)


def _apply_rule(rule: Rule, series: RunSeries, program: Program) -> Finding | None:
    if series.done < rule.fewest or (rule.fewest >= FEWEST and not series.is_long):
        return None
    with np.errstate(all="ignore"):  # numbers from a damaged folder may be too large to compute with
        measured = np.stack([condition.measured(series) for condition in rule.where])
        holds = np.all([condition.holds(x) for condition, x in zip(rule.where, measured, strict=True)], axis=0)
    fails = np.flatnonzero(~(holds & np.isfinite(measured).all(axis=0)))
    since = int(fails[-1]) + 1 if len(fails) else 0  # the row from which on it holds up to the end
    if since == len(series.steps) or series.steps_since(since) < min(rule.persists, series.done):
        return None
    numbers = [float(values[-1]) for values in measured]
    step = int(series.steps[since])
    words = "from the first step on" if step == 1 else f"since step {step}"
    options = {name: names[program] for name, names in OPTIONS.items()}
    text = rule.seen.format(*numbers, step=step, since=words, part=series.lost_part, nan=series.not_numbers)
    return Finding(
        rule=rule.name,
        grade=rule.grade,
        # a space before each per cent sign, and minus signs before numbers
        finding=re.sub(r"-(?=\d)", "−", re.sub(r"(?<=\d)%", " %", text)),
        step=step,
        number=numbers[0],
        usually=rule.usually.format(*numbers, **options),
        setting=options[rule.setting],
        advice=rule.advice.format(**options),
        lesson=f"{LESSONS}/{rule.lesson}.ipynb",
        symptom=rule.symptom,
    )


def is_comparison(folder: Path) -> bool:
    """Whether a folder holds the runs of a comparison, and no run itself."""
    return (folder / PLAN).is_file() and not (folder / "config.json").exists()


def runs_in(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the run folders of a comparison that have a step, by their names; the folder itself where it is no comparison's."""
    path = Path(folder)
    if not is_comparison(path):
        return [path]
    runs = (config.parent for config in path.glob("*/config.json"))
    return sorted(run for run in runs if (run / METRICS).is_file() and (run / METRICS).stat().st_size)
