"""Solve rates prompt by prompt: counted by hand from the committed table."""

import csv
from math import comb
from pathlib import Path

import pytest

from rlviz.pictures import explore_solve_rates
from rlviz.pictures.solve_rates import FILE

COMMITTED = Path(__file__).parents[2] / "notebooks" / "experiments" / "real_model_pass.csv"


@pytest.mark.parametrize(("k", "seed"), [(4, 1), (16, 0)])
def test_each_sum_s_rates_and_their_mean_by_counting_draws(k, seed):
    names = explore_solve_rates(k=k, seed=seed).names()
    with COMMITTED.open(encoding="utf-8", newline="") as file:
        pairs = [(int(row["before"]), int(row[f"after_{seed}"])) for row in csv.DictReader(file)]
    # of the C(16, k) ways to draw k of 16 responses, C(16 − c, k) hold none of the c right ones
    rate = {c: 1 - comb(16 - c, k) / comb(16, k) for c in range(17)}
    drawn = sorted(zip(names.array("old"), names.array("new"), strict=True))
    assert drawn == [pytest.approx(pair) for pair in sorted((rate[old], rate[new]) for old, new in pairs)]
    assert names.array("old").tolist() == sorted(names.array("old"))
    for mean, which in (("old_at_k", 0), ("new_at_k", 1)):
        assert names.one(mean) == pytest.approx(sum(rate[pair[which]] for pair in pairs) / 100)
    assert names.array("mean_new")[k - 1] == pytest.approx(names.one("new_at_k"))
    assert names.one("unsolved") == sum(old == 0 for old, _ in pairs) == 25
    assert names.one("first_solved") == sum(old == 0 < new for old, new in pairs)
    assert names.one("lost") == sum(new == 0 < old for old, new in pairs)


def test_the_picture_s_table_is_the_experiment_s():
    assert FILE.read_bytes() == COMMITTED.read_bytes()
