"""The tasks: one verifiable task a file."""

from small_models.tasks.base import Grade, Step, Task
from small_models.tasks.chain import Chain
from small_models.tasks.sort import Sort
from small_models.tasks.trip import Trip

TASKS: tuple[Task, ...] = (Chain(), Sort(), Trip())

__all__ = ["TASKS", "Chain", "Grade", "Sort", "Step", "Task", "Trip"]
