"""One runner for every study: stopped and begun again it ends as if nothing had stopped it."""

from dataclasses import replace

import pandas as pd
import pytest

from rlviz import DAPO, DCPO, GRPO, TrainSettings
from rlviz.study import Contender, MapSettings, Trials, borrow, compare, find_claim, regime_map
from rlviz.study.runner import Running

FREE = replace(GRPO, kl=None)
TINY = TrainSettings(num_prompts=2, group_size=4, details_every=0)


def comparison(folder):
    both = [Contender("GRPO", FREE, TINY), Contender("DAPO", DAPO, TINY)]
    study = compare(both, seeds=2, amount=32, out=folder)
    return study, lambda: study.result().frame.drop(columns=["seconds", "step_seconds"])


def table_map(folder):
    grid = {"x_values": [1, 2], "y_values": [1, 2], "settings": MapSettings(replicas=3, steps=2)}
    study = regime_map(borrow(DCPO, FREE, ["bounds"]), FREE, **grid, out=folder / "map.csv")
    return study, study.result


def trials(folder):
    claim = find_claim("critic_cost")  # whose trials are read from a table
    study = Trials([claim], range(3), folder)
    return study, lambda: study.finish() or study.frame(claim)


@pytest.mark.parametrize(("begin", "stops"), [(comparison, (1, 3, 6)), (table_map, (1, 2)), (trials, (1, 1))])
def test_stopped_and_begun_again_it_ends_equal(begin, stops, tmp_path):
    expected = begin(tmp_path / "in one go")[1]()
    missing = []
    for steps in stops:
        study, _ = begin(tmp_path / "parts")
        missing.append(len(study.missing))
        share = study.share
        for _ in range(steps):
            next(study)
        assert share <= study.share < 1
        study.close()
        assert list(study) == []
    study, result = begin(tmp_path / "parts")
    assert 0 < len(study.missing) < missing[0] == len(study.all)  # what is done is not done again
    pd.testing.assert_frame_equal(result(), expected)
    assert study.share == pytest.approx(1)
    study, result = begin(tmp_path / "parts")
    assert study.missing == [] and list(study) == []
    pd.testing.assert_frame_equal(result(), expected)


class Halves:
    """A job of two reports."""

    def __init__(self, key, cost):
        self.key, self.cost = key, cost

    def run(self):
        yield "half"
        yield "done"


def test_a_job_counts_by_its_cost_once_it_is_done():
    class Study(Running):
        def save(self, key, report):
            return (key, report), report == "done"

    study = Study([Halves("a", 1), Halves("b", 3), Halves("c", 4)], {"c"}, jobs=1, on="local")
    shares = [(step, study.share) for step in study]
    assert shares == [(("a", "half"), 0.5), (("a", "done"), 0.625), (("b", "half"), 0.625), (("b", "done"), 1.0)]
    assert [job.key for job in study.missing] == ["a", "b"]
