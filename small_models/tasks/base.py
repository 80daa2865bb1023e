"""What a task is: prompts, a rule that grades a response, and demonstrations to warm up on."""

from __future__ import annotations

import random
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import ClassVar


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
    held_out_share: share of all prompts kept from training, drawn by a checksum of the prompt, the same everywhere.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    max_new_tokens: ClassVar[int]
    held_out_share: ClassVar[float] = 0.1

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

    def steps(self, prompt: str, response: str) -> tuple[Step, ...]:
        """Return the steps of a response in order, each end above the one before; the last one's reward is the outcome's.

        A task that marks no steps has one, the whole response: 1 if it is right, else 0.
        """
        return (Step(len(response), float(self.grade(prompt, response).correct)),)

    def quality(self, prompt: str, response: str) -> float:
        """Return how good a response is, from 0 to 1, which is what makes one of two the better: its steps' mean reward."""
        return fmean(step.reward for step in self.steps(prompt, response))

    @cached_property
    def _split(self) -> tuple[list[str], list[str]]:
        ordered = sorted(self.all_prompts(), key=lambda prompt: (zlib.crc32(prompt.encode()), prompt))
        count = max(1, round(len(ordered) * self.held_out_share))
        return ordered[count:], ordered[:count]

    @property
    def train_prompts(self) -> list[str]:
        return self._split[0]

    @property
    def held_out_prompts(self) -> list[str]:
        return self._split[1]
