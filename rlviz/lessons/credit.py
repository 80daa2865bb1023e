"""Credit and weight: a group's and a critic's advantages, and what a token counts in the batch's mean."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.lessons.cases import CREDITS, MASKS, OBSERVED, REWARDS, TURNS
from rlviz.lessons.exercise import Exercise, exercise
from rlviz.pieces import aggregation
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.gae import GAE


@exercise(
    like=GroupAdvantage(),
    cases=REWARDS,
    per="response",
    slips="""
* biased std: std(1, keepdim=True) → std(1, keepdim=True, correction=0)
  your std divides by G: the usual one here divides by G − 1 (torch's default), as in verl and TRL.
* std above zero as the test: → return torch.where(std > 0, (rewards - mean) / std, 0.0)
  asking whether std > 0 is not enough: three rewards of 0.1 have a std of 1e-17, and got advantages of −0.8. Add a small
  eps to the std, or compare the largest and the smallest reward.
  Seen in the DCPO authors' code, github.com/lime-RL/DCPO, verl/trainer/ppo/core_algos.py
* over the batch: mean(1, keepdim=True) → mean()
  std(1, keepdim=True) → std()
  you averaged over the batch, not over the group: use dim 1, and keepdim.
* over the position in the group: mean(1 → mean(0
  std(1 → std(0
  you averaged over dim 0, the prompts: the group is dim 1.
* std of the batch: std(1, keepdim=True) → std()
  your mean is the group's, but your std the batch's: that is Lite PPO's advantage.
* std forgotten: / (std + 1e-6) →
  the division by the std is missing: that is Dr.GRPO's advantage.
* mean forgotten: - mean →
  the group's mean is not subtracted: without the baseline every right answer only pushes up.
* eps forgotten: + 1e-6 →
  the small number added to the std is missing: where all rewards are equal, 0 or a rounding error is divided by another.
  Add 1e-6 to the std.
""",
)
def group_advantage(rewards: Tensor) -> Tensor:
    """rewards [P, G] → (R − mean) / (std + 1e-6) of the group."""
    mean = rewards.mean(1, keepdim=True)
    std = rewards.std(1, keepdim=True)
    return (rewards - mean) / (std + 1e-6)


@exercise(
    like=GroupAdvantage(scale="none"),
    cases=REWARDS,
    per="response",
    slips="""
* mean of the batch alone: mean(1, keepdim=True) → mean()
  you averaged over the batch, not over the group: use dim 1, and keepdim.
* mean of the position alone: mean(1 → mean(0
  you averaged over dim 0, the prompts: the group is dim 1.
* rewards as they are: - rewards.mean(1, keepdim=True) →
  the group's mean is not subtracted: without the baseline every right answer only pushes up.
""",
)
def mean_only(rewards: Tensor) -> Tensor:
    """rewards [P, G] → R − mean of the group, as it stands in a whole loss."""
    return rewards - rewards.mean(1, keepdim=True)


def gae_piece(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    """Return the piece's advantages, with its parameters as arguments."""
    return GAE(gamma=float(gamma), lam=float(lam), whiten=False)(rewards, values, mask)[0]


@exercise(
    "the advantage of every token, with answers of one to four tokens, at two settings of gamma and lam.",
    like=gae_piece,
    cases=CREDITS,
    slips="""
* gamma forgotten: gamma * V_next → V_next
  gamma * lam → lam
  gamma is missing: it goes before the next value, and with lam before the next advantage.
* lambda forgotten: gamma * lam → gamma
  lam is missing, so this is GAE at lam 1, the whole sampled return minus V: weigh the next advantage by gamma · lam.
* delta alone: + gamma * lam * A_next →
  that is delta, GAE at lam 0: add gamma · lam times the next token's advantage, and keep each one for the turn after.
* return in its place: → return A + V
  that is A + V, the return that the critic learns: the advantage is what is left when V is taken off.
* next value left out: + gamma * V_next →
  gamma times the next value is missing in delta, or next_value stays 0 because the loop never sets it: so every token is
  blamed for all that its V had hoped for.
* mask forgotten: .masked_fill(~mask, 0.0) →
  the mask is not used: set the values on padding to 0 before the loop, so that V_next and A_next are 0 after the end.
* padding bootstrapped: .masked_fill(~mask, 0.0) →
  return A → return A.masked_fill(~mask, 0.0)
  padding leaks in: values after the last token are arbitrary, and yours run back through the recursion into the answer. Set
  them to 0 before the loop; masking the result is too late.
  Seen in the library ROLL, says github.com/alibaba/ROLL/pull/447
* loop from the first token: reversed(range(rewards.shape[-1])) → range(rewards.shape[-1])
  your loop begins at the first token, so what you keep as the next value is that of the token before: go backwards, over
  reversed(range(T)).
* own reward minus value: → return rewards - V
  that is the token's own reward minus V: all but the last then get −V, right answer or wrong. What comes next is missing:
  keep V and A for the next turn of the loop.
  Seen in an example of the RLHF book until January 2026: github.com/natolambert/rlhf-book/pull/216
""",
)
def gae_advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    """(rewards, values, mask, gamma, lam) → the advantage of each token, not whitened, 0 on padding: [P, G, T]."""
    V = values.masked_fill(~mask, 0.0)
    A = torch.zeros_like(rewards)
    V_next = A_next = torch.zeros_like(rewards[..., 0])
    for t in reversed(range(rewards.shape[-1])):
        delta = rewards[..., t] + gamma * V_next - V[..., t]
        A[..., t] = delta + gamma * lam * A_next
        V_next, A_next = V[..., t], A[..., t]
    return A


def constant_weight(max_length: int) -> Exercise:
    """Return the exercise of Dr.GRPO's weights at this maximum length, in tokens."""

    @exercise(
        like=aggregation.Constant(max_length),
        cases=MASKS,
        slips=f"""
* nothing divided by the responses: → return mask / max_length
  you divide by {max_length} only: divide by the number of responses too.
* prompts counted for responses: → return mask / (mask.shape[0] * max_length)
  you count prompts (dim 0): the number of responses is what divides.
* all responses counted: → return mask / (mask[..., 0].numel() * max_length)
  you count responses that have no token at all: leave them out.
* every width the same: → return mask / mask.numel()
  you divide by the number of places, padding included: Dr.GRPO divides by responses · {max_length}, whatever was written.
* tokens and sequences swapped: → return mask / mask.sum()
  you divide by the tokens of this batch, which is DAPO's mean: Dr.GRPO divides by responses · {max_length}, whatever was
  written.
* length mean kept: → return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * mask.any(-1).sum())
  you divide by each response's own length, which is GRPO's mean and the bias that Dr.GRPO removes: divide by {max_length}
  instead.
  Seen in TRL, whose pull request 3138 asks for the missing half of Dr.GRPO: github.com/huggingface/trl/pull/3138
* sequence weight on every token: → return mask / mask.any(-1).sum()
  you divide by the number of responses only: divide by the maximum length, {max_length}, too.
  Seen in TRL, issue 3823, describes it: github.com/huggingface/trl/issues/3823
* longest response for the maximum: → return mask / (mask.sum(-1).max() * mask.any(-1).sum())
  you divide by the longest response: the maximum is fixed, {max_length}.
* plain token sum: → return mask.double()
  you sum over tokens and divide by nothing: the size of a step then depends on how much was written.
  Seen in the DCPO authors' code, where the paper has Eq. 8
""",
    )
    def weights(mask: Tensor) -> Tensor:
        """mask [P, G, T] → Dr.GRPO's weight of each token."""
        return mask / (mask.any(-1).sum() * max_length)

    return weights


def own_token_weights_piece(turn: Tensor) -> Tensor:
    """Return the token mean over even turns; of −1, which is padding, the remainder is 1."""
    return aggregation.token_mean(turn % 2 == 0)


@exercise(
    "the weight of every token, with two calls, one and none, and where a response was cut off.",
    like=own_token_weights_piece,
    cases=TURNS,
    slips="""
* tool for the policy: turn % 2 == 0 → (turn >= 0) & (turn % 2 == 1)
  the wrong way round: you weigh what the tool wrote. Even turns are the policy's.
* tool learned too: turn % 2 == 0 → turn >= 0
  what the tool wrote has a weight: the policy would learn to imitate the tool.
* tool in the denominator: policy.sum() → (turn >= 0).sum()
  the right tokens, but you divide by all that was written, the tool's part included: count the policy's tokens only.
* padding for the policy: turn % 2 == 0 → (turn % 2 == 0) | (turn < 0)
  padding has a weight: its turn is −1, and nobody wrote it.
* first turn only: turn % 2 == 0 → turn == 0
  only the first turn has a weight: the policy's are 0, 2, 4 and so on.
* answer only: turn % 2 == 0 → (turn % 2 == 0) & (turn == turn.amax(-1, keepdim=True))
  only the last turn has a weight: the calls are the policy's as well, and to look is what it has to learn.
* each response averaged first: policy.sum() → (policy.sum(-1, keepdim=True) * policy.any(-1).sum())
  you average each response first, as GRPO does: here every token of the policy weighs the same, in whatever response.
* not divided: → return policy.double()
  that is the mask: divide it by the number of the policy's tokens, so that the weights add up to 1.
""",
)
def own_token_weights(turn: Tensor) -> Tensor:
    """turn [P, G, T] → the weight of each token in the mean over the policy's: even turns; odd: a tool's; −1: padding."""
    policy = turn % 2 == 0
    return policy / policy.sum()


def observation_loss_piece(logp: Tensor, turn: Tensor) -> Tensor:
    """Return ECHO's loss on the tool's tokens before it is weighted: their mean cross-entropy."""
    tools = (turn >= 0) & (turn % 2 == 1)
    return aggregation.weighted_sum(-logp, aggregation.token_mean(tools), tools)


@exercise(
    "value and gradient, with two calls, one and none, and where a response was cut off.",
    like=observation_loss_piece,
    cases=OBSERVED,
    by="logp",
    slips="""
* padding for the tool: (turn >= 0) & (turn % 2 == 1) → turn % 2 == 1
  padding is predicted, too: its turn is −1, and the remainder of −1 is 1. Ask for turn ≥ 0 as well.
* policy for the tool: == 1 → == 0
  the wrong way round: you predict what the policy wrote itself. Odd turns are the tool's.
* policy predicted too: & (turn % 2 == 1) →
  you predict all that was written: the policy's own tokens would be imitated, good or bad. Odd turns are the tool's.
* first observation only: turn % 2 == 1 → turn == 1
  only turn 1 is predicted: with two calls, turn 3 is the tool's as well.
* weighted already: -logp[tools] → -0.1 * logp[tools]
  the weight is in it already: return the mean alone; λ = 0.1 multiplies it later.
* not divided: .mean() → .sum()
  that is the sum: divide it by the number of the tool's tokens.
* all tokens in the denominator: .mean() → .sum() / (turn >= 0).sum()
  the right tokens, but you divide by all that was written: the policy's tokens would thin out the tool's. Count these only.
* each response averaged first: → return -((logp * tools).sum(-1) / tools.sum(-1).clamp(min=1)).sum() / tools.any(-1).sum()
  you average each response first: here every token of the tool weighs the same, in whichever response.
""",
)
def observation_loss(logp: Tensor, turn: Tensor) -> Tensor:
    """(logp, turn [P, G, T]) → the mean cross-entropy of the tool's tokens: odd turns; even: the policy's; −1: padding."""
    tools = (turn >= 0) & (turn % 2 == 1)
    return -logp[tools].mean()
