"""The logits of a coin under the policy gradient: the same flips with a baseline and without."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlviz.algorithms import RLOO
from rlviz.page.picture import Area, Axis, Draws, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures.spec import explorer
from rlviz.pictures.table import picture_rule, train_table_steps
from rlviz.tabular import TableRule

STEPS, RUNS, MOST_FLIPS = 60, 64, 32
WITH = replace(RLOO, kl=None)  # the baseline of a flip is the mean reward of the others
WITHOUT = replace(WITH, advantage=lambda rewards: rewards)
ARMS = {"with": WITH, "without": WITHOUT}


def coin_curve() -> Curve:
    """Return the curve: 64 runs of 60 steps on a policy of two actions, from logits of 0, under two rules.

    A step flips the policy's coin, earns `shift` + 1 or `shift` each time, and goes `lr` · (estimate of ∇J) up, with ∇J = the
    mean of A · ∇log π over the flips. A is the reward minus the mean of the others' (RLOO), or the reward itself. The logits of
    heads and tails move by opposite amounts, so the one of heads is enough. `exact`: its path by the exact gradient.
    """

    rules = [picture_rule(algorithm) for algorithm in ARMS.values()]

    def curve(
        step: Tensor, shift: Tensor, heads: Tensor, tails: Tensor, lr: Tensor, run: Tensor, coins: Tensor, luck: Tensor
    ) -> dict[str, Tensor]:
        pays, begin = torch.stack([heads, tails]), torch.zeros(RUNS, 1, 1, 2, dtype=torch.double)

        def heads_logits(rule: TableRule) -> Tensor:
            """Return the logits of heads after each step under a rule, [S, R]."""
            return train_table_steps(
                rule,
                begin,
                STEPS,
                draws=lambda place: coins[place].view(RUNS, 1, 1, -1),
                grade=lambda place, sides: (luck[place] < pays[sides[:, 0, 0]]).double().unsqueeze(1) + shift,
                updates=1,
                observe=lambda logits, rollout: logits[:, 0, 0, 0],
                rate=lr,
            )

        def exact_step(z: Tensor) -> tuple[Tensor, Tensor]:
            after = z + lr * _exact(z, pays)
            return after, after

        after, start = torch.stack([heads_logits(rule) for rule in rules], -1), begin[0, 0, 0, :1]
        logit = torch.cat([torch.zeros_like(after[:1]), after])  # [S + 1, R, arms]
        exact = torch.cat([start, repeated(exact_step, start, STEPS)[:, 0]])
        errors = (logit[1:] - logit[:-1]) / lr - _exact(logit[:-1], pays)
        now, chosen = step.long().reshape(1), (run - 1).long().reshape(1)
        band = torch.quantile(logit, torch.tensor([0.1, 0.9], dtype=torch.double), 1)  # [2, S + 1, arms]
        path, error = logit[:, chosen][:, 0], errors[:, chosen][:, 0]
        limits = torch.cat([path.flatten(), exact, band.flatten()])
        room = 0.05 * (limits.amax() - limits.amin()).clamp(min=0.2)
        reach = 1.1 * error.abs().amax().clamp(min=0.1)
        spread = errors[0].std(0)  # of the first estimates, over runs; with equal rewards both may be 0: as far
        number = torch.arange(STEPS + 1, dtype=torch.double)
        outputs = {
            "number": number,
            "update": number[1:],
            "seen": (number[1:] <= step).double(),
            "exact": exact,
            "times": torch.where(spread.amax() > 0, spread[1] / spread[0], 1.0),
            "low": limits.amin() - room,
            "high": limits.amax() + room,
            "reach": reach,
            "minus": -reach,
        }
        for arm, name in enumerate(ARMS):
            lines = {name: path[:, arm], f"{name}_low": band[0, :, arm], f"{name}_high": band[1, :, arm]}
            outputs |= {line: torch.where(number <= step, values, torch.nan) for line, values in lines.items()}
            outputs |= {f"{name}_now": path[now, arm][0], f"{name}_error": error[:, arm]}
            outputs[f"{name}_heads"] = (2 * path[now, arm][0]).sigmoid()
        return outputs

    return curve


def _exact(z: Tensor, pays: Tensor) -> Tensor:
    """Return ∂J/∂(logit of heads) of J = Σ π(a) · pays(a): a constant on the rewards is no part of it."""
    logits = torch.stack([z, -z], -1).detach().requires_grad_()
    return torch.autograd.grad((logits.softmax(-1) * pays).sum(), logits)[0][..., 0]


LOOKS = {"without": ("vermilion", "5 2", "x", "no baseline"), "with": ("blue", "", "o", "baseline")}
TIME = Axis("step", -0.5, STEPS + 1.5, ticks=(0, 20, 40, 60))
NOW = Rule("step", dash="6 2 1 2", width=1.5, colour="ink", drag="step")
ZERO = Rule(0.0, axis="y", dash="", width=1)
COIN = Picture(
    title="What does a baseline change for the logits of a coin?",
    look="Press ▶: both climb, and the one without a baseline trembles. Then add more to every reward.",
    notice="A constant on the rewards changes nothing on average. Without a baseline it becomes noise, and with enough of it "
    "some runs learn the wrong side; shaded is the middle 80 % of the runs.",
    alt="Left the logit of heads against the step, with a baseline and without, and the path without noise; right how far off "
    "each step's estimate of the gradient was.",
    panels=(
        Panel(
            "Logit of heads (tails: its mirror)",
            TIME,
            Axis("logit of heads", "low", "high"),
            (
                ZERO,
                *(Area("number", f"{name}_low", f"{name}_high", colour=colour) for name, (colour, *_) in LOOKS.items()),
                Line("number", "exact", "2 4", colour="grey", label="no noise", direct=True),
                *(
                    mark
                    for name, (colour, dash, shape, label) in LOOKS.items()
                    for mark in (
                        Line("number", name, dash, colour=colour, label=label, direct=True),
                        Points("step", f"{name}_now", shape, colour=colour, size=10),
                    )
                ),
                NOW,
            ),
        ),
        Panel(
            "How far off was each estimate?",
            TIME,
            Axis("estimate of ∂J/∂z − exact", "minus", "reach"),
            (
                ZERO,
                *(
                    Points("update", f"{name}_error", shape, 6, colour=colour, where="seen", label=label)
                    for name, (colour, _, shape, label) in LOOKS.items()
                ),
                NOW,
            ),
        ),
    ),
    controls={
        "step": Slider(0, STEPS, 1, STEPS, "step", plays=True),
        "shift": Slider(value=1.0, stops=(0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0), label="added to every reward"),
        "heads": Slider(0.0, 1.0, 0.05, 0.8, "heads earn 1, share"),
        "tails": Slider(0.0, 1.0, 0.05, 0.4, "tails earn 1, share"),
        "flips": Slider(stops=(2, 4, 8, 16, MOST_FLIPS), value=8, label="flips per step"),
        "lr": Slider(value=0.2, stops=(0.05, 0.1, 0.2, 0.5, 1.0), label="learning rate"),
        "run": Slider(1, RUNS, 1, 1, "run shown", rare=True),
    },
    data={
        "coins": Draws("uniform", (STEPS, RUNS, "flips"), 1, MOST_FLIPS),
        "luck": Draws("uniform", (STEPS, RUNS, "flips"), 2, MOST_FLIPS),
    },
    conclusion=(
        Say(
            "Without a baseline the first estimates spread {times:.1f} times as far. By step {step:d} this run flips heads with "
            "probability {with_heads:.2f} with a baseline, {without_heads:.2f} without."
        ),
    ),
)

explore_coin = explorer(
    "coin",
    COIN,
    coin_curve,
    free=True,
    example={"flips": 7},
    named={
        "rewards of 1 and 2": {},
        "rewards of 0 and 1": {"shift": 0.0},
        "5 more on every reward": {"shift": 5.0},
        "two flips a step": {"flips": 2},
    },
)
