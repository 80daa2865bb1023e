"""KL-Cov, forking tokens, GDPO and distillation: what no row of test_formulas.py says, by hand and by TRL's formulas."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DISTILLATION, ENTROPY_BONUS, FORKING_TOKENS, GDPO, GRPO, KDRL, KL_COV
from rlviz.pieces.advantages import ForkingTokens, StandardizedApart
from rlviz.pieces.surrogate import CovariancePenalty
from rlviz.tabular import good_actions, train_table

RELATIVES = (KL_COV, GDPO, ENTROPY_BONUS, FORKING_TOKENS, DISTILLATION, KDRL)


def double(values):
    return torch.tensor(values, dtype=torch.double)


def test_kl_cov_chooses_by_hand():
    advantages, old_logp = double([[[1.0, 1.0], [-1.0, -1.0]]]), double([[[-1.0, -3.0], [-2.0, 7.0]]])
    mask = torch.tensor([[[True, True], [True, False]]])
    # mean A 1/3, mean log π −2: 2/3 · 1, 2/3 · −1, −4/3 · 0
    piece = CovariancePenalty(share=0.4)
    assert piece.choose(advantages, old_logp, mask).tolist() == [[[True, False], [False, False]]]
    assert replace(piece, share=0.7).choose(advantages, old_logp, mask).sum() == 2  # ⌊2.1⌋
    assert replace(piece, share=0.01).choose(advantages, old_logp, mask).sum() == 1
    j = piece(*(double([2.0, 2.0]) for _ in range(4)), chosen=torch.tensor([True, False]))
    torch.testing.assert_close(j, double([4 - math.log(2), 4.0]))


def test_below_what_float32_can_tell_the_penalty_has_no_slope():
    """In the first update log r is a rounding error; |log r| would push by ±β all the same."""
    piece, one = CovariancePenalty(beta=7.0), double([1.0, 1.0])
    log_ratio = double([9e-6, 2e-5]).requires_grad_()
    piece(log_ratio.exp(), one, one, one, chosen=torch.tensor([True, True])).sum().backward()
    torch.testing.assert_close(log_ratio.grad, double([1.0, 1.0 - 7.0]), rtol=1e-4, atol=0)


def test_who_learns_where_the_advantage_is_0():
    silent = {algorithm.name: algorithm.ignores_zero_advantages() for algorithm in RELATIVES}
    assert silent == dict.fromkeys(silent, True) | {"KL-Cov": False, "Entropy bonus": False, "KDRL": False}


@pytest.mark.parametrize("share", [0.1, 0.2, 0.37, 1.0])
def test_forking_tokens_are_those_of_trl_s_quantile(share):
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(9) < torch.randint(1, 10, (4, 4, 1), generator=generator)
    entropy = torch.rand((4, 4, 9), generator=generator, dtype=torch.double)
    rewards = double([[1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]])
    advantages = ForkingTokens(share=share)(rewards, mask, entropy)
    # grpo_trainer.py of TRL 1.16, get_high_entropy_mask, on one process
    highest = (entropy >= torch.quantile(entropy[mask], 1 - share)) & mask
    torch.testing.assert_close(advantages, GRPO.advantage(rewards).unsqueeze(-1) * highest)
    assert int(highest.sum()) == 1 + math.floor(share * (int(mask.sum()) - 1) + 1e-9)
    moved = ForkingTokens(share=share)(rewards, mask, entropy.masked_fill(~mask, 99.0))
    assert torch.equal(moved, advantages)


def test_gdpo_is_trl_s():
    """grpo_trainer.py of TRL 1.16, normalize_then_sum; its 1e-4 beside each std left out."""
    correct = double([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    well_formed = double([[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]])
    piece = StandardizedApart(answer=0.7, format=0.4)
    got = piece(correct + well_formed, correct, well_formed)
    z, y = (torch.nan_to_num((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)) for x in (correct, well_formed))
    summed = 0.7 * z + 0.4 * y
    torch.testing.assert_close(got, (summed - summed.mean()) / summed.std(), rtol=1e-4, atol=1e-6)
    assert (got[3] == 0).all()  # nothing differs there, and rounding must not pretend that it does


def test_a_table_learns_its_teacher():
    teacher = (0.6, 0.2, 0.1, 0.05, 0.05)
    run = train_table(DISTILLATION, good_actions(1, 5), steps=80, replicas=4, groups=16, lr=1.0, reference=teacher)
    away = abs(run.probabilities[:, -1, 0, 0] - torch.tensor(teacher).numpy()).max()
    assert away < 0.1 and run.accuracy[:, -1].mean() == pytest.approx(0.6, abs=0.05)
