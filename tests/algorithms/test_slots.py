"""The slots keep what they promise: whatever fits a slot trains, and what does not is refused where the algorithm is built."""

import math
from dataclasses import dataclass, replace

import pytest
import torch

from rlviz.algorithms import (
    ALGORITHMS,
    DCPO,
    GRPO,
    PPO,
    PPO_PENALTY,
    RELATIVES,
    GroupPolicyGradient,
    PolicyGradient,
    base,
)
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.kl import AdaptivePenalty, KLInLoss, KLInReward, k3
from rlviz.training import TrainSettings, train
from rlviz.types import Batch
from small_models.policies import load_policy
from small_models.tasks import Chain

SHORT = TrainSettings(steps=2, num_prompts=4, group_size=2, updates_per_rollout=2, evaluate_every=0, details_every=0)
NO_KL = replace(GRPO, kl=None)
WITH_SLOTS = [a for a in ALGORITHMS if isinstance(a, PolicyGradient)]


def trained(algorithm, settings=SHORT, **named):
    return list(train(load_policy("chain", device="cpu"), Chain(), algorithm, settings, **named))


# --- the history is remembered by the advantage, and by nothing else ---


def test_what_is_remembered_is_what_was_standardized():
    # k1 penalties .5 · (1 + 1) and .5 · (0 + 2) leave R − KL = 0 and −1: mean −½, variance ¼. The rewards' own are ½ and ¼,
    # lowest 0 and highest 1
    charged = replace(DCPO, kl=KLInReward(beta=0.5))
    old_logp = torch.tensor([[[-1.0, -1.0], [-2.0, -1.0]]])
    ref_logp = torch.tensor([[[-2.0, -2.0], [-2.0, -3.0]]])
    mask = torch.ones(1, 2, 2, dtype=torch.bool)
    rewards = torch.tensor([[1.0, 0.0]])
    advantages, history = charged.advantages(rewards, mask, old_logp=old_logp, ref_logp=ref_logp)
    assert advantages.tolist() == [[[1.0, 1.0], [-1.0, -1.0]]]
    assert (history.mean.item(), history.variance.item()) == (-0.5, 0.25)
    assert (history.lowest.item(), history.highest.item(), history.visits.item()) == (-1.0, 0.0, 1)
    # a second visit with the same R − KL is standardized by a history of the same: ∓1 once more
    again, history = charged.advantages(rewards, mask, old_logp=old_logp, ref_logp=ref_logp, history=history)
    assert again.tolist() == [[[1.0, 1.0], [-1.0, -1.0]]]
    assert (history.mean.item(), history.variance.item(), history.visits.item()) == (-0.5, 0.25, 2)


def test_an_advantage_without_a_history_hands_it_back_as_it_came():
    mask, history = torch.ones(1, 2, 1, dtype=torch.bool), PromptHistory.empty(1)
    assert NO_KL.advantages(torch.tensor([[1.0, 0.0]]), mask)[1] is None
    assert NO_KL.advantages(torch.tensor([[1.0, 0.0]]), mask, history=history)[1] is history


# --- whatever fits a slot trains ---


def to_the_old_policy(logp, old_logp):
    return 0.5 * k3(old_logp, logp)


def in_the_reward(old_logp, ref_logp, mask):
    return (0.1 * (old_logp - ref_logp)).masked_fill(~mask, 0.0)


in_the_reward.in_reward = True


class Lagrange:
    """A weight of one's own, no parameter of a dataclass: nobody can change it by name."""

    beta = 0.3

    def __call__(self, logp, ref_logp):
        return self.beta * (logp - ref_logp).square()


# with a critic and without, in turn
@pytest.mark.parametrize(("algorithm", "kl"), [(GRPO, to_the_old_policy), (PPO, Lagrange())])
def test_a_kl_of_one_s_own_trains(algorithm, kl):
    mine = replace(algorithm, kl=kl)
    records = trained(mine, SHORT)
    assert [record.beta for record in records] == [None] * 2
    assert all(math.isfinite(record.loss) and record.grad_norm > 0 for record in records)
    assert all((record.kl_to_old is not None) == (kl is to_the_old_policy) for record in records)
    assert mine.beta is None


def test_a_kl_of_one_s_own_in_the_reward_is_the_piece_s():
    mine, theirs = replace(PPO, kl=in_the_reward), PPO.with_parameters(beta=0.1)
    assert [r.loss for r in trained(mine)] == [r.loss for r in trained(theirs)]
    assert mine.needs_reference and mine.kl_in_reward and not mine.kl_in_loss


def test_a_weight_that_is_a_parameter_is_told_and_controlled():
    @dataclass(frozen=True)
    class Squared:
        beta: float = 0.2

        def __call__(self, logp, old_logp):
            return self.beta * (logp - old_logp).square()

    mine = replace(PPO_PENALTY, kl=Squared(), controller=AdaptivePenalty(target=1e-9))
    betas = [record.beta for record in trained(mine)]
    assert betas == [0.2, 0.4]  # any KL at all is above 1.5 · 1e-9, so it doubles after each step


# --- what does not fit is refused where the algorithm is built ---


def test_a_weight_that_was_halved_for_long_can_come_back():
    nearly_none = PPO_PENALTY.with_parameters(beta=1.5e-9)
    assert nearly_none.adapt_beta(0.0, 8).beta == 1e-9 and nearly_none.adapt_beta(1.0, 8).beta == 3e-9


def test_without_its_kl_an_algorithm_has_nothing_to_control():
    for algorithm in WITH_SLOTS:
        bare = algorithm.without_kl()
        assert bare.kl is None and not bare.kl_in_reward and bare.beta is None
    assert PPO_PENALTY.without_kl().controller is None and PPO.without_kl().controller is None


def test_the_pieces_of_the_family_have_what_their_slots_may_have():
    assert {a.name: a.beta for a in WITH_SLOTS if a.beta} == {"PPO": 0.02, "PPO-Penalty": 0.01, "GRPO": 0.04}
    assert [a.name for a in WITH_SLOTS if a.can.max_rounds > 1] == ["DAPO"]
    assert replace(GRPO, kl=KLInLoss(beta=0.5)).beta == 0.5
    sampled = [a for a in (*ALGORITHMS, *RELATIVES) if isinstance(a, GroupPolicyGradient)]
    assert {a.name: a.min_group_size for a in sampled if a.min_group_size != 2} == {
        "REINFORCE++": 1,
        "RFT": 1,
        "Distillation": 1,
        "Pass@k": 4,
    }  # the others compare with a group
    assert PPO.min_group_size == 1


# --- limits ---


def test_a_token_that_nobody_sampled_has_no_limits():
    old_logp = torch.log(torch.tensor([[[0.5, 0.5, 0.003]]]))
    mask = torch.tensor([[[True, True, False]]])
    batch = Batch(old_logp, torch.ones_like(old_logp), mask)
    on_padding = replace(NO_KL, bounds=lambda old_logp: (torch.where(old_logp == 0, 2.0, 0.8), 1.2))
    assert math.isfinite(on_padding.loss(old_logp, batch).loss)


def test_where_a_read_would_block_crossed_limits_become_nan(monkeypatch):
    monkeypatch.setattr(base, "needs_sync", lambda device: True)
    lower = torch.tensor([[[0.8, 1.0, 1.2, 1.2]]])
    mask = torch.tensor([[[True, True, True, False]]])
    crossed = replace(NO_KL, bounds=lambda old_logp: (lower, 1.0))
    low, high = crossed.limits(-lower, mask, lower)
    assert low.flatten().tolist() == pytest.approx([0.8, 1.0, math.nan, 1.2], nan_ok=True)
    assert high.flatten().tolist() == pytest.approx([1.0, 1.0, math.nan, 1.0], nan_ok=True)
