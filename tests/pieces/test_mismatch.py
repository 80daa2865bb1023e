"""Corrections for a sampler that is not the trainer: against slow loops of the frameworks' formulas, and on average."""

import math

import pytest
import torch

from rlviz.algorithms import DECOUPLED_PPO, GRPO, ICE_POP, SEQUENCE_MASK, TIS, TWO_ENGINES
from rlviz.pieces.mismatch import FullWeight, MaskedWeight, TruncatedWeight, sequence_weight
from rlviz.pieces.ratios import ratio_to_sampler, token_ratio
from rlviz.pieces.surrogate import unclipped
from rlviz.types import Batch

LENGTHS = [[4, 2, 1], [3, 4, 2]]
ONE = torch.ones(1, 1, 1, dtype=torch.bool)


def a_batch(seed=3):
    draw = torch.Generator().manual_seed(seed)
    old_logp = -3 * torch.rand((2, 3, 4), generator=draw, dtype=torch.double)
    logp, sampler_logp = (old_logp + torch.randn(old_logp.shape, generator=draw, dtype=torch.double) for _ in range(2))
    mask = torch.arange(4) < torch.tensor(LENGTHS).unsqueeze(-1)
    rewards = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 1.0]], dtype=torch.double)
    return logp, old_logp, sampler_logp, mask, rewards


def slow_weight(name, log_ratio, per_response):
    """verl 0.9.1's and TRL 1.16's: a number above the upper limit is set to it ("tis"), one outside of both to 0 ("icepop")."""
    w = [math.exp(sum(log_ratio))] * len(log_ratio) if per_response else [math.exp(x) for x in log_ratio]
    if name == "tis":
        return [2.0 if x > 2 else x for x in w]
    return w if name == "full" else [x if 0.5 <= x <= 5 else 0.0 for x in w]


@pytest.mark.parametrize("per_response", [False, True], ids=["token", "sequence"])
@pytest.mark.parametrize("name", ["tis", "icepop", "full"])
def test_the_weights_are_the_frameworks_(name, per_response):
    _, old_logp, sampler_logp, mask, rewards = a_batch()
    ratio = sequence_weight if per_response else token_ratio
    piece = {"tis": TruncatedWeight(2.0, ratio), "icepop": MaskedWeight(0.5, 5.0, ratio), "full": FullWeight(ratio)}[
        name
    ]
    got, plain = piece(rewards, mask, old_logp, sampler_logp), GRPO.advantage(rewards)
    changed = 0
    for p in range(2):
        for g in range(3):
            n = LENGTHS[p][g]
            log_ratio = (old_logp - sampler_logp)[p, g, :n].tolist()
            expected = [float(plain[p, g]) * w for w in slow_weight(name, log_ratio, per_response)]
            assert got[p, g, :n].tolist() == pytest.approx(expected, rel=1e-12)
            changed += sum(w not in map(math.exp, log_ratio) for w in slow_weight(name, log_ratio, False))
    assert (changed == 0) == (name == "full")  # the limits are met


@pytest.mark.parametrize(("lowest", "highest"), [(1.0, 5.0), (0.5, 1.0)], ids=["lowest", "highest"])
def test_a_weight_that_is_a_limit_itself_is_kept(lowest, highest):
    """In TRL and verl only what is outside of both limits is left out. Where the engines agree, w is 1 exactly."""
    _, old_logp, _, mask, rewards = a_batch()
    got = MaskedWeight(lowest, highest)(rewards, mask, old_logp, old_logp)
    assert torch.equal(got, GRPO.advantage(rewards).unsqueeze(-1).expand(got.shape))


def test_the_sequence_mask_is_the_paper_s():
    logp, old_logp, sampler_logp, mask, rewards = a_batch(6)
    advantages = GRPO.advantages(rewards, mask)[0]
    leaf = logp.clone().requires_grad_()
    algorithm = SEQUENCE_MASK.with_parameters(delta=0.3).without_kl()
    value = algorithm.objective(leaf, Batch(old_logp, advantages, mask, sampler_logp=sampler_logp)).value
    plain = GRPO.without_kl().objective(logp, Batch(old_logp, advantages, mask)).value
    cases = []
    for p in range(2):
        for g in range(3):
            n = LENGTHS[p][g]
            distance = sum((sampler_logp - logp)[p, g, :n].tolist()) / n
            keep = float(advantages[p, g, 0]) >= 0 or distance <= 0.3
            cases.append((keep, float(advantages[p, g, 0]) < 0))
            assert value[p, g, :n].tolist() == [keep * x for x in plain[p, g, :n].tolist()]
    assert {(True, True), (False, True)} <= set(cases)  # of bad responses one is kept and one is not
    value.masked_fill(~mask, 0.0).sum().backward()
    assert not leaf.grad[value.detach() == 0].any() and not leaf.grad[~mask].any()


def test_where_the_trainer_samples_itself_nothing_is_corrected():
    logp, old_logp, _, mask, rewards = a_batch()
    expected = GRPO.advantages(rewards, mask)[0]
    for algorithm in (TIS, ICE_POP, DECOUPLED_PPO):
        assert torch.equal(algorithm.advantages(rewards, mask, old_logp=old_logp)[0], expected)
    near = old_logp + 0.1 * (logp - old_logp)
    batch, with_sampler = (Batch(old_logp, expected, mask, old_logp, sampler_logp=x) for x in (None, old_logp))
    for algorithm in (GRPO, *TWO_ENGINES):
        assert torch.equal(algorithm.loss(near, batch).loss, GRPO.loss(near, batch).loss)
        assert torch.equal(algorithm.loss(near, batch).loss, algorithm.loss(near, with_sampler).loss)
    assert torch.equal(ratio_to_sampler(logp, old_logp, mask, sampler_logp=old_logp), token_ratio(logp, old_logp, mask))


def test_a_weight_on_the_advantage_is_a_weight_on_the_objective():
    """w · min(r A, clip(r) A), as decoupled PPO has it, is what its advantage makes of the clipped objective."""
    logp, old_logp, sampler_logp, mask, rewards = a_batch()
    weighted = DECOUPLED_PPO.advantages(rewards, mask, old_logp=old_logp, sampler_logp=sampler_logp)[0]
    value = DECOUPLED_PPO.without_kl().objective(logp, Batch(old_logp, weighted, mask)).value
    plain = GRPO.without_kl().objective(logp, Batch(old_logp, GRPO.advantages(rewards, mask)[0], mask)).value
    w = (old_logp - sampler_logp).exp()
    torch.testing.assert_close(value[mask], (w * plain)[mask], rtol=1e-12, atol=0)


def test_which_correction_is_right_on_average():
    """Two tokens of three, all nine responses enumerated with the sampler's probabilities; the true gradient is of Σ π(o) R(o).

    A response's product of both weights gives it exactly. A weight of each token alone lacks the other token's, and a capped
    one is too small: both are biased, less so than no weight at all.
    """
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 3, generator=draw, dtype=torch.double)
    sampler = (logits + torch.randn(2, 3, generator=draw, dtype=torch.double)).log_softmax(-1)
    reward = torch.rand(3, 3, generator=draw, dtype=torch.double)
    leaf = logits.clone().requires_grad_()
    table = leaf.log_softmax(-1)
    expected = ((table[0].unsqueeze(1) + table[1]).exp() * reward).sum()
    true = torch.autograd.grad(expected, leaf, retain_graph=True)[0]

    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    old_logp, drawn = (torch.stack([x[0][pairs[:, 0]], x[1][pairs[:, 1]]], -1) for x in (table.detach(), sampler))
    mask = torch.ones(1, 9, 2, dtype=torch.bool)
    errors = {}
    for name, weight in {
        "none": torch.ones(1, 9, 2),
        "tokens": token_ratio(old_logp[None], drawn[None], mask),
        "response": sequence_weight(old_logp[None], drawn[None], mask),
        "capped": sequence_weight(old_logp[None], drawn[None], mask).clamp(max=1.5),
    }.items():
        logp = torch.stack([table[0][pairs[:, 0]], table[1][pairs[:, 1]]], -1)[None]
        advantages = reward.flatten().view(1, 9, 1) * weight
        limit = torch.ones_like(logp)
        j = unclipped((logp - logp.detach()).exp(), advantages, limit, limit).sum(-1)[0]
        gradient = torch.autograd.grad((drawn.sum(-1).exp() * j).sum(), leaf, retain_graph=True)[0]
        errors[name] = float((gradient - true).norm() / true.norm())
    assert errors["response"] < 1e-12
    assert 0.01 < errors["capped"] < errors["none"] and 0.01 < errors["tokens"] < errors["none"], errors
