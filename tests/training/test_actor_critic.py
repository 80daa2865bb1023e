"""PPO's run: a critic that learns, a KL weight that adapts."""

from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import PPO, PPO_PENALTY
from rlviz.pieces.kl import ProportionalController
from rlviz.training import TrainSettings, train
from rlviz.training.records import explained_variance
from small_models.policies import load_policy
from small_models.tasks import Chain, Grade

TASK = Chain()
SHORT = TrainSettings(
    steps=4, num_prompts=16, group_size=1, updates_per_rollout=2, evaluate_every=2, checkpoint_every=2, details_every=2,
    lr=1e-3, critic_lr=2e-3,
)  # fmt: skip
CRITICS = ("separate", "shared")


def start(algorithm=PPO, settings=SHORT, **kwargs):
    return train(load_policy("chain", device="cpu"), TASK, algorithm, settings, **kwargs)


def weights(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("critic", CRITICS)
def test_the_critic_starts_at_the_mean_reward(critic):
    run = start(settings=replace(SHORT, critic=critic))
    rollout = run.collect()
    torch.testing.assert_close(rollout.old_values, torch.full_like(rollout.old_values, float(rollout.rewards.mean())))
    # all V equal, λ = 1 and whitening: the advantage is the return-to-go, standardised over all tokens
    alike = PPO.with_parameters(lam=1.0)
    other = start(replace(alike, kl=None), replace(SHORT, critic=critic)).collect()
    mask = other.mask
    returns_to_go = other.rewards.unsqueeze(-1).expand(mask.shape)[mask].double()
    expected = (returns_to_go - returns_to_go.mean()) / (returns_to_go.var() + 1e-8).sqrt()
    torch.testing.assert_close(other.advantages[mask].double(), expected, rtol=1e-4, atol=1e-5)


def test_a_critic_learns_from_responses_without_an_advantage_too():
    """All rewards are 1 and V is 0: whitening leaves no advantage, but the critic is wrong."""

    class Generous(Chain):
        def grade(self, prompt, response):
            return Grade(format=True, correct=True)

    algorithm = replace(PPO, kl=None, advantage=replace(PPO.advantage, lam=1.0))
    run = train(load_policy("chain", device="cpu"), Generous(), algorithm, SHORT)
    run.state.step = 1  # the first step would set V to the mean reward
    before = weights(run.state.critic)
    rollout = run.collect()
    assert not rollout.advantages.any()
    assert run.update(rollout).rows == 2 * 16
    assert not torch.equal(before["scorer.head.bias"], run.state.critic.state_dict()["scorer.head.bias"])


def test_where_no_group_is_selected_no_gradient_of_the_step_before_is_left():
    run = start(replace(PPO, select=lambda rewards: torch.arange(0 if run.step else len(rewards))))
    next(run)
    assert any(p.grad.any() for p in run.state.critic.parameters())
    record = next(run)
    assert record.rows_used == record.grad_norm == record.loss == record.value_loss == 0
    assert not any(p.grad.any() for model in (run.policy.model, run.state.critic) for p in model.parameters())


@pytest.mark.parametrize("critic", CRITICS)
def test_at_first_the_critic_may_learn_alone(critic):
    run = start(settings=replace(SHORT, critic=critic, critic_only_steps=2))
    before, values = weights(run.policy.model), weights(run.state.critic)
    records = [next(run), next(run)]
    assert all(torch.equal(tensor, run.policy.model.state_dict()[name]) for name, tensor in before.items())
    assert any(not torch.equal(tensor, run.state.critic.state_dict()[name]) for name, tensor in values.items())
    assert [record.ratio_std for record in records] == pytest.approx([0, 0], abs=1e-5)
    next(run)
    assert not torch.equal(before["lm_head.weight"], run.policy.model.lm_head.weight)


def test_explained_variance_by_hand():
    values, returns = torch.tensor([[0.0, 1.0, 9.0]]), torch.tensor([[0.0, 2.0, -9.0]])
    mask = torch.tensor([[True, True, False]])
    # returns 0, 2: variance 2; errors 0, 1: variance ½
    assert explained_variance(values, returns, mask) == pytest.approx(1 - 0.5 / 2)
    assert explained_variance(values, torch.ones_like(values), mask) is None


def test_the_penalty_s_weight_is_halved_or_doubled_by_the_kl_after_the_updates_once_the_policy_moves():
    settings = replace(SHORT, num_prompts=4, evaluate_every=0, lr_warmup_steps=0)
    beta = PPO_PENALTY.kl.beta
    for target, factor, wait in ((1e-9, 2, 0), (10.0, 0.5, 0), (1e-9, 2, 2)):  # after 2 the third step moves the policy
        alone = replace(settings, critic_only_steps=wait, steps=wait + 2)
        records = list(start(PPO_PENALTY.with_parameters(target=target), alone))
        assert [record.beta for record in records] == [beta] * (wait + 1) + [pytest.approx(factor * beta)]
        assert records[wait].kl_to_old > 1e-8


def test_a_controller_of_the_kl_to_the_reference_sees_that_kl():
    """Ziegler's: β (1 + clip(KL / target − 1, ±0.2) · responses / horizon), here with KL far above the target."""
    run = start(replace(PPO, controller=ProportionalController(target=1e-9, horizon=160.0)))
    next(run)
    second = next(run)
    assert second.kl > 1e-6
    assert next(run).beta == pytest.approx(second.beta * (1 + 0.2 * 16 / 160))
