"""explore_sampling: what filling a batch costs, and what stands in its places, by hand."""

import pytest

from rlviz.algorithms import DAPO, DCPO, DUPO, GRPO, PPO
from rlviz.pictures.sampling import explore_sampling


def named(*arguments, **setting):
    return explore_sampling(*arguments, **setting).names()


def test_the_informative_share_by_hand():
    # G = 2, p = ¼ and ¾: differ with 2 · ¼ · ¾ = .375 either way; G = 3, p = ½: 1 − 2/8
    assert named(success_rate=0.5, spread=0.5, group_size=2).one("informative") == pytest.approx(0.375)
    assert named(success_rate=0.5, spread=0.0, group_size=3).one("informative") == pytest.approx(0.75)
    assert named(success_rate=0.5, spread=1.0, group_size=8).one("informative") == pytest.approx(0.0, abs=1e-12)


def test_two_kinds_of_prompts():
    for rate, spread, kinds in ((0.3, 0.0, (0.3, 0.3)), (0.2, 1.0, (0.0, 0.4)), (0.9, 0.5, (0.85, 0.95))):
        names = named(success_rate=rate, spread=spread)
        assert (names.one("hard"), names.one("easy")) == pytest.approx(kinds)


def test_the_expected_price_by_hand():
    # half of the groups of two differ; of 64 nearly always 16, and at most they are 64
    names = named(DAPO, group_size=2, success_rate=0.5, max_rounds=4)
    assert names.one("informative") == pytest.approx(0.5)
    assert names.one("replaced") == pytest.approx(2.0, rel=1e-4)
    assert names.one("filled") == pytest.approx(1.0, rel=1e-4)
    # 1 − .9⁸ − .1⁸ = .56953, and 10 · 16 groups are always enough: 128 / .56953 = 224.7 responses
    assert named(DAPO).one("replaced_responses") == pytest.approx(224.7, abs=0.05)


def test_what_each_answer_to_dead_groups_puts_into_the_batch():
    names = explore_sampling(DAPO, beside=(GRPO, DUPO, DCPO)).names()
    assert names.one("fresh") == 1.0  # sampled until all places are informative
    assert names.one("b1_fresh") == pytest.approx(0.5695, abs=0.04) and names.one("b1_repeated") == 0.0
    assert names.one("b1_fresh") + names.one("b1_dead") == pytest.approx(1.0)
    assert names.one("b2_repeated") == pytest.approx(names.one("b1_dead"))  # DUPO repeats where GRPO's are dead
    assert names.one("b3_remembered") > 0.2 and names.one("b3_dead") < names.one("b1_dead")  # DCPO's memory
    assert names.one("b1_sampled_responses") == names.one("wanted") == 128


def test_who_compares_no_responses_is_refused():
    with pytest.raises(ValueError, match="algorithm: PPO"):
        explore_sampling(PPO)
