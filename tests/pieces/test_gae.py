import math

import pytest
import torch

from rlviz.pieces.gae import GAE, whiten
from tests.pieces.tensors import close, double, rollout, seeds

# One response of three tokens with a hole (a tool's observation) before the last, one of a single token; 99 is not to be seen
REWARDS = double([[[0, 0, 99, 1, 99], [2, 99, 99, 99, 99]]])
VALUES = double([[[0.5, 0.6, 99, 0.8, 99], [1.5, 99, 99, 99, 99]]])
MASK = REWARDS != 99


def test_gae_by_hand():
    """Hand-worked at γ = .9, λ = .5, not whitened.

    δ from the end: 1 + 0 − .8 = .2;  0 + .9 · .8 − .6 = .12;  0 + .9 · .6 − .5 = .04.
    A from the end, γλ = .45: .2;  .12 + .45 · .2 = .21;  .04 + .45 · .21 = .1345.  Returns A + V.  The other: A = 2 − 1.5.
    """
    gae = GAE(gamma=0.9, lam=0.5, whiten=False)
    advantages, returns = gae(REWARDS, VALUES, MASK)
    close(advantages, [[[0.1345, 0.21, 0, 0.2, 0], [0.5, 0, 0, 0, 0]]])
    close(returns, [[[0.6345, 0.81, 0, 1.0, 0], [2, 0, 0, 0, 0]]])


def test_whiten_by_hand():
    """Hand-worked: 1 2 3 have mean 2 and unbiased variance 1; values all equal, and a single one, become exactly 0.

    0 and 2e-4 have variance 2e-8, 3e-8 with eps: ∓1e-4/√3e-8 = ∓1/√3.
    """
    mask = double([1, 0, 1, 1]).bool()
    close(whiten(double([1, 99, 2, 3]), mask), [-1, 0, 0, 1], rtol=1e-7, atol=1e-7)
    close(whiten(double([0, 99, 2e-4, 99]), double([1, 0, 1, 0]).bool()), [-(3**-0.5), 0, 3**-0.5, 0])
    assert (whiten(double([0.1, 99, 0.1, 0.1]), mask) == 0).all()
    # variance 1e-8, as large as the 1e-8 beside it: ∓1e-4 / √2e-8
    close(whiten(double([0, 99, 1e-4, 2e-4]), mask), [-(0.5**0.5), 0, 0, 0.5**0.5], rtol=1e-9, atol=1e-12)
    assert (whiten(double([5, 99, 99, 99]), double([1, 0, 0, 0]).bool()) == 0).all()
    assert (whiten(double([99, 99]), double([0, 0]).bool()) == 0).all()


def test_whitening_leaves_the_returns():
    # the four advantages .1345 .21 .2 .5 have mean .261125
    raw, returns = GAE(gamma=0.9, lam=0.5, whiten=False)(REWARDS, VALUES, MASK)
    advantages, same_returns = GAE(gamma=0.9, lam=0.5)(REWARDS, VALUES, MASK)
    assert torch.equal(same_returns, returns)
    close(advantages[MASK].mean(), 0)
    close(advantages[MASK].std(), 1, rtol=1e-6)
    close(advantages[0, 0, 1] / advantages[0, 0, 3], (0.21 - 0.261125) / (0.2 - 0.261125))
    assert (advantages[~MASK] == 0).all()
    assert raw[MASK].mean().item() == pytest.approx(0.261125)


@seeds(6)
def test_lambda_one_is_the_sampled_return_minus_the_value(seed):
    r = rollout(seed)
    advantages, _ = GAE(gamma=0.9, lam=1.0, whiten=False)(r.step_rewards, r.values, r.mask)
    for rewards, values, got, mask in zip(
        *(x.flatten(0, 1).tolist() for x in (r.step_rewards, r.values, advantages, r.mask)), strict=True
    ):
        at = [t for t, m in enumerate(mask) if m]
        for k, t in enumerate(at):
            sampled = math.fsum(0.9 ** (j - k) * rewards[at[j]] for j in range(k, len(at)))
            assert got[t] == pytest.approx(sampled - values[t], abs=1e-12)
