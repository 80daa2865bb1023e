"""The check of lesson 08: weights of the policy's own tokens in other words pass, and each slip is named."""

import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from rlviz.pieces.aggregation import token_mean
from tests.exercises.slips import name_in
from tests.pieces.tensors import close

OBSERVATIONS = mistakes.observations
# ?3;1,#1$ and #7$: of the policy 6 tokens and 3, of the tool 2
TURN = torch.tensor([[[0, 0, 0, 1, 1, 2, 2, 2], [0, 0, 0, -1, -1, -1, -1, -1]]])
N = [0.0] * 5
RIGHT = [[[1 / 9, 1 / 9, 1 / 9, 0, 0, 1 / 9, 1 / 9, 1 / 9], [1 / 9, 1 / 9, 1 / 9, *N]]]

# the wrong variant → its weights by hand
BY_HAND = {
    OBSERVATIONS.tool_for_the_policy: [[0, 0, 0, 1 / 2, 1 / 2, 0, 0, 0], [0, 0, 0, *N]],
    OBSERVATIONS.tool_and_padding_for_the_policy: [[0, 0, 0, 1 / 7, 1 / 7, 0, 0, 0], [0, 0, 0, *[1 / 7] * 5]],
    OBSERVATIONS.tool_learned_too: [[1 / 11] * 8, [1 / 11, 1 / 11, 1 / 11, *N]],
    OBSERVATIONS.tool_in_the_denominator: [[1 / 11] * 3 + [0, 0] + [1 / 11] * 3, [1 / 11] * 3 + N],
    OBSERVATIONS.padding_in_the_denominator: [[1 / 16] * 3 + [0, 0] + [1 / 16] * 3, [1 / 16] * 3 + N],
    OBSERVATIONS.padding_for_the_policy: [[1 / 14] * 3 + [0, 0] + [1 / 14] * 3, [1 / 14] * 8],
    OBSERVATIONS.first_turn_only: [[1 / 6] * 3 + N, [1 / 6] * 3 + N],
    OBSERVATIONS.first_two_turns_only: RIGHT[0],  # one call at most here
    OBSERVATIONS.first_turn_left_out: [[0, 0, 0, *[1 / 5] * 5], [0] * 8],
    OBSERVATIONS.first_observation_left_out: RIGHT[0],
    OBSERVATIONS.first_observation_left_out_and_padding_in: [[1 / 14] * 3 + [0, 0] + [1 / 14] * 3, [1 / 14] * 8],
    OBSERVATIONS.answer_only: [[0] * 5 + [1 / 6] * 3, [1 / 6] * 3 + N],
    OBSERVATIONS.end_of_sequence_left_out: [[1 / 7] * 3 + [0, 0] + [1 / 7] * 2 + [0], [1 / 7] * 2 + [0, *N]],
    # late: places 1 2 3, 6 7 of the first and 1 2 3 of the second; early: 0 1, 4 5 6 and 0 1
    OBSERVATIONS.one_place_late: [[0, 1 / 8, 1 / 8, 1 / 8, 0, 0, 1 / 8, 1 / 8], [0, 1 / 8, 1 / 8, 1 / 8, 0, 0, 0, 0]],
    OBSERVATIONS.one_place_early: [[1 / 7, 1 / 7, 0, 0, 1 / 7, 1 / 7, 1 / 7, 0], [1 / 7, 1 / 7, 0, *N]],
    OBSERVATIONS.each_response_averaged_first: [[1 / 12] * 3 + [0, 0] + [1 / 12] * 3, [1 / 6] * 3 + N],
    OBSERVATIONS.each_response_for_itself: [[1 / 6] * 3 + [0, 0] + [1 / 6] * 3, [1 / 3] * 3 + N],
    OBSERVATIONS.each_group_averaged_first: RIGHT[0],  # one group here
    OBSERVATIONS.tool_in_the_length_of_a_response: [[1 / 16] * 3 + [0, 0] + [1 / 16] * 3, [1 / 6] * 3 + N],
    OBSERVATIONS.not_divided: [[1] * 3 + [0, 0] + [1] * 3, [1] * 3 + N],
}


def test_the_weights_by_hand():
    close(check._own_token_weights(TURN).double(), RIGHT)
    assert [mistake.wrong for mistake in OBSERVATIONS.OWN_TOKEN_WEIGHTS] == list(BY_HAND)
    for wrong, weights in BY_HAND.items():
        close(wrong(TURN).double(), [weights], rtol=1e-6)  # integers divide to float32


def test_what_two_calls_and_two_groups_show_by_hand():
    # a group of two calls, turns 0 to 4 and padding, and a group of one token
    turn = torch.tensor([[[0, 1, 2, 3, 4, -1]], [[0, -1, -1, -1, -1, -1]]])
    close(OBSERVATIONS.first_two_turns_only(turn), [[[1 / 3, 0, 1 / 3, 0, 0, 0]], [[1 / 3, *N]]])
    left_out = [[1 / 5, 0, 1 / 5, 1 / 5, 1 / 5, 0]], [[1 / 5, *N]]
    close(OBSERVATIONS.first_observation_left_out(turn), left_out)
    close(
        OBSERVATIONS.first_observation_left_out_and_padding_in(turn),
        [[[1 / 11, 0, *[1 / 11] * 4]], [[1 / 11] * 6]],
    )
    averaged = [[[1 / 6, 0, 1 / 6, 0, 1 / 6, 0]], [[1 / 2, *N]]]
    close(OBSERVATIONS.each_group_averaged_first(turn).double(), averaged, rtol=1e-6)


# --- right answers in other words ---


def one_policy_turn_after_the_other(turn):
    mask = sum((turn == number).double() for number in range(0, int(turn.max()) + 1, 2))
    return mask / mask.sum()


def without_the_tool_and_padding(turn):
    mask = torch.where((turn < 0) | (turn % 2 != 0), 0.0, 1.0)
    return mask / mask.sum()


def in_a_loop(turn):
    count = sum(number in (0, 2, 4) for number in turn.flatten().tolist())
    return torch.tensor([(number in (0, 2, 4)) / count for number in turn.flatten().tolist()]).reshape(turn.shape)


RIGHT_ONES = [one_policy_turn_after_the_other, without_the_tool_and_padding, in_a_loop, lambda t: token_mean(t % 2 < 1)]


@pytest.mark.parametrize("student", RIGHT_ONES, ids=lambda f: f.__name__)
def test_right_weights_in_other_words_pass(student):
    close(student(TURN).double(), RIGHT, rtol=1e-6)
    verdict = check.own_token_weights(student)
    assert verdict.passed, verdict


# --- slips, as a student writes them ---


SLIPS = {
    OBSERVATIONS.tool_for_the_policy: lambda t: ((t == 1) | (t == 3)) / ((t == 1) | (t == 3)).sum(),
    OBSERVATIONS.tool_and_padding_for_the_policy: lambda t: (t % 2) / (t % 2).sum(),
    OBSERVATIONS.tool_learned_too: lambda t: (t != -1) / (t != -1).sum(),
    OBSERVATIONS.tool_in_the_denominator: lambda t: (t % 2 == 0) / (t >= 0).sum(),
    OBSERVATIONS.padding_in_the_denominator: lambda t: (t % 2 == 0).float() / len(t.flatten()),
    OBSERVATIONS.padding_for_the_policy: lambda t: ((t != 1) & (t != 3)) / ((t != 1) & (t != 3)).sum(),
    OBSERVATIONS.first_turn_only: lambda t: (t == 0) / (t == 0).sum(),
    OBSERVATIONS.first_two_turns_only: lambda t: ((t % 2 == 0) & (t < 4)) / ((t % 2 == 0) & (t < 4)).sum(),
    OBSERVATIONS.first_turn_left_out: lambda t: (t > 0) / (t > 0).sum(),
    OBSERVATIONS.first_observation_left_out: lambda t: ((t != 1) & (t >= 0)) / ((t != 1) & (t >= 0)).sum(),
    OBSERVATIONS.first_observation_left_out_and_padding_in: lambda t: (t != 1) / (t != 1).sum(),
    OBSERVATIONS.each_group_averaged_first: lambda t: (t % 2 == 0) / (t % 2 == 0).sum((1, 2), True) / len(t),
    OBSERVATIONS.each_response_averaged_first: lambda t: (
        (t % 2 == 0) / (t % 2 == 0).sum(-1, keepdim=True) / t[..., 0].numel()
    ),
    OBSERVATIONS.each_response_for_itself: lambda t: (t % 2 == 0) / (t % 2 == 0).sum(-1, keepdim=True),
    OBSERVATIONS.tool_in_the_length_of_a_response: lambda t: (
        (t % 2 == 0) / (t >= 0).sum(-1, keepdim=True) / t[..., 0].numel()
    ),
    OBSERVATIONS.not_divided: lambda t: (t % 2 == 0).float(),
}


@pytest.mark.parametrize("wrong", SLIPS, ids=name_in(OBSERVATIONS.OWN_TOKEN_WEIGHTS))
def test_a_slip_is_named(wrong):
    (mistake,) = (mistake for mistake in OBSERVATIONS.OWN_TOKEN_WEIGHTS if mistake.wrong is wrong)
    assert check.own_token_weights(SLIPS[wrong]) == Verdict(False, mistake.says)


@pytest.mark.parametrize(
    ("student", "says"),
    [
        (lambda turn: None, "your function returns None: write your lines, and return their result."),
        (lambda turn: 1.0, "your function returns a float: return a torch tensor."),
        (
            lambda turn: (turn % 2 == 0).float().mean(),
            "your result has shape []; it has to be [1, 3, 13]. One value for each token: do not average or add over them.",
        ),
        (lambda turn: turn % 2 == 0 and 1, "your function broke off (RuntimeError): a comparison of whole tensors"),
        (  # the first batch has 9 + 6 + 3 of the policy's tokens, divided here by the sum of turns, 2 · 3 + 4 · 3 + 2 · 3
            lambda turn: (turn % 2 == 0) / (turn * (turn % 2 == 0)).sum(),
            "at [0, 0, 0] for turn 0: expected 0.05556, got 0.04167.",
        ),
    ],
)
def test_other_wrong_answers_are_told_in_a_sentence(student, says):
    verdict = check.own_token_weights(student)
    assert not verdict.passed
    assert verdict.says.startswith(says)
