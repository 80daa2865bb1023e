"""Fair comparisons: the same budget for every contender, several seeds, and whether a difference exceeds their spread."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

import rlviz
from rlviz.algorithms import PreferenceOptimization
from rlviz.algorithms.describe import to_json
from rlviz.parallel import LOCAL
from rlviz.settings import settings_from
from rlviz.study.difference import bootstrap, interval, iqm, unpaired
from rlviz.study.runner import Running, check_seeds, check_where
from rlviz.training import RunFolder, find_task, train
from rlviz.training.budget import (
    BUDGETS,
    METRIC,
    NOT_SHARED,
    Budget,
    BudgetedRun,
    Contender,
    RunProgress,
    run_frame,
    settings_of,
    shared_settings,
    slug_of,
)
from rlviz.training.files import write_json
from rlviz.training.reading import read_plan
from rlviz.training.tasks import start_of
from small_models.checks import checked
from small_models.policies import load_policy
from small_models.tasks import Task

PAIRS = "budget: {} learns from pairs, and its steps sample no responses; choose updates or seconds"
AMOUNTS = {"responses": 60 * 32 * 8, "updates": 60, "seconds": 4.0}  # what 60 steps of GRPO's default settings use


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
            row = {"contender": contender, "seed": seed, METRIC: float(self._accuracy(run, self.amount))}
            spent = np.concatenate([[0.0], run.loc[run["step"] > 0, self.budget]])
            for name in BUDGETS:
                used = np.concatenate([[0.0], run.loc[run["step"] > 0, name]])
                row[name] = float(np.interp(self.amount, spent, used))
            rows.append(row)
        return pd.DataFrame(rows)

    def curves(self, points: int = 101) -> pd.DataFrame:
        """Return for each contender, over what all its seeds have evaluations for: the budget, iqm, lowest, highest."""
        parts = []
        for contender in self.contenders:
            runs = [run for name, _, run in self._runs() if name == contender]
            ends = np.array([run.loc[run[METRIC].notna(), self.budget].iloc[[0, -1]] for run in runs])
            at = np.linspace(ends[:, 0].max(), min(self.amount, ends[:, 1].min()), points)
            values = np.stack([self._accuracy(run, at) for run in runs], axis=-1)
            columns = {"iqm": iqm(values), "lowest": values.min(-1), "highest": values.max(-1)}
            parts.append(pd.DataFrame({"contender": contender, self.budget: at, **columns}))
        return pd.concat(parts, ignore_index=True)

    def table(self) -> pd.DataFrame:
        """Return a row a contender at the common budget.

        runs, iqm, low and high (95 % bootstrap interval of the IQM over seeds), mean, lowest, highest of held-out accuracy, and
        the mean responses, updates and seconds that it took (of pairs: the sampling of pairs before the first step left out).
        """
        rows = []
        for contender, runs in self.at_budget().groupby("contender", sort=False):
            scores = runs[METRIC].to_numpy()
            low, high = interval(bootstrap(scores))
            numbers = {"iqm": float(iqm(scores)), "low": low, "high": high, "mean": scores.mean()}
            numbers |= {"lowest": scores.min(), "highest": scores.max()}
            rows.append({"contender": contender, "runs": len(runs), **numbers, **runs[list(BUDGETS)].mean()})
        return pd.DataFrame(rows)

    def differences(self) -> pd.DataFrame:
        """Return a row for every contender but the first: difference of its IQM to the first's, low, high, exceeds.

        low, high: its 95 % interval; `unpaired` says how often that errs. exceeds: the interval does not hold 0. With fewer
        than 3 seeds nothing is said, and low, high and exceeds are None.
        """
        runs = {name: part[METRIC].to_numpy() for name, part in self.at_budget().groupby("contender", sort=False)}
        first, *others = runs
        rows = []
        for name in others:
            found = unpaired(runs[name], runs[first])
            said = (None,) * 3 if math.isnan(found.sign) else (found.low, found.high, found.sign != 0)
            rows.append((name, first, min(len(runs[name]), len(runs[first])), found.size, *said))
        return pd.DataFrame(rows, columns=["contender", "against", "seeds", "difference", "low", "high", "exceeds"])

    def verdict(self) -> list[str]:
        """Return a sentence for every contender but the first: whether its difference exceeds the seeds' spread.

        The rule: it does where the 95 % bootstrap interval of the difference of the two IQMs does not hold 0. `differences` says
        how the interval is made, and how often this errs.
        """
        return [_sentence(row) for row in self.differences().to_dict("records")]

    def _runs(self) -> list[tuple[str, int, pd.DataFrame]]:
        groups = self.frame.groupby(["contender", "seed"], sort=False)
        return [(run["contender"].iloc[0], int(run["seed"].iloc[0]), run) for _, run in groups]

    def _accuracy(self, run: pd.DataFrame, at: ArrayLike) -> NDArray[np.float64]:
        measured = run[run[METRIC].notna()]
        spent = measured[self.budget].to_numpy(dtype=float)
        if not len(spent) or np.max(at) > spent[-1] * (1 + 1e-9) or np.min(at) < spent[0]:
            name, seed = run["contender"].iloc[0], run["seed"].iloc[0]
            reach = f"from {spent[0]:g} to {spent[-1]:g} {self.budget}" if len(spent) else "nowhere"
            raise ValueError(
                f"amount: the evaluations of {name}, seed {seed}, reach {reach}; got {np.max(at):g} {self.budget}"
            )
        return np.interp(np.asarray(at, dtype=float), spent, measured[METRIC].to_numpy(dtype=float))


def _sentence(row: Mapping[Any, Any]) -> str:
    size, seeds = row["difference"], row["seeds"]
    where = f"{abs(size):.3f} {'above' if size > 0 else 'below'}" if abs(size) >= 0.0005 else "level with"
    said = f"{row['contender']} ends {where} {row['against']}"
    if row["exceeds"] is None:
        return f"{said}; {seeds} seed{'s'[: seeds > 1]} of a side {'are' if seeds > 1 else 'is'} too few to say more."
    verdict = "exceeds" if row["exceeds"] else "does not exceed"
    few = (
        "; with so few seeds, one pair of equals in eight would pass for different"
        if seeds == 3 and row["exceeds"]
        else ""
    )
    return f"{said} (95 % interval {row['low']:+.3f} to {row['high']:+.3f}): this {verdict} the seeds' spread{few}."


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
    hub name; the task's own unless given) until it has used the amount of the budget: responses sampled, optimizer updates, or
    seconds of training. `steps` and `evaluate_every` of its settings are not used: held-out accuracy is measured ten times on
    the way and at the end.
    amount: unless given what 60 default steps of GRPO use. out: folder of the comparison, in which each run is an ordinary run
    folder; unless given runs/compare-001, or the number of the same comparison begun before. Runs that are complete are not
    trained again, others go on where they stopped, to the same curve (but for seconds); a higher amount or more seeds may be
    asked for. Stop by pulling no more and `close()`.
    jobs: runs at once, each in a process of its own; a single one is made in this process. on: the engine that runs them,
    local, ray, or ray:ADDRESS of a cluster that shares this folder.

    Raises ValueError for what cannot be compared, and for a folder that holds runs of other settings.
    """
    contenders = list(contenders)
    if isinstance(seeds, int):
        check_seeds(seeds)
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    limit = AMOUNTS.get(budget, 0) if amount is None else amount
    the_task = find_task(task) if isinstance(task, str) else task
    _check(contenders, chosen, budget, limit)
    check_where(jobs, on)
    source = start_of(the_task) if policy is None else str(policy)
    _check_each(contenders, the_task, source, device, budget)
    plan = {
        "rlviz": rlviz.__version__,
        **the_task.described,
        "policy": source,
        "budget": budget,
        "amount": limit,
        "contenders": {
            c.name: {"algorithm": to_json(c.algorithm), "settings": shared_settings(c)}
            | ({} if c.reference is None else {"reference": c.reference})
            for c in contenders
        },
    }
    folder = _folder_of(plan) if out is None else Path(out)
    read_plan(folder)  # a damaged one is not written over
    to_do = [
        BudgetedRun(folder / f"{contender.slug}-seed{seed}", contender, seed, the_task, source, device, budget, limit)
        for seed in chosen
        for contender in contenders
    ]
    for job in to_do:
        job.check_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "comparison.json", {**plan, "seeds": chosen})
    except OSError as error:
        raise OSError(f"out: {folder} cannot be made or written ({error.strerror})") from error
    return Comparing(folder, to_do, jobs, on)


class Comparing(Running[BudgetedRun, RunProgress]):
    """A comparison in progress. folder: where its runs are kept."""

    at_once = False  # a step is made to its end, and kept

    def __init__(self, folder: Path, every: Sequence[BudgetedRun], jobs: int | None, on: str) -> None:
        self.folder = folder
        super().__init__(every, {run.key for run in every if run.complete}, jobs=jobs, on=on)

    def keep(self, key: tuple[str, int], now: RunProgress) -> tuple[RunProgress, bool]:
        return now, now.done

    def result(self) -> Comparison:
        """Train what is left, and return the comparison."""
        self.finish()
        first = self.all[0]
        frame = pd.concat([run_frame(j.folder, j.contender.name, j.seed) for j in self.all], ignore_index=True)
        names = list(dict.fromkeys(job.contender.name for job in self.all))
        order = frame["contender"].map(names.index)
        frame = frame.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)
        return Comparison(frame, first.task.name, first.budget, first.amount)


@checked
def read_comparison(
    folders: Sequence[str | os.PathLike[str]], *, budget: Budget = "responses", amount: float | None = None
) -> Comparison:
    """Return the comparison of runs on disk, finished or not: those of one algorithm and settings are a contender's seeds.

    folders: of runs, or folders that hold such. amount: unless given as far as the evaluations of all of them reach.
    Raises FileNotFoundError where there is no run, ValueError for runs of different tasks, for two of one seed, and for runs
    that have no evaluation or sample no responses where they are the budget.
    """
    if budget not in BUDGETS:
        raise ValueError(f"budget must be one of {', '.join(BUDGETS)}; got {budget!r}")
    runs = [run for folder in folders for run in _runs_in(Path(folder))]
    contenders = _contenders_among(runs)
    tasks = {
        " ".join(run.config.get(name) or "" for name in ("task", "rule", "rows")).strip(): run.path for run in runs
    }
    if len(tasks) > 1:
        (one, here), (other, there), *_ = tasks.items()
        raise ValueError(f"the runs are of different tasks: {here} of {one}, {there} of {other}; compare within one")
    parts = []
    for name, members in contenders.items():
        for seed, run in sorted(members.items()):
            frame = run_frame(run.path, name, seed)
            if not (frame[METRIC].notna() & (frame["step"] > 0)).any():
                raise ValueError(f"the run in {run.path} has no evaluation on held-out prompts yet")
            if frame[budget].isna().any():
                raise ValueError(PAIRS.format(name))
            parts.append(frame)
    reach = min(part.loc[part[METRIC].notna(), budget].iloc[-1] for part in parts)
    return Comparison(
        pd.concat(parts, ignore_index=True), runs[0].config["task"], budget, reach if amount is None else amount
    )


def _runs_in(folder: Path) -> list[RunFolder]:
    """Return the run in the folder, or the runs in its folders: of a comparison its contenders in their order."""
    if (folder / "config.json").is_file() or not folder.is_dir():
        return [RunFolder.open(folder)]
    plan = read_plan(folder)
    order = [slug_of(name) for name in plan["contenders"]] if plan else []
    parts = [part for part in sorted(folder.iterdir()) if (part / "config.json").is_file()]
    slugs = [part.name.rpartition("-seed")[0] for part in parts]
    ranks = [order.index(slug) if slug in order else len(order) for slug in slugs]
    return [RunFolder(part) for _, part in sorted(zip(ranks, parts, strict=True))] or [RunFolder.open(folder)]


def _contenders_among(runs: Sequence[RunFolder]) -> dict[str, dict[int, RunFolder]]:
    """Return name → seed → run; a name says what its runs have that others of the same algorithm have not."""
    groups: dict[str, dict[int, RunFolder]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for run in runs:
        config = run.config
        seed, own = settings_from(config["settings"]).seed, _facts(run, config)
        key = json.dumps(own, sort_keys=True)
        other = groups.setdefault(key, {}).get(seed)
        if other is not None:
            raise ValueError(f"{other.path} and {run.path} are the same run twice: {own['name']} with seed {seed}")
        groups[key][seed] = run
        facts[key] = own
    named = {}
    for key, members in groups.items():
        own = facts[key]
        namesakes = [other for other in facts.values() if other["name"] == own["name"]]
        differ = [
            name for name, value in own.items() if any(name not in other or other[name] != value for other in namesakes)
        ]
        said = ", ".join(_said(name, own[name]) for name in differ)
        named[f"{own['name']} ({said})" if said else own["name"]] = members
    return named


def _facts(run: RunFolder, config: Mapping[str, Any]) -> dict[str, Any]:
    settings = {name: value for name, value in config["settings"].items() if name not in NOT_SHARED}
    reward = "learned" if (run.path / "reward_model").is_dir() else "rule"
    return {
        "task": config["task"],
        **_flat(config["algorithm"]),
        **settings,
        "policy": config["policy"],
        "reward": reward,
        "reference": config.get("reference"),
    }


def _flat(described: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in described.items():
        flat |= _flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return flat


def _said(name: str, value: Any) -> str:
    if name.endswith("piece"):
        return str(value).partition(":")[2]
    return f"no {name}" if value is None else f"{name.rpartition('.')[2]} {value}"


def _check(contenders: Sequence[Contender], seeds: Sequence[int], budget: str, amount: float) -> None:
    if not contenders:
        raise ValueError("contenders must be one or more; got none")
    slugs = [contender.slug for contender in contenders]
    for contender in contenders:
        if not contender.slug or slugs.count(contender.slug) > 1:
            raise ValueError(f"contenders must have names of their own, in letters or digits; got {contender.name!r}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be at least 1, or different numbers; got {list(seeds)}")
    if budget not in BUDGETS:
        raise ValueError(f"budget must be one of {', '.join(BUDGETS)}; got {budget!r}")
    if not 0 < amount < float("inf"):
        raise ValueError(f"amount must be above 0 and finite; got {amount}")


def _check_each(contenders: Sequence[Contender], task: Task, policy: str, device: str, budget: str) -> None:
    """Refuse before any training what would be refused at the beginning of a run."""
    loaded = load_policy(policy, device=device)
    for contender in contenders:
        algorithm = contender.algorithm
        if isinstance(algorithm, PreferenceOptimization):
            if budget == "responses":
                raise ValueError(PAIRS.format(contender.name))
        else:
            train(loaded, task, algorithm, settings_of(contender), reference=contender.reference)


def _folder_of(plan: Mapping[str, Any]) -> Path:
    """Return the folder under runs/ where this comparison was begun, or a new one."""
    wanted = json.loads(json.dumps(plan))
    for number in count(1):
        folder = Path("runs") / f"compare-{number:03d}"
        if not folder.exists():
            return folder
        begun = read_plan(folder) or {}
        if {name: value for name, value in begun.items() if name != "seeds"} == wanted:
            return folder
    raise AssertionError
