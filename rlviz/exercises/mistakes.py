"""The bug zoo: wrong variants of pieces that were published or are made again and again, each with a name.

Spot-the-bug exercises show them, the checks recognise them in a student's answer, and the tests must tell each from the
right piece. None is ever trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.pieces.shaping import SoftOverlongPunishment


@dataclass(frozen=True)
class Mistake:
    """wrong: called like the piece that it stands for. says: to the person who made it. seen: where it was published."""

    wrong: Callable[..., Any]
    says: str
    seen: str = ""

    @property
    def name(self) -> str:
        return self.wrong.__name__.replace("_", " ")


def inverted_for_bad_tokens(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    free, clipped = ratio * advantages, torch.clamp(ratio, lower, upper) * advantages
    return torch.where(advantages >= 0, torch.minimum(free, clipped), torch.maximum(free, clipped))


def clamp_without_the_minimum(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(ratio, lower, upper) * advantages


def maximum_for_the_minimum(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.maximum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)


def never_clipped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return ratio * advantages


def clipped_from_above_only(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.minimum(ratio, upper) * advantages)


def limits_taken_for_widths(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio, 1 - lower, 1 + upper) * advantages)


def limits_swapped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio, upper, lower) * advantages)


def objective_clipped_instead_of_ratio(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio * advantages, lower, upper))


def constant_limits(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages)


def ratio_and_advantage_swapped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, torch.clamp(advantages, lower, upper) * ratio)


def zero_outside_the_limits(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.where((ratio < lower) | (ratio > upper), 0 * ratio, ratio * advantages)


def dual_clipped(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    objective = torch.minimum(ratio * advantages, torch.clamp(ratio, lower, upper) * advantages)
    return torch.where(advantages < 0, torch.maximum(objective, 3 * advantages), objective)


SURROGATE = (
    Mistake(
        inverted_for_bad_tokens,
        "your A < 0 branch is inverted: the minimum of r·A and clip(r)·A holds for both signs (the minimum of the ratios, times "
        "A, is a maximum for A < 0). So a bad token loses its gradient when its probability has run up, where it needs it most.",
        "a popular book's notebook, since fixed",
    ),
    Mistake(
        clamp_without_the_minimum,
        "you clip, but the minimum is missing: a token that moved the wrong way (A > 0 and r < lower, A < 0 and r > upper) has "
        "lost the gradient that would bring it back.",
        "short explanations of PPO",
    ),
    Mistake(maximum_for_the_minimum, "you take the maximum of the two branches: the objective is to be pessimistic."),
    Mistake(never_clipped, "nothing is clipped: use lower and upper."),
    Mistake(clipped_from_above_only, "you clip from above only: tokens with A < 0 need the lower limit."),
    Mistake(
        limits_taken_for_widths,
        "lower and upper are limits on the ratio already, such as 0.8 and 1.2: do not add them to 1.",
    ),
    Mistake(limits_swapped, "your limits are the wrong way round: torch.clamp takes the lower one first."),
    Mistake(objective_clipped_instead_of_ratio, "you clip r · A: clip the ratio, then multiply by A."),
    Mistake(constant_limits, "you clip at 0.8 and 1.2 whatever the limits are: use lower and upper."),
    Mistake(ratio_and_advantage_swapped, "you clip A: the ratio is the first argument, A the second."),
    Mistake(
        zero_outside_the_limits,
        "you set J to 0 outside the limits, on both sides: there the clipped ratio counts, and only where it is the worse one.",
    ),
    Mistake(dual_clipped, "that is the dual clip: its further bound at 3 · A for A < 0 is not asked for here."),
)


def ratio_upside_down(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (old_logp - logp).masked_fill(~mask, 0.0).exp()


def ratio_left_in_logs(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - old_logp).masked_fill(~mask, 0.0)


def old_recomputed_before_every_update(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp - logp.detach()).masked_fill(~mask, 0.0).exp()


def ratio_without_gradient(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    return (logp.detach() - old_logp).masked_fill(~mask, 0.0).exp() + 0 * logp.masked_fill(~mask, 0.0)


TOKEN_RATIO = (
    Mistake(ratio_upside_down, "your ratio is upside down: it is new over old, so the difference is logp − old_logp."),
    Mistake(ratio_left_in_logs, "that is the log of the ratio: exp is missing."),
    Mistake(
        old_recomputed_before_every_update,
        "your ratio is always 1: old_logp has to stay frozen from the moment of sampling. If it is computed anew before each "
        "update, every bound gives the same run.",
        "a course in which clip-higher changed nothing",
    ),
    Mistake(ratio_without_gradient, "your ratio has no gradient: logp must not be detached."),
)


def sequence_ratio_without_the_root(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    return log_ratio.sum(-1, keepdim=True).exp().expand_as(log_ratio).masked_fill(~mask, 1.0)


def sequence_ratio_as_arithmetic_mean(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    ratio = (logp - old_logp).masked_fill(~mask, 0.0).exp() * mask
    mean = ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return mean.expand_as(ratio).masked_fill(~mask, 1.0)


def sequence_ratio_with_padding_in_the_mean(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    return log_ratio.mean(-1, keepdim=True).exp().expand_as(log_ratio).masked_fill(~mask, 1.0)


SEQUENCE_RATIO = (
    Mistake(
        sequence_ratio_without_the_root,
        "the root 1/|o_i| is missing: the plain product of token ratios explodes with length.",
        "several published snippets of GSPO, and an article that sums the log-ratios",
    ),
    Mistake(
        sequence_ratio_as_arithmetic_mean,
        "you average the ratios: average their logarithms, which gives the geometric mean.",
    ),
    Mistake(
        sequence_ratio_with_padding_in_the_mean,
        "padding leaks into the mean: divide by the response's own number of tokens, mask.sum(-1), not by the width.",
    ),
)


def _standardized(rewards: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (rewards - mean) / (std + 1e-6)


def biased_std(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True, correction=0))


def std_above_zero_as_the_test(rewards: Tensor) -> Tensor:
    std = rewards.std(1, keepdim=True)
    return torch.where(std > 0, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)


def over_the_batch(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(), rewards.std())


def over_the_position_in_the_group(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(0, keepdim=True), rewards.std(0, keepdim=True, correction=0))


def std_of_the_batch(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(1, keepdim=True), rewards.std())


def std_forgotten(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(1, keepdim=True)


def mean_forgotten(rewards: Tensor) -> Tensor:
    return rewards / (rewards.std(1, keepdim=True) + 1e-6)


GROUP_ADVANTAGE = (
    Mistake(
        biased_std,
        "your std divides by G: the usual one here divides by G − 1 (torch's default), as in verl and TRL.",
        "implementations in numpy, whose std is the biased one",
    ),
    Mistake(
        std_above_zero_as_the_test,
        "asking whether std > 0 is not enough: three rewards of 0.1 have a std of 1e-17, and got advantages of −0.8. "
        "Add a small eps to the std, or compare the largest and the smallest reward.",
        "the DCPO authors' code",
    ),
    Mistake(over_the_batch, "you averaged over the batch, not over the group: use dim 1, and keepdim."),
    Mistake(over_the_position_in_the_group, "you averaged over dim 0, the prompts: the group is dim 1."),
    Mistake(std_of_the_batch, "your mean is the group's, but your std the batch's: that is Lite PPO's advantage."),
    Mistake(std_forgotten, "the division by the std is missing: that is Dr.GRPO's advantage."),
    Mistake(
        mean_forgotten, "the group's mean is not subtracted: without the baseline every right answer only pushes up."
    ),
)


def process_rewards_normalised_step_by_step(rewards: Tensor, step_ends: Tensor) -> Tensor:
    count = step_ends.sum(1, keepdim=True)
    mean = (rewards * step_ends).sum(1, keepdim=True) / count.clamp(min=1)
    deviation = (rewards - mean) * step_ends
    std = (deviation.square().sum(1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return (deviation / (std + 1e-6)).flip(-1).cumsum(-1).flip(-1)


def process_rewards_of_the_steps_before(rewards: Tensor, step_ends: Tensor) -> Tensor:
    steps = rewards[step_ends]
    return ((rewards - steps.mean()) / (steps.std() + 1e-6) * step_ends).cumsum(-1)


PROCESS_ADVANTAGE = (
    Mistake(
        process_rewards_normalised_step_by_step,
        "you normalise each step position by itself: mean and std are over *all* step rewards of the group.",
        "readings of GRPO's §4.1.3",
    ),
    Mistake(
        process_rewards_of_the_steps_before,
        "you add up the steps before a token: it deserves the steps that end at or after it.",
    ),
)


def every_width_the_same(mask: Tensor) -> Tensor:
    return mask.double() / mask.numel()


def sequence_weight_on_every_token(mask: Tensor) -> Tensor:
    return mask.double() / mask.any(-1).sum()


def plain_token_sum(mask: Tensor) -> Tensor:
    return mask.double()


def length_mean_kept(mask: Tensor) -> Tensor:
    responses = mask.any(-1).sum()
    return mask.double() / (mask.sum(-1, keepdim=True).clamp(min=1) * responses)


def tokens_and_sequences_swapped(mask: Tensor) -> Tensor:
    return mask.double() / mask.sum()


def nothing_divided_by_the_responses(mask: Tensor) -> Tensor:
    return mask.double() / 16


def prompts_counted_for_responses(mask: Tensor) -> Tensor:
    return mask.double() / (mask.shape[0] * 16)


def all_responses_counted(mask: Tensor) -> Tensor:
    return mask.double() / (mask[..., 0].numel() * 16)


def width_of_the_tensor_for_the_maximum(mask: Tensor) -> Tensor:
    return mask.double() / (mask.any(-1).sum() * mask.shape[-1])


def longest_response_for_the_maximum(mask: Tensor) -> Tensor:
    return mask.double() / (mask.any(-1).sum() * mask.sum(-1).max())


def responses_of_each_prompt_counted(mask: Tensor) -> Tensor:
    return mask.double() / (mask.any(-1).sum(1, keepdim=True).unsqueeze(-1).clamp(min=1) * 16)


def padding_weighs_too(mask: Tensor) -> Tensor:
    return torch.ones_like(mask, dtype=torch.double) / (mask.any(-1).sum() * 16)


def empty_responses_counted(mask: Tensor) -> Tensor:
    return mask.double() / (mask.sum(-1, keepdim=True).clamp(min=1) * mask[..., 0].numel())


PADDING_IN_THE_MEAN = Mistake(
    every_width_the_same,
    "padding leaks into the mean: you divide by the number of places, not by the number of tokens.",
    "losses that call .mean() on a padded tensor",
)
LONG_COUNTS_MORE = Mistake(
    sequence_weight_on_every_token,
    "each token gets the weight of a whole response, so long responses count more: a (B, 1) loss times a (B, T) mask, summed.",
    "sequence-level losses spread over a token mask",
)
TOKEN_SUM = Mistake(
    plain_token_sum,
    "you sum over tokens and divide by nothing: the size of a step then depends on how much was written.",
    "the DCPO authors' code, where the paper has Eq. 8",
)
LENGTH_MEAN = Mistake(
    length_mean_kept,
    "you divide by each response's own length: that is GRPO's mean of means, in which long responses are diluted.",
    'a "Dr.GRPO" that dropped the std but kept the length mean',
)
TOKEN_MEAN_INSTEAD = Mistake(
    tokens_and_sequences_swapped,
    "you average over all tokens at once: here every *response* is averaged first, then the responses.",
)
EMPTY_COUNTED = Mistake(empty_responses_counted, "you count responses that have no token at all: leave them out of B.")
SEQUENCE_MEAN = (PADDING_IN_THE_MEAN, TOKEN_MEAN_INSTEAD, LONG_COUNTS_MORE, TOKEN_SUM, EMPTY_COUNTED)
TOKEN_MEAN = (PADDING_IN_THE_MEAN, LENGTH_MEAN, LONG_COUNTS_MORE, TOKEN_SUM)
CONSTANT = (  # for a maximum length of 16
    Mistake(
        every_width_the_same,
        "you divide by the number of places, padding included: Dr.GRPO divides by responses · 16, whatever was written.",
    ),
    Mistake(
        tokens_and_sequences_swapped,
        "you divide by the tokens of this batch, which is DAPO's mean: Dr.GRPO divides by responses · 16, whatever was written.",
    ),
    Mistake(
        length_mean_kept,
        "you divide by each response's own length, which is GRPO's mean and the bias that Dr.GRPO removes: divide by 16 instead.",
        LENGTH_MEAN.seen,
    ),
    Mistake(nothing_divided_by_the_responses, "you divide by 16 only: divide by the number of responses too."),
    Mistake(prompts_counted_for_responses, "you count prompts (dim 0): the number of responses is what divides."),
    Mistake(all_responses_counted, "you count responses that have no token at all: leave them out."),
    Mistake(
        responses_of_each_prompt_counted,
        "you count the responses of each prompt by itself: the mean is over all responses of the batch.",
    ),
    Mistake(width_of_the_tensor_for_the_maximum, "you divide by the width of the tensor: the maximum is fixed, 16."),
    Mistake(longest_response_for_the_maximum, "you divide by the longest response: the maximum is fixed, 16."),
    Mistake(padding_weighs_too, "padding gets a weight: it is 0 wherever the mask is false."),
    Mistake(
        sequence_weight_on_every_token,
        "you divide by the number of responses only: divide by the maximum length, 16, too.",
    ),
    TOKEN_SUM,
)
SEQUENCE_SUM = (TOKEN_SUM, LENGTH_MEAN, LONG_COUNTS_MORE)


def kl_sign_lost(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return ref_logp - logp


def k3_of_the_wrong_ratio(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = logp - ref_logp
    return torch.expm1(x) - x


def k3_computed_and_k1_used(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    _ = torch.expm1(x) - x
    return -x


def sign_of_x_lost_in_the_exponential(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return torch.exp(logp - ref_logp) - (ref_logp - logp) - 1


def sign_of_x_lost_after_the_exponential(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return torch.exp(ref_logp - logp) + (ref_logp - logp) - 1


def exponential_forgotten(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    return x - x - 1


def logarithms_divided(logp: Tensor, ref_logp: Tensor) -> Tensor:
    quotient = ref_logp / logp
    return quotient - quotient.log() - 1


def one_not_taken_off(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    return torch.exp(x) - x


def k2_for_k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    return (ref_logp - logp).square() / 2


def k3_weighed_by_its_probability(logp: Tensor, ref_logp: Tensor) -> Tensor:
    x = ref_logp - logp
    return logp.exp() * (torch.expm1(x) - x)


K1 = (Mistake(kl_sign_lost, "the sign is lost: k1 is logp − ref_logp, whose mean is the KL, which is not negative."),)
K3 = (
    Mistake(
        k3_of_the_wrong_ratio,
        "your x is upside down: x = ref_logp − logp. The mean of yours over samples is not the KL.",
        "a book's code, copied",
    ),
    Mistake(k3_computed_and_k1_used, "that is k1: k3 is computed and not used.", "an article on GRPO"),
    Mistake(
        sign_of_x_lost_in_the_exponential,
        "the sign of x is lost in the exponential: eˣ is exp(ref_logp − logp), reference over policy.",
    ),
    Mistake(
        sign_of_x_lost_after_the_exponential,
        "the sign of x is lost after the exponential: k3 is eˣ − x − 1, and yours adds x.",
    ),
    Mistake(exponential_forgotten, "the exponential is missing, so x − x leaves −1 for every token."),
    Mistake(
        logarithms_divided,
        "you divide log-probabilities: the ratio of the probabilities is the exponential of their difference.",
    ),
    Mistake(one_not_taken_off, "the 1 is not taken off: where policy and reference agree, k3 has to be 0."),
    Mistake(k2_for_k3, "that is k2, x²/2: close to k3 near the reference, but its mean is not the KL."),
    Mistake(
        k3_weighed_by_its_probability,
        "you weigh by the probability: the tokens are sampled, so likely ones come often already, and would count twice.",
    ),
)


def surprise_of_the_likeliest_token(log_probs: Tensor) -> Tensor:
    return -log_probs.max(-1).values


def surprises_added_unweighted(log_probs: Tensor) -> Tensor:
    return -log_probs.sum(-1)


def surprises_averaged_unweighted(log_probs: Tensor) -> Tensor:
    return -log_probs.mean(-1)


def weighted_surprises_averaged(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).mean(-1)


def weighted_by_the_logarithm(log_probs: Tensor) -> Tensor:
    return -(log_probs * log_probs).sum(-1)


def log_probabilities_taken_for_probabilities(log_probs: Tensor) -> Tensor:
    return -(log_probs * log_probs.log()).sum(-1)


def entropy_in_bits(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1) / math.log(2)


def entropy_as_a_share_of_the_most(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1) / math.log(log_probs.shape[-1])


ENTROPY = (
    Mistake(
        surprise_of_the_likeliest_token,
        "that is −log p of one token, the likeliest: the entropy is over all of them, each weighted by its probability.",
    ),
    Mistake(
        surprises_added_unweighted,
        "the weights are missing: each −log p counts as often as its token is drawn, so multiply by p = log_probs.exp().",
    ),
    Mistake(
        surprises_averaged_unweighted,
        "you average −log p as if all tokens were equally likely: weight each by its own probability, and add up.",
    ),
    Mistake(
        weighted_surprises_averaged,
        "you take the mean over the vocabulary: the weights p add up to 1 already, so take the sum.",
        "an early version of a library of RL algorithms",
    ),
    Mistake(weighted_by_the_logarithm, "you weight by log p: the weight is p itself, log_probs.exp()."),
    Mistake(
        log_probabilities_taken_for_probabilities,
        "you take the logarithm of a logarithm: the input holds log p already.",
    ),
    Mistake(entropy_in_bits, "that is in bits: entropies here are in nats, with the natural logarithm."),
    Mistake(entropy_as_a_share_of_the_most, "you divide by log V: that is the share of the most that is possible."),
)


def minus_surprise_of_the_sampled_token(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """In the place of a KL estimator, whose value is subtracted from a token's objective; ref_logp has no part in it."""
    return logp


SAMPLED_SURPRISE = Mistake(
    minus_surprise_of_the_sampled_token,
    "its mean is the entropy, but its gradient is not the entropy's: under the policy that sampled, the mean of ∇log p is 0.",
    "a library of RL algorithms, for distributions without an entropy of their own, and many copies of its loop",
)


def cispo(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """CISPO (arXiv 2506.13585) up to a constant: sg[clip(r)] · A · log r. The clipped ratio is a weight, no token is cut."""
    return torch.clamp(ratio, lower, upper).detach() * advantages * ratio.log()


def cispo_with_its_ratio_inverted(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return torch.clamp(1 / ratio, lower, upper).detach() * advantages * ratio.log()


CISPO = (Mistake(cispo_with_its_ratio_inverted, "your weight is old over new: it is the clipped ratio, new over old."),)


def overlong_counts_the_prompt(rewards: Tensor, lengths: Tensor) -> Tensor:
    """For a prompt of 6 tokens."""
    return SoftOverlongPunishment(max_length=16, cache=4)(rewards, lengths + 6)


OVERLONG = (
    Mistake(
        overlong_counts_the_prompt,
        "the prompt's tokens are counted: only what the policy wrote can be overlong.",
        "the DCPO authors' reward manager, which passes the prompt's length alone",
    ),
)


def _gains(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return by how much the log-probability of each chosen and each rejected response is above the reference's, [N]."""
    chosen, rejected = (logp - ref_logp).masked_fill(~mask, 0.0).sum(-1).unbind(-1)
    return chosen, rejected


def reference_forgotten(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, torch.zeros_like(ref_logp), mask)
    return -logsigmoid(beta * (chosen - rejected)).mean()


def beta_forgotten(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(chosen - rejected).mean()


def beta_on_the_chosen_only(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * chosen - rejected).mean()


def beta_on_the_policy_only(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(beta * logp, ref_logp, mask)
    return -logsigmoid(chosen - rejected).mean()


def beta_outside_the_sigmoid(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    return beta * beta_forgotten(logp, ref_logp, mask, beta)


def divided_by_beta(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid((chosen - rejected) / beta).mean()


def means_over_tokens(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    length = mask.sum(-1, keepdim=True)
    chosen, rejected = _gains(logp / length, ref_logp / length, mask)
    return -logsigmoid(beta * (chosen - rejected)).mean()


def means_over_the_width(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (chosen - rejected) / mask.shape[-1]).mean()


def padding_in_the_sum(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, torch.ones_like(mask))
    return -logsigmoid(beta * (chosen - rejected)).mean()


def margin_turned_round(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (rejected - chosen)).mean()


def linear_for_the_logarithm(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -(beta * (chosen - rejected)).mean()


def logarithm_forgotten(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -torch.sigmoid(beta * (chosen - rejected)).mean()


def a_sigmoid_for_each_response(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -(logsigmoid(beta * chosen) - logsigmoid(beta * rejected)).mean()


def sum_over_the_pairs(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (chosen - rejected)).sum()


def mean_inside_the_sigmoid(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * (chosen - rejected).mean())


DPO_LOSS = (
    Mistake(
        reference_forgotten,
        "the reference is missing: what counts is how much likelier than under the reference, logp − ref_logp.",
        "a library's first fast kernel for DPO, which its reviewers found to be another algorithm, CPO",
    ),
    Mistake(beta_forgotten, "beta is missing: it turns the margin, in nats, into a difference of rewards."),
    Mistake(beta_on_the_chosen_only, "beta stands at the chosen response only: it multiplies the whole margin."),
    Mistake(
        beta_on_the_policy_only, "beta stands at the policy's log-probabilities only: the reference's need it as well."
    ),
    Mistake(
        beta_outside_the_sigmoid,
        "beta stands outside of log σ, where it only scales the loss: inside, it says at which margin the pull fades.",
    ),
    Mistake(divided_by_beta, "you divide by beta: the implicit reward is beta times the log-ratio."),
    Mistake(
        means_over_tokens,
        "you take means over tokens: the log-probability of a response is the sum over its tokens.",
        "asked about again and again; those who tried it report collapse, and SimPO (arXiv 2405.14734) does it on purpose",
    ),
    Mistake(
        means_over_the_width,
        "you take means over places, padding included: the log-probability of a response is the sum over its tokens.",
    ),
    Mistake(padding_in_the_sum, "padding leaks into the sum: add up where the mask is true, and nowhere else."),
    Mistake(
        margin_turned_round,
        "the margin is turned round, and the loss teaches the rejected responses: it is policy minus reference, chosen minus "
        "rejected.",
    ),
    Mistake(
        linear_for_the_logarithm,
        "that is the linear loss, −margin: the log σ is missing, and nothing lets go of a pair that is in order.",
    ),
    Mistake(
        logarithm_forgotten,
        "the logarithm is missing: −σ(margin) hardly pulls at a pair that is far out of order, where −log σ pulls most.",
    ),
    Mistake(
        a_sigmoid_for_each_response,
        "you take log σ of each reward by itself: it belongs around their difference, for only that is in the preference.",
    ),
    Mistake(sum_over_the_pairs, "you add up the pairs' losses: take their mean, or a larger batch means larger steps."),
    Mistake(
        mean_inside_the_sigmoid,
        "you average the margins and then take log σ of the mean: each pair has a loss of its own, so take the mean last.",
    ),
)


def the_policy_itself(logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return logp


def the_policy_itself_without_gradient(logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return logp.detach()


MOVING_REFERENCE = (
    Mistake(
        the_policy_itself,
        "policy and reference are one object, so they cancel: every gradient is 0, and nothing is learnt.",
        "trainers given one model for both, which TRL now refuses",
    ),
    Mistake(
        the_policy_itself_without_gradient,
        "the reference moves along with the policy: every margin stays 0 and every pull ½, which is the linear loss.",
        "a trainer whose reference was left out and taken from the policy at each step, says an issue there",
    ),
)
