"""How far a step moves the policy, in its records: spread of token and sequence ratios, and routing."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz import GRPO, TrainSettings
from rlviz.training.rollout import Rollout
from rlviz.training.updates import Updates
from rlviz.types import LossOutput

NO_KL = replace(GRPO, kl=None)
SHORT = TrainSettings(steps=2, num_prompts=8, group_size=8, updates_per_rollout=4, lr=1e-3, lr_warmup_steps=0)


def rows_of(old_logp, mask):
    nothing = torch.zeros_like(old_logp)
    ids = torch.zeros(len(mask), 1, dtype=torch.long)
    place = ids, ids.bool(), torch.arange(len(mask))
    return Rollout(None, None, 0.0, *place, tokens=nothing, mask=mask, old_logp=old_logp, advantages=nothing)


def update_at(logp, rows, ratio=None):
    """Return what happened in an update whose loss saw these log-probabilities and made nothing of them but a ratio."""
    nothing = torch.zeros_like(logp)
    ratio = nothing if ratio is None else ratio
    loss = LossOutput(nothing.sum(), ratio, nothing, nothing, nothing.bool(), nothing.bool(), nothing.bool())
    return Updates.from_loss(loss, logp, rows) + Updates(count=1, tokens=int(rows.mask.sum()))


def test_ratios_by_hand():
    """Two responses of 2 and 1 tokens and one that the loss does not see, then an update at the old policy.

    Token ratios 2, 1/2 | 3, then 1, 1 | 1: sum 8.5, sum of squares 4 + 1/4 + 9 + 3 = 16.25, so the variance is
    16.25/6 − (8.5/6)² = 25.25/36. Sequence ratios √(2 · 1/2) = 1 | 3, then 1 | 1: mean 1.5, variance 12/4 − 2.25 = .75.
    """
    log_ratio = torch.tensor([[[math.log(2), math.log(0.5), 9.0]], [[math.log(3), 9.0, 9.0]], [[9.0, 9.0, 9.0]]])
    mask = torch.tensor([[[True, True, False]], [[True, False, False]], [[False, False, False]]])
    old_logp = torch.full((3, 1, 3), -5.0)
    rows = rows_of(old_logp, mask)
    numbers = (update_at(old_logp + log_ratio, rows) + update_at(old_logp.clone(), rows)).numbers()
    assert numbers["token_ratio_std"] == pytest.approx(math.sqrt(25.25) / 6, rel=1e-6)
    assert numbers["sequence_ratio_std"] == pytest.approx(math.sqrt(0.75), rel=1e-6)


def test_the_loss_s_own_tokens_count_and_neither_an_observation_nor_padding():
    """Of two tokens each response has one: its ratio is 2, or 1: standard deviation 1/2 of both kinds.

    A ratio of one's own is 2 and 1/2 there, and 9 elsewhere: mean 5/4, standard deviation 3/4.
    """
    log_ratio = torch.tensor([[[7.0, math.log(2)]], [[0.0, 7.0]]])
    rows = rows_of(torch.zeros(2, 1, 2), torch.tensor([[[False, True]], [[True, False]]]))
    numbers = update_at(log_ratio, rows, torch.tensor([[[9.0, 2.0]], [[0.5, 9.0]]])).numbers()
    names = "token_ratio_std", "sequence_ratio_std", "ratio_mean", "ratio_std"
    assert [numbers[name] for name in names] == pytest.approx([0.5, 0.5, 1.25, 0.75], rel=1e-6)
    empty = Updates(count=1).numbers()
    assert empty["token_ratio_std"] == empty["sequence_ratio_std"] == 0.0


def test_clipped_tokens_are_counted_by_their_side():
    """Of five tokens two are cut low, one high, none dual, in one update of one micro-batch of loss 3; then an empty one."""
    mask = torch.ones(1, 1, 5, dtype=torch.bool)
    low, high, nothing = (torch.arange(5).view(1, 1, 5) < 2), (torch.arange(5).view(1, 1, 5) == 4), torch.zeros(1, 1, 5)
    loss = LossOutput(torch.tensor(3.0), nothing, nothing, nothing, low, high, nothing.bool())
    updates = Updates.from_loss(loss, nothing, rows_of(nothing, mask), 4.0) + Updates(count=1, tokens=5)
    updates += Updates(count=1)
    numbers = updates.numbers()
    assert (numbers["clip_fraction_low"], numbers["clip_fraction_high"], numbers["clip_fraction_dual"]) == (0.4, 0.2, 0)
    assert (numbers["loss"], updates.value_loss / updates.count, updates.rows) == (1.5, 2.0, 1)
