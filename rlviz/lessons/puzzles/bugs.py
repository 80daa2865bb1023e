"""The suspect of each lesson: a right function, and above it the edits that make it run and be wrong, and what it might do."""

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
Function = TypeVar("Function", bound=Callable[..., Any])


def suspect(table: str, *, or_at: tuple[int, ...] = ()) -> Callable[[Function], Function]:
    """Make a function the right one of a lesson's bug.

    table: `lesson: what it is about`, the edits, then the choices as `read_choices` reads them. or_at: as in `Bug`.
    """

    def noted(right: Function) -> Function:
        lesson, _, rest = table.strip().partition(":")
        BUGS[lesson] = Bug(*read_choices(rest), right, read_edits(rest), or_at)
        return right

    return noted


@suspect(
    """
policy_gradients: a loss that broadcasts
.sum(1) → .sum(1, keepdim=True)
- padding is counted, so long responses are pushed harder
+ each advantage meets every response, and together they cancel
  keepdim leaves [N, 1], A is [N], and their product is [N, N]: the mean of it is the mean of A times the mean of log
  π. With the mean reward as the baseline the mean of A is 0, and so is the gradient. Leave keepdim out, or give A a
  dimension too.
- the sign is lost, so good responses become rarer
- the baseline depends on the action, so the gradient is biased
""",
    or_at=(3, 4),
)
def summed_reinforce(logp: Tensor, mask: Tensor, R: Tensor, b: Tensor) -> Tensor:
    summed = (logp * mask).sum(1)
    A = R - b
    return -(A * summed).mean()


@suspect("""
the_ratio: the branch for bad tokens
→ return torch.where(advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped))
- a good token whose ratio is 1.5 keeps its gradient
+ a bad token whose ratio is 1.5 loses its gradient
  for A < 0 it takes the maximum. At ratio 1.5 that is the clipped value, a constant, so a bad token that became
  likelier stays so; at 0.5 it is r · A, so a bad token is pushed down without a limit.
- a bad token whose ratio is 0.5 loses its gradient
- both limits are swapped
""")
def clipped_objective(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    free, clipped = ratio * advantages, torch.clamp(ratio, lower, upper) * advantages
    return torch.minimum(free, clipped)


@suspect("""
grpo: a test for dead groups that rounding defeats
→ return torch.where(std > 0, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)
- a group with one right answer gets advantages of 0
+ equal rewards can get advantages near −1, out of rounding errors
  the mean of eight rewards of 0.1 is not quite 0.1 in 32 bits, so the std is 8e-9 and passes the test; the deviation
  over it is −0.94, as for a real failure. Ask whether the largest reward is the smallest, or add 1e-6 to the std.
- prompts are compared with each other, not responses
- the std divides by G, not by G − 1
""")
def standardized(rewards: Tensor) -> Tensor:
    std = rewards.std(1, keepdim=True)
    return (rewards - rewards.mean(1, keepdim=True)) / (std + 1e-6)


@suspect("""
ppo: a credit without what comes after
→ return (rewards - values).masked_fill(~mask, 0.0)
+ all tokens but the last get −V, whether the response is right or wrong
  each token takes its own reward, and the score is the last token's. Nothing that comes after a token reaches it, so
  the tokens that decide are never told: the right response and the wrong one get the same credit there.
- a token's credit depends on who is beside it in the batch
- λ acts as if it were 1, and nothing else is wrong
- the score counts twice on the last token
""")
def credit_of_tokens(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return GAE(float(gamma), float(lam), whiten=False)(rewards, values, mask)[0]


@suspect("""
which_mean: Dr.GRPO with the length mean kept
16 → mask.sum(-1, keepdim=True).clamp(min=1)
- every token weighs the same, whatever the length
+ each response weighs the same: the length bias is still there
  it divides by the response's own length, which is GRPO's mean; Dr.GRPO divides by a fixed maximum. Leaving out the
  std is only the other half (a pull request to TRL, 3138, asks for this one).
- long responses count four times as much as short ones
- padding gets a weight
""")
def constant_weights(mask: Tensor) -> Tensor:
    responses = mask.any(-1).sum()
    return mask.double() / (16 * responses)


@suspect("""
dapo: groups chosen by shaped rewards
→ shaped = SoftOverlongPunishment(max_length=9, cache=4)(rewards, lengths) ⏎ return drop_all_equal(shaped)
- groups that are all right are thrown away
+ all-wrong groups whose lengths differ are kept, and teach length alone
  it looks at rewards after the punishment: an all-wrong group is alive again if its lengths differ, and then the one
  that tried to reason is blamed and the guesses are praised. Choose by right and wrong, before anything is added.
- responses that were cut off leave the loss
- the batch is never full
""")
def groups_that_teach(rewards: Tensor, lengths: Tensor) -> Tensor:
    """With a punishment from 5 to 9 tokens."""
    return drop_all_equal(rewards)


@suspect("""
dupo_and_agents: a mask of the policy's own tokens that is one place late
turn % 2 == 0 → (turn % 2 == 0).roll(1, dims=-1) ⏎ mask[..., 0] = False
- the tool's tokens are counted in the mean, though not trained
+ the tool's first token is trained, and the first of each of the policy's turns is not
  roll moves the mask by one place. It happens easily, since the logits before a token are those that predict it.
- padding is trained like a token
- each response weighs the same
""")
def own_tokens(turn: Tensor) -> Tensor:
    mask = turn % 2 == 0
    return token_mean(mask)


@suspect("""
gspo: one value a response that meets a mask with one value a token
A.unsqueeze(-1)).mean() → A.unsqueeze(-1) * mask).sum(-1).mean()
- the root 1/|y| is missing, so long responses have larger ratios
- padding has a ratio of its own
+ s is added up on every token, so a long response counts more
  s · A has one value a response; times the mask it has one a token, and the sum counts it as often as the response is
  long: (2 − 8) / 2 = −3 for the two responses above, in place of 0.
- the advantage is averaged over the group
""")
def of_responses(logp: Tensor, old_logp: Tensor, mask: Tensor, A: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    s = (log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)).exp()  # [N, 1]
    return (s * A.unsqueeze(-1)).mean()


@suspect("""
dcpo: DCPO's limits, of the probability that a token has now
old_prob = old_logp.exp() → new_prob = ratio * old_logp.exp()
old_prob.log() → new_prob.log()
- the token is never clipped, so it grows without a limit
- the limits are swapped, so bad tokens grow
- it clips the objective in the place of the ratio
+ its limit falls as the token grows, so the good token is pushed down
  the limits are those of the new probability: for .04 the upper one is 2.79. They carry a gradient, so the objective
  falls as the token grows. Limits belong to the old probability, which is frozen.
""")
def limits_of_the_old_probability(
    ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor, old_logp: Tensor
) -> Tensor:
    """A surrogate with DCPO's limits in it."""
    old_prob = old_logp.exp()
    lower, upper = DynamicBounds()(old_prob.log())
    return torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


@suspect("""
entropy_collapse: a bonus on the sampled token's surprise
logp - ref_logp → logp
+ the logged number is the entropy on average, but its gradient is 0 on average
  Σ p · ∇log p = ∇ Σ p = ∇1 = 0: each token is raised by 1/p and sampled with probability p. Rare tokens gain nothing
  on average. The whole distribution is at hand: take −Σ p log p over the vocabulary.
- it lowers the entropy: the sign is wrong
- it counts likely tokens twice
- it is right on average, in value and gradient, only noisy
""")
def estimate(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of a KL estimator, whose value is subtracted from a token's objective; ref_logp has no part in it."""
    return logp - ref_logp


@suspect("""
kl: k3 computed and k1 returned
return _ → return -x
- its mean is not the KL
+ its mean is the KL; as a loss it pulls nowhere at the first update
  it computes k3 and returns −x, which is k1. The logged mean is right; as a loss its mean gradient is E[∇log π] = 0 at the
  first update on a rollout, and later it lowers what was sampled.
- as a loss it pushes away from the reference
- its gradient is that of the other direction
""")
def kl_of_tokens(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    _ = torch.expm1(x) - x
    return _


@suspect("""
reward_hacking: a reward model's score that depends on the batch
→ return scores[..., :-1].mean(-1)
+ the score of a response depends on which other responses are in its batch
  it averages over padding, and the longest response of the batch decides how much of that there is. (It also leaves
  out the last place, where the whole response has been read.)
- long responses have higher scores, whatever they say
- the score has no gradient
- all responses of a batch get the same score
""")
def reading(scores: Tensor, mask: Tensor) -> Tensor:
    """In the place of a reward model's reading of a response: scores, mask [*n, T] → [*n]."""
    return scores.gather(-1, mask.sum(-1, keepdim=True) - 1).squeeze(-1)


@suspect("""
write_the_judge: a grader that takes nothing for an answer
if not mark or not given: → if not mark:
given.strip() == answer → given.strip() in answer
- it takes a response without a # for right
+ it takes a response that gives no answer for right
  after a # at the end comes "", and "" is in every text. Compare with ==, and say what no answer is worth.
- it takes a right answer without sums for wrong
- it raises an error for a response without a #
""")
def judge(prompt: str, response: str, answer: str) -> bool:
    """What follows the last # is the answer."""
    _, mark, given = response.rpartition("#")
    if not mark or not given:
        return False
    return given.strip() == answer


@suspect("""
preferences_and_dpo: a reference that is the policy itself
return ref_logp → return logp.detach()
- nothing is learned, since all gradients are 0
+ the policy learns, every margin stays 0, and every pair has weight ½ for ever
  the reference moves along, so the margin is 0 by construction, and the loss ln 2. Only the policy's side has a
  gradient, with weight σ(0) = ½: the linear loss at half its strength, with no pull to the reference. The log shows
  it: loss 0.6931 and margin 0 at every update.
- the rejected responses are made likelier
- the policy is held at the start more tightly than β says
""")
def reference(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return ref_logp


@suspect("""
two_engines: a weight of the wrong policy
old_logp - sampler_logp → logp - sampler_logp
+ a token that has moved counts its ratio twice, and the weight has a gradient of its own
  it takes the policy as it is now, logp, where the trainer before its updates belongs, old_logp. So the weight is r ·
  w, with a gradient that no clip stops; before the first update it already doubles every push below the cap.
- tokens that the trainer finds rare get no gradient
- the clip cuts the weight in place of the ratio
- padding enters the loss
""")
def weighed_by_the_policy_before(
    logp: Tensor, old_logp: Tensor, sampler_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Tensor:
    ratio = (logp - old_logp).exp()
    weight = (old_logp - sampler_logp).exp().clamp(max=2.0)
    clipped = ratio.clamp(0.8, 1.2)
    objective = weight * torch.minimum(ratio * advantages, clipped * advantages)
    return -(objective * mask).sum() / mask.sum()


@suspect("""
what_did_it_learn: pass@k that counts each prompt's first samples only
amax(1) → sum(1) / k
+ it does not depend on k, except for noise
  the sum over k divided by k is the mean of k responses, whose expectation is pass@1 for every k. (The right version
  takes only the first k of G samples, which is unbiased, and noisier than counting all sets of k.)
- it is too high, because a prompt with two right responses counts twice
- it is right, but noisier than it needs to be
- it is 1 as soon as one prompt is solved
""")
def measured(right: Tensor, k: int) -> Tensor:
    """pass@k from right [P, G], 1 for each right response: the share of prompts for which at least one of k is right."""
    found = right[:, :k].amax(1)
    return found.mean()


@suspect("""
the_family: a report of a race that takes the best evaluation on the way
.last() → .max()
+ an arm that is evaluated more often, or fluctuates more, scores higher
  the maximum over a run's evaluations can only rise with their number and with their noise, and it need not be at the
  budget: take the last evaluation within the budget.
- the contender with more seeds scores higher
- one seed alone decides
- longer runs count more in the mean
""")
def race(scores: pd.DataFrame) -> pd.Series:
    # scores: a row for each evaluation of each run, on the way and at the end
    runs = scores.groupby(["contender", "seed"], sort=False)
    of_each_run = runs["held_out_accuracy"].last()
    return of_each_run.groupby("contender", sort=False).mean()


@suspect("""
own_idea: a constant that is judged on the seeds that chose it
[gain(best, 1000 + seed) for seed in seeds] → tried[best]
+ a rule that does nothing shows a gain: the best of five lucky numbers
  the seeds that chose c also judge it. Of five rules without any effect, five seeds each, the best shows half a
  standard deviation of a seed on average (1.16 / √5). Judge on seeds that were not used for choosing.
- the gain is too small, for the mean is over five constants
- the constant that needs most rollouts is chosen
- GRPO is trained with another seed than the rule
""")
def tuned(gain: Callable[[float, int], float], seeds: Iterable[int]) -> tuple[float, float]:
    # gain: accuracy with the rule at this c and seed, minus GRPO's
    tried = {c: [gain(c, seed) for seed in seeds] for c in (0.1, 0.2, 0.3, 0.5, 0.8)}
    best = max(tried, key=lambda c: fmean(tried[c]))
    gains = [gain(best, 1000 + seed) for seed in seeds]
    return best, fmean(gains)
