"""Wrong weights where policy and tool write by turns: turn [P, G, T], even the policy's, odd the tool's, −1 on padding."""

from __future__ import annotations

from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake
from rlviz.pieces.aggregation import sequence_mean, sequence_sum, token_mean


def _own(turn: Tensor) -> Tensor:
    return turn % 2 == 0


def _there(turn: Tensor) -> Tensor:
    return turn >= 0


def tool_for_the_policy(turn: Tensor) -> Tensor:
    return token_mean(_there(turn) & ~_own(turn))


def tool_and_padding_for_the_policy(turn: Tensor) -> Tensor:
    return token_mean(~_own(turn))


def tool_learned_too(turn: Tensor) -> Tensor:
    return token_mean(_there(turn))


def tool_in_the_denominator(turn: Tensor) -> Tensor:
    return _own(turn).double() / _there(turn).sum()


def padding_in_the_denominator(turn: Tensor) -> Tensor:
    return _own(turn).double() / turn.numel()


def padding_for_the_policy(turn: Tensor) -> Tensor:
    return token_mean(_own(turn) | ~_there(turn))


def first_turn_only(turn: Tensor) -> Tensor:
    return token_mean(turn == 0)


def first_two_turns_only(turn: Tensor) -> Tensor:
    return token_mean((turn == 0) | (turn == 2))


def first_turn_left_out(turn: Tensor) -> Tensor:
    return token_mean(turn > 0)


def first_observation_left_out(turn: Tensor) -> Tensor:
    return token_mean(_there(turn) & (turn != 1))


def first_observation_left_out_and_padding_in(turn: Tensor) -> Tensor:
    return token_mean(turn != 1)


def answer_only(turn: Tensor) -> Tensor:
    return token_mean(_own(turn) & (turn == turn.amax(-1, keepdim=True)))


def end_of_sequence_left_out(turn: Tensor) -> Tensor:
    last = _there(turn).cumsum(-1) == _there(turn).sum(-1, keepdim=True)
    return token_mean(_own(turn) & ~last)


def one_place_late(turn: Tensor) -> Tensor:
    mask = (turn % 2 == 0).roll(1, dims=-1)
    mask[..., 0] = False
    return token_mean(mask)


def one_place_early(turn: Tensor) -> Tensor:
    mask = _own(turn).roll(-1, dims=-1)
    mask[..., -1] = False
    return token_mean(mask)


def each_response_averaged_first(turn: Tensor) -> Tensor:
    return sequence_mean(_own(turn))


def each_response_for_itself(turn: Tensor) -> Tensor:
    return sequence_sum(_own(turn))


def each_group_averaged_first(turn: Tensor) -> Tensor:
    return _own(turn) / _own(turn).sum((1, 2), keepdim=True) / turn.shape[0]


def tool_in_the_length_of_a_response(turn: Tensor) -> Tensor:
    mask = turn % 2 == 0
    length = (turn >= 0).sum(-1, keepdim=True)
    return mask / length / mask.any(-1).sum()


def not_divided(turn: Tensor) -> Tensor:
    return _own(turn).double()


OWN_TOKEN_WEIGHTS = (
    Mistake(tool_for_the_policy, "the wrong way round: you weigh what the tool wrote. Even turns are the policy's."),
    Mistake(
        tool_and_padding_for_the_policy,
        "the wrong way round: you weigh what the tool wrote, and padding. Even turns are the policy's.",
    ),
    Mistake(tool_learned_too, "what the tool wrote has a weight: the policy would learn to imitate the tool."),
    Mistake(
        tool_in_the_denominator,
        "the right tokens, but you divide by all that was written, the tool's part included: count the policy's tokens only.",
    ),
    Mistake(padding_in_the_denominator, "you divide by every place of the tensor, padding and tool included."),
    Mistake(padding_for_the_policy, "padding has a weight: its turn is −1, and nobody wrote it."),
    Mistake(first_turn_only, "only the first turn has a weight: the policy's are 0, 2, 4 and so on."),
    Mistake(first_two_turns_only, "only turns 0 and 2 have a weight: with two calls, turn 4 is the policy's as well."),
    Mistake(
        first_turn_left_out,
        "turn 0 has no weight, and the tool's have one: the policy's are the even turns, beginning with 0.",
    ),
    Mistake(
        first_observation_left_out,
        "you leave out turn 1 only: turn 3, after a second call, is the tool's as well.",
    ),
    Mistake(
        first_observation_left_out_and_padding_in,
        "you leave out turn 1 only: turn 3, after a second call, is the tool's as well, and padding, −1, is nobody's.",
    ),
    Mistake(
        answer_only,
        "only the last turn has a weight: the calls are the policy's as well, and to look is what it has to learn.",
    ),
    Mistake(
        end_of_sequence_left_out,
        "the last token of each response is left out: the policy wrote the end of sequence, and must learn to stop.",
    ),
    Mistake(
        one_place_late,
        "your mask is one place late: the tool's first token has a weight, and the policy's first one of each turn has none.",
    ),
    Mistake(
        one_place_early,
        "your mask is one place early: the tool's last token has a weight, and the policy's last one of each turn has none.",
    ),
    Mistake(
        each_response_averaged_first,
        "you average each response first, as GRPO does: here every token of the policy weighs the same, whoever's it is.",
    ),
    Mistake(
        each_response_for_itself,
        "you divide by the tokens of each response: divide by the policy's tokens of the whole batch.",
    ),
    Mistake(
        each_group_averaged_first,
        "you average each prompt's group first: divide by the policy's tokens of the whole batch.",
    ),
    Mistake(
        tool_in_the_length_of_a_response,
        "you divide by the length of each response with the tool's part in it: whoever calls the tool is pushed less.",
    ),
    Mistake(
        not_divided,
        "that is the mask: divide it by the number of the policy's tokens, so that the weights add up to 1.",
    ),
)
