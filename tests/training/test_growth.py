"""How memory grows with G and T: responses of exactly that length, peaks that follow them, and micro-batches that do not."""

import pytest
import torch

from rlviz.training import growth
from rlviz.training.growth import growth_table, memory_growth
from rlviz.training.rollout_run import RolloutRun
from small_models.policies import build_policy
from small_models.tasks import Chain


def tiny():
    return build_policy(hidden_size=16, num_layers=1, num_heads=2, device="cpu")


def test_rollouts_have_the_sizes_that_are_asked_for_and_peaks_follow(monkeypatch):
    collect, seen = RolloutRun.collect, []

    def watched(run):
        rollout = collect(run)
        seen.append((tuple(rollout.samples.mask.shape), bool(rollout.samples.mask.all())))
        return rollout

    monkeypatch.setattr(RolloutRun, "collect", watched)
    policy = tiny()
    before = [weight.clone() for weight in policy.model.parameters()]
    of_groups, of_lengths = memory_growth(
        policy, Chain(), num_prompts=16, group_sizes=(2, 8), lengths=(4, 24), micro_batch_tokens=200
    )
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    sizes = [(16, 2, 9), (16, 8, 9), (16, 8, 4), (16, 8, 24)]
    assert set(seen) == {(size, True) for size in sizes}  # nobody ended early
    assert [(row.group_size, row.length) for row in (*of_groups, *of_lengths)] == [size[1:] for size in sizes]
    for few, many in (of_groups, of_lengths):
        assert many.update > 2 * few.update and many.rollout > 1.5 * few.rollout
        assert many.in_micro_batches < 0.5 * many.update
    assert of_groups[1].unshared > 1.2 * of_groups[1].update  # 15 tokens are read for each response, and not 9
    assert of_groups[1].in_micro_batches < 1.3 * of_groups[0].in_micro_batches


def test_all_that_is_held_is_counted():
    """`peak_bytes` itself is held against the allocator in test_cost."""
    ((row,), _) = memory_growth(tiny(), Chain(), num_prompts=1, group_sizes=(2,), lengths=(), micro_batch_tokens=1)
    size = sum(weight.numel() for weight in tiny().model.parameters())
    held = 4 * size * (1 + 1 + 2 + 1)  # weights, gradients, two moments, and the reference
    assert held < row.rollout < 1.5 * held
    assert held < row.update < 2 * held


def test_a_table_says_what_grows():
    rows = [growth.Growth(2, 9, 64, 1024, 1, 2, 3, 7)], [growth.Growth(8, 4, 256, 1024, 4, 5, 6, 8)]
    table = growth_table(*rows)
    assert list(table["varied"]) == ["group_size", "length"]
    assert list(table["update"]) == [2, 5] and list(table["responses"]) == [64, 256]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"group_sizes": (2, 3)}, "group_sizes must be even and at least 2.*got 3"),
        ({"micro_batch_tokens": 0}, "micro_batch_tokens must be at least 1; got 0"),
        ({"num_prompts": 0}, "num_prompts must be at least 1; got 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        memory_growth(tiny(), Chain(), **changed)
