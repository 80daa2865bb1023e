"""One token over the updates of a rollout: when does the clip stop it, and how far has its ratio moved by then?"""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, GRPO, SAPO, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Beside, Line, Panel, Picture, Points, Rule, Say, Slider, Tokens
from rlviz.page.tracing import Curve
from rlviz.pictures.bounds import LIMITS_NEEDS, limits_tokens
from rlviz.pictures.clip import beside_lines
from rlviz.pictures.spec import WIDTHS, Algorithms, explorer
from rlviz.types import Batch

UPDATES = 8


def walk_curve(algorithm: PolicyGradient) -> Curve:
    """Return the curve: the ratio of a token and ∂J/∂log π over `UPDATES` updates of one rollout by plain gradient ascent.

    The token of old probability q stands against all others: its logit z begins at log(q / (1 − q)), and an update adds
    pace · ∂J/∂log π · (1 − p), with p = σ(z) and J the algorithm's objective at ratio p / q. Without a clip J = ratio · A.
    """
    without_kl = algorithm.without_kl()

    def curve(
        old_prob: Tensor, advantage: Tensor, pace: Tensor, updates: Tensor, **widths: Tensor
    ) -> dict[str, Tensor]:
        rule = with_tensors(without_kl, widths)
        old_logp, A = old_prob.log().reshape(1, 1, 1), advantage.reshape(1, 1, 1)
        mask = torch.ones_like(old_logp, dtype=torch.bool)
        z = z_free = (old_prob / (1 - old_prob)).log()
        ratios, pushes, free_ratios = [], [], []
        for _ in range(UPDATES + 1):
            p, p_free = z.sigmoid(), z_free.sigmoid()
            logp = p.log().reshape(1, 1, 1).detach().requires_grad_()
            (push,) = torch.autograd.grad(rule.objective(logp, Batch(old_logp, A, mask)).value.sum(), logp)
            ratios.append(p / old_prob)
            free_ratios.append(p_free / old_prob)
            pushes.append(push.reshape(()))
            # Both logits move, the second one as if nothing were clipped.
            z = z + pace * push.reshape(()) * (1 - p)
            z_free = z_free + pace * p_free / old_prob * advantage * (1 - p_free)
        ratio, without, push = torch.stack(ratios), torch.stack(free_ratios), torch.stack(pushes)
        lower, upper = (limit.flatten()[0] for limit in rule.limits(old_logp, mask, A))
        limit = torch.where(advantage > 0, upper, lower)
        number = torch.arange(UPDATES + 1, dtype=torch.double)
        now = updates.long().reshape(1)
        pushes_in_sight = torch.cat([push, without * advantage, torch.zeros_like(now)])
        return {
            "number": number,
            "walked": torch.where(number <= updates, ratio, torch.nan),
            "ratio": ratio,
            "without": without,
            "push": push,
            "here_ratio": ratio[now][0],
            "here_push": push[now][0],
            "limit": torch.where(torch.isfinite(limit) & (limit > 0), limit, torch.nan),
            "moves": (push[:-1] != 0).double().sum(),
            "end_ratio": ratio[-1],
            "free_ratio": without[-1],
            "bottom": torch.where(advantage > 0, 0.9 * ratio[0], 0.0),
            "top": 1.05 * torch.maximum(without.amax(), ratio.amax()),
            "push_low": 1.05 * pushes_in_sight.amin(),
            "push_high": 1.05 * pushes_in_sight.amax(),
        }

    return curve


NOW = Rule("updates", dash="6 2 1 2", width=1.5, colour="ink", drag="updates")
TIME = Axis("updates on this rollout", -0.2, UPDATES + 0.2, ticks=(0, 2, 4, 6, 8))
WALK = Picture(
    title="One token, eight updates: when does the clip stop it?",
    look="Press ▶ beside the updates: the token walks until its ratio has passed the limit.",
    notice="A clipped token keeps the ratio that it has reached: its gradient is 0, and nothing pulls it back.",
    alt="Two graphs against the number of the update: left the token's ratio, right the gradient on its log π, which colours the "
    "chips below.",
    panels=(
        Panel(
            "The token's ratio",
            TIME,
            Axis("ratio", "bottom", "top"),
            (
                Rule("limit", axis="y", label="limit {limit:.2f}", when="limit", width=1.5),
                Line("number", "without", "2 4", colour="grey", label="no clip", direct=True),
                NOW,
                *beside_lines("number", "ratio", width=2),
                Line("number", "walked", marker="o", label="{name}", direct=True),
                Points("updates", "here_ratio", size=11),
            ),
        ),
        Panel(
            "The gradient on its log π",
            TIME,
            Axis("∂J/∂log π", "push_low", "push_high"),
            (
                Rule(0.0, axis="y", dash="", width=1),
                NOW,
                *beside_lines("number", "push", width=2, direct=False),
                Line("number", "push", marker="o", label="{name}"),
                Points("updates", "here_push", size=11),
            ),
        ),
        Panel(
            "The token as a chip: its gradient colours it",
            Axis(),
            Axis(),
            (Tokens("words", "push", 2.0, chosen="updates"),),
            tall=0.2,
            wide=2.0,
        ),
    ),
    data={"words": ["happy"] * (UPDATES + 1)},
    controls={
        "updates": Slider(0, UPDATES, 1, UPDATES, "updates", plays=True),
        "old_prob": Slider(value=0.3, stops=(0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), label="old probability"),
        "advantage": Slider(value=1.0, stops=(-2.0, -1.0, 1.0, 2.0), label="advantage A"),
        "pace": Slider(value=0.12, stops=(0.03, 0.06, 0.12, 0.25, 0.5, 1.0), label="step size"),
        "beside": Beside(3, value=(DAPO.name, DCPO.name)),
    },
    conclusion=(
        Say(
            "{name} moves the token in {moves:d} of 8 updates, to a ratio of {end_ratio:.2f}; without a clip it would reach "
            "{free_ratio:.2f}."
        ),
    ),
)

explore_walk = explorer(
    "walk",
    WALK,
    walk_curve,
    algorithms=Algorithms(limits_tokens, GRPO, WIDTHS, needs=LIMITS_NEEDS),
    named={
        "a rare token": {"old_prob": 0.01, "pace": 0.25},
        "a bad token": {"advantage": -1.0},
        "no clip: SAPO": {"algorithm": SAPO, "beside": (GRPO,)},
    },
)
