"""The values that pass between algorithms, training and pictures: batches, losses and records of steps.

Shapes: P prompts (`num_prompts`), G responses to each (`group_size`), T tokens of the longest response. Every tensor
over tokens is [P, G, T], with `mask` true where the policy produced the token. Values on padding are arbitrary and
finite, and get exactly zero gradient. Log-probabilities, entropies and divergences are in nats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxtyping import Bool, Float
from torch import Tensor

Tokens = Float[Tensor, "P G T"]
Mask = Bool[Tensor, "P G T"]
Responses = Float[Tensor, "P G"]
PART = "part:"  # before the name of a part of the reward, where each has a column of its own
PerPair = Float[Tensor, " N"]
SameShape = Float[Tensor, "*n"]  # any shape, the same for all arguments of a call
SameShapeMask = Bool[Tensor, "*n"]
Scalar = Float[Tensor, ""]


@dataclass(frozen=True)
class Batch:
    """The arguments of a loss beside the new log-probabilities.

    old_logp: log π_old of each token, frozen since sampling. advantages: A. ref_logp: log π_ref, needed with a KL term.
    weights: each token's share in the objective; None: the algorithm's aggregation computes it from `mask`. Where `mask` is only
    a part of the batch (rows dropped, micro-batches), pass the weights of the full batch; and so with chosen, the tokens that the
    surrogate chooses. entropy: H of the next-token distribution now, with gradient, for a surrogate that takes it. sampler_logp:
    log-probabilities with which the tokens were drawn; None: π_old itself drew them. observed: the tokens that the environment
    wrote, None where the loss leaves them out; observed_weights: the share of each in the loss on them, as `weights`.
    """

    old_logp: Tokens
    advantages: Tokens
    mask: Mask
    ref_logp: Tokens | None = None
    weights: Tokens | None = None
    entropy: Tokens | None = None
    chosen: Mask | None = None
    sampler_logp: Tokens | None = None
    observed: Mask | None = None
    observed_weights: Tokens | None = None


@dataclass(frozen=True)
class TokenObjective:
    """Each token's objective, to be maximised, and its parts; all [P, G, T], not detached.

    value: J minus the KL penalty. ratio: r. advantages: A, 0 on padding. lower, upper: limits on r. surrogate: (ratio,
    advantages, lower, upper) → J, with its optional arguments bound.
    """

    value: Tokens
    ratio: Tokens
    advantages: Tokens
    lower: Tokens
    upper: Tokens
    surrogate: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class LossOutput:
    """A loss and its parts, per token and detached, from the same tensors as the loss.

    loss: what the optimizer minimises. ratio: r. lower, upper: limits on r. clipped_low, clipped_high, clipped_dual: true
    where the gradient is cut: at ratios below 1, above 1 with A > 0, above 1 with A < 0 (`rlviz.pieces.surrogate.is_clipped`).
    All but `loss` are [P, G, T].
    """

    loss: Scalar
    ratio: Tokens
    lower: Tokens
    upper: Tokens
    clipped_low: Mask
    clipped_high: Mask
    clipped_dual: Mask

    @property
    def clipped(self) -> Mask:
        """True where the gradient is cut, on whichever side."""
        return self.clipped_low | self.clipped_high | self.clipped_dual


@dataclass(frozen=True)
class TotalLoss:
    """The total loss of an algorithm with a critic, and L_value, the critic's unweighted loss, detached."""

    loss: Scalar
    value_loss: Scalar


@dataclass(frozen=True)
class PreferenceOutput:
    """A loss over N preference pairs and its parts, detached.

    loss: what the optimizer minimises. losses: of each pair. chosen_reward, rejected_reward: implicit rewards, nats · beta.
    """

    loss: Scalar
    losses: PerPair
    chosen_reward: PerPair
    rejected_reward: PerPair

    @property
    def margin(self) -> Scalar:
        """Mean of chosen minus rejected reward."""
        return (self.chosen_reward - self.rejected_reward).mean()

    @property
    def accuracy(self) -> Scalar:
        """Share of pairs whose chosen response has the higher reward."""
        return (self.chosen_reward > self.rejected_reward).to(self.chosen_reward.dtype).mean()


@dataclass(frozen=True)
class TokenRecord:
    """One token of a response, as the loss sees it once the step's updates are done.

    old_prob, new_prob, ref_prob: under the policy before the updates, the one after them, and the reference (None where the
    algorithm has none). upper is None where there is no upper limit. objective: the token's value, J minus the KL penalty.
    weight: its share in the objective of the whole rollout, 0 for a token that the loss does not see. push: the slope of that
    objective by this token's log-probability, −∂loss/∂logp: above 0 the loss pushes the token up, below 0 down. value: what the
    critic said before the token, when it was sampled (None without a critic). clipped: whether the surrogate's gradient is cut.
    observed: whether the task's environment wrote the token, which the loss then does not see. entropy: of the next-token
    distribution after the updates, nats; chosen: whether the surrogate chose the token; both None where the surrogate does not
    ask for them. sampler_prob: with which probability it was drawn (None: with old_prob).
    """

    token: str
    old_prob: float
    new_prob: float
    ref_prob: float | None
    ratio: float
    lower: float
    upper: float | None
    advantage: float
    clipped: bool
    objective: float
    weight: float
    push: float
    value: float | None = None
    observed: bool = False
    entropy: float | None = None
    chosen: bool | None = None
    sampler_prob: float | None = None


@dataclass(frozen=True)
class ResponseRecord:
    """One response of a group. `tokens` is filled on the steps that record details, else empty; `length` is the policy's own.

    reward: after weights and shaping. advantage: the mean over its tokens, which have one each under a critic or rewards of
    single steps. correct: None where the task has no right answers. reward_parts: the task's reward before that, as numbers by
    name that add up, "reward" without names; None where it is 1 for a right response, else 0.
    """

    text: str
    reward: float
    advantage: float
    length: int
    correct: bool | None
    well_formed: bool
    truncated: bool
    tokens: tuple[TokenRecord, ...] = ()
    reward_parts: Mapping[str, float] | None = None

    @property
    def task_reward(self) -> float:
        """The task's reward, before weights and shaping."""
        return float(self.correct or 0) if self.reward_parts is None else sum(self.reward_parts.values())


@dataclass(frozen=True)
class GroupRecord:
    """One prompt of a step, its right answer ("" where there is none), and the responses to it.

    user_text: the user's words in a prompt that a chat template wrote, else "". control: the tokenizer's control tokens, such as
    <|im_end|>, that occur in prompt or responses.
    """

    prompt: str
    gold: str
    responses: tuple[ResponseRecord, ...]
    user_text: str = ""
    control: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepRecord:
    """One training step in numbers, and the first of its groups in full.

    Where a field does not say otherwise, it is of the whole rollout, groups that were not selected included; what is None has
    no value in this step or under this algorithm.
    """

    step: int  # from 1
    seconds: float  # of this step, evaluation left out
    reward: float  # mean, after shaping
    accuracy: float | None  # share of right answers among this step's responses; None where the task has none
    well_formed: float  # share of well-formed ones among them
    truncated: float  # share of those among them that were cut off at the longest length
    held_out_accuracy: float | None  # sampled on held-out prompts; None on steps without an evaluation
    entropy: float  # nats per token, when sampled
    response_length: float  # tokens, end of sequence included
    # k3 estimate of KL(π_old‖π_ref) per token, π_ref being the policy at the start of the run, one that was given, or
    # the policy at the last reset of the reference; without a KL term in the loss it is taken from one response a prompt, and
    # noisier
    kl: float
    loss: float  # mean over the step's updates
    grad_norm: float  # before clipping, mean over the step's updates
    ratio_mean: float  # over the tokens of all updates that entered them
    ratio_std: float  # over the same tokens
    # shares of the tokens of the selected groups, over all updates, whose gradient was cut:
    clip_fraction_low: float  # at ratios below 1
    clip_fraction_high: float  # above 1, with A > 0
    clip_fraction_dual: float  # above 1, with A < 0
    zero_variance_groups: (
        float | None
    )  # share of groups with equal rewards (of single steps: equal means); None where G = 1
    rounds: int  # calls of the sampler, more than 1 where prompts were sampled in place of uninformative ones
    responses_sampled: int  # in all rounds, and in the first step for the filter of solved prompts
    responses_used: int  # of these, those of the selected groups, each counted once
    contributing: float  # share of the sampled ones that are used and have A ≠ 0 on a token that the loss sees
    rows_used: float  # share of responses that entered the updates
    repetition: float  # share of tokens that are the same as the one before them
    lr: float  # learning rate of the step
    tokens_sampled: int  # since the start of the run
    groups: tuple[GroupRecord, ...] = field(repr=False)  # the first groups of the rollout, at least one
    beta: float | None = None  # weight of the KL term
    value_loss: float | None = None  # of the critic, mean over the updates
    explained_variance: float | None = None  # 1 − var(returns − V) / var(returns), V as when the responses were sampled
    kl_to_old: float | None = None  # KL(π_old‖π_θ) per token after the updates, where the KL term is of that kind
    # share of the pairs of responses to one prompt that the learned reward orders as the task's reward does; a tie is half
    reward_agreement: float | None = None
    reward_loss: float | None = None  # of the reward model at its last refresh
    token_ratio_std: float | None = None  # spread of the token ratios of all updates, whichever ratio the loss takes
    sequence_ratio_std: float | None = None  # spread of the sequence ratios, one a response, in the same way
    # share of routing decisions, one a token and layer, whose set of experts the step's updates changed, on one response a
    # prompt; counted in every fifth step: 3, 8, 13, …
    routing_flips: float | None = None
    # sampler against trainer, over the tokens of the rollout, w = π_old / π_sampler; None where π_old itself sampled
    mismatch_kl: float | None = None  # k3 estimate of KL(π_sampler‖π_old) per token: the mean of w − 1 − log w
    mismatch_std: float | None = None  # spread of w
    mismatch_outside: float | None = None  # share of tokens whose w is outside .8 to 1.2
    # where the task's reward is not 1 for a right answer and 0 for another; else the accuracies say it
    held_out_reward: float | None = None  # mean, before weights and shaping; None on steps without an evaluation
    reward_std: float | None = None  # standard deviation of `reward` over the responses
    reward_parts: Mapping[str, float] | None = None  # mean of each named part, before weights and shaping

    @property
    def prompt(self) -> str:
        """Prompt of the first recorded group."""
        return self.groups[0].prompt

    @property
    def gold(self) -> str:
        """Right answer to the first recorded group's prompt."""
        return self.groups[0].gold

    @property
    def group(self) -> tuple[ResponseRecord, ...]:
        """Responses of the first recorded group."""
        return self.groups[0].responses

    @property
    def has_tokens(self) -> bool:
        """Whether this step's responses were recorded with their tokens."""
        return any(response.tokens for group in self.groups for response in group.responses)


@dataclass(frozen=True)
class PairRecord:
    """One update on preference pairs in numbers, as they were before it."""

    step: int  # from 1
    seconds: float  # of this step, evaluation left out
    loss: float
    grad_norm: float  # before clipping
    margin: float  # mean implicit reward of the chosen minus that of the rejected response
    pair_accuracy: float  # share of pairs with a margin above 0
    chosen_reward: float  # implicit reward of the chosen responses
    rejected_reward: float  # and of the rejected ones
    chosen_logp: float  # log-probability of a whole chosen response, nats
    rejected_logp: float  # and of a rejected one
    chosen_gain: float  # by how much chosen_logp is above the reference's
    rejected_gain: float  # by how much rejected_logp is
    pull: float  # −∂loss/∂margin, mean over pairs: how hard the loss still pulls
    held_out_accuracy: float | None  # of sampled answers after the update; None on steps without an evaluation
    lr: float  # learning rate of the step
    tokens_sampled: int  # since the start of the run
    groups: tuple[GroupRecord, ...] = ()
    held_out_reward: float | None = None  # as in a `StepRecord`

    @property
    def has_tokens(self) -> bool:
        """Whether this step was recorded with tokens: never."""
        return False
