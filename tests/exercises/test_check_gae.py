"""The check of lesson 03: GAE in other words passes, each slip is called by its name, and what is no answer is told kindly."""

import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.check import Verdict
from tests.exercises.slips import name_in, not_typed, says_of
from tests.pieces.tensors import close, double

# γ = ½, λ = ¼, so γλ = ⅛. A response of three tokens and one of two, whose padding has V = 4. δ from the end:
# first: 4 − 2 = 2;  0 + ½·2 − 4 = −3;  1 + ½·4 − 2 = 1. A: 2;  −3 + ⅛·2 = −2.75;  1 − ⅛·2.75 = .65625
# second: 2 − 1 = 1;  0 + ½·1 − 2 = −1.5. A: 1;  −1.5 + ⅛·1 = −1.375
REWARDS = double([[[1, 0, 4], [0, 2, 0]]])
VALUES = double([[[2, 4, 2], [2, 1, 4]]])
MASK = torch.tensor([[[True, True, True], [True, True, False]]])
GAMMA, LAM = double(0.5), double(0.25)
RIGHT = [[[0.65625, -2.75, 2], [-1.375, 1, 0]]]


def in_the_lesson(rewards, values, mask, gamma, lam):
    values = values.masked_fill(~mask, 0.0)
    advantages = torch.zeros_like(values)
    next_value = next_advantage = torch.zeros_like(values[..., 0])
    for t in reversed(range(values.shape[-1])):
        delta = rewards[..., t] + gamma * next_value - values[..., t]
        advantages[..., t] = delta + gamma * lam * next_advantage
        next_value, next_advantage = values[..., t], advantages[..., t]
    return advantages


def masked_in_the_loop(rewards, values, mask, gamma, lam):
    columns, next_value, next_advantage = [], 0.0, 0.0
    for t in range(values.shape[-1] - 1, -1, -1):
        here = mask[..., t]
        delta = rewards[..., t] + gamma * next_value - values[..., t]
        next_advantage = torch.where(here, delta + gamma * lam * next_advantage, 0.0)
        next_value = torch.where(here, values[..., t], 0.0)
        columns.insert(0, next_advantage)
    return torch.stack(columns, -1)


def response_by_response(rewards, values, mask, gamma, lam):
    out = torch.zeros_like(values)
    for p, g in torch.cartesian_prod(*(torch.arange(size) for size in mask.shape[:2])).tolist():
        length = int(mask[p, g].sum())
        v = [*values[p, g, :length].tolist(), 0.0]
        deltas = [float(rewards[p, g, t] + gamma * v[t + 1] - v[t]) for t in range(length)]
        for t in range(length):
            out[p, g, t] = sum(float(gamma * lam) ** k * d for k, d in enumerate(deltas[t:]))
    return out


def as_a_matrix(rewards, values, mask, gamma, lam):
    values = values * mask
    after = torch.nn.functional.pad(values, (0, 1))[..., 1:]
    apart = torch.arange(values.shape[-1]) - torch.arange(values.shape[-1]).unsqueeze(1)
    weights = torch.where(apart >= 0, (gamma * lam) ** apart, 0.0)
    return (rewards + gamma * after - values) @ weights.T.to(values.dtype)


def in_float32(*given):
    return in_the_lesson(*(x.float() if x.is_floating_point() else x for x in given))


IN_OTHER_WORDS = (in_the_lesson, masked_in_the_loop, response_by_response, as_a_matrix, in_float32)


@pytest.mark.parametrize("student", IN_OTHER_WORDS, ids=lambda f: f.__name__)
def test_gae_in_other_words_passes(student):
    torch.testing.assert_close(student(REWARDS, VALUES, MASK, GAMMA, LAM).double(), double(RIGHT), rtol=1e-6, atol=1e-6)
    assert check.gae_advantages(student).passed


def student_who(
    *, after_last=None, delta=None, advantage=None, forwards=False, values_masked=True, result=lambda a, v, mask: a
):
    """Return the lesson's answer with one line of it written otherwise."""
    delta = delta or (lambda r, v, v_next, gamma, lam: r + gamma * v_next - v)
    advantage = advantage or (lambda d, a_next, d_next, gamma, lam: d + gamma * lam * a_next)

    def answer(rewards, values, mask, gamma, lam):
        v = values.masked_fill(~mask, 0.0) if values_masked else values
        after = torch.cat([v[..., 1:], torch.zeros_like(v[..., :1]) if after_last is None else after_last(v)], -1)
        deltas = delta(rewards, v, after, gamma, lam)
        out, a_next, d_next = torch.zeros_like(v), torch.zeros_like(v[..., 0]), torch.zeros_like(v[..., 0])
        steps = range(v.shape[-1])
        for t in steps if forwards else reversed(steps):
            a_next = out[..., t] = advantage(deltas[..., t], a_next, d_next, gamma, lam)
            d_next = deltas[..., t]
        return result(out, v, mask)

    return answer


def masked(advantages, values, mask):
    return advantages.masked_fill(~mask, 0.0)


def in_the_lesson_whitened(rewards, values, mask, gamma, lam):
    advantages = in_the_lesson(rewards, values, mask, gamma, lam)
    seen = advantages[mask]
    return ((advantages - seen.mean()) / seen.std()).masked_fill(~mask, 0.0)


def last_token_sees_padding(rewards, values, mask, gamma, lam):
    out, a_next = torch.zeros_like(values), torch.zeros_like(values[..., 0])
    for t in reversed(range(values.shape[-1])):
        v_next = values[..., t + 1] if t + 1 < values.shape[-1] else 0.0
        a = rewards[..., t] + gamma * v_next - values[..., t] + gamma * lam * a_next
        a_next = out[..., t] = torch.where(mask[..., t], a, 0.0)
    return out


# the wrong variant → its advantages by hand, and how a student would write it
SLIPS = {
    mistakes.gae.gamma_forgotten: (  # from the end: δ 2, −2, 3; with λ = ¼ alone: 2, −1.5, 2.625. Second: δ 1, −1; 1, −.75
        [[[2.625, -1.5, 2], [-0.75, 1, 0]]],
        student_who(
            delta=lambda r, v, v_next, gamma, lam: r + v_next - v,
            advantage=lambda d, a_next, d_next, gamma, lam: d + lam * a_next,
        ),
    ),
    mistakes.gae.gamma_forgotten_before_the_next_value: (  # δ 2, −2, 3; with ⅛: 2, −1.75, 2.78125. Second: 1, −.875
        [[[2.78125, -1.75, 2], [-0.875, 1, 0]]],
        student_who(delta=lambda r, v, v_next, gamma, lam: r + v_next - v),
    ),
    mistakes.gae.gamma_forgotten_in_the_sum: (  # δ 2, −3, 1; with ¼: 2, −2.5, .375. Second: 1, −1.5 + ¼
        [[[0.375, -2.5, 2], [-1.25, 1, 0]]],
        student_who(advantage=lambda d, a_next, d_next, gamma, lam: d + lam * a_next),
    ),
    mistakes.gae.lambda_forgotten: (  # δ 2, −3, 1; with ½: 2, −2, 0. Second: 1, −1.5 + ½
        [[[0, -2, 2], [-1, 1, 0]]],
        student_who(advantage=lambda d, a_next, d_next, gamma, lam: d + gamma * a_next),
    ),
    mistakes.gae.delta_alone: (
        [[[1, -3, 2], [-1.5, 1, 0]]],
        student_who(advantage=lambda d, a_next, d_next, gamma, lam: d),
    ),
    mistakes.gae.only_the_next_delta_added: (  # 1 − ⅛·3 = .625
        [[[0.625, -2.75, 2], [-1.375, 1, 0]]],
        student_who(advantage=lambda d, a_next, d_next, gamma, lam: d + gamma * lam * d_next),
    ),
    mistakes.gae.return_in_its_place: (
        [[[2.65625, 1.25, 4], [0.625, 2, 0]]],
        student_who(result=lambda a, v, mask: a + v),
    ),
    mistakes.gae.value_not_taken_off: (  # δ 4, 1, 3; 4, 1.5, 3.1875. Second: 2, ½; 2, .75
        [[[3.1875, 1.5, 4], [0.75, 2, 0]]],
        student_who(delta=lambda r, v, v_next, gamma, lam: r + gamma * v_next),
    ),
    mistakes.gae.next_value_left_out: (  # δ 2, −4, −1; 2, −3.75, −1.46875. Second: 1, −2; 1, −1.875
        [[[-1.46875, -3.75, 2], [-1.875, 1, 0]]],
        student_who(delta=lambda r, v, v_next, gamma, lam: r - v),
    ),
    mistakes.gae.values_swapped: (  # δ 4+1=5, 0+2−2=0, 1+1−4=−2; 5, ⅝, ⅝/8 − 2. Second: 2+½, 0+1−1; 2.5, .3125
        [[[-1.921875, 0.625, 5], [0.3125, 2.5, 0]]],
        student_who(delta=lambda r, v, v_next, gamma, lam: r + gamma * v - v_next),
    ),
    mistakes.gae.padding_bootstrapped: (  # second: δ −4, 2+2−1=3, −1.5; −4, 2.5, −1.1875
        [[[0.65625, -2.75, 2], [-1.1875, 2.5, 0]]],
        student_who(values_masked=False, result=masked),
    ),
    mistakes.gae.value_after_the_end_bootstrapped: (  # second: δ 3, −1.5; 3, −1.125
        [[[0.65625, -2.75, 2], [-1.125, 3, 0]]],
        last_token_sees_padding,
    ),
    mistakes.gae.mask_forgotten: (  # the same, and −4 on padding
        [[[0.65625, -2.75, 2], [-1.1875, 2.5, -4]]],
        student_who(values_masked=False),
    ),
    mistakes.gae.first_value_after_the_last: (  # δ 4+1−2=3, −3, 1; 3, −2.625. Second: ½·2 on padding, 1, −1.5; 1, 1.125
        [[[1 - 2.625 / 8, -2.625, 3], [1.125 / 8 - 1.5, 1.125, 1]]],
        student_who(after_last=lambda v: v[..., :1]),
    ),
    mistakes.gae.summed_forwards: (  # 1, −3+⅛, 2−⅛·2.875. Second: −1.5, 1−³⁄₁₆, ⅛·.8125
        [[[1, -2.875, 2 - 2.875 / 8], [-1.5, 0.8125, 0.8125 / 8]]],
        student_who(forwards=True),
    ),
    mistakes.gae.whitened: (
        None,  # its numbers are no short ones; the student's line is the derivation
        in_the_lesson_whitened,
    ),
    mistakes.gae.own_reward_minus_value: (
        [[[-1, -4, 2], [-2, 1, 0]]],
        lambda rewards, values, mask, gamma, lam: (rewards - values) * mask,
    ),
}
EVERY_SLIP = pytest.mark.parametrize("wrong", SLIPS, ids=name_in(mistakes.gae.GAE_ADVANTAGES))


def test_every_known_slip_is_tested():
    assert set(SLIPS) == not_typed(check.gae_advantages, mistakes.gae.GAE_ADVANTAGES)


@EVERY_SLIP
def test_the_wrong_variant_is_what_its_name_says(wrong):
    by_hand, student = SLIPS[wrong]
    got = wrong(REWARDS, VALUES, MASK, GAMMA, LAM)
    torch.testing.assert_close(student(REWARDS, VALUES, MASK, GAMMA, LAM), got, rtol=1e-6, atol=1e-6)
    if by_hand is not None:
        close(got, by_hand)


@EVERY_SLIP
def test_the_slip_is_named_however_it_is_written(wrong):
    assert check.gae_advantages(SLIPS[wrong][1]) == Verdict(False, says_of(mistakes.gae.GAE_ADVANTAGES, wrong))


def test_the_right_one_is_none_of_them():
    close(check._gae_advantages(REWARDS, VALUES, MASK, GAMMA, LAM), RIGHT)
    for wrong in SLIPS:
        assert not torch.allclose(wrong(REWARDS, VALUES, MASK, GAMMA, LAM), double(RIGHT))


def past_the_end(rewards, values, mask, gamma, lam):
    return rewards[..., 0] + gamma * values[..., values.shape[-1]]


@pytest.mark.parametrize(
    ("student", "words"),
    [
        (lambda *given: None, "your function returns None: write your lines, and return their result."),
        (lambda *given: in_the_lesson(*given).numpy(), "your function returns a ndarray: return a torch tensor."),
        (
            lambda *given: in_the_lesson(*given)[..., 0],
            "your result has shape [1, 3]; it has to be [1, 3, 4].",
        ),
        (
            lambda *given: in_the_lesson(*given).mean(),
            "your result has shape []; it has to be [1, 3, 4]. One value for each token: do not average or add over them.",
        ),
        (
            lambda *given: -in_the_lesson(*given),
            "the sign is wrong: everything is the negative of what it should be.",
        ),
        (  # the response of one token: 2 − 1.5
            lambda *given: torch.where(given[0] == 2, 7.0, in_the_lesson(*given)),
            "at [0, 2, 0] for lengths [[4, 2, 1]], rewards 2, values 1.5, mask 1, gamma 0.9, lam 0.5: expected 0.5, got 7.",
        ),
    ],
)
def test_what_is_no_known_slip_is_told_kindly(student, words):
    assert check.gae_advantages(student) == Verdict(False, words)


def test_a_next_value_that_the_loop_never_sets_is_named():
    def never_set(rewards, values, mask, gamma, lam):
        values = values.masked_fill(~mask, 0.0)
        advantages = torch.zeros_like(values)
        next_value = next_advantage = torch.zeros_like(values[..., 0])
        for t in reversed(range(values.shape[-1])):
            delta = rewards[..., t] + gamma * next_value - values[..., t]
            next_advantage = advantages[..., t] = delta + gamma * lam * next_advantage
        return advantages

    verdict = check.gae_advantages(never_set)
    assert verdict == Verdict(False, says_of(mistakes.gae.GAE_ADVANTAGES, mistakes.gae.next_value_left_out))
    assert "the loop never sets it" in verdict.says


def test_an_index_past_the_end_is_told_as_what_it_is():
    assert check.gae_advantages(past_the_end).says.startswith("your function broke off with IndexError: index 4 is out")


def test_padding_in_the_answer_is_shown_with_the_lengths():
    def carried(rewards, values, mask, gamma, lam):
        return torch.where(mask, in_the_lesson(rewards, values, mask, gamma, lam), 9.0)

    says = check.gae_advantages(carried).says
    assert (
        says
        == "at [0, 1, 2] for lengths [[4, 2, 1]], rewards 0, values -0.7, mask 0, gamma 0.9, lam 0.5: expected 0, got 9."
    )
