"""Limits against old probability, the numbers worked by hand, and a run's tokens over them."""

from dataclasses import replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, GRPO
from rlviz.pictures.bounds import explore_bounds, responses_of
from rlviz.training import TrainSettings, train
from rlviz.types import GroupRecord, ResponseRecord, StepRecord, TokenRecord
from small_models.policies import load_policy
from small_models.tasks import Chain

pytestmark = pytest.mark.usefixtures("untraced")


def token(old_prob, new_prob, advantage):
    rest = dict.fromkeys(TokenRecord.__dataclass_fields__, 0.0)
    return TokenRecord(**{**rest, "token": "1", "old_prob": old_prob, "new_prob": new_prob, "advantage": advantage})


def response(*tokens):
    return ResponseRecord("1", 1.0, 1.0, len(tokens), True, True, False, tokens)


def a_run(*responses):
    """Return the records of a run of one step; its other numbers have no part in this picture."""
    rest = dict.fromkeys(StepRecord.__dataclass_fields__, 0.0)
    return [StepRecord(**{**rest, "groups": (GroupRecord("1+1=", "2", responses),)})]


# (algorithm, q, new probabilities allowed): |(r − 1) r q| ≤ ε at q = .9: r = ½ + ½ √(1 ± 4 ε / q) gives .7690 and 1.1867;
# at .01: ½ (all of 4 · .16 / .01 > 1) and ½ + ½ √81 = 5. Fixed widths: q (1 ± ε).
WORKED = [
    (GRPO, 0.9, 0.72, 1.08),
    (GRPO, 0.01, 0.008, 0.012),
    (DAPO, 0.9, 0.72, 1.152),
    (DAPO, 0.01, 0.008, 0.0128),
    (DCPO, 0.9, 0.692, 1.068),
    (DCPO, 0.01, 0.005, 0.05),
]


@pytest.mark.parametrize(("algorithm", "q", "low", "high"), WORKED)
def test_worked_numbers_can_be_read_off(algorithm, q, low, high):
    explorer = explore_bounds(algorithm, old_prob=q, beside=())
    names = explorer.names()
    np.testing.assert_allclose([names.one("down_to"), names.one("up_to")], [low, high], atol=5e-4 * high)
    near = np.abs(names.array("q") - q).argmin()
    np.testing.assert_allclose(names.array("lower")[near], names.one("low_at"), rtol=0.03)
    assert f"{low:.3g}" in explorer.caption and (f"{high:.3g}" in explorer.caption or high > 1)
    assert ("up as far as it goes" in explorer.caption) == (high > 1)


def test_a_rule_that_looks_at_the_sign_gives_the_limit_that_cuts():
    def by_sign(old_logp, advantages):
        return 0.5 + (advantages > 0) * 0.25, 1.25 + (advantages > 0) * 0.25

    names = explore_bounds(replace(GRPO, name="Mine", bounds=by_sign)).names()
    assert (names.one("low_at"), names.one("high_at")) == (0.5, 1.5)  # lower of A < 0, upper of A > 0


def test_tokens_are_clipped_by_the_algorithm_on_show():
    # ratios 1.5 (A > 0), .6 (A < 0), 1.5 (A < 0), 1.1 (A > 0)
    tokens = [token(0.1, 0.15, 1.0), token(0.2, 0.12, -1.0), token(0.1, 0.15, -1.0), token(0.5, 0.55, 1.0)]
    names = explore_bounds(GRPO, run=a_run(response(*tokens[:1]), response(*tokens))).names()
    ratio = names.array("tokens_ratio")
    np.testing.assert_allclose(ratio[~np.isnan(ratio)], [1.5, 1.5, 0.6, 1.5, 1.1])  # padding between them is none
    assert (names.one("cut_low"), names.one("cut_high"), names.one("tokens_count")) == (1, 2, 5)
    # under DCPO a token of .1 may double and a token of .2 may halve: ½ + ½ √(1 + .8 / .1) = 2, and ½
    assert explore_bounds(DCPO, run=a_run(response(*tokens))).names().array("tokens_cut").sum() == 0
    # of three under .1 the first two are clipped: 2 · .05, A > 0, and .5 · .08, A < 0; 1.1 and .9 · .2 are inside
    tokens = [token(0.05, 0.1, 1.0), token(0.08, 0.04, -1.0), token(0.09, 0.099, 1.0), token(0.2, 0.18, -1.0)]
    words = explore_bounds(GRPO, run=a_run(response(*tokens))).caption
    assert words.endswith(
        "Of the run's 4 recorded tokens GRPO clips 1 below and 1 above; of the 3 with old probability under 0.1 it clips 2."
    )


def test_a_real_run_lies_over_the_picture():
    settings = TrainSettings(
        steps=2, num_prompts=4, group_size=4, updates_per_rollout=8, details_every=1, evaluate_every=0
    )
    records = list(train(load_policy("chain"), Chain(), replace(GRPO, kl=None), settings))
    explorer = explore_bounds(run=records)
    recorded = [t for r in records for g in r.groups for response in g.responses for t in response.tokens]
    assert f"Of the run's {len(recorded)} recorded tokens DCPO clips" in explorer.caption
    assert explorer.call == "explore_bounds(run=run)"
    explorer.set(algorithm=GRPO)
    ratio, cut = (explorer.names().array(name) for name in ("tokens_ratio", "tokens_cut"))
    there = ~np.isnan(ratio)
    assert [t.clipped for t in recorded] == (cut[there] != 0).tolist()  # as the loss that trained recorded it
    np.testing.assert_allclose(ratio[there], [t.ratio for t in recorded], rtol=1e-5)


def test_responses_without_tokens_are_passed_over():
    group = GroupRecord("1=", "1", (response(token(0.1, 0.1, 1.0)), response()))
    assert len(responses_of([type("Record", (), {"groups": (group,)})()])) == 1


def test_words_of_a_surrogate_that_cuts_nothing_do_not_speak_of_a_cut():
    caption = explore_bounds(
        replace(GRPO, name="Mine", surrogate=lambda r, advantages, lower, upper: r * advantages)
    ).caption
    assert "cuts no gradient" in caption and "gradient is cut" not in caption


@pytest.mark.parametrize("only", [-1.0, 1.0])
def test_a_surrogate_that_cuts_on_one_side_cuts(only):
    def one_sided(ratio, advantages, lower, upper):
        free, held = ratio * advantages, ratio.clamp(lower, upper) * advantages
        return free.where(advantages.sign() != only, free.minimum(held))

    assert "Beyond that its gradient is cut" in explore_bounds(replace(GRPO, name="Mine", surrogate=one_sided)).caption
