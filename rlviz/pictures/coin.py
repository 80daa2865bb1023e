"""The logits of a coin under the policy gradient: the same flips with a baseline and without."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlviz.algorithms import RLOO, GroupPolicyGradient
from rlviz.page.picture import Area, Axis, Draws, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures.groups import group_advantages
from rlviz.pictures.idea import explorer
from rlviz.tabular import slope
from rlviz.types import Batch

STEPS, RUNS, MOST_FLIPS = 60, 64, 32
WITH = replace(RLOO, kl=None)  # the baseline of a flip is the mean reward of the others
WITHOUT = replace(WITH, advantage=lambda rewards: rewards)
ARMS = {"with": WITH, "without": WITHOUT}


def coin() -> Curve:
    """Return the curve: 64 runs of 60 steps on a policy of two actions, from logits of 0, under two rules.

    A step flips the policy's coin, earns `shift` + 1 or `shift` each time, and goes `lr` · (estimate of ∇J) up, with ∇J = the
    mean of A · ∇log π over the flips. A is the reward minus the mean of the others' (RLOO), or the reward itself. The logits of
    heads and tails move by opposite amounts, so the one of heads says it all. Beside them: a run by the exact gradient.
    """

    def curve(
        step: Tensor,
        shift: Tensor,
        heads: Tensor,
        tails: Tensor,
        lr: Tensor,
        run: Tensor,
        flipped: Tensor,
        luck: Tensor,
    ) -> dict[str, Tensor]:
        pays = torch.stack([heads, tails])

        def one_step(state: Tensor) -> tuple[Tensor, Tensor]:
            """A state is each run's step and logits [R, 2] by rule; kept are logits, and the errors of both estimates."""
            place, logits = state[0, 0].long(), state[:, 1:].unflatten(1, (len(ARMS), 2))
            wrong, moved = [], []
            for number, rule in enumerate(ARMS.values()):
                now = logits[:, number]
                estimate = _estimate(rule, now, pays, shift, flipped[place], luck[place])
                wrong.append((estimate - _exact(now, pays))[:, 0])
                moved.append(now + lr * estimate)
            errors, after = torch.stack(wrong, 1), torch.stack(moved, 1)
            return torch.cat([state[:, :1] + 1, after.flatten(1)], 1), torch.cat([after[:, :, 0], errors], 1)

        def noiseless(logits: Tensor) -> tuple[Tensor, Tensor]:
            after = logits + lr * _exact(logits, pays)
            return after, after[0, 0]

        kept = repeated(one_step, torch.zeros(RUNS, 1 + 2 * len(ARMS), dtype=torch.double), STEPS)
        logit = torch.nn.functional.pad(kept[:, :, : len(ARMS)], (0, 0, 0, 0, 1, 0))  # [S + 1, R, arms], 0 at first
        exact = repeated(noiseless, torch.zeros(1, 2, dtype=torch.double), STEPS)
        return _told(logit, kept[:, :, len(ARMS) :], torch.nn.functional.pad(exact, (1, 0)), step, run, heads - tails)

    return curve


def _estimate(
    rule: GroupPolicyGradient, logits: Tensor, pays: Tensor, shift: Tensor, flipped: Tensor, luck: Tensor
) -> Tensor:
    """Return each run's estimate of ∂J/∂z, [R, 2], from its flips; flipped, luck: [R, flips]."""
    scaled = logits.view(-1, 1, 1, 2)
    log_probs = torch.log_softmax(scaled, -1)
    action = (flipped >= log_probs[:, 0, 0, :1].exp()).long()
    rewards = (luck < pays[action]).double() + shift
    index = action.unsqueeze(-1)
    mask = torch.ones(index.shape, dtype=torch.bool)
    old_logp = log_probs.flatten(1).gather(1, action).unsqueeze(-1)
    weights = mask / mask.double().sum((1, 2), keepdim=True)
    of_flips = (old_logp, group_advantages(rule, rewards).unsqueeze(-1), mask, old_logp, weights)
    batch = Batch(*(values.reshape(-1, 1, 1) for values in of_flips))
    return slope(rule.objective, scaled, log_probs, index, batch, with_entropy=False)[0].view(-1, 2)


def _exact(logits: Tensor, pays: Tensor) -> Tensor:
    """Return ∂J/∂z of J = Σ π(a) · pays(a), [R, 2]: a constant on the rewards is no part of it."""
    moved = logits.detach().requires_grad_()
    return torch.autograd.grad((moved.softmax(-1) * pays).sum(), moved)[0]


def _told(logit: Tensor, errors: Tensor, exact: Tensor, step: Tensor, run: Tensor, better: Tensor) -> dict[str, Tensor]:
    """Return what the picture tells of logits of heads [S + 1, R, arms] and of errors of the estimates [S, R, arms].

    better: by how much heads pay more often than tails.
    """
    number, at, shown = torch.arange(STEPS + 1, dtype=torch.double), step.long().reshape(1), (run - 1).long().reshape(1)
    seen = number <= step
    found = {
        "number": number,
        "update": number[1:],
        "seen": seen[1:].double(),
        "exact": exact,
        "heads_better": (better > 0).double(),
        "tails_better": (better < 0).double(),
    }
    for place, name in enumerate(ARMS):
        own, error = logit[:, :, place], errors[:, shown, place][:, 0]
        path, now = own[:, shown][:, 0], own[at][0]
        found |= {
            name: torch.where(seen, path, torch.nan),
            f"{name}_low": torch.where(seen, torch.quantile(own, 0.1, 1), torch.nan),
            f"{name}_high": torch.where(seen, torch.quantile(own, 0.9, 1), torch.nan),
            f"{name}_now": path[at][0],
            f"{name}_heads": (2 * path[at][0]).sigmoid(),  # of logits z and −z
            f"{name}_tails": (-2 * path[at][0]).sigmoid(),
            f"{name}_wrong": (now * better < 0).double().sum(),
            f"{name}_error": error,
            f"{name}_spread": errors[0, :, place].std(),
        }
    reach = errors[:, shown].abs().amax().clamp(min=0.1) * 1.1
    limits = torch.stack([logit[:, shown].amin(), logit[:, shown].amax(), exact.amin(), exact.amax()])
    bands = torch.quantile(logit.flatten(2).permute(0, 2, 1), torch.tensor([0.1, 0.9], dtype=torch.double), -1)
    low, high = torch.minimum(limits.amin(), bands.amin()), torch.maximum(limits.amax(), bands.amax())
    room = 0.05 * (high - low).clamp(min=0.2)
    return (
        found
        | {"times": found["without_spread"] / found["with_spread"], "reach": reach, "minus": -reach}
        | {
            "low": low - room,
            "high": high + room,
        }
    )


LOOKS = {"without": ("vermilion", "5 2", "x", "no baseline"), "with": ("blue", "", "o", "baseline")}
_BY = "By step {step:d} this run flips"
_SPREAD = "At first an estimate of the gradient spreads {times:.1f} times as far without"
COIN = Picture(
    title="What does a baseline change for the logits of a coin?",
    look="Press ▶: both climb, and the one without a baseline trembles. Then add more to every reward.",
    notice="A constant on the rewards changes nothing on average. Without a baseline it becomes noise, and with enough of it "
    "some runs learn the wrong side.",
    alt="Left the logit of heads against the step, with a baseline and without, and the path without noise; right how far off "
    "each step's estimate of the gradient was.",
    panels=(
        Panel(
            "The logit of heads; the one of tails is its mirror",
            Axis("step", -0.5, STEPS + 1.5, ticks=(0, 20, 40, 60)),
            Axis("logit of heads", "low", "high"),
            (
                Rule(0.0, axis="y", dash="", width=1),
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
                Rule("step", dash="6 2 1 2", width=1.5, colour="ink", drag="step"),
            ),
        ),
        Panel(
            "How far off was each step's estimate?",
            Axis("step", -0.5, STEPS + 1.5, ticks=(0, 20, 40, 60)),
            Axis("estimate of ∂J/∂z − exact", "minus", "reach"),
            (
                Rule(0.0, axis="y", dash="", width=1),
                *(
                    Points("update", f"{name}_error", shape, 6, colour=colour, where="seen", label=label)
                    for name, (colour, _, shape, label) in LOOKS.items()
                ),
                Rule("step", dash="6 2 1 2", width=1.5, colour="ink", drag="step"),
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
        "flipped": Draws("uniform", (STEPS, RUNS, "flips"), 1, MOST_FLIPS),
        "luck": Draws("uniform", (STEPS, RUNS, "flips"), 2, MOST_FLIPS),
    },
    conclusion=(
        Say(
            f"{_BY} heads with probability {{with_heads:.2f}} with a baseline, {{without_heads:.2f}} without. {_SPREAD}.",
            "heads_better",
        ),
        Say(
            f"{_BY} tails with probability {{with_tails:.2f}} with a baseline, {{without_tails:.2f}} without. {_SPREAD}.",
            "tails_better",
        ),
        Say(
            f"Neither side pays more. {_BY} heads with probability {{with_heads:.2f}} with a baseline, {{without_heads:.2f}} "
            "without, all by chance."
        ),
    ),
    says=(
        Say(
            f"The first estimates of {RUNS} runs have a standard deviation of {{with_spread:.3f}} with a baseline, and of "
            "{without_spread:.3f} without."
        ),
        *(
            Say(
                f"At this step {{with_wrong:d}} of {RUNS} runs with a baseline and {{without_wrong:d}} without favour the "
                "side that pays less.",
                when,
            )
            for when in ("heads_better", "tails_better")
        ),
        Say("Shaded: the middle 80 % of the runs. Both rules see the same random numbers."),
    ),
)

explore_coin = explorer(
    "coin",
    COIN,
    coin,
    free=True,
    example={"flips": 7},
    named={
        "rewards of 1 and 2": {},
        "rewards of 0 and 1": {"shift": 0.0},
        "5 more on every reward": {"shift": 5.0},
        "two flips a step": {"flips": 2},
    },
)
