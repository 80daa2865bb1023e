"""What a run folder holds, read with its types checked: config, lines of metrics and samples, summary, a comparison's plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from rlviz.settings import settings_from
from rlviz.types import GroupRecord, PairRecord, StepRecord, TokenRecord
from small_models import paths
from small_models.checks import shown
from small_models.files import as_json, convert, parse, read_file, read_lines, said, with_nan
from small_models.pairs import Pair

LONGEST_NAME, LONGEST_PATH = 200, 4096  # characters
MOST_STEPS = 10**9
ADVICE = "it is damaged or was written by another version of rlviz, so restore it from a copy, or train again"
F = TypeVar("F", bound=Callable[..., Any])


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
    path: paths.Path = "transformers"  # of runs made before there was another
    rule: str | None = None  # of a task from a file
    rows: str | None = None  # what its file is known by
    lacking: list[str] = field(default_factory=list)  # columns that an imported run has not


@dataclass(frozen=True)
class _Step:
    step: int


@dataclass(frozen=True)
class _Samples(_Step):
    groups: tuple[GroupRecord, ...]


@dataclass(frozen=True)
class _Summary:
    accuracy_before: float


@dataclass(frozen=True)
class _State(_Step):
    train_seconds: float
    tokens_sampled: int
    beta: float | None = None
    reward_loss: float | None = None
    reward_pairs: list[Pair] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    tensors: int | None = None  # how many stand beside it; of checkpoints made before they were counted


@dataclass(frozen=True)
class _Plan:
    contenders: dict[str, Any]


def with_advice(read: F) -> F:
    """Return a reader of a run's folder whose ValueError also says what to do about damage."""

    @wraps(read)
    def advised(folder: Any) -> Any:
        try:
            return read(folder)
        except ValueError as error:
            raise ValueError(f"{error}; {ADVICE}") from None

    return advised  # type: ignore[return-value]


@with_advice
def read_config(folder: Path) -> dict[str, Any]:
    """Return config.json, whose task, policy, algorithm and settings are such as `train` writes. Raises ValueError."""
    file = folder / "config.json"
    value = parse(read_file(file), said(file))
    config = convert(value, _Config, said(file))
    for place, name, longest in (
        ("task", config.task, LONGEST_NAME),
        ("policy", config.policy, LONGEST_PATH),
        ("algorithm.name", config.algorithm.name, LONGEST_NAME),
        ("rule", config.rule or "none", LONGEST_PATH),
    ):
        if not (0 < len(name) <= longest and name.isprintable()):
            raise ValueError(f"{said(file)}: {place} must be 1 to {longest} printable characters; got {shown(name)}")
    try:
        settings_from(config.settings)
    except ValueError as error:
        raise ValueError(f"{said(file)}: settings: {error}") from None
    return {**value, "path": config.path}


@with_advice
def accuracy_before(folder: Path) -> float | None:
    """Return held-out accuracy before the first step from summary.json, None where there is no summary. Raises ValueError."""
    file = folder / "summary.json"
    return convert(parse(read_file(file), said(file)), _Summary, said(file)).accuracy_before if _there(file) else None


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the counters in a checkpoint's training.json. Raises ValueError."""
    file = checkpoint / "training.json"
    value = parse(read_file(file), said(file))
    convert(value, _State, said(file))
    return value


@with_advice
def read_plan(folder: Path) -> dict[str, Any] | None:
    """Return comparison.json, whose contenders go by their names; None where there is none. Raises ValueError."""
    file = folder / "comparison.json"
    value = parse(read_file(file), said(file)) if _there(file) else None
    if _there(file):
        convert(value, _Plan, said(file))
    return value


def _there(file: Path) -> bool:
    return os.path.lexists(file)


def read_rows(file: Path) -> list[tuple[str, dict[str, Any], Any]]:
    """Return for each line of metrics.jsonl or samples.jsonl where it stands, the line, and it as its type: the step's record
    without groups, or its groups; none where there is no file.

    A last line that a crash cut short is left out. Raises ValueError for other damage, and where steps do not grow.
    """
    typed = {"metrics": _record, "samples": _groups}[file.stem]
    rows: list[tuple[str, dict[str, Any], Any]] = []
    before = 0
    for where, row in read_lines(file, growing=True) if _there(file) else ():
        step = convert(row, _Step, where).step
        if not 1 <= step <= MOST_STEPS:
            raise ValueError(f"{where}: step must be from 1 to {MOST_STEPS:,}; got {step}")
        if step <= before:
            raise ValueError(f"{where}: step must be above that of the line before ({before}); got {step}")
        rows.append((where, row, typed(row, where)))
        before = step
    return rows


def _groups(row: dict[str, Any], where: str) -> tuple[GroupRecord, ...]:
    groups = _typed(row, _Samples, where).groups
    for g, group in enumerate(groups):
        if not group.responses:
            raise ValueError(f"{where}: groups[{g}].responses must hold at least one response; got []")
        for r, response in enumerate(group.responses):
            for t, token in enumerate(response.tokens):
                _check_ranges(token, f"{where}: groups[{g}].responses[{r}].tokens[{t}]")
    return groups


def _check_ranges(token: TokenRecord, where: str) -> None:
    """Refuse what cannot be: a probability or a ratio out of its range, which would be taken the logarithm of."""
    for name in ("old_prob", "new_prob", "ref_prob", "sampler_prob", "ratio"):
        value, most = getattr(token, name), math.inf if name == "ratio" else 1 + 1e-6
        if value is not None and not math.isnan(value) and not 0 <= value <= most:
            allowed = "0 or above" if name == "ratio" else "from 0 to 1"
            raise ValueError(f"{where}.{name} must be {allowed}; got {as_json(value)}")


def _record(row: dict[str, Any], where: str) -> StepRecord | PairRecord:
    return _typed({**row, "groups": []}, PairRecord if "margin" in row else StepRecord, where)


def _typed(row: dict[str, Any], kind: Any, where: str) -> Any:
    """Return a row as its type; where a number is lacking, because it was not finite, not a number."""
    try:
        return convert(row, kind, where)
    except ValueError:
        return convert(with_nan(row, kind), kind, where)
