"""How the memory of a training step grows with the group size and with the length of responses: measured peaks of real steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rlviz.algorithms import GRPO
from rlviz.settings import TrainSettings
from rlviz.training.cost import STILL, every_second_is_right, held_tensors, own_copy, peak_bytes
from rlviz.training.rollout_run import RolloutRun
from rlviz.training.start import train
from small_models.checks import checked
from small_models.paths import computing
from small_models.policies import Policy, one_thread_if_small
from small_models.tasks import Task

if TYPE_CHECKING:
    import pandas as pd

GROUP_SIZES, LENGTHS = (2, 4, 8, 16), (4, 8, 16, 32)
GROUP_SIZE = 8  # while lengths grow


@dataclass(frozen=True)
class Growth:
    """The peaks of a step on responses of one length, in bytes: all that is alive at once, weights and Adam's memory included.

    rollout: while it is sampled, graded and read by the reference; update: of one update on all of its rows; in_micro_batches:
    the same update, at most `micro_batch_tokens` tokens of prompts and responses at once; unshared: of the update as
    transformers' modules compute it, in which each response reads its prompt again (`small_models.paths`).
    """

    group_size: int
    length: int
    responses: int
    micro_batch_tokens: int
    rollout: int
    update: int
    in_micro_batches: int
    unshared: int


@checked
def memory_growth(
    policy: Policy,
    task: Task,
    *,
    num_prompts: int = 32,
    group_sizes: Sequence[int] = GROUP_SIZES,
    lengths: Sequence[int] = LENGTHS,
    micro_batch_tokens: int = 1024,
    seed: int = 0,
) -> tuple[list[Growth], list[Growth]]:
    """Measure steps of GRPO with growing groups, of responses as long as the task allows, and with growing length, eight a group.

    Responses do not end before their length, every second one counts as right, so that no group drops out, and the learning rate
    is next to 0. Raises ValueError for an odd group size, and as `train` does.
    """
    for size in group_sizes:
        if size < 2 or size % 2:
            raise ValueError(f"group_sizes must be even and at least 2, so that half of a group is right; got {size}")
    if micro_batch_tokens < 1:
        raise ValueError(f"micro_batch_tokens must be at least 1; got {micro_batch_tokens}")

    def measured(group_size: int, length: int) -> Growth:
        settings = TrainSettings(
            num_prompts=num_prompts, group_size=group_size, max_new_tokens=length, seed=seed, lr=STILL
        )
        rollout, update = _peaks(policy, task, settings)
        in_parts = _peaks(policy, task, replace(settings, micro_batch_tokens=micro_batch_tokens))[1]
        with computing("transformers"):
            unshared = _peaks(policy, task, settings)[1]
        responses = num_prompts * group_size
        return Growth(group_size, length, responses, micro_batch_tokens, rollout, update, in_parts, unshared)

    with one_thread_if_small(policy):
        of_groups = [measured(size, task.max_new_tokens) for size in group_sizes]
        return of_groups, [measured(GROUP_SIZE, length) for length in lengths]


def _peaks(policy: Policy, task: Task, settings: TrainSettings) -> tuple[int, int]:
    """Return the most bytes alive at once in the rollout and in the update of a second step."""
    run: Any = train(own_copy(policy), every_second_is_right(task), GRPO, settings)
    assert isinstance(run, RolloutRun)
    run.sampler.stop_at_end = False
    run.update(run.collect())
    held, device = held_tensors(run), run.policy.device
    rollout = peak_bytes(run.collect, held, device)
    collected = run.collect()
    return rollout, peak_bytes(lambda: run.update(collected), held, device)


@checked
def growth_table(of_groups: Sequence[Growth], of_lengths: Sequence[Growth]) -> pd.DataFrame:
    """Return a row a measurement, the fields of `Growth`; varied: "group_size" or "length", what grows."""
    import pandas as pd

    parts = ("group_size", of_groups), ("length", of_lengths)
    return pd.DataFrame([{"varied": varied, **asdict(row)} for varied, rows in parts for row in rows])
