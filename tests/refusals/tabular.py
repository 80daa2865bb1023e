"""What a table of logits refuses: settings of a run, tasks, and algorithms that it cannot serve."""

from __future__ import annotations

import math
from typing import Any

from rlviz.algorithms import DISTILLATION, DPO, GRPO, GRPO_PROCESS, PPO
from rlviz.tabular import TableTask, good_actions, rare_good_action, train_table
from tests.refusals.row import table


def run(**given: Any) -> Any:
    return train_table(**{"algorithm": GRPO, **given})


def taught(**given: Any) -> Any:
    return train_table(DISTILLATION, good_actions(1, 5), **given)


ROWS = table(
    globals(),
    r"""
run(steps=⟨2.5 | True | None | [2]⟩) → steps must be a whole number, at least 1; got ⟨⟩
run(replicas=-1) → replicas must be at least 1; got -1
run(group_size=⟨0 | 1⟩) → group_size must be at least 2 for GRPO; got ⟨⟩
run(group_size='8') → group_size must be a whole number, at least 2 for GRPO; got '8'
run(lr=0.0) → lr must be above 0; got 0.0
run(lr=math.⟨inf | nan⟩) → lr must be above 0, and finite; got ⟨⟩
run(lr='fast') → lr must be a number, above 0; got 'fast'
run(temperature=⟨-1.0 | 1e-07⟩) → temperature must be at least 1e-06; got ⟨⟩
run(temperature=math.nan) → temperature must be at least 1e-06, and finite; got nan
run(temperature=None) → temperature must be a number, at least 1e-06; got None
run(entropy_weight=-0.1) → entropy_weight must be 0 or above; got -0.1
run(entropy_weight=math.inf) → entropy_weight must be 0 or above, and finite; got inf
run(entropy_weight='0') → entropy_weight must be a number, 0 or above; got '0'
run(seed='x') → seed must be a whole number, at least 0; got 'x'
run(seed=-1) → seed must be at least 0; got -1
run(seed=2 ** 63) → seed must be at least 0, and below 2**63; got 9223372036854775808
run(replicas=10 ** 9)
    → 8,000,000,000 tokens a step and 6,020,000,000,000 probabilities, those of all steps, would take 48,224.0
    GB at least, and … GB of this cpu's memory are free; lower steps, group_size, groups or replicas
run(updates_per_rollout=4, minibatches=3) → updates_per_rollout must be a multiple of minibatches (3); got 4
run(group_size=4, updates_per_rollout=8, minibatches=8)
    → minibatches must be at most prompts × groups × group_size = 4; got 8
run(task=⟨'sums' | 0⟩) → task must be a TableTask, such as good_actions(3, 20); got ⟨⟩
run(algorithm=⟨'grpo' | None⟩) → algorithm must learn from groups of responses, as GRPO does; got ⟨⟩
run(algorithm=⟨PPO | DPO⟩) → algorithm must learn from groups of responses, as GRPO does; got ⟨⟩
run(algorithm=GRPO_PROCESS)
    → algorithm: GRPO (process) needs rewards of single steps, which a table does not give
taught() → reference must be a teacher's probabilities of the actions for Distillation; got None
taught(reference=(0.5, 0.5)) → reference must be 5 probabilities above 0 that add up to 1; got (0.5, 0.5)
TableTask(⟨(1.0,) | (0.5, 1.5) | 'likely' | None⟩)
    → success must be two or more probabilities from 0 to 1; got ⟨⟩
TableTask((0.5, math.nan)) → success must be two or more probabilities from 0 to 1; got (0.5, nan)
TableTask(success=(0.0, 1.0), prompts=0) → prompts must be at least 1; got 0
TableTask(success=(0.0, 1.0), positions=0) → positions must be at least 1; got 0
TableTask(success=(0.0, 1.0), positions='two') → positions must be a whole number, at least 1; got 'two'
TableTask(success=(0.0, 1.0), prompts=3, start=((0.5, 0.5), (0.2, 0.8)))
    → start must be one, or one for each of 3 prompts; got 2
TableTask(success=(0.0, 1.0), prompts=2, start=((0.5, 0.5), (0.2, 0.9)))
    → start must be 2 probabilities above 0 that add up to 1; got (0.2, 0.9)
good_actions(0) → good must be from 1 to 19, so that something is right and something wrong; got 0
good_actions(10, 10) → good must be from 1 to 9, so that something is right and something wrong; got 10
rare_good_action(⟨0.0 | 1.0⟩) → start must be above 0 and below 1; got ⟨⟩
rare_good_action(right=1.5) → success must be two or more probabilities from 0 to 1; got (0.1, 1.5)
run(⟨steps | groups | updates_per_rollout | minibatches | replicas⟩=0) → ⟨⟩ must be at least 1; got 0
run(⟨steps | groups | updates_per_rollout | minibatches | replicas⟩='ten')
    → ⟨⟩ must be a whole number, at least 1; got 'ten'
TableTask((0.0, 1.0), start=⟨'even' | (1.0,) | (0.5, 0.6) | (0.0, 1.0)⟩)
    → start must be 2 probabilities above 0 that add up to 1; got ⟨⟩
""",
)
