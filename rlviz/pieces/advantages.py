"""Advantages from the rewards of a group. (rewards [P, G]) → advantages [P, G], or [P, G, T] where tokens differ.

One that asks for the history of its prompts returns (advantages, the history after this visit).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.pieces.gae import whiten
from rlviz.pieces.kl import k1
from rlviz.pieces.words import explained
from rlviz.ranges import Checked, within
from rlviz.types import Mask, Responses, Tokens
from small_models.host import check_lazily

Scale = Literal["group_std", "batch_std", "none"]


def all_equal(rewards: Float[Tensor, "*B P G"]) -> Bool[Tensor, "*B P"]:
    """Return True for groups with one reward only. Compares max and min: three rewards of 0.1 have a std of 1e-17, not 0."""
    return rewards.amax(-1) == rewards.amin(-1)


def _check_group(rewards: Tensor) -> None:
    if rewards.shape[1] < 2:
        raise ValueError("group_size must be at least 2: one response has no group to be compared with; got 1")


def standardized(rewards: Responses, eps: float) -> Responses:
    """Return (R − mean of the group) / (std of the group + eps), exactly 0 for a group whose rewards are all equal."""
    centred = rewards - rewards.mean(1, keepdim=True)
    return (centred / (rewards.std(1, keepdim=True) + eps)).masked_fill(all_equal(rewards).unsqueeze(1), 0.0)


@explained(why="the mean of the group's rewards is the baseline, so no critic is needed.")
@dataclass(frozen=True)
class GroupAdvantage(Checked):
    """A reward less its group's mean, over a std where one is asked for; exactly 0 for a group whose rewards are all equal.

        (reward − mean) / (std + eps)

    scale says which std: "group_std" the group's (GRPO, arXiv 2402.03300 §4.1.2), "batch_std" that of all P·G rewards
    (Lite PPO, 2508.08221), "none" no division (Dr.GRPO, 2503.20783). The std is the unbiased one (n − 1), as in verl and
    TRL; the papers do not say. eps is verl's 1e-6 (TRL: 1e-4). Calling raises ValueError for groups of one, for which
    verl returns the raw reward and TRL 0.
    """

    scale: Scale = "group_std"
    eps: float = within(1e-6, at_least=0, finite=True)
    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        names = {"group_std": "(R − mean) / std of group", "batch_std": "(R − mean of group) / std of batch"}
        return names.get(self.scale, "R − mean of group")

    @property
    def formula(self) -> str:
        """A as text. The std of a batch is none of a group's numbers."""
        divisors = {"group_std": " / (std + eps)", "batch_std": " / (std_of_batch + eps)"}
        return f"(reward − mean){divisors[self.scale]}" if self.scale in divisors else "reward − mean"

    def __call__(self, rewards: Responses) -> Responses:
        _check_group(rewards)
        if self.scale == "group_std":
            return standardized(rewards, self.eps)
        centred = rewards - rewards.mean(1, keepdim=True)
        if self.scale == "batch_std":
            centred = centred / (rewards.std() + self.eps)
        return centred.masked_fill(all_equal(rewards).unsqueeze(1), 0.0)


@explained(
    why="a baseline that does not contain the response itself, which makes the gradient unbiased.",
    formula="(reward − mean) · G / (G − 1)",
)
@dataclass(frozen=True)
class LeaveOneOut:
    """A reward less the mean of the others of its group.

    Calling raises ValueError for groups of one.
    Source: RLOO (arXiv 2402.14740).
    """

    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return "R − mean of the others"

    def __call__(self, rewards: Responses) -> Responses:
        _check_group(rewards)
        group_size = rewards.shape[1]
        centred = (rewards - rewards.mean(1, keepdim=True)) * group_size / (group_size - 1)
        return centred.masked_fill(all_equal(rewards).unsqueeze(1), 0.0)


@explained(
    why="the rarer a right response, the more it weighs: a first step from accuracy to the likelihood of being right.",
    formula="(reward − mean) / mean",
)
@dataclass(frozen=True)
class MeanScaled:
    """A reward less its group's mean, over that mean; 0 for a group whose rewards are all equal.

    With rewards of 0 and 1 a rollout climbs Σ_{k < G} pass@k / k, the first terms of log(accuracy). Calling raises ValueError
    for groups of one, and for a group whose mean is not above 0 though its rewards differ. Source: MaxRL (arXiv 2602.02710).
    """

    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return "(R − mean) / mean of group"

    def __call__(self, rewards: Responses) -> Responses:
        _check_group(rewards)
        mean, equal = rewards.mean(1, keepdim=True), all_equal(rewards).unsqueeze(1)
        check_lazily(
            (mean <= 0) & ~equal,
            lambda: f"rewards must have a mean above 0 in each group; got {float(mean[~equal].min()):g}",
        )
        return ((rewards - mean) / mean.masked_fill(equal, 1.0)).masked_fill(equal, 0.0)


def pass_at_k(right: Int[Tensor, "*B"], samples: int | Tensor, k: int) -> Float[Tensor, "*B"]:
    """Return 1 − C(n − c, k) / C(n, k): the chance that k of n samples, of which c are right, hold a right one.

    right: c. samples: n, at least k. Unbiased for 1 − (1 − p)^k where each sample is right with probability p, which
    1 − (1 − c/n)^k is not. Raises ValueError for k below 1, and for fewer samples than k. Source: arXiv 2107.03374 Eq. 1.
    """
    if k < 1 or (isinstance(samples, int) and samples < k):
        raise ValueError(f"k must be at least 1 and at most the number of samples, {samples}; got {k}")
    return 1 - _none_right(samples - right, torch.as_tensor(samples), 0, k)


def _none_right(wrong: Tensor, samples: Tensor, first: int, k: int) -> Tensor:
    """Return Π_{first ≤ i < k} (w − i) / (n − i): that the draws from number `first` on are wrong, if those before were."""
    chance = torch.ones_like(wrong, dtype=torch.double)
    for i in range(first, k):
        chance = chance * (wrong - i).clamp(min=0) / (samples - i).clamp(min=1)
    return chance


@explained(
    why="a group earns what its best response earns, so a prompt that is right now and then counts in full.",
    formula=(
        "(pass_with_it − pass_at_k) / sqrt(pass_at_k · (1 − pass_at_k)); pass_at_k = 1 − choose(wrong, k) / choose(G, k); "
        "pass_with_it = 1 if reward > 0 else 1 − choose(wrong − 1, k − 1) / choose(G − 1, k − 1)"
    ),
)
@dataclass(frozen=True)
class BestOfK(Checked):
    """How much oftener the k-subsets that a response is in pass than all k-subsets of its group, over the std of passing.

    A subset passes where one of its k responses is right, which means that its reward is above 0. Where the std is 0, as with
    fewer than k wrong ones, A is 0: such a group passes anyway. Needs G ≥ k; building one raises ValueError for k below 1.
    Source: Pass@k Training (arXiv 2508.10751).
    """

    k: int = within(4, at_least=1)

    @property
    def min_group_size(self) -> int:
        return max(2, self.k)

    def __str__(self) -> str:
        return f"(pass of {self.k} with it − pass of {self.k}) / std"

    def __call__(self, rewards: Responses) -> Responses:
        _check_group(rewards)
        right = rewards > 0
        wrong = (~right).sum(1, keepdim=True)
        size = wrong + right.sum(1, keepdim=True)
        fails = _none_right(wrong, size, 0, self.k)
        std = ((1 - fails) * fails).sqrt()
        above = torch.where(right, fails, fails - _none_right(wrong, size, 1, self.k))
        return (above / std.masked_fill(std == 0, 1.0)).masked_fill(std == 0, 0.0).to(rewards.dtype)


@explained(
    why="only right responses are imitated, each as much as any other; nothing is pushed down.",
    formula="reward",
)
def reward_alone(rewards: Responses) -> Responses:
    """Return the rewards: with rewards of 0 and 1, the gradient of the cross-entropy on one's own right responses.

    Source: rejection-sampling fine-tuning (arXiv 2308.01825), with samples that are renewed at each step.
    """
    return rewards


@explained(
    why="longer responses have noisier gradients, so the baseline listens to them more.",
    formula="reward − mean_by_length; mean_by_length = sum_of_group(length_j · reward_j) / sum_of_group(length_j)",
)
@dataclass(frozen=True)
class LengthWeighted:
    """A reward less its group's mean, weighted by lengths in tokens; 0 for a group whose rewards are all equal.

    The baseline with which the gradient's variance is least, where the squared length of a response's gradient grows like its
    number of tokens. Calling raises ValueError for groups of one. Source: OPO (arXiv 2505.23585).
    """

    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return "R − mean of group weighted by length"

    def __call__(self, rewards: Responses, mask: Mask) -> Responses:
        _check_group(rewards)
        lengths = mask.sum(-1).to(rewards.dtype)
        baseline = (lengths * rewards).sum(1, keepdim=True) / lengths.sum(1, keepdim=True).clamp(min=1)
        return (rewards - baseline).masked_fill(all_equal(rewards).unsqueeze(1), 0.0)


@explained(
    why="each kind of reward is compared by itself, so that one which varies more does not drown the other.",
    formula="whiten(answer · z(correct) + format · z(well_formed)); z(reward) = (reward − mean) / (std + eps)",
)
@dataclass(frozen=True)
class StandardizedApart(Checked):
    """Each kind of reward standardized in its group, then their weighted sum whitened over the batch.

    The rewards that come from the shaping, their sum, have no part. Two responses of one sum, such as right without form and form
    without right, are told apart where the kinds differ in spread. Groups in which both kinds are all equal get exactly 0.
    Calling raises ValueError for groups of one; building one raises it for a negative weight, and for two that are 0.
    Source: GDPO (arXiv 2601.05242). TRL takes the statistics of the batch over responses, as here, verl over their tokens.
    """

    answer: float = within(1.0, at_least=0, finite=True)
    format: float = within(1.0, at_least=0, finite=True)
    eps: float = within(1e-6, at_least=0, finite=True)
    min_group_size: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.answer or self.format):
            raise ValueError("answer and format must not both be 0: then nothing is rewarded")

    def __str__(self) -> str:
        return f"{self.answer:g} z(answer) + {self.format:g} z(format), whitened"

    def __call__(self, rewards: Responses, correct: Responses, well_formed: Responses) -> Responses:
        _check_group(rewards)
        weighted = self.answer * standardized(correct, self.eps) + self.format * standardized(well_formed, self.eps)
        equal = (all_equal(correct) & all_equal(well_formed)).unsqueeze(1)
        return whiten(weighted, torch.ones_like(weighted, dtype=torch.bool)).masked_fill(equal, 0.0)


@explained(
    why="most tokens are not decided but written down; a response is made by the few at which the policy hesitates.",
    formula="(reward − mean) / (std + eps) · one(old_entropy >= quantile(1 − share))",
)
@dataclass(frozen=True)
class ForkingTokens(Checked):
    """A group's standardized rewards on the tokens of highest entropy, 0 on the others.

    Kept are those of old_entropy ≥ the (1 − share) quantile over all tokens of the rollout: 1 + ⌊share · (n − 1)⌋ of n tokens,
    and those that tie. The objective's weights count all tokens, as in the paper. old_entropy is that of the policy that sampled,
    so the choice is the same in every update on a rollout, however it is cut; the paper and TRL take the current policy's, which
    is the same in the first update. Calling raises ValueError for groups of one; building one, for a share outside (0, 1].
    Source: arXiv 2506.01939 Eq. 5, share .2.
    """

    share: float = within(0.2, above=0, at_most=1)
    eps: float = within(1e-6, at_least=0, finite=True)
    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return f"(R − mean) / std of group, on the {self.share:.0%} of tokens with the highest entropy"

    def __call__(self, rewards: Responses, mask: Mask, old_entropy: Tokens) -> Tokens:
        _check_group(rewards)
        highest = old_entropy.masked_fill(~mask, -1.0).flatten().sort(descending=True).values
        last = (
            (self.share * (mask.sum() - 1).double() + 1e-9).floor().long().clamp(min=0)
        )  # 1e-9: .1 · 30 is 3, not 2.9999…
        threshold = highest.gather(0, last.unsqueeze(0))
        return standardized(rewards, self.eps).unsqueeze(-1) * (mask & (old_entropy >= threshold))


@explained(
    why="every token is judged by itself, by a policy that knows better; no reward is needed.",
    formula="ref_logp − old_logp",
)
@dataclass(frozen=True)
class TeacherLogRatio:
    """log π_teacher − log π_old of each sampled token: the reference teaches, rewards have no part.

    On average over the tokens that the policy samples, A · ∇log π is minus the gradient of KL(π‖π_teacher) at each place.
    Source: on-policy distillation, GKD (arXiv 2306.13649) with the reverse KL; as a policy gradient in verl's distillation.
    """

    from_teacher: ClassVar[bool] = True

    def __str__(self) -> str:
        return "log π_teacher − log π_old"

    def __call__(self, rewards: Responses, old_logp: Tokens, ref_logp: Tokens) -> Tokens:
        return -k1(old_logp, ref_logp)


@explained(
    why="a scale shared by the whole batch is steadier than a group's, and no prompt needs several responses.",
    formula="whiten(reward − beta · sum_to_come(old_logp − ref_logp))",
)
@dataclass(frozen=True)
class WhitenedReturn(Checked):
    """The reward less the KL penalties to come, whitened over all tokens.

    Raises ValueError unless beta is 0 or above. Source: REINFORCE++ (arXiv 2501.03262), beta 0.01.
    """

    beta: float = within(0.01, at_least=0, finite=True)

    def __str__(self) -> str:
        return f"R − {self.beta:g} · k1 to come, whitened"

    def __call__(self, rewards: Responses, mask: Mask, old_logp: Tokens, ref_logp: Tokens) -> Tokens:
        penalty = (self.beta * k1(old_logp, ref_logp)).masked_fill(~mask, 0.0)
        return whiten(rewards.unsqueeze(-1) - penalty.flip(-1).cumsum(-1).flip(-1), mask)


@explained(
    why="every step is praised or blamed by its own reward, so a wrong answer still credits the right steps before it.",
)
@dataclass(frozen=True)
class ProcessAdvantage(Checked):
    """Process supervision: *all* step rewards of the group standardized to z, then A_t from the steps to come.

        sum_to_come(z)
        z = (step_reward − mean_of_steps) / (std_of_steps + eps)

    A_t = Σ z over the steps that end at or after token t (combine="sum", the paper's), or their mean (combine="mean",
    ours: the sum grows with the number of steps). rewards: [P, G, T], read where step_ends is true; a reward of 0 at the
    end of a step is a reward. Tokens after a response's last step get 0, and so does a group whose step rewards are all
    equal. Calling raises ValueError for groups of one.
    Source: GRPO (arXiv 2402.03300) §4.1.3.
    """

    combine: Literal["sum", "mean"] = "sum"
    eps: float = within(1e-6, at_least=0, finite=True)
    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return f"{self.combine} over steps to come of (r − mean) / std of group"

    @property
    def formula(self) -> str:
        """A as text."""
        return f"{self.combine}_to_come(z); z = (step_reward − mean_of_steps) / (std_of_steps + eps)"

    def __call__(self, rewards: Tokens, step_ends: Mask) -> Tokens:
        _check_group(rewards)
        count = step_ends.sum((1, 2), keepdim=True)
        steps = rewards.masked_fill(~step_ends, 0.0)
        deviation = (steps - steps.sum((1, 2), keepdim=True) / count.clamp(min=1)).masked_fill(~step_ends, 0.0)
        std = (deviation.square().sum((1, 2), keepdim=True) / (count - 1).clamp(min=1)).sqrt()
        highest = rewards.masked_fill(~step_ends, float("-inf")).amax((1, 2), keepdim=True)
        lowest = rewards.masked_fill(~step_ends, float("inf")).amin((1, 2), keepdim=True)
        z = (deviation / (std + self.eps)).masked_fill(highest <= lowest, 0.0)
        to_come = z.flip(-1).cumsum(-1).flip(-1)
        if self.combine == "sum":
            return to_come
        return to_come / step_ends.flip(-1).cumsum(-1).flip(-1).clamp(min=1)


@dataclass(frozen=True)
class PromptHistory:
    """Statistics of the rewards that each prompt ever earned; every tensor is [P], over prompts.

    visits: how often the prompt was sampled. mean, variance: over all its rewards, each visit weighing the same.
    lowest, highest: its extreme rewards, so that "all equal so far" is asked exactly.
    """

    visits: Int[Tensor, " P"]
    mean: Float[Tensor, " P"]
    variance: Float[Tensor, " P"]
    lowest: Float[Tensor, " P"]
    highest: Float[Tensor, " P"]

    def add_visit(self, rewards: Responses, ddof: int = 0) -> PromptHistory:
        """Return the history with a visit that earned these rewards: mean and variance of all visits' rewards, pooled.

        ddof: of the visit's own variance, 0 for the population's, 1 for the unbiased one.
        """
        rewards = rewards.double()
        visits = self.visits + 1
        variance = rewards.var(1, correction=ddof).masked_fill(all_equal(rewards), 0.0)
        shift = (rewards.mean(1) - self.mean).square() * (visits - 1) / visits
        return PromptHistory(
            visits=visits,
            mean=self.mean + (rewards.mean(1) - self.mean) / visits,
            variance=((visits - 1) * self.variance + variance + shift) / visits,
            lowest=torch.minimum(self.lowest, rewards.amin(1)),
            highest=torch.maximum(self.highest, rewards.amax(1)),
        )

    @classmethod
    def empty(cls, prompts: int | torch.SymInt, device: torch.device | str = "cpu") -> PromptHistory:
        """Return the history of prompts that were never sampled."""
        zeros = torch.zeros(prompts, dtype=torch.double, device=device)
        infinite = torch.full_like(zeros, float("inf"))
        return cls(zeros.long(), zeros, zeros.clone(), infinite, -infinite)

    def index_select(self, index: Tensor) -> PromptHistory:
        """Return the history of the prompts at these indices."""
        return PromptHistory(**{name: value[index] for name, value in vars(self).items()})

    def index_put(self, index: Tensor, part: PromptHistory) -> PromptHistory:
        """Return this history with the prompts at these indices, each named once, replaced by `part`."""
        return PromptHistory(
            **{name: value.index_copy(0, index, getattr(part, name)) for name, value in vars(self).items()}
        )


@explained(
    why="a group whose rewards are all equal still learns, with weight 1/i, once its prompt's history has spread."
)
@dataclass(frozen=True)
class SmoothStandardization(Checked):
    """DCPO's smooth advantage standardization (SAS), over the visits i = 1, 2, … of each prompt.

        SA_new if abs(SA_new) < abs(SA_total) else SA_total
        SA_new = (1 − 1 / visits) · A_new + 1 / visits · A_total
        SA_total = 1 / visits · A_new + (1 − 1 / visits) · A_total
        A_new = (reward − mean) / std(rewards, ddof)
        A_total = (reward − mean_so_far) / std_so_far(rewards, ddof)

    A_new is standardized with this visit's group, A_total with all rewards that the prompt ever earned; of two mixtures of them
    A is the one nearer to 0.

    ddof 0 is the paper's population std; ddof 1 the authors' code, which feeds unbiased stds into the same recursion.
    No eps; a term whose rewards are all equal is 0. scale="none" leaves the division by the std out.
    The history is an argument, the one *before* this visit, and the one after it is returned beside A.
    Calling raises ValueError for groups of one.
    Source: DCPO (arXiv 2509.02333), smooth advantage standardization; Eq. 29–30 for the stds.
    """

    ddof: Literal[0, 1] = 0
    scale: Literal["std", "none"] = "std"
    min_group_size: ClassVar[int] = 2

    def __str__(self) -> str:
        return "smooth standardization over visits"

    @property
    def formula(self) -> str:
        """A as text."""
        new, total = "reward − mean", "reward − mean_so_far"
        if self.scale == "std":
            new, total = f"({new}) / std(rewards, ddof)", f"({total}) / std_so_far(rewards, ddof)"
        return (
            "SA_new if abs(SA_new) < abs(SA_total) else SA_total; "
            "SA_new = (1 − 1 / visits) · A_new + 1 / visits · A_total; "
            "SA_total = 1 / visits · A_new + (1 − 1 / visits) · A_total; "
            f"A_new = {new}; A_total = {total}"
        )

    def __call__(self, rewards: Responses, history: PromptHistory | None = None) -> tuple[Responses, PromptHistory]:
        _check_group(rewards)
        never = PromptHistory.empty(rewards.shape[0], rewards.device)
        visit, total = (before.add_visit(rewards, self.ddof) for before in (never, history or never))
        new, old = self._standardize(rewards, visit), self._standardize(rewards, total)
        share = 1 / total.visits.double().unsqueeze(1)
        smooth_new, smooth_total = (1 - share) * new + share * old, share * new + (1 - share) * old
        return torch.where(smooth_new.abs() < smooth_total.abs(), smooth_new, smooth_total).to(rewards.dtype), total

    def _standardize(self, rewards: Tensor, history: PromptHistory) -> Tensor:
        centred = rewards.double() - history.mean.unsqueeze(1)
        if self.scale == "std":
            centred = centred / history.variance.sqrt().unsqueeze(1)
        return centred.masked_fill((history.highest <= history.lowest).unsqueeze(1), 0.0)
