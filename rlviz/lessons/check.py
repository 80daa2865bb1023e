"""Checks for the exercises: each takes the student's function, and says what is wrong with it rather than that it is.

    check.pessimistic(my_objective)

A check never raises for a wrong answer: it returns a Verdict, which shows itself in a notebook. `passed` says the rest. Most are
exercises of the modules beside this one, where the answer stands with the slips that are recognised: what is imported is a check.
"""

# ruff: noqa: F401

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlviz.lessons import credit, rewards
from rlviz.lessons.assembly import judge_assembly as assembly
from rlviz.lessons.bounds import dynamic_bounds
from rlviz.lessons.clipping import clipped_weight, dual_clip, pessimistic, sign_weights
from rlviz.lessons.credit import (
    gae_advantages,
    group_advantage,
    mean_of_responses,
    mean_of_tokens,
    observation_loss,
    own_token_weights,
    sum_of_responses,
)
from rlviz.lessons.estimates import entropy, entropy_change, kl_estimate_k3, pass_at_k
from rlviz.lessons.exercise import Exercise
from rlviz.lessons.graders import fools, grader
from rlviz.lessons.loops import grpo_loop, table_loop
from rlviz.lessons.losses import ppo_loss, reinforce, reinforce_step
from rlviz.lessons.puzzles import judge_bug as bug, judge_unlabelled as unlabelled
from rlviz.lessons.ratios import importance_ratio, sequence_importance_ratio, sequence_objective, truncated_weight
from rlviz.lessons.rewards import dpo_loss, reward_model_loss
from rlviz.lessons.verdict import Verdict
from small_models.checks import check_at_least

EXERCISES = {name: one for name, one in vars().items() if isinstance(one, Exercise)}
# exercises that a lesson asks at sizes of its own, at those by default
EXERCISES["constant_weight"] = credit.constant_weight(16)
EXERCISES["soft_overlong_punishment"] = rewards.soft_overlong_punishment(16, 4)


def constant_weight(student: Callable[..., Any], max_length: int) -> Verdict:
    """Check mask [P, G, T] → Dr.GRPO's weight of each token, for this maximum length, in tokens."""
    return _at_sizes(student, credit.constant_weight, max_length=max_length)


def soft_overlong_punishment(student: Callable[..., Any], max_length: int = 16, cache: int = 4) -> Verdict:
    """Check (rewards [P, G], lengths [P, G]) → rewards after DAPO's punishment, from max_length − cache to max_length tokens."""
    return _at_sizes(student, rewards.soft_overlong_punishment, max_length=max_length, cache=cache)


def _at_sizes(student: Callable[..., Any], exercise: Callable[..., Exercise], **sizes: int) -> Verdict:
    try:
        check_at_least(1, **sizes)
        return exercise(**sizes)(student)
    except ValueError as error:
        return Verdict(False, f"of this check, {error}.")
