"""The benchmarks are run by hand; here it is seen that they still fit the library."""

import runpy
from pathlib import Path

import pytest

from small_models.policies import load_policy

FOLDER = Path(__file__).parent / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("bench_*.py"))


def test_there_are_benchmarks():
    assert {"bench_sampling.py", "bench_touch.py", "bench_trl.py", "bench_update.py"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_benchmark_imports_is_there(script, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    assert callable(runpy.run_path(str(FOLDER / script), run_name="imported")["main"])


def test_an_update_is_timed_once_each_in_place_of_eighty_times(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    timed = runpy.run_path(str(FOLDER / "bench_update.py"), run_name="imported")
    compare, all_rounds = timed["compare_with_bare"], timed["interleave"]
    monkeypatch.setitem(
        compare.__globals__, "interleave", lambda what, rounds: all_rounds(what, rounds=rounds // 80, warm_up=0)
    )
    compare(load_policy("chain", device="cpu"), 2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[1] for line in lines[2:]] == [
        timed[name] for name in ("OURS", "BARE", "PACKED", "PRODUCTS")
    ]
