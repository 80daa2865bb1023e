"""explore_batches: the groups of either batch, counted anew from the same coins."""

import numpy as np
import pytest

from rlviz.page.names import drawn
from rlviz.pictures.batches import BATCHES, STREAM, explore_batches


def groups(p, G):
    """Return which of the groups, in the order in which they are sampled, have right and wrong responses."""
    right = (np.asarray(drawn(BATCHES.data["coins"], {})) < p)[:, :G].sum(1)
    return (right > 0) & (right < G)


@pytest.mark.parametrize(("p", "G", "P", "sampled"), [(0.5, 8, 12, STREAM), (0.9, 4, 8, 10)])
def test_both_batches_counted_anew(p, G, P, sampled):
    useful = groups(p, G)
    filling = np.flatnonzero(useful)[:P] + 1  # after how many groups each place is filled
    filled = int((filling <= sampled).sum())
    spent = filling[-1] if filled == P else min(sampled, 10 * P)
    names = explore_batches(success_rate=p, group_size=G, prompts=P, sampled=sampled).names()
    assert (names.one("used"), names.one("responses_sampled")) == (filled, spent * G)
    first = min(sampled, P)
    assert names.one("alive") == useful[:first].sum()
    assert names.array("grpo_dead").sum() == first - useful[:first].sum()
    assert names.array("stream_alive").sum() + names.array("stream_dead").sum() == spent
    np.testing.assert_allclose(names.array("prices"), [first / useful[:first].sum(), spent / filled])


def test_the_expected_price_by_hand():
    # 1 − .6561 − .0001 = .3438
    assert explore_batches().names().one("expected") == pytest.approx(1 / 0.3438)


def test_a_batch_that_is_not_full_stops_at_ten_times_its_size():
    # of 120 groups of 2, a share 2 · .98 · .02 = .039 are useful: about 5, not 12
    explorer = explore_batches(success_rate=0.98, prompts=12, group_size=2)
    names = explorer.names()
    assert (names.one("is_full"), names.one("responses_sampled")) == (0, 240)
    assert "with 240 responses" in explorer.conclusion
