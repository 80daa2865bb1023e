"""Every update is AdamW's, written out here, at the learning rate that its step should have."""

from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DPO, GRPO, PPO
from rlviz.training import PairSettings, TrainSettings, train
from small_models.pairs import make_pairs
from small_models.policies import load_policy
from small_models.tasks import Chain

STEPS = 5
SETTINGS = TrainSettings(steps=STEPS, num_prompts=4, group_size=4, lr=1e-3, lr_warmup_steps=4, evaluate_every=0,
                         details_every=0)  # fmt: skip
ALONE = replace(SETTINGS, num_prompts=16, group_size=1, critic_lr=6e-3)
OF_PAIRS = PairSettings(steps=STEPS, batch_size=8, lr=1e-3, lr_warmup_steps=4, evaluate_every=0)
RISING = (0.25, 0.5, 0.75, 1.0, 1.0)


class AdamW:
    """Kingma and Ba's Adam for one tensor, without weight decay: w − lr · m̂ / (√v̂ + 1e-8), betas .9 and .999."""

    def __init__(self, weight):
        self.weight, self.m, self.v, self.t = weight.detach().double(), 0.0, 0.0, 0

    def step(self, gradient, lr):
        gradient = gradient.double()
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        spread = (self.v / (1 - 0.999**self.t)).sqrt() + 1e-8
        self.weight = self.weight - lr * (self.m / (1 - 0.9**self.t)) / spread


def of_policy(run):
    return run.policy.model.lm_head.weight


def of_critic(run):
    return run.state.critic.head.weight


@pytest.mark.parametrize(
    ("algorithm", "settings", "peaks"),
    [
        (replace(GRPO, kl=None), SETTINGS, {of_policy: 1e-3}),
        (PPO, ALONE, {of_policy: 1e-3, of_critic: 6e-3}),
        (PPO, replace(ALONE, critic="shared"), {of_policy: 1e-3, of_critic: 1e-3}),
        (DPO, OF_PAIRS, {of_policy: 1e-3}),
    ],
    ids=["GRPO", "PPO, separate critic", "PPO, shared critic", "DPO"],
)
def test_each_step_is_adamw_s_at_the_rate_that_it_should_have(algorithm, settings, peaks):
    policy = load_policy("chain", device="cpu")
    pairs = make_pairs(policy, Chain(), 16, seed=1) if algorithm is DPO else None
    run = train(policy, Chain(), algorithm, settings, pairs=pairs)
    by_hand = {of: AdamW(of(run)) for of in peaks}
    for share in RISING:
        next(run)
        for of, twin in by_hand.items():
            assert of(run).grad.abs().max() > 1e-3  # far above ε, so that the rate decides how far the weights go
            twin.step(of(run).grad, share * peaks[of])
            torch.testing.assert_close(of(run).detach().double(), twin.weight, rtol=0, atol=2e-6)
