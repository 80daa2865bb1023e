"""What the checks of types let pass and refuse: annotations that only type checkers know, arrays in place of lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from small_models.checks import check_fields, checked
from small_models.pairs import Pair
from tests.refusals.sentence import refused
from tests.refusals.things import PAIRS

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Base:
    """A field that a class inherits."""

    size: int


@dataclass
class WithTable(Base):
    """A field whose type is known to type checkers alone."""

    table: pd.DataFrame
    name: str


@checked
def count(pairs: Sequence[Pair], numbers: Sequence[float] = ()) -> int:
    return len(pairs)


def test_what_is_annotated_for_type_checkers_alone_is_not_checked():
    check_fields(WithTable(1, None, "x"))
    refused(lambda: check_fields(WithTable("x", None, "x")), "size must be a whole number; got 'x'")
    refused(lambda: check_fields(WithTable(1, None, 2)), "name must be a text; got 2")


def test_arrays_are_lists_where_what_is_in_them_fits():
    assert count(np.array(PAIRS, dtype=object), np.arange(3)) == 2
    for wrong in ("xy", {}, [PAIRS], torch.ones(2), np.array([1, 2]), np.array([None]), np.array(3)):
        refused(partial(count, wrong), "pairs must be a list of Pair; got ")
    refused(lambda: count([], np.array(3.0)), "numbers must be a list of numbers; got ")
