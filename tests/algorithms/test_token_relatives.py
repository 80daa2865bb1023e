"""KL-Cov, the entropy bonus, forking tokens, GDPO and distillation: by hand, by verl's and TRL's formulas, and in training."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DISTILLATION, ENTROPY_BONUS, FORKING_TOKENS, GDPO, GRPO, KDRL, KL_COV
from rlviz.pieces.advantages import ForkingTokens, StandardizedApart, TeacherLogRatio
from rlviz.pieces.surrogate import CovariancePenalty
from rlviz.tabular import good_actions, train_table
from rlviz.types import Batch

RELATIVES = (KL_COV, GDPO, ENTROPY_BONUS, FORKING_TOKENS, DISTILLATION, KDRL)


def double(values):
    return torch.tensor(values, dtype=torch.double)


def a_batch(seed=3, shape=(3, 4, 6)):
    generator = torch.Generator().manual_seed(seed)
    old_logp = -3 * torch.rand(shape, generator=generator, dtype=torch.double)
    logp = old_logp + 0.2 * torch.randn(shape, generator=generator, dtype=torch.double)
    lengths = torch.randint(1, shape[-1] + 1, shape[:2], generator=generator)
    advantages = torch.randn(shape[:2], generator=generator, dtype=torch.double).unsqueeze(-1).expand(shape)
    entropy = torch.rand(shape, generator=generator, dtype=torch.double)
    return logp, old_logp, advantages, torch.arange(shape[-1]) < lengths.unsqueeze(-1), entropy


def verl_kl_cov(log_prob, old_log_prob, covariance_logp, advantages, mask, coefficient, ratio_of_tokens):
    """core_algos.py of verl 0.9.1, compute_policy_loss_kl_cov, token-mean: rows are responses; log π of the covariance apart."""
    log_ratio = log_prob - old_log_prob
    losses = -advantages * log_ratio.exp()
    adv, logp_of_mask = advantages[mask], covariance_logp[mask]
    covariances = (adv - adv.mean()) * (logp_of_mask - logp_of_mask.mean())
    largest = torch.topk(covariances, max(1, int(len(covariances) * ratio_of_tokens))).indices
    indices = mask.flatten().nonzero().squeeze(1)[largest]
    losses = losses.flatten().index_add(0, indices, coefficient * log_ratio.abs().flatten()[indices]).view(mask.shape)
    return losses[mask].mean(), indices


@pytest.mark.parametrize("share", [0.002, 0.1, 0.5])
def test_kl_cov_is_verl_s_with_the_covariance_of_the_policy_that_sampled(share):
    logp, old_logp, advantages, mask, _ = a_batch()
    algorithm = KL_COV.with_parameters(share=share, beta=0.7)
    leaf = logp.clone().requires_grad_()
    loss = algorithm.loss(leaf, Batch(old_logp, advantages, mask)).loss
    (slope,) = torch.autograd.grad(loss, leaf)
    rows = (values.flatten(0, 1) for values in (leaf, old_logp, old_logp, advantages, mask))
    expected, indices = verl_kl_cov(*rows, 0.7, share)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(slope, torch.autograd.grad(expected, leaf)[0])
    chosen = algorithm.choose_tokens(advantages, old_logp, mask)
    assert sorted(chosen.flatten().nonzero().squeeze(1).tolist()) == sorted(indices.tolist())
    assert int(chosen.sum()) == max(1, int(int(mask.sum()) * share)) and not (chosen & ~mask).any()


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


def test_a_choice_is_asked_for_by_the_piece_that_makes_it():
    logp, old_logp, advantages, mask, _ = a_batch()
    none_chosen = torch.zeros_like(mask)
    plain = KL_COV.loss(logp, Batch(old_logp, advantages, mask, chosen=none_chosen)).loss
    torch.testing.assert_close(plain, -((logp - old_logp).exp() * advantages)[mask].mean())


def test_who_learns_where_the_advantage_is_0():
    silent = {algorithm.name: algorithm.ignores_zero_advantages() for algorithm in RELATIVES}
    assert silent == dict.fromkeys(silent, True) | {"KL-Cov": False, "Entropy bonus": False, "KDRL": False}


def trl_entropy_mask(entropy, mask, share):
    """grpo_trainer.py of TRL 1.16, get_high_entropy_mask, on one process."""
    return (entropy >= torch.quantile(entropy[mask], 1 - share)) & mask


@pytest.mark.parametrize("share", [0.1, 0.2, 0.37, 1.0])
def test_forking_tokens_are_those_of_trl_s_quantile(share):
    _, _, _, mask, entropy = a_batch(shape=(4, 4, 9))
    rewards = double([[1, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 0]])
    advantages = ForkingTokens(share=share)(rewards, mask, entropy)
    highest = trl_entropy_mask(entropy, mask, share)
    torch.testing.assert_close(advantages, GRPO.advantage(rewards).unsqueeze(-1) * highest)
    assert int(highest.sum()) == 1 + math.floor(share * (int(mask.sum()) - 1) + 1e-9)
    moved = ForkingTokens(share=share)(rewards, mask, entropy.masked_fill(~mask, 99.0))
    assert torch.equal(moved, advantages)


def trl_gdpo(kinds, weights):
    """grpo_trainer.py of TRL 1.16, normalize_then_sum: kinds [P, G, K]; its 1e-4 beside each std left out."""
    apart = (kinds - kinds.mean(1, keepdim=True)) / kinds.std(1, keepdim=True)
    summed = (torch.nan_to_num(apart) * weights).sum(-1)
    return (summed - summed.mean()) / summed.std()


def test_gdpo_is_trl_s_and_tells_apart_what_a_sum_does_not():
    correct = double([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    well_formed = double([[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]])
    piece = StandardizedApart(answer=0.7, format=0.4)
    got = piece(correct + well_formed, correct, well_formed)
    expected = trl_gdpo(torch.stack([correct, well_formed], -1), double([0.7, 0.4]))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)
    assert (got[3] == 0).all()  # nothing differs there, and rounding must not pretend that it does
    # in the first group right without form and form without right have one sum; being right is the rarer
    right, well_formed_only = GDPO.advantages(correct + well_formed, torch.ones(4, 4, 1, dtype=torch.bool), correct=correct,
                                well_formed=well_formed)[0][0, :2, 0]  # fmt: skip
    assert (
        right > well_formed_only
        and GRPO.advantage(correct + well_formed)[0, 0] == GRPO.advantage(correct + well_formed)[0, 1]
    )


def test_distillation_climbs_down_the_kl_to_the_teacher():
    """E over tokens of A ∇log π = −∇KL(π‖π_teacher), enumerated; A is −k1, as in verl's policy-gradient distillation."""
    logits, teacher = double([0.3, -1.0, 0.8]).requires_grad_(), double([0.5, 0.2, 0.3]).log()
    logp = logits.log_softmax(-1)
    (kl_slope,) = torch.autograd.grad((logp.exp() * (logp - teacher)).sum(), logits, retain_graph=True)
    token = torch.ones(1, 3, 1)
    advantages = TeacherLogRatio()(token[..., 0], logp.detach().view(1, 3, 1), teacher.view(1, 3, 1)).flatten()
    (climb,) = torch.autograd.grad((logp.exp().detach() * advantages * logp).sum(), logits)
    torch.testing.assert_close(climb, -kl_slope)


def test_a_table_learns_its_teacher():
    teacher = (0.6, 0.2, 0.1, 0.05, 0.05)
    run = train_table(DISTILLATION, good_actions(1, 5), steps=80, replicas=4, groups=16, lr=1.0, reference=teacher)
    away = abs(run.probabilities[:, -1, 0, 0] - torch.tensor(teacher).numpy()).max()
    assert away < 0.1 and run.accuracy[:, -1].mean() == pytest.approx(0.6, abs=0.05)


def test_a_teacher_beside_the_reward_is_verl_s_loss_with_its_mse_to_a_reference():
    """verl 0.9.1, token-mean: compute_policy_loss_vanilla without its dual clip, and kl_penalty_forward's mse."""
    logp, old_logp, advantages, mask, _ = a_batch()
    teacher = old_logp - 0.4
    leaf = logp.clone().requires_grad_()
    algorithm = KDRL.with_parameters(beta=0.7)
    (slope,) = torch.autograd.grad(algorithm.loss(leaf, Batch(old_logp, advantages, mask, teacher)).loss, leaf)
    ratio = (leaf - old_logp).exp()
    policy = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
    (expected,) = torch.autograd.grad((policy + 0.7 * 0.5 * (leaf - teacher) ** 2)[mask].mean(), leaf)
    torch.testing.assert_close(slope, expected)


class Watched:
    """The penalty; it records among how many tokens it chose."""

    def __init__(self):
        self.among, self.piece = [], CovariancePenalty(share=0.1)

    def choose(self, advantages, old_logp, mask):
        if mask.numel() != 59:  # with so many tokens an algorithm is tried
            self.among.append(int(mask.sum()))
        return self.piece.choose(advantages, old_logp, mask)

    def __call__(self, ratio, advantages, lower, upper, chosen):
        return self.piece(ratio, advantages, lower, upper, chosen)


def test_a_replica_chooses_among_its_own_tokens():
    watched = Watched()
    algorithm = replace(KL_COV, surrogate=watched)
    train_table(algorithm, good_actions(3, 10), steps=3, group_size=8, updates_per_rollout=1, replicas=2)
    assert watched.among == [8] * 6
