"""explore_length: pulls on tokens by hand, and the rules that do not pull."""

import numpy as np
import pytest

from rlviz.algorithms import DAPO, GRPO, RFT
from rlviz.pictures.length import explore_length

LENGTHS = np.arange(1, 25)


@pytest.mark.parametrize("grows", ["wrong", "right"])
@pytest.mark.parametrize("algorithm", [GRPO, DAPO], ids=lambda a: a.name)
def test_each_mean_by_hand(algorithm, grows):
    # the mean over a response: a token of L weighs 1/L, so 8/L times one of 8; over all tokens, or a constant: all alike
    pull = 8 / LENGTHS if algorithm is GRPO else np.ones(24)
    names = explore_length(algorithm, grows=grows, tokens=3).names()
    np.testing.assert_allclose(names.array("pull"), pull, rtol=1e-12)
    np.testing.assert_allclose(names.array("whole"), pull * LENGTHS / 8, rtol=1e-12)
    assert (names.one("pull_now"), names.one("whole_now")) == pytest.approx((pull[2], pull[2] * 3 / 8))


# rewards 1 1 0 0: A = ±½ / .577 = ±.866; GRPO weighs a token 1/(4 · 8), and one of 16 tokens 1/(4 · 16); DAPO all 40 alike
@pytest.mark.parametrize(("algorithm", "weights"), [(GRPO, [1 / 32, 1 / 32, 1 / 32, 1 / 64]), (DAPO, [1 / 40] * 4)])
def test_the_push_on_a_token_by_hand(algorithm, weights):
    names = explore_length(algorithm, tokens=16).names()
    push, mask, up, down = (names.array(name).reshape(4, 24) for name in ("token_pull", "there", "is_up", "is_down"))
    np.testing.assert_allclose(push[:, 0], 0.866 * np.multiply(weights, [1, 1, -1, -1]), rtol=1e-3)
    assert mask.sum(1).tolist() == [8, 8, 8, 16] == (push != 0).sum(1).tolist()
    assert (up.sum(1).tolist(), down.sum(1).tolist()) == ([8, 8, 0, 0], [0, 0, 8, 16])


def test_a_rule_that_does_not_pull_says_so():
    # RFT imitates right responses, and leaves wrong ones alone
    assert "RFT does not pull on a response of this reward" in explore_length(RFT).conclusion
    assert "At length 16, RFT pulls a token of response 4 1.00 times" in explore_length(RFT, grows="right").conclusion
