"""The loss on what the environment wrote: by hand, against prime-rl's, and where its gradient goes."""

from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import ECHO, GRPO
from rlviz.training import TrainSettings, train
from rlviz.training.rollout import logp_under
from rlviz.training.step import collect, update
from rlviz.types import Batch
from small_models.policies import load_policy
from small_models.tasks import Lookup

NO_KL = ECHO.without_kl()
SETTINGS = TrainSettings(
    steps=1,
    num_prompts=8,
    group_size=4,
    lr=1e-3,
    lr_warmup_steps=0,
    evaluate_every=0,
    details_every=0,
    micro_batch_tokens=60,
)


def two_responses():
    """Two responses, ?3;7,#7 and #2: of the first the third and fourth token are the tool's, and one place is padding."""
    mask = torch.tensor([[[1, 1, 0, 0, 1], [1, 1, 0, 0, 0]]]).bool()
    observed = torch.tensor([[[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]]).bool()
    logp = torch.tensor([[[-1.0, -2.0, -0.5, -1.5, -1.0], [-1.0, -1.0, 7.0, 7.0, 7.0]]], dtype=torch.double)
    return logp.requires_grad_(), mask, observed


def test_by_hand():
    # λ = .1: .1 · (.5 + 1.5) / 2 = .1 is added; each observed token's slope is −.1 / 2, whatever its advantage
    logp, mask, observed = two_responses()
    batch = Batch(logp.detach(), torch.zeros_like(logp).detach(), mask, observed=observed)
    loss = NO_KL.loss(logp, batch).loss
    assert float(loss.detach()) == pytest.approx(0.1, abs=1e-15)
    slope = torch.autograd.grad(loss, logp)[0]
    torch.testing.assert_close(slope, torch.where(observed, -0.05, 0.0).double())


def test_it_is_added_and_the_rest_is_grpo_s():
    # prime-rl 559b447 divides each part by the number of its own tokens: the tool's do not thin out the policy's
    logp, mask, observed = two_responses()
    advantages = torch.tensor([[[1.0] * 5, [-1.0] * 5]], dtype=torch.double)
    plain = Batch(logp.detach() - 0.05, advantages, mask)
    total = NO_KL.loss(logp, replace(plain, observed=observed)).loss
    alone = GRPO.without_kl().loss(logp, plain).loss
    assert float((total - alone).detach()) == pytest.approx(0.1, abs=1e-12)
    assert torch.equal(NO_KL.loss(logp, plain).loss, alone)  # nothing was observed


def test_an_update_reaches_observed_tokens_also_in_groups_of_equal_rewards():
    blind = replace(NO_KL, advantage=lambda rewards: 0 * rewards)
    nats = []
    for algorithm in (blind, replace(GRPO.without_kl(), advantage=blind.advantage)):
        run = train(load_policy("lookup", device="cpu"), Lookup(), algorithm, SETTINGS)
        rollout = collect(run.state, run.task, SETTINGS)
        observed = rollout.samples.observed
        assert observed.any() and (rollout.observed is None) == (algorithm is not blind)
        for _ in range(3):
            update(run.state, rollout.rows(), SETTINGS)
        nats.append(-float(logp_under(run.policy, rollout.samples, SETTINGS)[observed].mean()))
    assert nats[0] < nats[1] - 1  # of 8 at the start
