"""Sharpening: pass@k before and after, by hand where all prompts are alike."""

import pytest

from rlviz.pictures import explore_pass_at_k


def test_prompts_that_are_alike_by_hand():
    # p = .2 has odds 1/4; times 4 they are 1, p = 1/2
    explorer = explore_pass_at_k(median=0.2, spread=0.0, sharpened=4.0, never=0.5)
    names = explorer.names().array
    assert names("k").tolist() == [1, 2, 4, 8, 16, 32, 64]
    for k, before, after in zip(*map(names, ("k", "before", "after")), strict=True):
        assert before == pytest.approx(0.5 * (1 - 0.8**k), abs=1e-12)
        assert after == pytest.approx(0.5 * (1 - 0.5**k), abs=1e-12)
    # .5 · (.5 − .2), and less than .8⁶⁴ = 6e-7
    assert "(pass@1) by 0.15, and what 64 tries find (pass@64) by 0.00" in explorer.conclusion


def test_what_never_succeeds_stays_and_no_sharpening_changes_nothing():
    names = explore_pass_at_k(never=0.5, sharpened=100.0).names()
    assert names.array("after").max() <= 0.5 + 1e-12 and names.one("limit") == 0.5
    names = explore_pass_at_k(sharpened=1.0).names()
    assert names.array("before").tolist() == names.array("after").tolist()
