"""Limits against old probability, the numbers worked by hand, and a run's tokens over them."""

from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, GRPO
from rlviz.pictures.bounds import explore_bounds, recorded_responses
from rlviz.training import TrainSettings, train
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord
from small_models.policies import load_policy
from small_models.tasks import Chain

pytestmark = pytest.mark.usefixtures("untraced")


def response(*tokens):
    """Return a response whose tokens have these old and new probabilities and advantages."""
    empty = dict.fromkeys(TokenRecord.__dataclass_fields__, 0.0)
    records = tuple(
        TokenRecord(**{**empty, "token": "1", "old_prob": old, "new_prob": new, "advantage": A})
        for old, new, A in tokens
    )
    return ResponseRecord("1", 1.0, 1.0, len(tokens), True, True, False, records)


def run_of(*responses):
    """Return the records of a run of one step; its other numbers have no part in this picture."""
    empty = dict.fromkeys(StepRecord.__dataclass_fields__, 0.0)
    return [StepRecord(**{**empty, "groups": (GroupRecord("1+1=", "2", responses),)})]


# (algorithm, q, new probabilities allowed): |(r − 1) r q| ≤ ε at q = .9: r = ½ + ½ √(1 ± 4 ε / q) gives .7690 and 1.1867;
# at .01: ½ (all of 4 · .16 / .01 > 1) and ½ + ½ √81 = 5. Fixed widths: q (1 ± ε). No probability is above 1.
@pytest.mark.parametrize(
    ("algorithm", "q", "low", "high"),
    [
        (GRPO, 0.9, 0.72, 1.08),
        (GRPO, 0.01, 0.008, 0.012),
        (DAPO, 0.01, 0.008, 0.0128),
        (DCPO, 0.9, 0.692, 1.068),
        (DCPO, 0.01, 0.005, 0.05),
    ],
)
def test_worked_numbers_can_be_read_off(algorithm, q, low, high):
    explorer = explore_bounds(algorithm, old_prob=q, beside=())
    names = explorer.names()
    np.testing.assert_allclose(names.array("ends_prob"), [low, high], atol=5e-4 * high)
    near = np.abs(names.array("q") - q).argmin()
    np.testing.assert_allclose(names.array("lower")[near], low / q, rtol=0.03)
    np.testing.assert_allclose(names.array("upper")[near], high / q, rtol=0.03)
    np.testing.assert_allclose(names.array("high_prob"), names.array("upper") * names.array("q"), rtol=1e-12)
    assert explorer.conclusion.endswith(f"fall to {low:.3g} and rise to {min(high, 1):.3g}.")


def test_the_conclusion_compares_with_the_first_one_beside_it():
    says = "DCPO lets a token of probability 0.01 fall to 0.005 and rise to 0.05; DAPO to 0.008 and 0.0128."
    assert explore_bounds().conclusion == says


def test_limits_where_no_gradient_is_cut_hold_nothing():
    def one_sided(ratio, advantages, lower, upper):
        clipped = ratio.clamp(lower, upper) * advantages
        return (ratio * advantages).where(advantages < 0, clipped)

    # only a good token is held, at 1.2 q
    explorer = explore_bounds(replace(GRPO, name="Mine", surrogate=one_sided), old_prob=0.1, beside=())
    assert explorer.conclusion == "Mine lets a token of probability 0.1 fall to 0 and rise to 0.12."


def test_a_rule_that_looks_at_the_sign_gives_the_limit_that_cuts():
    def by_sign(old_logp, advantages):
        return 0.5 + (advantages > 0) * 0.25, 1.25 + (advantages > 0) * 0.25

    names = explore_bounds(replace(GRPO, name="Mine", bounds=by_sign)).names()
    assert names.array("ends_ratio").tolist() == [0.5, 1.5]  # lower of A < 0, upper of A > 0


def test_tokens_are_clipped_by_the_algorithm_in_the_picture():
    tokens = [(0.1, 0.15, 1.0), (0.2, 0.12, -1.0), (0.1, 0.15, -1.0), (0.5, 0.55, 1.0)]
    names = explore_bounds(GRPO, run=run_of(response(*tokens[:1]), response(), response(*tokens))).names()
    ratio, cut = names.array("tokens_ratio"), names.array("tokens_cut")
    np.testing.assert_allclose(ratio[~np.isnan(ratio)], [1.5, 1.5, 0.6, 1.5, 1.1])  # padding between them is none
    assert cut[~np.isnan(ratio)].tolist() == [1, 1, 1, 0, 0]  # a bad token may rise, and 1.1 is inside
    np.testing.assert_array_equal(names.array("tokens_free"), ~np.isnan(ratio) & (cut == 0))
    # under DCPO a token of .1 may double and a token of .2 may halve: ½ + ½ √(1 + .8 / .1) = 2, and ½
    assert explore_bounds(DCPO, run=run_of(response(*tokens))).names().array("tokens_cut").sum() == 0


def test_a_real_run_lies_over_the_picture():
    few = {"num_prompts": 4, "group_size": 4, "updates_per_rollout": 8, "details_every": 1, "evaluate_every": 0}
    records = list(train(load_policy("chain"), Chain(), replace(GRPO, kl=None), TrainSettings(steps=2, **few)))
    explorer = explore_bounds(GRPO, run=records)
    recorded = [token for answer in recorded_responses(records) for token in answer.tokens]
    ratio, cut = (explorer.names().array(name) for name in ("tokens_ratio", "tokens_cut"))
    exists = ~np.isnan(ratio)
    assert [token.clipped for token in recorded] == (cut[exists] != 0).tolist()  # as the loss that trained recorded it
    np.testing.assert_allclose(ratio[exists], [token.ratio for token in recorded], rtol=1e-5)
