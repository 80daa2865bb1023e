"""What a table of logits refuses: settings of a run, tasks, and algorithms that it cannot serve."""

from __future__ import annotations

import math
from typing import Any

from rlviz.algorithms import DISTILLATION, DPO, GRPO, GRPO_PROCESS, PPO
from rlviz.tabular import TableTask, good_actions, rare_good_action, train_table
from tests.refusals.row import of


def run(**given: Any) -> Any:
    return train_table(**{"algorithm": GRPO, **given})


def taught(**given: Any) -> Any:
    return train_table(DISTILLATION, good_actions(1, 5), **given)


OF_GROUPS = "algorithm must learn from groups of responses, as GRPO does; got "
COUNTS = ("steps", "groups", "updates_per_rollout", "minibatches", "replicas")
ROWS = [
    *of(
        run,
        *(({name: 0}, f"{name} must be at least 1; got 0") for name in COUNTS),
        *(({name: "ten"}, f"{name} must be a whole number, at least 1; got 'ten'") for name in COUNTS),
        ({"steps": 2.5}, "steps must be a whole number, at least 1; got 2.5"),
        ({"steps": True}, "steps must be a whole number, at least 1; got True"),
        ({"groups": None}, "groups must be a whole number, at least 1; got None"),
        ({"replicas": [2]}, "replicas must be a whole number, at least 1; got [2]"),
        ({"replicas": -1}, "replicas must be at least 1; got -1"),
        ({"group_size": 0}, "group_size must be at least 2 for GRPO; got 0"),
        ({"group_size": 1}, "group_size must be at least 2 for GRPO; got 1"),
        ({"group_size": "8"}, "group_size must be a whole number, at least 2 for GRPO; got '8'"),
        ({"lr": 0.0}, "lr must be above 0; got 0.0"),
        ({"lr": math.inf}, "lr must be above 0, and finite; got inf"),
        ({"lr": math.nan}, "lr must be above 0, and finite; got nan"),
        ({"lr": "fast"}, "lr must be a number, above 0; got 'fast'"),
        ({"temperature": -1.0}, "temperature must be at least 1e-06; got -1.0"),
        ({"temperature": 1e-7}, "temperature must be at least 1e-06; got 1e-07"),
        ({"temperature": math.nan}, "temperature must be at least 1e-06, and finite; got nan"),
        ({"temperature": None}, "temperature must be a number, at least 1e-06; got None"),
        ({"entropy_weight": -0.1}, "entropy_weight must be 0 or above; got -0.1"),
        ({"entropy_weight": math.inf}, "entropy_weight must be 0 or above, and finite; got inf"),
        ({"entropy_weight": "0"}, "entropy_weight must be a number, 0 or above; got '0'"),
        ({"seed": "x"}, "seed must be a whole number, at least 0; got 'x'"),
        ({"seed": -1}, "seed must be at least 0; got -1"),
        ({"seed": 2**63}, "seed must be at least 0, and below 2**63; got 9223372036854775808"),
        (
            {"replicas": 10**9},
            "8,000,000,000 tokens a step and 6,020,000,000,000 probabilities, those of all steps, would take 48,224.0 GB at "
            "least, and … GB of this cpu's memory are free; lower steps, group_size, groups or replicas",
        ),
        (
            {"updates_per_rollout": 4, "minibatches": 3},
            "updates_per_rollout must be a multiple of minibatches (3); got 4",
        ),
        (
            {"group_size": 4, "updates_per_rollout": 8, "minibatches": 8},
            "minibatches must be at most prompts × groups × group_size = 4; got 8",
        ),
        ({"task": "sums"}, "task must be a TableTask, such as good_actions(3, 20); got 'sums'"),
        ({"task": 0}, "task must be a TableTask, such as good_actions(3, 20); got 0"),
        ({"algorithm": "grpo"}, OF_GROUPS + "'grpo'"),
        ({"algorithm": None}, OF_GROUPS + "None"),
        ({"algorithm": PPO}, OF_GROUPS + "PPO"),
        ({"algorithm": DPO}, OF_GROUPS + "DPO"),
        (
            {"algorithm": GRPO_PROCESS},
            "algorithm: GRPO (process) needs rewards of single steps, which a table does not give",
        ),
    ),
    *of(
        taught,
        ({}, "reference must be a teacher's probabilities of the actions for Distillation; got None"),
        ({"reference": (0.5, 0.5)}, "reference must be 5 probabilities above 0 that add up to 1; got (0.5, 0.5)"),
    ),
    *of(
        TableTask,
        (((1.0,),), "success must be two or more probabilities from 0 to 1; got (1.0,)"),
        (((0.5, 1.5),), "success must be two or more probabilities from 0 to 1; got (0.5, 1.5)"),
        (((0.5, math.nan),), "success must be two or more probabilities from 0 to 1; got (0.5, nan)"),
        (("likely",), "success must be two or more probabilities from 0 to 1; got 'likely'"),
        ((None,), "success must be two or more probabilities from 0 to 1; got None"),
        ({"success": (0.0, 1.0), "prompts": 0}, "prompts must be at least 1; got 0"),
        ({"success": (0.0, 1.0), "positions": 0}, "positions must be at least 1; got 0"),
        ({"success": (0.0, 1.0), "positions": "two"}, "positions must be a whole number, at least 1; got 'two'"),
        *(
            (
                {"success": (0.0, 1.0), "start": start},
                f"start must be 2 probabilities above 0 that add up to 1; got {start!r}",
            )
            for start in ("even", (1.0,), (0.5, 0.6), (0.0, 1.0))
        ),
        (
            {"success": (0.0, 1.0), "prompts": 3, "start": ((0.5, 0.5), (0.2, 0.8))},
            "start must be one, or one for each of 3 prompts; got 2",
        ),
        (
            {"success": (0.0, 1.0), "prompts": 2, "start": ((0.5, 0.5), (0.2, 0.9))},
            "start must be 2 probabilities above 0 that add up to 1; got (0.2, 0.9)",
        ),
    ),
    *of(
        good_actions,
        ((0,), "good must be from 1 to 19, so that something is right and something wrong; got 0"),
        ((10, 10), "good must be from 1 to 9, so that something is right and something wrong; got 10"),
    ),
    *of(
        rare_good_action,
        ((0.0,), "start must be above 0 and below 1; got 0.0"),
        ((1.0,), "start must be above 0 and below 1; got 1.0"),
        ({"right": 1.5}, "success must be two or more probabilities from 0 to 1; got (0.1, 1.5)"),
    ),
]
