"""Another task with a rule of one's own that grades its responses, or a function that rewards them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

from small_models.tasks.base import Grade, Reward, Task

Grader = Callable[[str, str, str], Any]


def with_reward(task: Task, reward: Reward) -> Task:
    """Return the task with a function reward(prompt, response) for its reward; its grades, and so its accuracy, stay."""
    rewarded = copy.copy(task)
    vars(rewarded).update(reward=reward, solved_at=None)  # a limit of the task's own reward says nothing of another
    return rewarded


class GradedBy(Task):
    """Another task with the rule `grader(prompt, response, answer)`, which says whether a response is right.

    Prompts, answers, demonstrations, and what counts as well formed stay the other's. What the rule raises ends the run.
    """

    def __init__(self, task: Task, grader: Grader) -> None:
        self.task, self.grader = task, grader
        self.name = f"{task.name}, graded by {getattr(grader, '__name__', 'a rule')}"
        self.description = f"{task.description}; graded by a rule of one's own"
        self.max_new_tokens, self.held_out_share = task.max_new_tokens, task.held_out_share
        self.call_end, self.repeats_prompts = task.call_end, task.repeats_prompts

    def all_prompts(self) -> Sequence[str]:
        return self.task.all_prompts()

    def user_text(self, prompt: str) -> str:
        return self.task.user_text(prompt)

    def gold(self, prompt: str) -> str:
        return self.task.gold(prompt)

    def grade(self, prompt: str, response: str) -> Grade:
        right = bool(self.grader(prompt, response, self.gold(prompt)))
        return Grade(format=self.task.grade(prompt, response).format, correct=right)

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        return self.task.demonstrate(prompt, rng)

    def observe(self, prompt: str, written: str) -> str:
        return self.task.observe(prompt, written)

    def split_key(self, prompt: str) -> str:
        return self.task.split_key(prompt)
