"""A table that trains in the page is train_table's, replica by replica; and what its sentence says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, FORKING_TOKENS
from rlviz.page.tracing import evaluate
from rlviz.pictures.entropy import LEVELS, REPLICAS, REWARDS, STEPS, Training, data, explore_entropy
from rlviz.pictures.table import at_levels
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.kl import KLInLoss
from rlviz.tabular import train_table

PLAIN = {"lr": 0.5, "updates_per_rollout": 4, "entropy_weight": 0.0, "kl_weight": 0.0}


def chance(seed, reward, group_size):
    """Return what train_table's generator gives in its order: each step the actions' draws, then the rewards'."""
    generator, (task, groups, _) = torch.Generator().manual_seed(seed), REWARDS[reward]
    draws, luck = [], []
    for _ in range(STEPS):
        shape = (REPLICAS, task.positions * groups, group_size)
        draws.append(torch.rand(shape, generator=generator, dtype=torch.double))
        luck.append(torch.rand(REPLICAS, groups, group_size, generator=generator, dtype=torch.double))
    return {"draws": torch.stack(draws), "luck": torch.stack(luck)}


@pytest.mark.parametrize(
    ("algorithm", "reward", "settings"),
    [
        (DCPO, "rare good", {"updates_per_rollout": 8, "kl_weight": 0.1}),
        (FORKING_TOKENS, "2 positions, both good", {"group_size": 5, "updates_per_rollout": 2, "entropy_weight": 0.03}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_curve_is_the_table_s_run(algorithm, reward, settings):
    settings, (task, groups, _) = {**PLAIN, "group_size": 8, **settings}, REWARDS[reward]
    widths = {name: number[0] for name, number in explore_entropy.spec.algorithms.slider_ranges(algorithm).items()}
    chances = chance(0, reward, settings["group_size"])
    table = {name: data(algorithm, reward)[name] for name in ("start", "success")}
    got = evaluate(Training(algorithm), {**widths, "step": 7, **settings, **table, **chances})
    got = {name: value.numpy() for name, value in got.items()}
    kl_weight = settings.pop("kl_weight")
    rule = replace(algorithm, kl=KLInLoss(beta=kl_weight) if kl_weight else None, aggregate=token_mean)
    run = train_table(rule, task, steps=STEPS, groups=groups, replicas=REPLICAS, seed=0, **settings)
    assert np.ptp(run.entropy[:, -1]) > 0.01  # replicas have lives of their own
    for name, values in {"entropy": run.entropy, "accuracy": run.accuracy}.items():
        np.testing.assert_allclose(got[name], values.mean(0), rtol=1e-11)
        np.testing.assert_allclose(got[f"{name}_low"], np.percentile(values, 10, axis=0), rtol=1e-11)
        np.testing.assert_allclose(got[f"{name}_high"], np.percentile(values, 90, axis=0), rtol=1e-11)
        np.testing.assert_allclose(got[f"{name}_now"], values[:, 7].mean(), rtol=1e-11)
    np.testing.assert_allclose(got["probs"], run.probabilities[0, 7, 0, 0], rtol=1e-11)
    at = np.array([run.entropy_at_accuracy(level) for level in LEVELS])
    known = (np.isfinite(at).mean(1) >= 0.5) & (run.accuracy[:, 0].max() < LEVELS)
    np.testing.assert_array_equal(np.isfinite(got["at_level"]), known)
    np.testing.assert_allclose(got["at_level"][known], np.nanmean(at[known], 1), rtol=1e-11)


def test_entropy_at_an_accuracy_by_hand():
    """Two replicas, three steps. The first passes .5 between accuracies .3 and .6, two thirds of the way from 2 nats to 1."""
    nats = torch.tensor([[3.0, 3.0], [2.0, 2.5], [1.0, 2.0]], dtype=torch.double)
    right = torch.tensor([[0.1, 0.1], [0.3, 0.2], [0.6, 0.4]], dtype=torch.double)
    levels = torch.tensor([0.05, 0.2, 0.5, 0.65], dtype=torch.double)
    at = at_levels(nats, right, levels).numpy()
    assert np.isnan(at[0]) and np.isnan(at[3])  # both begin above it; none gets there
    # .2: halfway from 3 to 2 nats, and at the second's 2.5; .5: the first alone, which is half of them
    np.testing.assert_allclose(at[1:3], [2.5, 4 / 3])


def test_the_sentence_is_true_where_entropy_rises():
    """It begins at −.98 ln .98 − .02 ln .02 = .10 nats, of which no sentence may say that it falls."""
    explorer = explore_entropy(DAPO, reward="rare good", step=12)
    now = explorer.names().one("entropy_now")
    assert now > 0.1 and explorer.conclusion.startswith(f"From 0.10 nats DAPO's entropy goes to {now:.2f} (accuracy")
