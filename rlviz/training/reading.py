"""What a run folder holds, read with its types checked: config, lines of metrics and samples, summary, a comparison's plan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlviz.settings import settings_from
from rlviz.types import GroupRecord, PairRecord, StepRecord
from small_models.adapters import BaseError
from small_models.checks import short_repr
from small_models.files import convert, display_path, nulls_to_nan, parse, read_file, read_json, read_lines
from small_models.pairs import Pair
from small_models.policies import ComputePath

LONGEST = 4096  # characters of a name or a path
MOST_STEPS = 10**9
ADVICE = "it is damaged or was written by another version of rlviz, so restore it from a copy, or train again"


@dataclass(frozen=True)
class _Described:
    piece: str
    name: str


@dataclass(frozen=True)
class _Config:
    task: str
    policy: str
    algorithm: _Described
    settings: dict[str, Any]
    reference: str | None = None  # where it came from, if one was given
    path: ComputePath = "transformers"  # of runs made before there was another
    rule: str | None = None  # of a task from a file
    rows: str | None = None  # what its file is known by
    reward: str | None = None  # the name of a function that rewards in place of the task
    lacking: list[str] = field(default_factory=list)  # columns that an imported run has not


@dataclass(frozen=True)
class _Samples:
    step: int
    groups: tuple[GroupRecord, ...]


@dataclass(frozen=True)
class _Summary:
    accuracy_before: float | None


@dataclass(frozen=True)
class _State:
    step: int
    train_seconds: float
    tokens_sampled: int
    beta: float | None = None
    reward_loss: float | None = None
    reward_pairs: list[Pair] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Plan:
    contenders: dict[str, Any]


@contextmanager
def with_advice() -> Iterator[None]:
    """Within it, or in a function that it decorates, a ValueError also says what to do about damage."""
    try:
        yield
    except BaseError:  # nothing of the run is damaged
        raise
    except ValueError as error:
        raise ValueError(f"{error}; {ADVICE}") from None


@with_advice()
def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json, whose task, policy, algorithm and settings are such as `train` writes. Raises ValueError."""
    file = folder / "config.json"
    value = _read(file, _Config)
    config = convert(value, _Config, display_path(file))
    names = {
        "task": config.task,
        "algorithm.name": config.algorithm.name,
        "policy": config.policy,
        "rule": config.rule or "",
    }
    for place, name in names.items():  # they are printed, and a terminal obeys other characters
        if len(name) > LONGEST or not name.isprintable():
            allowed = f"at most {LONGEST:,} printable characters"
            raise ValueError(f"{display_path(file)}: {place} must be {allowed}; got {short_repr(name)}")
    try:
        settings_from(config.settings)
    except ValueError as error:
        raise ValueError(f"{display_path(file)}: settings: {error}") from None
    return {**value, "path": config.path}


@with_advice()
def accuracy_before(folder: Path) -> float | None:
    """Return held-out accuracy before the first step from summary.json, None where it was not measured. Raises ValueError."""
    file = folder / "summary.json"
    return read_json(file, _Summary).accuracy_before if os.path.lexists(file) else None


@with_advice()
def read_plan(folder: Path) -> dict[str, Any] | None:
    """Return comparison.json, whose contenders go by their names; None where there is none. Raises ValueError."""
    file = folder / "comparison.json"
    return _read(file, _Plan) if os.path.lexists(file) else None


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the counters in a checkpoint's training.json. Raises ValueError."""
    return _read(checkpoint / "training.json", _State)


def _read(file: Path, kind: type) -> dict[str, Any]:
    """Return a JSON file as it is, with what another version may have added, once it is of this kind."""
    value: dict[str, Any] = parse(read_file(file), display_path(file))
    convert(value, kind, display_path(file))
    return value


@with_advice()
def read_rows(file: Path) -> list[tuple[dict[str, Any], Any]]:
    """Return the lines of metrics.jsonl or samples.jsonl, none where there is no file: each as it stands, and as its type.

    That is a step's record without groups, or its groups. A last line that a crash cut short is left out.
    Raises ValueError for other damage, and where steps do not grow.
    """
    rows: list[tuple[dict[str, Any], Any]] = []
    before = 0
    for where, row in read_lines(file, growing=True) if os.path.lexists(file) else ():
        record = _groups(row, where) if file.stem == "samples" else _record(row, where)
        if not before < row["step"] <= MOST_STEPS:
            allowed = f"above {before}, that of the line before, and at most {MOST_STEPS:,}"
            raise ValueError(f"{where}: step must be {allowed}; got {row['step']}")
        rows.append((row, record))
        before = row["step"]
    return rows


def _record(row: Any, where: str) -> StepRecord | PairRecord:
    pairs = isinstance(row, dict) and "margin" in row
    return _typed({**row, "groups": []} if isinstance(row, dict) else row, PairRecord if pairs else StepRecord, where)


def _groups(row: Any, where: str) -> tuple[GroupRecord, ...]:
    groups: tuple[GroupRecord, ...] = _typed(row, _Samples, where).groups
    if not all(group.responses for group in groups):
        raise ValueError(f"{where}: responses of a group must be one or more; got []")
    return groups


def _typed(row: dict[str, Any], kind: Any, where: str) -> Any:
    """Return a row as its type; where a number is lacking, because it was not finite, not a number."""
    try:
        return convert(row, kind, where)
    except ValueError:
        return convert(nulls_to_nan(row, kind), kind, where)
