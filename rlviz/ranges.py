"""The range of a number, declared where the number is: said in words, and checked. Needs no torch."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from small_models.checks import check_fields, check_type, short_repr

T = TypeVar("T")
HOLDS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}
SEEDS = 2**63  # how many a random generator takes


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a number must keep to."""

    limits: Mapping[str, float]  # a key of HOLDS → the limit
    reason: str = ""  # why the range is what it is, where that does not go without saying
    finite: bool = False  # whether infinity is refused, where no limit refuses it

    @property
    def range(self) -> str:
        """The range in words, such as "at least 0 and below 1"; nothing where every number will do."""
        words = [f"{word} {'2**63' if limit == SEEDS else limit}" for word, limit in self.limits.items()]
        return " and ".join([*words, "finite"] if self.finite else words)

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError, with parameter, value and range, for a number that is not in it."""
        inside = all(HOLDS[words](value, limit) for words, limit in self.limits.items())
        if not inside or (self.finite and math.isinf(value)):
            reason = f" ({self.reason})" if self.reason else ""
            raise ValueError(f"{name} must be {self.range}{reason}; got {short_repr(value)}")


def limits_of(
    at_least: float | None = None, above: float | None = None, at_most: float | None = None, below: float | None = None
) -> dict[str, float]:
    """Return the limits that are given, by their words."""
    limits = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    return {words: limit for words, limit in limits.items() if limit is not None}


def within(default: T | Any = MISSING, *, reason: str = "", finite: bool = False, **limits: float) -> T | Any:
    """Return the field of a dataclass that declares the range of its number; see `Limits` and `limits_of`."""
    declared = Limits(limits=limits_of(**limits), reason=reason, finite=finite)
    return field(default=default, metadata={"range": declared})


def ranges(kind: Any) -> dict[str, Limits]:
    """Return name → range of the fields of a dataclass that declare one."""
    return {f.name: f.metadata["range"] for f in fields(kind) if "range" in f.metadata}


def check_ranges(instance: Any) -> None:
    """Raise ValueError, with parameter, value and range, for a field of a dataclass that is out of its declared range."""
    for name, declared in ranges(instance).items():
        check_type(name, value := getattr(instance, name), float)
        declared.check(name, value)


class Checked:
    """A dataclass that refuses a field of another type, or out of its declared range, when it is built."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_ranges(self)
