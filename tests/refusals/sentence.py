"""The rule of every refusal: one plain sentence that names the parameter, what came, and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import pytest

from rlviz.ranges import SEEDS, Limits

PYTHON = re.compile(
    r"not supported|unexpected|NoneType|positional|object has no|cannot be interpreted|not iterable|unhashable|supplied|overflow"
    r"|invalid literal|to unpack|scalar type|could not convert"
)
LONGEST = 400  # characters of a sentence
JUST = {"at least": -1, "above": 0, "at most": 1, "below": 0}  # a limit and this many steps are just outside


def check_sentence(sentence: str, *words: str) -> None:
    """Fail unless a refusal is one short line in which these words stand."""
    assert "\n" not in sentence and len(sentence) < LONGEST, sentence
    for word in words:
        assert word in sentence, f"{word!r} is not in: {sentence}"


def refused(call: Callable[[], object], *words: str) -> None:
    """Fail unless a call is refused by a sentence with these words."""
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        call()
    check_sentence(str(caught.value), *words)
    if not isinstance(caught.value, TypeError):  # of a function that does not fit, Python says best why
        assert not PYTHON.search(str(caught.value)), caught.value


def outside(declared: Limits, is_int: bool) -> Iterator[float]:
    """Give the values just outside of a declared range, and infinity where it must be finite."""
    for words, limit in declared.limits.items():
        if limit != SEEDS:  # which no torch takes: another sentence
            yield limit + JUST[words] * (1 if is_int else 1e-6)
    if declared.finite:
        yield math.inf
