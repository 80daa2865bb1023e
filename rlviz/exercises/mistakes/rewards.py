"""Wrong variants of what comes before a loss, rewards and the choice of groups, and of losses over preferences."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.pieces.selection import drop_all_equal
from rlviz.pieces.shaping import SoftOverlongPunishment

# --- overlong: (rewards, lengths [P, G]) → rewards after DAPO's punishment of long responses ---


def overlong(max_length: int, cache: int) -> tuple[Mistake, ...]:
    """Return the mistakes at DAPO's soft punishment, which falls from 0 at max_length − cache tokens to −1 at max_length."""
    start = max_length - cache
    right = SoftOverlongPunishment(max_length=max_length, cache=cache)

    def punishment(lengths: Tensor) -> Tensor:
        return right(torch.zeros(lengths.shape, dtype=torch.double), lengths)

    def ramp(lengths: Tensor, end: int = max_length, width: int = cache) -> Tensor:
        """Return −1 at `end` tokens and 0 `width` tokens earlier, straight on both sides."""
        return (end - width - lengths).double() / width

    return family(
        overlong_counts_the_prompt=Mistake(
            lambda rewards, lengths: right(rewards, lengths + 6),  # for a prompt of 6 tokens
            "the prompt's tokens are counted: only what the policy wrote can be overlong.",
            "the DCPO authors' reward manager, which passes the prompt's length alone",
        ),
        overlong_without_the_rewards=Mistake(
            lambda rewards, lengths: punishment(lengths),
            "this is the punishment alone: add it to the rewards.",
        ),
        overlong_as_a_bonus=Mistake(
            lambda rewards, lengths: rewards - punishment(lengths),
            "the sign is wrong: long responses gain what they should lose.",
        ),
        overlong_upside_down=Mistake(
            lambda rewards, lengths: rewards - 1 - punishment(lengths),
            "upside down: short responses lose 1, and the longest lose nothing. "
            f"The ramp is 0 at {start} tokens and −1 at {max_length}.",
        ),
        overlong_from_the_maximum_on=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths, end=max_length + cache).clamp(-1.0, 0.0),
            "the ramp begins at max_length: no response gets beyond it, so nobody is warned. It begins cache tokens earlier.",
        ),
        overlong_without_a_floor=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths).clamp(max=0.0),
            "beyond max_length the punishment goes on growing: it stops at −1.",
            "verl, whose sampler stops at max_length, so that it does not matter there",
        ),
        overlong_with_a_bonus_for_the_short=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths).clamp(min=-1.0),
            f"responses of under {start} tokens are paid for being short: up to there the punishment is 0.",
        ),
        overlong_never_clipped=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths),
            "the ramp has no ends: short responses are paid, very long ones lose more than 1. Clamp it from −1 to 0.",
        ),
        overlong_from_no_bonus_to_a_bonus=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths).clamp(0.0, 1.0),
            "clamp from −1 to 0, not from 0 to 1: short responses are paid, and long ones lose nothing.",
        ),
        overlong_from_a_loss_to_a_bonus=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths).clamp(-1.0, 1.0),
            "clamp from −1 to 0, not from −1 to 1: short responses are paid for being short.",
        ),
        overlong_and_the_sum_clamped=Mistake(
            lambda rewards, lengths: (rewards + ramp(lengths)).clamp(-1.0, 1.0),
            "you clamp the sum, from −1 to 1: clamp the punishment alone, from −1 to 0, then add it to the rewards.",
        ),
        overlong_and_the_sum_never_above_zero=Mistake(
            lambda rewards, lengths: (rewards + ramp(lengths)).clamp(-1.0, 0.0),
            "you clamp the sum: clamp the punishment alone, then add it to the rewards, or nobody earns anything.",
        ),
        overlong_for_right_answers_only=Mistake(
            lambda rewards, lengths: rewards + punishment(lengths) * (rewards > 0),
            "only right answers lose: add the punishment to wrong ones as well, or long wrong answers go free.",
        ),
        overlong_for_the_reward_beyond_the_maximum=Mistake(
            lambda rewards, lengths: torch.where(lengths > max_length, -1.0, rewards + punishment(lengths)),
            "beyond max_length you give −1, whatever the reward: there, too, the punishment is added to it.",
        ),
        overlong_punished_beyond_the_maximum_no_more=Mistake(
            lambda rewards, lengths: rewards + punishment(lengths) * (lengths <= max_length),
            "responses beyond max_length go free: they lose 1, like those of just that length.",
        ),
        overlong_as_a_factor=Mistake(
            lambda rewards, lengths: rewards * (1 + punishment(lengths)),
            "the rewards are multiplied: a wrong answer, reward 0, loses nothing however long it is. Add the punishment.",
        ),
        overlong_times_the_rewards=Mistake(
            lambda rewards, lengths: rewards * punishment(lengths),
            "the rewards are multiplied by the punishment: a short right answer earns 0. Add the two.",
        ),
        overlong_in_place_of_the_rewards=Mistake(
            lambda rewards, lengths: torch.where(lengths > start, punishment(lengths), rewards),
            f"beyond {start} tokens the punishment takes the reward's place: a long right answer earns what a wrong one does. "
            "Add it.",
        ),
        overlong_over_the_maximum_length=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths, end=start + max_length, width=max_length).clamp(-1.0, 0.0),
            f"divide by cache, the width of the ramp, not by max_length: at {max_length} tokens the punishment has to be −1.",
        ),
        overlong_from_the_cache_on=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths, end=2 * cache).clamp(-1.0, 0.0),
            f"the ramp begins at {cache} tokens, the cache: that is its width. It begins at max_length − cache, {start}.",
        ),
        overlong_from_the_cache_to_the_maximum=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths, end=max_length, width=max_length - cache).clamp(-1.0, 0.0),
            f"the ramp goes from {cache} tokens to {max_length}: cache is its width, so it begins at {start}.",
        ),
        overlong_from_the_cache_over_the_maximum=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths, end=cache + max_length, width=max_length).clamp(-1.0, 0.0),
            f"the ramp begins at {cache} tokens and is {max_length} wide: it begins at {start}, and cache is its width.",
        ),
        overlong_from_nothing_on=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths, width=max_length).clamp(-1.0, 0.0),
            f"the ramp begins at 0 tokens: short responses lose something too. It begins at {start}.",
        ),
        overlong_as_a_bonus_of_the_short=Mistake(
            lambda rewards, lengths: rewards - ramp(lengths).clamp(0.0, 1.0),
            f"the sign is wrong, and clamp cuts the ramp itself: short responses lose, and none beyond {start} tokens does.",
        ),
        overlong_by_the_length_divided_alone=Mistake(
            lambda rewards, lengths: rewards + (start - lengths / cache).clamp(-1.0, 0.0),
            "parentheses are missing: only the length is divided by cache. It is ((max_length − cache) − length) / cache.",
        ),
        overlong_not_divided_and_without_a_floor=Mistake(
            lambda rewards, lengths: rewards + (start - lengths).clamp(max=0),
            "the division by cache is missing, and the floor: a response loses one for each token too many.",
        ),
        overlong_not_divided_nor_clipped=Mistake(
            lambda rewards, lengths: rewards + (start - lengths),
            "you neither divide by cache nor clamp: short responses are paid by the token, long ones lose by it.",
        ),
        overlong_over_the_maximum_length_with_a_step=Mistake(
            lambda rewards, lengths: (
                rewards
                + torch.where(
                    lengths > max_length, -1.0, ramp(lengths, end=start + max_length, width=max_length).clamp(-1.0, 0.0)
                )
            ),
            f"divide by cache, {cache}, not by max_length: yours jumps to −1 behind {max_length} tokens in place of reaching it.",
        ),
        overlong_for_nothing_beyond_the_maximum=Mistake(
            lambda rewards, lengths: torch.where(lengths > max_length, 0.0, rewards + punishment(lengths)),
            "beyond max_length you set the reward to 0: the punishment of −1 is added to it there too.",
        ),
        overlong_filtered=Mistake(
            lambda rewards, lengths: torch.where(lengths > max_length, 0.0, rewards),
            "you take the reward of what is beyond max_length, and nothing else: the punishment grows before it, and is added.",
        ),
        overlong_over_the_start_of_the_ramp=Mistake(
            lambda rewards, lengths: rewards + ramp(lengths, end=2 * start, width=start).clamp(-1.0, 0.0),
            f"divide by cache, {cache}, the width of the ramp, not by {start}, where it begins: "
            f"at {max_length} tokens the punishment has to be −1.",
        ),
        overlong_in_full_at_once=Mistake(
            lambda rewards, lengths: rewards - (lengths > start).double(),
            f"from {start + 1} tokens on the full 1 is lost: divide by cache, with / and not //, "
            f"so that it grows by 1/{cache} a token.",
        ),
        overlong_by_a_cliff_at_the_maximum=Mistake(
            lambda rewards, lengths: rewards - (lengths > max_length).double(),
            "a cliff: nothing up to max_length, then 1. The soft punishment grows over the last cache tokens.",
        ),
        overlong_in_whole_numbers=Mistake(
            lambda rewards, lengths: rewards - (lengths >= max_length).double(),
            f"nothing is lost before {max_length} tokens: divide by /, not by //; "
            f"where you wrote a step at {max_length}, make it a ramp from {start}.",
        ),
    )


# --- selection: (rewards, lengths [P, G]) → the groups that teach something ---


def groups_by_shaped_rewards(rewards: Tensor, lengths: Tensor) -> Tensor:
    """With a punishment from 5 to 9 tokens."""
    shaped = SoftOverlongPunishment(max_length=9, cache=4)(rewards, lengths)
    return drop_all_equal(shaped)


SELECTION = family(
    groups_by_shaped_rewards=Mistake(
        groups_by_shaped_rewards,
        "groups are chosen by rewards with a punishment of length in them: right or wrong alike, they differ by length.",
        "NeMo-RL, issue 2431, mended in pull request 2478",
    ),
    groups_by_their_std=Mistake(
        lambda rewards, lengths: (rewards.std(1) > 0).nonzero().squeeze(1),
        "std > 0 is no test for equal rewards: ten rewards of .1 have a std above 0 once rounded. Compare the rewards.",
    ),
)
selection = Topic(SELECTION=SELECTION)


# --- preferences: (logp, ref_logp [N, 2, T], the chosen response first, mask, beta) → DPO's loss, one number ---


def _gains(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return by how much the log-probability of each chosen and each rejected response is above the reference's, [N]."""
    chosen, rejected = (logp - ref_logp).masked_fill(~mask, 0.0).sum(-1).unbind(-1)
    return chosen, rejected


def _margin(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """Return the gain of each chosen response minus that of the rejected one, [N]."""
    chosen, rejected = _gains(logp, ref_logp, mask)
    return chosen - rejected


def beta_on_the_chosen_only(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -logsigmoid(beta * chosen - rejected).mean()


def means_over_tokens(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    length = mask.sum(-1, keepdim=True)
    return -logsigmoid(beta * _margin(logp / length, ref_logp / length, mask)).mean()


def a_sigmoid_for_each_response(logp: Tensor, ref_logp: Tensor, mask: Tensor, beta: Tensor) -> Tensor:
    chosen, rejected = _gains(logp, ref_logp, mask)
    return -(logsigmoid(beta * chosen) - logsigmoid(beta * rejected)).mean()


def _of_token_margins(logp: Tensor, ref_logp: Tensor, beta: Tensor) -> Tensor:
    """Return log σ of the margin at each place, [N, T]."""
    chosen, rejected = (logp - ref_logp).unbind(1)
    return logsigmoid(beta * (chosen - rejected))


DPO_LOSS = family(
    reference_forgotten=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, 0 * ref_logp, mask)).mean(),
        "the reference is missing: what counts is how much likelier than under the reference, logp − ref_logp.",
        "Liger-Kernel's first DPO loss, which was CPO in effect: github.com/linkedin/Liger-Kernel/pull/387",
    ),
    beta_forgotten=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(_margin(logp, ref_logp, mask)).mean(),
        "beta is missing: it turns the margin, in nats, into a difference of rewards.",
    ),
    beta_on_the_chosen_only=Mistake(
        beta_on_the_chosen_only, "beta stands at the chosen response only: it multiplies the whole margin."
    ),
    beta_on_the_policy_only=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(_margin(beta * logp, ref_logp, mask)).mean(),
        "beta stands at the policy's log-probabilities only: the reference's need it as well.",
    ),
    beta_outside_the_sigmoid=Mistake(
        lambda logp, ref_logp, mask, beta: -beta * logsigmoid(_margin(logp, ref_logp, mask)).mean(),
        "beta stands outside of log σ, where it only scales the loss: inside, it says at which margin the pull fades.",
    ),
    divided_by_beta=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(_margin(logp, ref_logp, mask) / beta).mean(),
        "you divide by beta: the implicit reward is beta times the log-ratio.",
    ),
    means_over_tokens=Mistake(
        means_over_tokens,
        "you take means over tokens: the log-probability of a response is the sum over its tokens.",
        "SimPO (arXiv 2405.14734), on purpose",
    ),
    means_over_the_width=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, ref_logp, mask) / mask.shape[-1]).mean(),
        "you take means over places, padding included: the log-probability of a response is the sum over its tokens.",
    ),
    padding_in_the_sum=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, ref_logp, torch.ones_like(mask))).mean(),
        "padding leaks into the sum: add up where the mask is true, and nowhere else.",
    ),
    margin_turned_round=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(-beta * _margin(logp, ref_logp, mask)).mean(),
        "the margin is turned round, and the loss teaches the rejected responses: it is policy minus reference, chosen minus "
        "rejected.",
    ),
    linear_for_the_logarithm=Mistake(
        lambda logp, ref_logp, mask, beta: -(beta * _margin(logp, ref_logp, mask)).mean(),
        "that is the linear loss, −margin: the log σ is missing, and nothing lets go of a pair that is in order.",
    ),
    logarithm_forgotten=Mistake(
        lambda logp, ref_logp, mask, beta: -torch.sigmoid(beta * _margin(logp, ref_logp, mask)).mean(),
        "the logarithm is missing: −σ(margin) hardly pulls at a pair that is far out of order, where −log σ pulls most.",
    ),
    a_sigmoid_for_each_response=Mistake(
        a_sigmoid_for_each_response,
        "you take log σ of each reward by itself: it belongs around their difference, for only that is in the preference.",
    ),
    a_sigmoid_for_each_token=Mistake(
        lambda logp, ref_logp, mask, beta: -(_of_token_margins(logp, ref_logp, beta) * mask.all(1)).sum(-1).mean(),
        "you take log σ token by token: a preference is of whole responses, so add up log π − log π_ref of each first. The "
        "two responses' tokens at one place have nothing to do with each other.",
    ),
    a_sigmoid_for_each_token_of_the_chosen=Mistake(
        lambda logp, ref_logp, mask, beta: -(_of_token_margins(logp, ref_logp, beta) * mask[:, 0]).sum(-1).mean(),
        "you take log σ token by token, where the chosen response has tokens: add up log π − log π_ref of each whole response "
        "first.",
    ),
    a_sigmoid_for_each_place=Mistake(
        lambda logp, ref_logp, mask, beta: -_of_token_margins(logp * mask, ref_logp * mask, beta).sum(-1).mean(),
        "you take log σ at each place, where padding leaves log ½: add up log π − log π_ref of each response first.",
    ),
    a_mean_of_sigmoids_of_places=Mistake(
        lambda logp, ref_logp, mask, beta: -_of_token_margins(logp * mask, ref_logp * mask, beta).mean(),
        "you take log σ at each place, and their mean: add up log π − log π_ref of each response first.",
    ),
    hinge_for_the_logarithm=Mistake(
        lambda logp, ref_logp, mask, beta: torch.relu(1 - beta * _margin(logp, ref_logp, mask)).mean(),
        "that is the hinge loss, max(0, 1 − margin), as in SLiC: −log σ has no corner, and pulls least where a pair is in order.",
    ),
    hinge_without_beta=Mistake(
        lambda logp, ref_logp, mask, beta: torch.relu(1 - _margin(logp, ref_logp, mask)).mean(),
        "that is the hinge loss, and beta is missing: DPO's loss is −log σ(beta · margin).",
    ),
    hinge_at_zero=Mistake(
        lambda logp, ref_logp, mask, beta: torch.relu(-beta * _margin(logp, ref_logp, mask)).mean(),
        "max(0, −margin) lets go of a pair as soon as it is in order: −log σ still pulls there, ever less.",
    ),
    square_for_the_logarithm=Mistake(
        lambda logp, ref_logp, mask, beta: (_margin(logp, ref_logp, mask) - 1 / (2 * beta)).square().mean(),
        "that is IPO's loss, which draws each margin to 1 / (2 beta): DPO's is −log σ(beta · margin).",
    ),
    exponential_for_the_logarithm=Mistake(
        lambda logp, ref_logp, mask, beta: (-beta * _margin(logp, ref_logp, mask)).exp().mean(),
        "exp(−margin) is inside the logarithm, not the loss: −log σ(x) is log(1 + exp(−x)).",
    ),
    chance_of_the_other_order=Mistake(
        lambda logp, ref_logp, mask, beta: torch.sigmoid(-beta * _margin(logp, ref_logp, mask)).mean(),
        "that is the probability of the other order: take −log σ(margin), which pulls most where a pair is far out of order.",
    ),
    reference_and_beta_forgotten=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(_margin(logp, 0 * ref_logp, mask)).mean(),
        "the reference and beta are missing: the margin is of beta · (logp − ref_logp), summed over each response.",
    ),
    reference_and_sums_forgotten=Mistake(
        lambda logp, ref_logp, mask, beta: means_over_tokens(logp, 0 * ref_logp, mask, beta),
        "the reference is missing, and you take means over tokens, as SimPO does: DPO sums log π − log π_ref.",
    ),
    reference_at_the_chosen_only=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * (_gains(logp, ref_logp, mask)[0] - _gains(logp, 0 * ref_logp, mask)[1])).mean()
        ),
        "the reference is missing at the rejected response: both have theirs taken off.",
    ),
    reference_at_the_rejected_only=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * (_gains(logp, 0 * ref_logp, mask)[0] - _gains(logp, ref_logp, mask)[1])).mean()
        ),
        "the reference is missing at the chosen response: both have theirs taken off.",
    ),
    reference_added=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, -ref_logp, mask)).mean(),
        "you add the reference's margin: it is taken off, policy minus reference.",
    ),
    beta_on_the_rejected_only=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(_gains(logp, ref_logp, mask)[0] - beta * _gains(logp, ref_logp, mask)[1]).mean()
        ),
        "beta stands at the rejected response only: it multiplies the whole margin.",
    ),
    beta_twice=Mistake(
        lambda logp, ref_logp, mask, beta: -beta * logsigmoid(beta * _margin(logp, ref_logp, mask)).mean(),
        "beta stands before log σ as well: it belongs inside alone.",
    ),
    responses_added=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * sum(_gains(logp, ref_logp, mask))).mean(),
        "you add both responses: the margin is the chosen one's reward minus the rejected one's.",
    ),
    chosen_alone=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _gains(logp, ref_logp, mask)[0]).mean(),
        "the rejected response is missing: a preference only tells of the difference of both rewards.",
    ),
    each_response_a_verdict_of_its_own=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -(
                logsigmoid(beta * _gains(logp, ref_logp, mask)[0]) + logsigmoid(-beta * _gains(logp, ref_logp, mask)[1])
            ).mean()
        ),
        "you grade each response by itself, the chosen one up and the rejected one down: log σ is of their difference.",
    ),
    ratios_of_probabilities=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * torch.sub(*(gain.exp() for gain in _gains(logp, ref_logp, mask)))).mean()
        ),
        "you take exp of the log-ratios: the implicit reward is beta times the logarithm itself.",
    ),
    divided_by_the_tokens=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, ref_logp, mask)).sum() / mask.sum(),
        "you divide by the number of tokens: there is one loss a pair, so take the mean over pairs.",
    ),
    mask_at_the_policy_only=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * (_margin(logp, 0 * logp, mask) - _margin(ref_logp, 0 * logp, mask | True))).mean()
        ),
        "padding is in the reference's sum: both sums are over the mask.",
    ),
    mask_at_the_reference_only=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * (_margin(logp, 0 * logp, mask | True) - _margin(ref_logp, 0 * logp, mask))).mean()
        ),
        "padding is in the policy's sum: both sums are over the mask.",
    ),
    mask_turned_round=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, ref_logp, ~mask)).mean(),
        "you add up the padding: mask is true on real tokens, so x.masked_fill(~mask, 0).",
    ),
    means_over_all_places=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * _margin(logp, ref_logp, mask | True) / mask.shape[-1]).mean()
        ),
        "you take means over places, and without the mask: add up over the tokens of a response, where the mask is true.",
    ),
    first_pairs_for_chosen_and_rejected=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * torch.sub(*torch.stack(_gains(logp, ref_logp, mask), -1)[:2])).mean()
        ),
        "you take the first pair for the chosen responses, the second for the rejected: they are in dimension 1, x[:, 0] and "
        "x[:, 1].",
    ),
    every_chosen_with_every_rejected=Mistake(
        lambda logp, ref_logp, mask, beta: (
            -logsigmoid(beta * torch.sub(*torch.meshgrid(*_gains(logp, ref_logp, mask), indexing="ij"))).mean()
        ),
        "shapes [N, 1] and [N] made [N, N], each chosen response against every rejected one: make both [N].",
    ),
    policy_for_the_reference=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, logp.detach(), mask)).mean(),
        "your reference is the policy itself, so every margin is 0 and the loss ln 2: take off ref_logp.",
    ),
    rejected_alone=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(-beta * _gains(logp, ref_logp, mask)[1]).mean(),
        "the chosen response is missing: a preference only tells of the difference of both rewards.",
    ),
    both_responses_raised=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * torch.stack(_gains(logp, ref_logp, mask))).mean(),
        "you raise both responses, each by a log σ of its own: log σ is of their difference.",
    ),
    beta_of_a_tenth=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(0.1 * _margin(logp, ref_logp, mask)).mean(),
        "your beta is 0.1, whatever is asked for: use the argument.",
    ),
    beta_on_the_reference_only=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(_margin(logp, beta * ref_logp, mask)).mean(),
        "beta stands at the reference's log-probabilities only: the policy's need it as well.",
    ),
    linear_without_beta=Mistake(
        lambda logp, ref_logp, mask, beta: -_margin(logp, ref_logp, mask).mean(),
        "log σ and beta are missing: the loss is −log σ(beta · margin).",
    ),
    dpo_in_bits=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, ref_logp, mask)).mean() / math.log(2),
        "that is in bits: the logarithm is the natural one.",
    ),
    sum_over_the_pairs=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, ref_logp, mask)).sum(),
        "you add up the pairs' losses: take their mean, or a larger batch means larger steps.",
    ),
    mean_inside_the_sigmoid=Mistake(
        lambda logp, ref_logp, mask, beta: -logsigmoid(beta * _margin(logp, ref_logp, mask).mean()),
        "you average the margins and then take log σ of the mean: each pair has a loss of its own, so take the mean last.",
    ),
)


# in the place of the reference's log-probabilities, those of the policy: logp → ref_logp


def the_policy_itself(logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return logp


def the_policy_itself_without_gradient(logp: Tensor) -> Tensor:
    """In the place of the reference's log-probabilities."""
    return logp.detach()


MOVING_REFERENCE = family(
    the_policy_itself=Mistake(
        the_policy_itself,
        "policy and reference are one object, so they cancel: every gradient is 0, and nothing is learnt.",
        "TRL's DPOTrainer refuses it: `model` and `ref_model` cannot be the same object",
    ),
    the_policy_itself_without_gradient=Mistake(
        the_policy_itself_without_gradient,
        "the reference moves along with the policy: every margin stays 0 and every pull ½, which is the linear loss.",
    ),
)
preferences = Topic(DPO_LOSS=DPO_LOSS, MOVING_REFERENCE=MOVING_REFERENCE)


# --- reward_model: (chosen, rejected [N]) scores → the loss of a reward model, one number ---


def logarithm_of_the_sigmoid(chosen: Tensor, rejected: Tensor) -> Tensor:
    return -torch.log(torch.sigmoid(chosen - rejected)).mean()


REWARD_MODEL_LOSS = family(
    scores_swapped=Mistake(
        lambda chosen, rejected: -logsigmoid(rejected - chosen).mean(),
        "chosen and rejected are swapped: this teaches the model to score the rejected response higher.",
    ),
    logarithm_of_the_sigmoid=Mistake(
        logarithm_of_the_sigmoid,
        "right for scores that are near each other, but infinite, with no gradient, where the rejected one is far ahead: there "
        "the exponential is too large for a number, and the probability is rounded to 0, before the logarithm is taken. "
        "torch.nn.functional.logsigmoid takes all in one step.",
        "ColossalAI's RLHF application of 2023: github.com/hpcaitech/ColossalAI/issues/3490",
    ),
    sigmoid_without_its_logarithm=Mistake(
        lambda chosen, rejected: -torch.sigmoid(chosen - rejected).mean(),
        "the logarithm is missing: −σ hardly pulls at a pair that is far out of order, where −log σ pulls most.",
    ),
    chance_of_the_other_order=Mistake(
        lambda chosen, rejected: torch.sigmoid(rejected - chosen).mean(),
        "that is the probability of the other order, 1 − σ: take −log σ, which pulls most at a pair that is far out of order.",
    ),
    probability_of_the_right_order=Mistake(
        lambda chosen, rejected: torch.sigmoid(chosen - rejected).mean(),
        "that is the probability that the chosen one wins, and a loss is made small: take −log of it.",
    ),
    sigmoid_of_each_score_without_a_logarithm=Mistake(
        lambda chosen, rejected: (torch.sigmoid(rejected) - torch.sigmoid(chosen)).mean(),
        "you take σ of each score by itself, and no logarithm: the loss is −log σ of their difference.",
    ),
    each_score_a_verdict_of_its_own=Mistake(
        lambda chosen, rejected: -(logsigmoid(chosen) + logsigmoid(-rejected)).mean(),
        "you grade each response by itself, the chosen one as right and the rejected one as wrong: a preference only tells of "
        "the difference of their scores, and that goes into the sigmoid.",
    ),
    difference_of_the_scores=Mistake(
        lambda chosen, rejected: -(chosen - rejected).mean(),
        "the sigmoid and its logarithm are missing: nothing lets go of a pair that is in order, and the scores grow for ever.",
    ),
    sigmoid_of_each_score=Mistake(
        lambda chosen, rejected: -(logsigmoid(chosen) - logsigmoid(rejected)).mean(),
        "you take log σ of each score by itself: a preference only tells of their difference, so that goes into the sigmoid.",
    ),
    hinge=Mistake(
        lambda chosen, rejected: torch.relu(1 - (chosen - rejected)).mean(),
        "that is the hinge loss, max(0, 1 − difference): Bradley–Terry's is −log σ of the difference.",
    ),
    hinge_at_zero=Mistake(
        lambda chosen, rejected: torch.relu(rejected - chosen).mean(),
        "max(0, −difference) lets go of a pair as soon as it is in order: −log σ still pulls there, ever less.",
    ),
    square=Mistake(
        lambda chosen, rejected: (1 - (chosen - rejected)).square().mean(),
        "you draw the difference to 1, with a square: Bradley–Terry's loss is −log σ of the difference.",
    ),
    exponential=Mistake(
        lambda chosen, rejected: (rejected - chosen).exp().mean(),
        "exp(−difference) is inside the logarithm, not the loss: −log σ(x) is log(1 + exp(−x)).",
    ),
    scores_added=Mistake(
        lambda chosen, rejected: -logsigmoid(chosen + rejected).mean(),
        "you add the scores: σ is of the chosen one's minus the rejected one's.",
    ),
    scores_divided=Mistake(
        lambda chosen, rejected: -logsigmoid(chosen / rejected).mean(),
        "you divide the scores: σ is of their difference.",
    ),
    sigmoid_of_the_chosen_alone=Mistake(
        lambda chosen, rejected: (-logsigmoid(chosen) - rejected).mean(),
        "parentheses are missing: the rejected score is taken off inside, −logsigmoid(chosen − rejected).",
    ),
    loss_in_bits=Mistake(
        lambda chosen, rejected: -logsigmoid(chosen - rejected).mean() / math.log(2),
        "that is in bits: use the natural logarithm, which torch.log and logsigmoid are.",
    ),
    losses_added_up=Mistake(
        lambda chosen, rejected: -logsigmoid(chosen - rejected).sum(),
        "you add up the pairs' losses: take their mean, or a larger batch means larger steps.",
    ),
    mean_before_the_sigmoid=Mistake(
        lambda chosen, rejected: -logsigmoid((chosen - rejected).mean()),
        "you average the differences and then take log σ: each pair has a loss of its own, so take the mean last.",
    ),
    mean_before_the_logarithm=Mistake(
        lambda chosen, rejected: -torch.log(torch.sigmoid(chosen - rejected).mean()),
        "you average the probabilities and then take the logarithm: each pair has a loss of its own, so take the mean last.",
    ),
    every_chosen_against_every_rejected=Mistake(
        lambda chosen, rejected: -logsigmoid(chosen.unsqueeze(1) - rejected).mean(),
        "each chosen response is compared with every rejected one, also of other prompts: [N, 1] minus [N] is [N, N].",
    ),
)


def mean_over_all_places(scores: Tensor, mask: Tensor) -> Tensor:
    """In the place of a reward model's reading of a response: scores, mask [*n, T] → [*n]."""
    return scores[..., :-1].mean(-1)


READING = family(
    mean_over_all_places=Mistake(
        mean_over_all_places,
        "padding is in the mean, so a response's score depends on the longest one beside it in the batch.",
        "ColossalAI's RLHF application of 2023: github.com/hpcaitech/ColossalAI/issues/3950",
    ),
)
reward_model = Topic(REWARD_MODEL_LOSS=REWARD_MODEL_LOSS, READING=READING)
