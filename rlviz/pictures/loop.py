"""One training step in four parts, played slowly: sample, compare, push, repeat; computed by the algorithm's pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, Algorithm, GroupPolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import (
    Axis,
    Bars,
    Cells,
    Choice,
    Draws,
    Line,
    Panel,
    Picture,
    Points,
    Rule,
    Say,
    Slider,
    Text,
)
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures import entropy
from rlviz.pictures.idea import WIDTHS, Algorithms, explorer
from rlviz.pieces.aggregation import token_mean
from rlviz.tabular import slope
from rlviz.types import Batch, TokenObjective

STEPS, GROUP, UPDATES = 40, 4, 3
PLACES, DIGITS, SUM = 3, 5, 6  # a response is 3 digits from 0 to 4, and right where they add up to 6
TOKENS = GROUP * PLACES
PARTS = ("sample", "compare", "push", "repeat")
WHOLE = "the whole loop"
# moments of a step: how many of them each part has, of which the first is 0, before anything
MOMENTS = (TOKENS, 3, UPDATES, 2)
LAST = sum(MOMENTS)
REWARDS, MEAN, ADVANTAGES = (TOKENS + moment for moment in (1, 2, 3))  # the moments of `compare`
FIRST_SEED = 12  # of the draws: one of the first four responses is right, so that there is something to compare


@dataclass(frozen=True)
class Loop:
    """The curve: 40 steps of an algorithm on a table of logits, and one of them moment by moment. Equal for equal algorithms.

    The policy is a softmax over the digits 0 to 4 at each of three places, uniform at first. A step samples a group of four
    responses, gives 1 to those whose digits add up to 6, makes advantages of that, and goes three updates of plain gradient
    ascent on the same four. As in `entropy`, the algorithm's KL and its own aggregation are left out: all lengths are equal.
    """

    algorithm: GroupPolicyGradient

    def __post_init__(self) -> None:
        rule = entropy.TableRule(replace(self.algorithm, kl=None, aggregate=token_mean))
        object.__setattr__(self, "rule", rule)  # made here: it reads numbers, which a curve that is recorded cannot

    def __call__(
        self, moment: Tensor, step: Tensor, part: Tensor, lr: Tensor, draws: Tensor, **widths: Tensor
    ) -> dict[str, Tensor]:
        """Return what `_told` tells; draws: what chance gives, [S, G, T]."""
        rule: entropy.TableRule = vars(self)["rule"]
        now = with_tensors(rule.algorithm, widths)
        begin = torch.zeros(1, PLACES * DIGITS, dtype=torch.double)

        def one_step(state: Tensor) -> tuple[Tensor, Tensor]:
            """Sample, judge, and climb three times; a state is the step, logits and history, side by side."""
            place, history = state[0, 0].long(), state[:, 1 + begin.shape[1] :]
            scaled = state[:, 1 : 1 + begin.shape[1]].view(1, 1, PLACES, DIGITS)
            log_probs = torch.log_softmax(scaled, -1)
            digits = _sampled(log_probs[0, 0], draws[place])
            index = (digits + torch.arange(PLACES) * DIGITS).unsqueeze(0)
            old_logp = entropy.at_index(log_probs, index)
            rewards = (digits.sum(1) == SUM).double().view(1, 1, GROUP)
            of_tokens = [old_logp, entropy.at_index(torch.log_softmax(begin.view(scaled.shape), -1), index)]
            advantages, history = rule.judge(rewards, of_tokens, history)
            uses = rule.algorithm.uses(rewards).view(1, 1, 1).expand(index.shape)
            batch = rule.batch(of_tokens[0], of_tokens[1], advantages, uses)
            seen: list[Tensor] = []

            def objective(logp: Tensor, batch: Batch) -> TokenObjective:
                """The algorithm's own; on the way, each token's push ∂J/∂log π and ratio are kept."""
                told = now.objective(logp, batch)
                (push,) = torch.autograd.grad(told.value.sum(), logp, retain_graph=True)
                seen.extend([push.flatten(), told.ratio.detach().expand(push.shape).flatten()])
                return told

            for _ in range(UPDATES):
                gradient, _ = slope(objective, scaled, log_probs, index, batch, rule.with_entropy)
                scaled = scaled + lr * gradient
                log_probs = torch.log_softmax(scaled, -1)
            after = torch.cat([state[:, :1] + 1, scaled.flatten(1), history], 1)
            of_group = (digits.double(), old_logp.exp(), rewards, advantages[0, :, 0])
            return after, torch.cat([*(values.flatten() for values in (*of_group, scaled)), *seen])

        before = rule.history_before(1).view(1, -1)
        state = torch.cat([torch.zeros(1, 1, dtype=torch.double), begin, before], 1)
        return _told(repeated(one_step, state, STEPS), moment, step, part)


def _sampled(log_probs: Tensor, draws: Tensor) -> Tensor:
    """Return digits [G, T] of a table [T, A] and draws in [0, 1)."""
    cdf = log_probs.exp().cumsum(-1)
    drawn = draws.T.contiguous() * cdf[:, -1:]
    return torch.searchsorted(cdf, drawn).clamp(max=DIGITS - 1).T


def share_right(logits: Tensor) -> Tensor:
    """Return the probability that three digits add up to `SUM`, [S] of logits [S, T · A]: the sum over all 125 responses."""
    first, second, third = logits.view(-1, PLACES, DIGITS).softmax(-1).unbind(1)
    every = first.view(-1, DIGITS, 1, 1) * second.view(-1, 1, DIGITS, 1) * third.view(-1, 1, 1, DIGITS)
    is_right = [float(sum(digits) == SUM) for digits in product(range(DIGITS), repeat=PLACES)]
    return (every.flatten(1) * torch.tensor(is_right, dtype=torch.double)).sum(1)


def _told(kept: Tensor, moment: Tensor, step: Tensor, part: Tensor) -> dict[str, Tensor]:
    """Return what the picture tells of all steps [S, …], as `Loop` keeps them."""
    sizes = (TOKENS, TOKENS, GROUP, GROUP, PLACES * DIGITS)
    parts = kept.split([*sizes, 2 * UPDATES * TOKENS], 1)
    logits = torch.nn.functional.pad(parts[4], (0, 0, 1, 0))  # 0 before training
    right, number = share_right(logits), torch.arange(STEPS + 1, dtype=torch.double)
    at = (step - 1).long().reshape(1)
    digits, probs, rewards, A = (values[at][0] for values in parts[:4])
    update = (moment - ADVANTAGES).clamp(1, UPDATES)
    pushes, ratios = parts[5][at].view(UPDATES, 2, TOKENS).unbind(1)
    push, ratio = (values[(update - 1).long().reshape(1)][0] for values in (pushes, ratios))
    is_pushed = moment > ADVANTAGES
    push, of_tokens = push * is_pushed, A.repeat_interleave(PLACES)
    cut = (push == 0) & (of_tokens != 0) & is_pushed
    done = step - (moment < LAST).double()  # how many steps are behind us
    dead = parts[3].abs().amax(1) == 0
    ends = torch.tensor(MOMENTS, dtype=torch.double).cumsum(0)
    starts = ends - torch.tensor(MOMENTS, dtype=torch.double)
    progress = ((moment - starts) / (ends - starts)).clamp(0, 1)  # of each part
    current = (moment > ends).sum().clamp(max=len(PARTS) - 1)
    spoken = torch.where(part > 0, part - 1, current)
    before_it = (spoken - 1).remainder(len(PARTS))
    typed = torch.arange(TOKENS, dtype=torch.double) < moment
    learns = A.abs().amax() > 0
    flags = {
        "is_rewarded": moment >= REWARDS,
        "has_mean": moment >= MEAN,
        "has_advantages": moment >= ADVANTAGES,
        "is_pushed": is_pushed,
        "says_sample": spoken == 0,
        "says_equal": (spoken == 1) & ~learns,
        "says_compare": (spoken == 1) & learns,
        "says_no_push": (spoken == 2) & ~learns,
        "says_push": (spoken == 2) & learns,
        **{f"shows_{name}": (part == 0) | (spoken == i) | (before_it == i) for i, name in enumerate(PARTS)},
    }
    return {
        "progress": progress.sum(),
        "is_spoken": (torch.arange(len(PARTS)) == spoken).double(),
        **{f"digit_{i}": digits[i] for i in range(TOKENS)},
        **{f"prob_{i}": probs[i] for i in range(TOKENS)},
        **{f"ratio_{i}": ratio[i] for i in range(TOKENS)},
        **{f"typed_{i}": typed[i].double() for i in range(TOKENS)},
        "typed": typed.double(),
        "digits": digits,
        "rewards": rewards,
        "is_right": rewards,
        "is_wrong": 1 - rewards,
        **{f"A_{i}": A[i] for i in range(GROUP)},
        **{f"A_{i}_at": rewards[i] + 0.4 * (rewards[i] > rewards.mean()).double() - 0.2 for i in range(GROUP)},
        "is_above": (rewards > rewards.mean()).double(),
        "is_below": (rewards < rewards.mean()).double(),
        "mean": rewards.mean(),
        "count": rewards.sum(),
        "A_most": A.amax(),
        "A_least": A.amin(),
        "push": push,
        "reach": A.abs().amax().clamp(min=1.0),
        "is_up": (push > 0).double(),
        "is_down": (push < 0).double(),
        "is_cut": cut.double(),
        "up": (push > 0).double().sum(),
        "down": (push < 0).double().sum(),
        "cut": cut.double().sum(),
        "update": update,
        "number": number,
        "right": torch.where(number <= done, right, torch.nan),
        "before": right[at][0],
        "after": right[at + 1][0],
        "right_now": right[done.long().reshape(1)][0],
        "done": done,
        "dead": torch.full_like(number[1:], -0.12).where(dead & (number[1:] <= done), torch.nan),
        "dead_count": (dead & (number[1:] <= step)).double().sum(),
        **flags,
    }


ROWS, COLUMNS = (list(places) for places in zip(*product(range(GROUP, 0, -1), range(1, PLACES + 1)), strict=True))
_ACROSS, _DOWN = Axis("", 0.45, PLACES + 0.55, ticks=None), Axis("", 0.4, GROUP + 0.6, ticks=None)


def has_no_choice(algorithm: Algorithm) -> bool:
    """Return whether a table can be trained with it, and all tokens of a response count.

    An algorithm that picks tokens by their probability or entropy finds them all alike at first: rounding would pick.
    """
    return (
        entropy.has_groups(algorithm)
        and isinstance(algorithm, GroupPolicyGradient)
        and algorithm.can.choose is None
        and not algorithm.asks_for("advantage", "old_entropy")
    )


def _numbers(name: str, colour: str, before: str = "") -> tuple[Text, ...]:
    """Return a number right of each token's digit."""
    return tuple(
        Text(f"{before}{{{name}_{i}:.2f}}", column - 0.1, row, "right", colour=colour, when=f"typed_{i}")
        for i, (column, row) in enumerate(zip(COLUMNS, ROWS, strict=True))
    )


def _signs() -> tuple[Points, ...]:
    """Return what happens to each token: pushed up, pushed down, or cut."""
    looks = {"up": ("^", "blue", "up"), "down": ("v", "vermilion", "down"), "cut": ("x", "ink", "cut: past the limit")}
    return tuple(
        Points("sign_at", "row", shape, 6, colour=colour, where=f"is_{name}", label=label)
        for name, (shape, colour, label) in looks.items()
    )


_BARS: tuple[tuple[str, str, str], ...] = (("above", "blue", "solid"), ("below", "vermilion", "hatch"))
_STEP = "Step {step:d} of 40"
LOOP = Picture(
    title="What happens in one training step?",
    look="Press ▶ beside “moment”: one step, slowly. Then ▶ beside “step”.",
    notice="Only the group decides: where all rewards are equal, no token is pushed, and the curve stands still.",
    alt="A strip of four parts with a playhead; below it the tokens of four responses with their probabilities, their rewards "
    "and advantages, the same tokens shaded by the push on each, and the probability of a right response against the step.",
    panels=(
        Panel(
            "",
            Axis("", 0, len(PARTS), ticks=None),
            Axis("", 0, 1, ticks=None),
            (
                Bars("part_at", 0.92, 0.94, 0.08, "none", colour="grey"),
                Bars("part_at", 0.92, 0.94, 0.08, "hatch", colour="blue", where="is_spoken"),
                Text("part_names", "part_at", 0.78),
                Rule("progress", dash="", width=2.5, colour="ink", drag="moment"),
            ),
            tall=0.24,
            wide=2,
        ),
        Panel(
            "1 · Sample four responses",
            _ACROSS,
            _DOWN,
            (
                Points("digit_at", "row", "s", 17, fill="none", colour="grey", where="typed"),
                Text("digits", "digit_at", "row", where="typed"),
                *_numbers("prob", "grey"),
            ),
            when="shows_sample",
            tall=0.52,
        ),
        Panel(
            f"2 · Compare: which add up to {SUM}?",
            Axis("", 0.4, GROUP + 0.6, ticks=None),
            Axis("reward", -0.75, 1.45, ticks=(0, 1)),
            (
                *(
                    Bars(
                        "response",
                        "rewards",
                        0.3,
                        "mean",
                        fill,
                        colour=colour,
                        where=f"is_{name}",
                        when="has_advantages",
                    )
                    for name, colour, fill in _BARS
                ),
                Rule(
                    "mean",
                    "y",
                    dash="6 3",
                    width=2,
                    colour="ink",
                    when="has_mean",
                    label="mean {mean:.2f}",
                    direct=True,
                ),
                Points(
                    "response", "rewards", "o", 9, colour="green", where="is_right", when="is_rewarded", label="right"
                ),
                Points(
                    "response", "rewards", "x", 9, colour="grey", where="is_wrong", when="is_rewarded", label="wrong"
                ),
                *(
                    mark
                    for i in range(GROUP)
                    for mark in (
                        Text(
                            "".join(f"{{digit_{PLACES * i + place}:d}}" for place in range(PLACES)),
                            i + 1.0,
                            -0.6,
                            when=f"typed_{PLACES * i + PLACES - 1}",
                        ),
                        Text(f"A {{A_{i}:+.2f}}", i + 1.0, f"A_{i}_at", when="has_advantages"),
                    )
                ),
            ),
            when="shows_compare",
            tall=0.52,
        ),
        Panel(
            "3 · Push each token by its A",
            _ACROSS,
            _DOWN,
            (
                Cells("column", "row", "push", "reach", where="typed"),
                Text("digits", "digit_at", "row", where="typed"),
                *_numbers("ratio", "ink", "× "),
                *_signs(),
            ),
            when="shows_push",
            tall=0.52,
        ),
        Panel(
            "4 · Repeat with the new policy",
            Axis("step", -1, STEPS + 1, ticks=(0, 10, 20, 30, 40)),
            Axis("P(right)", -0.45, 1.05, ticks=(0, 0.5, 1)),
            (
                Points("update_number", "dead", "x", 6, colour="grey", label="dead group: every A is 0"),
                Rule("step", dash="6 2 1 2", width=1.5, colour="ink", drag="step"),
                Line("number", "right"),
                Points("done", "right_now", size=10),
            ),
            when="shows_repeat",
            tall=0.52,
        ),
    ),
    controls={
        "moment": Slider(0, LAST, 1, LAST, "moment", plays=True),
        "step": Slider(1, STEPS, 1, 1, "step", plays=True),
        "part": Choice({WHOLE: "whole", **{name: name for name in PARTS}}, WHOLE, "show"),
        "lr": Slider(stops=(0.5, 1.0, 2.5, 5.0, 10.0), value=2.5, label="learning rate", rare=True),
    },
    data={
        "draws": Draws("uniform", (STEPS, GROUP, PLACES), FIRST_SEED),
        "column": COLUMNS,
        "row": ROWS,
        "digit_at": [column - 0.22 for column in COLUMNS],
        "sign_at": [column - 0.38 for column in COLUMNS],
        "response": list(range(1, GROUP + 1)),
        "update_number": list(range(1, STEPS + 1)),
        "part_at": [place + 0.5 for place in range(len(PARTS))],
        "part_names": [f"{place} {name}" for place, name in enumerate(PARTS, start=1)],
    },
    conclusion=(
        Say(
            f"{_STEP}, sample: the policy draws four responses, each token with the probability beside it. Right is what "
            f"adds up to {SUM}.",
            "says_sample",
        ),
        Say(
            f"{_STEP}, compare: {{count:d}} of 4 are right, and every A is 0. This group teaches nothing.", "says_equal"
        ),
        Say(
            f"{_STEP}, compare: {{count:d}} of 4 are right, the mean reward is {{mean:.2f}}, and the advantages A go from "
            "{A_least:+.2f} to {A_most:+.2f}.",
            "says_compare",
        ),
        Say(f"{_STEP}, push: every A is 0, so no token is pushed.", "says_no_push"),
        Say(
            f"{_STEP}, push, update {{update:d}} of {UPDATES}: {{up:d}} tokens are pushed up, {{down:d}} down, and {{cut:d}} "
            "are cut.",
            "says_push",
        ),
        Say(
            f"{_STEP}, repeat: the probability of a right response goes from {{before:.3f}} to {{after:.3f}}, and the new policy "
            "samples the next group."
        ),
    ),
    says=(
        Say(
            f"{{name}} on a table of logits: {PLACES} digits from 0 to {DIGITS - 1}, {GROUP} responses a step, {UPDATES} updates "
            "on each group, by plain gradient ascent. A KL term and the algorithm's own mean over tokens are left out."
        ),
        Say(
            "Beside a token stands its probability when it was sampled, and then its ratio: its probability now over that one."
        ),
        Say("Groups up to this step that taught nothing: {dead_count:d}."),
    ),
)


def loop(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve of an algorithm, see `Loop`."""
    return Loop(algorithm)


explore_loop = explorer(
    "loop",
    LOOP,
    loop,
    algorithms=Algorithms(has_no_choice, GRPO, WIDTHS),
    named={
        "one step": {},
        "a dead group": {"step": 2},
        "after 20 steps": {"step": 20},
        "compare": {"part": "compare"},
        "push": {"part": "push", "moment": ADVANTAGES + 2},
    },
)
