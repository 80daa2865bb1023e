"""The entropy exercise: right answers in any words pass, each mistake is named, and the zoo's entropy bonus has no gradient."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlviz.algorithms import GRPO
from rlviz.exercises import check, mistakes
from rlviz.pieces.kl import KLInLoss
from rlviz.pieces.values import entropy, entropy_change
from rlviz.tabular import good_actions, train_table
from tests.exercises.typed import TYPED
from tests.pieces.tensors import close, double

# three actions of .5, .25, .25: surprises ln 2, 2 ln 2, 2 ln 2, so H = (½ + ½ + ½) ln 2 = 1.5 ln 2
BY_HAND = double([[0.5, 0.25, 0.25]]).log()
WRONG_BY_HAND = {
    "surprise of the likeliest token": math.log(2),
    "surprises added unweighted": 5 * math.log(2),
    "surprises averaged unweighted": 5 / 3 * math.log(2),
    "weighted surprises averaged": 0.5 * math.log(2),
    "weighted by the logarithm": -9 * math.log(2) ** 2,  # 1 + 4 + 4 times ln² 2
    "log probabilities taken for probabilities": math.nan,  # the logarithm of a negative number
    "entropy in bits": 1.5,
    "entropy as a share of the most": 1.5 * math.log(2) / math.log(3),
}


def test_the_mistakes_by_hand():
    wrong = {mistake.name: mistake.wrong for mistake in mistakes.entropy.ENTROPY}
    assert set(wrong) == set(WRONG_BY_HAND) | set(TYPED[check.entropy])
    for name, value in WRONG_BY_HAND.items():
        torch.testing.assert_close(wrong[name](BY_HAND), double([value]), equal_nan=True)
    close(entropy(BY_HAND), [1.5 * math.log(2)])


def with_a_loop(log_probs):
    p = log_probs.exp()
    return sum(-p[..., v] * log_probs[..., v] for v in range(log_probs.shape[-1]))


IN_OTHER_WORDS = {
    "a loop over the vocabulary": with_a_loop,
    "torch's distribution": lambda x: torch.distributions.Categorical(logits=x).entropy(),
    "torch.special": lambda x: torch.special.entr(x.exp()).sum(-1),
    "an einsum": lambda x: -torch.einsum("...v,...v->...", x.exp(), x),
    "in float32": lambda x: -(x.float().exp() * x.float()).sum(-1),
}


@pytest.mark.parametrize("words", IN_OTHER_WORDS)
def test_a_right_answer_in_other_words_passes(words):
    verdict = check.entropy(IN_OTHER_WORDS[words])
    assert verdict.passed, verdict
    assert "value and gradient" in verdict.says


IN_BITS = {
    "log2": lambda x: -(x.exp() * x.exp().log2()).sum(-1),
    "divided by log 2": lambda x: -(x.exp() * x).sum(-1) / math.log(2),
    "detached": lambda x: -(x.exp() * x.exp().log2()).sum(-1).detach(),
    "weights detached": lambda x: -(x.exp().detach() * x.exp().log2()).sum(-1),
    "numpy": lambda x: torch.from_numpy(-(np.exp(p := x.detach().numpy()) * np.log2(np.exp(p))).sum(-1)),
}


@pytest.mark.parametrize("words", IN_BITS)
def test_bits_are_named_with_a_gradient_and_without(words):
    verdict = check.entropy(IN_BITS[words])
    assert (verdict.passed, verdict.mistake) == (False, "entropy in bits"), verdict
    assert "in nats" in verdict.says


@pytest.mark.parametrize(
    ("student", "says"),
    [
        (lambda x: None, "your function returns None: write your lines, and return their result."),
        (lambda x: -(x.exp() * x), "your result has shape [1, 3, 4]; it has to be [1, 3]."),
        (
            lambda x: -(x.exp() * x).sum(),
            "your result has shape []; it has to be [1, 3]. One value for each distribution: do not average or add over them.",
        ),
        (lambda x: -entropy(x), "the sign is wrong: everything is the negative of what it should be."),
        (
            lambda x: -(x.exp().detach() * x).sum(-1),
            "the values are right, but the gradient by logits is not: is something detached, or rounded?",
        ),
        (lambda x: entropy(x).numpy(), "your function broke off (RuntimeError): stay in torch: numpy breaks the chain"),
    ],
)
def test_other_wrong_answers_are_told_in_a_sentence(student, says):
    verdict = check.entropy(student)
    assert not verdict.passed
    assert verdict.says.startswith(says)


def test_the_surprise_of_the_sampled_token_has_the_right_mean_and_no_gradient():
    # each action counted as often as it is drawn: the mean of −log p is H, the mean of its gradient is −Σ p ∇log p = −∇Σ p = 0
    logits = double([1.0, 0.2, -0.7]).requires_grad_()
    log_probs = logits.log_softmax(0)
    weights = log_probs.detach().exp()
    mean = -(weights * mistakes.entropy.SAMPLED_SURPRISE.wrong(log_probs, torch.zeros(3))).sum()
    close(mean, entropy(log_probs))
    (slope,) = torch.autograd.grad(mean, logits, retain_graph=True)
    close(slope, [0.0, 0.0, 0.0])
    (right,) = torch.autograd.grad(entropy(log_probs), logits)
    assert right.abs().max() > 0.1


def test_as_a_bonus_it_keeps_no_entropy_where_the_entropy_does():
    plain = replace(GRPO, kl=None)
    buggy = replace(GRPO, kl=KLInLoss(beta=0.3, estimator=mistakes.entropy.SAMPLED_SURPRISE.wrong))
    settings = {"task": good_actions(), "steps": 60, "updates_per_rollout": 1, "replicas": 32}
    ends = [
        train_table(algorithm, entropy_weight=weight, **settings).entropy[:, -1]
        for algorithm, weight in ((plain, 0.0), (buggy, 0.0), (plain, 0.3))
    ]
    without, sampled, bonus = (end.mean() for end in ends)
    noise = math.sqrt(sum(end.var(ddof=1) / len(end) for end in ends[:2]))
    assert abs(sampled - without) < 4 * noise
    assert bonus > without + 10 * noise


# ½, ¼, ¼ in units of ln 2: log π = −1, −2, −2, its mean −1.5. Rewards 1, 0, 0: mean ½, A = ½, −½, −½, π A = ¼, −⅛, −⅛, mean 1/16.
# Mean of log π · π A: ½ · −¼ + 2 · ¼ · ¼ = 0, so Cov = 0 + 1.5/16.
REWARDS = double([[1.0, 0.0, 0.0]])
CHANGE_BY_HAND = -1.5 / 16 * math.log(2)
WRONG_CHANGE_BY_HAND = {
    "covariance with its sign lost": 1.5 / 16,
    "rewards in the place of advantages": 0.25 - 1.5 * 0.25,  # mean of log π · π R −¼, of π R ¼
    "baseline over actions": 1 / 12 - 1.5 / 8,  # R − ⅓ = ⅔, −⅓, −⅓, times π ⅓, −1/12, −1/12: mean ⅛, with log π −1/12
    "step without its probability": -0.25,  # mean of log π · A = −¼ + ½, of A = 0
    "covariance over actions": -1 / 12,  # deviations ⅔, −⅓, −⅓ times ¼, −⅛, −⅛ add up to ¼
    "product of the means left out": 0.0,
}


def test_the_change_by_hand_and_its_mistakes():
    close(entropy_change(BY_HAND, REWARDS), [CHANGE_BY_HAND])
    names = {mistake.name for mistake in mistakes.entropy.ENTROPY_CHANGE}
    assert names == set(WRONG_CHANGE_BY_HAND) | set(TYPED[check.entropy_change])


@pytest.mark.parametrize(
    "mistake", [m for m in mistakes.entropy.ENTROPY_CHANGE if m.name in WRONG_CHANGE_BY_HAND], ids=lambda m: m.name
)
def test_every_wrong_change_is_recognised(mistake):
    close(mistake.wrong(BY_HAND, REWARDS), [WRONG_CHANGE_BY_HAND[mistake.name] * math.log(2)])
    assert check.entropy_change(mistake.wrong).says == mistake.says


def test_the_change_is_the_measured_one():
    logits = double([0.9, -0.3, 0.4, 1.7])
    rewards = double([0.0, 1.0, 0.5, 0.2])
    moved = logits.clone().requires_grad_()
    (moved.softmax(0) @ rewards).backward()  # the expected reward's own gradient
    measured = [entropy((logits + eta * moved.grad).log_softmax(0)) for eta in (-1e-4, 1e-4)]
    close(entropy_change(logits.log_softmax(0), rewards), (measured[1] - measured[0]) / 2e-4, atol=1e-7)


def test_a_change_in_other_words_passes():
    def of_slopes(log_probs, rewards):
        logits = log_probs.clone().requires_grad_()
        value = (logits.softmax(-1) * rewards).sum()
        (step,) = torch.autograd.grad(value, logits)
        (slope,) = torch.autograd.grad(
            torch.distributions.Categorical(logits=logits.log_softmax(-1)).entropy().sum(), logits
        )
        return (slope * step).sum(-1)

    assert check.entropy_change(of_slopes).passed
