import math

import pytest
import torch

from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.ratios import token_ratio


def test_token_ratio_is_the_quotient_of_the_probabilities():
    # new .6, .1 from old .5, .4: ratios 1.2 and .25; the third place is padding and stays 1 whatever it holds
    logp = torch.tensor([[[math.log(0.6), math.log(0.1), -700.0]]], dtype=torch.double, requires_grad=True)
    old_logp = torch.tensor([[[math.log(0.5), math.log(0.4), 900.0]]], dtype=torch.double)
    ratio = token_ratio(logp, old_logp, torch.tensor([[[True, True, False]]]))
    torch.testing.assert_close(
        ratio.detach(), torch.tensor([[[1.2, 0.25, 1.0]]], dtype=torch.double), rtol=1e-12, atol=0
    )
    ratio.sum().backward()
    # d exp(logp − old)/d logp is the ratio itself, and nothing on padding
    torch.testing.assert_close(logp.grad, torch.tensor([[[1.2, 0.25, 0.0]]], dtype=torch.double), rtol=1e-12, atol=0)


def test_fixed_bounds_are_one_minus_and_one_plus_the_widths():
    lower, upper = FixedBounds(eps_low=0.2, eps_high=0.28)(torch.tensor([-0.1, -5.0], dtype=torch.double))
    assert lower.tolist() == [0.8, 0.8]
    assert upper.tolist() == [1.28, 1.28]


@pytest.mark.parametrize(
    ("widths", "named"),
    [
        ({"eps_low": 0.0}, "eps_low"),
        ({"eps_low": 1.0}, "eps_low"),
        ({"eps_low": 1.5}, "eps_low"),
        ({"eps_high": 0.0}, "eps_high"),
        ({"eps_high": -0.1}, "eps_high"),
        ({"eps_high": float("inf")}, "eps_high"),
        ({"eps_low": float("nan")}, "eps_low"),
    ],
)
def test_widths_out_of_range_are_refused_by_name_and_value(widths, named):
    with pytest.raises(ValueError, match=named) as refused:
        FixedBounds(**widths)
    assert str(widths[named]) in str(refused.value)
