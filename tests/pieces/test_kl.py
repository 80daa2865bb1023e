import math

import pytest
import torch

from rlviz.pieces.kl import (
    AdaptivePenalty,
    KLInLoss,
    KLInReward,
    KLToOld,
    ProportionalController,
    UnbiasedKL,
    k1,
    k2,
    k3,
    k3_plus,
)
from tests.pieces.tensors import close, double, seeds, slope

# policy .5 and reference .25, then the other way round: x = ref_logp − logp is −ln 2, then ln 2; eˣ is ½, then 2
LN2 = math.log(2)
LOGP, REF_LOGP = double([0.5, 0.25]).log(), double([0.25, 0.5]).log()
K3 = [LN2 - 0.5, 1 - LN2]


def check(estimator, values, slopes):
    close(estimator(LOGP, REF_LOGP), values)
    close(slope(estimator, LOGP, REF_LOGP), slopes)


@pytest.mark.parametrize(
    ("estimator", "values", "slopes"),
    [
        (k1, [LN2, -LN2], [1, 1]),  # −x, slope 1 in logp
        (k2, [LN2**2 / 2] * 2, [LN2, -LN2]),  # x²/2, slope −x
        (k3, K3, [0.5, -1]),  # eˣ − x − 1: ½ + ln 2 − 1 and 2 − ln 2 − 1; slope 1 − eˣ
        (k3_plus, K3, [LN2, -LN2]),  # the value of k3 and the slope of k2
    ],
)
def test_estimators_by_hand(estimator, values, slopes):
    check(estimator, values, slopes)


def test_k3_keeps_its_digits_near_zero():
    # eˣ − x − 1 = x²/2 + x³/6 + …; summed naively, x = 1e-7 leaves nothing of 5e-15 but rounding
    close(k3(double([-1e-7]), double([0.0])), [5e-15 + 1e-21 / 6], rtol=1e-6, atol=0)


def test_kl_in_loss_by_hand():
    """Assert β · k3 at β = .04, for KLInLoss."""
    kl = KLInLoss(beta=0.04)
    close(kl(LOGP, REF_LOGP), [0.04 * k for k in K3])
    close(slope(kl, LOGP, REF_LOGP), [0.02, -0.04])
    close(KLInLoss(beta=0.5, estimator=k2)(LOGP, REF_LOGP), [LN2**2 / 4] * 2)


def test_kl_in_reward_by_hand():
    """Assert β · (old_logp − ref_logp) at β = .02, for KLInReward with k1, and 0 on padding."""
    kl = KLInReward(beta=0.02)
    mask = double([[[1, 1, 0]]]).bool()
    old_logp, ref_logp = (torch.cat([x, double([v])]).view(1, 1, 3) for x, v in ((LOGP, 7.0), (REF_LOGP, 1e9)))
    close(kl(old_logp, ref_logp, mask), [[[0.02 * LN2, -0.02 * LN2, 0]]])
    zero, mask = double([[[0.0]]]), torch.ones(1, 1, 1, dtype=torch.bool)
    close(KLInReward(beta=0.5, estimator=k2)(zero + 3, zero, mask), [[[2.25]]])


def test_kl_to_old_by_hand():
    """Assert β · (r − 1 − ln r) at β = .01, for KLToOld with k3: new .5 and .25 from old .25 and .5, r = 2 and ½; slope r − 1."""
    kl = KLToOld(beta=0.01)
    close(kl(LOGP, REF_LOGP), [0.01 * (1 - LN2), 0.01 * (LN2 - 0.5)])
    close(slope(kl, LOGP, REF_LOGP), [0.01, -0.005])
    close(KLToOld(beta=0.5, estimator=k1)(LOGP, REF_LOGP), [-LN2 / 2, LN2 / 2])


def distributions(seed, actions=5):
    """Return logits of a policy as a leaf, its log-probabilities, and those of another distribution."""
    logits, others = torch.randn(2, actions, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    logits.requires_grad_()
    return logits, logits.log_softmax(0), others.log_softmax(0)


def kl(p, q):
    """The exact KL(p‖q) of two enumerated distributions."""
    return (p.exp() * (p - q)).sum()


@seeds(30)
def test_estimators_against_an_enumerated_distribution(seed):
    logits, logp, ref_logp = distributions(seed)

    def gradient(value):
        return torch.autograd.grad(value, logits, retain_graph=True)[0]

    def expected_gradient(estimator):  # tokens come from the policy, so its probabilities are weights
        return gradient((logp.exp().detach() * estimator(logp, ref_logp)).sum())

    exact = kl(logp, ref_logp)
    for estimator in (k1, k3, k3_plus):
        close((logp.exp() * estimator(logp, ref_logp)).sum(), exact.detach(), rtol=1e-9)
    assert (k3(logp, ref_logp) >= 0).all()
    for estimator in (k2, k3_plus):
        close(expected_gradient(estimator), gradient(exact), atol=1e-12)
    # k1's is nothing, and k3's is that of the other KL, KL(ref‖policy)
    close(expected_gradient(k1), torch.zeros(5), atol=1e-12)
    close(expected_gradient(k3), gradient(kl(ref_logp, logp)), atol=1e-12)
    assert not torch.allclose(expected_gradient(k3), gradient(exact), rtol=1e-3)


@pytest.mark.parametrize("estimator", [k1, k3])
@seeds(15)
def test_kl_to_old_has_the_gradient_of_the_exact_kl(estimator, seed):
    logits, logp, old_logp = distributions(seed)
    estimate = (old_logp.exp() * KLToOld(beta=2.0, estimator=estimator)(logp, old_logp)).sum()
    (got,) = torch.autograd.grad(estimate, logits, retain_graph=True)
    (exact,) = torch.autograd.grad(2 * kl(old_logp, logp), logits)
    close(estimate, 2 * kl(old_logp, logp).detach(), rtol=1e-9)
    close(got, exact, atol=1e-12)


def test_unbiased_kl_by_hand():
    """β r k3 with r = 2 and ½: old .25 and .5. Its slope in logp is β r (k3 + slope of k3)."""
    kl = UnbiasedKL(beta=0.04)
    close(kl(LOGP, REF_LOGP, double([2.0, 0.5])), [0.08 * K3[0], 0.02 * K3[1]])
    old_logp = double([0.25, 0.5]).log()
    got = slope(lambda logp, ref_logp: kl(logp, ref_logp, (logp - old_logp).exp()), LOGP, REF_LOGP)
    close(got, [0.08 * (K3[0] + 0.5), 0.02 * (K3[1] - 1)])


@pytest.mark.parametrize("estimator", [k1, k3])
@seeds(15)
def test_unbiased_kl_has_the_value_and_the_gradient_of_the_exact_kl_off_policy_too(estimator, seed):
    logits, logp, ref_logp = distributions(seed)
    _, _, old_logp = distributions(seed + 100)
    ratio = (logp - old_logp).exp()
    estimate = (old_logp.exp() * UnbiasedKL(beta=2.0, estimator=estimator)(logp, ref_logp, ratio)).sum()
    (got,) = torch.autograd.grad(estimate, logits, retain_graph=True)
    (exact,) = torch.autograd.grad(2 * kl(logp, ref_logp), logits)
    close(estimate, 2 * kl(logp, ref_logp).detach(), rtol=1e-9)
    close(got, exact, atol=1e-12)


def test_adaptive_penalty_by_hand():
    """Assert halving below 2, doubling above 4.5, and neither at the limits: target 3."""
    controller = AdaptivePenalty(target=3.0)
    assert [controller(0.04, kl, 64) for kl in (0.0, 1.99, 2.0, 3.0, 4.5, 4.51)] == [0.02, 0.02, 0.04, 0.04, 0.04, 0.08]


def test_proportional_controller_by_hand():
    """Assert β(1 + error · count/horizon) at target 6, horizon 10,000, the error within ±.2: 6.6/6 − 1 = .1; 100 responses."""
    controller = ProportionalController(target=6.0, horizon=10_000.0)
    for measured, error in ((6.6, 0.1), (5.4, -0.1), (6.0, 0.0), (60.0, 0.2), (0.0, -0.2)):
        assert controller(0.5, measured, 100) == pytest.approx(0.5 * (1 + error / 100), rel=1e-12)
