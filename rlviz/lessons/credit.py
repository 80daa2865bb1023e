"""Credit and weight: a group's and a critic's advantages, and what each token counts in the batch's mean."""

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
    each="response",
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
* variance for std: .std(1 → .var(1
  you divide by the variance: the std is its square root, .std() in place of .var().
* eps forgotten: + 1e-6 →
  the small number added to the std is missing: where all rewards are equal, 0 or a rounding error is divided by another.
  Add 1e-6 to the std.
* eps of one in ten thousand: 1e-6 → 1e-4
  your eps is not 1e-6 but 1e-4, as in TRL: add 1e-6 to the std.
* eps of one in a hundred thousand: 1e-6 → 1e-5
  your eps is not 1e-6 but 1e-5: add 1e-6 to the std.
* mean of the batch: mean(1, keepdim=True) → mean()
  your std is the group's, but your mean the batch's: compare a response with those to its own prompt.
* mean of the batch without the std: → return rewards - rewards.mean()
  you took off the batch's mean, and the division by the std is missing: both are the group's.
* mean of the position: mean(1 → mean(0
  your std is the group's, but your mean is over dim 0, the prompts: the group is dim 1.
* mean divided alone: (rewards - mean) → rewards - mean
  parentheses are missing: only the mean is divided by the std. It is (R − mean) / (std + 1e-6).
* multiplied by the std: / (std → * (std
  you multiply by the std: divide by it.
* range for the std: rewards.std(1, keepdim=True) → rewards.amax(1, keepdim=True) - rewards.amin(1, keepdim=True)
  you divide by the range, largest minus smallest reward: divide by the std.
* own reward left out of the mean:
  → return rewards - (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
  your mean is that of the others, which is RLOO's advantage: here the group's whole mean and std count.
* biased std without eps: std(1, keepdim=True) → std(1, keepdim=True, correction=0)
  + 1e-6 →
  your std divides by G, where the usual one here divides by G − 1, and the small number added to it is missing.
* mean of the others with the std:
  mean = rewards.mean(1, keepdim=True) → mean = (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
  your mean is that of the others, and you divide by the std: here the group's whole mean counts, the response's own reward too.
* std of all deviations: → A = rewards - mean ⏎ return A / (A.std() + 1e-6)
  you take the group's mean off, but divide by one std for the whole batch: each group has its own.
* length of the deviations: rewards.std(1, keepdim=True) → (rewards - mean).norm(dim=1, keepdim=True)
  you divide by the length √Σ (R − mean)²: the std divides that sum by G − 1 before it takes the root.
* mean distance for the std: rewards.std(1, keepdim=True) → (rewards - mean).abs().mean(1, keepdim=True)
  you divide by the mean distance from the mean: the std squares the distances, averages them, and takes the root.
* divided by the mean: (std + 1e-6) → (mean + 1e-6)
  you divide by the group's mean: divide by its std.
* median for the mean: rewards.mean(1, keepdim=True) → rewards.median(1, keepdim=True).values
  your baseline is the group's median: take its mean.
* best reward for the mean: rewards.mean(1 → rewards.amax(1
  your baseline is the best reward of the group, so that no response is pushed up: take the group's mean.
* scaled to 0 and 1: rewards.mean(1 → rewards.amin(1
  rewards.std(1, keepdim=True) → rewards.amax(1, keepdim=True) - rewards.amin(1, keepdim=True)
  you scale the rewards to lie between 0 and 1: then no response is pushed down. Take off the mean, and divide by the std.
* softmax of the rewards: → return rewards.softmax(1)
  a softmax gives weights above 0 that add up to 1: an advantage is negative below the group's mean.
* sign alone: → return (rewards - mean).sign()
  you keep the sign alone: divide by the std, so that a rare right answer counts more than a usual one.
* advantage floored: → return ((rewards - mean) / (std + 1e-6)).clamp(min=0)
  you set advantages below 0 to 0: they are what pushes wrong responses down.
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
    each="response",
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
* gamma forgotten before the next value: gamma * V_next → V_next
  gamma is missing before the next value: delta is r + gamma · V_next − V.
* gamma forgotten in the sum: gamma * lam → lam
  gamma is missing before the next advantage: what comes later is weighed by gamma · lam.
* lambda forgotten: gamma * lam → gamma
  lam is missing, so this is GAE at lam 1, the whole sampled return minus V: weigh the next advantage by gamma · lam.
* delta alone: + gamma * lam * A_next →
  that is delta, GAE at lam 0: add gamma · lam times the next token's advantage, and keep each one for the turn after.
* only the next delta added: V[..., t], A[..., t] → V[..., t], delta
  you add the next token's delta: add its advantage, in which all later deltas are, and remember that one.
* return in its place: → return A + V
  that is A + V, the return that the critic learns: the advantage is what is left when V is taken off.
* value not taken off: - V[..., t] →
  − V is missing in delta: a token is judged by what it changes, not by what was there before.
* next value left out: + gamma * V_next →
  gamma times the next value is missing in delta, or next_value stays 0 because the loop never sets it: so every token is
  blamed for all that its V had hoped for.
* values swapped: gamma * V_next - V[..., t] → gamma * V[..., t] - V_next
  V and the next value are swapped: delta is what the state is worth after the token, minus before.
* signs of the values turned: + gamma * V_next - V[..., t] → + V[..., t] - gamma * V_next
  both values in delta have the wrong sign: what is to come is added, what was expected before is taken off.
* next value taken off: + gamma * V_next → - gamma * V_next
  you take the next value off in delta: it is what is still to come, so add gamma · V_next.
* rewards floored: rewards[..., t] → rewards[..., t].clamp(min=0)
  you set negative rewards to 0: take them as they are.
* one minus lambda: gamma * lam → gamma * (1 - lam)
  you weigh the next advantage by gamma · (1 − lam): it is gamma · lam, so that lam 1 trusts the outcome.
* mask forgotten: .masked_fill(~mask, 0.0) →
  the mask is not used: set the values on padding to 0 before the loop, so that V_next and A_next are 0 after the end.
* padding bootstrapped: .masked_fill(~mask, 0.0) →
  return A → return A.masked_fill(~mask, 0.0)
  padding leaks in: values after the last token are arbitrary, and yours run back through the recursion into the answer. Set
  them to 0 before the loop; masking the result is too late.
  Seen in the library ROLL, says github.com/alibaba/ROLL/pull/447
* value after the end bootstrapped: .masked_fill(~mask, 0.0) →
  delta + gamma → mask[..., t] * delta + gamma
  the last token of a shorter answer takes its next value from padding: after the last token V is 0.
* first value after the last: V_next = A_next = torch → V_next, A_next = V[..., 0], torch
  after the last token you come round to the first one's value: nothing comes after the last, so its next value is 0.
* last value bootstrapped: gamma * V_next → gamma * torch.where(mask.sum(-1) == t + 1, V[..., t], V_next)
  the last token takes its own value for the next one: the response is over there, so V after the last token is 0.
* last value of the width bootstrapped: V_next = A_next = torch → V_next, A_next = V[..., -1], torch
  your loop starts with the last token's own value as the next one: start with 0, for the response is over there.
* summed forwards and masked: delta + gamma * lam * A_next → delta
  → for t in range(1, A.shape[-1]): ⏎     A[..., t] += gamma * lam * A[..., t - 1] ⏎ return A.masked_fill(~mask, 0.0)
  you sum forwards: a token's advantage would then hold what came before it. Go backwards, from the last token.
* loop from the first token: reversed(range(rewards.shape[-1])) → range(rewards.shape[-1])
  your loop begins at the first token, so what you keep as the next value is that of the token before: go backwards, over
  reversed(range(T)).
* lambda in delta too: gamma * V_next → gamma * lam * V_next
  lam stands in delta too: there the next value has gamma alone. lam only says how much later deltas count.
* lambda in delta: gamma * V_next → gamma * lam * V_next
  gamma * lam * A_next → gamma * A_next
  lam stands in delta, where gamma belongs alone: it goes with gamma before the next advantage.
* lambda for gamma: gamma * V_next → lam * V_next
  lam stands before the next value in place of gamma: delta is r + gamma · V_next − V.
* both forgotten in the sum: gamma * lam * A_next → A_next
  gamma and lam are missing before the next advantage: what comes later is weighed by gamma · lam.
* both forgotten: gamma * V_next → V_next
  gamma * lam * A_next → A_next
  neither gamma nor lam is used: gamma goes before the next value, gamma · lam before the next advantage.
* delta weighed by the rest: = delta + → = (1 - lam) * delta +
  you weigh delta by 1 − lam: each delta counts in full, and only what comes later is weighed, by gamma · lam.
* delta weighed too: delta + gamma * lam * A_next → gamma * lam * (delta + A_next)
  parentheses too many: gamma · lam weighs the next advantage alone, not the token's own delta.
* gamma on the change of value: gamma * V_next - V[..., t] → gamma * (V_next - V[..., t])
  gamma multiplies both values: only the next one is discounted, r + gamma · V_next − V.
* gamma on the reward: rewards[..., t] + gamma * V_next → gamma * (rewards[..., t] + V_next)
  gamma multiplies the reward as well: only the next value is discounted, r + gamma · V_next − V.
* value added: - V[..., t] → + V[..., t]
  you add V in delta: it is taken off, r + gamma · V_next − V.
* discounted rewards: + gamma * V_next - V[..., t] →
  gamma * lam → gamma
  that is the discounted return of the rewards: the values are not used, and no critic is needed for it.
* rewards for deltas: + gamma * V_next - V[..., t] →
  you sum rewards in place of deltas: the values are not used. delta is r + gamma · V_next − V.
* summed forwards: delta + gamma * lam * A_next → delta
  → for t in range(1, A.shape[-1]): ⏎     A[..., t] += gamma * lam * A[..., t - 1] ⏎ return A
  you sum forwards: a token's advantage would then hold what came before it, which it did not cause. Go backwards.
* whitened: → return ((A - A[mask].mean()) / (A[mask].std() + 1e-8)).masked_fill(~mask, 0.0)
  you whiten: here the advantages themselves are asked for, without taking off their mean or dividing by their spread.
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


# What every weight may be taken for; an exercise has words of its own for some, and leaves its own right answer out. Weights on
# padding come last: in a whole loss, which is masked, they are one of the others.
WEIGHTS = """
* every width the same: → return mask / mask.numel()
  padding leaks into the mean: you divide by the number of places, not by the number of tokens.
* tokens and sequences swapped: → return mask / mask.sum()
  you average over all tokens at once: here every *response* is averaged first, then the responses.
* length mean kept: → return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * mask.any(-1).sum())
  you divide by each response's own length: that is GRPO's mean of means, in which long responses are diluted.
  Seen in TRL, whose pull request 3138 asks for the missing half of Dr.GRPO: github.com/huggingface/trl/pull/3138
* responses added up: → return mask / mask.sum(-1, keepdim=True).clamp(min=1)
  you add up the responses' means, as DCPO does: the number of responses does not divide.
* length mean of all responses: → return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * mask[..., 0].numel())
  you divide by each response's length, and count responses that have no token at all among them.
* sequence weight on every token: → return mask / mask.any(-1).sum()
  each token gets the weight of a whole response, so long responses count more: a (B, 1) loss times a (B, T) mask, summed.
  Seen in TRL, issue 3823, describes it: github.com/huggingface/trl/issues/3823
* plain token sum: → return mask.double()
  you sum over tokens and divide by nothing: the size of a step then depends on how much was written.
  Seen in the DCPO authors' code, where the paper has Eq. 8
* tokens of each prompt: → return mask / mask.sum((1, 2), keepdim=True).clamp(min=1)
  you divide by the tokens of each prompt's group, and add the groups up: the sums are over the whole batch.
* mean of the prompts: → return mask / mask.sum((1, 2), keepdim=True).clamp(min=1) / mask.shape[0]
  you average each prompt's group first, then the prompts, as DAPO's paper writes it: here it is over the whole batch.
* responses of a group counted: → return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * mask.shape[1])
  you divide by the size of one group: with several prompts there are more responses in the batch.
* prompts counted: → return mask / (mask.sum(-1, keepdim=True).clamp(min=1) * mask.shape[0])
  you divide by the number of prompts, dim 0: it is not the number of responses.
* lengths not clamped: → return mask / mask.sum(-1, keepdim=True)
  a response without a token gives 0 / 0: clamp its length to at least 1, with .clamp(min=1).
* lengths of the mean not clamped: → return mask / (mask.sum(-1, keepdim=True) * mask.any(-1).sum())
  in a response without a token 0 is divided by 0: clamp its length to at least 1, with .clamp(min=1).
* over the group s axis: → return mask / mask.sum(-2, keepdim=True).clamp(min=1)
  you sum over dim −2, the responses of a group: a response's length is its sum over the last dim.
* width for the length: → return mask / mask.shape[-1]
  you divide by the width of the tensor, padding included.
* width of the tensor for the maximum: → return mask / (mask.shape[-1] * mask.any(-1).sum())
  you divide by the width of the tensor and the number of responses, so padding is counted.
* longest response for the maximum: → return mask / (mask.sum(-1).max() * mask.any(-1).sum())
  you divide by the longest response of the batch, whatever the others' lengths are.
* divided by tokens and responses: → return mask / (mask.sum() * mask.any(-1).sum())
  you divide twice, by the number of tokens and by the number of responses.
* divided by the length twice: → return mask / (mask.sum(-1, keepdim=True).clamp(min=1) ** 2 * mask.any(-1).sum())
  you divide by each response's length twice.
* padding weighs too: → return torch.ones_like(mask, dtype=torch.double) / mask.numel()
  padding gets a weight, and is counted: it is 0 wherever the mask is false.
* padding weighs as a token: → return torch.ones_like(mask, dtype=torch.double) / mask.sum()
  you divide by the number of tokens, but padding gets a weight too: multiply by the mask.
* padding weighs as its response:
  → return torch.ones_like(mask, dtype=torch.double) / (mask.sum(-1, keepdim=True).clamp(min=1) * mask.any(-1).sum())
  you divide by each response's length, but padding gets a weight too: multiply by the mask.
"""


@exercise(
    like=aggregation.sequence_mean,
    cases=MASKS,
    but="length mean kept",
    slips="""
* length mean of all responses:
  you count responses that have no token at all: leave them out of B.
"""
    + WEIGHTS,
)
def mean_of_responses(mask: Tensor) -> Tensor:
    """mask [P, G, T] → GRPO's weight of each token."""
    lengths = mask.sum(-1, keepdim=True).clamp(min=1)
    return mask / (lengths * mask.any(-1).sum())


@exercise(like=aggregation.token_mean, cases=MASKS, but="tokens and sequences swapped", slips=WEIGHTS)
def mean_of_tokens(mask: Tensor) -> Tensor:
    """mask [P, G, T] → DAPO's weight of each token."""
    return mask / mask.sum()


@exercise(
    like=aggregation.sequence_sum,
    cases=MASKS,
    but="responses added up",
    slips="""
* tokens and sequences swapped:
  you average over all tokens at once: here every response is averaged, and those are added up.
* length mean kept:
  you average the responses' means, as GRPO does: here they are added up, and their number does not divide.
"""
    + WEIGHTS,
)
def sum_of_responses(mask: Tensor) -> Tensor:
    """mask [P, G, T] → DCPO's weight of each token."""
    return mask / mask.sum(-1, keepdim=True).clamp(min=1)


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
* responses of each prompt counted: → return mask / (mask.any(-1).sum(1)[:, None, None].clamp(min=1) * max_length)
  you count the responses of each prompt by itself: the mean is over all responses of the batch.
* padding weighs at the maximum:
  → return torch.ones_like(mask, dtype=torch.double) / (mask.any(-1).sum() * max_length)
  padding gets a weight: it is 0 wherever the mask is false.
* every width the same:
  you divide by the number of places, padding included: Dr.GRPO divides by responses · {max_length}, whatever was written.
* tokens and sequences swapped:
  you divide by the tokens of this batch, which is DAPO's mean: Dr.GRPO divides by responses · {max_length}, whatever was
  written.
* length mean kept:
  you divide by each response's own length, which is GRPO's mean and the bias that Dr.GRPO removes: divide by {max_length}
  instead.
* sequence weight on every token:
  you divide by the number of responses only: divide by the maximum length, {max_length}, too.
* width of the tensor for the maximum:
  you divide by the width of the tensor: the maximum is fixed, {max_length}.
* longest response for the maximum:
  you divide by the longest response: the maximum is fixed, {max_length}.
"""
        + WEIGHTS,
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
* tool and padding for the policy: == 0 → == 1
  the wrong way round: you weigh what the tool wrote, and padding. Even turns are the policy's.
* tool learned too: turn % 2 == 0 → turn >= 0
  what the tool wrote has a weight: the policy would learn to imitate the tool.
* tool in the denominator: own.sum() → (turn >= 0).sum()
  the right tokens, but you divide by all that was written, the tool's part included: count the policy's tokens only.
* padding in the denominator: own.sum() → turn.numel()
  you divide by every place of the tensor, padding and tool included.
* padding for the policy: turn % 2 == 0 → (turn % 2 == 0) | (turn < 0)
  padding has a weight: its turn is −1, and nobody wrote it.
* first turn only: turn % 2 == 0 → turn == 0
  only the first turn has a weight: the policy's are 0, 2, 4 and so on.
* first two turns only: turn % 2 == 0 → (turn == 0) | (turn == 2)
  only turns 0 and 2 have a weight: with two calls, turn 4 is the policy's as well.
* first turn left out: turn % 2 == 0 → turn > 0
  turn 0 has no weight, and the tool's have one: the policy's are the even turns, beginning with 0.
* first observation left out: turn % 2 == 0 → (turn >= 0) & (turn != 1)
  you leave out turn 1 only: turn 3, after a second call, is the tool's as well.
* first observation left out and padding in: turn % 2 == 0 → turn != 1
  you leave out turn 1 only: turn 3, after a second call, is the tool's as well, and padding, −1, is nobody's.
* answer only: turn % 2 == 0 → (turn % 2 == 0) & (turn == turn.amax(-1, keepdim=True))
  only the last turn has a weight: the calls are the policy's as well, and to look is what it has to learn.
* end of sequence left out: turn % 2 == 0 → (turn % 2 == 0) & F.pad(turn[..., 1:] >= 0, (0, 1))
  the last token of each response is left out: the policy wrote the end of sequence, and must learn to stop.
* one place late: turn % 2 == 0 → F.pad(turn[..., :-1] % 2 == 0, (1, 0))
  your mask is one place late: the tool's first token has a weight, and the policy's first one of each turn has none.
* one place early: turn % 2 == 0 → F.pad(turn[..., 1:] % 2 == 0, (0, 1))
  your mask is one place early: the tool's last token has a weight, and the policy's last one of each turn has none.
* each response averaged first: own.sum() → (own.sum(-1, keepdim=True) * own.any(-1).sum())
  you average each response first, as GRPO does: here every token of the policy weighs the same, in whatever response.
* each response for itself: own.sum() → own.sum(-1, keepdim=True)
  you divide by the tokens of each response: divide by the policy's tokens of the whole batch.
* each group averaged first: own.sum() → (own.sum((1, 2), keepdim=True) * turn.shape[0])
  you average each prompt's group first: divide by the policy's tokens of the whole batch.
* tool in the length of a response: own.sum() → ((turn >= 0).sum(-1, keepdim=True) * own.any(-1).sum())
  you divide by the length of each response with the tool's part in it: a response that calls the tool is pushed less.
* not divided: → return own.double()
  that is the mask: divide it by the number of the policy's tokens, so that the weights add up to 1.
""",
)
def own_token_weights(turn: Tensor) -> Tensor:
    """turn [P, G, T] → the weight of each token in the mean over the policy's: even turns; odd: a tool's; −1: padding."""
    own = turn % 2 == 0
    return own / own.sum()


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
* sign lost: -logp → logp
  the sign is wrong: that makes the tool's tokens less likely. Cross-entropy is minus the mean of log π.
* second observation only: turn % 2 == 1 → turn == 3
  only turn 3 is predicted: the first observation is turn 1.
* first turn left out: (turn >= 0) & (turn % 2 == 1) → turn > 0
  you predict turns 2 and 4, too, which the policy wrote: odd turns are the tool's.
* first turn left out and padding in: (turn >= 0) & (turn % 2 == 1) → turn.bool()
  you predict all but turn 0, padding too, whose turn is −1: odd turns from 1 on are the tool's.
* everything predicted: logp[tools] → logp
  you take the mean over every place of the tensor: take the tool's tokens only.
* weighted already: -logp[tools] → -0.1 * logp[tools]
  the weight is in it already: return the mean alone; λ = 0.1 multiplies it later.
* logarithm twice: -logp[tools] → -logp[tools].log()
  logp is log π already, and a negative number has no logarithm: do not take log().
* not divided: .mean() → .sum()
  that is the sum: divide it by the number of the tool's tokens.
* sum of each response, then the mean: → return -(logp * tools).sum(-1).mean()
  you add up each response's tokens and take the mean over responses: every token of the tool weighs the same.
* all places of a response: → return -((logp * tools).sum(-1) / tools.sum(-1).clamp(min=1)).mean()
  you average each response first, those without a call too: every token of the tool weighs the same.
* each group averaged first: → return -((logp * tools).sum((1, 2)) / tools.sum((1, 2)).clamp(min=1)).mean()
  you average each prompt's group first: every token of the tool in the batch weighs the same.
* padding in the denominator: .mean() → .sum() / (turn % 2 == 1).sum()
  the right tokens, but padding is in the denominator: its turn is −1, and the remainder of −1 is 1.
* all places in the denominator: logp[tools].mean() → (logp * tools).mean()
  the right tokens, but you divide by every place of the tensor: count the tool's tokens only.
* all tokens in the denominator: .mean() → .sum() / (turn >= 0).sum()
  the right tokens, but you divide by all that was written: the policy's tokens would thin out the tool's. Count these only.
* policy's tokens in the denominator: .mean() → .sum() / ((turn >= 0) & (turn % 2 == 0)).sum()
  the right tokens, but you divide by the number of the policy's: count the tool's.
* each response averaged first: → return -((logp * tools).sum(-1) / tools.sum(-1).clamp(min=1)).sum() / tools.any(-1).sum()
  you average each response first: here every token of the tool weighs the same, in whichever response.
* probability for its logarithm: -logp → -logp.exp()
  you take the mean of π: cross-entropy is of log π, so do not take exp().
* probability of a mistake: -logp[tools] → (1 - logp[tools].exp())
  you take the mean of 1 − π: cross-entropy is minus the mean of log π.
* weighed by the probability: -logp[tools] → -(logp.exp() * logp)[tools]
  you weigh log π by π, which is the entropy's term: the tool wrote the token, so its weight is 1.
* one place late: turn % 2 == 1 → F.pad(turn[..., :-1] % 2 == 1, (1, 0))
  your mask is one place late: it leaves out the tool's first token, the digit, and takes the policy's next one.
* one place early: turn % 2 == 1 → F.pad(turn[..., 1:] % 2 == 1, (0, 1))
  your mask is one place early: it takes the policy's `;` and leaves out the tool's last token.
* without a gradient: -logp[tools] → -logp.detach()[tools]
  the value is right, but it has no gradient: do not detach logp.
""",
)
def observation_loss(logp: Tensor, turn: Tensor) -> Tensor:
    """(logp, turn [P, G, T]) → the mean cross-entropy of the tool's tokens: odd turns; even: the policy's; −1: padding."""
    tools = (turn >= 0) & (turn % 2 == 1)
    return -logp[tools].mean()
