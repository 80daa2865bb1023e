"""The check of lesson 04: process credit in other words passes, each slip is called by its name, and what is no answer is told
kindly. Right and wrong values by hand on a batch of one group and one of two."""

import math

import pytest
import torch

from rlviz.exercises import cases, check, mistakes
from rlviz.exercises.check import Verdict
from rlviz.pieces.advantages import ProcessAdvantage
from tests.exercises.slips import name_in, says_of
from tests.pieces.tensors import close, double

ZOO = mistakes.advantages
# Two answers. The first has steps that end at tokens 0 and 2 and earn 4 and 0; the second one that ends at token 1, earns 2,
# and a token after it. Step rewards 4 0 2: mean 2, deviations 2 −2 0, variance 8/2 = 4, std 2, so z = 1 −1 0.
REWARDS = double([[[4, 0, 0], [0, 2, 0]]])
ENDS = torch.tensor([[[1, 0, 1], [0, 1, 0]]], dtype=torch.bool)
RIGHT = [[[0, -1, -1], [0, 0, 0]]]
BIASED = math.sqrt(3 / 2)  # the biased variance is 8/3: z is 2 / √(8/3)
# all six places, 4 0 0 0 2 0: mean 1, variance (9 + 1 + 1 + 1 + 1 + 1)/5 = 14/5; the ends' deviations are 3 −1 1
PADDED = math.sqrt(14 / 5)

# --- a student's helpers: a group at a time, with boolean indices, as the library does not do it ---


def group_by_group(rewards, ends, what):
    return torch.stack([what(r[e]) for r, e in zip(rewards, ends, strict=True)]).view(-1, 1, 1)


def mean_of(rewards, ends):
    return group_by_group(rewards, ends, torch.mean)


def std_of(rewards, ends):
    return group_by_group(rewards, ends, torch.std)


def biased(values):
    return values.std(correction=0)


def z_of(rewards, ends):
    return torch.where(ends, (rewards - mean_of(rewards, ends)) / (std_of(rewards, ends) + 1e-6), 0.0)


def scaled(deviations, ends):
    """Sum up z from all these deviations, and as many steps as there are."""
    squares, counts = (deviations**2).flatten(1).sum(1), ends.flatten(1).sum(1)
    return from_here(ends * deviations / ((squares / (counts - 1)).sqrt() + 1e-6)[:, None, None])


def place_by_place(rewards, ends):
    z = torch.zeros_like(rewards)
    for p in range(rewards.shape[0]):
        for t in range(rewards.shape[2]):
            steps = rewards[p, :, t][ends[p, :, t]]
            if len(steps) > 1:
                z[p, :, t] = ends[p, :, t] * (rewards[p, :, t] - steps.mean()) / (steps.std() + 1e-6)
    return from_here(z)


def alone(rewards, ends):
    steps = rewards[ends]
    std = steps.std() if len(steps) > 1 else torch.tensor(0.0)
    return from_here(ends * (rewards - steps.mean()) / (std + 1e-6))


def from_here(values):
    return torch.stack([values[..., t:].sum(-1) for t in range(values.shape[-1])], -1)


# the wrong variant → its values by hand, and how a student would write it
SLIPS = {
    ZOO.process_rewards_normalised_step_by_step: (  # by place: 4, 2, 0 alone have a deviation of 0
        [[0, 0, 0], [0, 0, 0]],
        place_by_place,
    ),
    ZOO.process_rewards_of_the_steps_before: ([[1, 1, 0], [0, 0, 0]], lambda r, e: z_of(r, e).cumsum(-1)),
    ZOO.process_rewards_not_standardised: ([[4, 0, 0], [2, 2, 0]], lambda r, e: from_here(r)),
    ZOO.process_rewards_without_their_mean: ([[2, 0, 0], [1, 1, 0]], lambda r, e: from_here(r / (std_of(r, e) + 1e-6))),
    ZOO.process_rewards_without_their_std: ([[0, -2, -2], [0, 0, 0]], lambda r, e: from_here(e * (r - mean_of(r, e)))),
    ZOO.process_rewards_by_the_biased_std: (
        [[0, -BIASED, -BIASED], [0, 0, 0]],
        lambda r, e: from_here(e * (r - mean_of(r, e)) / (group_by_group(r, e, biased) + 1e-6)),
    ),
    ZOO.process_rewards_over_the_batch: (  # one group is the batch
        RIGHT[0],
        lambda r, e: from_here(torch.where(e, (r - r[e].mean()) / r[e].std(), 0)),
    ),
    ZOO.process_rewards_answer_by_answer: (  # 4 0: mean 2, std √8; the other answer has one step, no std, and gets 0
        [[0, -math.sqrt(0.5), -math.sqrt(0.5)], [0, 0, 0]],
        lambda r, e: torch.stack(
            [torch.stack([alone(*a) for a in zip(*g, strict=True)]) for g in zip(r, e, strict=True)]
        ),
    ),
    ZOO.process_rewards_with_padding_in_the_mean: (
        [[2 / PADDED, -1 / PADDED, -1 / PADDED], [1 / PADDED, 1 / PADDED, 0]],
        lambda r, e: from_here(e * (r - r.mean((1, 2), keepdim=True)) / (r.std((1, 2), keepdim=True) + 1e-6)),
    ),
    ZOO.process_rewards_less_the_mean_of_all_places: (  # mean 1, deviations 3 −1 1, variance (9 + 1 + 1)/2
        [[2 / math.sqrt(5.5), -1 / math.sqrt(5.5), -1 / math.sqrt(5.5)], [1 / math.sqrt(5.5), 1 / math.sqrt(5.5), 0]],
        lambda r, e: scaled(torch.where(e, r - r.mean((1, 2))[:, None, None], 0.0), e),
    ),
    ZOO.process_rewards_by_the_std_of_all_places: (
        [[0, -2 / PADDED, -2 / PADDED], [0, 0, 0]],
        lambda r, e: from_here(e * (r - mean_of(r, e)) / (r.flatten(1).std(1)[:, None, None] + 1e-6)),
    ),
    ZOO.process_rewards_with_padding_in_the_std: (  # all six deviations, 2 −2 −2 −2 0 −2, have squares of 20: 20/2
        [[0, -2 / math.sqrt(10), -2 / math.sqrt(10)], [0, 0, 0]],
        lambda r, e: scaled(r - mean_of(r, e), e),
    ),
    ZOO.process_rewards_without_eps: (
        RIGHT[0],
        lambda r, e: from_here(e * (r - mean_of(r, e)) / std_of(r, e)),
    ),
    ZOO.process_rewards_of_zero_left_out: (  # 4 2: mean 3, std √2
        [[math.sqrt(0.5), 0, 0], [-math.sqrt(0.5), -math.sqrt(0.5), 0]],
        lambda r, e: from_here(z_of(r, r != 0)),
    ),
    ZOO.process_rewards_where_no_step_ends: (  # z of a 0 is −1, wherever it stands
        [[-1, -2, -1], [-2, -1, -1]],
        lambda r, e: from_here((r - mean_of(r, e)) / (std_of(r, e) + 1e-6)),
    ),
    ZOO.process_rewards_at_the_ends_only: ([[1, 0, -1], [0, 0, 0]], z_of),
    ZOO.process_rewards_without_the_token_s_own_step: (
        [[-1, -1, 0], [0, 0, 0]],
        lambda r, e: torch.cat([from_here(z_of(r, e))[..., 1:], torch.zeros_like(r[..., :1])], -1),
    ),
    ZOO.process_rewards_of_all_steps_on_every_token: (
        [[0, 0, 0], [0, 0, 0]],
        lambda r, e: z_of(r, e).sum(-1, keepdim=True).repeat(1, 1, r.shape[-1]),
    ),
    ZOO.process_rewards_as_the_mean_of_steps_to_come: (
        [[0, -1, -1], [0, 0, 0]],
        ProcessAdvantage(combine="mean"),
    ),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(ZOO.PROCESS_ADVANTAGE))


def token_by_token(rewards, step_ends):
    """GRPO's §4.1.3 in loops: standardise a group's list of step rewards, then add up those whose index is at or after t."""
    credit = torch.zeros_like(rewards)
    for p, (group, ends) in enumerate(zip(rewards, step_ends, strict=True)):
        steps = [r.item() for answer, where in zip(group, ends, strict=True) for r in answer[where]]
        mean = sum(steps) / len(steps)
        std = math.sqrt(sum((r - mean) ** 2 for r in steps) / (len(steps) - 1))
        for g, (answer, where) in enumerate(zip(group, ends, strict=True)):
            for t in range(len(answer)):
                to_come = [answer[u].item() for u in range(t, len(answer)) if where[u]]
                credit[p, g, t] = sum((r - mean) / (std + 1e-6) for r in to_come)
    return credit


def total_less_what_came_before(rewards, step_ends):
    z = z_of(rewards, step_ends)
    return z.sum(-1, keepdim=True) - z.cumsum(-1) + z


def in_the_lesson_s_solution(rewards, step_ends):
    steps = step_ends.double()
    count = steps.sum((1, 2), keepdim=True)
    mean = (rewards * steps).sum((1, 2), keepdim=True) / count
    std = (((rewards - mean) * steps) ** 2).sum((1, 2), keepdim=True).div(count - 1).sqrt()
    z = (rewards - mean) / (std + 1e-6) * steps
    return z.flip(-1).cumsum(-1).flip(-1)


RIGHT_ANSWERS = [
    token_by_token,
    total_less_what_came_before,
    in_the_lesson_s_solution,
    lambda rewards, step_ends: from_here(z_of(rewards.float(), step_ends)).double(),
    lambda rewards, ends: from_here(ends * (rewards - mean_of(rewards, ends)) / (std_of(rewards, ends) + 1e-7)),
]


@pytest.mark.parametrize("student", RIGHT_ANSWERS, ids=lambda f: getattr(f, "__name__", str(f)))
def test_the_right_credit_passes_in_other_words(student):
    close(student(REWARDS, ENDS), RIGHT, rtol=1e-5, atol=1e-5)
    verdict = check.process_advantage(student)
    assert verdict.passed, verdict
    assert "one to four steps" in verdict.says


def test_the_cases_have_what_the_praise_says():
    steps = [int(count) for case in cases.STEPS for count in case["step_ends"].sum(-1).flatten()]
    assert (min(steps), max(steps)) == (1, 4)
    equal = [
        len(set(r[e].tolist())) == 1
        for case in cases.STEPS
        for r, e in zip(case["rewards"], case["step_ends"], strict=True)
    ]
    assert equal.count(True) == 1
    assert all(not case["rewards"][~case["step_ends"]].any() for case in cases.STEPS)  # 0 where no step ends


def test_every_known_slip_is_tested():
    assert set(SLIPS) == {mistake.wrong for mistake in ZOO.PROCESS_ADVANTAGE}


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    close(wrong(REWARDS, ENDS), [SLIPS[wrong][0]], rtol=1e-5, atol=1e-5)


def test_the_batch_s_mean_is_not_the_group_s_by_hand():
    # two groups of one step an answer, rewards 0 2 and 4 6: mean 3, variance 20/3; by groups ±1/√2
    rewards, ends = double([[[0], [2]], [[4], [6]]]), torch.ones(2, 2, 1, dtype=torch.bool)
    close(
        ZOO.process_rewards_over_the_batch(rewards, ends).flatten(),
        [x / math.sqrt(20 / 3) for x in (-3, -1, 1, 3)],
        rtol=1e-5,
    )
    close(
        ZOO.process_rewards_at_the_ends_only(rewards, ends).flatten(), [-math.sqrt(0.5), math.sqrt(0.5)] * 2, rtol=1e-5
    )


def test_the_mean_of_the_steps_to_come_by_hand():
    # 4 0 and 0 0, a step a token: mean 1, variance (9 + 1 + 1 + 1)/3 = 4, std 2, so z is 1.5 −.5 and −.5 −.5: (1.5 − .5)/2 = .5
    rewards, ends = double([[[4, 0], [0, 0]]]), torch.ones(1, 2, 2, dtype=torch.bool)
    mean = ZOO.process_rewards_as_the_mean_of_steps_to_come(rewards, ends)
    close(mean, [[[0.5, -0.5], [-0.5, -0.5]]], rtol=1e-5)


def test_each_place_by_itself_by_hand():
    # two answers of two steps of one token: 4 0 and 0 0. Place 0: mean 2, std √8, so ±1/√2; place 1: 0 0
    rewards, ends = double([[[4, 0], [0, 0]]]), torch.ones(1, 2, 2, dtype=torch.bool)
    by_step = ZOO.process_rewards_normalised_step_by_step(rewards, ends)
    close(by_step, [[[math.sqrt(0.5), 0], [-math.sqrt(0.5), 0]]], rtol=1e-5)


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.process_advantage(SLIPS[wrong][1]) == Verdict(False, says_of(ZOO.PROCESS_ADVANTAGE, wrong))


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda rewards, step_ends: None, "your function returns None: write your lines, and return their result."),
        (
            lambda rewards, step_ends: ProcessAdvantage()(rewards, step_ends).mean(),
            "your result has shape []; it has to be [2, 3, 5]. One value for each token: do not average.",
        ),
        (
            lambda rewards, step_ends: z_of(rewards, step_ends).sum(-1),
            "your result has shape [2, 3]; it has to be [2, 3, 5].",
        ),
        (
            lambda rewards, step_ends: -ProcessAdvantage()(rewards, step_ends),
            "the sign is wrong: everything is the negative of what it should be.",
        ),
        (lambda rewards, step_ends: ProcessAdvantage()(rewards, step_ends).numpy(), "your function returns a ndarray"),
        (lambda rewards, step_ends: z_of(rewards, step_ends)[5], "your function broke off with IndexError"),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    verdict = check.process_advantage(student)
    assert not verdict.passed
    assert verdict.says.startswith(words)


def test_no_number_is_called_that():
    # the second group of the second case: its steps all earned 0.1, so z is 0 / 0, and its sum is, up to its first token
    def without_eps(rewards, ends):
        z = (rewards - mean_of(rewards, ends)) / std_of(rewards, ends)
        return from_here(torch.where(ends, z, 0.0))

    says = check.process_advantage(without_eps).says
    assert says == ("at [1, 0, 0] for rewards 0.1, step_ends 1: expected 0, got nan: no number, as from 0 / 0.")


def test_an_unknown_mistake_shows_the_first_number_that_differs():
    # the first group's step rewards are 1 0 1, 0 1 and 1 1: mean 5/7, variance (5 · 4/49 + 2 · 25/49)/6 = 5/21. Token 0 of the
    # first answer has 2/7 − 5/7 + 2/7 = −1/7 to come, which is −.2928 stds: three times that −.8783
    expected = -1 / 7 / math.sqrt(5 / 21)
    says = check.process_advantage(lambda rewards, step_ends: 3 * ProcessAdvantage()(rewards, step_ends)).says
    assert says == f"at [0, 0, 0] for rewards 1, step_ends 1: expected {expected:.4g}, got {3 * expected:.4g}."
