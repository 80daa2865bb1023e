"""explore_bias: bias and variance by enumeration, against sampled batches, formulas by hand, and the identities of baselines."""

import functools
import math

import numpy as np
import pytest
import torch

from rlviz.pictures import explore_bias
from rlviz.pictures.bias import ACROSS, RULES, exact_moments

BATCHES, G, LENGTHS, LR = 20_000, 4, (2, 3, 8), 3.0
RIGHT = np.array([0.7, 0.2])
REWARDS = np.array([1.5, 0.5, 0.5])
LIMITS = {"leave-one-out, clipped": 0.2, "Dr.GRPO": 0.2, "GRPO": 0.2, "GSPO": 0.02}
every_rule = pytest.mark.parametrize("name", RULES)


def moments(name, right=RIGHT, size=G, rewards=REWARDS, lengths=LENGTHS, updates=1, lr=LR, joint=None):
    """Return truth, expectation and variance by enumeration, as arrays [P, 3]."""
    setting = {"rewards": rewards, "lengths": lengths, "updates": updates, "lr": lr, "right": right}
    tensors = {key: torch.as_tensor(np.asarray(value, dtype=float)) for key, value in setting.items()}
    joint = name in ACROSS if joint is None else joint
    return [values.numpy() for values in exact_moments(RULES[name], size, joint=joint, **tensors)]


def policy(right):
    """Return π, [P, 3]: half of the wrong responses are long."""
    return np.stack([right, (1 - right) / 2, (1 - right) / 2], -1)


@functools.cache
def sampled_responses():
    """Return responses drawn one by one, [N, P, G]."""
    draws = np.random.default_rng(0).random((BATCHES, 2, G, 1))
    return (draws > policy(RIGHT).cumsum(-1)[:, None, :2]).sum(-1)


def advantages_by_hand(name, R, L):
    """Return A [N, P, G] of rewards and lengths, each written out for a response."""
    mean, turns = R.mean(-1, keepdims=True), np.arange(1, 9)
    if name == "no baseline":
        return R
    if name.startswith("leave-one-out"):
        return R - (R.sum(-1, keepdims=True) - R) / (G - 1)
    if name == "batch mean":
        return R - R.mean((1, 2), keepdims=True)
    if name == "mean of each turn":
        reached = L[..., None] >= turns
        turn_means = ((L[..., None] == turns) * R[..., None]).sum(2, keepdims=True) / reached.sum(
            2, keepdims=True
        ).clip(1)
        return R - (turn_means * reached).sum(-1)
    if name == "mean of all turns / std":
        count = L.sum(-1, keepdims=True)
        mean = R.sum(-1, keepdims=True) / count
        squares = ((R - mean) ** 2 + (L - 1) * mean**2).sum(-1, keepdims=True)
        return (R - L * mean) / (np.sqrt(squares / (count - 1)) + 1e-6)
    if name in ("group mean / std", "GRPO", "GSPO"):
        return (R - mean) / (R.std(-1, ddof=1, keepdims=True) + 1e-6)
    return R - mean


def sampled_estimates(name, updates):
    """Return the last update's estimate and the true gradient at its policy, [N, P, 3], for each sampled batch."""
    o = sampled_responses()
    R, L = REWARDS[o], np.array(LENGTHS)[o]
    A = advantages_by_hand(name, R, L)
    weight = {"mean of all tokens": 1 / L.sum((1, 2), keepdims=True), "Dr.GRPO": 1 / (32 * G)}.get(name, 1 / (2 * G))
    if name in ("mean of each response", "GRPO", "GSPO"):
        weight = weight / L
    z = np.broadcast_to(np.log(policy(RIGHT)), (BATCHES, 2, 3))
    for update in range(updates):
        pi = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
        ratio = np.take_along_axis(pi / policy(RIGHT), o, -1)
        ratio = ratio ** (1 / L) if name == "GSPO" else ratio
        limit = LIMITS.get(name, math.inf)
        is_cut = np.where(A > 0, ratio > 1 + limit, ratio < 1 - limit)
        pull = weight * A * ratio * ~is_cut
        by_response = np.stack([(pull * (o == i)).sum(-1) for i in range(3)], -1)
        estimate = by_response - pi * by_response.sum(-1, keepdims=True)
        if update < updates - 1:
            z = z + LR * estimate
    value = (pi * REWARDS).sum(-1, keepdims=True)
    return estimate, pi * (REWARDS - value) / 2


@pytest.mark.parametrize("updates", [1, 2])
@every_rule
def test_bias_and_variance_are_those_of_sampled_batches(name, updates):
    """Within 4.5 standard errors each, the variance's from the fourth moment."""
    truth, expected, variance = moments(name, updates=updates)
    estimate, gradient = sampled_estimates(name, updates)
    error = estimate - gradient - (expected - truth)
    for exact, samples in ((truth, gradient), (expected, estimate), (variance, error**2)):
        noise = samples.std(0) / math.sqrt(BATCHES)
        assert (np.abs(samples.mean(0) - exact) <= 4.5 * noise + 1e-12).all()


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("right", [(0.5, 0.1), (0.95, 0.6)])
def test_what_each_baseline_makes_of_the_true_gradient(right, size):
    """R − b is unbiased for a b of other responses; a mean that holds the response itself is short by its own share."""
    p = np.array(right)
    pi = policy(p)
    truth = pi * (REWARDS - (pi * REWARDS).sum(-1, keepdims=True)) / 2  # of J = the mean of two prompts
    shares = {"no baseline": 1, "leave-one-out": 1, "group mean": (size - 1) / size, "batch mean": 1 - 1 / (2 * size)}
    shares |= {"leave-one-out, clipped": 1, "Dr.GRPO": (size - 1) / size / 16}  # a constant divisor keeps the direction
    for name, share in shares.items():
        target, expected, _ = moments(name, p, size)
        np.testing.assert_allclose(target, truth, atol=1e-14)
        np.testing.assert_allclose(expected, share * truth, atol=1e-14, err_msg=name)


@every_rule
def test_prompts_are_enumerated_together_only_where_a_rule_looks_across(name):
    together, alone = (moments(name, updates=2, joint=joint) for joint in (True, False))
    is_same = all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(together, alone, strict=True))
    assert is_same == (name not in ACROSS)


def test_the_sentence_says_the_length_or_the_angle():
    explorer = explore_bias(rule="group mean", group_size=4, shift=1.0)
    names = explorer.names().one
    assert "0.0° off the true gradient and 0.75 times as long" in explorer.conclusion
    assert names("first_times") == pytest.approx(0.75) and names("degrees") == pytest.approx(0, abs=1e-6)

    # By hand: over G draws the mean w (R − b) ∇log π, with b the group's mean, is (G − 1)/G E[w (R − E R) ∇log π]; w = 1/|o|.
    p, size, weight = np.array([0.5, 0.1]), 8, np.array([1 / 2, 1 / 2, 1 / 8])
    pi, R = policy(p), np.array([1.0, 0.0, 0.0])
    scores = np.eye(3) - pi[:, None]  # ∇log π of each response, [P, 3, 3]
    truth, turned = (((pi * w * (R - p[:, None]))[..., None] * scores).sum(1) for w in (1.0, weight))
    degrees = math.degrees(math.acos((truth * turned).sum() / math.sqrt((truth**2).sum() * (turned**2).sum())))
    easy, hard = (turned * truth).sum(-1) / (truth**2).sum(-1) * (size - 1) / size
    explorer = explore_bias(rule="mean of each response")
    assert f"{degrees:.1f}° off" in explorer.conclusion and degrees > 5
    assert [explorer.names().one(f"{prompt}_times") for prompt in ("first", "second")] == pytest.approx([easy, hard])
    # GSPO's limits are narrow: a first step of logits by about 1/16 takes every ratio beyond 1 ± .02
    assert "no gradient is left" in explore_bias(rule="GSPO", second=0.5, long=2, updates=2).conclusion


def test_the_variance_is_that_of_a_mean_of_independent_draws():
    p, R = np.array([0.5, 0.1]), np.array([2.0, 1.0, 1.0])
    pi = policy(p)
    terms = R[:, None] * (np.eye(3) - pi[:, None])
    mean = (pi[..., None] * terms).sum(1)
    plain = ((pi[..., None] * terms**2).sum(1) - mean**2) / 8 / 4  # over 8 draws, and each prompt counts half
    relative = moments("leave-one-out", p, 8, R)[2].sum() / plain.sum()
    assert f"{relative:.2f} times the variance" in explore_bias(rule="leave-one-out", shift=1.0).conclusion
