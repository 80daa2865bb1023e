"""Every study is run by one runner: cut off and begun again it ends as if nothing had stopped it, and Ctrl-C ends it at once."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import pandas as pd
import pytest

from rlviz import DAPO, DCPO, GRPO, TrainSettings
from rlviz.study import Contender, MapSettings, Trials, borrow, compare, find_claim, regime_map
from rlviz.study.runner import Running

FREE = replace(GRPO, kl=None)
PAIR = borrow(DCPO, FREE, ["bounds"]), FREE
TINY = TrainSettings(num_prompts=2, group_size=4, details_every=0)
BOTH = [Contender("GRPO", FREE, TINY), Contender("DAPO", DAPO, TINY)]


def comparison(folder):
    made = compare(BOTH, seeds=2, amount=32, out=folder)
    return made, lambda: made.result().frame.drop(columns=["seconds", "step_seconds"])


def table_map(folder):
    quick = MapSettings(replicas=3, steps=2)
    made = regime_map(*PAIR, x_values=[1, 2], y_values=[1, 2], settings=quick, out=folder / "map.csv")
    return made, made.result


def trials(folder):
    made = Trials([find_claim("entropy_knobs")], range(3), folder, scale=0.004)
    return made, lambda: made.finish() or made.frame(find_claim("entropy_knobs"))


@pytest.mark.parametrize(
    ("study", "stops"),
    [(comparison, (1, 3, 6)), (table_map, (1, 2)), (trials, (1, 1))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_cut_off_and_begun_again_it_ends_equal(study, stops, tmp_path):
    whole = study(tmp_path / "whole")[1]()
    left = []
    for pulled in stops:
        made, _ = study(tmp_path / "parts")
        left.append(len(made.missing))
        begun = made.share
        for _ in range(pulled):
            next(made)
        assert begun <= made.share < 1
        made.close()
        assert list(made) == []
    made, result = study(tmp_path / "parts")
    left.append(len(made.missing))
    assert left[0] == len(made.all) and 0 < left[-1] < left[0]  # what is kept is not done again
    pd.testing.assert_frame_equal(result(), whole)
    assert made.share == pytest.approx(1)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").rglob("*.*l*") if path.name != ".lock"}
    again, result = study(tmp_path / "parts")
    assert again.missing == [] and list(again) == []
    pd.testing.assert_frame_equal(result(), whole)
    after = {path: path.stat().st_mtime_ns for path in before}
    assert {path for path in before if after[path] != before[path]} <= {tmp_path / "parts/comparison.json"}


class Halves:
    """A job of two reports."""

    def __init__(self, key, cost):
        self.key, self.cost = key, cost

    def run(self):
        yield "half"
        yield "done"


def test_a_job_counts_by_its_cost_once_it_is_done():
    class Counted(Running):
        def keep(self, key, report):
            return (key, report), report == "done"

    made = Counted([Halves("a", 1), Halves("b", 3), Halves("c", 4)], {"c"}, jobs=1, on="local")
    assert [(step, made.share) for step in made] == [
        (("a", "half"), 0.5), (("a", "done"), 0.625), (("b", "half"), 0.625), (("b", "done"), 1.0),
    ]  # fmt: skip
    assert [job.key for job in made.missing] == ["a", "b"]


def alive(group):
    with suppress(ProcessLookupError):
        return os.killpg(group, 0) is None
    return False


def test_ctrl_c_keeps_what_is_done_and_ends_the_others(tmp_path, default_signals):
    of_tiny_trials = (
        "from rlviz.study.claim import Trials; Trials.__init__.__kwdefaults__['scale'] = 0.004; "
        "from rlviz.cli import main; main()"
    )
    given = ["experiment", "entropy_knobs", "--seeds", "500", "--jobs", "2", "--out", str(tmp_path)]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    process = subprocess.Popen([sys.executable, "-c", of_tiny_trials, *given], **piped)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("trials/*.csv")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "The trials that are done are kept" in output and "Traceback" not in output
    done = list(tmp_path.glob("trials/*.csv"))
    assert 1 <= len(done) < 500 and all(len(pd.read_csv(file)) > 10 for file in done)
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not alive(process.pid)
