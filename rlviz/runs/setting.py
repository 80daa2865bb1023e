"""What a run is trained with, as one value: its parameters, what changed since another one, and the lines that reproduce it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import rlviz.algorithms
from rlviz.algorithms import GroupPolicyGradient, command_name, differences, numbers
from rlviz.pieces.kl import KLInLoss
from rlviz.settings import RECORDS, TrainSettings, declarations
from small_models.tasks import Task

WORDS = {"lr": "learning rate", "seed": "first seed"}  # other settings are called as in the code, with spaces
HOMES = {
    "KLInLoss": "rlviz.pieces.kl",
    "TrainSettings": "rlviz.training",
    "playground": "rlviz",
    "replace": "dataclasses",
}


@dataclass(frozen=True)
class Setting:
    """What Train trains: so many seeds of an algorithm on a task, the first seed being that of the settings."""

    task: Task
    algorithm: GroupPolicyGradient
    settings: TrainSettings
    seeds: int = 1


def words_for(name: str) -> str:
    """Return a training setting in words."""
    return WORDS.get(name, name.replace("_", " "))


def parameters(algorithm: GroupPolicyGradient) -> dict[str, int | float]:
    """Return the numbers in an algorithm's pieces by name, and beta: 0 where there is no KL term."""
    return {**numbers(algorithm), "beta": 0.0} if algorithm.kl is None else numbers(algorithm)


def with_values(algorithm: GroupPolicyGradient, values: Mapping[str, float]) -> GroupPolicyGradient:
    """Return the algorithm with these parameters; beta 0 takes its KL term out, any other one puts one in where there is none.

    Raises ValueError for a value out of its piece's range.
    """
    now = parameters(algorithm)
    new = {name: value for name, value in values.items() if value != now[name]}
    if algorithm.kl is None and "beta" in new:
        algorithm = replace(algorithm, kl=KLInLoss(beta=new["beta"]))
    elif new.get("beta") == 0:
        algorithm = replace(algorithm, kl=None)
        del new["beta"]
    return algorithm.with_parameters(**new)


def _differing(before: Any, after: Any) -> list[str]:
    """Return in words in which fields two pieces of one kind differ; nothing for pieces of two kinds."""
    if type(before) is not type(after) or not is_dataclass(before):
        return []
    pairs = [(field.name, getattr(before, field.name), getattr(after, field.name)) for field in fields(before)]
    return [f"{name} {_short(old)} → {_short(new)}" for name, old, new in pairs if old != new]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else getattr(value, "__name__", str(value))


def changed(before: Setting, now: Setting) -> list[tuple[str, str]]:
    """Return what differs as (what, why): "bounds: eps_high 0.2 → 0.28" and the reason; settings have none."""
    rows: list[tuple[str, str]] = []
    if before.task.name != now.task.name:
        rows.append((f"task {before.task.name} → {now.task.name}", ""))
    if before.algorithm.name != now.algorithm.name:
        rows.append((f"{before.algorithm.name} → {now.algorithm.name}", ""))
    old, new = before.algorithm.slots(), now.algorithm.slots()
    for row in differences(before.algorithm, now.algorithm):
        numbers = _differing(old.get(row.slot), new.get(row.slot))
        rows.append((f"{row.slot}: {', '.join(numbers) or f'{row.before} → {row.after}'}", row.why))
    for field in fields(TrainSettings):
        a, b = getattr(before.settings, field.name), getattr(now.settings, field.name)
        if a != b:
            rows.append((f"{words_for(field.name)} {_short(a)} → {_short(b)}", ""))
    if before.seeds != now.seeds:
        rows.append((f"seeds {before.seeds} → {now.seeds}", ""))
    return rows


def in_short(before: Setting, now: Setting) -> str:
    """Return what differs in a line; of another algorithm the names of its slots only."""
    rows = [what for what, _ in changed(before, now)]
    a, b = before.algorithm, now.algorithm
    if a.name != b.name:
        slots = [row.slot for row in differences(a, b)]
        of_slots = [what for what in rows if what.partition(":")[0] in slots]
        place = rows.index(f"{a.name} → {b.name}")
        rows[place] += f" ({', '.join(slots)})" if slots else ""
        rows = [what for what in rows if what not in of_slots]
    return "; ".join(rows)


def call(setting: Setting, base: GroupPolicyGradient, name: str) -> tuple[str, str]:
    """Return the Python line that reproduces a setting, and the line of imports that it needs.

    base: the algorithm that the setting's is made from; name: what it is called in Python.
    """
    algorithm = _expression(setting.algorithm, base, name)
    arguments = [repr(setting.task.name), f"algorithm={algorithm}"]
    other = _other_than_default(setting.settings)
    if other:
        arguments.append(f"settings=TrainSettings({', '.join(f'{n}={v!r}' for n, v in other.items())})")
    if setting.seeds != 1:
        arguments.append(f"seeds={setting.seeds}")
    line = f"playground({', '.join(arguments)})"
    imports = [f"from {home} import {what}" for what, home in HOMES.items() if f"{what}(" in line]
    if hasattr(rlviz.algorithms, name):
        imports.append(f"from rlviz.algorithms import {name}")
    return line, "; ".join(sorted(imports))


def _expression(algorithm: GroupPolicyGradient, base: GroupPolicyGradient, name: str) -> str:
    now, before = parameters(algorithm), parameters(base)
    new = {n: v for n, v in now.items() if v != before[n]}
    term = ""
    if (algorithm.kl is None) != (base.kl is None):
        new.pop("beta", None)
        term = "None" if algorithm.kl is None else f"KLInLoss(beta={now['beta']!r})"
    words = f"{name}.with_parameters({', '.join(f'{n}={v!r}' for n, v in new.items())})" if new else name
    return f"replace({words}, kl={term})" if term else words


def _other_than_default(settings: TrainSettings) -> dict[str, Any]:
    default = TrainSettings()
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {name: value for name, value in values.items() if value != getattr(default, name)}


def command(setting: Setting, base: GroupPolicyGradient) -> str:
    """Return the `rlviz train` line of the first seed, empty where the command line has no option for a parameter."""
    now, before = parameters(setting.algorithm), parameters(base)
    options: dict[str, Any] = {n: v for n, v in now.items() if v != before[n]}
    if not {"eps_low", "eps_high", "beta"} >= set(options):
        return ""
    declared = declarations(TrainSettings)  # what is only recorded leaves the run the same
    options |= {n: v for n, v in _other_than_default(setting.settings).items() if declared[n].panel != RECORDS}
    options["beta"] = now.get("beta", 0.0)
    words = [
        f"--{name.replace('_', '-')} {value!r}" for name, value in options.items() if (name, value) != ("beta", 0.0)
    ]
    return " ".join(["rlviz train", f"--algorithm {command_name(base)}", f"--task {setting.task.name}", *words])
