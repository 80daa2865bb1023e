"""From token objectives to one number, as the weight that each token gets. (mask [P, G, T]) → weights [P, G, T].

The objective is Σ weights · J. Weights depend on the mask alone, so they can be drawn, and they stay right when the
batch is cut into parts: compute them on the whole, then cut. They are float64, and take the objective's type when used.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def sequence_mean(mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
    """Return 1 / (B · |o_i|) on the tokens of response i: the mean over responses of each response's own mean.

    B counts the responses that have a token. A token of a long response weighs less than one of a short response.
    Source: GRPO (arXiv 2402.03300) Eq. 3. verl calls it seq-mean-token-mean, TRL grpo.
    """
    lengths = mask.sum(-1, keepdim=True)
    responses = (lengths > 0).sum().clamp(min=1)
    return mask.double() / (lengths.clamp(min=1) * responses)


def weighted_sum(
    values: Float[Tensor, "P G T"], weights: Float[Tensor, "P G T"], mask: Bool[Tensor, "P G T"]
) -> Float[Tensor, ""]:
    """Return Σ weights · values over true mask entries; whatever stands on padding has no part and gets no gradient."""
    return (values.masked_fill(~mask, 0.0) * weights.to(values.dtype)).sum()
