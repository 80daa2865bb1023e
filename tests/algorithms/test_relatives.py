"""The relatives: a short training of each, and what no other test says: prime-rl's own numbers, what MaxRL climbs.

Their formulas stand in test_formulas.py; their gradients, as TRL and verl compute them, in tests/interop/test_export.py.
"""

import math

import pytest
import torch

from rlviz.algorithms import ECHO, KL_COV, PRIME_RL, RELATIVES, GroupPolicyGradient
from rlviz.page.tracing import evaluate
from rlviz.pictures.clip import clip_curve
from rlviz.pieces.advantages import MeanScaled
from rlviz.tabular import good_actions, train_table
from rlviz.types import Batch

SAMPLED = [a for a in RELATIVES if isinstance(a, GroupPolicyGradient)]
WITHOUT_TEACHER = [a for a in SAMPLED if not a.can.from_teacher and a is not ECHO]


@pytest.mark.parametrize("algorithm", WITHOUT_TEACHER, ids=lambda a: a.name)
def test_it_learns_on_a_table_and_on_policy_the_push_is_the_advantage(algorithm):
    run = train_table(algorithm, good_actions(3, 10), steps=30, replicas=3, groups=2, lr=0.6)
    assert (run.accuracy[:, 0] == pytest.approx(0.3)) and run.accuracy[:, -1].mean() > 0.6
    at = evaluate(clip_curve(algorithm), {"old_prob": 0.6, "dual_clip": 0.0, "up_to": 2.0})
    kink = 0.3 if algorithm is KL_COV else 0.02  # at 1
    assert at["push_good"][(at["ratio"] - 1).abs().argmin()].item() == pytest.approx(1.0, abs=kink)


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
