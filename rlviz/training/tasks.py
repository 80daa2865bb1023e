"""The shipped tasks by name."""

from __future__ import annotations

from rlviz.names import closest
from small_models.checks import checked
from small_models.tasks import TASKS, Task


@checked
def find_task(name: str) -> Task:
    """Return the shipped task with this name; raises ValueError that offers the nearest names."""
    known = {task.name: task for task in TASKS}
    return known[closest("task", name, list(known))]
