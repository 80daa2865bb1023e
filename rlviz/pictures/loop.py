"""One training step in four parts, played slowly: sample, compare, push, repeat; computed by the algorithm's pieces."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, Algorithm, GroupPolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Cells, Draws, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.spec import WIDTHS, Algorithms, explorer
from rlviz.pictures.table import has_groups, picture_rule, train_table_steps
from rlviz.tabular import TableRollout
from rlviz.types import Batch, TokenObjective

STEPS, GROUP, UPDATES = 40, 4, 3
PLACES, DIGITS, SUM = 3, 5, 6  # a response is 3 digits from 0 to 4, and right where they add up to 6
TOKENS = GROUP * PLACES
# moments of a step: a token each, then rewards, their mean and the advantages, then an update each, then the new policy
REWARDS, MEAN, ADVANTAGES = (TOKENS + moment for moment in (1, 2, 3))
LAST = ADVANTAGES + UPDATES + 1
FIRST_SEED = 12  # of the draws: one of the first four responses is right, so that there is something to compare


def loop_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: 40 steps of an algorithm on a table of logits, and one of them moment by moment.

    The policy is a softmax over the digits 0 to 4 at each of three places, uniform at first. A step samples a group of four
    responses, gives 1 to those whose digits add up to 6, makes advantages of that, and goes three updates of plain gradient
    ascent on the same four.
    """
    rule = picture_rule(algorithm)

    def curve(moment: Tensor, step: Tensor, lr: Tensor, draws: Tensor, **widths: Tensor) -> dict[str, Tensor]:
        """Return the numbers of one moment of one step, see `at_moment`; draws: what chance gives, [S, G, T]."""
        now, updates = with_tensors(rule.algorithm, widths), list[Tensor]()

        def objective(logp: Tensor, batch: Batch) -> TokenObjective:
            """Return the algorithm's objective; record each token's push ∂J/∂log π and ratio."""
            part = now.objective(logp, batch)
            (push,) = torch.autograd.grad(part.value.sum(), logp, retain_graph=True)
            updates.extend([push.flatten(), part.ratio.detach().expand(push.shape).flatten()])
            return part

        def observe(logits: Tensor, rollout: TableRollout) -> Tensor:
            """Return what a moment of a step shows."""
            digits, A = rollout.actions[0, 0].T.double(), rollout.tokens.advantages[0, :, 0]
            group = digits, rollout.tokens.old_logp.exp(), rollout.rewards, A, logits
            return torch.cat([*(values.flatten() for values in group), *updates[-2 * UPDATES :]])

        steps = train_table_steps(
            rule,
            torch.zeros(1, 1, PLACES, DIGITS, dtype=torch.double),
            STEPS,
            draws=lambda place: draws[place].T.contiguous().view(1, 1, PLACES, GROUP),
            grade=lambda place, digits: (digits.sum(2) == SUM).double(),
            updates=UPDATES,
            observe=observe,
            rate=lr,
            objective=objective,
        )
        return at_moment(steps, moment, step)

    return curve


def at_moment(steps: Tensor, moment: Tensor, step: Tensor) -> dict[str, Tensor]:
    """Return the numbers of the picture at a moment of one of the steps [S, …]: NaN for what has not happened yet."""
    *group, logits, updates = steps.split([TOKENS, TOKENS, GROUP, GROUP, PLACES * DIGITS, 2 * UPDATES * TOKENS], 1)
    right = share_right(torch.nn.functional.pad(logits, (0, 0, 1, 0)))  # logits of 0 before training
    at = (step - 1).long().reshape(1)
    digits, probs, rewards, A = (values[at][0] for values in group)
    update = (moment - ADVANTAGES).clamp(1, UPDATES).long().reshape(1)
    pushes, ratios = updates[at].view(UPDATES, 2, TOKENS).unbind(1)
    push, ratio = pushes[update - 1][0] * (moment > ADVANTAGES), ratios[update - 1][0]
    number, done = torch.arange(STEPS + 1, dtype=torch.double), step - (moment < LAST).double()
    is_dead = group[3].abs().amax(1) == 0
    mean = rewards.mean()
    return {
        "typed": (torch.arange(TOKENS) < moment).double(),
        "digits": digits,
        "probs": (100 * probs).round() / 100,
        "ratios": (100 * ratio).round() / 100,
        "rewards": torch.where(moment >= REWARDS, rewards, torch.nan),
        "is_wrong": 1 - rewards,
        "mean": torch.where(moment >= MEAN, mean, torch.nan),
        "has_advantages": (moment >= ADVANTAGES).double(),
        **{f"A_{i}": A[i] for i in range(GROUP)},
        "push": push,
        "reach": A.abs().amax().clamp(min=1.0),
        "is_up": (push > 0).double(),
        "is_down": (push < 0).double(),
        "is_cut": ((push == 0) & (A.repeat_interleave(PLACES) != 0) & (moment > ADVANTAGES)).double(),
        "right": torch.where(number <= done, right, torch.nan),
        "done": done,
        "right_now": right[done.long().reshape(1)][0],
        "dead": torch.full_like(number[1:], -0.12).where(is_dead & (number[1:] <= done), torch.nan),
        "count": rewards.sum(),
        "before": right[at][0],
        "after": right[at + 1][0],
        "learns": (A != 0).any(),
    }


def share_right(logits: Tensor) -> Tensor:
    """Return the probability that three digits add up to `SUM`, [S] of logits [S, T · A]: the sum over all 125 responses."""
    first, second, third = logits.view(-1, PLACES, DIGITS).softmax(-1).unbind(1)
    responses = first.view(-1, DIGITS, 1, 1) * second.view(-1, 1, DIGITS, 1) * third.view(-1, 1, 1, DIGITS)
    is_right = [float(sum(digits) == SUM) for digits in product(range(DIGITS), repeat=PLACES)]
    return (responses.flatten(1) * torch.tensor(is_right, dtype=torch.double)).sum(1)


def trains_every_token(algorithm: Algorithm) -> bool:
    """Return whether a table can be trained with it, and all tokens of a response count.

    An algorithm that picks tokens by their probability or entropy finds them all alike at first: rounding would pick.
    """
    return has_groups(algorithm) and algorithm.can.choose is None and not algorithm.asks_for("advantage", "old_entropy")


ROWS, COLUMNS = (list(places) for places in zip(*product(range(GROUP, 0, -1), range(1, PLACES + 1)), strict=True))
_ACROSS, _DOWN = Axis("", 0.45, PLACES + 0.55, ticks=None), Axis("", 0.4, GROUP + 0.6, ticks=None)
_DIGITS = Text("digits", "digit_at", "row", where="typed")
LOOP = Picture(
    title="What happens in one training step?",
    look="Press ▶ beside “moment”: one step, slowly. Then ▶ beside “step”.",
    notice="Only the group decides: where all rewards are equal, no token is pushed. A token can become likelier against its own "
    "response's A, where a right response has the same token in that place.",
    alt="The tokens of four responses with their probabilities, their rewards and advantages, the same tokens shaded by the push "
    "on each, and the probability of a right response against the step.",
    panels=(
        Panel(
            f"1 · Sample: which digits add up to {SUM}?",
            _ACROSS,
            _DOWN,
            (
                Points("digit_at", "row", "s", 17, fill="none", colour="grey", where="typed"),
                _DIGITS,
                Text("probs", "number_at", "row", "right", colour="grey", where="typed"),
            ),
            tall=0.5,
        ),
        Panel(
            "2 · Compare with the mean of the group",
            Axis("", 0.2, GROUP + 0.6, ticks=None),
            Axis("reward", -0.8, 1.6, ticks=(0, 1)),
            (
                Bars("response", "rewards", 0.3, "mean", where="rewards", when="has_advantages"),
                Bars(
                    *("response", "rewards", 0.3, "mean", "hatch"),
                    colour="vermilion",
                    where="is_wrong",
                    when="has_advantages",
                ),
                Rule("mean", "y", dash="6 3", colour="ink", label="mean {mean:.2f}", direct=True),
                Points("response", "rewards", "o", 9, colour="green", where="rewards", label="right"),
                Points("response", "rewards", "x", 9, colour="grey", where="is_wrong", label="wrong"),
                Text("digits", "digit_below", -0.55, where="typed"),
                Text("A", 0.4, 1.4, when="has_advantages"),
                *(Text(f"{{A_{i}:+.2f}}", i + 1.0, 1.4, when="has_advantages") for i in range(GROUP)),
            ),
            tall=0.5,
        ),
        Panel(
            "3 · Push each token by its A; its ratio",
            _ACROSS,
            _DOWN,
            (
                Cells("column", "row", "push", "reach", where="typed"),
                _DIGITS,
                Text("ratios", "number_at", "row", "right", where="typed"),
                Points("sign_at", "row", "^", 6, colour="blue", where="is_up", label="up"),
                Points("sign_at", "row", "v", 6, colour="vermilion", where="is_down", label="down"),
                Points("sign_at", "row", "x", 6, colour="ink", where="is_cut", label="cut: past the limit"),
            ),
            tall=0.5,
        ),
        Panel(
            "4 · Repeat with the new policy",
            Axis("step", -1, STEPS + 1, ticks=(0, 10, 20, 30, 40)),
            Axis("P(right)", -0.3, 1.05, ticks=(0, 0.5, 1)),
            (
                Points("update_number", "dead", "x", 6, colour="grey", label="dead group: every A is 0"),
                Rule("step", dash="6 2 1 2", width=1.5, colour="ink", drag="step"),
                Line("number", "right"),
                Points("done", "right_now", size=10),
            ),
            tall=0.5,
        ),
    ),
    controls={
        "moment": Slider(0, LAST, 1, LAST, "moment", plays=True),
        "step": Slider(1, STEPS, 1, 1, "step", plays=True),
        "lr": Slider(stops=(0.5, 1.0, 2.5, 5.0, 10.0), value=2.5, label="learning rate", rare=True),
    },
    data={
        "draws": Draws("uniform", (STEPS, GROUP, PLACES), FIRST_SEED),
        "column": COLUMNS,
        "row": ROWS,
        "digit_at": [column - 0.22 for column in COLUMNS],
        "number_at": [column - 0.1 for column in COLUMNS],
        "sign_at": [column - 0.38 for column in COLUMNS],
        "digit_below": [GROUP + 1 - row + 0.15 * (column - 2) for column, row in zip(COLUMNS, ROWS, strict=True)],
        "response": list(range(1, GROUP + 1)),
        "number": list(range(STEPS + 1)),
        "update_number": list(range(1, STEPS + 1)),
    },
    conclusion=(
        Say(
            f"In step {{step:d}} of {STEPS}, with {{count:d}} of {GROUP} responses right, {{name}} moves P(right) from "
            "{before:.3f} to {after:.3f}.",
            "learns",
        ),
        Say(
            f"In step {{step:d}} of {STEPS}, with {{count:d}} of {GROUP} responses right, every A is 0 under {{name}}: no token "
            "is worth a push."
        ),
    ),
)


explore_loop = explorer(
    "loop",
    LOOP,
    loop_curve,
    algorithms=Algorithms(trains_every_token, GRPO, WIDTHS),
    named={
        "one step": {},
        "its second update": {"moment": ADVANTAGES + 2},
        "a dead group": {"step": 2},
        "after 20 steps": {"step": 20},
    },
)
