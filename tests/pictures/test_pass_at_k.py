"""Sharpening: pass@k before and after, by hand where all prompts are alike."""

import pytest

from rlviz.pictures import explore_pass_at_k


def shown(**setting):
    return explore_pass_at_k(**setting).names().array


def test_prompts_that_are_alike_by_hand():
    # p = .2 has odds 1/4; times 4 they are 1, p = 1/2
    names = shown(median=0.2, spread=0.0, sharpened=4.0, never=0.25)
    assert names("k").tolist() == [1, 2, 4, 8, 16, 32, 64]
    for k, before, after in zip(*map(names, ("k", "before", "after")), strict=True):
        assert before == pytest.approx(0.75 * (1 - 0.8**k), abs=1e-12)
        assert after == pytest.approx(0.75 * (1 - 0.5**k), abs=1e-12)


def test_what_never_succeeds_stays_and_no_sharpening_changes_nothing():
    assert max(shown(never=0.5, sharpened=100.0)("after")) <= 0.5 + 1e-12
    names = shown(sharpened=1.0)
    assert names("before").tolist() == names("after").tolist()
    assert "into the first try" not in explore_pass_at_k(sharpened=1.0).caption
    assert "into the first try" in explore_pass_at_k().caption
