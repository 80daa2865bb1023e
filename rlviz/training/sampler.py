"""Which prompts a step samples responses to: from a pool, and further ones where groups that teach nothing are replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rlviz.algorithms.base import PolicyGradient
from rlviz.settings import TrainSettings
from rlviz.training.engine import Engine
from rlviz.training.rollouts import Groups, Rollout, joined, of_grades
from rlviz.training.run import Part
from small_models.policies import Policy
from small_models.sampling import Samples, sample
from small_models.tasks import Grade, Task

FEW = 1000  # prompts, which are shuffled as quickly as drawn
FILTERED_AT_ONCE = 256  # prompts, so that memory stays flat


class GroupSampler(Part):
    """Samples and grades the groups of a step. pool: indices of the training prompts that it draws from, each once a step.

    engine: what samples, where that is not the policy itself. outcomes: (samples, right or wrong [P, G]) → what groups are
    selected by, [P, G]. stop_at_end: as in `sample`.
    """

    def __init__(
        self,
        policy: Policy,
        task: Task,
        algorithm: PolicyGradient,
        settings: TrainSettings,
        outcomes: Callable[[Samples, Tensor], Tensor],
    ) -> None:
        for name in ("num_prompts", "prompt_pool"):
            if getattr(settings, name) > len(task.train_prompts):
                raise ValueError(
                    f"{name} must be at most {len(task.train_prompts)}, the training prompts of {task.name}; "
                    f"got {getattr(settings, name)}"
                )
        self.policy, self.task, self.algorithm, self.settings = policy, task, algorithm, settings
        self.engine = Engine(policy, settings)
        self.outcomes, self.stop_at_end = outcomes, True
        self.pool = torch.arange(len(task.train_prompts))
        if settings.prompt_pool:
            drawn = torch.randperm(len(self.pool), generator=torch.Generator().manual_seed(settings.seed))
            self.pool = drawn[: settings.prompt_pool].sort().values

    def sample(self, generator: torch.Generator) -> Groups:
        """Return groups of num_prompts prompts, and of further ones as long as the selection asks for them."""
        wanted = self.settings.num_prompts
        order = self.pool[_some(len(self.pool), wanted * self.algorithm.can.max_rounds, generator)]
        parts: list[Samples] = []
        texts: list[list[str]] = []
        grades: list[list[Grade]] = []
        outcomes: list[Tensor] = []
        done, missing = 0, wanted
        while missing > 0 and done < len(order):
            prompts = self._prompts(order[done : done + missing])
            done += len(prompts)
            parts.append(self._respond(prompts, self.settings.group_size, generator))
            texts += parts[-1].texts(self.policy)
            grades += (graded := self._grade(prompts, texts[-len(prompts) :]))
            outcomes.append(self.outcomes(parts[-1], of_grades(graded, "correct", self.policy.device)))
            selected = self.algorithm.selected(torch.cat(outcomes), generator)
            missing = wanted - len(selected)
        return Groups(
            chosen=order[:done].to(self.policy.device),
            prompts=self._prompts(order[:done]),
            samples=joined(parts),
            texts=texts,
            grades=grades,
            outcomes=torch.cat(outcomes),
            selected=selected,
            rounds=len(parts),
        )

    def filter_solved(self, generator: torch.Generator) -> tuple[int, int]:
        """Take the prompts out of the pool that all of `filter_solved` responses solve; return responses and tokens sampled.

        Raises ValueError when fewer prompts than a step needs are left.
        """
        count, prompts = self.settings.filter_solved, self._prompts(self.pool)
        solved, tokens = [], 0
        for start in range(0, len(prompts), FILTERED_AT_ONCE):
            part = prompts[start : start + FILTERED_AT_ONCE]
            samples = self._respond(part, count, generator)
            tokens += int(samples.mask.sum())
            solved += [all(grade.correct for grade in row) for row in self._grade(part, samples.texts(self.policy))]
        self.pool = self.pool[~torch.tensor(solved)]
        if len(self.pool) < self.settings.num_prompts:
            raise ValueError(
                f"filter_solved: {count} of {count} responses solve {sum(solved)} of {len(prompts)} prompts, which leaves "
                f"{len(self.pool)}, fewer than num_prompts ({self.settings.num_prompts})"
            )
        return count * len(prompts), tokens

    @property
    def models(self) -> Mapping[str, nn.Module]:
        return {} if self.engine.policy is self.policy else {"sampler": self.engine.policy.weights}

    def after_step(self, step: int, rollout: Rollout) -> None:
        self.engine.follow()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return ({"pool": self.pool} if self.settings.filter_solved else {}) | self.engine.tensors(), {}

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        self.engine.restore(tensors)
        if self.settings.filter_solved:
            pool = tensors["pool"].tolist()
            if not set(pool) <= set(self.pool.tolist()) or len(pool) < self.settings.num_prompts:
                raise ValueError(
                    "training.safetensors: pool must be places of the training prompts that a step draws from"
                )
            self.pool = torch.tensor(pool, dtype=torch.long)

    def _prompts(self, indices: Tensor) -> list[str]:
        return [self.task.train_prompts[index] for index in indices.tolist()]

    def _grade(self, prompts: list[str], texts: list[list[str]]) -> list[list[Grade]]:
        return [[self.task.grade(prompt, text) for text in row] for prompt, row in zip(prompts, texts, strict=True)]

    def _respond(self, prompts: list[str], group_size: int, generator: torch.Generator) -> Samples:
        settings = self.settings
        return sample(
            self.engine.policy,
            prompts,
            task=self.task,
            group_size=group_size,
            max_new_tokens=settings.max_new_tokens or self.task.max_new_tokens,
            temperature=settings.sampler_temperature or settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            stop_at_end=self.stop_at_end,
            generator=generator,
        )


def _some(total: int, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` different numbers below `total`, or all of them where they are fewer, each order equally likely.

    A larger `count` begins with the same numbers and leaves the generator in the same state. Shuffling all of 90,000 prompts
    would cost a small policy 2 % of its step, so few of many are drawn until they differ.
    """
    own = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
    if total <= FEW:
        return torch.randperm(total, generator=own)[:count]
    drawn: dict[int, None] = {}
    while len(drawn) < min(count, total):
        drawn |= dict.fromkeys(torch.randint(total, (FEW,), generator=own).tolist())
    return torch.tensor(list(drawn)[:count])
