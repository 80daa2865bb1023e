"""What stands beside the experiments: runs that lessons read from disk, and the family's table."""

import re
import runpy
from pathlib import Path

import pandas as pd

from rlviz.study import bootstrap, bootstrap_of_the_difference, interval, iqm

FOLDER = Path(__file__).parents[2] / "notebooks/experiments"


def test_the_further_runs_on_disk_are_those_of_the_script():
    script = runpy.run_path(str(FOLDER / "further_runs.py"))["RUNS"]
    frame = pd.read_csv(FOLDER / "further_runs.csv")
    wanted = [(lesson, run, seed) for lesson, run, _, _, seeds in script for seed in seeds]
    assert list(frame[["lesson", "run", "seed"]].itertuples(index=False, name=None)) == wanted
    assert frame[["right", "clipped"]].stack().between(0, 1).all()


def test_the_family_s_matched_table_is_what_its_runs_say():
    runs = pd.read_csv(FOLDER / "family_matched.csv")
    right = {name: rows.held_out_accuracy.to_numpy() for name, rows in runs.groupby("contender", sort=False)}
    text = (FOLDER / "family.md").read_text(encoding="utf-8")
    for name, scores in right.items():
        low, high = interval(bootstrap(scores))
        row = rf"^ *{re.escape(name)} +{len(scores)}  {iqm(scores):.3f}    {low:.3f}–{high:.3f} "
        assert re.search(row, text, re.M)
    for name in ("PPO", "GSPO ±.03"):
        low, high = interval(bootstrap_of_the_difference(right[name], right["GRPO"]))
        gap = iqm(right[name]) - iqm(right["GRPO"])
        assert f"{name} ends {gap:.3f} above GRPO (95 % interval {low:+.3f} to {high:+.3f})" in text
    assert set(runs.updates) == {240}
