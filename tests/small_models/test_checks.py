"""What the checks let pass: what they refuse is in tests/refusals."""

import numpy as np

from small_models.checks import check_fields
from tests.refusals.small_models import WithTable, of_pairs
from tests.refusals.things import PAIRS


def test_what_is_annotated_for_type_checkers_alone_is_not_checked():
    check_fields(WithTable(1, None, "x"))


def test_arrays_are_lists_where_what_is_in_them_fits():
    assert of_pairs(np.array(PAIRS, dtype=object), np.arange(3)) == 2
