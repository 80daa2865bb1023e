"""The GRPO loss against a slow plain-Python one, and what every loss must keep to."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlviz.algorithms import ALGORITHMS, GRPO, changes, command_name, find_algorithm
from rlviz.algorithms.describe import describe, rebuild
from rlviz.pieces.aggregation import sequence_mean
from rlviz.pieces.bounds import FixedBounds
from rlviz.types import Batch

NO_KL = replace(GRPO, kl=None)


def slow_grpo(logp, old_logp, ref_logp, rewards, lengths, *, eps=0.2, beta=0.04):
    """GRPO's objective (arXiv 2402.03300 Eq. 3) with loops and floats; lists [P][G][T], advantages included."""
    responses, total = 0, 0.0
    for p, group in enumerate(rewards):
        mean = sum(group) / len(group)
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / (len(group) - 1))
        for g, reward in enumerate(group):
            if lengths[p][g] == 0:
                continue
            responses += 1
            advantage = 0.0 if len(set(group)) == 1 else (reward - mean) / (std + 1e-6)
            row = 0.0
            for t in range(lengths[p][g]):
                ratio = math.exp(logp[p][g][t] - old_logp[p][g][t])
                clipped = min(max(ratio, 1 - eps), 1 + eps)
                x = ref_logp[p][g][t] - logp[p][g][t]
                row += min(ratio * advantage, clipped * advantage) - beta * (math.exp(x) - x - 1)
            total += row / lengths[p][g]
    return -total / responses


def random_batch(seed, prompts=2, group_size=3, width=4):
    generator = torch.Generator().manual_seed(seed)
    shape = (prompts, group_size, width)
    logp, old_logp, ref_logp = (-3 * torch.rand(shape, generator=generator, dtype=torch.double) for _ in range(3))
    lengths = torch.randint(1, width + 1, shape[:2], generator=generator)
    mask = torch.arange(width) < lengths.unsqueeze(-1)
    rewards = torch.randint(0, 3, shape[:2], generator=generator).double()
    return logp, old_logp, ref_logp, rewards, mask


def loss_of(algorithm, logp, old_logp, ref_logp, rewards, mask):
    return algorithm.loss(logp, Batch(old_logp, algorithm.advantages(rewards, mask), mask, ref_logp))


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_loss_is_the_slow_one(seed):
    logp, old_logp, ref_logp, rewards, mask = random_batch(seed)
    expected = slow_grpo(*(x.tolist() for x in (logp, old_logp, ref_logp, rewards)), mask.sum(-1).tolist())
    loss = loss_of(GRPO, logp, old_logp, ref_logp, rewards, mask).loss
    assert loss.item() == pytest.approx(expected, rel=1e-12, abs=1e-14)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_padding_holds_anything_and_gets_exactly_no_gradient(seed):
    logp, old_logp, ref_logp, rewards, mask = random_batch(seed)
    advantages = GRPO.advantages(rewards, mask)
    before = GRPO.loss(logp, Batch(old_logp, advantages, mask, ref_logp)).loss
    noisy = [
        x.masked_fill(~mask, value) for x, value in ((logp, 88.0), (old_logp, -3e5), (ref_logp, 7e8), (advantages, 1e9))
    ]
    noisy_logp = noisy[0].requires_grad_()
    output = GRPO.loss(noisy_logp, Batch(noisy[1], noisy[3], mask, noisy[2]))
    output.loss.backward()
    assert output.loss.item() == before.item()
    assert (noisy_logp.grad[~mask] == 0).all()
    assert noisy_logp.grad[mask].isfinite().all()
    assert not (output.clipped_low | output.clipped_high)[~mask].any()


def test_a_student_s_ratio_need_not_care_about_padding():
    careless = replace(NO_KL, ratio=lambda logp, old_logp, mask: (logp - old_logp).exp())
    logp, old_logp, _, rewards, mask = random_batch(9)
    leaf = logp.masked_fill(~mask, 5e3).requires_grad_()  # exp would overflow, and 0 · ∞ is no number
    output = loss_of(careless, leaf, old_logp, None, rewards, mask)
    output.loss.backward()
    assert output.loss.item() == loss_of(NO_KL, logp, old_logp, None, rewards, mask).loss.item()
    assert (leaf.grad[~mask] == 0).all()


def test_permuting_a_group_permutes_the_gradient():
    logp, old_logp, ref_logp, rewards, mask = random_batch(3)
    order = torch.tensor([2, 0, 1])

    def gradient(*tensors):
        leaf = tensors[0].clone().requires_grad_()
        loss_of(GRPO, leaf, *tensors[1:]).loss.backward()
        return leaf.grad

    straight = gradient(logp, old_logp, ref_logp, rewards, mask)
    permuted = gradient(*(x[:, order] for x in (logp, old_logp, ref_logp, rewards, mask)))
    torch.testing.assert_close(permuted, straight[:, order], rtol=1e-12, atol=1e-15)


def test_equal_rewards_give_loss_and_gradient_zero_without_kl():
    logp, old_logp, _, rewards, mask = random_batch(4)
    leaf = logp.requires_grad_()
    output = loss_of(NO_KL, leaf, old_logp, None, torch.full_like(rewards, 0.1), mask)
    output.loss.backward()
    assert output.loss.item() == 0
    assert (leaf.grad == 0).all()


def test_on_policy_the_value_is_zero_and_the_gradient_is_the_policy_gradient():
    # ratio 1 everywhere: J = Σ w A, which is 0 over each group of equal lengths, and ∂J/∂logp = w A
    _, old_logp, _, rewards, mask = random_batch(5)
    mask = torch.ones_like(mask)
    leaf = old_logp.clone().requires_grad_()
    advantages = NO_KL.advantages(rewards, mask)
    output = NO_KL.loss(leaf, Batch(old_logp, advantages, mask))
    output.loss.backward()
    assert output.loss.item() == pytest.approx(0, abs=1e-15)
    torch.testing.assert_close(leaf.grad, -(sequence_mean(mask) * advantages), rtol=1e-9, atol=1e-12)


def test_diagnostics_are_those_of_the_loss():
    logp, old_logp, _, rewards, mask = random_batch(6)
    leaf = logp.requires_grad_()
    advantages = NO_KL.advantages(rewards, mask)
    output = NO_KL.loss(leaf, Batch(old_logp, advantages, mask))
    output.loss.backward()
    cut = (leaf.grad == 0) & mask & (advantages != 0)
    assert cut.any()
    assert (cut == (output.clipped_low | output.clipped_high)).all()
    torch.testing.assert_close(output.ratio[mask], (logp - old_logp).exp()[mask])


def test_weights_given_are_used_so_that_parts_add_up_to_the_whole():
    logp, old_logp, ref_logp, rewards, mask = random_batch(7)
    advantages = GRPO.advantages(rewards, mask)
    weights = sequence_mean(mask)
    whole = GRPO.loss(logp, Batch(old_logp, advantages, mask, ref_logp)).loss
    parts = sum(
        GRPO.loss(logp[p : p + 1], Batch(*(x[p : p + 1] for x in (old_logp, advantages, mask, ref_logp, weights)))).loss
        for p in range(2)
    )
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-15)


def test_kl_without_a_reference_is_refused():
    logp, old_logp, _, rewards, mask = random_batch(8)
    with pytest.raises(ValueError, match="needs ref_logp"):
        loss_of(GRPO, logp, old_logp, None, rewards, mask)


def test_rows_may_leave_only_where_that_is_exact():
    assert NO_KL.ignores_zero_advantages()
    assert not GRPO.ignores_zero_advantages()
    assert not replace(NO_KL, surrogate=lambda r, a, lower, upper: r * a - (r - 1) ** 2).ignores_zero_advantages()


def test_changes_names_exactly_the_slots_that_differ():
    wider = GRPO.with_parameters(eps_high=0.28)
    assert changes(GRPO, wider) == {"bounds": (FixedBounds(0.2, 0.2), FixedBounds(0.2, 0.28))}
    assert changes(GRPO, GRPO) == {}
    assert set(GRPO.slots()) == {"ratio", "bounds", "surrogate", "advantage", "kl", "aggregate", "shape", "select"}


def test_unknown_parameters_and_misfitting_pieces_are_refused():
    with pytest.raises(ValueError, match=r"no parameter 'epsilon'.*eps_high"):
        GRPO.with_parameters(epsilon=0.2)
    with pytest.raises(ValueError, match="eps_low"):
        GRPO.with_parameters(eps_low=1.5)
    with pytest.raises(TypeError, match="surrogate must take 4 arguments"):
        replace(GRPO, surrogate=lambda ratio, advantages: ratio * advantages)
    with pytest.raises(TypeError, match="bounds must be a function of 1 argument"):
        replace(GRPO, bounds=FixedBounds)
    with pytest.raises(TypeError, match="unknown slot 'bound'; did you mean bounds"):
        replace(GRPO, bound=FixedBounds())


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, NO_KL, GRPO.with_parameters(eps_high=0.5)], ids=lambda a: a.name)
def test_json_and_back(algorithm):
    assert rebuild(describe(algorithm)) == algorithm


@pytest.mark.parametrize(
    "named", ["os:system", "builtins:eval", "rlviz.cli:main", "rlviz.pieces.kl:torch.load", "rlviz.pieces.kl:_x"]
)
def test_only_pieces_are_rebuilt(named):
    with pytest.raises(ValueError, match=r"not a piece|no piece"):
        rebuild({**describe(GRPO), "kl": {"piece": named}})


def test_names_are_found_and_the_nearest_offered():
    assert find_algorithm("grpo") is find_algorithm("GRPO") is GRPO
    assert command_name(replace(GRPO, name="Dr.GRPO")) == "dr-grpo"
    with pytest.raises(ValueError, match=r"'grop' is not known; did you mean .*grpo"):
        find_algorithm("grop")
