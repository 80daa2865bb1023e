"""Bias and variance of a gradient estimate, exactly: the true policy gradient beside what a rule estimates, over all groups.

Two prompts have a row of logits each, over three responses: a right one, a short wrong one and a long
wrong one. A response's first token decides which it is; the tokens behind it are certain. All batches of two groups of G are
enumerated, as counts, each with its probability, and the algorithm's own pieces estimate the gradient from each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement
from math import lgamma

import torch
from torch import Tensor

from rlviz.algorithms import DR_GRPO, GRPO, GSPO, RLOO, GroupPolicyGradient
from rlviz.page.picture import Axis, Bars, Choice, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve, iterated
from rlviz.pictures.aggregation import with_gaps
from rlviz.pictures.spec import explorer
from rlviz.pieces.advantages import GroupAdvantage, ProcessAdvantage, reward_alone
from rlviz.pieces.aggregation import sequence_mean, token_mean, weighted_sum
from rlviz.pieces.bounds import FixedBounds, no_bounds
from rlviz.pieces.surrogate import pessimistic
from rlviz.types import Batch, Mask, Responses, Tokens

RIGHT = (1.0, 0.0, 0.0)  # of the right, the short wrong and the long wrong response
LONGEST = 8  # tokens of a response
GROUP_SIZES = (2, 4, 8)


def batch_mean_baseline(rewards: Responses) -> Responses:
    """Return the rewards less the mean of the batch's rewards, those of other prompts among them."""
    return rewards - rewards.mean()


def turn_mean_baseline(rewards: Tokens, step_ends: Mask) -> Tokens:
    """Return the rewards of the turns to come, each less the mean of that turn's over the responses that reached it.

    A response that stops early has fewer means taken off, so the baseline depends on the action "stop" (verl issue #7244).
    """
    means = (rewards * step_ends).sum(1, keepdim=True) / step_ends.sum(1, keepdim=True).clamp(min=1)
    return ((rewards - means) * step_ends).flip(-1).cumsum(-1).flip(-1)


SUM = replace(RLOO, kl=None, from_grpo={})  # log-probabilities are summed over a response, and no ratio is clipped
MEAN = replace(SUM, advantage=GroupAdvantage(scale="none"))
RULES: dict[str, GroupPolicyGradient] = {
    "no baseline": replace(SUM, advantage=reward_alone),
    "group mean": MEAN,
    "leave-one-out": SUM,
    "batch mean": replace(SUM, advantage=batch_mean_baseline),
    "group mean / std": replace(SUM, advantage=GroupAdvantage()),
    "mean of each response": replace(MEAN, aggregate=sequence_mean),
    "mean of all tokens": replace(MEAN, aggregate=token_mean),
    "mean of each turn": replace(SUM, advantage=turn_mean_baseline),
    "mean of all turns / std": replace(SUM, advantage=ProcessAdvantage()),
    "leave-one-out, clipped": replace(SUM, bounds=FixedBounds(), surrogate=pessimistic),
    "Dr.GRPO": DR_GRPO,
    "GRPO": GRPO.without_kl(),
    "GSPO": GSPO.with_parameters(eps_low=0.02, eps_high=0.02),  # for answers as short as these
}
ACROSS = {"batch mean", "mean of all tokens"}  # rules whose weights in one group depend on the other prompt's


def group_counts(group_size: int) -> tuple[Tensor, Tensor]:
    """Return all groups up to order, as indices of responses [V, G], and the logarithm of how many orders each has, [V]."""
    groups = list(combinations_with_replacement(range(len(RIGHT)), group_size))
    orders = [lgamma(group_size + 1) - sum(lgamma(row.count(i) + 1) for i in range(len(RIGHT))) for row in groups]
    return torch.tensor(groups), torch.tensor(orders, dtype=torch.double)


def true_gradient(logits: Tensor, rewards: Tensor) -> Tensor:
    """Return ∂J/∂logits of J = the mean over P prompts of Σ π(o) R(o), of policies [N, P, 3] one by one."""
    z = logits.detach().requires_grad_()
    J = (z.softmax(-1) * rewards).sum(-1).mean(-1)
    return torch.autograd.grad(J.sum(), z)[0]


def response_advantages(rule: GroupPolicyGradient, rewards: Tensor, mask: Tensor) -> Tensor:
    """Return a rule's advantages of a batch [P, G, T] from rewards [P, G]; where it asks for steps, each token is a turn.

    A turn pays nothing but the last one, which pays the response's reward.
    """
    if not rule.asks_for("advantage", "step_ends"):
        return rule.advantages(rewards, mask)[0]
    is_last = mask & ~torch.nn.functional.pad(mask[..., 1:], (0, 1))
    return rule.advantages(rewards.unsqueeze(-1) * is_last, mask, step_ends=mask)[0]


def estimate_gradients(
    rule: GroupPolicyGradient,
    logits: Tensor,
    responses: Tensor,
    *,
    rewards: Tensor,
    lengths: Tensor,
    updates: Tensor,
    lr: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return a rule's estimate from each of N batches at its last update, and the true gradient there, both [N, P, 3].

    logits: of the policy that sampled, [N, P, 3]. responses: indices [N, P, G]. rewards, lengths: of each response, [3]; lengths
    in tokens. Earlier updates on the same batch move its policy by lr · estimate each; ratios are to the policy that sampled.
    """
    mask = torch.arange(LONGEST) < lengths[responses].unsqueeze(-1)
    is_first = (torch.arange(LONGEST) == 0).double()

    def token_logp(logits: Tensor) -> Tensor:
        """Map policies [N, P, 3] to log π of the tokens of their batches, [N · P, G, T]."""
        return (torch.log_softmax(logits, -1).gather(-1, responses).unsqueeze(-1) * is_first).flatten(0, 1)

    # A batch is one of its own for whatever looks at more than one group: hence vmap over the N.
    advantages = torch.vmap(partial(response_advantages, rule))(rewards[responses], mask)
    weights = torch.vmap(rule.aggregate)(mask).flatten(0, 1)
    batch = Batch(token_logp(logits), advantages.flatten(0, 1), mask.flatten(0, 1))

    def estimate(logits: Tensor) -> Tensor:
        z = logits.detach().requires_grad_()
        value = rule.objective(token_logp(z), batch).value
        return torch.autograd.grad(weighted_sum(value, weights, batch.mask), z)[0]

    last = iterated(lambda z: z + lr * estimate(z), logits, updates - 1)
    return estimate(last), true_gradient(last, rewards)


def exact_moments(
    rule: GroupPolicyGradient, group_size: int, right: Tensor, *, joint: bool, lr: Tensor, **setting: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the true gradient, the expected estimate, and the variance of an estimate about the truth, all [P, 3].

    right: the probability of the right response to each prompt, [P]; half of the wrong ones are long. joint: whether the groups
    of all prompts are enumerated together, which only a rule that looks across groups needs. lr, setting: as for
    `estimate_gradients`. With more than one update all three are of the last one: its true gradient is expected, too, for the
    policy there depends on the batch.
    """
    groups, orders = group_counts(group_size)
    together = len(right) if joint else 1
    logits = torch.stack([right, (1 - right) / 2, (1 - right) / 2], -1).log().view(-1, together, 3)  # [S, P / S, 3]
    rows = torch.cartesian_prod(*[torch.arange(len(groups))] * together).view(-1, together)  # [M, P / S]
    chance = (orders + logits[..., groups].sum(-1)).exp()  # of a prompt's groups, [S, P / S, V]
    weight = torch.stack([chance[:, i, rows[:, i]] for i in range(together)]).prod(0).view(-1, len(rows), 1, 1)

    # Each of the S sets of prompts is a batch that is alone: it counts for 1 / S of the whole, in an update, too.
    sets, shape = len(logits), (-1, len(rows), together, 3)
    policies = logits.unsqueeze(1).expand(len(logits), *shape[1:]).flatten(0, 1)
    estimate, truth = (
        values.view(shape) / sets
        for values in estimate_gradients(rule, policies, groups[rows].repeat(sets, 1, 1), lr=lr / sets, **setting)
    )
    expected, target = (weight * estimate).sum(1, keepdim=True), (weight * truth).sum(1, keepdim=True)
    variance = (weight * (estimate - truth - expected + target).square()).sum(1)
    return target.view(-1, 3), expected.view(-1, 3), variance.view(-1, 3)


def bias_curve(rule: str, group_size: int) -> Curve:
    """Return the curve: a rule's expected estimate beside the true gradient, and its spread beside that of no baseline.

    What is compared is made equally long, as a learning rate would: `expected` is as long as the true gradient, and `variance`
    is the trace of the covariance over the squared length of the mean, relative to the first update without a baseline.
    """

    joint = rule in ACROSS

    def curve(
        first: Tensor, second: Tensor, shift: Tensor, short: Tensor, long: Tensor, updates: Tensor, lr: Tensor
    ) -> dict[str, Tensor]:
        right, rewards = torch.stack([first, second]), torch.tensor(RIGHT, dtype=torch.double) + shift
        setting = {"rewards": rewards, "lengths": torch.stack([short, short, long]), "lr": lr}
        truth, expected, variance = exact_moments(
            RULES[rule], group_size, right, joint=joint, updates=updates, **setting
        )
        plain = exact_moments(
            RULES["no baseline"], group_size, right, joint=False, updates=torch.ones_like(updates), **setting
        )

        goal, length = (vector.square().sum().sqrt() for vector in (truth, expected))
        arrives = length > 1e-9 * goal  # where a clip cuts every response of every batch, nothing does
        size = torch.where(arrives, length, goal)
        along = (expected * truth).sum() / goal
        away = (expected - truth * along / goal).square().sum().sqrt()
        degrees = torch.rad2deg(torch.atan2(away, along))
        first_times, second_times = ((expected * truth).sum(-1) / truth.square().sum(-1)).unbind()
        scaled, sd = (expected * goal / size).flatten(), variance.sqrt().flatten() * goal / size
        reach = 1.1 * torch.cat([truth.abs().flatten(), scaled.abs() + sd]).amax()
        place = torch.arange(1.0, 2 * len(RIGHT) + 1, dtype=torch.double)
        zero = torch.zeros_like(goal)
        return {
            "true_at": place - 0.18,
            "expected_at": place + 0.18,
            "true": truth.flatten(),
            "expected": scaled,
            "whisker_at": with_gaps((place + 0.18).unsqueeze(1).expand(-1, 2)),
            "whisker": with_gaps(torch.stack([scaled - sd, scaled + sd], -1)),
            "reach": reach,
            "minus": -reach,
            "arrow_x": torch.stack([zero, along / size]),
            "arrow_y": torch.stack([zero, away / size]),
            "first_times": first_times,
            "second_times": second_times,
            "most_times": 1.15 * torch.stack([first_times, second_times, zero + 1]).amax(),
            "least_times": 1.15 * torch.stack([first_times, second_times, zero]).amin(),
            "degrees": degrees,
            "arrives": arrives.double(),
            "length": length / goal,
            "again": (updates > 1).double(),
            "variance": (variance.sum() / size.square()) / (plain[2].sum() / plain[1].square().sum()),
        }

    return curve


def texts(rule: str, group_size: int) -> dict[str, str]:
    """Return the limits of a rule's ratios; "" where it has none."""
    bounds = RULES[rule].bounds
    return {"limits": "" if bounds is no_bounds else str(bounds)}


BIAS = Picture(
    title="Is the estimate right on average, and how far does one spread?",
    look="Choose a rule, then drag how often the second prompt is answered right.",
    notice="Subtracting a mean only shortens the gradient; dividing by a group's std or a response's length turns it. Where most "
    "responses are right, rewards of 0 and 1 spread less without a baseline: drag both prompts to the right.",
    alt="Bars of the true gradient and of the expected estimate on six logits, with the standard deviation of one estimate; the "
    "angle between the two; the expected push on either prompt against its probability of a right answer.",
    panels=(
        Panel(
            "Push on each logit: the truth, and the estimate on average, made as long",
            Axis("", 0.4, 2 * len(RIGHT) + 0.6, names="logits"),
            Axis("∂J/∂logit", "minus", "reach"),
            (
                Rule(0.0, axis="y", dash="", width=1),
                Bars("true_at", "true", 0.32, colour="grey", label="true gradient"),
                Bars("expected_at", "expected", 0.32, label="expected estimate"),
                Line("whisker_at", "whisker", colour="ink", width=1.5, label="± one standard deviation of an estimate"),
            ),
            tall=0.6,
            wide=2,
        ),
        Panel(
            "Direction: {degrees:.1f}° from the truth",
            Axis("along the true gradient", -1.1, 1.5, ticks=(-1, 0, 1)),
            Axis("across", -0.15, 1.15, ticks=(0, 1)),
            (
                Line("ahead", "nothing", "6 4", colour="grey", label="truth", direct=True),
                Line("arrow_x", "arrow_y", width=4, label="estimate", direct=True),
                Text("clipped outside {limits}", corner="nw", colour="grey", when="limits"),
            ),
            when="arrives",
            tall=0.8,
        ),
        Panel(
            "How much of each prompt's push arrives?",
            Axis("a response is right with probability", 0, 1),
            Axis("push, 1 = the true one", "least_times", "most_times"),
            (
                Rule(1.0, axis="y", dash="", width=1),
                Rule("first", dash="6 2 1 2", width=1.5, colour="ink", drag="first"),
                Rule("second", dash="6 2 1 2", width=1.5, colour="ink", drag="second"),
                Points("first", "first_times", size=12, label="first prompt"),
                Points("second", "second_times", "D", 12, colour="vermilion", label="second prompt"),
            ),
            tall=0.8,
        ),
    ),
    controls={
        "rule": Choice({name: name for name in RULES}, "GRPO", "rule", picks=True),
        "group_size": Choice({str(G): G for G in GROUP_SIZES}, "8", "group size G", picks=True),
        "first": Slider(0.05, 0.95, 0.05, 0.5, "first prompt, right"),
        "second": Slider(0.05, 0.95, 0.05, 0.1, "second prompt, right"),
        "short": Slider(1, LONGEST, 1, 2, "tokens, right or short"),
        "long": Slider(1, LONGEST, 1, 8, "tokens, long wrong"),
        "updates": Slider(1, 2, 1, 1, "updates on the same group"),
        "lr": Slider(value=2.0, stops=(0.5, 1.0, 2.0, 4.0, 8.0), label="learning rate", when="again"),
        "shift": Slider(value=0.0, stops=(0.0, 0.5, 1.0, 2.0, 5.0), label="added to every reward", rare=True),
    },
    data={
        "logits": [f"{prompt}: {response}" for prompt in (1, 2) for response in ("right", "short", "long")],
        "ahead": [0.0, 1.0],
        "nothing": [0.0, 0.0],
    },
    conclusion=(
        Say(
            "Update {updates:d}, {rule}: on average {degrees:.1f}° off the true gradient and {length:.2f} times as long. Made "
            "equally long, one estimate has {variance:.2f} times the variance of no baseline.",
            "arrives",
        ),
        Say(
            "Update {updates:d}, {rule}: no gradient is left, for every response of every batch is beyond its limits, {limits}."
        ),
    ),
)

explore_bias = explorer(
    "bias",
    BIAS,
    bias_curve,
    texts=texts,
    named={
        "GRPO": {},
        "rewards of 1 and 2": {"rule": "leave-one-out", "shift": 1.0},
        "batch mean": {"rule": "batch mean", "shift": 1.0},
        "group mean / std": {"rule": "group mean / std"},
        "the policy ends its turns": {"rule": "mean of each turn", "shift": 1.0},
        "clipped, update 2": {"rule": "leave-one-out, clipped", "updates": 2},
        "GSPO, update 2": {"rule": "GSPO", "updates": 2},
    },
)
