"""The benchmarks are run by hand; here it is seen that they still fit the library."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("bench_*.py"))


def test_there_are_benchmarks():
    assert {"bench_redraw.py", "bench_sampling.py", "bench_trl.py", "bench_update.py"} <= set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_benchmark_imports_is_there(script, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    assert callable(runpy.run_path(str(FOLDER / script), run_name="imported")["main"])
