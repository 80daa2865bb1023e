"""The check of lesson 07: the soft punishment in other words passes, each slip is called by its name, and what is no answer is
told kindly. Right and wrong values by hand on one group; and the groups that a wrong selection lets through."""

import pytest
import torch

from rlviz.exercises import cases, check, mistakes
from rlviz.exercises.judge import Topic, Verdict
from rlviz.pieces.selection import drop_all_equal
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double

ZOO = Topic(OVERLONG=mistakes.overlong(max_length=16, cache=4))
# From 12 to 16 tokens: a right answer below the ramp, a right one at its middle, a wrong one at its end, a right one beyond.
REWARDS, LENGTHS = double([[1, 1, 0, 1]]), torch.tensor([[8, 14, 16, 20]])
RIGHT = [[1, 0.5, -1, 0]]


def piece_by_piece(rewards, lengths):
    punishment = torch.zeros_like(rewards)
    ramp = (lengths > 12) & (lengths <= 16)
    punishment[ramp] = (12 - lengths[ramp]).double() / 4
    punishment[lengths > 16] = -1
    return rewards + punishment


def one_by_one(rewards, lengths):
    rows = [
        [reward - min(max((length - 12) / 4, 0), 1) for reward, length in zip(*row, strict=True)]
        for row in zip(rewards.tolist(), lengths.tolist(), strict=True)
    ]
    return torch.tensor(rows)


RIGHT_ANSWERS = {
    "cases": piece_by_piece,
    "loop, in float32": one_by_one,
    "relu": lambda r, n: r - torch.relu(torch.relu(n - 12.0) / 4 - torch.relu(n - 16.0) / 4),
    "the paper's order": lambda r, n: r + torch.where(n <= 12, 0, torch.where(n <= 16, (12 - n) / 4, -1)),
    "float32": lambda r, n: r.float() - ((n - 12) / 4).clamp(0, 1),
}

# the wrong variant → its values by hand, and how a student would write it
SLIPS = {
    ZOO.overlong_counts_the_prompt: ([[0.5, 0, -1, 0]], lambda r, n: r + ((6 - n) / 4).clamp(-1, 0)),
    ZOO.overlong_without_the_rewards: ([[0, -0.5, -1, -1]], lambda r, n: ((12 - n.double()) / 4).clamp(-1, 0)),
    ZOO.overlong_as_a_bonus: ([[1, 1.5, 1, 2]], lambda r, n: r + ((n - 12) / 4).clamp(0, 1)),
    ZOO.overlong_upside_down: ([[0, 0.5, 0, 1]], lambda r, n: r - ((16 - n) / 4).clamp(0, 1)),
    ZOO.overlong_from_the_maximum_on: ([[1, 1, 0, 0]], lambda r, n: r - ((n - 16) / 4).clamp(0, 1)),
    ZOO.overlong_without_a_floor: ([[1, 0.5, -1, -1]], lambda r, n: r - torch.relu((n - 12) / 4)),
    ZOO.overlong_with_a_bonus_for_the_short: ([[2, 0.5, -1, 0]], lambda r, n: r - ((n - 12) / 4).clamp(max=1)),
    ZOO.overlong_never_clipped: ([[2, 0.5, -1, -1]], lambda r, n: r - (n - 12) / 4),
    ZOO.overlong_from_no_bonus_to_a_bonus: ([[2, 1, 0, 1]], lambda r, n: r - ((n - 12) / 4).clamp(-1, 0)),
    ZOO.overlong_from_a_loss_to_a_bonus: ([[2, 0.5, -1, 0]], lambda r, n: r - ((n - 12) / 4).clamp(-1, 1)),
    ZOO.overlong_and_the_sum_clamped: ([[1, 0.5, -1, -1]], lambda r, n: (r + 3 - n / 4).clamp(-1, 1)),
    ZOO.overlong_and_the_sum_never_above_zero: ([[0, 0, -1, -1]], lambda r, n: (r + 3 - n / 4).clamp(-1, 0)),
    ZOO.overlong_for_right_answers_only: (
        [[1, 0.5, 0, 0]],
        lambda r, n: r - (r > 0) * ((n - 12) / 4).clamp(0, 1),
    ),
    ZOO.overlong_for_the_reward_beyond_the_maximum: (
        [[1, 0.5, -1, -1]],
        lambda r, n: torch.where(n > 16, 0, r) + ((12 - n) / 4).clamp(-1, 0),
    ),
    ZOO.overlong_punished_beyond_the_maximum_no_more: (
        [[1, 0.5, -1, 1]],
        lambda r, n: r + torch.where((n > 12) & (n <= 16), (12 - n) / 4, 0),
    ),
    ZOO.overlong_as_a_factor: ([[1, 0.5, 0, 0]], lambda r, n: r * (1 - ((n - 12) / 4).clamp(0, 1))),
    ZOO.overlong_times_the_rewards: ([[0, -0.5, 0, -1]], lambda r, n: -r * ((n - 12) / 4).clamp(0, 1)),
    ZOO.overlong_in_place_of_the_rewards: (
        [[1, -0.5, -1, -1]],
        lambda r, n: torch.where(n <= 12, r, ((12 - n) / 4).clamp(min=-1).double()),
    ),
    ZOO.overlong_over_the_maximum_length: ([[1, 0.875, -0.25, 0.5]], lambda r, n: r - ((n - 12) / 16).clamp(0, 1)),
    ZOO.overlong_over_the_start_of_the_ramp: (
        [[1, 5 / 6, -1 / 3, 1 / 3]],
        lambda r, n: r - ((n - 12).double() / 12).clamp(0, 1),
    ),
    ZOO.overlong_in_full_at_once: ([[1, 0, -1, 0]], lambda r, n: r + ((12 - n) // 4).clamp(-1, 0)),
    ZOO.overlong_by_a_cliff_at_the_maximum: ([[1, 1, 0, 0]], lambda r, n: torch.where(n > 16, r - 1, r)),
    ZOO.overlong_in_whole_numbers: ([[1, 1, -1, 0]], lambda r, n: r - (n >= 16).double()),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(ZOO.OVERLONG))


@pytest.mark.parametrize("words", RIGHT_ANSWERS)
def test_the_right_punishment_passes_in_other_words(words):
    close(RIGHT_ANSWERS[words](REWARDS, LENGTHS).double(), RIGHT)
    verdict = check.soft_overlong_punishment(RIGHT_ANSWERS[words])
    assert verdict.passed, verdict
    assert "on the ramp" in verdict.says


def test_the_cases_have_what_the_praise_says():
    lengths = {
        length for case in cases.lengths(max_length=16, cache=4) for length in case["lengths"].flatten().tolist()
    }
    rewards = {
        reward for case in cases.lengths(max_length=16, cache=4) for reward in case["rewards"].flatten().tolist()
    }
    assert {12, 13, 14, 15, 16, 17} < lengths  # the ramp, its two ends, the first token beyond
    assert min(lengths) < 6
    assert max(lengths) > 30
    assert {0, 1} < rewards


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.soft_overlong_punishment, ZOO.OVERLONG)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    expected, written = SLIPS[wrong]
    close(wrong(REWARDS, LENGTHS), expected)
    close(written(REWARDS, LENGTHS).double(), expected)


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.soft_overlong_punishment(SLIPS[wrong][1]) == Verdict(False, says_of(ZOO.OVERLONG, wrong))


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda r, n: None, "your function returns None: write your lines, and return their result."),
        (
            lambda r, n: (r + ((12 - n) / 4).clamp(-1, 0)).mean(),
            "your result has shape []; it has to be [2, 6]. One value for each response: do not average or add over them.",
        ),
        (lambda r, n: r.sum(1), "your result has shape [2]; it has to be [2, 6]."),
        (lambda r, n: (r + ((12 - n) / 4).clamp(-1, 0)).numpy(), "your function returns a ndarray"),
        (
            lambda r, n: 0 if n <= 12 else -1,
            "your function broke off (RuntimeError): a comparison of whole tensors has no",
        ),
        (lambda r, n: -piece_by_piece(r, n), "the sign is wrong: everything is the negative of what it should be."),
        # a ramp that begins a token early; 12 tokens, reward 1, lose 1/5
        (
            lambda r, n: r + ((11 - n) / 5).clamp(-1, 0),
            "at [0, 2] for rewards 1, lengths 12: expected 1, got 0.8.",
        ),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    verdict = check.soft_overlong_punishment(student)
    assert not verdict.passed
    assert verdict.says.startswith(words)


# --- which groups a wrong selection lets through ---

RIGHT_AND_WRONG = double([[1, 1, 1], [0, 0, 0], [1, 0, 1]])


def test_shaped_rewards_revive_dead_groups_by_hand():
    # from 5 to 9 tokens: 8 8 5 tokens lose ¾ ¾ 0; 3 4 5 nothing, so of the first two groups only the first is let through
    lengths = torch.tensor([[8, 8, 5], [3, 4, 5], [8, 3, 8]])
    assert drop_all_equal(RIGHT_AND_WRONG).tolist() == [2]
    assert mistakes.selection.groups_by_shaped_rewards(RIGHT_AND_WRONG, lengths).tolist() == [0, 2]


def test_a_std_above_0_keeps_equal_tenths():
    # in floating point the mean of ten rewards of .1 is not .1, whatever they are worth
    tenths = torch.full((1, 10), 0.1)
    assert tenths.std() > 0
    assert drop_all_equal(tenths).tolist() == []
    assert mistakes.selection.groups_by_their_std(tenths, torch.ones(1, 10)).tolist() == [0]
    assert mistakes.selection.groups_by_their_std(RIGHT_AND_WRONG, torch.ones(3, 3)).tolist() == [2]


def test_every_wrong_selection_is_tested():
    tested = {mistakes.selection.groups_by_shaped_rewards, mistakes.selection.groups_by_their_std}
    assert {mistake.wrong for mistake in mistakes.selection.SELECTION} == tested
