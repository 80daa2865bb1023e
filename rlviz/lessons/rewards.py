"""What comes before a loss, DAPO's punishment of long responses, and losses over preferences."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.lessons.cases import FAR_SCORES, LENGTHS, PAIRS, SCORES
from rlviz.lessons.exercise import exercise
from rlviz.pieces.preference import ImplicitReward, bradley_terry, response_logp
from rlviz.pieces.shaping import SoftOverlongPunishment


@exercise(
    "right for short responses, on the ramp, at max_length and far beyond, whatever they earned.",
    like=SoftOverlongPunishment(max_length=16, cache=4),
    cases=LENGTHS,
    per="response",
    slips="""
* overlong counts the prompt: - lengths → - (lengths + 6)
  the prompt's tokens are counted: only what the policy wrote can be overlong.
  Seen in the DCPO authors' reward manager, which passes the prompt's length alone
* overlong without the rewards: rewards + punishment → punishment
  this is the punishment alone: add it to the rewards.
* overlong as a bonus: rewards + → rewards -
  the sign is wrong: long responses gain what they should lose.
* overlong from the maximum on: start - lengths → max_length - lengths
  the ramp begins at max_length: no response gets beyond it, so nobody is warned. It begins cache tokens earlier.
* overlong without a floor: (-1, 0) → (max=0)
  beyond max_length the punishment goes on growing: it stops at −1.
  Seen in verl, whose sampler stops at max_length, so that it does not matter there
* overlong with a bonus for the short: (-1, 0) → (min=-1)
  responses of under 12 tokens are paid for being short: up to there the punishment is 0.
* overlong for right answers only: + punishment → + punishment * (rewards > 0)
  only right answers lose: add the punishment to wrong ones as well, or long wrong answers go free.
* overlong over the maximum length: / cache → / max_length
  divide by cache, the width of the ramp, not by max_length: at 16 tokens the punishment has to be −1.
* overlong in full at once: / cache → // cache
  from 13 tokens on the full 1 is lost: divide by cache, with / and not //, so that it grows by 1/4 a token.
""",
)
def soft_overlong_punishment(rewards: Tensor, lengths: Tensor) -> Tensor:
    """(rewards [P, G], lengths [P, G]) → rewards after DAPO's punishment, from 12 to 16 tokens."""
    max_length, cache = 16, 4
    start = max_length - cache
    punishment = ((start - lengths) / cache).clamp(-1, 0)
    return rewards + punishment


def dpo_loss_piece(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    """Return DPO's loss, of the pieces."""
    both = (response_logp(x, mask).unbind(-1) for x in (logp, ref_logp))
    chosen, rejected = map(ImplicitReward(float(beta)), *both)
    return bradley_terry(chosen, rejected).mean()


@exercise(
    "the loss and its gradient, with responses of different lengths and at two betas.",
    like=dpo_loss_piece,
    cases=PAIRS,
    by="logp",
    slips="""
* reference forgotten: - ref_logp →
  the reference is missing: what counts is how much likelier than under the reference, logp − ref_logp.
  Seen in Liger-Kernel's first DPO loss, which was CPO in effect: github.com/linkedin/Liger-Kernel/pull/387
* beta forgotten: beta * (chosen - rejected) → chosen - rejected
  beta is missing: it turns the margin, in nats, into a difference of rewards.
* divided by beta: beta * (chosen - rejected) → (chosen - rejected) / beta
  you divide by beta: the implicit reward is beta times the log-ratio.
* means over tokens: .sum(-1) → .sum(-1) / mask.sum(-1)
  you take means over tokens: the log-probability of a response is the sum over its tokens.
  Seen in SimPO (arXiv 2405.14734), on purpose
* padding in the sum: .masked_fill(~mask, 0.0) →
  padding leaks into the sum: add up where the mask is true, and nowhere else.
* margin turned round: chosen - rejected → rejected - chosen
  the margin is turned round, and the loss teaches the rejected responses: it is policy minus reference, chosen minus
  rejected.
* linear for the logarithm: logsigmoid(margin) → margin
  that is the linear loss, −margin: the log σ is missing, and nothing lets go of a pair that is in order.
* a sigmoid for each response: → return -(logsigmoid(beta * chosen) - logsigmoid(beta * rejected)).mean()
  you take log σ of each reward by itself: it belongs around their difference, for only that is in the preference.
* sum over the pairs: .mean() → .sum()
  you add up the pairs' losses: take their mean, or a larger batch means larger steps.
""",
)
def dpo_loss(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    """(logp, ref_logp, mask, beta) → DPO's loss, one number; logp, ref_logp, mask: [N, 2, T], the chosen one first."""
    gain = (logp - ref_logp).masked_fill(~mask, 0.0).sum(-1)
    chosen, rejected = gain.unbind(-1)
    margin = beta * (chosen - rejected)
    return -logsigmoid(margin).mean()


def reward_model_loss_piece(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Return the mean of the piece over pairs."""
    return bradley_terry(chosen, rejected).mean()


@exercise(
    "the loss and its gradient, also for a pair that is 900 points out of order.",
    like=reward_model_loss_piece,
    cases=[*SCORES, FAR_SCORES],
    by=("chosen", "rejected"),
    slips="""
* scores swapped: chosen - rejected → rejected - chosen
  chosen and rejected are swapped: this teaches the model to score the rejected response higher.
* logarithm of the sigmoid: logsigmoid(chosen - rejected) → torch.log(torch.sigmoid(chosen - rejected))
  right for scores that are near each other, but infinite, with no gradient, where the rejected one is far ahead: there the
  exponential is too large for a number, and the probability is rounded to 0, before the logarithm is taken.
  torch.nn.functional.logsigmoid takes all in one step.
  Seen in ColossalAI's RLHF application of 2023: github.com/hpcaitech/ColossalAI/issues/3490
* sigmoid without its logarithm: logsigmoid → torch.sigmoid
  the logarithm is missing: −σ hardly pulls at a pair that is far out of order, where −log σ pulls most.
* each score a verdict of its own: → return -(logsigmoid(chosen) + logsigmoid(-rejected)).mean()
  you grade each response by itself, the chosen one as right and the rejected one as wrong: a preference only tells of the
  difference of their scores, and that goes into the sigmoid.
* difference of the scores: logsigmoid →
  the sigmoid and its logarithm are missing: nothing lets go of a pair that is in order, and the scores grow for ever.
* sigmoid of each score: → return -(logsigmoid(chosen) - logsigmoid(rejected)).mean()
  you take log σ of each score by itself: a preference only tells of their difference, so that goes into the sigmoid.
* hinge: -logsigmoid(chosen - rejected) → torch.relu(1 - (chosen - rejected))
  that is the hinge loss, max(0, 1 − difference): Bradley–Terry's is −log σ of the difference.
* losses added up: .mean() → .sum()
  you add up the pairs' losses: take their mean, or a larger batch means larger steps.
""",
)
def reward_model_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(chosen, rejected) → the Bradley–Terry loss of a batch, one number; both are scores of N responses, [N]."""
    return -logsigmoid(chosen - rejected).mean()
