"""Importance ratios π_θ / π_old of sampled tokens and responses. (logp, old_logp, mask) → ratio."""

from __future__ import annotations

from rlviz.pieces.words import explained
from rlviz.types import Mask, Tokens


@explained(
    why="each token is weighed by its own change of probability; one sample a token, so it is noisy on long responses.",
    formula="exp(logp − old_logp)",
)
def token_ratio(logp: Tokens, old_logp: Tokens, mask: Mask) -> Tokens:
    """Return the ratio of each token, and 1 on padding.

    Source: PPO (arXiv 1707.06347) §3, per token as in GRPO (2402.03300) Eq. 3.
    """
    return (logp - old_logp).masked_fill(~mask, 0.0).exp()


@explained(
    why="one ratio from the engine that sampled to the policy now: a clip then cuts tokens for what the engines differ in, too.",
    formula="exp(logp − sampler_logp)",
)
def ratio_to_sampler(logp: Tokens, old_logp: Tokens, mask: Mask, sampler_logp: Tokens) -> Tokens:
    """Return the ratio of each token to the policy that sampled it, and 1 on padding.

    Where the trainer's old policy sampled it is `token_ratio`. verl calls it bypass mode; decoupled PPO (arXiv 2505.24298) is
    measured against it.
    """
    return token_ratio(logp, sampler_logp, mask)


@explained(
    why="the reward belongs to the whole response, so the ratio does too; the mean over tokens tames its variance.",
    formula="exp(mean_log_ratio)",
)
def sequence_ratio(logp: Tokens, old_logp: Tokens, mask: Mask) -> Tokens:
    """Return the geometric mean of a response's token ratios on each of its tokens, and 1 on padding.

    mean_log_ratio is 1/|o_i| Σ_t (logp − old_logp). Without the root 1/|o_i| its scale would explode with length.
    Source: GSPO (arXiv 2507.18071) Eq. 7.
    """
    log_ratio = (logp - old_logp).masked_fill(~mask, 0.0)
    mean = log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return mean.exp().expand_as(log_ratio).masked_fill(~mask, 1.0)


@explained(
    why="the response's ratio decides what is clipped, while each token may have an advantage of its own.",
    formula="sg(exp(mean_log_ratio)) · exp(logp − sg(logp))",
)
def sequence_token_ratio(logp: Tokens, old_logp: Tokens, mask: Mask) -> Tokens:
    """Return the value of `sequence_ratio` with the gradient of the token's own logp.

    Source: GSPO-token (arXiv 2507.18071) Eq. 14; sg stops the gradient.
    """
    straight_through = (logp - logp.detach()).masked_fill(~mask, 0.0).exp()
    return sequence_ratio(logp, old_logp, mask).detach() * straight_through
