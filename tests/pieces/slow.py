"""The pieces once more, slowly: loops over lists of floats, written from the papers' formulas and not from the code."""

from __future__ import annotations

import math
from statistics import fmean, pstdev, stdev


def token_ratio(logp, old_logp, mask):
    return [math.exp(new) / math.exp(old) if m else 1.0 for new, old, m in zip(logp, old_logp, mask, strict=True)]


def sequence_ratio(logp, old_logp, mask):
    """One response: the |o|-th root of the quotient of its probabilities, on each of its tokens."""
    quotient = math.prod(token_ratio(logp, old_logp, mask))
    return [quotient ** (1 / sum(mask)) if m else 1.0 for m in mask]


def weights(rule, lengths, max_length=16):
    """Each response's weight of one token: lengths [P][G] → [P][G], with the aggregation's name as `rule`."""
    tokens, responses = sum(map(sum, lengths)), sum(n > 0 for group in lengths for n in group)

    def of(n):
        if rule == "token_mean":
            return 1 / tokens
        if rule == "constant":
            return 1 / (responses * max_length)
        return 1 / n if rule == "sequence_sum" else 1 / (responses * n)

    return [[of(n) if n else 0.0 for n in group] for group in lengths]


def standardized(rewards, std, eps=1e-6):
    """Each reward of one group minus their mean, over std + eps."""
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    return [(r - fmean(rewards)) / (std + eps) for r in rewards]


def process(rewards, ends, combine="sum", eps=1e-6):
    """One group: rewards and ends [G][T] → advantages [G][T]."""
    steps = [r for row, at in zip(rewards, ends, strict=True) for r, end in zip(row, at, strict=True) if end]
    if not steps or min(steps) == max(steps):
        return [[0.0] * len(row) for row in rewards]
    advantages = []
    for row, at in zip(rewards, ends, strict=True):
        z = {t: (row[t] - fmean(steps)) / (stdev(steps) + eps) for t in range(len(row)) if at[t]}
        to_come = [[z[u] for u in z if u >= t] for t in range(len(row))]
        advantages.append([(sum(c) if combine == "sum" else fmean(c)) if c else 0.0 for c in to_come])
    return advantages


def smooth(visits):
    """DCPO's two mixtures for each reward of one prompt's last visit, from the list of all rewards; the nearer to 0 first."""
    i, group, everything = len(visits), visits[-1], [r for visit in visits for r in visit]

    def standard(reward, rewards):
        return 0.0 if min(rewards) == max(rewards) else (reward - fmean(rewards)) / pstdev(rewards)

    pairs = [(standard(r, group), standard(r, everything)) for r in group]
    return [sorted(((i - 1) / i * n + t / i, n / i + (i - 1) / i * t), key=abs) for n, t in pairs]


def gae(rewards, values, mask, gamma, lam):
    """One response: A_t = Σ_l (γλ)^l δ_{t+l} over its own tokens → advantages, returns, 0 elsewhere."""
    at = [t for t, m in enumerate(mask) if m]
    following = [values[t] for t in at[1:]] + [0.0]
    deltas = [rewards[t] + gamma * following[k] - values[t] for k, t in enumerate(at)]
    advantages, returns = [0.0] * len(mask), [0.0] * len(mask)
    for k, t in enumerate(at):
        advantages[t] = sum((gamma * lam) ** (j - k) * deltas[j] for j in range(k, len(at)))
        returns[t] = advantages[t] + values[t]
    return advantages, returns


def whitened(values, mask):
    """All responses at once, [P][G][T] both."""
    flat = lambda nested: [x for group in nested for row in group for x in row]  # noqa: E731
    valid = [v for v, m in zip(flat(values), flat(mask), strict=True) if m]
    if not valid or min(valid) == max(valid):
        return [[[0.0] * len(row) for row in group] for group in values]
    mean, std = fmean(valid), math.sqrt(stdev(valid) ** 2 + 1e-8)
    return [
        [[(v - mean) / std if m else 0.0 for v, m in zip(*rows, strict=True)] for rows in zip(*groups, strict=True)]
        for groups in zip(values, mask, strict=True)
    ]


def value_loss(value, old_value, target, eps=0.2):
    near = min(max(value, old_value - eps), old_value + eps)
    return max((value - target) ** 2, (near - target) ** 2) / 2
