"""What is done about responses that grow too long: to the reward of one response, and to the advantages of a group."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DR_GRPO, Algorithm, GroupPolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Choice, Line, Panel, Picture, Points, Rule, Say, Slider, Span
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import group_advantages, learns_from_a_group
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pieces.shaping import OverlongFilter, SoftOverlongPunishment

LONGEST = 28  # tokens, of the lengths on the axis
OFFSETS = (-6.0, -4.0, -3.0, -1.0, 1.0, 2.0, 4.0, 7.0)  # tokens, of the group's lengths from their mean
RANKS = (4.0, 1.0, 6.0, 3.0, 2.0, 7.0, 0.0, 5.0)  # a response is right if its rank is below the number of right ones
SHAPINGS = {"soft punishment": "soft", "the algorithm's own": "own", "overlong filter": "filter", "none": "none"}
SOFT, OWN, _, NONE = range(len(SHAPINGS))


def overlong_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: a right response's reward by length, and advantages in a group of eight, with and without shaping.

    Lengths are those that a response would have if nothing were cut off; past `max_length` it is cut there, has no answer and
    counts as wrong. The group is the batch; no prompt was sampled before; KL and selection are left out. `signed`: advantages
    with rewards 1 and −1, as in DAPO's paper, where the same punishment weighs half as much.
    """
    bare = replace(algorithm.without_kl(), shape=None)
    soft = replace(bare, shape=SoftOverlongPunishment(max_length=16, cache=4))
    trained, filtered = replace(bare, shape=algorithm.shape), replace(bare, shape=OverlongFilter())

    def curve(
        shaping: Tensor, max_length: Tensor, cache: Tensor, factor: Tensor, mean_length: Tensor, number_right: Tensor
    ) -> dict[str, Tensor]:
        punished = with_tensors(soft, {"max_length": max_length, "cache": cache, "factor": factor})
        rules = [punished, trained, filtered, bare]

        def shaped(rule: GroupPolicyGradient, right: Tensor, lengths: Tensor, wrong: float = 0.0) -> Tensor:
            cut = lengths > max_length
            R = (right & ~cut).double()
            record = {"truncated": cut, "correct": R, "well_formed": (~cut).double()}
            return rule.shape_rewards(R + wrong * (1 - R), lengths.minimum(max_length).long(), **record)

        # One response of each length; at the edge a step, not a slope: the last whole one and the first one that is cut.
        integers, edge = torch.arange(1, LONGEST + 1, dtype=torch.double), max_length + 0.5
        at = torch.cat([integers, edge.expand(2)]).sort().values
        every_length = torch.cat([integers, torch.stack([max_length, max_length + 1])]).sort().values.unsqueeze(0)
        by_length = select_value([shaped(rule, every_length > 0, every_length)[0] for rule in rules], shaping)

        # A group of eight.
        lengths = (mean_length + torch.tensor(OFFSETS, dtype=torch.double)).unsqueeze(0)
        right, cut = torch.tensor([RANKS], dtype=torch.double) < number_right, lengths > max_length
        all_tokens = torch.ones(1, len(OFFSETS), 1, dtype=torch.bool)
        in_loss = select_value([rule.loss_mask(all_tokens, cut)[..., 0] for rule in rules], shaping)
        new_R, signed_R = (
            select_value([shaped(rule, right, lengths, wrong) for rule in rules], shaping) for wrong in (0.0, -1.0)
        )
        before = group_advantages(bare, (right & ~cut).double())
        after, signed = (group_advantages(bare, R) * in_loss for R in (new_R, signed_R))
        drawn = torch.cat([before, after, signed])
        most = (after - before).abs().argmax(1, keepdim=True)
        columns = {"before": before, "after": after, "length": lengths.minimum(max_length)}
        return {
            "at": at,
            "whole": (at != edge).double(),
            "edge": edge,
            "plain": (every_length <= max_length).double()[0],
            "shaped": by_length,
            "start": torch.where(shaping == SOFT, max_length - cache, torch.nan),
            "is_soft": shaping == SOFT,
            "is_shaped": ~((shaping == NONE) | (shaping == OWN) & (trained.shape is None)),
            "lowest_R": 1.1 * by_length.amin().clamp(max=-1.3),
            "highest_R": 1.1 * by_length.amax().clamp(min=1.3),
            "lowest_A": 1.1 * drawn.amin().clamp(max=-2.7),
            "highest_A": 1.1 * drawn.amax().clamp(min=2.7),
            "lengths": lengths[0],
            "before": before[0],
            "after": after[0],
            "signed": signed[0],
            "right": (right & ~cut & in_loss)[0].double(),
            "wrong": (~(right & ~cut) & in_loss)[0].double(),
            "out": (~in_loss)[0].double(),
            "kept": in_loss[0].double(),
            **{f"most_{name}": values.gather(1, most)[0, 0] for name, values in columns.items()},
        }

    return curve


def takes_any_reward(algorithm: Algorithm) -> bool:
    """Return whether the algorithm makes advantages of a group whose mean reward is below 0, as punished ones may be."""
    if not isinstance(algorithm, GroupPolicyGradient) or not learns_from_a_group(algorithm):
        return False
    try:
        return bool(group_advantages(algorithm, torch.tensor([[-1.0, 0.5]])).any())
    except ValueError:
        return False


def select_value(values: list[Tensor], index: Tensor) -> Tensor:
    """Return values[index] for an index that is a tensor."""
    selected = values[0]
    for i, value in enumerate(values[1:], start=1):
        selected = torch.where(index == i, value, selected)
    return selected


LENGTH = Axis("length, tokens, if not cut off", 0, LONGEST + 0.5, ticks=tuple(range(0, 29, 4)))
ENDS = Span("edge", LONGEST + 0.5, label="cut off", direct=True), Rule("edge", dash="", drag="max_length")
OVERLONG = Picture(
    title="What is done about responses that grow too long?",
    look="Drag the edge at which the sampler cuts, or the place from which length is punished.",
    notice="A right response near the length limit can end with a negative advantage. Find the length from which it does.",
    alt="Two graphs against length in tokens: left the reward of a right response with and without shaping; right the "
    "advantages of a group of eight responses, a bar each, and what they were without shaping.",
    panels=(
        Panel(
            "What a right response earns",
            LENGTH,
            Axis("reward R", "lowest_R", "highest_R"),
            (
                *ENDS,
                Rule("start", drag="cache", label="punished", direct=True, when="is_soft"),
                Rule(0, axis="y", dash="", width=1),
                Line("at", "plain", width=5, colour="grey", label="unshaped", direct=True),
                Line("at", "shaped", label="shaped", direct=True, when="is_shaped"),
                Points("at", "shaped", size=4, where="whole", when="is_shaped"),
            ),
        ),
        Panel(
            "What a group of eight learns",
            LENGTH,
            Axis("advantage A", "lowest_A", "highest_A"),
            (
                *ENDS,
                Rule("mean_length", drag="mean_length", label="mean", direct=True),
                Rule(0, axis="y", dash="", width=1),
                Bars("lengths", "after", where="right", label="right: A"),
                Bars("lengths", "after", fill="hatch", colour="vermilion", where="wrong", label="wrong: A"),
                Points(
                    "lengths", "before", "D", fill="none", colour="ink", when="is_shaped", label="A without shaping"
                ),
                Points("lengths", "signed", "_", 16, colour="ink", where="kept", label="A with rewards ±1"),
                Points("lengths", 0, "x", colour="ink", where="out", label="out of the loss"),
            ),
        ),
    ),
    controls={
        "shaping": Choice(SHAPINGS, "soft punishment", "shaping"),
        "max_length": Slider(9, 24, 1, 16, "maximum length"),
        "cache": Slider(1, 8, 1, 4, "cache", when="is_soft"),
        "mean_length": Slider(8, 20, 1, 11, "mean length"),
        "number_right": Slider(0, 8, 1, 5, "right responses"),
        "factor": Slider(0.25, 2.0, 0.25, 1.0, "factor", when="is_soft", rare=True),
    },
    conclusion=(
        Say(
            "{name}: the response of {most_length:d} tokens has A = {most_after:+.2f}, without shaping {most_before:+.2f}."
        ),
    ),
)

explore_overlong = explorer(
    "overlong",
    OVERLONG,
    overlong_curve,
    algorithms=Algorithms(takes_any_reward, DAPO),
    named={
        "soft punishment": {},
        "overlong filter": {"shaping": "filter", "mean_length": 13},
        "all eight right": {"factor": 0.25, "mean_length": 9, "number_right": 8},
        "Dr.GRPO": {"algorithm": DR_GRPO},
    },
)
