"""A run that ends when it has used a budget, of responses or of seconds; cut off, it goes on where it stopped."""

from __future__ import annotations

import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from rlviz.algorithms import Algorithm
from rlviz.algorithms.describe import to_json
from rlviz.settings import Settings
from rlviz.training.files import write_json
from rlviz.training.reading import accuracy_before
from rlviz.training.run import TrainingRun
from rlviz.training.run_folder import RunFolder
from rlviz.training.settings import default_settings
from rlviz.training.start import resume, train
from small_models.checks import check_fields
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import Task

Budget = Literal["responses", "seconds"]
USED = ("responses", "updates", "seconds")  # what a run uses up, and how its frame names it
METRIC = "held_out_accuracy"
EVALUATIONS = 10  # of a run, equally far apart on the budget; one more before the first step
UNLIMITED = 1_000_000  # steps of a run that its budget ends
NOT_SHARED = (  # by the seeds of a contender
    "seed",
    "steps",
    "evaluate_every",
    "checkpoint_every",
    "details_every",
    "details_groups",
    "watch_every",
)


def slug_of(name: str) -> str:
    """Return a name in small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


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

    @property
    def described(self) -> dict[str, Any]:
        """What comparison.json says of it: all that its seeds share."""
        shared = {name: value for name, value in asdict(self.settings_with(0)).items() if name not in NOT_SHARED}
        known = {"algorithm": to_json(self.algorithm), "settings": shared}
        return known if self.reference is None else {**known, "reference": self.reference}

    def settings_with(self, seed: int) -> Settings:
        """Return the settings of the run with this seed, which has more steps than it can take."""
        return replace(self.settings or default_settings(self.algorithm), seed=seed, steps=UNLIMITED)


@dataclass(frozen=True)
class RunProgress:
    """Where a run of a comparison stands: budget spent of the amount, and the accuracy measured last."""

    contender: str
    seed: int
    spent: float
    amount: float
    accuracy: float | None
    done: bool


@dataclass(frozen=True)
class BudgetedRun:
    """The run of a contender with a seed, in this folder, to this amount of the budget."""

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

    @property
    def has_begun(self) -> bool:
        return (self.folder / "config.json").is_file()

    @property
    def is_complete(self) -> bool:
        """True once the run has used its budget: its steps are then those that it took."""
        return self.has_begun and RunFolder.open(self.folder).config["settings"]["steps"] != UNLIMITED

    def run(self) -> Generator[RunProgress, None, None]:
        """Begin the run or go on with it; yield where it stands before each step, and at the end."""
        who, summary = self.contender, self.folder / "summary.json"
        if self.has_begun:
            run: TrainingRun[Any] = resume(
                self.folder, steps=UNLIMITED, device=self.device, task=self.task, algorithm=who.algorithm
            )
        else:
            if not (self.folder / "metrics.jsonl").exists():  # a beginning that was cut off has no steps
                shutil.rmtree(self.folder, ignore_errors=True)
            policy, settings = load_policy(self.policy, device=self.device), who.settings_with(self.seed)
            run = train(policy, self.task, who.algorithm, settings, reference=who.reference, out=self.folder)
        if not summary.is_file():  # it begins, or was stopped before this was known
            before = evaluate(run.start, self.task, max_new_tokens=run.settings.max_new_tokens).accuracy
            write_json(summary, {"accuracy_before": before})
        frame = run_frame(self.folder, *self.key)
        measured = frame[frame[METRIC].notna()].iloc[-1]  # the start at least
        accuracy, evaluated_at = float(measured[METRIC]), float(measured[self.budget])
        spent = float(frame[self.budget].iloc[-1])
        cost = "responses_sampled" if self.budget == "responses" else "seconds"

        def passes_a_mark(step: Mapping[str, Any]) -> bool:
            """Return True for a step that ends the budget, or its current tenth."""
            after = spent + float(step[cost])
            tenths = EVALUATIONS / self.amount
            return after >= self.amount or int(after * tenths) > int(spent * tenths)

        run.evaluation_is_due = passes_a_mark
        with closing(run):  # between two steps it is saved; a step that was cut in the middle is made again
            while evaluated_at < self.amount:
                yield RunProgress(*self.key, spent, self.amount, accuracy, done=False)
                record = next(run)
                spent += float(vars(record)[cost])
                if record.held_out_accuracy is not None:
                    accuracy, evaluated_at = record.held_out_accuracy, spent
        # It is left as one that has done all its steps, so that `resume` asks for a higher total.
        before_and_after = {"accuracy_before": accuracy_before(self.folder), "accuracy_after": accuracy}
        write_json(summary, {**before_and_after, **run.totals, "finished": True, "seed": self.seed})
        config = RunFolder.open(self.folder).config
        write_json(self.folder / "config.json", {**config, "settings": asdict(replace(run.settings, steps=run.step))})
        yield RunProgress(*self.key, spent, self.amount, accuracy, done=True)


def run_frame(folder: Path, contender: str, seed: int) -> pd.DataFrame:
    """Return a run on disk as rows of `Comparison.frame`. Raises FileNotFoundError when there is no run."""
    run = RunFolder.open(folder)
    metrics = run.metrics
    steps = metrics.reindex(columns=list(dict.fromkeys(["step", "seconds", METRIC, "responses_sampled", *metrics])))
    updates = np.arange(1, len(steps) + 1) * run.config["settings"].get("updates_per_rollout", 1)
    steps = steps.assign(
        step_seconds=steps["seconds"],
        seconds=steps["seconds"].cumsum(),
        responses=steps["responses_sampled"].cumsum(),
        updates=updates,
    )
    before = accuracy_before(run.path)
    start = pd.DataFrame([] if before is None else [{"step": 0, **dict.fromkeys(USED, 0.0), METRIC: before}])
    frame = pd.concat([start, steps], ignore_index=True).assign(contender=contender, seed=seed)
    first = ["contender", "seed", "step", *USED, METRIC]
    return frame[[*first, *(name for name in frame if name not in first)]].astype({METRIC: float})
