"""Right answers in other words, where a check could refuse what is right: other types, other precision, another graph."""

import math

import torch
from torch.nn import functional as F


def standardized_by_loop(rewards):
    rows = []
    for row in rewards.tolist():
        mean = sum(row) / len(row)
        std = math.sqrt(sum((r - mean) ** 2 for r in row) / (len(row) - 1))
        rows.append([(r - mean) / (std + 1e-6) for r in row])
    return torch.tensor(rows)


def gae_masked_in_the_loop(rewards, values, mask, gamma, lam):
    columns, next_value, next_advantage = [], 0.0, 0.0
    for t in range(values.shape[-1] - 1, -1, -1):
        delta = rewards[..., t] + gamma * next_value - values[..., t]
        next_advantage = torch.where(mask[..., t], delta + gamma * lam * next_advantage, 0.0)
        next_value = torch.where(mask[..., t], values[..., t], 0.0)
        columns.insert(0, next_advantage)
    return torch.stack(columns, -1)


def gspo_one_by_one(logp, old_logp, mask, A):
    parts = zip(logp, old_logp, mask, A, strict=True)
    return sum(torch.exp((new[row_mask] - old[row_mask]).mean()) * a for new, old, row_mask, a in parts) / len(A)


def limits_by_the_quadratic_formula(q, eps_low, eps_high, max_ratio):
    """q r² − q r ∓ eps = 0, in the words of school."""
    upper = (q + (q * q + 4 * q * eps_high).sqrt()) / (2 * q)
    lower = (q + (q * q - 4 * q * eps_low).clamp(min=0).sqrt()) / (2 * q)
    return lower, torch.where(upper > max_ratio, max_ratio, upper)


def right_by_combinations(right, samples, k):
    n, k = int(samples), int(k)
    return torch.tensor([1 - math.comb(n - c, k) / math.comb(n, k) for c in right.tolist()])


ANSWERS = {
    "pessimistic": [lambda r, a, low, high: torch.where(a > 0, torch.min(r, high), torch.max(r, low)) * a],
    "dynamic_bounds": [limits_by_the_quadratic_formula],
    "fixed_bounds": [lambda old_logp: (0.9 + 0 * old_logp, torch.tensor(1.28))],
    "truncated_weight": [
        lambda o, s, mask, cap: (o.exp() / s.exp()).where(o - s < cap.log(), cap),
        lambda o, s, mask, cap: (o - s).exp().clamp(max=cap) * 7**~mask,  # whatever stands on padding
    ],
    "sequence_objective": [gspo_one_by_one],
    "group_advantage": [standardized_by_loop, lambda r: (r - r.mean(1)[:, None]) / (r.std(1)[:, None] + 1e-7)],
    "gae_advantages": [gae_masked_in_the_loop],
    "pass_at_k": [right_by_combinations],
    "entropy": [
        lambda x: torch.distributions.Categorical(logits=x).entropy(),
        lambda x: -(x.float().exp() * x.float()).sum(-1),
    ],
    "reward_model_loss": [lambda c, r: F.binary_cross_entropy_with_logits(c - r, torch.ones_like(c))],
}
