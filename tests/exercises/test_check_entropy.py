"""The entropy exercise: right answers in any words pass, each mistake is named, and the zoo's entropy bonus has no gradient."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import GRPO
from rlviz.exercises import check, mistakes
from rlviz.pieces.kl import KLInLoss
from rlviz.pieces.values import entropy
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


@pytest.mark.parametrize(
    ("student", "says"),
    [
        (lambda x: None, "your function returns None: write your lines, and return their result."),
        (lambda x: -(x.exp() * x), "your result has shape [1, 3, 4]; it has to be [1, 3]."),
        (
            lambda x: -(x.exp() * x).sum(),
            "your result has shape []; it has to be [1, 3]. One value for each distribution: do not average.",
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
