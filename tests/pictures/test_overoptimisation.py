"""explore_overoptimisation: means over seeds of the committed table, and its sentence."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rlviz.pictures import explore_overoptimisation
from rlviz.study import overoptimisation
from rlviz.study.judged_runs import CHOOSING, FILE, TRAINING
from small_models.taste import Preference

RUNS = [("words and groups", 100, 0.0), ("words and sentence", 10, 0.2)]


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


def test_a_run_of_one_s_own_stands_beside_the_committed_ones(monkeypatch):
    """Two steps, with another prior, mistakes, a KL term and more features: its looks are what the picture draws."""
    monkeypatch.setattr(overoptimisation, "SETTINGS", replace(overoptimisation.SETTINGS, steps=1, num_prompts=2))
    looks = overoptimisation.train_on_pairs(
        10, mistakes=0.2, beta=0.2, prior=0.5, with_sentence=True, with_groups=True, seed=1
    )
    assert [look["at"] for look in looks] == [0] and looks[0]["kl"] == 0 and -1 <= looks[0]["true"] <= 3
    looks.append({"kl": 4.0, "learned": 2.5, "true": -0.5})
    names = explore_overoptimisation(run=looks).names()
    assert names.one("has_run") == 1 and names.array("run_distance").tolist() == [0, 2]
    assert names.array("run_learned")[1] == 2.5 and names.array("run_true")[1] == -0.5
    assert explore_overoptimisation().names().one("has_run") == 0


def test_of_somebody_s_pairs_the_true_reward_is_not_known(monkeypatch):
    monkeypatch.setattr(overoptimisation, "SETTINGS", replace(overoptimisation.SETTINGS, steps=1, num_prompts=2))
    preferences = [Preference("the little bear", " was kind .", " was sad .")]
    (look,) = overoptimisation.train_on_pairs(preferences)
    # kind and sad differ by w each way, so w maximises log σ(2w) − w²; kind is liked, so a start of few of them is near 0
    assert np.isnan(look["true"]) and abs(look["learned"]) < 0.2
    with pytest.raises(ValueError, match="mistakes must be 0 with pairs that somebody judged"):
        overoptimisation.train_on_pairs(preferences, mistakes=0.1)


@pytest.mark.parametrize("run", [3, [{"kl": 1.0}], "run"])
def test_what_has_no_looks_is_refused(run):
    with pytest.raises(ValueError, match="run must be what train_on_pairs returns, looks with kl, learned, true"):
        explore_overoptimisation(run=run)
