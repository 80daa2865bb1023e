"""Checks for the exercises: each takes the student's function, and says what is wrong with it rather than that it is.

    check.pessimistic(my_objective)

A check never raises for a wrong answer: it returns a Verdict, which shows itself in a notebook. `passed` says the rest. Most are
exercises of the modules beside this one, where the answer stands with the slips that are recognised: what is imported is a check.
"""

# ruff: noqa: F401

from __future__ import annotations

from rlviz.lessons import credit
from rlviz.lessons.assembly import judge_assembly as assembly
from rlviz.lessons.bounds import dynamic_bounds
from rlviz.lessons.clipping import clipped_weight, dual_clip, pessimistic, sign_weights
from rlviz.lessons.credit import (
    gae_advantages,
    group_advantage,
    observation_loss,
    own_token_weights,
)
from rlviz.lessons.estimates import entropy, entropy_change, kl_estimate_k3, pass_at_k
from rlviz.lessons.exercise import Exercise
from rlviz.lessons.graders import fools, grader
from rlviz.lessons.loops import grpo_loop, table_loop
from rlviz.lessons.losses import ppo_loss, reinforce, reinforce_step
from rlviz.lessons.puzzles import judge_bug as bug, judge_unlabelled as unlabelled
from rlviz.lessons.ratios import sequence_objective, truncated_weight
from rlviz.lessons.rewards import dpo_loss, reward_model_loss, soft_overlong_punishment
from rlviz.lessons.verdict import Verdict

constant_weight = credit.constant_weight(16)
EXERCISES = {name: one for name, one in vars().items() if isinstance(one, Exercise)}
