"""Wrong variants of advantages from a critic. (rewards, values, mask), all [P, G, T], gamma, lam → advantages [P, G, T].

Rewards are 0 on padding; what stands there in `values` is arbitrary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.gae import GAE


def _after(x: Tensor) -> Tensor:
    """Return what stands after each token, 0 after the last."""
    return torch.cat([x[..., 1:], torch.zeros_like(x[..., :1])], -1)


def _summed(deltas: Tensor, decay: Tensor) -> Tensor:
    """Return Σ decayˡ δ_{t+l}: backwards, A_t = δ_t + decay A_{t+1}."""
    total, columns = torch.zeros_like(deltas[..., 0]), []
    for delta in deltas.unbind(-1)[::-1]:
        total = delta + decay * total
        columns.append(total)
    return torch.stack(columns[::-1], -1)


def _right(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    return GAE(gamma=gamma, lam=lam, whiten=False)(rewards, values, mask)[0]


def gamma_forgotten(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return _right(rewards, values, mask, 1.0, float(lam))


def gamma_forgotten_before_the_next_value(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor
) -> Tensor:
    values = values.masked_fill(~mask, 0.0)
    return _summed(rewards + _after(values) - values, gamma * lam)


def gamma_forgotten_in_the_sum(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    values = values.masked_fill(~mask, 0.0)
    return _summed(rewards + gamma * _after(values) - values, lam)


def lambda_forgotten(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return _right(rewards, values, mask, float(gamma), 1.0)


def delta_alone(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return _right(rewards, values, mask, float(gamma), 0.0)


def only_the_next_delta_added(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    deltas = delta_alone(rewards, values, mask, gamma, lam)
    return deltas + gamma * lam * _after(deltas)


def return_in_its_place(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return GAE(gamma=float(gamma), lam=float(lam), whiten=False)(rewards, values, mask)[1]


def value_not_taken_off(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    values = values.masked_fill(~mask, 0.0)
    return _summed(rewards + gamma * _after(values), gamma * lam)


def next_value_left_out(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return _summed(rewards - values.masked_fill(~mask, 0.0), gamma * lam)


def values_swapped(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    values = values.masked_fill(~mask, 0.0)
    return _summed(rewards + gamma * values - _after(values), gamma * lam)


def mask_forgotten(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return _summed(rewards + gamma * _after(values) - values, gamma * lam)


def padding_bootstrapped(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    deltas = rewards + gamma * _after(values) - values
    return _summed(deltas, gamma * lam).masked_fill(~mask, 0.0)


def value_after_the_end_bootstrapped(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor
) -> Tensor:
    deltas = (rewards + gamma * _after(values) - values).masked_fill(~mask, 0.0)
    return _summed(deltas, gamma * lam)


def first_value_after_the_last(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    values = values.masked_fill(~mask, 0.0)
    return _summed(rewards + gamma * values.roll(-1, -1) - values, gamma * lam)


def summed_forwards(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    deltas = delta_alone(rewards, values, mask, gamma, lam)
    return _summed(deltas.flip(-1), gamma * lam).flip(-1)


def whitened(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return GAE(gamma=float(gamma), lam=float(lam), whiten=True)(rewards, values, mask)[0]


def own_reward_minus_value(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return (rewards - values).masked_fill(~mask, 0.0)


GAE_ADVANTAGES = (
    Mistake(gamma_forgotten, "gamma is missing: it goes before the next value, and with lam before the next advantage."),
    Mistake(
        gamma_forgotten_before_the_next_value,
        "gamma is missing before the next value: delta is r + gamma · V_next − V.",
    ),
    Mistake(
        gamma_forgotten_in_the_sum,
        "gamma is missing before the next advantage: what comes later is weighed by gamma · lam.",
    ),
    Mistake(
        lambda_forgotten,
        "lam is missing, so this is GAE at lam 1, the whole sampled return minus V: weigh the next advantage by gamma · lam.",
    ),
    Mistake(
        delta_alone,
        "that is delta, GAE at lam 0: add gamma · lam times the next token's advantage, and keep each one for the turn after.",
    ),
    Mistake(
        only_the_next_delta_added,
        "you add the next token's delta: add its advantage, in which all later deltas are, and remember that one.",
    ),
    Mistake(
        return_in_its_place,
        "that is A + V, the return that the critic learns: the advantage is what is left when V is taken off.",
    ),
    Mistake(value_not_taken_off, "− V is missing in delta: a token is judged by what it changes, not by what was there before."),
    Mistake(
        next_value_left_out,
        "gamma times the next value is missing in delta, or next_value stays 0 because the loop never sets it: so every "
        "token is blamed for all that its V had hoped for.",
    ),
    Mistake(values_swapped, "V and the next value are swapped: delta is what the state is worth after the token, minus before."),
    Mistake(
        mask_forgotten,
        "the mask is not used: set the values on padding to 0 before the loop, so that V_next and A_next are 0 after the end.",
    ),
    Mistake(
        padding_bootstrapped,
        "padding leaks in: values after the last token are arbitrary, and yours run back through the recursion into the answer. "
        "Set them to 0 before the loop; masking the result is too late.",
        "the library ROLL, says github.com/alibaba/ROLL/pull/447",
    ),
    Mistake(
        value_after_the_end_bootstrapped,
        "the last token of a shorter answer takes its next value from padding: after the last token V is 0.",
    ),
    Mistake(
        first_value_after_the_last,
        "after the last token you come round to the first one's value: nothing comes after the last, so its next value is 0.",
    ),
    Mistake(
        summed_forwards,
        "you sum forwards: a token's advantage would then hold what came before it, which it did not cause. Go backwards.",
    ),
    Mistake(
        whitened,
        "you whiten: here the advantages themselves are asked for, without taking off their mean or dividing by their spread.",
    ),
    Mistake(
        own_reward_minus_value,
        "that is the token's own reward minus V: all but the last then get −V, right answer or wrong. What comes next is "
        "missing: keep V and A for the next turn of the loop.",
        "an example of the RLHF book until January 2026: github.com/natolambert/rlhf-book/pull/216",
    ),
)  # fmt: skip
