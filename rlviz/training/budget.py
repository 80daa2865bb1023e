"""A run that ends when it has used a budget: of responses, optimizer updates, or seconds. It can be stopped and gone on with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd

from rlviz.algorithms import Algorithm
from rlviz.algorithms.describe import to_json
from rlviz.settings import Settings
from rlviz.training.files import json_text, write_json, write_text
from rlviz.training.reading import accuracy_before
from rlviz.training.run import TrainingRun
from rlviz.training.run_folder import RunFolder, metrics_of
from rlviz.training.settings import default_settings
from rlviz.training.start import resume, train
from small_models.checks import check_fields
from small_models.evaluation import evaluate
from small_models.policies import Policy, load_policy, one_thread_if_small
from small_models.tasks import Task

Budget = Literal["responses", "updates", "seconds"]
BUDGETS: tuple[Budget, ...] = get_args(Budget)
EVALUATIONS = 10  # of a run, equally far apart on the budget; one more before the first step
METRIC = "held_out_accuracy"
UNLIMITED = 1_000_000  # steps of a run that only its seconds end
NOT_SHARED = (
    "seed",
    "steps",
    "evaluate_every",
    "checkpoint_every",
    "details_every",
    "details_groups",
    "watch_every",
)  # by all seeds


@dataclass(frozen=True)
class Contender:
    """Who takes part: an algorithm with its settings (None: `default_settings(algorithm)`) under a name of its own.

    reference: name or folder of its reference or teacher; None: the policy that all begin with.
    """

    name: str
    algorithm: Algorithm
    settings: Settings | None = None
    reference: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def slug(self) -> str:
        """The name as a part of a folder's name."""
        return slug_of(self.name)


@dataclass(frozen=True)
class RunProgress:
    """Where a run of a comparison stands after a step: budget spent of the amount, and the accuracy measured last."""

    contender: str
    seed: int
    spent: float
    amount: float
    accuracy: float | None
    done: bool


def slug_of(name: str) -> str:
    """Return the name in small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@dataclass(frozen=True)
class BudgetedRun:
    """One run of a contender: with this seed, in this folder, to this amount of the budget."""

    folder: Path
    contender: Contender
    seed: int
    task: Task
    policy: str
    device: str
    budget: Budget
    amount: float
    cost: ClassVar[float] = 1.0  # all have the same budget

    @property
    def key(self) -> tuple[str, int]:
        return self.contender.name, self.seed

    def run(self) -> Generator[RunProgress, None, None]:
        """Begin the run or go on with it; see `train_to_budget`."""
        return train_to_budget(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for another process, the task without its prompts, of which it can make megabytes itself."""
        task = copy(self.task)
        kept = {k: v for k, v in vars(task).items() if not isinstance(getattr(type(task), k, None), cached_property)}
        vars(task).clear()
        vars(task).update(kept)
        return {**vars(self), "task": task}

    @property
    def settings(self) -> Settings:
        """Of this run; its steps are more than it can take."""
        own = settings_of(self.contender)
        steps = UNLIMITED
        if self.budget != "seconds":
            shape = asdict(own)
            most = {"responses": shape.get("num_prompts", 1) * shape.get("group_size", 1), "updates": _updates(shape)}
            steps = int(-(-self.amount // most[self.budget]))
        return replace(own, seed=self.seed, steps=steps, evaluate_every=0)

    @property
    def complete(self) -> bool:
        """Whether the run has used its budget, was evaluated there, and was closed."""
        if not (self.folder / "config.json").is_file():
            return False
        run = run_frame(RunFolder.open(self.folder).path, self.contender.name, self.seed)
        last = run.iloc[-1] if len(run) else None
        if last is None or last[self.budget] < self.amount or pd.isna(last[METRIC]):
            return False
        return RunFolder.open(self.folder).config["settings"]["steps"] == last["step"]

    def check_folder(self) -> None:
        """Raise ValueError when the folder holds a run that is not this one, begun or complete."""
        if not (self.folder / "config.json").is_file():
            return
        config = RunFolder.open(self.folder).config
        ours = {
            **self.task.described,
            "policy": self.policy,
            "algorithm": to_json(self.contender.algorithm),
            "reference": self.contender.reference,
            **{name: value for name, value in asdict(self.settings).items() if name not in NOT_SHARED},
            "seed": self.seed,
        }
        theirs = {**config, **config.get("settings", {})}
        for name, value in ours.items():
            if theirs.get(name) != value:
                said = "another" if isinstance(value, dict) else f"{theirs.get(name)}, and not {value},"
                raise ValueError(f"out: the run in {self.folder} has {said} {name}; name another folder")


def train_to_budget(job: BudgetedRun) -> Generator[RunProgress, None, None]:
    """Begin the run or go on with it; yield after each step; close it once its budget is used."""
    run = _begun(job)
    assert run.folder is not None
    updates = _updates(asdict(run.settings))
    spent, last = 0.0, 0.0
    measured: float | None = None
    accuracy: float | None = None
    for row in _rows(run.folder):
        last, measured = _cost(row, updates)[job.budget], row[METRIC]
        spent += last
        accuracy = accuracy if pd.isna(measured) else measured
    try:
        while True:
            mark = int(spent * EVALUATIONS / job.amount) > int((spent - last) * EVALUATIONS / job.amount)
            if spent and pd.isna(measured) and (mark or spent >= job.amount):
                accuracy = _evaluate(run, run.policy)
                _amend_last(run.folder, accuracy)
            if spent >= job.amount:
                break
            yield RunProgress(job.contender.name, job.seed, spent, job.amount, accuracy, done=False)
            row = metrics_of(next(run))
            last, measured = _cost(row, updates)[job.budget], row[METRIC]
            spent += last
    except GeneratorExit:  # closed between two steps; a step that failed or was interrupted in the middle is not kept
        run.save()
        raise
    _close(run, settings_of(job.contender).evaluate_every)
    yield RunProgress(job.contender.name, job.seed, spent, job.amount, accuracy, done=True)


def _begun(job: BudgetedRun) -> TrainingRun[Any]:
    folder, settings = job.folder, job.settings
    if (folder / "config.json").is_file():
        done = len(RunFolder.open(folder).metrics)
        steps = max(settings.steps, done + 1)  # also a run that only lacks its last evaluation can be opened
        run = resume(folder, steps=steps, device=job.device, task=job.task, algorithm=job.contender.algorithm)
        run.settings = replace(run.settings, evaluate_every=0)
    else:
        policy = load_policy(job.policy, device=job.device)
        who = job.contender
        run = train(policy, job.task, who.algorithm, settings, reference=who.reference, out=folder)
    if not (folder / "summary.json").is_file():  # new, or stopped before this was known
        write_json(folder / "summary.json", {"accuracy_before": _evaluate(run, run.start)})
    return run


def _evaluate(run: TrainingRun[Any], policy: Policy) -> float:
    with one_thread_if_small(policy):
        return evaluate(policy, run.task, max_new_tokens=run.settings.max_new_tokens).accuracy


def _amend_last(folder: RunFolder, accuracy: float) -> None:
    """Write an accuracy into the last row of metrics.jsonl; the file is there as it was, or with it."""
    file = folder.path / "metrics.jsonl"
    *lines, last = file.read_text(encoding="utf-8").splitlines()
    lines.append(json_text({**json.loads(last), METRIC: accuracy}))
    with folder.writing():
        write_text(file, "".join(f"{line}\n" for line in lines))


def _close(run: TrainingRun[Any], evaluate_every: int) -> None:
    """Save the run as one that has done all its steps, so that `resume` asks for a higher total."""
    assert run.folder is not None
    run.save()
    path = run.folder.path
    summary = {
        "accuracy_before": accuracy_before(path),
        "accuracy_after": float(run.folder.metrics[METRIC].iloc[-1]),
        **run.totals,
        "finished": True,
        "seed": run.settings.seed,
    }
    write_json(path / "summary.json", summary)
    settings = replace(run.settings, steps=run.step, evaluate_every=evaluate_every)
    write_json(path / "config.json", {**run.folder.config, "settings": asdict(settings)})


def settings_of(contender: Contender) -> Settings:
    """Return the settings given, or else the default ones."""
    return contender.settings or default_settings(contender.algorithm)


def shared_settings(contender: Contender) -> dict[str, Any]:
    """Return what all runs of a contender have in common: its settings without seed, steps and what only records."""
    return {name: value for name, value in asdict(settings_of(contender)).items() if name not in NOT_SHARED}


def _updates(settings: Mapping[str, Any]) -> int:
    return settings.get("updates_per_rollout", 1)


def _cost(row: Mapping[Any, Any], updates: int) -> dict[str, float]:
    """Return what a step used of each budget; responses are nan where none are sampled."""
    return {"responses": row.get("responses_sampled", np.nan), "updates": updates, "seconds": row["seconds"]}


def _rows(run: RunFolder) -> list[dict[str, Any]]:
    """Return the metrics of each step; those with a value for every step are numbers, a missing one is nan."""
    return [{str(name): value for name, value in row.items()} for row in run.metrics.to_dict("records")]


def run_frame(folder: str | os.PathLike[str], contender: str, seed: int) -> pd.DataFrame:
    """Return a run on disk as rows of `Comparison.frame`. Raises FileNotFoundError when there is no run."""
    run = RunFolder.open(folder)
    updates, before = _updates(run.config["settings"]), accuracy_before(run.path)
    spent: dict[str, float] = dict.fromkeys(BUDGETS, 0.0)
    rows = []
    if before is not None:
        rows.append({"step": 0, **spent, METRIC: before})
    for row in _rows(run):
        spent = {name: spent[name] + cost for name, cost in _cost(row, updates).items()}
        rows.append({**row, "step_seconds": row["seconds"], **spent})
    frame = pd.DataFrame(rows, columns=None if rows else ["step", *BUDGETS, METRIC])
    frame[METRIC] = frame[METRIC].astype(float)
    frame.insert(0, "contender", contender)
    frame.insert(1, "seed", seed)
    first = ["contender", "seed", "step", *BUDGETS, METRIC]
    return frame[[*first, *(name for name in frame if name not in first)]]
