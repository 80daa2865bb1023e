"""Over-optimisation of a learned taste: the best of n by hand, the KL to the start, and the committed runs."""

import math

import pandas as pd
import pytest
import torch

from rlviz.study import overoptimisation
from rlviz.study.judged_runs import CHOOSING, FILE, HOT, TRAINING, read_runs
from rlviz.study.trials import load_shipped
from small_models.sampling import response_logits, token_logp
from small_models.taste import true_taste


def test_the_best_of_n_by_hand(monkeypatch):
    """Of three responses worth 1, 2, 3 to the taste and 1, −1 (no sentence), 2 to the judge.

    Best of 2 of 3: once in three choices the middle one, twice the best one: learned (2 + 2 · 3) / 3, true (−1 + 2 · 2) / 3.
    """
    texts = [" was kind .", " was was", " was kind and warm ."]
    monkeypatch.setattr(overoptimisation, "CHOICES", (1, 2, 3))
    monkeypatch.setattr(overoptimisation.TASK, "_split", ([], ["the little bear"]), raising=False)
    monkeypatch.setattr(overoptimisation, "sample_texts", lambda *_: (None, [texts]))
    assert [true_taste("", text) for text in texts] == [1, -1, 2]
    one, two, three = overoptimisation.best_of_n(None, lambda _, text: 1.0 + texts.index(text), 0)
    assert one == pytest.approx({"at": 1, "kl": 0, "learned": 2, "true": 2 / 3, "sentences": 2 / 3})
    assert two == pytest.approx({"at": 2, "kl": math.log(2) - 0.5, "learned": 8 / 3, "true": 1, "sentences": 2 / 3})
    assert three == pytest.approx({"at": 3, "kl": math.log(3) - 2 / 3, "learned": 3, "true": 2, "sentences": 1})


def test_the_kl_is_the_mean_of_the_log_ratio_of_responses():
    """By the plain estimate Σ log π − log π₀ over each response's tokens, within four of its standard errors."""
    start = load_shipped("sentences")
    other = start.frozen_copy()
    with torch.no_grad():
        other.model.get_output_embeddings().weight.mul_(0.7)
    prompts = overoptimisation.TASK.held_out_prompts
    samples, _ = overoptimisation.sample_texts(other, prompts, 16, 0)
    log_ratio = 0.0
    for sign, policy in ((1, other), (-1, start)):
        with torch.no_grad():
            logits = response_logits(policy, samples.prompt_ids, samples.prompt_mask, samples.tokens)
        log_ratio = log_ratio + sign * (token_logp(logits, samples.tokens) * samples.mask).sum(-1)
    error = float(log_ratio.std()) / log_ratio.numel() ** 0.5
    assert abs(overoptimisation.kl_to_start(other, start, samples) - float(log_ratio.mean())) < 4 * error
    assert overoptimisation.kl_to_start(start, start, samples) == 0


def test_the_committed_runs_are_complete_and_over_optimised():
    frame = pd.read_csv(FILE)
    looks = frame.groupby(["way", "pairs", "beta", "features", "seed"])["at"].apply(tuple)
    assert looks.groupby("way").agg(["nunique", "size"]).to_dict("index") == {
        TRAINING: {"nunique": 1, "size": 3 * 2 * 4 * 5},
        CHOOSING: {"nunique": 1, "size": 3 * 4 * 5},
    }
    assert len(read_runs(TRAINING)) + len(read_runs(CHOOSING)) == len(frame)
    # 10 and 30 pairs, words, no KL: in every run the judge likes the end less than the start, and its model likes it more
    runs = frame.query("way == @TRAINING and beta == 0 and features == 'words' and pairs < 100")
    ends = runs.pivot(index=["pairs", "seed"], columns="at", values=["learned", "true"])
    assert (ends["true"][60] < ends["true"][0]).all() and (ends["learned"][60] > ends["learned"][0] + 0.5).all()
    # 30 pairs at β .2, with groups of words: the judge likes step 40 more than the start in at least four seeds of five
    for features in ("words and groups", HOT):
        first = frame[frame["features"] == features].query("way == @TRAINING and pairs == 30 and beta == .2")
        looks = first.pivot(index="seed", columns="at", values="true")
        assert (looks[40] > looks[0] + 0.05).sum() >= 4
