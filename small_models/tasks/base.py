"""What a task is: prompts, a rule that grades a response, and demonstrations to warm up on."""

from __future__ import annotations

import random
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from small_models.checks import short_repr


@dataclass(frozen=True)
class Grade:
    """What a rule sees in one response: is it written as asked (`format`), and is its answer right (`correct`)."""

    format: bool
    correct: bool


@dataclass(frozen=True)
class Step:
    """A piece of a response that earns a reward of its own.

    end: characters of the response up to its end. The last step ends with the response, its end of sequence included.
    """

    end: int
    reward: float


class Task(ABC):
    """A verifiable task over short texts. Subclass it, set the class attributes, and write the four abstract methods.

    name: as on the command line. description: one line. max_new_tokens: room for a response, end of sequence included.
    held_out_share: share of all prompts kept from training, drawn by a checksum, the same everywhere.
    call_end: the text that ends a call to the task's tool, empty where there is none. A task with a tool writes `observe` too.
    repeats_prompts: whether an evaluation asks the held-out prompts again, from the first, where they are fewer than it wants.
    """

    name: str
    description: str
    max_new_tokens: int
    held_out_share: float = 0.1
    call_end: str = ""
    repeats_prompts: bool = True

    @abstractmethod
    def all_prompts(self) -> Sequence[str]:
        """Return every prompt there is; the split into training and held-out prompts is made from them."""

    @abstractmethod
    def gold(self, prompt: str) -> str:
        """Return a right answer to the prompt."""

    @abstractmethod
    def grade(self, prompt: str, response: str) -> Grade:
        """Grade a response (text without the end-of-sequence token)."""

    @abstractmethod
    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        """Return a response for the supervised warm-up: well formed, not always right."""

    def observe(self, prompt: str, written: str) -> str:
        """Return what the environment writes into a response to the prompt after `written`, whose last token ends a call.

        The same words to the same text, always; a call that makes no sense is told so here. Empty: the policy just goes on.
        """
        return ""

    def turns(self, prompt: str, response: str) -> list[str]:
        """Return the parts of a response that policy and environment wrote by turns, the policy first; joined, the response."""
        turns, unread = [""], response
        while self.call_end and self.call_end in unread:
            call, end, unread = unread.partition(self.call_end)
            turns[-1] += call + end
            observation = self.observe(prompt, response[: len(response) - len(unread)])
            if observation and unread.startswith(observation):
                turns += [observation, ""]
                unread = unread[len(observation) :]
        turns[-1] += unread
        return turns

    def split_key(self, prompt: str) -> str:
        """Return what decides whether a prompt is held out: prompts with the same one stay on one side. Here each its own."""
        return prompt

    def steps(self, prompt: str, response: str) -> tuple[Step, ...]:
        """Return the steps of a response in order, each end above the one before; the last one's reward is the outcome's.

        A task that marks no steps has one, the whole response: 1 if it is right, else 0.
        """
        return (Step(len(response), float(self.grade(prompt, response).correct)),)

    def quality(self, prompt: str, response: str) -> float:
        """Return how good a response is, from 0 to 1, which is what makes one of two the better: its steps' mean reward."""
        return fmean(step.reward for step in self.steps(prompt, response))

    @property
    def described(self) -> dict[str, Any]:
        """What the config.json of a run says of its task: its name, and all that makes two tasks of that name differ."""
        return {"task": self.name}

    @property
    def files(self) -> dict[str, str]:
        """Name → text of the files that a run keeps in its folder, so that it has its task again; here none."""
        return {}

    @cached_property
    def _split(self) -> tuple[list[str], list[str]]:
        kinds = {prompt: self.split_key(prompt) for prompt in _by_checksum(self.all_prompts())}
        ordered = _by_checksum(dict.fromkeys(kinds.values()))  # mostly in order already, which sorts fast
        held_out = set(ordered[: max(1, round(len(ordered) * self.held_out_share))])
        return [p for p in kinds if kinds[p] not in held_out], [p for p in kinds if kinds[p] in held_out]

    @property
    def train_prompts(self) -> list[str]:
        return self._split[0]

    @property
    def held_out_prompts(self) -> list[str]:
        return self._split[1]


def match_prompt(prompt: str, pattern: str, example: str) -> re.Match[str]:
    """Return the match of a prompt with the pattern of its task's. Raises ValueError, with an example, where there is none."""
    match = re.fullmatch(pattern, prompt, re.ASCII)
    if match is None:
        raise ValueError(f"prompt must be written as {example} is; got {short_repr(prompt)}")
    return match


def _by_checksum(texts: Iterable[str]) -> list[str]:
    """Return the texts in an order that says nothing about them, the same everywhere."""
    return sorted(texts, key=lambda text: (zlib.crc32(text.encode()), text))
