"""What a task is: prompts, a rule that grades a response, a reward, and demonstrations to warm up on."""

from __future__ import annotations

import random
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from statistics import fmean
from typing import Any

from small_models.checks import cut, short_repr

LARGEST = 1e38  # size of a reward, which becomes a number in float32
Reward = Callable[[str, str], float | Mapping[str, float]]  # of prompt and response; named parts add up


@dataclass(frozen=True)
class Grade:
    """What a rule sees in one response: is it written as asked (`format`), and is its answer right (`correct`).

    correct: None where the task has no right answer.
    """

    format: bool
    correct: bool | None


class RewardError(ValueError):
    """A reward that is no finite number, or a rule that raised: prompt, response and what came back in one sentence."""


@dataclass(frozen=True)
class Score:
    """A response's grade and its reward: finite numbers by name, that of a reward without names is "reward".

    correct: None where the task has no right answer and no `solved_at`.
    """

    format: bool
    correct: bool | None
    parts: Mapping[str, float]

    @property
    def reward(self) -> float:
        """The sum of the parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Step:
    """A piece of a response that earns a reward of its own.

    end: characters of the response up to its end. The last step ends with the response, its end of sequence included.
    """

    end: int
    reward: float


def share_right(scores: Sequence[Score]) -> float | None:
    """Return the share of right responses, None where the task has no right answers."""
    right = [score.correct for score in scores if score.correct is not None]
    return sum(right) / len(right) if right else None


def verdict(correct: bool | None, well_formed: bool) -> str:
    """Return a grade in words; "–" for a well-formed response to a task without right answers."""
    if correct:
        return "right"
    return "not well formed" if not well_formed else "–" if correct is None else "wrong"


class Task(ABC):
    """A verifiable task over short texts. Subclass it, set the class attributes, and write the four abstract methods.

    name: as on the command line. description: one line. max_new_tokens: room for a response, end of sequence included.
    held_out_share: share of all prompts kept from training, drawn by a checksum, the same everywhere.
    call_end: the text that ends a call to the task's tool, empty where there is none. A task with a tool writes `observe` too.
    repeats_prompts: whether an evaluation asks the held-out prompts again, from the first, where they are fewer than it wants.
    solved_at: the reward from which on a response counts as right, None: where `grade` says so. A task without right answers sets
    `has_answers` to False and writes `reward`.
    """

    name: str
    description: str
    max_new_tokens: int
    held_out_share: float = 0.1
    call_end: str = ""
    repeats_prompts: bool = True
    solved_at: float | None = None

    @abstractmethod
    def all_prompts(self) -> Sequence[str]:
        """Return every prompt there is; the split into training and held-out prompts is made from them."""

    def user_text(self, prompt: str) -> str:
        """Return the user's words in a prompt, which pages show; here the prompt, since no chat template stands around it."""
        return prompt

    @abstractmethod
    def gold(self, prompt: str) -> str:
        """Return a right answer to the prompt."""

    @abstractmethod
    def grade(self, prompt: str, response: str) -> Grade:
        """Grade a response (text without the end-of-sequence token)."""

    @abstractmethod
    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        """Return a response for the supervised warm-up: well formed, not always right."""

    @property
    def has_answers(self) -> bool:
        """Whether a response can be right: `gold` is a right answer, and `grade` says True or False."""
        return True

    @property
    def has_accuracy(self) -> bool:
        """Whether responses count as right or wrong, by their answers or by `solved_at`."""
        return self.has_answers or self.solved_at is not None

    @property
    def reward_is_grade(self) -> bool:
        """Whether the reward is 1 for a right answer and 0 for any other, so that the accuracy says it."""
        return getattr(self.reward, "__func__", None) is Task.reward

    def reward(self, prompt: str, response: str) -> float | Mapping[str, float]:
        """Return the reward of a response, or its parts by name, whose sum it is. Here 1 if the answer is right, else 0."""
        return float(self.grade(prompt, response).correct or 0)

    def score(self, prompt: str, response: str) -> Score:
        """Return a response's grade and its checked reward, which is what training, records and evaluations read.

        Raises RewardError for a reward that is no finite number, and for what `grade` or `reward` raises.
        """
        try:
            grade = self.grade(prompt, response)  # once, since a rule may toss a coin
            reward = float(grade.correct or 0) if self.reward_is_grade else self.reward(prompt, response)
        except RewardError:
            raise
        except (Exception, SystemExit) as error:
            raise self.reward_error(prompt, response, f"raised {error_text(error)}") from error
        parts = reward if isinstance(reward, Mapping) else {"reward": reward}
        if not self.reward_is_grade and not is_reward(parts):
            what = f"must give a finite number, or finite numbers by name; got {short_repr(reward)}"
            raise self.reward_error(prompt, response, what)
        score = Score(grade.format, grade.correct, {name: float(part) for name, part in parts.items()})
        if self.solved_at is not None:
            return replace(score, correct=score.reward >= self.solved_at)
        if self.has_answers == (grade.correct is None):
            words = "True or False" if self.has_answers else "None, as it has no right answers (has_answers)"
            raise self.reward_error(prompt, response, f"must grade with correct {words}; got {grade.correct}")
        return score

    def reward_error(self, prompt: str, response: str, what: str) -> RewardError:
        """Return the refusal of what a rule did with a response."""
        words = f"for the response {short_repr(response)} to {short_repr(self.user_text(prompt))}"
        return RewardError(f"reward: {self.name} {what} {words}")

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

        A task that marks no steps has one, the whole response.
        """
        return (Step(len(response), self.score(prompt, response).reward),)

    def quality(self, prompt: str, response: str) -> float:
        """Return how good a response is, which is what makes one of two the better: its steps' mean reward."""
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


def is_reward(parts: Mapping[Any, Any]) -> bool:
    """Return True for numbers by name, at least one, that float32 can hold, as their sum."""
    are_numbers = all(isinstance(name, str) and isinstance(part, Real) for name, part in parts.items())
    return bool(parts) and are_numbers and all(abs(part) < LARGEST for part in (*parts.values(), sum(parts.values())))


def error_text(error: BaseException) -> str:
    """Return what was raised as Python names it, on one line."""
    return cut(" ".join(f"{type(error).__name__}: {error}".split()), 200)


def match_prompt(prompt: str, pattern: str, example: str) -> re.Match[str]:
    """Return the match of a prompt with the pattern of its task's. Raises ValueError, with an example, where there is none."""
    match = re.fullmatch(pattern, prompt, re.ASCII)
    if match is None:
        raise ValueError(f"prompt must be written as {example} is; got {short_repr(prompt)}")
    return match


def _by_checksum(texts: Iterable[str]) -> list[str]:
    """Return the texts in an order that says nothing about them, the same everywhere."""
    return sorted(texts, key=lambda text: (zlib.crc32(text.encode()), text))
