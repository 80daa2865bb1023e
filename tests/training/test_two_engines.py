"""A sampler that is not the trainer: what it samples with, and what is kept of both."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz import GRPO, TIS
from rlviz.training import RunFolder, TrainSettings, train
from small_models.policies import load_policy
from small_models.precision import round_to_bits
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Chain

SHORT = TrainSettings(
    steps=4, num_prompts=4, group_size=4, updates_per_rollout=2, lr=3e-3, lr_warmup_steps=0, evaluate_every=0, details_every=2
)  # fmt: skip


def start(settings, algorithm=TIS, policy=None, **kwargs):
    return train(policy or load_policy("chain", device="cpu"), Chain(), algorithm, settings, **kwargs)


def logp_under(policy, samples, temperature=1.0):
    with torch.no_grad():
        return token_logp(response_logits(policy, **samples.model_inputs), samples.tokens, temperature=temperature)


def same(a, b, mask, atol=1e-5):
    torch.testing.assert_close(a[mask], b[mask], rtol=0, atol=atol)


def test_a_matrix_is_rounded_row_by_row():
    # 3 bits: whole numbers from −3 to 3, times a third of the row's largest
    weight = torch.tensor([[0.9, -0.44, 0.1], [0.03, 0.02, -0.004], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(
        round_to_bits(weight, 3), torch.tensor([[0.9, -0.3, 0.0], [0.03, 0.02, 0.0], [0.0, 0.0, 0.0]])
    )
    assert torch.equal(round_to_bits(weight[0], 3), weight[0])  # a norm's


@pytest.mark.parametrize(("path", "bits", "lag"), [("plain", 4, 0), ("transformers", 4, 2)])
def test_what_samples_is_the_trainer_of_some_steps_ago_in_so_many_bits(path, bits, lag):
    policy = load_policy("chain", device="cpu")
    policy = policy if path == "plain" else policy.on_transformers()
    run = start(replace(SHORT, sampler_bits=bits, sampler_lag=lag), policy=policy)
    assert run.path == path
    past = []
    for step in range(4):
        past.append(run.policy.frozen_copy())
        rollout = run.collect()
        samples = rollout.samples
        then = past[max(0, step - lag)].frozen_copy()
        with torch.no_grad():
            for weight in then.weights.parameters():
                weight.copy_(round_to_bits(weight, bits))
        same(rollout.old_logp, logp_under(run.policy, samples), samples.mask)
        same(rollout.sampler_logp, logp_under(then, samples), samples.mask)
        assert (rollout.sampler_logp - rollout.old_logp)[samples.mask].abs().max() > 1e-3
        next(run)


def test_a_sampler_of_its_own_that_keeps_the_likeliest_tokens_drew_with_more_than_its_probability():
    """What another temperature and top-p leave together is what the weights of truncated importance sampling divide by."""
    rollout = start(replace(SHORT, sampler_temperature=1.5, top_p=0.7)).collect()
    policy, samples = load_policy("chain", device="cpu"), rollout.samples
    same(rollout.old_logp, logp_under(policy, samples), samples.mask)
    with torch.no_grad():
        probabilities = (response_logits(policy, **samples.model_inputs) / 1.5).softmax(-1)
    masses = []
    for place in samples.mask.nonzero().tolist():
        row, token = probabilities[tuple(place)].tolist(), int(samples.tokens[tuple(place)])
        row_sorted = sorted(row, reverse=True)
        masses.append(next(mass for n in range(1, len(row) + 1) if (mass := sum(row_sorted[:n])) >= 0.7))
        assert float(rollout.sampler_logp[tuple(place)]) == pytest.approx(math.log(row[token] / masses[-1]), abs=1e-5)
    assert min(masses) < 0.95


def test_the_loss_is_given_both(tmp_path):
    """The ratio of the first update is 1 whoever sampled, and the advantage has its weights; records say so of each token."""
    settings = replace(SHORT, updates_per_rollout=1, sampler_bits=3)
    run = start(settings, out=tmp_path / "run")
    rollout = run.collect()
    w = (rollout.old_logp - rollout.sampler_logp).exp().clamp(max=2.0)
    plain = GRPO.advantages(rollout.rewards, rollout.mask)[0]
    same(rollout.advantages, plain * w, rollout.mask)
    records = list(run)
    assert all(abs(record.ratio_mean - 1) < 1e-5 and record.ratio_std < 1e-4 for record in records)
    read = RunFolder.open(tmp_path / "run").records()
    assert [r.mismatch_kl for r in read] == [r.mismatch_kl for r in records]
    tokens = [t for g in read[1].groups for r in g.responses for t in r.tokens]
    assert tokens and all(t.sampler_prob > 0 and t.sampler_prob != t.old_prob for t in tokens)
    assert sum(t.push for t in tokens if t.advantage > 0) > 0
