"""IPO as TRL has it, log odds at their ends, what pieces of pairs ask for, a run of each; formulas: test_formulas.py."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DPO, IPO, ORPO, SIMPO, differences
from rlviz.pieces.preference import log_odds, mean_log_ratio
from rlviz.training import PairSettings, train
from small_models.pairs import make_pairs
from small_models.policies import load_policy
from small_models.tasks import Chain

CHOSEN, REJECTED, REF_CHOSEN, REF_REJECTED = torch.tensor(
    [[-9.0, -7.0, -3.0], [-8.0, -12.0, -5.0], [-10.0, -8.0, -2.0], [-8.0, -8.5, -8.0]], dtype=torch.double
)
LENGTHS = torch.tensor([[3, 2, 4], [4, 8, 5]])


def loss_of(algorithm):
    chosen, rejected = CHOSEN.clone().requires_grad_(), REJECTED.clone().requires_grad_()
    lengths = {"chosen_lengths": LENGTHS[0], "rejected_lengths": LENGTHS[1]}
    output = algorithm.loss(chosen, rejected, REF_CHOSEN, REF_REJECTED, **lengths)
    return output, torch.autograd.grad(output.loss, (chosen, rejected))


def trl_ipo(beta, lengths):
    """dpo_trainer.py of TRL 1.16, loss_type "ipo": scores are log-ratios, each over its response's tokens."""
    scores = ((CHOSEN - REF_CHOSEN) / lengths[0], (REJECTED - REF_REJECTED) / lengths[1])
    return (scores[0] - scores[1] - 1 / (2 * beta)) ** 2


def test_ipo_by_hand_and_as_trl_has_it():
    output, (by_chosen, by_rejected) = loss_of(IPO)
    # margins 1 − 0, 1 + 3.5, −1 − 3; aimed at 1 / .2 = 5
    torch.testing.assert_close(output.losses, torch.tensor([16.0, 0.25, 81.0], dtype=torch.double))
    torch.testing.assert_close(by_chosen, torch.tensor([-8.0, -1.0, -18.0], dtype=torch.double) / 3)
    torch.testing.assert_close(by_rejected, -by_chosen)
    torch.testing.assert_close(output.losses, trl_ipo(0.1, torch.ones(2, 3)))
    per_token, _ = loss_of(replace(IPO, reward=mean_log_ratio).with_parameters(beta=0.4))
    torch.testing.assert_close(per_token.losses, trl_ipo(0.4, LENGTHS))
    assert not IPO.with_parameters(beta=0.25).pair_losses(torch.tensor([2.0]), torch.tensor([0.0])).any()  # 1 / .5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_odds_of_half_are_0_and_of_a_certain_response_finite(dtype):
    """By hand: log(½ / ½) = 0, log(¾ / ¼) = log 3. Of p = 1 a type tells only that 1 − p is at most its eps."""
    eps = torch.finfo(dtype).eps
    logp = torch.tensor([2 * math.log(0.5), 2 * math.log(0.75), -2e-6, 0.0], dtype=dtype, requires_grad=True)
    odds = log_odds(logp, torch.full((4,), 2))
    expected = [0.0, math.log(3), math.log(1e6), math.log(1 / eps)]
    torch.testing.assert_close(odds.detach(), torch.tensor(expected, dtype=dtype), rtol=1e-5, atol=1e-6)
    # certain against even odds, both certain, and the other way round
    chosen, rejected = logp[[3, 3, 0]], logp[[0, 3, 3]]
    two = torch.full((3,), 2)
    ORPO.loss(chosen, rejected, chosen_lengths=two, rejected_lengths=two).loss.backward()
    assert logp.grad.isfinite().all()


def test_a_preference_loss_asks_for_what_it_needs():
    assert [a.needs_reference for a in (DPO, IPO, SIMPO, ORPO)] == [True, True, False, False]
    assert SIMPO.models == ("actor",) and IPO.models == ("actor", "reference")
    assert all(row.why for algorithm in (IPO, SIMPO, ORPO) for row in differences(DPO, algorithm))


@pytest.mark.parametrize("algorithm", [IPO, SIMPO, ORPO], ids=lambda algorithm: algorithm.name)
def test_a_run_orders_the_pairs(algorithm):
    policy = load_policy("chain", device="cpu")
    settings = PairSettings(steps=8, batch_size=16, lr=1e-3, lr_warmup_steps=0, evaluate_every=0)
    first, *_, last = train(policy, Chain(), algorithm, settings, pairs=make_pairs(policy, Chain(), 16, seed=1))
    assert first.chosen_gain == pytest.approx(0, abs=1e-5)  # against its start
    assert last.margin > first.margin + 0.1 and last.loss < first.loss
    if algorithm is IPO:
        assert (first.pull, first.margin) == pytest.approx((10.0, 0.0), abs=1e-3)  # 2 / 2β
