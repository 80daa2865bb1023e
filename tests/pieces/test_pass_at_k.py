"""pass@k and its advantage: against all subsets, by hand, unbiased; and of a policy."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
import torch

from rlviz.algorithms import PASS_AT_K, RFT
from rlviz.pieces.advantages import BestOfK, pass_at_k
from rlviz.training.pass_rates import pass_rates
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import Chain


def earned(right, size, k):
    """Return whether each k-subset of a group passes, and the subsets."""
    subsets = list(combinations(range(size), k))
    return [float(any(i < right for i in subset)) for subset in subsets], subsets


@pytest.mark.parametrize("size", [4, 6, 8])
def test_estimate_and_advantage_over_all_subsets(size):
    for k, right in product(range(1, size + 1), range(size + 1)):
        passes, subsets = earned(right, size, k)
        mean = sum(passes) / len(passes)
        std = math.sqrt(sum((each - mean) ** 2 for each in passes) / len(passes))
        assert float(pass_at_k(torch.tensor(right), size, k)) == pytest.approx(mean, abs=1e-14)
        rewards = torch.tensor([[1.0] * right + [0.0] * (size - right)], dtype=torch.double)
        for i, found in enumerate(BestOfK(k)(rewards)[0].tolist()):
            own = [each for each, subset in zip(passes, subsets, strict=True) if i in subset]
            assert found == pytest.approx((sum(own) / len(own) - mean) / std if std else 0.0, abs=1e-12)


def test_the_estimate_is_unbiased_and_the_plug_in_is_not():
    """Over all outcomes of 5 samples with p = .3: its mean is 1 − .7³ = .657; 1 − (1 − c/n)³ is .6 on average."""
    p, n, k = 0.3, 5, 3
    chances = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    found = sum(chance * float(pass_at_k(torch.tensor(c), n, k)) for c, chance in enumerate(chances))
    plugged = sum(chance * (1 - (1 - c / n) ** k) for c, chance in enumerate(chances))
    assert found == pytest.approx(1 - (1 - p) ** k) and plugged < found - 0.03


def test_by_hand():
    """G = 4, one right, k = 2: 3 of 6 pairs hold it, σ = ½. Right: (1 − ½)/½ = 1; wrong: ⅓ of its pairs, (⅓ − ½)/½ = −⅓."""
    found = BestOfK(2)(torch.tensor([[0.3, 0.0, -1.0, 0.0]], dtype=torch.double))  # what is above 0 passes
    torch.testing.assert_close(found, torch.tensor([[1.0, -1 / 3, -1 / 3, -1 / 3]], dtype=torch.double))
    assert float(pass_at_k(torch.tensor(1), 4, 2)) == 0.5


def test_at_k_1_it_is_the_group_s_advantage_by_the_population_s_std():
    rewards = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]], dtype=torch.double)
    expected = (rewards - rewards.mean()) / rewards.std(correction=0)
    torch.testing.assert_close(BestOfK(1)(rewards), expected)


def test_cross_entropy_on_right_responses():
    """At ratio 1 the gradient by each log-probability is that of −Σ log π over right responses, over all tokens."""
    logp = torch.tensor([[[-0.5, -1.0], [-0.7, -0.2]]], dtype=torch.double, requires_grad=True)
    mask, rewards = torch.ones(1, 2, 2, dtype=torch.bool), torch.tensor([[1.0, 0.0]], dtype=torch.double)
    advantages, _ = RFT.advantages(rewards, mask)
    from rlviz.types import Batch

    batch = Batch(old_logp=logp.detach(), advantages=advantages, mask=mask, weights=RFT.aggregate(mask))
    (slope,) = torch.autograd.grad(RFT.loss(logp, batch).loss, logp)
    (expected,) = torch.autograd.grad(-logp[0, 0].sum() / 4, logp)
    torch.testing.assert_close(slope, expected)


def test_groups_must_hold_k():
    assert PASS_AT_K.min_group_size == 4 and BestOfK(1).min_group_size == 2
    for call, words in (
        (lambda: pass_rates(load_policy("chain", device="cpu"), Chain(), (32,)), "number of responses to a prompt, 16"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_pass_rates_of_a_policy_begin_with_its_accuracy():
    policy, task = load_policy("chain", device="cpu"), Chain()
    found = pass_rates(policy, task, (1, 4, 16), num_prompts=150, seed=1)
    assert found[1] < found[4] < found[16] <= 1
    accuracy = evaluate(policy, task, seed=1).accuracy
    assert found[1] == pytest.approx(accuracy, abs=4 * math.sqrt(0.25 / 1000 + 0.25 / 150))
