"""PPO's run: every tensor where it belongs, a critic that learns, a KL weight that adapts, the same curve after a stop."""

import gc
import weakref
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import PPO, PPO_PENALTY
from rlviz.pieces.kl import ProportionalController
from rlviz.training import TrainSettings, step, train
from rlviz.training.records import explained_variance
from small_models.policies import load_policy
from small_models.sampling import response_logits, token_entropy, token_logp
from small_models.tasks import Chain, Grade

TASK = Chain()
SHORT = TrainSettings(
    steps=4, num_prompts=16, group_size=1, updates_per_rollout=2, evaluate_every=2, checkpoint_every=2, details_every=2,
    lr=1e-3, critic_lr=2e-3,
)  # fmt: skip
CRITICS = ("separate", "shared")
OTHERS = [(PPO, "shared"), (PPO_PENALTY, "separate")]


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


@pytest.mark.parametrize(("algorithm", "critic"), OTHERS, ids=lambda value: getattr(value, "name", value))
def test_a_step_is_what_a_slow_loop_makes_of_it(algorithm, critic):
    """Do the second step again with plain loops and other optimizers, and compare weights and numbers."""
    algorithm = replace(algorithm, entropy_weight=0.05, value_loss=replace(algorithm.value_loss, eps_value=0.02))
    settings = replace(SHORT, critic=critic, temperature=0.8, lr_warmup_steps=0, max_grad_norm=0.2)
    run, twin = start(algorithm, settings), start(algorithm, settings)
    next(run), next(twin)
    record = next(run)
    rollout = twin.collect()
    value_losses = []
    s, beta = rollout.samples, twin.algorithm.kl.beta
    policy, critic_model = twin.policy.model, twin.state.critic
    together = [*policy.parameters(), *(critic_model.parameters() if critic == "shared" else ())]
    optimizers = [torch.optim.AdamW(together, lr=1e-3, weight_decay=0.0)]
    optimizers[0].state.update(
        twin.state.optimizers[0].state
    )  # what the first step left; the rates are those of the settings
    if critic == "separate":
        optimizers.append(torch.optim.AdamW(critic_model.parameters(), lr=2e-3, weight_decay=0.0))
        optimizers[1].state.update(twin.state.optimizers[1].state)
    mask = s.mask[:, 0]
    for _ in range(2):
        logits = response_logits(twin.policy, s.prompt_ids, s.prompt_mask, s.tokens)
        logp = token_logp(logits, s.tokens, temperature=0.8)[:, 0]
        entropy = token_entropy(logits, temperature=0.8)[:, 0]
        _, values = critic_model(twin.policy, s, alone=False)
        total, tokens = 0.0, int(mask.sum())
        value_losses.append(0.0)
        for i in range(16):
            for t in range(int(mask[i].sum())):
                old, a = s.logp[i, 0, t], rollout.advantages[i, 0, t]
                r = (logp[i, t] - old).exp()
                if algorithm is not None and algorithm.name == "PPO":
                    objective = torch.min(r * a, r.clamp(0.8, 1.2) * a)
                else:
                    objective = r * a - beta * (r - 1 - (logp[i, t] - old))
                v, was, goal = (x[i, 0, t] for x in (values, rollout.old_values, rollout.returns))
                near = was + (v - was).clamp(-0.02, 0.02)
                value_loss = torch.max((v - goal) ** 2, (near - goal) ** 2) / 2
                value_losses[-1] += float(value_loss.detach()) / tokens
                total = total + (-objective + 0.5 * value_loss - 0.05 * entropy[i, t]) / tokens
        for optimizer in optimizers:
            optimizer.zero_grad()
        total.backward()
        groups = [list(policy.parameters()) + ([] if critic == "separate" else list(critic_model.parameters()))]
        groups += [list(critic_model.parameters())] if critic == "separate" else []
        for parameters in groups:
            norm = sum(p.grad.square().sum() for p in parameters).sqrt()
            for parameter in parameters:
                parameter.grad *= min(1.0, 0.2 / float(norm))
        for optimizer in optimizers:
            optimizer.step()
    assert record.value_loss == pytest.approx(sum(value_losses) / 2, rel=1e-3)
    for ours, theirs in ((run.policy.model, policy), (run.state.critic, critic_model)):
        for name, tensor in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=2e-3, atol=3e-5)


def test_a_kept_forward_is_that_of_its_own_rollout_and_is_taken_once():
    run = start(settings=replace(SHORT, critic="shared"))
    next(run)
    for rollout in [run.collect(), run.collect()]:
        logits, values = rollout.forward[0]
        assert torch.equal(values.detach(), rollout.old_values)
        logp = token_logp(logits, rollout.samples.tokens)
        torch.testing.assert_close(logp[rollout.mask], rollout.samples.logp[rollout.mask], atol=1e-4, rtol=1e-4)
        held = weakref.ref(logits.untyped_storage())
        del logits, values, logp
        gc.collect()
        assert held() is not None
        run.update(rollout)
        gc.collect()
        assert held() is None and rollout.forward == []  # though the rollout is still there


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


@pytest.mark.parametrize("critic", CRITICS)
def test_where_no_group_is_selected_no_gradient_of_the_step_before_is_left(critic):
    run = start(
        replace(PPO, select=lambda rewards: torch.arange(0 if run.step else len(rewards))),
        replace(SHORT, critic=critic),
    )
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


def test_the_penalty_s_weight_is_halved_or_doubled_by_the_kl_after_the_updates():
    for target, factor in ((1e-9, 2), (10.0, 0.5)):
        run = start(PPO_PENALTY.with_parameters(target=target))
        records = [next(run), next(run)]
        assert records[0].beta == PPO_PENALTY.kl.beta
        assert records[0].kl_to_old > 1e-8
        assert records[1].beta == pytest.approx(factor * PPO_PENALTY.kl.beta)
    run = start(PPO_PENALTY)
    rollout = run.collect()
    run.update(rollout)
    s = rollout.samples
    with torch.no_grad():
        logp = token_logp(response_logits(run.policy, s.prompt_ids, s.prompt_mask, s.tokens), s.tokens)
    log_ratio = (logp - s.logp)[s.mask].double()
    assert step.kl_from_old(run.state, rollout, run.settings) == pytest.approx(
        float((log_ratio.exp() - 1 - log_ratio).mean())
    )


def test_the_penalty_s_weight_waits_for_the_policy():
    settings = replace(SHORT, num_prompts=4, critic_only_steps=2, evaluate_every=0, lr_warmup_steps=0)
    betas = [record.beta for record in start(PPO_PENALTY.with_parameters(target=1e-9), settings)]
    beta = PPO_PENALTY.kl.beta
    assert betas == [beta, beta, beta, pytest.approx(2 * beta)]  # the third step is the first that moves the policy


def test_a_controller_of_the_kl_to_the_reference_sees_that_kl():
    """Ziegler's: β (1 + clip(KL / target − 1, ±0.2) · responses / horizon), here with KL far above the target."""
    run = start(replace(PPO, controller=ProportionalController(target=1e-9, horizon=160.0)))
    next(run)
    second = next(run)
    assert second.kl > 1e-6
    assert next(run).beta == pytest.approx(second.beta * (1 + 0.2 * 16 / 160))
