"""Every algorithm of the family in the training loop, and what only some of them ask of it."""

import json
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, GRPO, GSPO
from rlviz.pieces.advantages import GroupAdvantage, SmoothStandardization
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.kl import KLInLoss, KLInReward
from rlviz.pieces.shaping import OverlongFilter
from rlviz.training import TrainSettings, history, train
from small_models.policies import load_policy
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Chain

NO_KL = replace(GRPO, kl=None)
SHORT = TrainSettings(
    steps=3,
    num_prompts=6,
    group_size=4,
    updates_per_rollout=2,
    minibatches=2,
    evaluate_every=0,
    lr_warmup_steps=0,
    lr=1e-3,
)


class FewPrompts(Chain):
    """So few that every rollout visits each of them."""

    name = "few"

    def all_prompts(self):
        return list(super().all_prompts())[:7]


def start(algorithm, settings=SHORT, task=None, **kwargs):
    return train(load_policy("chain", device="cpu"), task or Chain(), algorithm, settings, **kwargs)


@pytest.mark.parametrize("algorithm", [DAPO, DCPO, GSPO], ids=lambda a: a.name)  # each kind of limits and of ratio
def test_it_learns(algorithm):
    settings = TrainSettings(steps=24, num_prompts=12, lr=5e-4, evaluate_every=0, details_every=0, lr_warmup_steps=3)
    accuracy = history(list(start(replace(algorithm, kl=None), settings)))["accuracy"]
    assert accuracy[-8:].mean() > accuracy[:4].mean() + 0.1


def test_the_history_of_a_prompt_is_carried_from_visit_to_visit():
    run = start(DCPO, task=FewPrompts())
    piece, seen = SmoothStandardization(), {}
    shared = 0
    for _ in range(3):
        rollout = run.collect()
        for p, prompt in enumerate(rollout.sampled.prompts):
            rewards = rollout.rewards[p : p + 1]
            expected, after = piece(rewards, seen.get(prompt))
            torch.testing.assert_close(rollout.advantages[p, :, 0], expected[0])
            shared += prompt in seen and not torch.equal(expected, piece(rewards)[0])
            seen[prompt] = after
    assert len(seen) == 6 and shared > 0
    assert run.state.history.visits.tolist() == [3] * 6


def test_with_a_kl_term_too_filtered_responses_stay_out():
    cut = replace(SHORT, max_new_tokens=7, minibatches=1, updates_per_rollout=1, lr=3e-3)
    filtering = replace(GRPO, shape=OverlongFilter(), kl=KLInLoss(beta=2.0))
    run, twin = start(filtering, cut), start(filtering, cut)
    next(run), next(twin)  # away from the reference, so that the KL term has a gradient
    rollout, other = run.collect(), twin.collect()
    kept = ~rollout.samples.truncated
    run.update(rollout)
    rows = [(p, g) for p in range(6) for g in range(4) if kept[p, g]]
    logits = response_logits(twin.policy, other.samples.prompt_ids, other.samples.prompt_mask, other.samples.tokens)
    logp = token_logp(logits, other.samples.tokens)
    terms = []
    for p, g in rows:  # GRPO's loss over the kept responses alone, response by response
        n = int(other.samples.lengths[p, g])
        x = (other.ref_logp - logp)[p, g, :n]
        ratio = (logp - other.samples.logp)[p, g, :n].exp()
        terms.append((ratio * other.advantages[p, g, :n] - 2.0 * (x.exp() - x - 1)).mean())
    loss = -torch.stack(terms).mean()
    optimizer = torch.optim.AdamW(twin.policy.model.parameters(), lr=3e-3, weight_decay=0.0)
    optimizer.state.update(twin.state.optimizers[0].state)  # what the first step left
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(twin.policy.model.parameters(), cut.max_grad_norm)
    optimizer.step()
    assert 0 < len(rows) < 24
    for name, tensor in run.policy.model.state_dict().items():
        torch.testing.assert_close(tensor, twin.policy.model.state_dict()[name], rtol=1e-3, atol=2e-5, msg=name)


def test_the_kl_in_a_reward_is_that_of_the_sampling_policy_to_the_reference():
    run = start(
        replace(NO_KL, kl=KLInReward(beta=0.5), advantage=GroupAdvantage(scale="none")), replace(SHORT, lr=3e-3)
    )
    next(run), next(run)
    rollout = run.collect()
    mask = rollout.samples.mask
    penalty = ((rollout.samples.logp - rollout.ref_logp) * mask).sum(-1) * 0.5
    left = rollout.rewards - penalty
    assert penalty.abs().max() > 1e-3
    expected = (left - left.mean(1, keepdim=True)).unsqueeze(-1) * mask
    torch.testing.assert_close(rollout.advantages, expected, rtol=1e-4, atol=1e-5)


def test_no_upper_limit_is_null_in_the_samples(tmp_path):
    run = start(replace(NO_KL, bounds=no_bounds), replace(SHORT, steps=1, details_every=1), out=tmp_path / "run")
    record = next(run)
    token = record.group[0].tokens[0]
    assert token.upper is None and token.lower == 0 and not token.clipped
    line = (tmp_path / "run" / "samples.jsonl").read_text()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
