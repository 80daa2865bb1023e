"""Wrong answers as a student types them, in plain torch: check → the mistake's name → the student's function.

They are the second implementation of the rows of which no test has values by hand.
"""

from functools import partial

import torch
from torch.nn.functional import logsigmoid

from rlviz.exercises import check


def masked_mean(x, m):
    return (x * m).sum(-1) / m.sum(-1)


def gae(delta=lambda r, v, vn, g, k: r + g * vn - v, adv=lambda d, an, g, k: d + g * k * an, last=None, fwd=False):
    def answer(rewards, values, mask, gamma, lam):
        v = values * mask
        out, width = torch.zeros_like(v), v.shape[-1]
        na = torch.zeros_like(v[..., 0])
        nv = last(v) if last else na
        for t in range(width) if fwd else reversed(range(width)):
            d = delta(rewards[..., t], v[..., t], nv, gamma, lam)
            out[..., t] = adv(d, na, gamma, lam)
            nv, na = v[..., t], out[..., t]
        return out

    return answer


def own_boot(rewards, values, mask, gamma, lam):
    v, last = values * mask, torch.arange(values.shape[-1]) == mask.sum(-1, keepdim=True) - 1
    after = torch.where(last, v, torch.cat([v[..., 1:], v[..., -1:]], -1))
    out, a = torch.zeros_like(v), 0.0
    for t in reversed(range(v.shape[-1])):
        a = out[..., t] = ((rewards + gamma * after - v) * mask)[..., t] + gamma * lam * a
    return out


def fwd_sum(rewards, values, mask, gamma, lam):
    v = values * mask
    d = rewards + gamma * torch.cat([v[..., 1:], torch.zeros_like(v[..., :1])], -1) - v
    out, a = torch.zeros_like(d), 0.0
    for t in range(d.shape[-1]):
        a = out[..., t] = d[..., t] + gamma * lam * a
    return out


def gains(x, r, m):
    return ((x - r) * m).sum(-1).unbind(-1)


def minus(pairs):
    return pairs[:, 0] - pairs[:, 1]


def marg(x, r, m):
    chosen, rejected = gains(x, r, m)
    return chosen - rejected


def pk(p, R):
    return (p * R).sum(-1, keepdim=True)


def change(
    A=lambda p, R: R - pk(p, R),
    step=lambda p, A: p * A,
    of=lambda lp: lp,
    cov=lambda p, x, y: (p * x * y).sum(-1) - (p * x).sum(-1) * (p * y).sum(-1),
):
    return lambda lp, R: -cov(lp.exp(), of(lp), step(lp.exp(), A(lp.exp(), R)))


def oe(s, m):
    """One number a response, on every token of it."""
    return s[..., None].expand(m.shape).masked_fill(~m, 1.0)


def pess(r, a, lo, hi):
    return torch.min(r * a, r.clamp(lo, hi) * a)


def mk(R):
    return R.mean(1, keepdim=True)


def sk(R):
    return R.std(1, keepdim=True)


def S(n, o, m):
    return masked_mean(n - o, m).exp()


def B(
    lower=lambda q, el, eh, M: 0.5 + 0.5 * (1 - 4 * el / q).clamp(min=0).sqrt(),
    upper=lambda q, el, eh, M: torch.minimum(0.5 + 0.5 * (1 + 4 * eh / q).sqrt(), M),
):
    return lambda *given: (lower(*given), upper(*given))


def step(weights):
    def answer(logits, actions, R, lr):
        z = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((weights(R) * z.log_softmax(0)[actions]).mean(), z)
        return logits + lr * gradient

    return answer


def loo(R):
    return R - (R.sum() - R) / (len(R) - 1)


def my_ppo(n, o, A, V, old, G, H, m, *, c=(1, 0.5, 0.01), pick=torch.maximum, J=None, ratio=None, near=None, half=0.5):
    r = ratio(n, o) if ratio else (n - o).exp()
    J = J(r, A) if J else torch.min(r * A, r.clamp(0.8, 1.2) * A)
    near = near(V, old) if near else old + (V - old).clamp(-0.2, 0.2)
    L = pick((V - G) ** 2, (near - G) ** 2) * half
    return -c[0] * J[m].mean() + c[1] * L[m].mean() - c[2] * H[m].mean()


def wt(r, lo, hi):
    return r.clamp(lo, hi).detach()


def u(a, po, ne):
    return torch.where(a < 0, ne, po)


def constant_16(student):
    return check.constant_weight(student, 16)


# wrong in any mean but the one that it is
WEIGHTS = {
    "responses added up": lambda m: m / m.sum(-1, keepdim=True).clamp(min=1),
    "width for the length": lambda m: m / m.shape[-1],
    "width of the tensor for the maximum": lambda m: m / m.shape[-1] / m.any(-1).sum(),
    "longest response for the maximum": lambda m: m / m.sum(-1).max() / m.any(-1).sum(),
    "length mean of all responses": lambda m: m / m.sum(-1, keepdim=True).clamp(min=1) / m[..., 0].numel(),
    "padding weighs too": lambda m: torch.ones_like(m).double() / m.numel(),
    "padding weighs as a token": lambda m: torch.ones_like(m).double() / m.sum(),
    "padding weighs as its response": lambda m: (
        torch.ones_like(m).double() / m.sum(-1, keepdim=True).clamp(min=1) / m.any(-1).sum()
    ),
    "tokens of each prompt": lambda m: m / m.sum((1, 2), keepdim=True).clamp(min=1),
    "mean of the prompts": lambda m: m / m.sum((1, 2), keepdim=True).clamp(min=1) / m.shape[0],
    "lengths of the mean not clamped": lambda m: m / m.sum(-1, keepdim=True) / m.any(-1).sum(),
    "lengths not clamped": lambda m: m / m.sum(-1, keepdim=True),
    "responses of a group counted": lambda m: m / m.sum(-1, keepdim=True).clamp(min=1) / m.shape[1],
    "prompts counted": lambda m: m / m.sum(-1, keepdim=True).clamp(min=1) / m.shape[0],
    "over the group s axis": lambda m: m / m.sum(-2, keepdim=True).clamp(min=1),
    "divided by the length twice": lambda m: m / m.sum(-1, keepdim=True).clamp(min=1) ** 2 / m.any(-1).sum(),
    "divided by tokens and responses": lambda m: m / m.sum() / m.any(-1).sum(),
    "tokens and sequences swapped": lambda m: m / m.sum(),
    "every width the same": lambda m: m / m.numel(),
}
TYPED = {
    check.gae_advantages: {
        "lambda in delta too": gae(delta=lambda r, v, vn, g, k: r + g * k * vn - v),
        "lambda in delta": gae(delta=lambda r, v, vn, g, k: r + g * k * vn - v, adv=lambda d, an, g, k: d + g * an),
        "lambda for gamma": gae(delta=lambda r, v, vn, g, k: r + k * vn - v),
        "both forgotten in the sum": gae(adv=lambda d, an, g, k: d + an),
        "both forgotten": gae(delta=lambda r, v, vn, g, k: r + vn - v, adv=lambda d, an, g, k: d + an),
        "loop from the first token": gae(fwd=True),
        "summed forwards and masked": lambda r, v, m, ga, k: fwd_sum(r, v, m, ga, k) * m,
        "last value of the width bootstrapped": gae(last=lambda v: v[..., -1]),
        "last value bootstrapped": own_boot,
        "delta weighed too": gae(adv=lambda d, an, g, k: g * k * (d + an)),
        "delta weighed by the rest": gae(adv=lambda d, an, g, k: (1 - k) * d + g * k * an),
        "gamma on the change of value": gae(delta=lambda r, v, vn, g, k: r + g * (vn - v)),
        "gamma on the reward": gae(delta=lambda r, v, vn, g, k: g * (r + vn) - v),
        "discounted rewards": gae(delta=lambda r, v, vn, g, k: r, adv=lambda d, an, g, k: d + g * an),
        "rewards for deltas": gae(delta=lambda r, v, vn, g, k: r),
        "value added": gae(delta=lambda r, v, vn, g, k: r + g * vn + v),
        "signs of the values turned": gae(delta=lambda r, v, vn, g, k: r + v - g * vn),
        "next value taken off": gae(delta=lambda r, v, vn, g, k: r - g * vn - v),
        "rewards floored": gae(delta=lambda r, v, vn, g, k: r.relu() + g * vn - v),
        "one minus lambda": gae(adv=lambda d, an, g, k: d + g * (1 - k) * an),
    },
    check.dpo_loss: {
        "a sigmoid for each token": lambda x, r, m, b: (
            -(logsigmoid(b * ((x - r)[:, 0] - (x - r)[:, 1])) * (m[:, 0] & m[:, 1])).sum(-1).mean()
        ),
        "a sigmoid for each place": lambda x, r, m, b: (
            -logsigmoid(b * (((x - r) * m)[:, 0] - ((x - r) * m)[:, 1])).sum(-1).mean()
        ),
        "a mean of sigmoids of places": lambda x, r, m, b: (
            -logsigmoid(b * (((x - r) * m)[:, 0] - ((x - r) * m)[:, 1])).mean()
        ),
        "a sigmoid for each token of the chosen": lambda x, r, m, b: (
            -(logsigmoid(b * ((x - r)[:, 0] - (x - r)[:, 1])) * m[:, 0]).sum(-1).mean()
        ),
        "hinge for the logarithm": lambda x, r, m, b: torch.relu(1 - b * marg(x, r, m)).mean(),
        "hinge without beta": lambda x, r, m, b: torch.relu(1 - marg(x, r, m)).mean(),
        "hinge at zero": lambda x, r, m, b: torch.relu(-b * marg(x, r, m)).mean(),
        "square for the logarithm": lambda x, r, m, b: (marg(x, r, m) - 1 / (2 * b)).square().mean(),
        "exponential for the logarithm": lambda x, r, m, b: (-b * marg(x, r, m)).exp().mean(),
        "reference and beta forgotten": lambda x, r, m, b: -logsigmoid(marg(x, 0 * r, m)).mean(),
        "reference at the chosen only": lambda x, r, m, b: (
            -logsigmoid(b * ((((x - r) * m)[:, 0]).sum(-1) - ((x * m)[:, 1]).sum(-1))).mean()
        ),
        "reference at the rejected only": lambda x, r, m, b: (
            -logsigmoid(b * ((((x) * m)[:, 0]).sum(-1) - (((x - r) * m)[:, 1]).sum(-1))).mean()
        ),
        "reference and sums forgotten": lambda x, r, m, b: -logsigmoid(b * minus(((x) * m).sum(-1) / m.sum(-1))).mean(),
        "beta on the rejected only": lambda x, r, m, b: -logsigmoid(gains(x, r, m)[0] - b * gains(x, r, m)[1]).mean(),
        "chance of the other order": lambda x, r, m, b: torch.sigmoid(-b * marg(x, r, m)).mean(),
        "ratios of probabilities": lambda x, r, m, b: -logsigmoid(b * minus((((x - r) * m).sum(-1)).exp())).mean(),
        "responses added": lambda x, r, m, b: -logsigmoid(b * sum(gains(x, r, m))).mean(),
        "reference added": lambda x, r, m, b: -logsigmoid(b * marg(x, -r, m)).mean(),
        "chosen alone": lambda x, r, m, b: -logsigmoid(b * gains(x, r, m)[0]).mean(),
        "each response a verdict of its own": lambda x, r, m, b: (
            -(logsigmoid(b * gains(x, r, m)[0]) + logsigmoid(-b * gains(x, r, m)[1])).mean()
        ),
        "beta twice": lambda x, r, m, b: -b * logsigmoid(b * marg(x, r, m)).mean(),
        "divided by the tokens": lambda x, r, m, b: -logsigmoid(b * marg(x, r, m)).sum() / m.sum(),
        "mask at the policy only": lambda x, r, m, b: -logsigmoid(b * minus((x * m).sum(-1) - r.sum(-1))).mean(),
        "mask at the reference only": lambda x, r, m, b: -logsigmoid(b * minus(x.sum(-1) - (r * m).sum(-1))).mean(),
        "mask turned round": lambda x, r, m, b: -logsigmoid(b * minus((x - r).masked_fill(m, 0).sum(-1))).mean(),
        "means over all places": lambda x, r, m, b: -logsigmoid(b * minus((x - r).mean(-1))).mean(),
        "first pairs for chosen and rejected": lambda x, r, m, b: (
            -logsigmoid(b * (((x - r) * m).sum(-1)[0] - ((x - r) * m).sum(-1)[1])).mean()
        ),
        "every chosen with every rejected": lambda x, r, m, b: (
            -logsigmoid(b * (((x - r) * m).sum(-1)[:, :1] - ((x - r) * m).sum(-1)[:, 1])).mean()
        ),
        "policy for the reference": lambda x, r, m, b: -logsigmoid(b * marg(x, x.detach(), m)).mean(),
        "rejected alone": lambda x, r, m, b: -logsigmoid(-b * gains(x, r, m)[1]).mean(),
        "both responses raised": lambda x, r, m, b: -logsigmoid(b * ((x - r) * m).sum(-1)).mean(),
        "beta of a tenth": lambda x, r, m, b: -logsigmoid(0.1 * marg(x, r, m)).mean(),
        "beta on the reference only": lambda x, r, m, b: -logsigmoid(marg(x, b * r, m)).mean(),
        "linear without beta": lambda x, r, m, b: -marg(x, r, m).mean(),
        "dpo in bits": lambda x, r, m, b: -torch.log2(torch.sigmoid(b * marg(x, r, m))).mean(),
    },
    check.importance_ratio: {
        "ratio with the old recomputed": lambda n, o, m: (n - n.detach()).exp().masked_fill(~m, 1.0),
        "ratio with the exponential of the old alone": lambda n, o, m: (n - o.exp()).masked_fill(~m, 1.0),
        "ratio as a difference": lambda n, o, m: (n.exp() - o.exp()).masked_fill(~m, 1.0),
        "ratio of the logarithms": lambda n, o, m: (n / o).masked_fill(~m, 1.0),
        "ratio with the new policy alone": lambda n, o, m: n.exp().masked_fill(~m, 1.0),
    },
    check.sequence_importance_ratio: {
        "sequence ratio without gradient": lambda n, o, m: oe((((n.detach() - o) * m).sum(-1) / m.sum(-1)).exp(), m),
        "sequence ratio with the new policy alone": lambda n, o, m: oe(((n * m).sum(-1) / m.sum(-1)).exp(), m),
        "sequence ratio with padding in the sum": lambda n, o, m: oe((n - o).sum(-1).div(m.sum(-1)).exp(), m),
        "sequence ratio without the mask": lambda n, o, m: oe((n - o).mean(-1).exp(), m),
        "sequence ratio of each token": lambda n, o, m: (n - o).masked_fill(~m, 0).exp(),
        "sequence ratio left in logs": lambda n, o, m: oe(((n - o) * m).sum(-1) / m.sum(-1), m),
        "sequence ratio upside down": lambda n, o, m: oe((((o - n) * m).sum(-1) / m.sum(-1)).exp(), m),
        "sequence ratio with the old recomputed": lambda n, o, m: oe(
            (((n - n.detach()) * m).sum(-1) / m.sum(-1)).exp(), m
        ),
        "sequence ratio divided after the exponential": lambda n, o, m: oe(((n - o) * m).sum(-1).exp() / m.sum(-1), m),
    },
    check.pessimistic: {
        "inverted for good tokens": lambda r, a, lo, hi: torch.where(
            a < 0, torch.min(r * a, r.clamp(lo, hi) * a), torch.max(r * a, r.clamp(lo, hi) * a)
        ),
        "log ratio clamped at the widths": lambda r, a, lo, hi: torch.min(
            r * a, r.log().clamp(lo - 1, hi - 1).exp() * a
        ),
        "log ratio clamped at the limits": lambda r, a, lo, hi: torch.min(r * a, r.log().clamp(lo, hi).exp() * a),
        "advantage left out of the clipped branch": lambda r, a, lo, hi: torch.min(r * a, r.clamp(lo, hi)),
        "advantage left out of the free branch": lambda r, a, lo, hi: torch.min(r, r.clamp(lo, hi) * a),
        "advantage left out": lambda r, a, lo, hi: torch.min(r, r.clamp(lo, hi)),
        "clipped from below only": lambda r, a, lo, hi: torch.min(r * a, r.clamp(min=lo) * a),
        "upper width on both sides": lambda r, a, lo, hi: torch.min(r * a, r.clamp(2 - hi, hi) * a),
        "lower width on both sides": lambda r, a, lo, hi: torch.min(r * a, r.clamp(lo, 2 - lo) * a),
        "advantage s sign lost": lambda r, a, lo, hi: torch.min(r * a.abs(), r.clamp(lo, hi) * a.abs()),
        "inverse of the lower limit": lambda r, a, lo, hi: torch.min(r * a, r.clamp(lo, 1 / lo) * a),
        "bad tokens left out": lambda r, a, lo, hi: torch.where(a > 0, torch.min(r * a, r.clamp(lo, hi) * a), 0 * r),
        "zero where it is clipped": lambda r, a, lo, hi: torch.where(
            ((a > 0) & (r > hi)) | ((a < 0) & (r < lo)), 0 * r, r * a
        ),
    },
    check.dual_clip: {
        "dual clip from above for every sign": lambda r, a, lo, hi, c: torch.min(pess(r, a, lo, hi), c * a),
        "dual clip without the minimum for bad tokens": lambda r, a, lo, hi, c: torch.where(
            a < 0, torch.max(r.clamp(lo, hi) * a, c * a), pess(r, a, lo, hi)
        ),
        "dual clip at c": lambda r, a, lo, hi, c: torch.where(
            a < 0, torch.max(pess(r, a, lo, hi), c.expand_as(a)), pess(r, a, lo, hi)
        ),
        "dual clip at minus c": lambda r, a, lo, hi, c: torch.where(
            a < 0, torch.max(pess(r, a, lo, hi), -c.expand_as(a)), pess(r, a, lo, hi)
        ),
        "dual clip alone": lambda r, a, lo, hi, c: torch.where(a < 0, torch.max(r * a, c * a), r * a),
        "dual clip without the minimum": lambda r, a, lo, hi, c: torch.where(
            a < 0, torch.max(r.clamp(lo, hi) * a, c * a), r.clamp(lo, hi) * a
        ),
        "dual clip in place of the surrogate": lambda r, a, lo, hi, c: torch.where(a < 0, c * a, pess(r, a, lo, hi)),
        "dual clip of the maximum": lambda r, a, lo, hi, c: torch.where(
            a < 0, torch.max(torch.max(r * a, r.clamp(lo, hi) * a), c * a), torch.max(r * a, r.clamp(lo, hi) * a)
        ),
        "dual clip zero beyond it": lambda r, a, lo, hi, c: torch.where((a < 0) & (r > c), 0 * r, pess(r, a, lo, hi)),
        "dual clip above zero": lambda r, a, lo, hi, c: torch.where(
            a < 0, torch.max(pess(r, a, lo, hi), -c * a), pess(r, a, lo, hi)
        ),
    },
    check.group_advantage: {
        "mean divided alone": lambda R: R - mk(R) / (sk(R) + 1e-6),
        "mean of the position": lambda R: (R - R.mean(0)) / (sk(R) + 1e-6),
        "mean of the batch": lambda R: (R - R.mean()) / (sk(R) + 1e-6),
        "mean of the batch without the std": lambda R: R - R.mean(),
        "own reward left out of the mean": lambda R: R - (R.sum(1, keepdim=True) - R) / (R.shape[1] - 1),
        "range for the std": lambda R: (R - mk(R)) / (R.amax(1, keepdim=True) - R.amin(1, keepdim=True) + 1e-6),
        "biased std without eps": lambda R: (R - mk(R)) / R.std(1, keepdim=True, unbiased=False),
        "multiplied by the std": lambda R: (R - mk(R)) * (sk(R) + 1e-6),
    },
    check.entropy: {
        "surprise of the first token": lambda lp: -lp[..., 0],
        "surprise of the last token": lambda lp: -lp[..., -1],
        "normalised over the first axis": lambda lp: -(lp.softmax(0) * lp.log_softmax(0)).sum(-1),
        "normalised over another axis": lambda lp: -(lp.softmax(-2) * lp.log_softmax(-2)).sum(-1),
        "perplexity": lambda lp: (-(lp.exp() * lp).sum(-1)).exp(),
        "probabilities added": lambda lp: -lp.exp().sum(-1),
        "gini": lambda lp: 1 - lp.exp().square().sum(-1),
        "collision entropy": lambda lp: -lp.exp().square().sum(-1).log(),
        "powers of two for probabilities": lambda lp: -(2**lp * lp).sum(-1),
        "missing to the most": lambda lp: torch.tensor(float(lp.shape[-1])).log() + (lp.exp() * lp).sum(-1),
        "entropy to base ten": lambda lp: -(lp.exp() * lp).sum(-1) / torch.tensor(10.0).log(),
        "log probabilities divided by their sum": lambda lp: torch.distributions.Categorical(lp).entropy(),
        "softmax of probabilities": lambda lp: -(lp.exp().softmax(-1) * lp.exp().softmax(-1).log()).sum(-1),
        "weighted by the inverse": lambda lp: -(lp / lp.exp()).sum(-1),
        "logarithm of the sum": lambda lp: -lp.exp().sum(-1).log(),
    },
    check.entropy_change: {
        "baseline averaged": change(A=lambda p, R: R - (p * R).mean(-1, keepdim=True)),
        "baseline of all distributions": change(A=lambda p, R: R - (p * R).sum()),
        "baseline added to rewards": change(A=lambda p, R: R + (p * R).sum(-1, keepdim=True)),
        "rewards standardised": change(A=lambda p, R: (R - mk(R)) / (sk(R) + 1e-6)),
        "step with two probabilities": change(step=lambda p, A: p * p * A),
        "step with the logarithm": change(step=lambda p, A: p.log() * A),
        "covariance of the probability": change(of=lambda lp: lp.exp()),
        "weighted products averaged": lambda lp, R: (
            -(lp.exp() * (lp - (lp.exp() * lp).sum(-1, keepdim=True)) * lp.exp() * (R - pk(lp.exp(), R))).mean(-1)
        ),
        "entropy taken off": change(cov=lambda p, x, y: (p * x * y).sum(-1) + (p * x).sum(-1) * (p * y).sum(-1)),
        "centred over actions": change(cov=lambda p, x, y: (p * x * y).sum(-1) - x.mean(-1) * (p * y).sum(-1)),
        "change in bits": lambda lp, R: change()(lp, R) * torch.log2(torch.e * torch.ones(())),
    },
    check.dynamic_bounds: {
        "change weighed by the old probability alone": B(
            lambda q, el, eh, M: 1 - el / q, lambda q, el, eh, M: 1 + eh / q
        ),
        "change weighed by the old probability without a cap": B(
            lambda q, el, eh, M: (1 - el / q).clamp(min=0), lambda q, el, eh, M: 1 + eh / q
        ),
        "change weighed by the old probability without a clamp": B(
            lambda q, el, eh, M: 1 - el / q, lambda q, el, eh, M: torch.minimum(1 + eh / q, M)
        ),
        "power without brackets": B(
            lambda q, el, eh, M: 0.5 + 0.5 * (1 - 4 * el / q).clamp(min=0) ** 1 / 2,
            lambda q, el, eh, M: torch.minimum(0.5 + 0.5 * (1 + 4 * eh / q) ** 1 / 2, M),
        ),
        "cap under the root": B(
            lambda q, el, eh, M: (1 + (1 - 4 * el / q).clamp(min=0).sqrt()) / 2,
            lambda q, el, eh, M: (1 + torch.minimum(1 + 4 * eh / q, M).sqrt()) / 2,
        ),
        "distances weighed by the old probability": B(lambda q, el, eh, M: -el / q, lambda q, el, eh, M: eh / q),
        "width times the probability": B(lambda q, el, eh, M: 1 - el * q, lambda q, el, eh, M: 1 + eh * q),
        "square roots of the width": B(
            lambda q, el, eh, M: (1 - (el / q).sqrt()).clamp(min=0),
            lambda q, el, eh, M: torch.minimum(1 + (eh / q).sqrt(), M),
        ),
        "probability and width": B(lambda q, el, eh, M: q - el, lambda q, el, eh, M: q + eh),
        "divided by twice the probability": B(
            lambda q, el, eh, M: (1 + (1 - 4 * el / q).clamp(min=0).sqrt()) / (2 * q),
            lambda q, el, eh, M: torch.minimum((1 + (1 + 4 * eh / q).sqrt()) / (2 * q), M),
        ),
        "root halved alone": B(
            lambda q, el, eh, M: 1 + (1 - 4 * el / q).clamp(min=0).sqrt() / 2,
            lambda q, el, eh, M: torch.minimum(1 + (1 + 4 * eh / q).sqrt() / 2, M),
        ),
        "difference divided by the probability": B(
            lambda q, el, eh, M: 0.5 + 0.5 * ((1 - 4 * el) / q).clamp(min=0).sqrt(),
            lambda q, el, eh, M: torch.minimum(0.5 + 0.5 * ((1 + 4 * eh) / q).sqrt(), M),
        ),
        "two for four": B(
            lambda q, el, eh, M: 0.5 + 0.5 * (1 - 2 * el / q).clamp(min=0).sqrt(),
            lambda q, el, eh, M: torch.minimum(0.5 + 0.5 * (1 + 2 * eh / q).sqrt(), M),
        ),
        "one where there is no root": B(
            lambda q, el, eh, M: torch.where(1 - 4 * el / q < 0, 1.0, 0.5 + 0.5 * (1 - 4 * el / q).sqrt())
        ),
        "mirrored": B(lambda q, el, eh, M: 2 - (0.5 + 0.5 * (1 + 4 * el / q).sqrt())),
        "probability squared": B(
            lambda q, el, eh, M: 0.5 + 0.5 * (1 - 4 * el / q**2).clamp(min=0).sqrt(),
            lambda q, el, eh, M: torch.minimum(0.5 + 0.5 * (1 + 4 * eh / q**2).sqrt(), M),
        ),
    },
    check.soft_overlong_punishment: {
        "overlong from the cache on": lambda r, n: r + ((4 - n) / 4).clamp(-1, 0),
        "overlong from the cache to the maximum": lambda r, n: r + ((4 - n) / 12).clamp(-1, 0),
        "overlong from the cache over the maximum": lambda r, n: r + ((4 - n) / 16).clamp(-1, 0),
        "overlong as a bonus of the short": lambda r, n: r + ((n - 12) / 4).clamp(-1, 0),
        "overlong over the maximum length with a step": lambda r, n: (
            r + torch.where(n > 16, -1, ((12 - n) / 16).clamp(-1, 0))
        ),
        "overlong from nothing on": lambda r, n: r - (n / 16).clamp(0, 1),
        "overlong by the length divided alone": lambda r, n: r + (12 - n / 4).clamp(-1, 0),
        "overlong not divided and without a floor": lambda r, n: r + (12 - n).clamp(max=0),
        "overlong not divided nor clipped": lambda r, n: r + (12 - n),
        "overlong for nothing beyond the maximum": lambda r, n: torch.where(n > 16, 0, r + ((12 - n) / 4).clamp(-1, 0)),
        "overlong filtered": lambda r, n: torch.where(n > 16, 0.0, r.double()),
    },
    check.kl_estimate_k3: {
        "k1 upside down for k3": lambda n, r: r - n,
        "square for k3": lambda n, r: (n - r) ** 2,
        "exact kl for k3": lambda n, r: n.exp() * (n - r),
        "forward kl for k3": lambda n, r: r.exp() * (r - n),
        "forward estimate for k3": lambda n, r: (r - n).exp() * (r - n),
        "probabilities subtracted for the ratio": lambda n, r: r.exp() - n.exp() - (r - n) - 1,
        "exponential of logp alone": lambda n, r: r - n.exp() - (r - n) - 1,
        "x not taken off": lambda n, r: (r - n).exp() - 1,
        "one added": lambda n, r: (r - n).exp() - (r - n) + 1,
        "all in the exponent": lambda n, r: ((r - n) - (r - n) - 1).exp(),
        "one in the exponent": lambda n, r: ((r - n) - 1).exp() - (r - n),
        "forward k3": lambda n, r: (r - n).exp() * (r - n) - (r - n).exp() + 1,
        "distance for k3": lambda n, r: (n - r).abs(),
        "half of k3": lambda n, r: ((r - n).exp() - (r - n) - 1) / 2,
    },
    check.kl_estimate_k1: {
        "k1 weighed by its probability": lambda n, r: n.exp() * (n - r),
        "k2 for k1": lambda n, r: (n - r) ** 2 / 2,
        "k3 for k1": lambda n, r: (r - n).exp() - (r - n) - 1,
        "k1 of probabilities": lambda n, r: n.exp() - r.exp(),
        "ratio for k1": lambda n, r: (n - r).exp(),
        "k1 without its sign": lambda n, r: (n - r).abs(),
    },
    check.sequence_objective: {
        "gspo with the mean of ratios over the width": lambda n, o, m, A: (((n - o).exp() * m).mean(-1) * A).mean(),
        "gspo with padding as ratios of one": lambda n, o, m, A: (((n - o) * m).exp().mean(-1) * A).mean(),
        "gspo divided after the exponential": lambda n, o, m, A: (((n - o) * m).sum(-1).exp() / m.sum(-1) * A).mean(),
        "gspo with the old divided alone": lambda n, o, m, A: (
            ((n * m).sum(-1) - (o * m).sum(-1) / m.sum(-1)).exp() * A
        ).mean(),
        "gspo with the sum of ratios": lambda n, o, m, A: (((n - o).exp() * m).sum(-1) * A).mean(),
        "gspo by the root of the length": lambda n, o, m, A: (
            (((n - o) * m).sum(-1) / m.sum(-1).sqrt()).exp() * A
        ).mean(),
        "gspo divided by the tokens of the batch": lambda n, o, m, A: (
            (((n - o) * m).sum(-1) / m.sum()).exp() * A
        ).mean(),
        "gspo as a quotient of log probabilities": lambda n, o, m, A: ((n * m).sum(-1) / (o * m).sum(-1) * A).mean(),
        "gspo clipped": lambda n, o, m, A: torch.min(S(n, o, m) * A, S(n, o, m).clamp(0.8, 1.2) * A).mean(),
        "gspo clipped at the papers limits": lambda n, o, m, A: torch.min(
            S(n, o, m) * A, S(n, o, m).clamp(0.9997, 1.0004) * A
        ).mean(),
        "gspo with the mask inverted": lambda n, o, m, A: (
            ((n - o).masked_fill(m, 0).sum(-1) / m.sum(-1)).exp() * A
        ).mean(),
        "gspo clamped": lambda n, o, m, A: (S(n, o, m).clamp(0.8, 1.2) * A).mean(),
        "gspo of the difference of probabilities": lambda n, o, m, A: (
            (((n.exp() - o.exp()) * m).sum(-1) / m.sum(-1)).exp() * A
        ).mean(),
    },
    check.reinforce: {
        "baseline times the logarithm alone": lambda lp, m, R, b: -(R - b * (lp * m).sum(1)).mean(),
        "divided by the spread": lambda lp, m, R, b: -(((R - b) / (R.std() + 1e-6)) * (lp * m).sum(1)).mean(),
        "mean of the batch for b": lambda lp, m, R, b: -((R - R.mean()) * (lp * m).sum(1)).mean(),
        "divided by the baseline": lambda lp, m, R, b: -((R / b) * (lp * m).sum(1)).mean(),
        "reward with its sign turned": lambda lp, m, R, b: ((R + b) * (lp * m).sum(1)).mean(),
        "advantage floored": lambda lp, m, R, b: -((R - b).relu() * (lp * m).sum(1)).mean(),
        "reward floored": lambda lp, m, R, b: -((R.relu() - b) * (lp * m).sum(1)).mean(),
        "size of the advantage": lambda lp, m, R, b: -((R - b).abs() * (lp * m).sum(1)).mean(),
        "reward left out": lambda lp, m, R, b: -(lp * m).sum(1).mean(),
        "mean of probabilities": lambda lp, m, R, b: -((R - b) * masked_mean(lp.exp(), m)).mean(),
        "weighed by the probability": lambda lp, m, R, b: -((R - b) * (lp.exp() * lp * m).sum(1)).mean(),
    },
    check.reinforce_step: {
        "baseline divided by all": step(lambda R: R - (R.sum() - R) / len(R)),
        "sum for the baseline": step(lambda R: R - (R.sum() - R)),
        "baseline added": step(lambda R: R + (R.sum() - R) / (len(R) - 1)),
        "own left out and divided by the spread": step(lambda R: loo(R) / (R.std() + 1e-6)),
        "advantage floored": step(lambda R: loo(R).relu()),
        "reward floored": step(lambda R: loo(R.relu())),
        "other actions left alone": lambda z, a, R, lr: z.index_put(
            (a,), lr * loo(R) * (1 - z.softmax(0))[a] / len(R), accumulate=True
        ),
        "log probabilities for the logits": lambda *given: step(loo)(*given).log_softmax(0),
        "probabilities for the logits": lambda *given: step(loo)(*given).softmax(0),
    },
    check.ppo_loss: {
        "policy inverted for good tokens": partial(
            my_ppo,
            J=lambda r, A: torch.where(
                A < 0, torch.min(r * A, r.clamp(0.8, 1.2) * A), torch.max(r * A, r.clamp(0.8, 1.2) * A)
            ),
        ),
        "policy clipped from below only": partial(my_ppo, J=lambda r, A: torch.min(r * A, r.clamp(min=0.8) * A)),
        "policy maximum for the minimum": partial(my_ppo, J=lambda r, A: torch.max(r * A, r.clamp(0.8, 1.2) * A)),
        "policy inverted for bad tokens": partial(
            my_ppo,
            J=lambda r, A: torch.where(
                A >= 0, torch.min(r * A, r.clamp(0.8, 1.2) * A), torch.max(r * A, r.clamp(0.8, 1.2) * A)
            ),
        ),
        "policy log ratio clamped at the widths": partial(
            my_ppo, J=lambda r, A: torch.min(r * A, r.log().clamp(-0.2, 0.2).exp() * A)
        ),
        "policy objective clipped instead of ratio": partial(
            my_ppo, J=lambda r, A: torch.min(r * A, (r * A).clamp(0.8, 1.2))
        ),
        "policy clipped from above only": partial(my_ppo, J=lambda r, A: torch.min(r * A, r.clamp(max=1.2) * A)),
        "policy ratio with the exponential of the old alone": partial(my_ppo, ratio=lambda n, o: n - o.exp()),
        "policy ratio left in logs": partial(my_ppo, ratio=lambda n, o: n - o),
        "policy ratio with the old recomputed": partial(my_ppo, ratio=lambda n, o: (n - n.detach()).exp()),
        "value halved twice": partial(my_ppo, half=0.25),
        "value clipped like a ratio": partial(my_ppo, near=lambda V, Vo: V.clamp(0.8, 1.2)),
        "value clipped by a share": partial(my_ppo, near=lambda V, Vo: torch.clamp(V, Vo * 0.8, Vo * 1.2)),
        "entropy ten times": partial(my_ppo, c=(1, 0.5, 0.1)),
        "value and entropy with wrong signs": partial(my_ppo, c=(1, -0.5, -0.01)),
        "policy alone": partial(my_ppo, c=(1, 0, 0)),
        "value loss four times": partial(my_ppo, c=(1, 1, 0.01), half=1),
        "both value errors added": partial(my_ppo, pick=lambda a, b: a + b),
        "weights swapped": partial(my_ppo, c=(1, 0.01, 0.5)),
        "policy and entropy with wrong signs": partial(my_ppo, c=(-1, 0.5, -0.01)),
        "value clip left out and not halved": partial(my_ppo, pick=lambda a, b: a, half=1),
        "returns for the advantages": lambda n, o, A, V, old, G, H, m: my_ppo(n, o, G, V, old, G, H, m),
        "advantages for the returns": lambda n, o, A, V, old, G, H, m: my_ppo(n, o, A, V, old, A, H, m),
        "returns made anew": lambda n, o, A, V, old, G, H, m: my_ppo(n, o, A, V, old, A + V, H, m),
        "values swapped": lambda n, o, A, V, old, G, H, m: my_ppo(n, o, A, old, V, G, H, m),
        "advantages floored": lambda n, o, A, V, old, G, H, m: my_ppo(n, o, A.relu(), V, old, G, H, m),
    },
    check.clipped_weight: {
        "cispo clipped at the widths of its log": lambda r, a, lo, hi: (
            r.log().clamp(lo - 1, hi - 1).exp().detach() * a * r.log()
        ),
        "cispo with limits swapped": lambda r, a, lo, hi: r.clamp(hi, lo).detach() * a * r.log(),
        "cispo with constant limits": lambda r, a, lo, hi: r.clamp(0.8, 1.2).detach() * a * r.log(),
        "cispo with the sign of advantages lost": lambda r, a, lo, hi: wt(r, lo, hi) * a.abs() * r.log(),
    },
    check.truncated_weight: {
        "weight with the exponential of the sampler alone": lambda o, s, m, c: (o - s.exp()).clamp(max=c),
        "weight of the logarithms": lambda o, s, m, c: (o / s).clamp(max=c),
        "weight as a difference": lambda o, s, m, c: (o.exp() - s.exp()).clamp(max=c),
        "weight never above one": lambda o, s, m, c: (o - s).exp().clamp(0, 1),
    },
    check.reward_model_loss: {
        "hinge": lambda c, r: torch.relu(1 - (c - r)).mean(),
        "hinge at zero": lambda c, r: torch.relu(-(c - r)).mean(),
        "square": lambda c, r: (1 - (c - r)).square().mean(),
        "exponential": lambda c, r: (-(c - r)).exp().mean(),
        "scores added": lambda c, r: -logsigmoid(c + r).mean(),
        "sigmoid of the chosen alone": lambda c, r: (-logsigmoid(c) - r).mean(),
        "scores divided": lambda c, r: -logsigmoid(c / r).mean(),
        "loss in bits": lambda c, r: -torch.log2(torch.sigmoid(c - r)).mean(),
    },
    check.sign_weights: {
        "weights with the maximum": lambda r, a, lo, hi, po, ne: torch.max(
            r * a * u(a, po, ne), r.clamp(lo, hi) * a * u(a, po, ne)
        ),
        "weights added": lambda r, a, lo, hi, po, ne: pess(r, a + u(a, po, ne), lo, hi),
        "positive weight on every token": lambda r, a, lo, hi, po, ne: po * pess(r, a, lo, hi),
        "weights of four thirds and two thirds": lambda r, a, lo, hi, po, ne: pess(r, a * u(a, 4 / 3, 2 / 3), lo, hi),
        "weights divided by": lambda r, a, lo, hi, po, ne: pess(r, a / u(a, po, ne), lo, hi),
        "both weights on every token": lambda r, a, lo, hi, po, ne: pess(r, a * po * ne, lo, hi),
        "weights inverted for bad tokens": lambda r, a, lo, hi, po, ne: torch.where(
            a > 0, pess(r, a * po, lo, hi), torch.max(r * a * ne, r.clamp(lo, hi) * a * ne)
        ),
        "weights on the limits": lambda r, a, lo, hi, po, ne: pess(r, a, lo * u(a, po, ne), hi * u(a, po, ne)),
    },
    check.mean_of_responses: {n: w for n, w in WEIGHTS.items() if n != "tokens and sequences swapped"},
    check.mean_of_tokens: {n: w for n, w in WEIGHTS.items() if n != "tokens and sequences swapped"},
    check.sum_of_responses: {n: w for n, w in WEIGHTS.items() if n != "responses added up"},
    constant_16: {"padding weighs at the maximum": lambda m: torch.ones_like(m).double() / 16 / m.any(-1).sum()}
    | WEIGHTS,
}
