"""What stands beside the experiments: runs that lessons read from disk, the family's table, and bytes of models."""

import re
import runpy
from pathlib import Path

import pandas as pd
import pytest

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


# the policy of chain: width 64, two layers, 48 characters. Embedding 48·64, in each layer attention 4·64², feed-forward
# 3·64·256 and two norms of 64; a last norm of 64
TRUNK = 48 * 64 + 2 * (4 * 64**2 + 3 * 64 * 256 + 2 * 64) + 64  # in 1 + 2·9 + 1 = 20 tensors
ACTOR, HEAD = TRUNK + 48 * 64, 64 + 1
MODELS = {  # parameters, and tensors that learn
    "actor": (ACTOR, 21),
    "reference": (ACTOR, 0),
    "reward": (TRUNK + HEAD, 0),
    "separate critic": (TRUNK + HEAD, 22),
    "shared critic": (HEAD, 2),
}


@pytest.mark.parametrize("name", ["cost.csv", "critic_cost.csv"])
def test_bytes_of_models_are_what_is_counted_by_hand(name):
    """float32 weights and gradients; of Adam two float32 moments a weight, and a float32 count of steps a tensor."""
    table = pd.read_csv(FOLDER / name)
    for row in table.itertuples():
        kind = "shared critic" if "shared" in row.name else "separate critic"
        models = [MODELS[kind if role == "critic" else role] for role in row.models.split(", ")]
        learning = sum(count for count, tensors in models if tensors)
        assert row.parameters == sum(count for count, _ in models)
        assert (row.weights, row.gradients) == (4 * row.parameters, 4 * learning)
        assert row.optimizer_state == 8 * learning + 4 * sum(tensors for _, tensors in models)
        assert row.bytes == row.weights + row.gradients + row.optimizer_state + row.activations
    grpo = table["bytes"].where(table["name"] == "GRPO").ffill()
    assert (table["bytes"] / grpo).to_list() == pytest.approx(table["bytes_to_grpo"].to_list(), rel=1e-5)
