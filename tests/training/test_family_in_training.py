"""Every algorithm of the family in the training loop, and what only some of them ask of it."""

import json
import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, DUPO, GRPO, GSPO
from rlviz.pieces.advantages import GroupAdvantage, SmoothStandardization
from rlviz.pieces.bounds import no_bounds
from rlviz.pieces.kl import KLInLoss, KLInReward
from rlviz.pieces.selection import drop_all_equal
from rlviz.pieces.shaping import OverlongFilter
from rlviz.pieces.surrogate import DualClip
from rlviz.training import TrainSettings, history, train
from rlviz.training.rollout import Rollout
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


def test_a_group_of_one_will_do_where_no_responses_are_compared():
    alone = replace(SHORT, group_size=1, minibatches=1)
    plain = replace(NO_KL, name="REINFORCE", advantage=lambda rewards: rewards - 0.4)
    assert math.isfinite(next(start(plain, alone)).loss)


def test_dupo_weighs_the_rules_itself():
    record = next(start(DUPO))
    assert record.reward == pytest.approx(0.9 * record.accuracy + 0.1 * record.well_formed)


def test_selection_sees_what_was_right_not_how_it_was_paid():
    seen = []

    def spy(rewards):
        seen.append(rewards)
        return drop_all_equal(rewards)

    run = start(replace(DAPO, select=spy), replace(SHORT, reward_format=0.5, reward_correct=3.0))
    rollout = run.collect()
    assert seen[0].tolist() == [[float(grade.correct) for grade in row] for row in rollout.sampled.grades]
    assert rollout.rewards.max() > 1


def test_dropped_groups_do_not_dilute_the_mean():
    run = start(replace(DAPO, shape=None, select=drop_all_equal))
    rollout = run.collect()
    dead = {p for p, row in enumerate(rollout.sampled.grades) if len({grade.correct for grade in row}) == 1}
    assert dead and rollout.sampled.selected.tolist() == [p for p in range(6) if p not in dead]


def test_truncated_responses_leave_the_loss_by_the_filter():
    cut = replace(SHORT, max_new_tokens=7, minibatches=1, updates_per_rollout=1)
    run, twin = start(replace(NO_KL, shape=OverlongFilter()), cut), start(NO_KL, cut)
    rollout = run.collect()
    truncated = rollout.samples.truncated
    assert truncated.any() and not truncated.all()
    assert torch.equal(rollout.mask, rollout.samples.mask & ~truncated.unsqueeze(-1))
    assert not rollout.advantages[truncated].any()
    # the filtered update is that of a rollout whose truncated responses have no tokens
    other = twin.collect()
    twin.update(replace(other, mask=other.mask & ~truncated.unsqueeze(-1), advantages=rollout.advantages))
    run.update(rollout)
    for name, tensor in run.policy.model.state_dict().items():
        assert torch.equal(tensor, twin.policy.model.state_dict()[name]), name


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


def test_the_share_of_dual_clipped_tokens_is_recorded():
    settings = replace(SHORT, updates_per_rollout=4, minibatches=1, lr=3e-3, steps=2)
    never, early = (
        sum(r.clip_fraction_dual for r in start(a, settings))
        for a in (NO_KL, replace(NO_KL, surrogate=DualClip(c=1.01)))
    )
    assert never == 0 and early > 0


def test_no_upper_limit_is_null_in_the_samples(tmp_path):
    run = start(replace(NO_KL, bounds=no_bounds), replace(SHORT, steps=1, details_every=1), out=tmp_path / "run")
    record = next(run)
    token = record.group[0].tokens[0]
    assert token.upper is None and token.lower == 0 and not token.clipped
    line = (tmp_path / "run" / "samples.jsonl").read_text()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_longest_row_ends_at_its_last_token_whatever_the_holes_before_it():
    mask = torch.tensor([[[True, False, True, False]], [[True, False, False, False]]])
    owner = torch.arange(2)
    over = dict.fromkeys(("tokens", "old_logp", "advantages"), torch.zeros(2, 1, 4))
    rows = Rollout(None, None, 0.0, *[torch.zeros(2, 3)] * 2, owner, mask=mask, **over)
    assert rows.longest == 3 and rows.cut(rows.longest).mask.shape == (2, 1, 3)
    assert rows.take(torch.tensor([], dtype=torch.long)).longest == 0
