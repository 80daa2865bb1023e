"""Right answers to every exercise, each written in several other ways: a check must not refuse what is right."""

import math

import torch
from torch.nn import functional as F

from rlviz.pieces.aggregation import token_mean


def clipped(r, a, low, high):
    return torch.min(r * a, r.clamp(low, high) * a)


def standardized_by_loop(rewards):
    rows = []
    for row in rewards.tolist():
        mean = sum(row) / len(row)
        std = math.sqrt(sum((r - mean) ** 2 for r in row) / (len(row) - 1))
        rows.append([(r - mean) / (std + 1e-6) for r in row])
    return torch.tensor(rows)


def root_of_the_product(logp, old_logp, mask):
    ratio = torch.where(mask, (logp - old_logp).exp(), 1.0)
    return torch.where(mask, ratio.prod(-1, keepdim=True) ** (1 / mask.sum(-1, keepdim=True)), 1.0)


def responses_averaged(mask):
    lengths = mask.sum(-1, keepdim=True)
    return (mask / lengths.clamp(min=1) / (lengths > 0).sum()).float()


def gae_masked_in_the_loop(rewards, values, mask, gamma, lam):
    columns, next_value, next_advantage = [], 0.0, 0.0
    for t in range(values.shape[-1] - 1, -1, -1):
        delta = rewards[..., t] + gamma * next_value - values[..., t]
        next_advantage = torch.where(mask[..., t], delta + gamma * lam * next_advantage, 0.0)
        next_value = torch.where(mask[..., t], values[..., t], 0.0)
        columns.insert(0, next_advantage)
    return torch.stack(columns, -1)


def change_of_slopes(log_probs, rewards):
    logits = log_probs.clone().requires_grad_()
    (step,) = torch.autograd.grad((logits.softmax(-1) * rewards).sum(), logits)
    entropy = torch.distributions.Categorical(logits=logits.log_softmax(-1)).entropy().sum()
    return (torch.autograd.grad(entropy, logits)[0] * step).sum(-1)


def gains(logp, ref_logp, mask):
    return ((logp - ref_logp) * mask).sum(-1)


def dpo_a_pair_at_a_time(logp, ref_logp, mask, beta):
    losses = []
    for new, ref, row_mask in zip(logp, ref_logp, mask, strict=True):
        chosen, rejected = (beta * (new[i][row_mask[i]].sum() - ref[i][row_mask[i]].sum()) for i in (0, 1))
        losses.append(torch.log(1 + torch.exp(rejected - chosen)))
    return sum(losses) / len(losses)


def gspo_one_by_one(logp, old_logp, mask, A):
    parts = zip(logp, old_logp, mask, A, strict=True)
    return sum(torch.exp((new[row_mask] - old[row_mask]).mean()) * a for new, old, row_mask, a in parts) / len(A)


def punished_piece_by_piece(rewards, lengths):
    punishment, ramp = torch.zeros_like(rewards), (lengths > 12) & (lengths <= 16)
    punishment[ramp] = (12 - lengths[ramp]).double() / 4
    punishment[lengths > 16] = -1
    return rewards + punishment


def observed_one_by_one(logp, turn):
    tools = [one for one, number in zip(logp.flatten(), turn.flatten().tolist(), strict=True) if number in (1, 3)]
    return -sum(tools) / len(tools)


def limits_by_the_quadratic_formula(q, eps_low, eps_high, max_ratio):
    """q r² − q r ∓ eps = 0, in the words of school."""
    upper = (q + (q * q + 4 * q * eps_high).sqrt()) / (2 * q)
    lower = (q + (q * q - 4 * q * eps_low).clamp(min=0).sqrt()) / (2 * q)
    return lower, torch.where(upper > max_ratio, max_ratio, upper)


def reinforce_one_by_one(logp, mask, R, b):
    parts = zip(logp, mask, R, strict=True)
    return -torch.stack([(r - b) * row[row_mask].sum() for row, row_mask, r in parts]).sum() / len(R)


def step_by_hand(logits, actions, R, lr):
    """One-hot minus softmax, a response at a time."""
    gradient = torch.zeros_like(logits)
    for i, action in enumerate(actions.tolist()):
        b = torch.cat([R[:i], R[i + 1 :]]).mean()
        gradient = gradient + (R[i] - b) * (torch.eye(len(logits))[action] - logits.softmax(0)) / len(R)
    return logits + lr * gradient


def ppo_term_by_term(logp, old, A, V, V_old, G, H, mask):
    r = torch.exp(logp - old)
    J = torch.where(A > 0, r.clamp(max=1.2), r.clamp(min=0.8)) * A
    near = V_old + torch.clip(V - V_old, -0.2, 0.2)
    L = 0.25 * torch.stack([(V - G) ** 2, (near - G) ** 2]).amax(0)
    return -J[mask].mean() + L[mask].mean() - 0.01 * H[mask].mean()


ANSWERS = {
    "pessimistic": [lambda r, a, low, high: torch.where(a > 0, torch.min(r, high), torch.max(r, low)) * a],
    "clipped_weight": [lambda r, a, low, high: torch.min(torch.max(r, low), high).detach() * r.log() * a],
    "dual_clip": [
        lambda r, a, low, high, c: clipped(r, a, low, high).maximum(torch.where(a < 0, c * a, -math.inf)),
        lambda r, a, low, high, c: torch.where(a >= 0, torch.min(r, high) * a, r.max(low).min(c) * a),
    ],
    "sign_weights": [lambda r, a, low, high, up, down: torch.where(a > 0, up, down) * clipped(r, a, low, high)],
    "dynamic_bounds": [
        limits_by_the_quadratic_formula,
        lambda q, *inputs: limits_by_the_quadratic_formula(q.float(), *inputs),
        lambda q, low, high, cap: [0.5 + F.relu(1 - 4 * low / q).sqrt() / 2, (0.5 + (0.25 + high / q).sqrt()).min(cap)],
    ],
    "importance_ratio": [lambda logp, old, mask: torch.where(mask, logp.exp() / old.exp(), 1.0)],
    "sequence_importance_ratio": [root_of_the_product],
    "truncated_weight": [
        lambda o, s, mask, cap: (o.exp() / s.exp()).where(o - s < cap.log(), cap),
        lambda o, s, mask, cap: (o - s).exp().clamp(max=cap) * 7**~mask,  # whatever stands on padding
    ],
    "sequence_objective": [gspo_one_by_one],
    "group_advantage": [
        standardized_by_loop,
        lambda r: (r - r.mean(1)[:, None]) / (r.std(1)[:, None] + 1e-7),
        lambda r: ((x := r.float()) - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-6),
    ],
    "mean_only": [lambda r: r - r.sum(1)[:, None] / r.shape[1]],
    "gae_advantages": [gae_masked_in_the_loop],
    "mean_of_responses": [responses_averaged],
    "mean_of_tokens": [lambda mask: mask * (1 / mask.sum()), lambda mask: (mask / mask.sum()).float()],
    "sum_of_responses": [lambda mask: (mask / mask.sum(-1, keepdim=True)).nan_to_num()],
    "constant_weight": [lambda mask: mask * (1 / (16 * mask.any(-1).sum()))],
    "own_token_weights": [lambda t: token_mean(t % 2 < 1)],
    "observation_loss": [observed_one_by_one],
    "kl_estimate_k3": [lambda logp, ref: ref.exp() / logp.exp() - 1 - (ref - logp)],
    "pass_at_k": [
        lambda c, n, k: torch.tensor(
            [1 - math.comb(int(n - x), int(k)) / math.comb(int(n), int(k)) for x in c.flatten()]
        ).view(c.shape),
        lambda c, n, k: 1 - torch.stack([(n - c - i) / (n - i) for i in range(k)]).prod(0),
    ],
    "entropy": [
        lambda x: sum(-x[..., v].exp() * x[..., v] for v in range(x.shape[-1])),
        lambda x: torch.distributions.Categorical(logits=x).entropy(),
        lambda x: -(x.float().exp() * x.float()).sum(-1),
    ],
    "entropy_change": [change_of_slopes],
    "soft_overlong_punishment": [punished_piece_by_piece, lambda r, n: r.float() - ((n - 12) / 4).clamp(0, 1)],
    "dpo_loss": [
        dpo_a_pair_at_a_time,
        lambda x, r, m, b: F.softplus(b.float() * gains(x.float(), r.float(), m).diff()).mean(),
    ],
    "reward_model_loss": [
        lambda c, r: F.binary_cross_entropy_with_logits(c - r, torch.ones_like(c)),
        lambda c, r: torch.logaddexp(torch.zeros_like(c), r - c).mean(),
        lambda c, r: F.softplus(r.float() - c.float()).mean(),
    ],
    "reinforce": [reinforce_one_by_one],
    "reinforce_step": [step_by_hand],
    "ppo_loss": [ppo_term_by_term],
    "fixed_bounds": [lambda old_logp: (0.9 + 0 * old_logp, torch.tensor(1.28))],
}
