"""The relatives: by hand and by their authors' code (their formulas: test_formulas.py), and a short training of each."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import (
    CISPO as AUTHORS_CISPO,
    DPPO_TV,
    ECHO,
    GMPO,
    GRPO,
    GSPO,
    KL_COV,
    LUSPO,
    PRIME_RL,
    RELATIVES,
    GroupPolicyGradient,
)
from rlviz.page.tracing import evaluate
from rlviz.pictures.clip import clip_curve
from rlviz.pieces.advantages import LengthWeighted, MeanScaled
from rlviz.pieces.aggregation import sequence_mean
from rlviz.pieces.bounds import ChangeBounds, FixedBounds
from rlviz.tabular import good_actions, train_table
from rlviz.types import Batch

CISPO = replace(AUTHORS_CISPO, bounds=FixedBounds(0.2, 0.28))  # both limits, so that both are seen
WITHOUT_TEACHER = [
    a for a in RELATIVES if isinstance(a, GroupPolicyGradient) and not a.can.from_teacher and a is not ECHO
]


def a_batch():
    generator = torch.Generator().manual_seed(5)
    shape = (2, 3, 4)
    logp, old_logp, ref_logp = (-3 * torch.rand(shape, generator=generator, dtype=torch.double) for _ in range(3))
    lengths = torch.tensor([[4, 2, 1], [3, 4, 2]])
    rewards = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 1.0]], dtype=torch.double)
    return logp, old_logp, ref_logp, torch.arange(4) < lengths.unsqueeze(-1), lengths, rewards


def test_a_surrogate_in_logp_itself_is_cut_where_its_gradient_is():
    """CISPO as it is often written, with logp in place of log r: the same gradient, and nothing is clipped."""

    def in_logp(ratio, advantages, lower, upper, logp):
        return torch.clamp(ratio, lower, upper).detach() * advantages * logp

    logp, old_logp, _, mask, _, rewards = a_batch()
    gradients, outputs = [], []
    for algorithm in (CISPO, replace(CISPO, surrogate=in_logp)):
        leaf = logp.clone().requires_grad_()
        outputs.append(algorithm.loss(leaf, Batch(old_logp, CISPO.advantages(rewards, mask)[0], mask)))
        outputs[-1].loss.backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=0)
    assert not outputs[0].clipped.any() and not outputs[1].clipped.any()

    def cut_above(ratio, advantages, lower, upper, logp):
        return torch.where(ratio > upper, advantages, advantages * logp)

    output = replace(CISPO, surrogate=cut_above).loss(logp, Batch(old_logp, CISPO.advantages(rewards, mask)[0], mask))
    advantages = CISPO.advantages(rewards, mask)[0]
    assert (output.clipped == ((output.ratio > 1.28) & (advantages != 0) & mask)).all() and output.clipped.any()


@pytest.mark.parametrize("algorithm", WITHOUT_TEACHER, ids=lambda a: a.name)
def test_it_learns_on_a_table_and_on_policy_the_push_is_the_advantage(algorithm):
    run = train_table(algorithm, good_actions(3, 10), steps=30, replicas=3, groups=2, lr=0.6)
    assert (run.accuracy[:, 0] == pytest.approx(0.3)) and run.accuracy[:, -1].mean() > 0.6
    at = evaluate(clip_curve(algorithm), {"old_prob": 0.6, "dual_clip": 0.0, "up_to": 2.0})
    kink = 0.3 if algorithm is KL_COV else 0.02  # at 1
    assert at["push_good"][(at["ratio"] - 1).abs().argmin()].item() == pytest.approx(1.0, abs=kink)


def test_cispo_s_authors_leave_the_lower_limit_out():
    old_logp = torch.tensor([[[-1.0, -1.0, -1.0]]], dtype=torch.double)
    logp = (old_logp + torch.tensor([0.01, 1.0, 9.0], dtype=torch.double).log()).requires_grad_()
    mask = torch.ones(1, 1, 3, dtype=torch.bool)
    AUTHORS_CISPO.loss(logp, Batch(old_logp, torch.ones_like(old_logp), mask)).loss.backward()
    torch.testing.assert_close(logp.grad, -torch.tensor([[[0.01, 1.0, 5.0]]], dtype=torch.double) / 3)


def test_gmpo_at_one_token_is_the_clipped_objective():
    mask = torch.ones(5, 1, 1, dtype=torch.bool)
    old_logp = torch.full((5, 1, 1), -2.0, dtype=torch.double)
    logp = old_logp + torch.tensor([0.3, 0.8, 1.0, 1.4, 2.0], dtype=torch.double).log().view(5, 1, 1)
    plain = replace(GMPO, surrogate=GRPO.surrogate)
    for sign in (1.0, -1.0):
        batch = Batch(old_logp, torch.full_like(logp, sign), mask)
        torch.testing.assert_close(
            GMPO.objective(logp, batch).value, plain.objective(logp, batch).value, rtol=1e-12, atol=0
        )
    assert GMPO.aggregate is sequence_mean


def test_dppo_cuts_a_gradient_where_a_probability_has_changed_by_delta_the_good_way():
    """The paper's mask on each token, as verl computes it: p − q ≤ δ where A > 0, p − q ≥ −δ where A < 0; the gradient r A."""
    q = torch.tensor([0.01, 0.01, 0.3, 0.3, 0.9, 0.9, 0.2, 0.2], dtype=torch.double)
    p = torch.tensor([0.15, 0.17, 0.44, 0.46, 0.76, 0.74, 0.01, 0.3], dtype=torch.double)
    for sign in (1.0, -1.0):
        logp = p.log().view(1, 1, -1).requires_grad_()
        batch = Batch(q.log().view(1, 1, -1), torch.full((1, 1, 8), sign), torch.ones(1, 1, 8, dtype=torch.bool))
        DPPO_TV.loss(logp, batch).loss.backward()
        uncut = p - q <= 0.15 if sign > 0 else p - q >= -0.15
        torch.testing.assert_close(logp.grad.flatten(), -(p / q) * sign * uncut / 8, rtol=1e-12, atol=0)
        assert not uncut.all()


@pytest.mark.parametrize(
    ("advantage", "theirs"),
    [
        (1.0, [-14.994584, 0.006182, -1.465901, 0.001061, -0.844783, -0.767198, -0.055991, -1.199635]),
        (-1.0, [15.005416, 22.006182, 1.467433, 1.701061, 0.844106, -0.000531, 0.044009, 1.200365]),
    ],
)
def test_prime_rl_s_gradient_is_that_of_its_own_code(advantage, theirs):
    """theirs: default_loss_fn of prime-rl 0.8.0 (559b447, src/prime_rl/trainer/rl/loss.py), run on these eight tokens."""
    q = torch.tensor([0.01, 0.01, 0.3, 0.3, 0.9, 0.9, 0.2, 0.5], dtype=torch.double)
    p = torch.tensor([0.15, 0.22, 0.44, 0.51, 0.76, 0.69, 0.01, 0.6], dtype=torch.double)
    logp = p.log().view(1, 1, -1).requires_grad_()
    batch = Batch(q.log().view(1, 1, -1), torch.full((1, 1, 8), advantage), torch.ones(1, 1, 8, dtype=torch.bool))
    PRIME_RL.loss(logp, batch).loss.backward()
    assert (8 * logp.grad.flatten()).tolist() == pytest.approx(theirs, abs=1e-6)  # they sum, and divide elsewhere
    advantages, _ = PRIME_RL.advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.ones(1, 4, 1).bool())
    assert advantages.flatten().tolist() == [0.75, -0.25, -0.25, -0.25]


def test_luspo_weighs_a_response_by_its_length_where_gspo_does_not():
    logp, old_logp, _, mask, lengths, rewards = a_batch()
    gradients = []
    for algorithm in (GSPO, LUSPO):
        leaf = (old_logp + 1e-5 * logp).requires_grad_()  # within limits that are as narrow as GSPO's
        algorithm.loss(leaf, Batch(old_logp, algorithm.advantages(rewards, mask)[0], mask)).loss.backward()
        gradients.append(leaf.grad)
    gspo, luspo = gradients
    torch.testing.assert_close(luspo, gspo * lengths.unsqueeze(-1), rtol=1e-10, atol=0)
    assert (gspo[mask] != 0).sum() == 15  # one advantage is 0


def test_the_limits_of_a_change_by_hand():
    lower, upper = ChangeBounds(delta=0.1)(torch.tensor([0.05, 0.1, 0.5, 1.0], dtype=torch.double).log())
    torch.testing.assert_close(lower, torch.tensor([0.0, 0.0, 0.8, 0.9], dtype=torch.double))
    torch.testing.assert_close(upper, torch.tensor([3.0, 2.0, 1.2, 1.1], dtype=torch.double))


def test_maxrl_s_advantage_by_hand():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], [0.0] * 4, [1.0] * 4], dtype=torch.double)
    third = 1 / 3
    expected = [[3.0, -1.0, -1.0, -1.0], [third, third, third, -1.0], [0.0] * 4, [0.0] * 4]
    torch.testing.assert_close(MeanScaled()(rewards), torch.tensor(expected, dtype=torch.double))


def test_maxrl_climbs_the_pass_rates_that_a_group_can_see():
    """E[(1/G) Σ A_i ∂log π_i] = Σ_{k < G} (1/k) ∂pass@k, enumerated for G = 3 draws of one action of two.

    Without the baseline, (1/K) Σ over the K right ones of ∂log π, the sum goes to k = G (the paper's theorem). The baseline
    takes the mean score off where K > 0. That score's mean over all draws is 0, so what stays is its mean where K = 0: it is
    −(1 − p)^(G−1), the last term, (1/G) ∂pass@G, taken off.
    """
    for p in (0.1, 0.5, 0.8):
        gradient = 0.0
        for draws in range(8):
            right = [draws >> i & 1 for i in range(3)]
            probability = math.prod(p if r else 1 - p for r in right)
            advantages = MeanScaled()(torch.tensor([right], dtype=torch.double))[0].tolist()
            scores = [1 / p if r else -1 / (1 - p) for r in right]  # ∂log π/∂p
            gradient += probability * sum(a * s for a, s in zip(advantages, scores, strict=True)) / 3
        failing = 1 - p
        assert gradient == pytest.approx(1 + failing)  # (1/k) ∂pass@k/∂p = (1 − p)^(k−1), for k = 1 and 2


def test_opo_s_baseline_by_hand():
    mask = torch.tensor([[[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]]]).bool()
    rewards = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.double)
    torch.testing.assert_close(
        LengthWeighted()(rewards, mask), torch.tensor([[1.0, -7.0, 1.0]], dtype=torch.double) / 8
    )
    assert LengthWeighted()(torch.full((1, 3), 0.3), mask).tolist() == [[0.0, 0.0, 0.0]]
