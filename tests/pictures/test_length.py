"""explore_length: pulls on tokens by hand, and the rules that do not pull."""

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DR_GRPO, GRPO, GSPO, RFT
from rlviz.pictures.length import explore_length

LENGTHS = np.arange(1, 25)


def shown(*arguments, **setting):
    return explore_length(*arguments, **setting).names()


@pytest.mark.parametrize("grows", ["wrong", "right"])
def test_each_mean_by_hand(grows):
    # the mean over a response: a token of L weighs 1/L, so 8/L times one of 8; over all tokens, or a constant: all alike
    for algorithm in (GRPO, GSPO):
        names = shown(algorithm, grows=grows)
        np.testing.assert_allclose(names.array("pull"), 8 / LENGTHS, rtol=1e-12)
        np.testing.assert_allclose(names.array("whole"), 1.0, rtol=1e-12)
    for algorithm in (DAPO, DR_GRPO):
        names = shown(algorithm, grows=grows)
        np.testing.assert_allclose(names.array("pull"), 1.0, rtol=1e-12)
        np.testing.assert_allclose(names.array("whole"), LENGTHS / 8, rtol=1e-12)


def test_the_push_on_a_token_by_hand():
    # rewards 1 1 0 0: A = ±½ / .577 = ±.866; GRPO weighs a token 1/(4 · 8), and one of 16 tokens 1/(4 · 16)
    names = shown(GRPO, tokens=16)
    push = names.array("token_pull").reshape(4, 24)
    np.testing.assert_allclose(push[:, 0], [0.866 / 32, 0.866 / 32, -0.866 / 32, -0.866 / 64], rtol=1e-3)
    assert (push != 0).sum(1).tolist() == [8, 8, 8, 16] == names.array("there").reshape(4, 24).sum(1).tolist()
    assert names.one("pull_now") == pytest.approx(0.5) and names.one("whole_now") == pytest.approx(1.0)
    # the token mean: 40 tokens
    push = shown(DAPO, tokens=16).array("token_pull").reshape(4, 24)
    np.testing.assert_allclose(np.abs(push[push != 0]), 0.866 / 40, rtol=1e-3)


def test_a_rule_that_does_not_pull_says_so():
    # RFT imitates right responses, and leaves wrong ones alone
    assert "RFT does not pull on such a response" in explore_length(RFT).conclusion
    assert not shown(RFT).array("is_down").any() and shown(RFT).array("is_up").any()
    assert "RFT pulls a token of it 1.00 times as hard" in explore_length(RFT, grows="right").conclusion


def test_words():
    assert "Response 4 has 2 tokens. GRPO pulls a token of it 4.00 times" in explore_length(tokens=2).caption
    assert "depends on the length" in explore_length().caption
    assert "every token alike" in explore_length(DR_GRPO).caption
