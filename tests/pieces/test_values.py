import math

from rlviz.pieces.values import ClippedValueLoss, entropy
from tests.pieces.tensors import close, double, slope

# (V, V_old, return) → (loss, slope), V kept within V_old ± .2. By hand:
#   V ran ahead towards the return: near 1.2, ½ · .8² is the larger, constant     away from it: ½ · 1.5², slope V − return
#   within ±.2: ½ · .9²        the same two below V_old: near .8, ½ · .8² constant;  ½ · .5², slope −.5
VALUE_LOSS = {
    (1.5, 1.0, 2.0): (0.32, 0.0),
    (1.5, 1.0, 0.0): (1.125, 1.5),
    (1.1, 1.0, 2.0): (0.405, -0.9),
    (0.5, 1.0, 0.0): (0.32, 0.0),
    (0.5, 1.0, 1.0): (0.125, -0.5),
}


def test_value_loss_by_hand():
    """Assert the hand-worked values and slopes at eps_value = .2."""
    value_loss = ClippedValueLoss(eps_value=0.2)
    values, old_values, returns = (double(column) for column in zip(*VALUE_LOSS, strict=True))
    losses, slopes = zip(*VALUE_LOSS.values(), strict=True)
    close(value_loss(values, old_values, returns), losses)
    close(slope(value_loss, values, old_values, returns), slopes)
    close(ClippedValueLoss(eps_value=math.inf)(values, old_values, returns), (values - returns).square() / 2)


def test_entropy_by_hand():
    """Assert −Σ p log p: ln 4 of four equals, ½ ln 2 + ¼ ln 4 · 2 of ½ ¼ ¼ 0, and 0 of certainty."""
    p = double([[0.25] * 4, [0.5, 0.25, 0.25, 0], [1, 0, 0, 0]])
    close(entropy(p.log()), [math.log(4), 1.5 * math.log(2), 0])


def test_entropy_of_an_impossible_token_has_a_finite_slope():
    # H = −Σ p log p with p = softmax: ∂H/∂logit = −p (log p + H), which is 0 for two equals
    logits = double([0.0, 0.0, -math.inf])
    close(slope(lambda x: entropy(x.log_softmax(0)), logits), [0, 0, 0])
    close(slope(lambda x: entropy(x.log_softmax(0)), double([math.log(3), 0.0])), entropy_slope(0.75, 0.25))


def entropy_slope(*p):
    h = -sum(x * math.log(x) for x in p)
    return [-x * (math.log(x) + h) for x in p]
