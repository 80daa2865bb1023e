"""Routing replay: old log-probabilities, updates and records go through the sampler's experts, however rows are divided."""

from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import GRPO
from rlviz.training import TrainSettings, train
from small_models.policies import load_policy
from small_models.routing import record_routes, replay_routes
from small_models.sampling import response_logits, token_logp

FREE = replace(GRPO, kl=None)
SHORT = TrainSettings(
    steps=2, num_prompts=6, group_size=4, updates_per_rollout=4, lr=3e-3, lr_warmup_steps=0, evaluate_every=0,
    details_every=0, watch_every=0, routing="replayed",
)  # fmt: skip


def start(settings=SHORT, algorithm=FREE, **options):
    return train(load_policy("chain-experts", device="cpu"), "chain", algorithm, settings, **options)


def log_probabilities(policy, samples):
    with torch.no_grad():
        return token_logp(
            response_logits(policy, samples.prompt_ids, samples.prompt_mask, samples.tokens), samples.tokens
        )


@pytest.mark.parametrize("micro_batch_tokens", [0, 90])
def test_old_log_probabilities_go_through_the_sampler_s_experts(micro_batch_tokens):
    settings = replace(SHORT, sampler_bits=3, micro_batch_tokens=micro_batch_tokens)
    run, free = start(settings), start(replace(settings, routing="free"))
    rollout, freely = run.collect(), free.collect()
    samples, mask = rollout.samples, rollout.mask
    routes = record_routes(run.state.sampler, samples.prompt_ids, samples.prompt_mask, samples.tokens)
    with replay_routes(run.policy, *routes):
        expected = log_probabilities(run.policy, samples)
    torch.testing.assert_close(rollout.old_logp[mask], expected[mask])
    assert torch.equal(samples.tokens, freely.samples.tokens) and freely.routes is None
    gaps = [(data.old_logp - data.sampler_logp)[mask].abs().mean() for data in (rollout, freely)]
    assert gaps[0] < 0.9 * gaps[1]  # of what separates the engines, the flips are gone and the rounding is left


@pytest.mark.parametrize("division", [{"minibatches": 2}, {"micro_batch_tokens": 60}], ids=str)
def test_every_update_goes_through_the_experts_of_the_rollout(division):
    run = start(replace(SHORT, **division))
    rollout, heard = run.collect(), []
    rows = rollout.rows()
    by_tokens = {}  # what is read → the experts of its last layer
    routes = torch.cat([rows.prompt_routes[rows.owner], rows.routes.squeeze(1).movedim(-1, 1)], 1)[:, :, -1]
    for prompt, tokens, experts in zip(rows.prompt_ids[rows.owner], rows.tokens.squeeze(1), routes, strict=True):
        read = torch.cat([prompt, tokens]).tolist()
        by_tokens |= {tuple(read[: place + 1]): experts[place].tolist() for place in range(len(read) - 1)}
    read = []
    run.policy.model.base_model.register_forward_pre_hook(
        lambda module, options, named: read.append(named["input_ids"]), with_kwargs=True
    )
    last = run.policy.model.base_model.layers[-1].mlp.experts
    last.register_forward_pre_hook(lambda module, options: heard.append(options[1]))  # hidden states, experts, weights
    run.update(rollout)
    assert len(heard) == len(read) >= 4
    for ids, experts in zip(read, heard, strict=True):
        for row, row_experts in zip(ids.tolist(), experts.view(*ids.shape, -1).tolist(), strict=True):
            assert all(by_tokens[tuple(row[: place + 1])] == taken for place, taken in enumerate(row_experts))


def test_a_record_tells_the_probabilities_that_the_loss_saw():
    run = start(replace(SHORT, steps=1, details_every=1, details_groups=6))
    policy = load_policy("chain-experts", device="cpu")
    twin = start(replace(SHORT, steps=1)).collect().samples
    routes = record_routes(policy, twin.prompt_ids, twin.prompt_mask, twin.tokens)
    (record,) = run
    with replay_routes(run.policy, *routes):
        expected = log_probabilities(run.policy, twin).exp()
    recorded = [
        [token.new_prob for token in response.tokens] for group in record.groups for response in group.responses
    ]
    rows = zip(recorded, expected.flatten(0, 1), strict=True)
    assert all(
        probabilities == pytest.approx(row[: len(probabilities)].tolist(), rel=1e-4) for probabilities, row in rows
    )
