"""A run of all tests takes what is quick, and of what is slow the same parameters in each function."""

from types import SimpleNamespace

import pytest

from tests.quick_run import FOR_EACH, LONGEST, Measuring, left_out


class Item(SimpleNamespace):
    __hash__ = object.__hash__


def function(name, ids="abcdefghij", quick=None):
    marker = None if quick is None else SimpleNamespace(args=(quick,))
    return [Item(nodeid=f"t.py::{name}[{each}]", get_closest_marker=lambda name: marker) for each in ids]


def taken_of(items, **seconds):
    out = left_out(items, {f"t.py::{name}": each for name, each in seconds.items()})
    return [item.nodeid.partition("::")[2] for item in items if item not in out]


def test_what_is_not_known_to_be_slow_is_taken():
    assert taken_of(function("some", "abc"), slow=2.0) == ["some[a]", "some[b]", "some[c]"]


@pytest.mark.parametrize(("share", "count"), [(0.1, 10), (0.26, 3), (0.5, 2), (0.9, 1), (1.5, 1)])
def test_as_many_as_the_seconds_allow(share, count):
    assert len(set(taken_of(function("slow"), slow=share * FOR_EACH))) == count


def test_functions_take_the_same_parameters_and_a_slower_one_a_part_of_them():
    some = taken_of(function("one") + function("other") + function("slower"), one=0.3, other=0.3, slower=0.5)
    ids = {
        name: {each.partition("[")[2] for each in some if each.startswith(name + "[")}
        for name in ("one", "other", "slower")
    }
    assert ids["one"] == ids["other"] > ids["slower"] > set()


def test_what_takes_too_long_is_left_and_a_mark_has_the_last_word():
    assert taken_of(function("slow"), slow=LONGEST + 0.1) == []
    assert len(taken_of(function("slow", quick=2), slow=LONGEST + 0.1)) == 2
    assert taken_of(function("slow", quick=0)) == []


def test_solutions_are_left_and_lessons_are_taken():
    cells = [f"notebooks/{name}.ipynb::Cell {number}" for name in ("01_a", "solutions/01_a") for number in (0, 1)]
    items = [Item(nodeid=cell, get_closest_marker=lambda name: None) for cell in cells]
    assert [item.nodeid for item in items if item not in left_out(items, {})] == cells[:2]


def test_measured_is_what_takes_more_than_a_second_in_all_its_phases_and_parameters_but_no_cell_of_a_notebook(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tests.quick_run.SECONDS", tmp_path / "seconds.json")
    measuring = Measuring()
    for test, seconds in {
        "tests/t.py::a[0]": 0.4,
        "tests/t.py::a[1]": 0.8,
        "tests/t.py::b": 0.9,
        "n.ipynb::Cell 1": 9.0,
    }.items():
        for share in (0.5, 0.25, 0.25):  # setup, call, teardown
            measuring.pytest_runtest_logreport(SimpleNamespace(nodeid=test, duration=share * seconds))
    measuring.pytest_sessionfinish()
    assert (tmp_path / "seconds.json").read_text(encoding="utf-8") == '{\n"tests/t.py::a": 0.6\n}\n'
