"""Tasks by name or from a file, and a check that a policy can read their prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlviz.names import closest
from small_models.checks import checked, short_repr
from small_models.tasks import TASKS, FileTask, Task, chat_writer
from small_models.tasks.file_task import Chat

if TYPE_CHECKING:  # a panel needs the tasks' names, and no tokenizer
    from small_models.policies import Policy

ENDING = ".jsonl"
AT_ONCE = 1000  # prompts that are encoded


def is_file(name: str) -> bool:
    """Return whether a task's name is a file's."""
    return "." in name or "/" in name


@checked
def find_task(name: str, *, rule: str | None = None, chat: Chat = "auto", policy: Policy | None = None) -> Task:
    """Return the shipped task with this name, or the task of a FILE.jsonl (see `FileTask`).

    rule: how responses to a file's prompts are graded: last-number, exact, or FILE.py:function, code of yours that is run.
    chat: whether the prompts are written as the policy's chat template asks: auto (where it has one), on or off; policy: whose.
    Raises ValueError that offers the nearest names, and for a file that is no task, which names file and line.
    """
    if not is_file(name):
        if rule is not None or chat != "auto":
            option = "chat" if rule is None else "rule"
            raise ValueError(f"{option} is for a task from a file, FILE{ENDING}; got the task {short_repr(name)}")
        known = {task.name: task for task in TASKS}
        return known[closest("task", name, list(known))]
    if not name.endswith(ENDING):
        names = ", ".join(task.name for task in TASKS)
        raise ValueError(f"task must be one of {names}, or a file ending in {ENDING}; got {short_repr(name)}")
    if rule is None:
        raise ValueError(
            f"rule is missing: how are responses to the prompts of {name} graded? Give last-number, exact, or FILE.py:function"
        )
    task = FileTask(name, rule, None if policy is None else chat_writer(policy.vocabulary, chat, policy.source))
    task.check_rule()
    return task


def start_of(task: Task) -> str:
    """Return the name of the policy that a task's runs begin with; raises ValueError for a file's, which has none."""
    if isinstance(task, FileTask):
        raise ValueError(f"policy is missing: {task.name} is a task from a file and has no warm start; name a model")
    return task.name


def check_prompts(policy: Policy, task: Task, max_new_tokens: int | None) -> int:
    """Return the tokens of the longest prompt of a task from a file, 0 of another, which its own policy is made for.

    Raises ValueError, which names file and line, for a prompt that the policy cannot write, and for one that leaves its responses
    too few positions.
    """
    if not isinstance(task, FileTask):
        return 0
    prompts, room = list(task.all_prompts()), max_new_tokens or task.max_new_tokens
    longest = 0
    for start in range(0, len(prompts), AT_ONCE):
        part = prompts[start : start + AT_ONCE]
        for prompt, length in zip(part, _lengths(policy, task, part), strict=True):
            longest = max(longest, length)
            if policy.positions is not None and length + room > policy.positions:
                raise ValueError(
                    f"{task.where(prompt)}: the prompt has {length:,} tokens, and with max_new_tokens {room:,} that is "
                    f"more than the {policy.positions:,} positions of {policy.source}; lower max_new_tokens, or shorten it"
                )
    return longest


def _lengths(policy: Policy, task: FileTask, prompts: list[str]) -> list[int]:
    from small_models.tokenizer import encode, prefix_ids

    begin = prefix_ids(policy.vocabulary)
    try:
        rows = encode(policy.vocabulary, prompts)
        return [len(row) + (row[: len(begin)] != begin) * len(begin) for row in rows]
    except ValueError as error:
        if len(prompts) > 1:
            return [length for prompt in prompts for length in _lengths(policy, task, [prompt])]
        raise ValueError(f"{task.where(prompts[0])}: {error}") from None
