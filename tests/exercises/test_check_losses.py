"""The checks of whole losses in lessons 01 and 03: right in other words, values by hand, each slip by its name."""

import math

import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.typed import TYPED
from tests.pieces.tensors import close, double

ZOO = mistakes.losses


def my_reinforce(logp, mask, R, b, *, sign=-1):
    return (
        sign
        * torch.stack([(r - b) * row[kept].sum() for row, kept, r in zip(logp, mask, R, strict=True)]).sum()
        / len(R)
    )


def my_step(logits, actions, R, lr, *, baseline=None, grow=1.0):
    """One-hot minus softmax, by hand, a response at a time."""
    gradient = torch.zeros_like(logits)
    for i, action in enumerate(actions.tolist()):
        others = torch.cat([R[:i], R[i + 1 :]])
        b = others.mean() if baseline is None else baseline(R)
        one_hot = torch.eye(len(logits), dtype=logits.dtype)[action]
        gradient = gradient + (R[i] - b) * (one_hot - torch.softmax(logits, 0)) / len(R)
    return logits + grow * lr * gradient


def my_ppo(logp, old, A, V, V_old, G, H, mask, *, c=(1, 0.5, 0.01), pick=torch.maximum, mean=None, J=None):
    mean = mean or (lambda x: x[mask].mean())
    r = torch.exp(logp - old)
    J = J(r, A) if J else torch.min(r * A, torch.clip(r, 0.8, 1.2) * A)
    near = V_old + torch.clip(V - V_old, -0.2, 0.2)
    return -c[0] * mean(J) + c[1] * mean(pick((V - G) ** 2, (near - G) ** 2) / 2) - c[2] * mean(H)


def test_values_by_hand():
    logp, mask = double([[0.5, 0.25], [0.5, 0.9]]).log(), torch.tensor([[True, True], [True, False]])
    # −½ [ (1 − ¼) ln ⅛ + (0 − ¼) ln ½ ]
    close(my_reinforce(logp, mask, double([1, 0]), double(0.25)), 0.5 * (0.75 * 3 - 0.25) * math.log(2))
    # two actions, even: the right one earned 1, so A is 1 and −1; each moves its logit by A / 2, twice, over N = 2
    close(my_step(double([0, 0]), torch.tensor([0, 1]), double([1, 0]), double(1)), [0.5, -0.5])
    one = torch.ones(1, 1, 1, dtype=torch.double)
    # r = 2 is clipped to 1.2; V = .6 was .2, target 1: ½ (.4 − 1)²; H = 1
    by_hand = -1.2 + 0.5 * 0.18 - 0.01
    given = (math.log(2) * one, 0 * one, one, 0.6 * one, 0.2 * one, one, one, one.bool())
    close(my_ppo(*given), by_hand)
    close(check._ppo_loss(*given), by_hand)


def test_right_answers_pass():
    assert check.reinforce(my_reinforce).passed
    assert check.reinforce_step(my_step).passed
    assert check.ppo_loss(my_ppo).passed


def step_of(log_probability):
    """Return a step that climbs the mean of A times this function of the logits and the actions."""

    def step(z, a, R, lr):
        leaf = z.clone().requires_grad_()
        return z + lr * torch.autograd.grad((A_of(R) * log_probability(leaf, a)).mean(), leaf)[0]

    return step


def test_the_advantages_of_the_others_mean_cancel_the_normaliser():
    """Σ A = Σ R − Σ (Σ R − R) / (N − 1) = 0, so Σ A (z − log Σ eᶻ) = Σ A z, however the rewards fall."""
    R = torch.randn(7, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    close(A_of(R).sum(), 0.0)


ALONE = {
    "autograd": step_of(lambda z, a: z[a]),
    "one hot": step_of(lambda z, a: torch.nn.functional.one_hot(a, len(z)).double() @ z),
    "by hand": lambda z, a, R, lr: z.index_add(0, a, lr * A_of(R) / len(R)),
}
NORMALISED = {
    "log_softmax": step_of(lambda z, a: z.log_softmax(0)[a]),
    "logarithm of softmax": step_of(lambda z, a: z.softmax(0).log()[a]),
    "a distribution, which refuses what is no number": step_of(
        lambda z, a: torch.distributions.Categorical(logits=z).log_prob(a)
    ),
    "by hand": my_step,
}


@pytest.mark.parametrize("step", ALONE.values(), ids=ALONE)
def test_logits_for_log_probabilities_are_told_why_they_are_right_here(step):
    verdict = check.reinforce_step(step)
    assert verdict.passed
    assert "the A sum to 0" in verdict.says
    assert "With another baseline" in verdict.says


@pytest.mark.parametrize("step", NORMALISED.values(), ids=NORMALISED)
def test_log_probabilities_are_not(step):
    verdict = check.reinforce_step(step)
    assert verdict.passed
    assert "sum to 0" not in verdict.says


def test_a_median_is_not_taken_for_no_baseline():
    verdict = check.reinforce_step(lambda z, a, R, lr: my_step(z, a, R, lr, baseline=torch.median))
    assert (verdict.passed, verdict.mistake) == (False, "")


SLIPS = {  # check → its mistakes' names, and how a student would write each
    check.reinforce: {
        "every reward with every response": lambda p, m, R, b: -(R - b).mean() * (p * m).sum(1).mean(),
        "sign lost": lambda p, m, R, b: my_reinforce(p, m, R, b, sign=1),
        "baseline left out": lambda p, m, R, b: -((p * m).sum(1) * R).mean(),
        "baseline added": lambda p, m, R, b: -((p * m).sum(1) * (R + b)).mean(),
        "baseline outside": lambda p, m, R, b: -((p * m).sum(1) * R - b).mean(),
        "probability for its logarithm": lambda p, m, R, b: -((p.exp() * m).sum(1) * (R - b)).mean(),
        "product of probabilities": lambda p, m, R, b: -(p.exp().where(m, 1.0).prod(1) * (R - b)).mean(),
        "padding counted": lambda p, m, R, b: -(p.sum(1) * (R - b)).mean(),
        "mean over the tokens of a response": lambda p, m, R, b: (
            -torch.stack([x[k].mean() for x, k in zip(p, m, strict=True)]).mul(R - b).mean()
        ),
        "mean over all tokens": lambda p, m, R, b: -(p * (R - b)[:, None])[m].mean(),
        "mean over all places": lambda p, m, R, b: -(p * m * (R - b)[:, None]).mean(),
        "sum over responses": lambda p, m, R, b: -(p * m * (R - b)[:, None]).sum(),
        "without a gradient": lambda p, m, R, b: my_reinforce(p.detach(), m, R, b),
    },
    check.reinforce_step: {
        "descended": lambda z, a, R, lr: my_step(z, a, R, -lr),
        "own reward in the baseline": lambda z, a, R, lr: my_step(z, a, R, lr, baseline=torch.mean),
        "baseline left out": lambda z, a, R, lr: my_step(z, a, R, lr, baseline=lambda R: 0),
        "divided by the spread": lambda z, a, R, lr: my_step(
            z, a, (R - R.mean()) / (R.std() + 1e-6), lr, baseline=lambda R: 0
        ),
        "probability for its logarithm": lambda z, a, R, lr: (
            z + lr * torch.func.grad(lambda x: (A_of(R) * x.softmax(0)[a]).mean())(z)
        ),
        "sum over responses": lambda z, a, R, lr: my_step(z, a, R, lr, grow=len(R)),
        "learning rate left out": lambda z, a, R, lr: my_step(z, a, R, 1.0),
        "gradient for the logits": lambda z, a, R, lr: my_step(z, a, R, 1.0) - z,
        "nothing moved": lambda z, a, R, lr: z,
    },
    check.ppo_loss: {
        "entropy punished": lambda *x: my_ppo(*x, c=(1, 0.5, -0.01)),
        "entropy left out": lambda *x: my_ppo(*x, c=(1, 0.5, 0)),
        "entropy in full": lambda *x: my_ppo(*x, c=(1, 0.5, 1)),
        "value loss left out": lambda *x: my_ppo(*x, c=(1, 0, 0.01)),
        "value loss rewarded": lambda *x: my_ppo(*x, c=(1, -0.5, 0.01)),
        "value loss twice": lambda *x: my_ppo(*x, c=(1, 1, 0.01)),
        "value clip left out": lambda *x: my_ppo(*x, pick=lambda plain, near: plain),
        "value clip alone": lambda *x: my_ppo(*x, pick=lambda plain, near: near),
        "value clip with a minimum": lambda *x: my_ppo(*x, pick=torch.minimum),
        "policy sign lost": lambda *x: my_ppo(*x, c=(-1, 0.5, 0.01)),
        "policy not clipped": lambda *x: my_ppo(*x, J=lambda r, A: r * A),
        "policy clip without the minimum": lambda *x: my_ppo(*x, J=lambda r, A: torch.clip(r, 0.8, 1.2) * A),
        "ratio inverted": lambda p, old, *x: my_ppo(-p, -old, *x),
        "each response averaged first": lambda *x: my_ppo(
            *x, mean=lambda v: ((v * x[-1]).sum(-1) / x[-1].sum(-1)).mean()
        ),
        "padding counted": lambda *x: my_ppo(*x, mean=torch.mean),
        "summed over tokens": lambda *x: my_ppo(*x, mean=lambda v: v[x[-1]].sum()),
    },
}
FAMILIES = dict(zip(SLIPS, (ZOO.REINFORCE, ZOO.REINFORCE_STEP, ZOO.PPO_LOSS), strict=True))


def A_of(R):
    return R - (R.sum() - R) / (len(R) - 1)


@pytest.mark.parametrize("checked", SLIPS, ids=lambda checked: checked.__name__)
def test_every_slip_is_named_however_it_is_written(checked):
    rows = [row for row in FAMILIES[checked] if row.name not in TYPED[checked]]
    assert [row.name for row in rows] == list(SLIPS[checked])
    for row in rows:
        assert checked(SLIPS[checked][row.name]) == Verdict(False, row.says), row.name
