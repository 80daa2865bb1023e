"""What every algorithm's loss must keep to; each formula is worked out in test_formulas.py."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import ALGORITHMS, DAPO, GRPO, GRPO_PROCESS, PPO, PPO_PENALTY, ActorCritic, PolicyGradient
from rlviz.pieces.shaping import OverlongFilter
from rlviz.types import Batch
from tests.pieces.tensors import close, double, rollout, seeds

POLICY_GRADIENTS = [a for a in (*ALGORITHMS, GRPO_PROCESS) if isinstance(a, PolicyGradient)]
every_algorithm = pytest.mark.parametrize("algorithm", POLICY_GRADIENTS, ids=lambda a: a.name)
NO_KL = replace(GRPO, kl=None)


def advantages_of(algorithm, r):
    if isinstance(algorithm, ActorCritic):
        rewards = algorithm.token_rewards(r.rewards, r.mask, r.old_logp, r.ref_logp)
        return algorithm.advantages(rewards, r.old_values, r.mask)[0]
    if algorithm.asks_for("advantage", "step_ends"):
        return algorithm.advantages(r.step_rewards, r.mask, step_ends=r.step_ends)[0]
    history = None
    for rewards in r.visits.unbind(-1) if algorithm.asks_for("advantage", "history") else ():
        _, history = algorithm.advantages(rewards, r.mask, history=history)
    shaped = algorithm.shape_rewards(r.rewards, r.lengths, correct=r.outcomes, well_formed=r.well_formed)
    return algorithm.advantages(shaped, r.mask, history=history)[0]


def batch_of(algorithm, r):
    return Batch(r.old_logp, advantages_of(algorithm, r), r.mask, r.ref_logp)


def loss_and_gradient(algorithm, logp, batch):
    leaf = logp.clone().requires_grad_()
    loss = algorithm.loss(leaf, batch).loss
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


DUAL = {"DCPO": 10.0}  # no ratio beyond a dual clip pushes a bad token down


def test_padding_has_no_part_in_the_total_loss():
    r = rollout(3)
    values, entropy = (x.masked_fill(~r.mask, 1e9).requires_grad_() for x in (r.values, r.entropy))
    algorithm = replace(PPO, entropy_weight=0.01)
    for old_values in (r.old_values, r.old_values.masked_fill(~r.mask, -1e9)):
        total = algorithm.total_loss(double(0.0), values, old_values, torch.ones_like(values), entropy, r.mask).loss
        slopes = torch.autograd.grad(total, (values, entropy))
        assert all((s[~r.mask] == 0).all() for s in slopes)
        assert (slopes[1][r.mask] < 0).all()  # the bonus wants entropy up
        expected = algorithm.total_loss(double(0.0), r.values, r.old_values, torch.ones_like(values), r.entropy, r.mask)
        assert total.item() == expected.loss.item()


def test_only_the_overlong_filter_takes_truncated_responses_out_of_the_loss():
    r, truncated = rollout(1), torch.tensor([[True, False, False]] * 2)
    filtering = replace(DAPO, shape=OverlongFilter())
    assert torch.equal(filtering.loss_mask(r.mask, truncated), r.mask & torch.tensor([False, True, True]).view(1, 3, 1))
    for algorithm in POLICY_GRADIENTS:
        assert algorithm.loss_mask(r.mask, truncated) is r.mask


# --- what every loss must keep to ------------------------------------------------------------------------------------


@every_algorithm
@seeds(4)
def test_padding_holds_anything_and_gets_exactly_no_gradient(algorithm, seed):
    r = rollout(seed)
    random = torch.Generator().manual_seed(seed)
    noisy = r.over_tokens(lambda x: torch.where(r.mask, x, 1e5 * torch.randn(x.shape, generator=random).double()))
    before, clean = batch_of(algorithm, r), r.logp
    after = batch_of(algorithm, noisy)
    assert torch.equal(before.advantages, after.advantages)
    loss, gradient = loss_and_gradient(algorithm, clean, before)
    after = replace(after, advantages=after.advantages.masked_fill(~r.mask, 1e9))
    noisy_loss, noisy_gradient = loss_and_gradient(algorithm, noisy.logp, after)
    assert noisy_loss == loss
    assert torch.equal(noisy_gradient, gradient)
    assert (gradient[~r.mask] == 0).all()
    assert gradient.isfinite().all()
    assert not algorithm.loss(noisy.logp, after).clipped[~r.mask].any()
    assert not algorithm.objective(noisy.logp, after).advantages[~r.mask].any()


@every_algorithm
def test_permuting_a_group_permutes_the_gradient(algorithm):
    r, order = rollout(3), torch.tensor([2, 0, 1])
    permuted = r.permuted(order)
    loss, gradient = loss_and_gradient(algorithm, r.logp, batch_of(algorithm, r))
    same_loss, moved = loss_and_gradient(algorithm, permuted.logp, batch_of(algorithm, permuted))
    close(same_loss, loss, rtol=1e-9)
    close(moved, gradient[:, order], rtol=1e-9)
    assert gradient.any()


@every_algorithm
def test_all_equal_rewards_give_finite_numbers_and_in_groups_none_but_the_kl(algorithm):
    r = rollout(4)
    equal = r.replace(
        rewards=torch.full_like(r.rewards, 0.1),
        step_rewards=torch.full_like(r.step_rewards, 0.1),
        well_formed=torch.ones_like(r.well_formed),
        visits=r.visits[..., :0],
    )
    loss, gradient = loss_and_gradient(algorithm, r.logp, batch_of(algorithm, equal))
    assert loss.isfinite() and gradient.isfinite().all()
    if not isinstance(algorithm, ActorCritic):
        batch = batch_of(algorithm, equal)
        assert not batch.advantages.any()
        loss, gradient = loss_and_gradient(algorithm.without_kl(), r.logp, batch)
        assert loss == 0 and not gradient.any()


@every_algorithm
def test_a_response_without_tokens_contributes_nothing_and_is_not_counted(algorithm):
    r = rollout(5)
    batch = batch_of(algorithm, r)
    loss, gradient = loss_and_gradient(algorithm, r.logp, batch)

    def beside(x):
        return torch.cat([x, torch.ones_like(x[:, :1])], 1)

    bigger = Batch(beside(batch.old_logp), beside(batch.advantages), beside(batch.mask), beside(batch.ref_logp))
    bigger.mask[:, -1] = False
    same_loss, wider = loss_and_gradient(algorithm, beside(r.logp), bigger)
    close(same_loss, loss)
    close(wider, torch.cat([gradient, torch.zeros_like(gradient[:, :1])], 1))


@every_algorithm
def test_parts_with_the_weights_of_the_whole_add_up_to_the_whole(algorithm):
    r = rollout(6)
    batch = batch_of(algorithm, r)
    loss, gradient = loss_and_gradient(algorithm, r.logp, batch)
    weights, total, gradients = algorithm.aggregate(batch.mask), 0.0, torch.zeros_like(gradient)
    for p, g in ((p, g) for p in range(2) for g in range(3)):
        part = slice(p, p + 1), slice(g, g + 1)
        tensors = batch.old_logp, batch.advantages, batch.mask, batch.ref_logp, weights
        loss_of_part, gradients[part] = loss_and_gradient(algorithm, r.logp[part], Batch(*(x[part] for x in tensors)))
        total += loss_of_part
    close(total, loss)
    close(gradients, gradient)


@every_algorithm
def test_diagnostics_are_exactly_where_the_gradient_is_cut(algorithm):
    kinds = torch.zeros(3, dtype=torch.long)
    for seed in range(6):
        r = rollout(seed, width=20)
        without_kl, batch = algorithm.without_kl(), batch_of(algorithm, r)
        output = without_kl.loss(r.logp.clone().requires_grad_(), batch)
        _, gradient = loss_and_gradient(without_kl, r.logp, batch)
        assert torch.equal(output.clipped, (gradient == 0) & r.mask & (batch.advantages != 0))
        good, bad, dual = batch.advantages > 0, batch.advantages < 0, DUAL.get(algorithm.name, math.inf)
        expected = (
            bad & (output.ratio < output.lower),
            good & (output.ratio > output.upper),
            bad & (output.ratio > dual),
        )
        assert all(map(torch.equal, (output.clipped_low, output.clipped_high, output.clipped_dual), expected))
        kinds += double([cut.sum() for cut in expected]).long()
        close(output.ratio[r.mask], algorithm.ratio(r.logp, r.old_logp, r.mask)[r.mask])
        assert not any(x.requires_grad for x in (output.ratio, output.lower, output.upper))
    assert [bool(n) for n in kinds] == [algorithm is not PPO_PENALTY] * 2 + [algorithm.name == "DCPO"]


@every_algorithm
@seeds(4)
def test_on_policy_the_gradient_is_the_policy_gradient(algorithm, seed):
    # r = 1 and no KL has anything to say: J = Σ w A and ∂J/∂logp = w A, also where the ratio is the response's
    r = rollout(seed)
    r = r.replace(logp=r.old_logp, ref_logp=r.old_logp)
    batch = batch_of(algorithm, r)
    loss, gradient = loss_and_gradient(algorithm, r.logp, batch)
    expected = algorithm.aggregate(r.mask) * batch.advantages
    close(gradient, -expected, rtol=1e-9)
    close(loss, -expected.sum(), rtol=1e-9, atol=1e-12)


def test_rows_without_advantage_may_leave_only_where_that_is_exact():
    r = rollout(7)
    for algorithm in POLICY_GRADIENTS:
        nothing = replace(batch_of(algorithm, r), advantages=torch.zeros_like(r.logp))
        loss, gradient = loss_and_gradient(algorithm, r.logp, nothing)
        assert algorithm.ignores_zero_advantages() == (loss == 0 and not gradient.any())
    for term in (lambda r: -((r - 1) ** 2), lambda r: r - r.detach(), torch.ones_like):
        algorithm = replace(NO_KL, surrogate=lambda r, a, lower, upper, term=term: r * a + term(r))
        assert not algorithm.ignores_zero_advantages()


def test_a_student_s_ratio_need_not_care_about_padding():
    careless = replace(NO_KL, ratio=lambda logp, old_logp, mask: (logp - old_logp).exp())
    r = rollout(9)
    batch = batch_of(NO_KL, r)
    far = r.logp.masked_fill(~r.mask, 5e3)  # exp of it is ∞, and 0 · ∞ no number
    loss, gradient = loss_and_gradient(careless, far, batch)
    expected, expected_gradient = loss_and_gradient(NO_KL, r.logp, batch)
    assert loss == expected
    assert torch.equal(gradient, expected_gradient)
