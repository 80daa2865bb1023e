"""pass@k and its advantage: against all subsets, by hand, unbiased; and of a policy."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
import torch

from rlviz.pieces.advantages import BestOfK, pass_at_k
from rlviz.training.pass_rates import pass_rates
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import Chain


@pytest.mark.parametrize("size", [4, 6, 8])
def test_estimate_and_advantage_over_all_subsets(size):
    for k, right in product(range(1, size + 1), range(size + 1)):
        subsets = list(combinations(range(size), k))
        passes = [float(any(i < right for i in subset)) for subset in subsets]
        mean = sum(passes) / len(passes)
        std = math.sqrt(sum((p - mean) ** 2 for p in passes) / len(passes))
        assert float(pass_at_k(torch.tensor(right), size, k)) == pytest.approx(mean, abs=1e-14)
        rewards = torch.tensor([[1.0] * right + [0.0] * (size - right)], dtype=torch.double)
        for i, got in enumerate(BestOfK(k)(rewards)[0].tolist()):
            with_it = [p for p, subset in zip(passes, subsets, strict=True) if i in subset]
            assert got == pytest.approx((sum(with_it) / len(with_it) - mean) / std if std else 0.0, abs=1e-12)


def test_the_estimate_is_unbiased_and_the_plug_in_is_not():
    """Over all outcomes of 5 samples with p = .3: its mean is 1 − .7³ = .657; 1 − (1 − c/n)³ is .6 on average."""
    p, n, k = 0.3, 5, 3
    chances = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    mean = sum(chance * float(pass_at_k(torch.tensor(c), n, k)) for c, chance in enumerate(chances))
    plugged = sum(chance * (1 - (1 - c / n) ** k) for c, chance in enumerate(chances))
    assert mean == pytest.approx(1 - (1 - p) ** k) and plugged < mean - 0.03


def test_by_hand():
    """G = 4, one right, k = 2: 3 of 6 pairs hold it, σ = ½. Right: (1 − ½)/½ = 1; wrong: ⅓ of its pairs, (⅓ − ½)/½ = −⅓."""
    got = BestOfK(2)(torch.tensor([[0.3, 0.0, -1.0, 0.0]], dtype=torch.double))  # what is above 0 passes
    torch.testing.assert_close(got, torch.tensor([[1.0, -1 / 3, -1 / 3, -1 / 3]], dtype=torch.double))
    assert float(pass_at_k(torch.tensor(1), 4, 2)) == 0.5


def test_at_k_1_it_is_the_group_s_advantage_by_the_population_s_std():
    rewards = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]], dtype=torch.double)
    expected = (rewards - rewards.mean()) / rewards.std(correction=0)
    torch.testing.assert_close(BestOfK(1)(rewards), expected)


def test_pass_rates_of_a_policy_begin_with_its_accuracy():
    policy, task = load_policy("chain", device="cpu"), Chain()
    rates = pass_rates(policy, task, (1, 4, 16), num_prompts=150, seed=1)
    assert rates[1] < rates[4] < rates[16] <= 1
    accuracy = evaluate(policy, task, seed=1).accuracy
    assert rates[1] == pytest.approx(accuracy, abs=4 * math.sqrt(0.25 / 1000 + 0.25 / 150))
