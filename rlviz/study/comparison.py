"""Fair comparisons: the same budget for every contender, several seeds, and whether a difference exceeds their spread."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

import rlviz
from rlviz.algorithms import PreferenceOptimization
from rlviz.parallel import LOCAL
from rlviz.settings import settings_from
from rlviz.study.budget import METRIC, NOT_SHARED, USED, Budget, BudgetedRun, Contender, RunProgress, run_frame, slug_of
from rlviz.study.difference import Difference, bootstrap, interval, iqm, unpaired
from rlviz.study.runner import Running, check_seeds, check_where
from rlviz.training import RunFolder, find_task, train
from rlviz.training.files import json_text, write_json
from rlviz.training.reading import read_plan
from rlviz.training.rewards import check_accuracy
from rlviz.training.tasks import start_of
from small_models.checks import check_not_empty, check_number, check_seed, checked
from small_models.policies import load_policy
from small_models.tasks import Task

PAIRS = "budget: {} learns from pairs, and its steps sample no responses; choose seconds"
AMOUNTS = {"responses": 60 * 32 * 8, "seconds": 4.0}  # what 60 steps of GRPO's default settings use


@dataclass(frozen=True)
class Comparison:
    """Runs of several contenders, to be compared at the same amount of a budget.

    frame: a row a step: contender, seed, step, responses, updates and seconds since the start of the run, held_out_accuracy
    on steps with an evaluation (step 0 before training, where it is known), and the step's other metrics. budget, amount: where
    they are compared. Accuracies between two evaluations of a run are interpolated, and never continued beyond the last.
    """

    frame: pd.DataFrame
    task: str
    budget: Budget
    amount: float

    @property
    def contenders(self) -> list[str]:
        return list(dict.fromkeys(self.frame["contender"]))

    def at_budget(self) -> pd.DataFrame:
        """Return a row a run: contender, seed, and at the common budget held_out_accuracy, responses, updates, seconds.

        Raises ValueError for a run whose evaluations do not reach it.
        """
        rows = []
        for contender, seed, run in self._runs():
            accuracy, spent = _accuracy(run, self.budget, self.amount), [0.0, *run[self.budget]]
            used = {name: float(np.interp(self.amount, spent, [0.0, *run[name]])) for name in USED}
            rows.append({"contender": contender, "seed": seed, METRIC: float(accuracy), **used})
        return pd.DataFrame(rows)

    def curves(self, points: int = 101) -> pd.DataFrame:
        """Return for each contender, over what all its seeds have evaluations for: the budget, iqm, lowest, highest."""
        parts = []
        for contender in self.contenders:
            runs = [run for name, _, run in self._runs() if name == contender]
            ends = np.array([run.loc[run[METRIC].notna(), self.budget].iloc[[0, -1]] for run in runs])
            at = np.linspace(ends[:, 0].max(), min(self.amount, ends[:, 1].min()), points)
            values = np.stack([_accuracy(run, self.budget, at) for run in runs], axis=-1)
            columns = {"iqm": iqm(values), "lowest": values.min(-1), "highest": values.max(-1)}
            parts.append(pd.DataFrame({"contender": contender, self.budget: at, **columns}))
        return pd.concat(parts, ignore_index=True)

    def table(self) -> pd.DataFrame:
        """Return a row a contender at the common budget.

        runs, iqm, low and high (95 % bootstrap interval of the IQM over seeds), mean, lowest, highest of held-out accuracy, the
        mean responses, updates and seconds that it took (of pairs: the sampling of pairs before the first step left out), and,
        but for the first contender, difference of its IQM to the first's, difference_low and difference_high, its 95 % interval
        (`unpaired` says how often that errs; NaN with fewer than 3 seeds), and exceeds: whether that does not hold 0.
        """
        runs = dict(list(self.at_budget().groupby("contender", sort=False)))
        first = runs[self.contenders[0]][METRIC].to_numpy()
        rows: list[dict[str, Any]] = []
        for name, ends in runs.items():
            scores = ends[METRIC].to_numpy()
            low, high = interval(bootstrap(scores))
            row = {"contender": name, "runs": len(scores), "iqm": float(iqm(scores)), "low": low, "high": high}
            row |= {"mean": scores.mean(), "lowest": scores.min(), "highest": scores.max(), **ends[list(USED)].mean()}
            gap = unpaired(scores, first) if rows else Difference(math.nan, math.nan, math.nan)
            row |= {"difference": gap.size, "difference_low": gap.low, "difference_high": gap.high}
            rows.append({**row, "exceeds": None if math.isnan(gap.sign) else gap.sign != 0})
        return pd.DataFrame(rows)

    def verdict(self) -> list[str]:
        """Return a sentence for every contender but the first: whether its difference exceeds the seeds' spread."""
        first, *others = self.table().to_dict("records")
        sentences = []
        for row in others:
            size, seeds = row["difference"], min(row["runs"], first["runs"])
            where = f"{abs(size):.3f} {'above' if size > 0 else 'below'}" if abs(size) >= 0.0005 else "level with"
            ends = f"{row['contender']} ends {where} {first['contender']}"
            if math.isnan(row["difference_low"]):
                few = "1 seed of a side is" if seeds == 1 else f"{seeds} seeds of a side are"
                sentences.append(f"{ends}; {few} too few to say more.")
                continue
            within = f"95 % interval {row['difference_low']:+.3f} to {row['difference_high']:+.3f}"
            verdict = "exceeds" if row["exceeds"] else "does not exceed"
            few = "; with so few seeds, one pair of equals in eight would pass for different"
            doubt = few if seeds == 3 and row["exceeds"] else ""
            sentences.append(f"{ends} ({within}): this {verdict} the seeds' spread{doubt}.")
        return sentences

    def _runs(self) -> Iterator[tuple[str, int, pd.DataFrame]]:
        for _, run in self.frame.groupby(["contender", "seed"], sort=False):
            yield run["contender"].iloc[0], int(run["seed"].iloc[0]), run


def _accuracy(run: pd.DataFrame, budget: Budget, at: ArrayLike) -> NDArray[np.float64]:
    """Return the accuracy of a run where it had spent so much. Raises ValueError where no evaluation reaches that."""
    measured = run[run[METRIC].notna()]
    spent = measured[budget].to_numpy(dtype=float)
    if not len(spent) or np.max(at) > spent[-1] * (1 + 1e-9) or np.min(at) < spent[0]:
        name, seed = run["contender"].iloc[0], run["seed"].iloc[0]
        reach = f"from {spent[0]:g} to {spent[-1]:g} {budget}" if len(spent) else "nowhere"
        raise ValueError(f"amount: the evaluations of {name}, seed {seed}, reach {reach}; got {np.max(at):g} {budget}")
    return np.interp(np.asarray(at, dtype=float), spent, measured[METRIC].to_numpy(dtype=float))


@checked
def compare(
    contenders: Sequence[Contender],
    task: str | Task = "chain",
    policy: str | os.PathLike[str] | None = None,
    *,
    seeds: int | Sequence[int] = 5,
    budget: Budget = "responses",
    amount: float | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = 1,
    device: str = "auto",
    on: str = LOCAL,
) -> Comparing:
    """Return an iterator that trains what is missing, a `RunProgress` a step; its `result()` is the `Comparison`.

    Each contender trains once with each of the seeds (a number: 0, 1, …), from the same policy (a shipped name, a folder or a
    hub name; the task's own unless given) until it has used the amount of the budget: responses sampled, or seconds of training.
    `steps` and `evaluate_every` of its settings are not used: held-out accuracy is measured ten times on the way.
    amount: unless given what 60 default steps of GRPO use. out: folder of the comparison, in which each run is an ordinary run
    folder; unless given runs/compare-001, or the number of the same comparison begun before. Runs that are complete are not
    trained again, others go on where they stopped, to the same curve (but for seconds); more seeds may be asked for.
    Stop by pulling no more and `close()`.
    jobs: runs at once, each in a process of its own; a single one is made in this process. on: the engine that runs them,
    local, ray, or ray:ADDRESS of a cluster that shares this folder.

    Raises ValueError for what cannot be compared, and for a folder that holds another comparison.
    """
    if isinstance(seeds, int):
        check_seeds(seeds)
        seeds = range(seeds)
    limit = AMOUNTS[budget] if amount is None else amount
    the_task = find_task(task) if isinstance(task, str) else task
    check_accuracy("a comparison", the_task)
    check_not_empty("contenders", contenders)
    slugs = [contender.slug for contender in contenders]
    for contender in contenders:
        if not contender.slug or slugs.count(contender.slug) > 1:
            raise ValueError(f"contenders must have names of their own, in letters or digits; got {contender.name!r}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be at least 1, or different numbers; got {list(seeds)}")
    for seed in seeds:
        check_seed(seed)
    check_number("amount", limit, lambda number: number > 0, "above 0")
    check_where(jobs, on)
    source = start_of(the_task) if policy is None else str(policy)
    # What would be refused at the beginning of a run is refused before any training.
    loaded = load_policy(source, device=device)
    for contender in contenders:
        if not isinstance(contender.algorithm, PreferenceOptimization):
            train(loaded, the_task, contender.algorithm, contender.settings_with(0), reference=contender.reference)
        elif budget == "responses":
            raise ValueError(PAIRS.format(contender.name))
    plan = {
        "rlviz": rlviz.__version__,
        **the_task.described,
        "policy": source,
        "budget": budget,
        "amount": limit,
        "contenders": {contender.name: contender.described for contender in contenders},
    }
    plan = json.loads(json_text(plan))  # as it is read again, to be compared with what a folder holds
    if out is None:  # the folder where this comparison was begun, or a new one
        folders = (Path("runs") / f"compare-{number:03d}" for number in count(1))
        folder = next(f for f in folders if not f.exists() or _differences(read_plan(f) or {}, plan) == [])
    else:
        folder = Path(out)
    begun = read_plan(folder)
    if begun is None and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"out: {folder} is not empty, and holds no comparison; name another folder")
    if differ := [] if begun is None else _differences(begun, plan):
        raise ValueError(f"out: the comparison in {folder} has {', '.join(differ)} of its own; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "comparison.json", plan)
    except OSError as error:
        raise OSError(f"out: {folder} cannot be made or written ({error.strerror})") from error
    # Seeds in turn, so that a comparison that is stopped has as many runs of each contender.
    jobs_to_do = [
        BudgetedRun(folder / f"{contender.slug}-seed{seed}", contender, seed, the_task, source, device, budget, limit)
        for seed in seeds
        for contender in contenders
    ]
    return Comparing(folder, jobs_to_do, jobs, on)


class Comparing(Running[BudgetedRun, RunProgress]):
    """A comparison in progress. folder: where its runs are kept."""

    def __init__(self, folder: Path, every: Sequence[BudgetedRun], jobs: int | None, on: str) -> None:
        self.folder = folder
        super().__init__(every, {run.key for run in every if run.is_complete}, jobs=jobs, on=on)

    def save(self, key: tuple[str, int], now: RunProgress) -> tuple[RunProgress, bool]:
        return now, now.done

    def result(self) -> Comparison:
        """Train what is left, and return the comparison."""
        self.finish()
        first = self.all[0]
        names = list(dict.fromkeys(job.contender.name for job in self.all))
        ordered = sorted(self.all, key=lambda job: names.index(job.contender.name))
        frame = pd.concat([run_frame(job.folder, *job.key) for job in ordered], ignore_index=True)
        return Comparison(frame, first.task.name, first.budget, first.amount)


def _differences(begun: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Return the parts of a plan in which a comparison that was begun differs, whatever version of rlviz began it."""
    return [name for name in plan if name != "rlviz" and begun.get(name) != plan[name]]


@checked
def read_comparison(
    folders: Sequence[str | os.PathLike[str]], *, budget: Budget = "responses", amount: float | None = None
) -> Comparison:
    """Return the comparison of runs on disk, finished or not.

    folders: of comparisons, whose contenders go by their names, of runs, or that hold runs: those of one algorithm and settings
    are a contender's seeds. amount: unless given as far as the evaluations of all of them reach.
    Raises FileNotFoundError where there is no run, ValueError for runs of different tasks, for two of one seed, and for runs
    that have no evaluation or sample no responses where they are the budget.
    """
    check_not_empty("folders", folders)
    tasks: dict[str, Path] = {}
    groups: dict[tuple[str, str], dict[int, RunFolder]] = {}
    for name, run in (pair for folder in folders for pair in _runs_in(Path(folder))):
        config, seed = run.config, settings_from(run.config["settings"]).seed
        settings = {name: value for name, value in config["settings"].items() if name not in NOT_SHARED}
        shared = [config["algorithm"], settings, config["policy"], config.get("reference")]  # by a contender's seeds
        tasks[" ".join(config.get(part) or "" for part in ("task", "rule", "rows")).strip()] = run.path
        other = groups.setdefault((name, json.dumps(shared, sort_keys=True)), {}).setdefault(seed, run)
        if other is not run:
            raise ValueError(f"{other.path} and {run.path} are the same run twice: {name} with seed {seed}")
    if len(tasks) > 1:
        first, second = (f"{path} of {task}" for task, path in list(tasks.items())[:2])
        raise ValueError(f"the runs are of different tasks: {first}, {second}; compare within one")
    # Runs of one name with other settings are contenders of their own, and their folders tell them apart.
    frames = []
    names = [name for name, _ in groups]
    for (name, _), seeds in groups.items():
        label = name if names.count(name) == 1 else f"{name} ({next(iter(seeds.values())).path})"
        for seed, run in sorted(seeds.items()):
            frame = run_frame(run.path, label, seed)
            if not (frame[METRIC].notna() & (frame["step"] > 0)).any():
                raise ValueError(f"the run in {run.path} has no evaluation on held-out prompts yet")
            if frame[budget].isna().any():
                raise ValueError(PAIRS.format(name))
            frames.append(frame)
    reach = min(frame.loc[frame[METRIC].notna(), budget].iloc[-1] for frame in frames)
    limit = reach if amount is None else amount
    return Comparison(pd.concat(frames, ignore_index=True), config["task"], budget, limit)


def _runs_in(folder: Path) -> list[tuple[str, RunFolder]]:
    """Return the run in the folder or those in its folders, by their algorithms' names, or a comparison's by its contenders'."""
    plan = read_plan(folder) or {"contenders": {}}
    parts = [(name, part) for name in plan["contenders"] for part in sorted(folder.glob(f"{slug_of(name)}-seed*"))]
    if not (parts or (folder / "config.json").is_file()):
        parts = [("", part) for part in sorted(folder.glob("*"))]
    runs = [(name, RunFolder(part)) for name, part in parts if (part / "config.json").is_file()]
    runs = runs or [("", RunFolder.open(folder))]  # which says what it lacks
    return [(name or run.config["algorithm"]["name"], run) for name, run in runs]
