"""What a run of all tests takes of the slow ones, so that it is done in minutes; `pytest --rest` takes the others.

`seconds.json`, written by `pytest tests --measure`, holds the mean seconds of each test function whose parameters together take
more than one. Of such a function a run of all tests takes as many parameters as FOR_EACH seconds allow, one at least, but none
where one takes more than LONGEST. Of a function or file marked `quick(n)` it takes n, whatever they take; 0 where what is slow is
made for the whole file. The parameters alone decide which, so that functions with the same ones share what is made for them.
The solutions' notebooks are left to the rest. Where files or folders are named, all of their tests run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

FOR_EACH, LONGEST = 0.7, 2.0
SOLUTIONS = "notebooks/solutions/"
SECONDS = Path(__file__).with_name("seconds.json")


def function_of(test: str) -> str:
    """Return a test's name without its parameters."""
    return test.partition("[")[0]


def part_of(config: pytest.Config) -> str:
    """Return "quick", "rest" or "all"."""
    if config.getoption("--rest"):
        return "rest"
    return "quick" if config.args_source is pytest.Config.ArgsSource.TESTPATHS else "all"


def left_out(items: list[pytest.Item], seconds: dict[str, float]) -> set[pytest.Item]:
    """Return those of `items` that a run of all tests leaves to `--rest`."""
    functions = defaultdict(list)
    for item in items:
        functions[function_of(item.nodeid)].append(item)
    return {item for item in items if item.nodeid.startswith(SOLUTIONS)} | {
        item
        for name, function in functions.items()
        for item in set(function) - set(taken(function, seconds.get(name, 0.0)))
    }


def taken(function: list[pytest.Item], seconds: float) -> list[pytest.Item]:
    """Return what a run of all tests takes of this function's tests, which take so many seconds each."""
    if marker := next(filter(None, (item.get_closest_marker("quick") for item in function)), None):
        count = marker.args[0]
    else:
        count = 0 if seconds > LONGEST else max(1, int(FOR_EACH / seconds)) if seconds else len(function)
    return sorted(function, key=lambda item: crc32(item.nodeid.partition("[")[2].encode()))[:count]


class Measuring:
    """A plugin that writes the seconds of all tests that ran."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.nodeid.startswith("tests/"):
            return  # a notebook's cells need those before them
        self.seconds[function_of(report.nodeid)][report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        slow = {
            name: round(sum(each.values()) / len(each), 2)
            for name, each in sorted(self.seconds.items())
            if sum(each.values()) > 1
        }
        SECONDS.write_text(json.dumps(slow, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
