"""One token over the updates of a rollout: when does the clip stop it, and where has it got to by then?"""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, GRPO, SAPO, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Beside, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.bounds import check_limits_tokens, limits_tokens
from rlviz.pictures.idea import WIDTHS, Algorithms, explorer
from rlviz.types import Batch

UPDATES = 8
LOOKS = (("green", "5 2 1 2"), ("ink", "1 2"), ("purple", "7 3"))


def walk(algorithm: PolicyGradient) -> Curve:
    """Return the path of a token's ratio over `UPDATES` updates of one rollout, each a step of plain gradient ascent.

    The token of old probability q stands against all others: its logit z begins at log(q / (1 − q)), and an update adds
    pace · ∂J/∂log π · (1 − p), with p = σ(z) and J the algorithm's objective at ratio p / q. The grey path has J = ratio · A.
    """
    own = algorithm.without_kl()

    def curve(
        old_prob: Tensor, advantage: Tensor, pace: Tensor, updates: Tensor, **widths: Tensor
    ) -> dict[str, Tensor]:
        rule = with_tensors(own, widths)
        old_logp, A = old_prob.log().reshape(1, 1, 1), advantage.reshape(1, 1, 1)
        mask = torch.ones_like(old_logp, dtype=torch.bool)
        start = (old_prob / (1 - old_prob)).log()
        z, free, ratios, pushes, frees = start, start, [], [], []
        for _ in range(UPDATES + 1):
            p, p_free = z.sigmoid(), free.sigmoid()
            logp = p.log().reshape(1, 1, 1).detach().requires_grad_()
            (push,) = torch.autograd.grad(rule.objective(logp, Batch(old_logp, A, mask)).value.sum(), logp)
            ratios.append(p / old_prob)
            frees.append(p_free / old_prob)
            pushes.append(push.reshape(()))
            z = z + pace * push.reshape(()) * (1 - p)
            free = free + pace * p_free / old_prob * advantage * (1 - p_free)
        ratio, without, push = torch.stack(ratios), torch.stack(frees), torch.stack(pushes)
        lower, upper = (limit.flatten()[0] for limit in rule.limits(old_logp, mask, A))
        number = torch.arange(UPDATES + 1, dtype=torch.double)
        moves = (push[:-1] != 0).double().sum()
        good = advantage > 0
        limit = torch.where(good, upper, lower.clamp(min=0.0))
        stopped = moves < UPDATES
        at = updates.long().reshape(1)
        return {
            "number": number,
            "ratio": ratio,
            "walked": torch.where(number <= updates, ratio, torch.nan),
            "without": without,
            "push": push,
            "here_ratio": ratio.gather(0, at)[0],
            "here_push": push.gather(0, at)[0],
            "moves": moves,
            "end_ratio": ratio[-1],
            "end_prob": ratio[-1] * old_prob,
            "free_ratio": without[-1],
            "limit": limit,
            "has_limit": (torch.isfinite(limit) & (limit > 0)).double(),
            "stopped": stopped.double(),
            "bottom": torch.where(good, 0.9 * ratio[0], 0.0),
            "top": torch.maximum(without.amax(), ratio.amax()) * 1.05,
            "push_low": torch.minimum(torch.stack([push.amin(), without.amax() * advantage]).amin(), push.amin() * 0)
            * 1.05,
            "push_high": torch.maximum(torch.stack([push.amax(), without.amax() * advantage]).amax(), push.amin() * 0)
            * 1.05,
        }

    return curve


def _others(y: str) -> tuple[Line, ...]:
    return tuple(
        Line("number", f"b{i}_{y}", dash, 2, colour=colour, when=f"b{i}_{y}", label=f"{{b{i}_name}}", direct=True)
        for i, (colour, dash) in enumerate(LOOKS, start=1)
    )


WALK = Picture(
    title="One token, eight updates: when does the clip stop it?",
    look="Press ▶ beside the updates: the token walks until its ratio has passed the limit.",
    notice=(
        "A clipped token keeps the place that it has reached: its gradient is 0, and nothing pulls it back. Here it stands "
        "alone, and an update is plain gradient ascent. In a transformer other tokens and Adam's momentum may carry it further."
    ),
    alt="Two graphs against the number of the update: left the token's ratio, right the gradient on its log π.",
    panels=(
        Panel(
            "The token's ratio",
            Axis("updates on this rollout", -0.2, UPDATES + 0.2, ticks=(0, 2, 4, 6, 8)),
            Axis("ratio", "bottom", "top"),
            (
                Rule("updates", dash="6 2 1 2", width=1.5, colour="ink", drag="updates"),
                Rule("limit", axis="y", label="limit {limit:.2f}", when="has_limit", width=1.5),
                Line("number", "without", "2 4", colour="grey", label="without a clip", direct=True),
                *_others("ratio"),
                Line("number", "walked", colour="blue", marker="o", label="{name}", direct=True),
                Points("updates", "here_ratio", colour="blue", size=11, label="ratio {here_ratio:.2f}"),
            ),
        ),
        Panel(
            "The gradient on its log π",
            Axis("updates on this rollout", -0.2, UPDATES + 0.2, ticks=(0, 2, 4, 6, 8)),
            Axis("∂J/∂log π", "push_low", "push_high"),
            (
                Rule(0.0, axis="y", dash="", width=1),
                *_others("push"),
                Line("number", "push", colour="blue", marker="o", label="{name}", direct=True),
                Points("updates", "here_push", colour="blue", size=11, label="gradient {here_push:.2f}"),
            ),
        ),
    ),
    controls={
        "updates": Slider(0, UPDATES, 1, UPDATES, "updates", plays=True),
        "old_prob": Slider(value=0.3, stops=(0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), label="old probability"),
        "advantage": Slider(value=1.0, stops=(-2.0, -1.0, 1.0, 2.0), label="advantage A"),
        "pace": Slider(value=0.12, stops=(0.03, 0.06, 0.12, 0.25, 0.5, 1.0), label="step size"),
        "beside": Beside(3, value=(DAPO.name, DCPO.name)),
    },
    conclusion=(
        Say(
            "{name}: {moves:d} of 8 updates move the token. Then its ratio is past {limit:.2f}, and it stays at {end_ratio:.2f}.",
            "stopped",
        ),
        Say(
            "{name}: all 8 updates move the token, to a ratio of {end_ratio:.2f}. Without a clip it would be {free_ratio:.2f}."
        ),
    ),
    says=(
        Say(
            "Its probability goes from {old_prob} to {end_prob:.3f}; without a clip its ratio would be {free_ratio:.2f}."
        ),
        *(
            Say(f"{{b{i}_name}}: {{b{i}_moves:d}} updates, to a ratio of {{b{i}_end_ratio:.2f}}.", f"b{i}_end_ratio")
            for i in (1, 2, 3)
        ),
    ),
)

explore_walk = explorer(
    "walk",
    WALK,
    walk,
    algorithms=Algorithms(limits_tokens, GRPO, WIDTHS, check=check_limits_tokens),
    named={
        "a rare token": {"old_prob": 0.01, "pace": 0.25},
        "a bad token": {"advantage": -1.0},
        "no clip: SAPO": {"algorithm": SAPO, "beside": (GRPO,)},
    },
)
