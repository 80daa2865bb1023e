"""A table that trains in the page is train_table's, replica by replica, and words and graphs follow it."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, FORKING_TOKENS, GRPO, LITE_PPO
from rlviz.page.tracing import evaluate
from rlviz.pictures.entropy import LEVELS, REPLICAS, REWARDS, STEPS, at_levels, data, entropy_curve, explore_entropy
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.kl import KLInLoss
from rlviz.tabular import train_table

PLAIN = {"lr": 0.5, "updates_per_rollout": 4, "temperature": 1.0, "entropy_weight": 0.0, "kl_weight": 0.0}


def chance(seed, lesson, group_size):
    """Return what train_table's generator gives in its order: each step the actions' draws, then the rewards'."""
    generator, positions = torch.Generator().manual_seed(seed), lesson.task.positions
    draws, luck = [], []
    for _ in range(STEPS):
        shape = (REPLICAS, positions * lesson.groups, group_size)
        draws.append(torch.rand(shape, generator=generator, dtype=torch.double))
        luck.append(torch.rand(REPLICAS, lesson.groups, group_size, generator=generator, dtype=torch.double))
    return {"draws": torch.stack(draws), "luck": torch.stack(luck)}


def outputs(algorithm, reward, group_size=8, seed=0, step=7, **settings):
    given = {"group_size": group_size, "step": step, **PLAIN, **settings}
    parts = {**data(algorithm, reward), **chance(seed, REWARDS[reward], group_size)}
    return {
        n: v.numpy()
        for n, v in evaluate(entropy_curve(algorithm, reward), {**own(algorithm), **given, **parts}).items()
    }


def own(algorithm):
    return {name: number[0] for name, number in explore_entropy.idea.algorithms.own(algorithm).items()}


@pytest.mark.parametrize(
    ("algorithm", "reward", "settings"),
    [
        (DAPO, "3 good of 20", {"group_size": 4, "lr": 0.2, "kl_weight": 0.1}),
        (DCPO, "rare good", {"updates_per_rollout": 8, "temperature": 0.7}),
        (LITE_PPO, "rare good", {"entropy_weight": 0.03}),  # its std is over all of a replica's groups
        (FORKING_TOKENS, "2 positions, both good", {"group_size": 5, "updates_per_rollout": 2}),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_the_curve_is_the_table_s_run(algorithm, reward, settings):
    got = outputs(algorithm, reward, **settings)
    lesson, others = REWARDS[reward], {**PLAIN, "group_size": 8, **settings}
    kl_weight = others.pop("kl_weight")
    rule = replace(algorithm, kl=KLInLoss(beta=kl_weight) if kl_weight else None, aggregate=token_mean)
    run = train_table(rule, lesson.task, steps=STEPS, groups=lesson.groups, replicas=REPLICAS, seed=0, **others)
    assert np.ptp(run.entropy[:, -1]) > 0.01  # replicas have lives of their own
    for name, values in {"entropy": run.entropy, "accuracy": run.accuracy}.items():
        np.testing.assert_allclose(got[name], values.mean(0), rtol=1e-11)
        np.testing.assert_allclose(got[f"{name}_low"], np.percentile(values, 10, axis=0), rtol=1e-11)
        np.testing.assert_allclose(got[f"{name}_high"], np.percentile(values, 90, axis=0), rtol=1e-11)
    np.testing.assert_allclose(got["probs"], run.probabilities[0, 7, 0, 0], rtol=1e-11)
    at = np.array([run.entropy_at_accuracy(level) for level in LEVELS])
    known = (np.isfinite(at).mean(1) >= 0.5) & (run.accuracy[:, 0].max() < LEVELS)
    np.testing.assert_array_equal(np.isfinite(got["at_level"]), known)
    np.testing.assert_allclose(got["at_level"][known], np.nanmean(at[known], 1), rtol=1e-11)


def test_entropy_at_an_accuracy_by_hand():
    """Two replicas, three steps. The first passes .5 between accuracies .3 and .6, two thirds of the way from 2 nats to 1."""
    left = torch.tensor([[3.0, 3.0], [2.0, 2.5], [1.0, 2.0]], dtype=torch.double)
    right = torch.tensor([[0.1, 0.1], [0.3, 0.2], [0.6, 0.4]], dtype=torch.double)
    levels = torch.tensor([0.05, 0.2, 0.5, 0.65], dtype=torch.double)
    at = at_levels(left, right, levels).numpy()
    assert np.isnan(at[0]) and np.isnan(at[3])  # both begin above it; none gets there
    # .2: halfway from 3 to 2 nats, and at the second's 2.5; .5: the first alone, which is half of them
    np.testing.assert_allclose(at[1:3], [2.5, 4 / 3])


def test_aggregations_that_only_scale_make_no_difference():
    other = outputs(DR_GRPO.with_parameters(scale="group_std"), "3 good of 20")
    np.testing.assert_allclose(outputs(GRPO, "3 good of 20")["entropy"], other["entropy"], rtol=1e-9)


def test_a_piece_of_one_s_own_trains_too_and_is_traced_once(monkeypatch):
    @dataclass
    class Wide:
        width: float = 0.2

        def __call__(self, old_logp):
            return 1 - self.width, 1 + self.width

    idea, traced = explore_entropy.idea, []
    monkeypatch.setattr(
        type(idea), "traced", lambda self, key, members: traced.append(key) or {"rows": [], "outputs": {}}
    )
    explorer = explore_entropy(replace(GRPO, name="mine", bounds=Wide()), beside=())
    assert len(traced) == 1 and len([key for key in explorer._variants if key.startswith("mine")]) == len(REWARDS)
    np.testing.assert_allclose(
        explorer.names().array("entropy"), explore_entropy(beside=()).names().array("entropy"), rtol=1e-12
    )


def test_words_follow_the_numbers():
    explorer = explore_entropy(DAPO, beside=(), step=0)
    assert (
        explorer.conclusion == "At step 0 DAPO's entropy is 3.00 nats, 3.00 at first, at accuracy 0.15."
    )  # ln 20, 3 of 20
    assert "At step 0 of the replica shown the likeliest action is 1, with 0.05." in explorer.caption  # uniform over 20
    explorer.set(reward="random", beside=(DCPO,))
    assert "nothing can be learned" in explorer.caption and "first reaches" not in explorer.caption
    assert explorer.names().holds("nowhere") and "; DCPO: 3.00, at 0.50." in explorer.conclusion
    explorer.set(reward="rare good")
    # −.98 ln .98 − .02 ln .02 nats
    explorer.set(step=12)
    assert re.search(r"entropy is 0\.[2-9]\d nats, 0\.10 at first", explorer.conclusion)  # it rises first
    assert "DAPO: from 0.10 to" in explorer.caption and not explorer.names().holds("nowhere")


@pytest.mark.parametrize("reward", REWARDS)
def test_every_reward_trains(reward):
    got = outputs(GRPO, reward)
    learned = got["accuracy"][-1] - got["accuracy"][0]
    assert learned > 0.1 if REWARDS[reward].good else learned == pytest.approx(0)
