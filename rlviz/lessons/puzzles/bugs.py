"""The suspect of each lesson: a right function, and above it the edits that make it wrong; `bugs.md` has the choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any, TypeVar

import pandas as pd
import torch
from torch import Tensor

from rlviz.lessons.exercise import read_edits
from rlviz.lessons.puzzles import Bug, read_choices
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.bounds import DynamicBounds
from rlviz.pieces.gae import GAE
from rlviz.pieces.selection import drop_all_equal
from rlviz.pieces.shaping import SoftOverlongPunishment  # noqa: F401 - an edit takes it

BUGS: dict[str, Bug] = {}
CHOICES = read_choices("bugs")
Function = TypeVar("Function", bound=Callable[..., Any])


def suspect(lesson: str, edits: str, *, or_at: tuple[int, ...] = ()) -> Callable[[Function], Function]:
    """Make a function the right one of a lesson's bug. or_at: as in `Bug`."""

    def noted(right: Function) -> Function:
        BUGS[lesson] = Bug(*CHOICES[lesson], right, read_edits(edits), or_at)
        return right

    return noted


@suspect("policy_gradients", ".sum(1) → .sum(1, keepdim=True)", or_at=(3, 4))
def summed_reinforce(logp: Tensor, mask: Tensor, R: Tensor, b: Tensor) -> Tensor:
    summed = (logp * mask).sum(1)
    A = R - b
    return -(A * summed).mean()


@suspect(
    "the_ratio", "→ return torch.where(advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped))"
)
def clipped_objective(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    free, clipped = ratio * advantages, torch.clamp(ratio, lower, upper) * advantages
    return torch.minimum(free, clipped)


@suspect("grpo", "→ return torch.where(std > 0, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)")
def standardized(rewards: Tensor) -> Tensor:
    std = rewards.std(1, keepdim=True)
    return (rewards - rewards.mean(1, keepdim=True)) / (std + 1e-6)


@suspect("ppo", "→ return (rewards - values).masked_fill(~mask, 0.0)")
def credit_of_tokens(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return GAE(float(gamma), float(lam), whiten=False)(rewards, values, mask)[0]


@suspect("which_mean", "16 → mask.sum(-1, keepdim=True).clamp(min=1)")
def constant_weights(mask: Tensor) -> Tensor:
    responses = mask.any(-1).sum()
    return mask.double() / (16 * responses)


@suspect(
    "dapo", "→ shaped = SoftOverlongPunishment(max_length=9, cache=4)(rewards, lengths) ⏎ return drop_all_equal(shaped)"
)
def groups_that_teach(rewards: Tensor, lengths: Tensor) -> Tensor:
    """With a punishment from 5 to 9 tokens."""
    return drop_all_equal(rewards)


@suspect("dupo_and_agents", "turn % 2 == 0 → (turn % 2 == 0).roll(1, dims=-1) ⏎ mask[..., 0] = False")
def own_tokens(turn: Tensor) -> Tensor:
    mask = turn % 2 == 0
    return token_mean(mask)


@suspect("gspo", "A.unsqueeze(-1)).mean() → A.unsqueeze(-1) * mask).sum(-1).mean()")
def response_objective(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    s = (log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()  # [N, 1]
    return (s * A.unsqueeze(-1)).mean()


@suspect(
    "dcpo",
    """
old_prob = old_logp.exp() → new_prob = ratio * old_logp.exp()
old_prob.log() → new_prob.log()
""",
)
def limits_of_the_old_probability(
    ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor, old_logp: Tensor
) -> Tensor:
    """A surrogate with DCPO's limits in it."""
    old_prob = old_logp.exp()
    lower, upper = DynamicBounds()(old_prob.log())
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


@suspect("entropy_collapse", "logp - ref_logp → logp")
def estimate(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of a KL estimator, whose value is subtracted from a token's objective; ref_logp has no part in it."""
    return logp - ref_logp


@suspect("kl", "return _ → return -x")
def kl_of_tokens(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    _ = torch.expm1(x) - x
    return _


@suspect("reward_hacking", "→ return scores[..., :-1].mean(-1)")
def reading(scores: Tensor, mask: Tensor) -> Tensor:
    """In the place of a reward model's reading of a response: scores, mask [*n, T] → [*n]."""
    return scores.gather(-1, mask.sum(-1, keepdim=True) - 1).squeeze(-1)


@suspect(
    "write_the_judge",
    """
if not mark or not written: → if not mark:
written.strip() == answer → written.strip() in answer
""",
)
def judge(prompt: str, response: str, answer: str) -> bool:
    """What follows the last # is the answer."""
    _, mark, written = response.rpartition("#")
    if not mark or not written:
        return False
    return written.strip() == answer


@suspect("preferences_and_dpo", "return ref_logp → return logp.detach()")
def reference(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return ref_logp


@suspect("two_engines", "old_logp - sampler_logp → logp - sampler_logp")
def weighed_by_the_policy_before(
    logp: Tensor, old_logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    ratio = (logp - old_logp).exp()
    weight = (old_logp - sampler_logp).exp().clamp(max=2.0)
    clipped = ratio.clamp(0.8, 1.2)
    objective = weight * torch.minimum(ratio * advantages, clipped * advantages)
    return -(objective * mask).sum() / mask.sum()


@suspect("what_did_it_learn", "amax(1) → sum(1) / k")
def measured(right: Tensor, k: int) -> Tensor:
    """pass@k from right [P, G], 1 for each right response: the share of prompts for which at least one of k is right."""
    solved = right[:, :k].amax(1)
    return solved.mean()


@suspect("the_family", ".last() → .max()")
def race(scores: pd.DataFrame) -> pd.Series:
    # scores: a row for each evaluation of each run, on the way and at the end
    runs = scores.groupby(["contender", "seed"], sort=False)
    scores_of_runs = runs["held_out_accuracy"].last()
    return scores_of_runs.groupby("contender", sort=False).mean()


@suspect("own_idea", "[gain(best, 1000 + seed) for seed in seeds] → tried[best]")
def tuned(gain: Callable[[float, int], float], seeds: Iterable[int]) -> tuple[float, float]:
    # gain: accuracy with the rule at this c and seed, minus GRPO's
    tried = {c: [gain(c, seed) for seed in seeds] for c in (0.1, 0.2, 0.3, 0.5, 0.8)}
    best = max(tried, key=lambda c: fmean(tried[c]))
    gains = [gain(best, 1000 + seed) for seed in seeds]
    return best, fmean(gains)


@suspect("take_it_home", "mask.sum() → mask[part].sum() / 4")
def accumulated(losses: Tensor, mask: Tensor) -> Tensor:
    """Losses, mask [N, T] → their token mean, in four parts of the batch."""
    total = torch.zeros(())
    for part in torch.arange(len(mask)).chunk(4):
        summed = (losses * mask)[part].sum()
        total = total + summed / mask.sum()
    return total
