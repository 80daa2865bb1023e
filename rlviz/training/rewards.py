"""Where the rewards of a rollout come from: the task's rules, for whole responses or single steps, or a reward model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, product
from typing import Any

import torch
from torch import Tensor, nn

from rlviz.algorithms.base import PolicyGradient
from rlviz.pieces.words import label
from rlviz.settings import TrainSettings
from rlviz.training.reward_model import refresh
from rlviz.training.rollouts import Groups, Rollout
from rlviz.training.run import Part, put_weights
from rlviz.training.updates import Updates
from small_models.pairs import Pair, writable
from small_models.policies import Policy
from small_models.sampling import Samples
from small_models.scorers import RewardModel
from small_models.tasks import Task

PAIRS_A_PROMPT = 2


class RuleRewards(Part):
    """The task's rules: what a right answer and a well-formed response earn."""

    def __init__(self, settings: TrainSettings) -> None:
        self.settings = settings

    def outcomes(self, samples: Samples, correct: Tensor) -> Tensor:
        """Return what groups are selected by, [P, G], where `correct` is 1 for a right response."""
        return correct

    def of_responses(self, groups: Groups) -> Tensor:
        """Return the rewards of whole responses before shaping, [P, G]."""
        return self.settings.reward_correct * groups.correct + self.settings.reward_format * groups.well_formed


class ModelRewards(Part):
    """A reward model's scores. pairs: what it learned from; a refresh, when the settings ask for one, replays a part of them."""

    def __init__(self, policy: Policy, settings: TrainSettings, model: RewardModel, pairs: Sequence[Pair]) -> None:
        self.policy, self.settings = policy, settings
        self.model, self.pairs = model, list(pairs)
        self.loss: float | None = None  # of the last refresh

    @property
    def models(self) -> Mapping[str, nn.Module]:
        return {"reward": self.model.scorer}

    def outcomes(self, samples: Samples, correct: Tensor) -> Tensor:
        """Return the scores, [P, G]."""
        return self.model.score(samples).to(correct.dtype)

    def of_responses(self, groups: Groups) -> Tensor:
        """Return the scores that the groups were selected by."""
        return groups.outcomes

    def numbers(self, rollout: Rollout, updates: Updates) -> dict[str, Any]:
        return {"reward_agreement": agreement(rollout.outcomes, rollout.correct), "reward_loss": self.loss}

    def after_step(self, step: int, rollout: Rollout) -> None:
        every = self.settings.refresh_reward_every
        if every and step % every == 0:
            fresh = pairs_among(self.policy, rollout)
            loss = refresh(self.model, fresh, self.pairs, seed=self.settings.seed + step - 1)
            self.loss = self.loss if loss is None else loss
            self.pairs += fresh

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if not self.settings.refresh_reward_every:
            return {}, {}
        tensors = {f"reward_model.{name}": value for name, value in self.model.scorer.state_dict().items()}
        return tensors, {"reward_loss": self.loss, "reward_pairs": [vars(pair) for pair in self.pairs]}

    def restore(self, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
        if self.settings.refresh_reward_every:
            put_weights(self.model.scorer, "reward_model.", tensors)
            self.loss = counters["reward_loss"]
            self.pairs = [Pair(**pair) for pair in counters["reward_pairs"]]


def source_of_rewards(
    policy: Policy,
    algorithm: PolicyGradient,
    settings: TrainSettings,
    model: RewardModel | None,
    pairs: Sequence[Pair],
) -> RuleRewards | ModelRewards:
    """Return the reward model as a source where there is one, or else the rules.

    Raises ValueError for settings and a reward model that contradict the algorithm.
    """
    weighing = next((slot for slot in ("shape", "advantage") if algorithm.asks_for(slot, "correct")), None)
    own_rules = None if weighing is None else label(algorithm.slots()[weighing])
    if own_rules and (settings.reward_correct, settings.reward_format) != (1.0, 0.0):
        raise ValueError(
            f"reward_correct and reward_format: {algorithm.name} weighs the rules itself ({own_rules}); got "
            f"{settings.reward_correct:g} and {settings.reward_format:g}"
        )
    if own_rules and model is not None:
        raise ValueError(
            f"reward_model: {algorithm.name} weighs two rules ({own_rules}) and would not see its scores; "
            f"give it another {weighing}"
        )
    if algorithm.asks_for("advantage", "step_ends"):
        if model is not None:
            raise ValueError(f"reward_model: {algorithm.name} needs rewards of single steps, which only tasks give")
        if algorithm.shape is not None or algorithm.kl_in_reward:
            raise ValueError(
                f"algorithm: {algorithm.name} learns from rewards of single steps, so it takes no shaping of whole "
                "responses' rewards and no KL in the reward"
            )
    if settings.refresh_reward_every and model is None:
        raise ValueError(f"refresh_reward_every needs a reward model; got {settings.refresh_reward_every} without one")
    return RuleRewards(settings) if model is None else ModelRewards(policy, settings, model, pairs)


def step_rewards(
    policy: Policy, task: Task, prompts: Sequence[str], texts: Sequence[Sequence[str]], samples: Samples
) -> tuple[Tensor, Tensor]:
    """Return the reward at the end of each step, 0 elsewhere, and where steps end: [P, G, T] each.

    A step ends with the token that brings its last character, the last step of a response with the last token that the policy
    wrote; of several steps that end with one token the last one's reward stands.
    """
    rewards = torch.zeros(samples.tokens.shape)
    ends = torch.zeros(samples.tokens.shape, dtype=torch.bool)
    lasts, tokens = samples.last.tolist(), samples.tokens.tolist()
    pieces = {token: policy.vocabulary.decode([token]) for token in set(samples.tokens[samples.there].tolist())}
    for p, (prompt, row) in enumerate(zip(prompts, texts, strict=True)):
        for g, text in enumerate(row):
            *before, last = task.steps(prompt, text)
            written = at = 0
            for step in before:
                while written < step.end:
                    written += len(pieces[tokens[p][g][at]])
                    at += 1
                rewards[p, g, at - 1], ends[p, g, at - 1] = step.reward, True
            rewards[p, g, lasts[p][g]], ends[p, g, lasts[p][g]] = last.reward, True
    return rewards.to(samples.tokens.device), ends.to(samples.tokens.device)


def agreement(scores: Tensor, correct: Tensor) -> float | None:
    """Return how often a right response scores above a wrong one of its group, a tie counting half; [P, G] both.

    None where no group has both.
    """
    right, wrong = (correct > 0).unsqueeze(2), (correct <= 0).unsqueeze(1)
    both = right & wrong  # [P, G, G]
    if not both.any():
        return None
    ahead = scores.unsqueeze(2) - scores.unsqueeze(1)
    return float(((ahead > 0).double() + (ahead == 0).double() / 2)[both].mean())


def pairs_among(policy: Policy, groups: Groups) -> list[Pair]:
    """Return pairs of a right and a wrong response to one prompt, at most two a prompt, of different texts."""
    kept = writable(policy, groups.samples).tolist()
    pairs = []
    for prompt, texts, grades, whole in zip(groups.prompts, groups.texts, groups.grades, kept, strict=True):
        correct = {text: grade.correct for text, grade in compress(zip(texts, grades, strict=True), whole)}
        right, wrong = ([text for text, is_right in correct.items() if is_right is side] for side in (True, False))
        pairs += [Pair(prompt, *both) for both in list(product(right, wrong))[:PAIRS_A_PROMPT]]
    return pairs
