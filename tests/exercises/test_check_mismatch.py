"""The weight between sampler and trainer, and weights by sign: values by hand, and slips however they are written."""

import math

import pandas as pd
import pytest
import torch

from rlviz.exercises import check, mistakes
from rlviz.exercises.mistakes.ratios import weighed_by_the_policy_now
from rlviz.exercises.mistakes.reports import best_evaluation, judged_on_the_seeds_that_chose
from rlviz.pieces.mismatch import capped_weight
from rlviz.pieces.surrogate import sign_weighted
from tests.exercises.slips import not_typed, says_of
from tests.pieces.tensors import close, double, slope

OLD, SAMPLER = double([[[0.6, 0.1, 0.2]]]).log(), double([[[0.1, 0.2, 0.2]]]).log()  # w = 6, 1/2, 1
MASK = torch.ones(1, 1, 3, dtype=torch.bool)
ZOO = mistakes.mismatch
WEIGHTS = {  # what each slip makes of these three tokens with cap 3
    ZOO.weight_upside_down: [1 / 6, 2, 1],
    ZOO.weight_left_in_logs: [math.log(6), -math.log(2), 0],
    ZOO.weight_with_the_cap_on_its_log: [6, 0.5, 1],
    ZOO.weight_with_a_floor: [6, 3, 3],
    ZOO.weight_cut_on_both_sides: [3, 0.5, 1],
    ZOO.weight_zero_above_the_cap: [0, 0.5, 1],
    ZOO.weight_one_above_the_cap: [1, 0.5, 1],
    ZOO.weight_without_the_cap: [6, 0.5, 1],
    ZOO.weight_with_a_width: [4, 0.5, 1],
    ZOO.weight_of_the_response: [3, 3, 3],
    ZOO.weight_as_mean_of_the_response: [3 ** (1 / 3)] * 3,
    ZOO.weight_scaled_to_a_mean_of_one: [2, 1 / 3, 2 / 3],
    ZOO.weight_capped_at_two: [2, 0.5, 1],
}


def test_the_weight_by_hand():
    close(capped_weight(OLD, SAMPLER, MASK, 3.0), [[[3, 0.5, 1]]])
    assert set(WEIGHTS) == not_typed(check.truncated_weight, ZOO.TRUNCATED_WEIGHT)


@pytest.mark.parametrize("wrong", WEIGHTS)
def test_a_wrong_weight_is_what_its_name_says(wrong):
    close(wrong(OLD, SAMPLER, MASK, double(3.0)), [[WEIGHTS[wrong]]])


def test_students_weights_in_other_words():
    assert check.truncated_weight(lambda o, s, mask, cap: (o.exp() / s.exp()).where(o - s < cap.log(), cap)).passed
    assert check.truncated_weight(lambda o, s, mask, cap: (o - s).exp().clamp(max=cap) * 7**~mask).passed
    upside_down = check.truncated_weight(lambda o, s, mask, cap: (s.exp() / o.exp()).minimum(cap))
    assert upside_down.says == says_of(ZOO.TRUNCATED_WEIGHT, ZOO.weight_upside_down)
    assert "has to be [1, 2, 3]" in check.truncated_weight(lambda o, s, mask, cap: (o - s).exp().mean(-1)).says


def test_weights_by_sign_by_hand():
    # r, A = (1.5, 1), (1.5, −1), (.5, −1); limits .8 and 1.2; weights 2 and 1/2: min(3, 2.4), min(−.75, −.6), min(−.25, −.4)
    given = double([1.5, 1.5, 0.5]), double([1, -1, -1]), double([0.8] * 3), double([1.2] * 3)
    close(sign_weighted(*given, 2.0, 0.5), [2.4, -0.75, -0.4])
    close(slope(sign_weighted, *given, 2.0, 0.5), [0, -0.5, 0])


def test_a_weight_of_the_policy_now_counts_the_ratio_twice():
    # before the first update the objective of a token is w · A and its slope should be that too; here the weight has one as well
    A = double([[[1, 1, -1]]])
    wrong = slope(weighed_by_the_policy_now, OLD[..., 1:], OLD[..., 1:], SAMPLER[..., 1:], A[..., 1:], MASK[..., 1:])
    close(wrong, [[[-2 * 0.5 / 2, 2 / 2]]])


def test_the_best_evaluation_favours_who_wavers():
    rows = [("steady", 0, 0.7), ("steady", 0, 0.7), ("wavering", 0, 0.9), ("wavering", 0, 0.5)]
    scores = pd.DataFrame(rows, columns=["contender", "seed", "held_out_accuracy"])
    assert best_evaluation(scores).to_dict() == {"steady": 0.7, "wavering": 0.9}


def test_the_seeds_that_chose_flatter_a_rule_without_effect():
    # every c gains −1 but for one lucky seed of .2: the report is the mean of that one, (3 − 1) / 2
    assert judged_on_the_seeds_that_chose(lambda c, seed: 3.0 if (c, seed) == (0.2, 1) else -1.0, range(2)) == (
        0.2,
        1.0,
    )
