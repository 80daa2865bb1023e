"""Three answers in training: lines of equal entropy, the table's own run, and what is lost among right answers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlviz.algorithms import GRPO
from rlviz.page.tracing import evaluate
from rlviz.pictures.entropy import REPLICAS, STEPS
from rlviz.pictures.simplex import LEVELS, contours, simplex_curve
from rlviz.pieces.aggregation import token_mean
from rlviz.tabular import TableTask, train_table


def nats(p):
    return -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), -1)


def test_a_contour_has_its_entropy_and_leaves_the_triangle_below_ln_2():
    lines = contours()
    for i, level in enumerate(LEVELS):
        x, y = (np.array(lines[f"level{i}_{axis}"]) for axis in "xy")
        third = y / (math.sqrt(3) / 2)
        p = np.stack([1 - x - third / 2, x - third / 2, third], -1)
        inside = np.isfinite(x)
        np.testing.assert_allclose(nats(p[inside]), level, atol=1e-3)
        assert inside.all() == (level > math.log(2))  # the middle of a side, two answers alike, has ln 2


def run(algorithm, wrong=0.9, step=7.0, group_size=4):
    """Return the curve's outputs, and the table's run with the same chance: each step the actions' draws, then the rewards'."""
    generator = torch.Generator().manual_seed(0)
    draws = [torch.rand(REPLICAS, 1, group_size, generator=generator, dtype=torch.double) for _ in range(2 * STEPS)]
    chance = {"draws": torch.stack(draws[::2]), "luck": torch.stack(draws[1::2])}
    settings = {"wrong": wrong, "second": 0.0, "step": step, "group_size": group_size, "entropy_weight": 0.0}
    outputs = evaluate(simplex_curve(algorithm), settings | chance)
    task = TableTask((1.0, 1.0, 0.0), start=((1 - wrong) / 2, (1 - wrong) / 2, wrong))
    rule = replace(algorithm, kl=None, aggregate=token_mean)
    sizes = {"steps": STEPS, "group_size": group_size, "lr": 1.0, "updates_per_rollout": 1, "replicas": REPLICAS}
    return {name: value.numpy() for name, value in outputs.items()}, train_table(rule, task, seed=0, **sizes)


def test_the_dots_are_the_table_s_run_and_the_parts_add_up():
    got, table = run(GRPO)
    p = table.probabilities[:, :, 0, 0]  # [replicas, steps, answers]
    np.testing.assert_allclose(got["x"], p[:, 7, 1] + p[:, 7, 2] / 2, rtol=1e-9)
    np.testing.assert_allclose(got["nats"], nats(p).mean(0), rtol=1e-9)
    accuracy = p[..., :2].sum(-1)
    share = p[..., :2] / accuracy[..., None]
    # H = H(right or wrong?) + P(right) · H(which right one?), here with one wrong answer
    two = nats(np.stack([accuracy, 1 - accuracy], -1))
    np.testing.assert_allclose(got["right"], (accuracy * nats(share)).mean(0), rtol=1e-9)
    np.testing.assert_allclose(got["nats"] - got["right"], two.mean(0), rtol=1e-9)
    np.testing.assert_allclose(got["even"], (two + accuracy * math.log(2)).mean(0), rtol=1e-9)
    assert got["lost"] == pytest.approx(got["even"][7] - got["nats"][7])
    assert np.isfinite(got["path_x"]).sum() == 8
