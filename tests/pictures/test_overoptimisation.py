"""explore_overoptimisation: means over seeds of the committed table, and its sentence."""

import numpy as np
import pandas as pd
import pytest

from rlviz.pictures import explore_overoptimisation
from rlviz.study.judged_runs import CHOOSING, FILE, TRAINING

RUNS = [("words", 10, 0.0), ("words", 30, 0.2), ("words and groups", 100, 0.0), ("words and sentence", 10, 0.2)]


@pytest.mark.parametrize(("features", "pairs", "beta"), RUNS)
def test_its_lines_are_the_means_of_the_table(features, pairs, beta):
    names = explore_overoptimisation(features=features, pairs=pairs, beta=beta, steps=45).names()
    frame = pd.read_csv(FILE).query("features == @features and pairs == @pairs and beta == @beta")
    frame = frame.assign(distance=np.sqrt(frame["kl"]))
    looks = frame[frame["way"] == TRAINING].groupby("at")[["distance", "learned", "true"]]
    for name, means in looks.mean().items():
        np.testing.assert_allclose(names.array(name), means)
        assert names.one(f"now_{name}") == pytest.approx((means[40] + means[50]) / 2)
    np.testing.assert_allclose(names.array("true_high"), looks.mean()["true"] + 2 * looks.sem()["true"])
    assert names.one("top") == looks.mean()["true"].max() and names.one("top_step") == looks.mean()["true"].idxmax()
    if beta == 0:
        best = frame[frame["way"] == CHOOSING].groupby("at")["true"].mean()
        np.testing.assert_allclose(names.array("best_true"), best)


def test_its_sentence_changes_where_the_judge_likes_it_less():
    before, after = (explore_overoptimisation(pairs=100, steps=steps).conclusion for steps in (10, 60))
    assert "has not liked a step before it more" in before and "likes step" in after
