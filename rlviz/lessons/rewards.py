"""What comes before a loss, DAPO's punishment of long responses, and losses over preferences."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.lessons.cases import FAR_SCORES, PAIRS, SCORES, lengths_around
from rlviz.lessons.exercise import Exercise, Function, exercise
from rlviz.lessons.verdict import Verdict
from rlviz.pieces.preference import ImplicitReward, bradley_terry, response_logp
from rlviz.pieces.shaping import SoftOverlongPunishment


def soft_overlong_punishment(max_length: int, cache: int) -> Exercise:
    """Return the exercise of DAPO's punishment, which falls from 0 at max_length − cache tokens to −1 at max_length."""
    start = max_length - cache

    @exercise(
        "right for short responses, on the ramp, at max_length and far beyond, whatever they earned.",
        like=SoftOverlongPunishment(max_length=max_length, cache=cache),
        cases=lengths_around(max_length, cache),
        each="response",
        slips=f"""
* overlong counts the prompt: - lengths → - (lengths + 6)
  the prompt's tokens are counted: only what the policy wrote can be overlong.
  Seen in the DCPO authors' reward manager, which passes the prompt's length alone
* overlong without the rewards: rewards + punishment → punishment
  this is the punishment alone: add it to the rewards.
* overlong as a bonus: rewards + → rewards -
  the sign is wrong: long responses gain what they should lose.
* overlong upside down: rewards + punishment → rewards - 1 - punishment
  upside down: short responses lose 1, and the longest lose nothing. The ramp is 0 at {start} tokens and −1 at {max_length}.
* overlong from the maximum on: start - lengths → max_length - lengths
  the ramp begins at max_length: no response gets beyond it, so nobody is warned. It begins cache tokens earlier.
* overlong without a floor: (-1, 0) → (max=0)
  beyond max_length the punishment goes on growing: it stops at −1.
  Seen in verl, whose sampler stops at max_length, so that it does not matter there
* overlong with a bonus for the short: (-1, 0) → (min=-1)
  responses of under {start} tokens are paid for being short: up to there the punishment is 0.
* overlong never clipped: .clamp(-1, 0) →
  the ramp has no ends: short responses are paid, very long ones lose more than 1. Clamp it from −1 to 0.
* overlong from no bonus to a bonus: (-1, 0) → (0, 1)
  clamp from −1 to 0, not from 0 to 1: short responses are paid, and long ones lose nothing.
* overlong from a loss to a bonus: (-1, 0) → (-1, 1)
  clamp from −1 to 0, not from −1 to 1: short responses are paid for being short.
* overlong and the sum clamped: .clamp(-1, 0) →
  rewards + punishment → (rewards + punishment).clamp(-1, 1)
  you clamp the sum, from −1 to 1: clamp the punishment alone, from −1 to 0, then add it to the rewards.
* overlong and the sum never above zero: .clamp(-1, 0) →
  rewards + punishment → (rewards + punishment).clamp(-1, 0)
  you clamp the sum: clamp the punishment alone, then add it to the rewards, or nobody earns anything.
* overlong for right answers only: + punishment → + punishment * (rewards > 0)
  only right answers lose: add the punishment to wrong ones as well, or long wrong answers go free.
* overlong for the reward beyond the maximum: → return torch.where(lengths > max_length, -1.0, rewards + punishment)
  beyond max_length you give −1, whatever the reward: there, too, the punishment is added to it.
* overlong punished beyond the maximum no more: + punishment → + punishment * (lengths <= max_length)
  responses beyond max_length go free: they lose 1, like those of just that length.
* overlong as a factor: rewards + punishment → rewards * (1 + punishment)
  the rewards are multiplied: a wrong answer, reward 0, loses nothing however long it is. Add the punishment.
* overlong times the rewards: rewards + → rewards *
  the rewards are multiplied by the punishment: a short right answer earns 0. Add the two.
* overlong in place of the rewards: → return torch.where(lengths > start, punishment, rewards)
  beyond {start} tokens the punishment takes the reward's place: a long right answer earns what a wrong one does. Add it.
* overlong over the maximum length: / cache → / max_length
  divide by cache, the width of the ramp, not by max_length: at {max_length} tokens the punishment has to be −1.
* overlong from the cache on: start - lengths → cache - lengths
  the ramp begins at {cache} tokens, the cache: that is its width. It begins at max_length − cache, {start}.
* overlong from the cache to the maximum: (start - lengths) / cache → (cache - lengths) / start
  the ramp goes from {cache} tokens to {max_length}: cache is its width, so it begins at {start}.
* overlong from the cache over the maximum: (start - lengths) / cache → (cache - lengths) / max_length
  the ramp begins at {cache} tokens and is {max_length} wide: it begins at {start}, and cache is its width.
* overlong from nothing on: (start - lengths) / cache → -lengths / max_length
  the ramp begins at 0 tokens: short responses lose something too. It begins at {start}.
* overlong as a bonus of the short: (-1, 0) → (0, 1)
  rewards + → rewards -
  the sign is wrong, and clamp cuts the ramp itself: short responses lose, and none beyond {start} tokens does.
* overlong by the length divided alone: (start - lengths) / cache → start - lengths / cache
  parentheses are missing: only the length is divided by cache. It is ((max_length − cache) − length) / cache.
* overlong not divided and without a floor: / cache →
  (-1, 0) → (max=0)
  the division by cache is missing, and the floor: a response loses one for each token too many.
* overlong not divided nor clipped: / cache →
  .clamp(-1, 0) →
  you neither divide by cache nor clamp: short responses are paid by the token, long ones lose by it.
* overlong over the maximum length with a step: / cache → / max_length
  + punishment → + torch.where(lengths > max_length, -1.0, punishment)
  divide by cache, {cache}, not by max_length: yours jumps to −1 behind {max_length} tokens in place of reaching it.
* overlong for nothing beyond the maximum: → return torch.where(lengths > max_length, 0.0, rewards + punishment)
  beyond max_length you set the reward to 0: the punishment of −1 is added to it there too.
* overlong filtered: → return torch.where(lengths > max_length, 0.0, rewards)
  you take the reward of what is beyond max_length, and nothing else: the punishment grows before it, and is added.
* overlong over the start of the ramp: / cache → / start
  divide by cache, {cache}, the width of the ramp, not by {start}, where it begins: at {max_length} tokens the punishment
  has to be −1.
* overlong in full at once: / cache → // cache
  from {start + 1} tokens on the full 1 is lost: divide by cache, with / and not //, so that it grows by 1/{cache} a token.
* overlong by a cliff at the maximum: → return rewards - (lengths > max_length).double()
  a cliff: nothing up to max_length, then 1. The soft punishment grows over the last cache tokens.
* overlong in whole numbers: → return rewards - (lengths >= max_length).double()
  nothing is lost before {max_length} tokens: divide by /, not by //; where you wrote a step at {max_length}, make it a ramp
  from {start}.
""",
    )
    def punished(rewards: Tensor, lengths: Tensor) -> Tensor:
        """(rewards [P, G], lengths [P, G]) → rewards after DAPO's punishment, from max_length − cache to max_length tokens."""
        start = max_length - cache
        punishment = ((start - lengths) / cache).clamp(-1, 0)
        return rewards + punishment

    return punished


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
* beta on the chosen only: beta * (chosen - rejected) → beta * chosen - rejected
  beta stands at the chosen response only: it multiplies the whole margin.
* beta on the policy only: logp - ref_logp → beta * logp - ref_logp
  beta * (chosen - rejected) → chosen - rejected
  beta stands at the policy's log-probabilities only: the reference's need it as well.
* beta outside the sigmoid: beta * (chosen - rejected) → chosen - rejected
  -logsigmoid → -beta * logsigmoid
  beta stands outside of log σ, where it only scales the loss: inside, it says at which margin the pull fades.
* divided by beta: beta * (chosen - rejected) → (chosen - rejected) / beta
  you divide by beta: the implicit reward is beta times the log-ratio.
* means over tokens: .sum(-1) → .sum(-1) / mask.sum(-1)
  you take means over tokens: the log-probability of a response is the sum over its tokens.
  Seen in SimPO (arXiv 2405.14734), on purpose
* means over the width: .sum(-1) → .mean(-1)
  you take means over places, padding included: the log-probability of a response is the sum over its tokens.
* padding in the sum: .masked_fill(~mask, 0.0) →
  padding leaks into the sum: add up where the mask is true, and nowhere else.
* margin turned round: chosen - rejected → rejected - chosen
  the margin is turned round, and the loss teaches the rejected responses: it is policy minus reference, chosen minus
  rejected.
* linear for the logarithm: logsigmoid(margin) → margin
  that is the linear loss, −margin: the log σ is missing, and nothing lets go of a pair that is in order.
* logarithm forgotten: logsigmoid → torch.sigmoid
  the logarithm is missing: −σ(margin) hardly pulls at a pair that is far out of order, where −log σ pulls most.
* a sigmoid for each response: → return -(logsigmoid(beta * chosen) - logsigmoid(beta * rejected)).mean()
  you take log σ of each reward by itself: it belongs around their difference, for only that is in the preference.
* a sigmoid for each token:
  → x = logp - ref_logp ⏎ return -(logsigmoid(beta * (x[:, 0] - x[:, 1])) * mask.all(1)).sum(-1).mean()
  you take log σ token by token: a preference is of whole responses, so add up log π − log π_ref of each first. The two
  responses' tokens at one place have nothing to do with each other.
* a sigmoid for each token of the chosen:
  → x = logp - ref_logp ⏎ return -(logsigmoid(beta * (x[:, 0] - x[:, 1])) * mask[:, 0]).sum(-1).mean()
  you take log σ token by token, where the chosen response has tokens: add up log π − log π_ref of each whole response
  first.
* a sigmoid for each place:
  → x = (logp - ref_logp) * mask ⏎ return -logsigmoid(beta * (x[:, 0] - x[:, 1])).sum(-1).mean()
  you take log σ at each place, where padding leaves log ½: add up log π − log π_ref of each response first.
* a mean of sigmoids of places: → x = (logp - ref_logp) * mask ⏎ return -logsigmoid(beta * (x[:, 0] - x[:, 1])).mean()
  you take log σ at each place, and their mean: add up log π − log π_ref of each response first.
* hinge for the logarithm: → return torch.relu(1 - margin).mean()
  that is the hinge loss, max(0, 1 − margin), as in SLiC: −log σ has no corner, and pulls least where a pair is in order.
* hinge without beta: beta * (chosen - rejected) → chosen - rejected
  -logsigmoid(margin) → torch.relu(1 - margin)
  that is the hinge loss, and beta is missing: DPO's loss is −log σ(beta · margin).
* hinge at zero: → return torch.relu(-margin).mean()
  max(0, −margin) lets go of a pair as soon as it is in order: −log σ still pulls there, less and less.
* square for the logarithm: → return (chosen - rejected - 1 / (2 * beta)).square().mean()
  that is IPO's loss, which draws each margin to 1 / (2 beta): DPO's is −log σ(beta · margin).
* exponential for the logarithm: → return (-margin).exp().mean()
  exp(−margin) is inside the logarithm, not the loss: −log σ(x) is log(1 + exp(−x)).
* chance of the other order: → return torch.sigmoid(-margin).mean()
  that is the probability of the other order: take −log σ(margin), which pulls most where a pair is far out of order.
* reference and beta forgotten: - ref_logp →
  beta * (chosen - rejected) → chosen - rejected
  the reference and beta are missing: the margin is of beta · (logp − ref_logp), summed over each response.
* reference and sums forgotten: - ref_logp →
  .sum(-1) → .sum(-1) / mask.sum(-1)
  the reference is missing, and you take means over tokens, as SimPO does: DPO sums log π − log π_ref.
* reference at the chosen only: - ref_logp → - ref_logp * torch.tensor([[1.0], [0.0]])
  the reference is missing at the rejected response: both have theirs taken off.
* reference at the rejected only: - ref_logp → - ref_logp * torch.tensor([[0.0], [1.0]])
  the reference is missing at the chosen response: both have theirs taken off.
* reference added: logp - → logp +
  you add the reference's margin: it is taken off, policy minus reference.
* beta on the rejected only: beta * (chosen - rejected) → chosen - beta * rejected
  beta stands at the rejected response only: it multiplies the whole margin.
* beta twice: -logsigmoid → -beta * logsigmoid
  beta stands before log σ as well: it belongs inside alone.
* responses added: chosen - → chosen +
  you add both responses: the margin is the chosen one's reward minus the rejected one's.
* chosen alone: (chosen - rejected) → chosen
  the rejected response is missing: a preference only tells of the difference of both rewards.
* each response a verdict of its own: → return -(logsigmoid(beta * chosen) + logsigmoid(-beta * rejected)).mean()
  you grade each response by itself, the chosen one up and the rejected one down: log σ is of their difference.
* ratios of probabilities: chosen - rejected → chosen.exp() - rejected.exp()
  you take exp of the log-ratios: the implicit reward is beta times the logarithm itself.
* divided by the tokens: .mean() → .sum() / mask.sum()
  you divide by the number of tokens: there is one loss a pair, so take the mean over pairs.
* mask at the policy only: (logp - ref_logp).masked_fill(~mask, 0.0) → (logp * mask - ref_logp)
  padding is in the reference's sum: both sums are over the mask.
* mask at the reference only: (logp - ref_logp).masked_fill(~mask, 0.0) → (logp - ref_logp * mask)
  padding is in the policy's sum: both sums are over the mask.
* mask turned round: ~mask → mask
  you add up the padding: mask is true on real tokens, so x.masked_fill(~mask, 0).
* means over all places: .masked_fill(~mask, 0.0).sum(-1) → .mean(-1)
  you take means over places, and without the mask: add up over the tokens of a response, where the mask is true.
* first pairs for chosen and rejected: gain.unbind(-1) → gain[0], gain[1]
  you take the first pair for the chosen responses, the second for the rejected: they are in dimension 1, x[:, 0] and x[:,
  1].
* every chosen with every rejected: chosen - → chosen.unsqueeze(-1) -
  shapes [N, 1] and [N] made [N, N], each chosen response against every rejected one: make both [N].
* policy for the reference: - ref_logp → - logp.detach()
  your reference is the policy itself, so every margin is 0 and the loss ln 2: take off ref_logp.
* rejected alone: (chosen - rejected) → -rejected
  the chosen response is missing: a preference only tells of the difference of both rewards.
* both responses raised: → return -logsigmoid(beta * gain).mean()
  you raise both responses, each by a log σ of its own: log σ is of their difference.
* beta of a tenth: beta * → 0.1 *
  your beta is 0.1, whatever is asked for: use the argument.
* beta on the reference only: - ref_logp → - beta * ref_logp
  beta * (chosen - rejected) → chosen - rejected
  beta stands at the reference's log-probabilities only: the policy's need it as well.
* linear without beta: beta * (chosen - rejected) → chosen - rejected
  logsigmoid(margin) → margin
  log σ and beta are missing: the loss is −log σ(beta · margin).
* dpo in bits: .mean() → .mean() / math.log(2)
  that is in bits: the logarithm is the natural one.
* sum over the pairs: .mean() → .sum()
  you add up the pairs' losses: take their mean, or a larger batch means larger steps.
* mean inside the sigmoid: (margin).mean() → (margin.mean())
  you average the margins and then take log σ of the mean: each pair has a loss of its own, so take the mean last.
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


def near_first(exercise: Exercise, student: Function, verdict: Verdict) -> Verdict:
    """Return the verdict on scores near each other, where only the formula counts; if that is right, on its rounding too."""
    if verdict.passed:
        return verdict
    near = replace(exercise, cases=SCORES, then=Exercise.then)(student)
    if near.passed and verdict.says.startswith("for chosen"):
        says = (
            f"right for scores that are near each other, but {verdict.says} torch.nn.functional.logsigmoid stays exact."
        )
        return Verdict(False, says)
    return verdict if near.passed else near


@exercise(
    "the loss and its gradient, also for a pair that is 900 points out of order.",
    like=reward_model_loss_piece,
    cases=[*SCORES, FAR_SCORES],
    by=("chosen", "rejected"),
    then=near_first,
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
* chance of the other order: -logsigmoid(chosen - rejected) → torch.sigmoid(rejected - chosen)
  that is the probability of the other order, 1 − σ: take −log σ, which pulls most at a pair that is far out of order.
* probability of the right order: -logsigmoid → torch.sigmoid
  that is the probability that the chosen one wins, and a loss is made small: take −log of it.
* sigmoid of each score without a logarithm: → return (torch.sigmoid(rejected) - torch.sigmoid(chosen)).mean()
  you take σ of each score by itself, and no logarithm: the loss is −log σ of their difference.
* each score a verdict of its own: → return -(logsigmoid(chosen) + logsigmoid(-rejected)).mean()
  you grade each response by itself, the chosen one as right and the rejected one as wrong: a preference only tells of the
  difference of their scores, and that goes into the sigmoid.
* difference of the scores: logsigmoid →
  the sigmoid and its logarithm are missing: nothing lets go of a pair that is in order, and the scores grow for ever.
* sigmoid of each score: → return -(logsigmoid(chosen) - logsigmoid(rejected)).mean()
  you take log σ of each score by itself: a preference only tells of their difference, so that goes into the sigmoid.
* hinge: -logsigmoid(chosen - rejected) → torch.relu(1 - (chosen - rejected))
  that is the hinge loss, max(0, 1 − difference): Bradley–Terry's is −log σ of the difference.
* hinge at zero: -logsigmoid(chosen - rejected) → torch.relu(rejected - chosen)
  max(0, −difference) lets go of a pair as soon as it is in order: −log σ still pulls there, less and less.
* square: -logsigmoid(chosen - rejected) → (1 - (chosen - rejected)).square()
  you draw the difference to 1, with a square: Bradley–Terry's loss is −log σ of the difference.
* exponential: -logsigmoid(chosen - rejected) → (rejected - chosen).exp()
  exp(−difference) is inside the logarithm, not the loss: −log σ(x) is log(1 + exp(−x)).
* scores added: chosen - → chosen +
  you add the scores: σ is of the chosen one's minus the rejected one's.
* scores divided: chosen - → chosen /
  you divide the scores: σ is of their difference.
* sigmoid of the chosen alone: -logsigmoid(chosen - rejected) → (-logsigmoid(chosen) - rejected)
  parentheses are missing: the rejected score is taken off inside, −logsigmoid(chosen − rejected).
* loss in bits: .mean() → .mean() / math.log(2)
  that is in bits: use the natural logarithm, which torch.log and logsigmoid are.
* losses added up: .mean() → .sum()
  you add up the pairs' losses: take their mean, or a larger batch means larger steps.
* mean before the sigmoid: (chosen - rejected).mean() → ((chosen - rejected).mean())
  you average the differences and then take log σ: each pair has a loss of its own, so take the mean last.
* mean before the logarithm: logsigmoid(chosen - rejected).mean() → torch.log(torch.sigmoid(chosen - rejected).mean())
  you average the probabilities and then take the logarithm: each pair has a loss of its own, so take the mean last.
* every chosen against every rejected: chosen - → chosen.unsqueeze(1) -
  each chosen response is compared with every rejected one, also of other prompts: [N, 1] minus [N] is [N, N].
""",
)
def reward_model_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(chosen, rejected) → the Bradley–Terry loss of a batch, one number; both are scores of N responses, [N]."""
    return -logsigmoid(chosen - rejected).mean()
