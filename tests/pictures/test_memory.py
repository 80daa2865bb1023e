"""What a curve remembers: once for each key, and each time for what cannot be one."""

import pytest

from rlviz.pictures.arrays import remembered


@pytest.mark.parametrize(("arguments", "times"), [((1, "a"), 1), (([1], "a"), 2)])
def test_computed_once_where_the_arguments_can_be_a_key(arguments, times):
    seen = []

    @remembered(maxsize=4)
    def last(*values):
        seen.append(values)
        return values[-1]

    assert last(*arguments) == last(*arguments) == "a"
    assert seen == [arguments] * times


def test_the_oldest_goes_when_the_memory_is_full():
    seen = []
    double = remembered(maxsize=1)(lambda x: seen.append(x) or 2 * x)
    assert [double(x) for x in (1, 1, 2, 1)] == [2, 2, 4, 2]
    assert seen == [1, 2, 1]
