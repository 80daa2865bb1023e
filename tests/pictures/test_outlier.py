"""explore_outlier: three means by hand, and which tokens either rule clips."""

import numpy as np
import pytest

from rlviz.pictures.outlier import explore_outlier

NO_NOISE = {"noise": 0.0}


@pytest.mark.parametrize(
    ("outlier", "length", "means"),
    [
        (1.5, 100, (4.482, 1.035, 1.015)),  # (e^1.5 + 99) / 100, e^0.015
        (-4.6, 10, (0.01005, 0.9010, 0.6313)),  # (e^−4.6 + 9) / 10, e^−0.46
    ],
)
def test_three_means_by_hand(outlier, length, means):
    names = explore_outlier(outlier=outlier, length=length, **NO_NOISE).names()
    assert [names.one(name) for name in ("product", "arithmetic", "s")] == pytest.approx(means, rel=1e-3)


# s = e^(1.5 / 20) = 1.078, beyond 1.03 and within 1.1; the others of GRPO's ratios are 1
@pytest.mark.parametrize(
    ("setting", "grpo", "gspo"),
    [
        ({}, [0.0] + [1.0] * 19, [0.0] * 20),
        ({"gspo_width": 0.1}, [0.0] + [1.0] * 19, [1.0779] * 20),
        ({"sign": "wrong"}, [4.4817] + [1.0] * 19, [1.0779] * 20),  # A < 0: a ratio above the limit is not clipped
        ({"sign": "wrong", "outlier": -1.5}, [0.0] + [1.0] * 19, [0.0] * 20),
    ],
)
def test_what_is_clipped_by_hand(setting, grpo, gspo):
    explorer = explore_outlier(**NO_NOISE, **setting)
    names = explorer.names()
    np.testing.assert_allclose(names.array("grpo"), grpo, atol=1e-4)
    np.testing.assert_allclose(names.array("gspo"), gspo, atol=1e-4)
    assert names.array("is_clipped").tolist() == [float(weight == 0) for weight in grpo]
    assert ("all 20 are clipped" in explorer.conclusion) == (gspo[0] == 0)
