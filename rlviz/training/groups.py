"""Which prompts a step samples responses to: from a pool, and further ones where groups that teach nothing are replaced."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlviz.algorithms.base import PolicyGradient
from rlviz.settings import TrainSettings
from rlviz.training.rows import joined
from small_models.policies import Policy
from small_models.sampling import Samples, sample
from small_models.scorers import RewardModel
from small_models.tasks import Grade, Task

FILTERED_AT_ONCE = 256  # prompts, so that memory stays flat


@dataclass(frozen=True)
class Groups:
    """Groups of responses of all rounds of a step, and what they are selected by.

    chosen: indices of the prompts. outcomes [P, G]: right or wrong, or what the reward model says. selected: indices of the
    groups to update on. rounds: how often it was sampled.
    """

    chosen: Tensor
    prompts: list[str]
    samples: Samples
    texts: list[list[str]]
    grades: list[list[Grade]]
    outcomes: Tensor
    selected: Tensor
    rounds: int

    def of_grades(self, name: str) -> Tensor:
        """Return "correct" or "format" of every grade as 1 or 0, [P, G]."""
        return _of_grades(self.grades, name, self.samples.tokens.device)


class GroupSampler:
    """Samples the groups of a step. pool: indices of the training prompts that it draws from, each once a step."""

    def __init__(
        self,
        policy: Policy,
        task: Task,
        algorithm: PolicyGradient,
        settings: TrainSettings,
        reward_model: RewardModel | None,
        generator: torch.Generator,
    ) -> None:
        for name in ("num_prompts", "prompt_pool"):
            if getattr(settings, name) > len(task.train_prompts):
                raise ValueError(
                    f"{name} must be at most {len(task.train_prompts)}, the training prompts of {task.name}; "
                    f"got {getattr(settings, name)}"
                )
        self.policy, self.task, self.algorithm, self.settings = policy, task, algorithm, settings
        self.reward_model, self.generator = reward_model, generator
        self.pool = torch.arange(len(task.train_prompts))
        if settings.prompt_pool:
            drawn = torch.randperm(len(self.pool), generator=torch.Generator().manual_seed(settings.seed))
            self.pool = drawn[: settings.prompt_pool].sort().values

    def sample(self) -> Groups:
        """Return groups of num_prompts prompts, and of further ones as long as the selection asks for them."""
        wanted = self.settings.num_prompts
        order = self.pool[torch.randperm(len(self.pool), generator=self.generator)]
        order = order[: wanted * self.algorithm.can.max_rounds]
        parts: list[Samples] = []
        texts: list[list[str]] = []
        grades: list[list[Grade]] = []
        outcomes: list[Tensor] = []
        done, missing = 0, wanted
        while missing > 0 and done < len(order):
            prompts = self._prompts(order[done : done + missing])
            done += len(prompts)
            parts.append(self._respond(prompts, self.settings.group_size))
            texts += parts[-1].texts(self.policy)
            grades += (graded := self._grade(prompts, texts[-len(prompts) :]))
            correct = _of_grades(graded, "correct", self.policy.device)
            learned = None if self.reward_model is None else self.reward_model.score(parts[-1]).to(correct.dtype)
            outcomes.append(correct if learned is None else learned)
            selected = self.algorithm.selected(torch.cat(outcomes), self.generator)
            missing = wanted - len(selected)
        return Groups(
            chosen=order[:done],
            prompts=self._prompts(order[:done]),
            samples=joined(parts),
            texts=texts,
            grades=grades,
            outcomes=torch.cat(outcomes),
            selected=selected,
            rounds=len(parts),
        )

    def filter_solved(self) -> tuple[int, int]:
        """Take the prompts out of the pool that all of `filter_solved` responses solve; return responses and tokens sampled.

        Raises ValueError when fewer prompts than a step needs are left.
        """
        count, prompts = self.settings.filter_solved, self._prompts(self.pool)
        solved, tokens = [], 0
        for start in range(0, len(prompts), FILTERED_AT_ONCE):
            part = prompts[start : start + FILTERED_AT_ONCE]
            samples = self._respond(part, count)
            tokens += int(samples.mask.sum())
            solved += [all(grade.correct for grade in row) for row in self._grade(part, samples.texts(self.policy))]
        self.pool = self.pool[~torch.tensor(solved)]
        if len(self.pool) < self.settings.num_prompts:
            raise ValueError(
                f"filter_solved: {count} of {count} responses solve {sum(solved)} of {len(prompts)} prompts, which leaves "
                f"{len(self.pool)}, fewer than num_prompts ({self.settings.num_prompts})"
            )
        return count * len(prompts), tokens

    def _prompts(self, indices: Tensor) -> list[str]:
        return [self.task.train_prompts[index] for index in indices.tolist()]

    def _grade(self, prompts: list[str], texts: list[list[str]]) -> list[list[Grade]]:
        return [[self.task.grade(prompt, text) for text in row] for prompt, row in zip(prompts, texts, strict=True)]

    def _respond(self, prompts: list[str], group_size: int) -> Samples:
        settings = self.settings
        return sample(
            self.policy,
            prompts,
            task=self.task,
            group_size=group_size,
            max_new_tokens=settings.max_new_tokens or self.task.max_new_tokens,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            generator=self.generator,
        )


def _of_grades(grades: list[list[Grade]], name: str, device: torch.device) -> Tensor:
    return torch.tensor([[float(getattr(grade, name)) for grade in row] for row in grades], device=device)
