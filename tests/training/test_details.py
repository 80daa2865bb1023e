"""What a step records of single tokens: weights and pushes by hand and by finite differences, and back from disk unchanged."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DCPO, GRPO, GSPO
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.shaping import OverlongFilter
from rlviz.training import TrainSettings, train
from rlviz.training.records import loss_and_pushes, record_groups, token_weights
from rlviz.types import Batch
from small_models.policies import load_policy
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Chain

NO_KL = replace(GRPO, kl=None)
MANY = TrainSettings(
    steps=4, num_prompts=5, group_size=4, updates_per_rollout=4, lr=3e-3, lr_warmup_steps=0, evaluate_every=0,
    details_every=2, details_groups=3, watch_every=0, checkpoint_every=0,
)  # fmt: skip


def start(algorithm, settings=MANY, **kwargs):
    return train(load_policy("chain", device="cpu"), Chain(), algorithm, settings, **kwargs)


def one_group(ratios, advantages):
    """A batch of one group whose responses have these ratios of their tokens, and the new log-probabilities."""
    longest = max(map(len, ratios))
    mask = torch.tensor([[t < len(row) for t in range(longest)] for row in ratios]).unsqueeze(0)
    log_ratio = [[math.log(r) for r in row] + [0.0] * (longest - len(row)) for row in ratios]
    old_logp = torch.full(mask.shape, math.log(0.25), dtype=torch.double)
    advantages = torch.tensor(advantages, dtype=torch.double).reshape(1, -1, 1).expand(mask.shape) * mask
    return old_logp + torch.tensor([log_ratio], dtype=torch.double), Batch(old_logp, advantages, mask)


CONSTANT = replace(NO_KL, surrogate=lambda ratio, advantages, lower, upper: advantages)
WIDE_GSPO = replace(GSPO, bounds=FixedBounds(eps_low=0.5, eps_high=0.5))
PUSHES = (  # algorithm, ratios of the tokens, advantages of the responses, log π_ref − log π, the pushes
    # sequence mean of two responses of 1 and 3 tokens: weights 1/(2·1) and 1/(2·3); the slope of a token is ratio · A
    # 1.1: ½ · 1.1 = .55 | A = −1: 1.3 is above the limits but stays alive, −1.3/6 | .7 is below 1 − .2: cut | 1: −1/6
    (NO_KL, [[1.1], [1.3, 0.7, 1.0]], [1.0, -1.0], 0.0, [[0.55, 0, 0], [-1.3 / 6, 0, -1 / 6]]),
    # GSPO, one response of 2 tokens: s = √(1.21 · 1) = 1.1, objective s · A, each token's slope s · A / 2 = 1.1 · 2 / 2
    (WIDE_GSPO, [[1.21, 1.0]], [2.0], 0.0, [[1.1, 1.1]]),
    # A = 0: nothing but −0.04 · k3 with x = ref_logp − logp, whose slope by logp is −0.04 · (1 − eˣ); here eˣ = 3
    (GRPO, [[1.0]], [0.0], math.log(3), [[0.08]]),
    (CONSTANT, [[1.2, 0.9]], [1.0], 0.0, [[0, 0]]),  # which moves with nothing
)


@pytest.mark.parametrize(("algorithm", "ratios", "advantages", "reference", "pushes"), PUSHES)
def test_pushes_by_hand(algorithm, ratios, advantages, reference, pushes):
    logp, batch = one_group(ratios, advantages)
    seen = loss_and_pushes(algorithm, logp, replace(batch, ref_logp=logp + reference))[1]
    torch.testing.assert_close(seen, torch.tensor([pushes], dtype=torch.double), rtol=1e-12, atol=1e-12)


def test_weights_by_hand():
    mask = torch.tensor([[[1, 1, 0], [1, 0, 0]], [[1, 1, 1], [1, 1, 0]], [[1, 1, 1], [1, 1, 1]]]).bool()
    # groups 1, 1, 0 are used: 5 + 5 + 3 = 13 tokens, and those of group 1 count twice; group 2 not at all
    twice = token_weights(replace(NO_KL, aggregate=token_mean), mask, torch.tensor([1, 1, 0]))
    expected = (mask.double() * torch.tensor([1, 2, 0]).reshape(3, 1, 1)) / 13
    torch.testing.assert_close(twice, expected)
    # sequence mean over the 4 responses of groups 0 and 2: 1/(4 · length)
    lengths = mask.sum(-1, keepdim=True)
    expected = mask.double() / (4 * lengths) * torch.tensor([1, 0, 1]).reshape(3, 1, 1)
    torch.testing.assert_close(token_weights(NO_KL, mask, torch.tensor([0, 2])), expected)
    assert not token_weights(NO_KL, mask, torch.tensor([], dtype=torch.long)).any()


# a KL term, limits of each token, a ratio that all tokens share, and a surrogate of one's own
SLOPES = [GRPO, DCPO, GSPO, replace(GRPO, name="own", surrogate=lambda r, a, lo, up: torch.tanh(r) * a)]


@pytest.mark.parametrize("algorithm", SLOPES, ids=lambda a: a.name)
def test_a_push_is_the_slope_of_the_loss_that_trains(algorithm):
    """Move one token's log-probability a little, and see how the loss of the whole selected rollout moves."""
    settings = replace(MANY, steps=2, details_every=1, details_groups=5, lr=1e-3)
    run = start(algorithm.with_parameters(eps_low=0.05, eps_high=0.05), settings)
    next(run)  # away from the reference
    rollout = run.collect()
    run.update(rollout)
    groups = record_groups(run.state, run.task, run.settings, rollout)
    s = rollout.samples
    with torch.no_grad():
        logits = response_logits(run.policy, s.prompt_ids, s.prompt_mask, s.tokens)
        logp = token_logp(logits, s.tokens).double()
    old_logp, advantages = s.logp.double(), rollout.advantages.double()
    ref_logp = None if rollout.ref_logp is None else rollout.ref_logp.double()

    def loss(logp):
        chosen = rollout.sampled.selected
        ref = None if ref_logp is None else ref_logp[chosen]
        return float(
            run.algorithm.loss(
                logp[chosen], Batch(old_logp[chosen], advantages[chosen], rollout.mask[chosen], ref)
            ).loss
        )

    checked = 0
    for p, group in enumerate(groups):
        for g, response in enumerate(group.responses):
            for t in range(0, response.length, 3):
                step = torch.zeros_like(logp)
                step[p, g, t] = 1e-5
                slope = -(loss(logp + step) - loss(logp - step)) / 2e-5
                assert response.tokens[t].push == pytest.approx(slope, rel=1e-3, abs=1e-6)
                checked += abs(slope) > 1e-5
    assert checked >= 5


def test_what_the_loss_does_not_see_has_no_weight_and_is_not_clipped():
    far = replace(NO_KL.with_parameters(eps_low=0.01, eps_high=0.01), select=lambda rewards: torch.tensor([1, 3]))
    record = next(start(far, replace(MANY, details_every=1)))
    left_out, used = (
        [token for response in group.responses for token in response.tokens] for group in record.groups[:2]
    )
    assert all((token.weight, token.push, token.clipped) == (0, 0, False) for token in left_out)
    assert any(abs(token.ratio - 1) > 0.01 and token.advantage for token in left_out)
    assert all(token.weight > 0 for token in used)
    cut = replace(MANY, details_every=1, max_new_tokens=7)
    record = next(start(replace(NO_KL, shape=OverlongFilter()), cut))
    responses = [response for group in record.groups for response in group.responses]
    assert {response.truncated for response in responses} == {True, False}
    for response in responses:
        assert all((token.weight == 0) == response.truncated for token in response.tokens)
