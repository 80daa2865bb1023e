"""Wrong variants of credit and weight: a group's and a critic's advantages, and what each token counts in the batch's mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rlviz.exercises.judge import Mistake, Topic, family
from rlviz.pieces.advantages import GroupAdvantage, LeaveOneOut
from rlviz.pieces.aggregation import sequence_mean, sequence_sum, token_mean
from rlviz.pieces.gae import GAE

# --- advantages of a group: rewards [P, G] → [P, G] ---


def _centre(rewards: Tensor) -> Tensor:
    return rewards.mean(1, keepdim=True)


def _spread(rewards: Tensor) -> Tensor:
    return rewards.std(1, keepdim=True)


def _standardized(rewards: Tensor, mean: Tensor, std: Tensor, eps: float = 1e-6) -> Tensor:
    return (rewards - mean) / (std + eps)


def std_above_zero_as_the_test(rewards: Tensor) -> Tensor:
    std = rewards.std(1, keepdim=True)
    return torch.where(std > 0, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)


def over_the_position_in_the_group(rewards: Tensor) -> Tensor:
    return _standardized(rewards, rewards.mean(0, keepdim=True), rewards.std(0, keepdim=True))


GROUP_ADVANTAGE = family(
    biased_std=Mistake(
        lambda rewards: _standardized(rewards, _centre(rewards), rewards.std(1, keepdim=True, correction=0)),
        "your std divides by G: the usual one here divides by G − 1 (torch's default), as in verl and TRL.",
    ),
    std_above_zero_as_the_test=Mistake(
        std_above_zero_as_the_test,
        "asking whether std > 0 is not enough: three rewards of 0.1 have a std of 1e-17, and got advantages of −0.8. "
        "Add a small eps to the std, or compare the largest and the smallest reward.",
        "the DCPO authors' code, github.com/lime-RL/DCPO, verl/trainer/ppo/core_algos.py",
    ),
    over_the_batch=Mistake(
        lambda rewards: _standardized(rewards, rewards.mean(), rewards.std()),
        "you averaged over the batch, not over the group: use dim 1, and keepdim.",
    ),
    over_the_position_in_the_group=Mistake(
        over_the_position_in_the_group, "you averaged over dim 0, the prompts: the group is dim 1."
    ),
    std_of_the_batch=Mistake(
        GroupAdvantage(scale="batch_std"),
        "your mean is the group's, but your std the batch's: that is Lite PPO's advantage.",
    ),
    std_forgotten=Mistake(
        GroupAdvantage(scale="none"),
        "the division by the std is missing: that is Dr.GRPO's advantage.",
    ),
    mean_forgotten=Mistake(
        lambda rewards: rewards / (_spread(rewards) + 1e-6),
        "the group's mean is not subtracted: without the baseline every right answer only pushes up.",
    ),
    variance_for_std=Mistake(
        lambda rewards: _standardized(rewards, _centre(rewards), rewards.var(1, keepdim=True)),
        "you divide by the variance: the std is its square root, .std() in place of .var().",
    ),
    eps_forgotten=Mistake(
        lambda rewards: _standardized(rewards, _centre(rewards), _spread(rewards), eps=0.0),
        "the small number added to the std is missing: where all rewards are equal, 0 or a rounding error is divided by "
        "another. Add 1e-6 to the std.",
    ),
    eps_of_one_in_ten_thousand=Mistake(
        GroupAdvantage(eps=1e-4),
        "your eps is not 1e-6 but 1e-4, as in TRL: add 1e-6 to the std.",
    ),
    eps_of_one_in_a_hundred_thousand=Mistake(
        GroupAdvantage(eps=1e-5),
        "your eps is not 1e-6 but 1e-5: add 1e-6 to the std.",
    ),
    mean_of_the_batch=Mistake(
        lambda rewards: _standardized(rewards, rewards.mean(), _spread(rewards)),
        "your std is the group's, but your mean the batch's: compare a response with those to its own prompt.",
    ),
    mean_of_the_batch_without_the_std=Mistake(
        lambda rewards: rewards - rewards.mean(),
        "you took off the batch's mean, and the division by the std is missing: both are the group's.",
    ),
    mean_of_the_position=Mistake(
        lambda rewards: _standardized(rewards, rewards.mean(0, keepdim=True), _spread(rewards)),
        "your std is the group's, but your mean is over dim 0, the prompts: the group is dim 1.",
    ),
    mean_divided_alone=Mistake(
        lambda rewards: rewards - _centre(rewards) / (_spread(rewards) + 1e-6),
        "parentheses are missing: only the mean is divided by the std. It is (R − mean) / (std + 1e-6).",
    ),
    multiplied_by_the_std=Mistake(
        lambda rewards: (rewards - _centre(rewards)) * (_spread(rewards) + 1e-6),
        "you multiply by the std: divide by it.",
    ),
    range_for_the_std=Mistake(
        lambda rewards: _standardized(
            rewards, _centre(rewards), rewards.amax(1, keepdim=True) - rewards.amin(1, keepdim=True)
        ),
        "you divide by the range, largest minus smallest reward: divide by the std.",
    ),
    own_reward_left_out_of_the_mean=Mistake(
        LeaveOneOut(),
        "your mean is that of the others, which is RLOO's advantage: here the group's whole mean and std count.",
    ),
    biased_std_without_eps=Mistake(
        lambda rewards: _standardized(rewards, _centre(rewards), rewards.std(1, keepdim=True, correction=0), eps=0.0),
        "your std divides by G, where the usual one here divides by G − 1, and the small number added to it is missing.",
    ),
)
MEAN_ONLY = family(
    mean_of_the_batch_alone=Mistake(
        lambda rewards: rewards - rewards.mean(),
        "you averaged over the batch, not over the group: use dim 1, and keepdim.",
    ),
    mean_of_the_position_alone=Mistake(
        lambda rewards: rewards - rewards.mean(0, keepdim=True),
        "you averaged over dim 0, the prompts: the group is dim 1.",
    ),
    rewards_as_they_are=Mistake(
        lambda rewards: rewards,
        "the group's mean is not subtracted: without the baseline every right answer only pushes up.",
    ),
)


advantages = Topic(GROUP_ADVANTAGE=GROUP_ADVANTAGE, MEAN_ONLY=MEAN_ONLY)


# --- gae: (rewards, values, mask [P, G, T], gamma, lam) → [P, G, T] ---
# Rewards are 0 on padding; what stands there in `values` is arbitrary.


def _after(x: Tensor) -> Tensor:
    """Return what stands after each token, 0 after the last."""
    return torch.cat([x[..., 1:], torch.zeros_like(x[..., :1])], -1)


def _summed(deltas: Tensor, decay: Tensor) -> Tensor:
    """Return Σ decayˡ δ_{t+l}, which is GAE where no value is anything: A_t = δ_t + decay A_{t+1}."""
    nothing = torch.zeros_like(deltas)
    return GAE(gamma=float(decay), lam=1.0, whiten=False)(deltas, nothing, nothing == 0)[0]


def _gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor | float, lam: Tensor | float, *, whiten: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the right advantages, and the returns A + V."""
    return GAE(gamma=float(gamma), lam=float(lam), whiten=whiten)(rewards, values, mask)


def _recursion(
    delta: Callable[..., Tensor] = lambda r, V, V_next, gamma, lam: r + gamma * V_next - V,
    decay: Callable[[Tensor, Tensor], Tensor] = lambda gamma, lam: gamma * lam,
) -> Callable[..., Tensor]:
    """Return GAE with this delta of (r, V, V_next, gamma, lam), both values 0 after the end, and this decay of (gamma, lam)."""

    def advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
        values = values.masked_fill(~mask, 0.0)
        return _summed(delta(rewards, values, _after(values), gamma, lam), decay(gamma, lam))

    return advantages


def _deltas(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor) -> Tensor:
    return _gae(rewards, values, mask, gamma, 0.0)[0]


def _own_value_after(of: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return GAE whose next value is the token's own, for the tokens that `of` makes of the mask, which are last ones."""

    def advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
        own = gamma * torch.where(of(mask), values.masked_fill(~mask, 0.0), 0.0)
        return _summed(_deltas(rewards, values, mask, gamma) + own, gamma * lam)

    return advantages


def _forwards(deltas: Tensor, decay: Tensor) -> Tensor:
    return _summed(deltas.flip(-1), decay).flip(-1)


def only_the_next_delta_added(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    deltas = _deltas(rewards, values, mask, gamma)
    return deltas + gamma * lam * _after(deltas)


def padding_bootstrapped(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    deltas = rewards + gamma * _after(values) - values
    return _summed(deltas, gamma * lam).masked_fill(~mask, 0.0)


def own_reward_minus_value(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return (rewards - values).masked_fill(~mask, 0.0)


GAE_ADVANTAGES = family(
    gamma_forgotten=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + V_next - V, lambda gamma, lam: lam),
        "gamma is missing: it goes before the next value, and with lam before the next advantage.",
    ),
    gamma_forgotten_before_the_next_value=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + V_next - V),
        "gamma is missing before the next value: delta is r + gamma · V_next − V.",
    ),
    gamma_forgotten_in_the_sum=Mistake(
        _recursion(decay=lambda gamma, lam: lam),
        "gamma is missing before the next advantage: what comes later is weighed by gamma · lam.",
    ),
    lambda_forgotten=Mistake(
        _recursion(decay=lambda gamma, lam: gamma),
        "lam is missing, so this is GAE at lam 1, the whole sampled return minus V: weigh the next advantage by gamma · lam.",
    ),
    delta_alone=Mistake(
        lambda rewards, values, mask, gamma, lam: _deltas(rewards, values, mask, gamma),
        "that is delta, GAE at lam 0: add gamma · lam times the next token's advantage, and keep each one for the turn after.",
    ),
    only_the_next_delta_added=Mistake(
        only_the_next_delta_added,
        "you add the next token's delta: add its advantage, in which all later deltas are, and remember that one.",
    ),
    return_in_its_place=Mistake(
        lambda rewards, values, mask, gamma, lam: _gae(rewards, values, mask, gamma, lam)[1],
        "that is A + V, the return that the critic learns: the advantage is what is left when V is taken off.",
    ),
    value_not_taken_off=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + gamma * V_next),
        "− V is missing in delta: a token is judged by what it changes, not by what was there before.",
    ),
    next_value_left_out=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r - V),
        "gamma times the next value is missing in delta, or next_value stays 0 because the loop never sets it: so every "
        "token is blamed for all that its V had hoped for.",
    ),
    values_swapped=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + gamma * V - V_next),
        "V and the next value are swapped: delta is what the state is worth after the token, minus before.",
    ),
    signs_of_the_values_turned=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + V - gamma * V_next),
        "both values in delta have the wrong sign: what is to come is added, what was expected before is taken off.",
    ),
    next_value_taken_off=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r - gamma * V_next - V),
        "you take the next value off in delta: it is what is still to come, so add gamma · V_next.",
    ),
    rewards_floored=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r.clamp(min=0) + gamma * V_next - V),
        "you set negative rewards to 0: take them as they are.",
    ),
    one_minus_lambda=Mistake(
        _recursion(decay=lambda gamma, lam: gamma * (1 - lam)),
        "you weigh the next advantage by gamma · (1 − lam): it is gamma · lam, so that lam 1 trusts the outcome.",
    ),
    mask_forgotten=Mistake(
        lambda rewards, values, mask, gamma, lam: _summed(rewards + gamma * _after(values) - values, gamma * lam),
        "the mask is not used: set the values on padding to 0 before the loop, so that V_next and A_next are 0 after the end.",
    ),
    padding_bootstrapped=Mistake(
        padding_bootstrapped,
        "padding leaks in: values after the last token are arbitrary, and yours run back through the recursion into the answer. "
        "Set them to 0 before the loop; masking the result is too late.",
        "the library ROLL, says github.com/alibaba/ROLL/pull/447",
    ),
    value_after_the_end_bootstrapped=Mistake(
        lambda rewards, values, mask, gamma, lam: _summed(
            (rewards + gamma * _after(values) - values).masked_fill(~mask, 0.0), gamma * lam
        ),
        "the last token of a shorter answer takes its next value from padding: after the last token V is 0.",
    ),
    first_value_after_the_last=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + gamma * V.roll(-1, -1) - V),
        "after the last token you come round to the first one's value: nothing comes after the last, so its next value is 0.",
    ),
    last_value_bootstrapped=Mistake(
        _own_value_after(lambda mask: mask & ~_after(mask)),
        "the last token takes its own value for the next one: the response is over there, so V after the last token is 0.",
    ),
    last_value_of_the_width_bootstrapped=Mistake(
        _own_value_after(lambda mask: mask & (torch.arange(mask.shape[-1]) == mask.shape[-1] - 1)),
        "your loop starts with the last token's own value as the next one: start with 0, for the response is over there.",
    ),
    summed_forwards_and_masked=Mistake(
        lambda rewards, values, mask, gamma, lam: _forwards(
            _deltas(rewards, values, mask, gamma), gamma * lam
        ).masked_fill(~mask, 0.0),
        "you sum forwards: a token's advantage would then hold what came before it. Go backwards, from the last token.",
    ),
    loop_from_the_first_token=Mistake(
        lambda rewards, values, mask, gamma, lam: _recursion()(
            *(x.flip(-1) for x in (rewards, values, mask)), gamma, lam
        ).flip(-1),
        "your loop begins at the first token, so what you keep as the next value is that of the token before: go backwards, "
        "over reversed(range(T)).",
    ),
    lambda_in_delta_too=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + gamma * lam * V_next - V),
        "lam stands in delta too: there the next value has gamma alone. lam only says how much later deltas count.",
    ),
    lambda_in_delta=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + gamma * lam * V_next - V, lambda gamma, lam: gamma),
        "lam stands in delta, where gamma belongs alone: it goes with gamma before the next advantage.",
    ),
    lambda_for_gamma=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + lam * V_next - V),
        "lam stands before the next value in place of gamma: delta is r + gamma · V_next − V.",
    ),
    both_forgotten_in_the_sum=Mistake(
        _recursion(decay=lambda gamma, lam: torch.ones_like(lam)),
        "gamma and lam are missing before the next advantage: what comes later is weighed by gamma · lam.",
    ),
    both_forgotten=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + V_next - V, lambda gamma, lam: torch.ones_like(lam)),
        "neither gamma nor lam is used: gamma goes before the next value, gamma · lam before the next advantage.",
    ),
    delta_weighed_by_the_rest=Mistake(
        lambda rewards, values, mask, gamma, lam: (1 - lam) * _gae(rewards, values, mask, gamma, lam)[0],
        "you weigh delta by 1 − lam: each delta counts in full, and only what comes later is weighed, by gamma · lam.",
    ),
    delta_weighed_too=Mistake(
        lambda rewards, values, mask, gamma, lam: gamma * lam * _gae(rewards, values, mask, gamma, lam)[0],
        "parentheses too many: gamma · lam weighs the next advantage alone, not the token's own delta.",
    ),
    gamma_on_the_change_of_value=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + gamma * (V_next - V)),
        "gamma multiplies both values: only the next one is discounted, r + gamma · V_next − V.",
    ),
    gamma_on_the_reward=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: gamma * (r + V_next) - V),
        "gamma multiplies the reward as well: only the next value is discounted, r + gamma · V_next − V.",
    ),
    value_added=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r + gamma * V_next + V),
        "you add V in delta: it is taken off, r + gamma · V_next − V.",
    ),
    discounted_rewards=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r, lambda gamma, lam: gamma),
        "that is the discounted return of the rewards: the values are not used, and no critic is needed for it.",
    ),
    rewards_for_deltas=Mistake(
        _recursion(lambda r, V, V_next, gamma, lam: r),
        "you sum rewards in place of deltas: the values are not used. delta is r + gamma · V_next − V.",
    ),
    summed_forwards=Mistake(
        lambda rewards, values, mask, gamma, lam: _forwards(_deltas(rewards, values, mask, gamma), gamma * lam),
        "you sum forwards: a token's advantage would then hold what came before it, which it did not cause. Go backwards.",
    ),
    whitened=Mistake(
        lambda rewards, values, mask, gamma, lam: _gae(rewards, values, mask, gamma, lam, whiten=True)[0],
        "you whiten: here the advantages themselves are asked for, without taking off their mean or dividing by their spread.",
    ),
    own_reward_minus_value=Mistake(
        own_reward_minus_value,
        "that is the token's own reward minus V: all but the last then get −V, right answer or wrong. What comes next is "
        "missing: keep V and A for the next turn of the loop.",
        "an example of the RLHF book until January 2026: github.com/natolambert/rlhf-book/pull/216",
    ),
)
gae = Topic(GAE_ADVANTAGES=GAE_ADVANTAGES)


# --- aggregation: mask [P, G, T] → the weight of each token in the batch's mean ---


def sequence_weight_on_every_token(mask: Tensor) -> Tensor:
    return mask.double() / mask.any(-1).sum()


def _lengths(mask: Tensor) -> Tensor:
    return mask.sum(-1, keepdim=True).clamp(min=1)


def length_mean_kept(mask: Tensor) -> Tensor:
    responses = mask.any(-1).sum()
    return mask.double() / (mask.sum(-1, keepdim=True).clamp(min=1) * responses)


# what every weight may be taken for; a family overrides a sentence that says more there, or leaves its own right one out.
# Weights on padding come last: in a whole loss, which is masked, they are one of the others.
_WEIGHTS = {
    "every_width_the_same": Mistake(
        lambda mask: mask.double() / mask.numel(),
        "padding leaks into the mean: you divide by the number of places, not by the number of tokens.",
    ),
    "tokens_and_sequences_swapped": Mistake(
        token_mean,
        "you average over all tokens at once: here every *response* is averaged first, then the responses.",
    ),
    "length_mean_kept": Mistake(
        length_mean_kept,
        "you divide by each response's own length: that is GRPO's mean of means, in which long responses are diluted.",
        "TRL, whose pull request 3138 asks for the missing half of Dr.GRPO: github.com/huggingface/trl/pull/3138",
    ),
    "responses_added_up": Mistake(
        sequence_sum,
        "you add up the responses' means, as DCPO does: the number of responses does not divide.",
    ),
    "length_mean_of_all_responses": Mistake(
        lambda mask: mask.double() / (_lengths(mask) * mask[..., 0].numel()),
        "you divide by each response's length, and count responses that have no token at all among them.",
    ),
    "sequence_weight_on_every_token": Mistake(
        sequence_weight_on_every_token,
        "each token gets the weight of a whole response, so long responses count more: a (B, 1) loss times a (B, T) mask, "
        "summed.",
        "TRL, issue 3823, describes it: github.com/huggingface/trl/issues/3823",
    ),
    "plain_token_sum": Mistake(
        lambda mask: mask.double(),
        "you sum over tokens and divide by nothing: the size of a step then depends on how much was written.",
        "the DCPO authors' code, where the paper has Eq. 8",
    ),
    "tokens_of_each_prompt": Mistake(
        lambda mask: mask / mask.sum((1, 2), keepdim=True).clamp(min=1),
        "you divide by the tokens of each prompt's group, and add the groups up: the sums are over the whole batch.",
    ),
    "mean_of_the_prompts": Mistake(
        lambda mask: mask / mask.sum((1, 2), keepdim=True).clamp(min=1) / mask.shape[0],
        "you average each prompt's group first, then the prompts, as DAPO's paper writes it: here it is over the whole batch.",
    ),
    "responses_of_a_group_counted": Mistake(
        lambda mask: mask / (_lengths(mask) * mask.shape[1]),
        "you divide by the size of one group: with several prompts there are more responses in the batch.",
    ),
    "prompts_counted": Mistake(
        lambda mask: mask / (_lengths(mask) * mask.shape[0]),
        "you divide by the number of prompts, dim 0: it is not the number of responses.",
    ),
    "lengths_not_clamped": Mistake(
        lambda mask: mask.double() / mask.sum(-1, keepdim=True),
        "a response without a token gives 0 / 0: clamp its length to at least 1, with .clamp(min=1).",
    ),
    "lengths_of_the_mean_not_clamped": Mistake(
        lambda mask: mask.double() / mask.sum(-1, keepdim=True) / mask.any(-1).sum(),
        "in a response without a token 0 is divided by 0: clamp its length to at least 1, with .clamp(min=1).",
    ),
    "over_the_group_s_axis": Mistake(
        lambda mask: mask / mask.sum(-2, keepdim=True).clamp(min=1),
        "you sum over dim −2, the responses of a group: a response's length is its sum over the last dim.",
    ),
    "width_for_the_length": Mistake(
        lambda mask: mask.double() / mask.shape[-1],
        "you divide by the width of the tensor, padding included.",
    ),
    "width_of_the_tensor_for_the_maximum": Mistake(
        lambda mask: mask.double() / (mask.any(-1).sum() * mask.shape[-1]),
        "you divide by the width of the tensor and the number of responses, so padding is counted.",
    ),
    "longest_response_for_the_maximum": Mistake(
        lambda mask: mask.double() / (mask.any(-1).sum() * mask.sum(-1).max()),
        "you divide by the longest response of the batch, whatever the others' lengths are.",
    ),
    "divided_by_tokens_and_responses": Mistake(
        lambda mask: mask / mask.sum() / mask.any(-1).sum(),
        "you divide twice, by the number of tokens and by the number of responses.",
    ),
    "divided_by_the_length_twice": Mistake(
        lambda mask: length_mean_kept(mask) / _lengths(mask),
        "you divide by each response's length twice.",
    ),
    "padding_weighs_too": Mistake(
        lambda mask: torch.ones_like(mask, dtype=torch.double) / mask.numel(),
        "padding gets a weight, and is counted: it is 0 wherever the mask is false.",
    ),
    "padding_weighs_as_a_token": Mistake(
        lambda mask: torch.ones_like(mask, dtype=torch.double) / mask.sum(),
        "you divide by the number of tokens, but padding gets a weight too: multiply by the mask.",
    ),
    "padding_weighs_as_its_response": Mistake(
        lambda mask: (1 / (_lengths(mask) * mask.any(-1).sum())).expand(mask.shape),
        "you divide by each response's length, but padding gets a weight too: multiply by the mask.",
    ),
}


def _weights_but(right: str, **says: str) -> tuple[Mistake, ...]:
    """Return the mistakes above but the one of this name, some with a sentence of their own."""
    return family(
        **{name: replace(row, says=says.get(name, row.says)) for name, row in _WEIGHTS.items() if name != right}
    )


SEQUENCE_MEAN = _weights_but(
    "length_mean_kept",
    length_mean_of_all_responses="you count responses that have no token at all: leave them out of B.",
)
TOKEN_MEAN = _weights_but("tokens_and_sequences_swapped")
SEQUENCE_SUM = _weights_but(
    "responses_added_up",
    tokens_and_sequences_swapped="you average over all tokens at once: here every response is averaged, and those are added up.",
    length_mean_kept="you average the responses' means, as GRPO does: here they are added up, and their number does not divide.",
)


def constant(max_length: int) -> tuple[Mistake, ...]:
    """Return the mistakes at Dr.GRPO's weights, for this maximum length: 1 / (responses · max_length) on every token."""
    return family(
        nothing_divided_by_the_responses=Mistake(
            lambda mask: mask.double() / max_length,
            f"you divide by {max_length} only: divide by the number of responses too.",
        ),
        prompts_counted_for_responses=Mistake(
            lambda mask: mask.double() / (mask.shape[0] * max_length),
            "you count prompts (dim 0): the number of responses is what divides.",
        ),
        all_responses_counted=Mistake(
            lambda mask: mask.double() / (mask[..., 0].numel() * max_length),
            "you count responses that have no token at all: leave them out.",
        ),
        responses_of_each_prompt_counted=Mistake(
            lambda mask: mask.double() / (mask.any(-1).sum(1)[:, None, None].clamp(min=1) * max_length),
            "you count the responses of each prompt by itself: the mean is over all responses of the batch.",
        ),
        padding_weighs_at_the_maximum=Mistake(
            lambda mask: torch.ones_like(mask, dtype=torch.double) / (mask.any(-1).sum() * max_length),
            "padding gets a weight: it is 0 wherever the mask is false.",
        ),
    ) + _weights_but(
        "",
        every_width_the_same="you divide by the number of places, padding included: Dr.GRPO divides by responses · "
        f"{max_length}, whatever was written.",
        tokens_and_sequences_swapped="you divide by the tokens of this batch, which is DAPO's mean: Dr.GRPO divides by "
        f"responses · {max_length}, whatever was written.",
        length_mean_kept="you divide by each response's own length, which is GRPO's mean and the bias that Dr.GRPO removes: "
        f"divide by {max_length} instead.",
        width_of_the_tensor_for_the_maximum=f"you divide by the width of the tensor: the maximum is fixed, {max_length}.",
        longest_response_for_the_maximum=f"you divide by the longest response: the maximum is fixed, {max_length}.",
        sequence_weight_on_every_token="you divide by the number of responses only: divide by the maximum length, "
        f"{max_length}, too.",
    )


aggregation = Topic(SEQUENCE_MEAN=SEQUENCE_MEAN, TOKEN_MEAN=TOKEN_MEAN, SEQUENCE_SUM=SEQUENCE_SUM, constant=constant)


# --- observations: turn [P, G, T] → weights; even turns are the policy's, odd ones the tool's, and −1 is padding ---


def _own(turn: Tensor) -> Tensor:
    return turn % 2 == 0


def _there(turn: Tensor) -> Tensor:
    return turn >= 0


def one_place_late(turn: Tensor) -> Tensor:
    mask = (turn % 2 == 0).roll(1, dims=-1)
    mask[..., 0] = False
    return token_mean(mask)


def tool_in_the_length_of_a_response(turn: Tensor) -> Tensor:
    mask = turn % 2 == 0
    length = (turn >= 0).sum(-1, keepdim=True)
    return mask / length / mask.any(-1).sum()


OWN_TOKEN_WEIGHTS = family(
    tool_for_the_policy=Mistake(
        lambda turn: token_mean(_there(turn) & ~_own(turn)),
        "the wrong way round: you weigh what the tool wrote. Even turns are the policy's.",
    ),
    tool_and_padding_for_the_policy=Mistake(
        lambda turn: token_mean(~_own(turn)),
        "the wrong way round: you weigh what the tool wrote, and padding. Even turns are the policy's.",
    ),
    tool_learned_too=Mistake(
        lambda turn: token_mean(turn >= 0),
        "what the tool wrote has a weight: the policy would learn to imitate the tool.",
    ),
    tool_in_the_denominator=Mistake(
        lambda turn: _own(turn).double() / _there(turn).sum(),
        "the right tokens, but you divide by all that was written, the tool's part included: count the policy's tokens only.",
    ),
    padding_in_the_denominator=Mistake(
        lambda turn: _own(turn).double() / turn.numel(),
        "you divide by every place of the tensor, padding and tool included.",
    ),
    padding_for_the_policy=Mistake(
        lambda turn: token_mean(_own(turn) | ~_there(turn)),
        "padding has a weight: its turn is −1, and nobody wrote it.",
    ),
    first_turn_only=Mistake(
        lambda turn: token_mean(turn == 0), "only the first turn has a weight: the policy's are 0, 2, 4 and so on."
    ),
    first_two_turns_only=Mistake(
        lambda turn: token_mean((turn == 0) | (turn == 2)),
        "only turns 0 and 2 have a weight: with two calls, turn 4 is the policy's as well.",
    ),
    first_turn_left_out=Mistake(
        lambda turn: token_mean(turn > 0),
        "turn 0 has no weight, and the tool's have one: the policy's are the even turns, beginning with 0.",
    ),
    first_observation_left_out=Mistake(
        lambda turn: token_mean(_there(turn) & (turn != 1)),
        "you leave out turn 1 only: turn 3, after a second call, is the tool's as well.",
    ),
    first_observation_left_out_and_padding_in=Mistake(
        lambda turn: token_mean(turn != 1),
        "you leave out turn 1 only: turn 3, after a second call, is the tool's as well, and padding, −1, is nobody's.",
    ),
    answer_only=Mistake(
        lambda turn: token_mean(_own(turn) & (turn == turn.amax(-1, keepdim=True))),
        "only the last turn has a weight: the calls are the policy's as well, and to look is what it has to learn.",
    ),
    end_of_sequence_left_out=Mistake(
        lambda turn: token_mean(_own(turn) & _after(_there(turn))),
        "the last token of each response is left out: the policy wrote the end of sequence, and must learn to stop.",
    ),
    one_place_late=Mistake(
        one_place_late,
        "your mask is one place late: the tool's first token has a weight, and the policy's first one of each turn has none.",
    ),
    one_place_early=Mistake(
        lambda turn: token_mean(_after(_own(turn))),
        "your mask is one place early: the tool's last token has a weight, and the policy's last one of each turn has none.",
    ),
    each_response_averaged_first=Mistake(
        lambda turn: sequence_mean(_own(turn)),
        "you average each response first, as GRPO does: here every token of the policy weighs the same, whoever's it is.",
    ),
    each_response_for_itself=Mistake(
        lambda turn: sequence_sum(_own(turn)),
        "you divide by the tokens of each response: divide by the policy's tokens of the whole batch.",
    ),
    each_group_averaged_first=Mistake(
        lambda turn: _own(turn) / _own(turn).sum((1, 2), keepdim=True) / turn.shape[0],
        "you average each prompt's group first: divide by the policy's tokens of the whole batch.",
    ),
    tool_in_the_length_of_a_response=Mistake(
        tool_in_the_length_of_a_response,
        "you divide by the length of each response with the tool's part in it: whoever calls the tool is pushed less.",
    ),
    not_divided=Mistake(
        lambda turn: _own(turn).double(),
        "that is the mask: divide it by the number of the policy's tokens, so that the weights add up to 1.",
    ),
)
observations = Topic(OWN_TOKEN_WEIGHTS=OWN_TOKEN_WEIGHTS)
