"""What is done about responses that grow too long: to the reward of one, and to the advantages of a group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DR_GRPO, GroupPolicyGradient, numbers
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Choice, Line, Panel, Picture, Points, Rule, Say, Slider, Span
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import group_advantages, learns_from_a_group, without_kl
from rlviz.pictures.idea import Algorithms, explorer
from rlviz.pieces.shaping import OverlongFilter, SoftOverlongPunishment
from rlviz.pieces.words import label
from small_models.host import refusals

LONGEST = 28  # tokens, of the lengths shown
AWAY = (-6.0, -4.0, -3.0, -1.0, 1.0, 2.0, 4.0, 7.0)  # tokens, of the group's lengths from their mean
# of each of the group, how many must be right for it to be among them
TURN = (4.0, 1.0, 6.0, 3.0, 2.0, 7.0, 0.0, 5.0)
SHAPINGS = {"soft punishment": "soft", "the algorithm's own": "own", "overlong filter": "filter", "none": "none"}
SOFT, OWN, FILTER, NONE = range(len(SHAPINGS))
FELT = 0.005  # a difference in rewards or advantages that two decimals show
KINDS = ("right", "cut", "wrong")


@dataclass(frozen=True)
class _Responses:
    """Responses [1, G] that would have these lengths and answers: cut at max_length, they have neither."""

    lengths: Tensor
    right: Tensor
    max_length: Tensor

    @property
    def cut(self) -> Tensor:
        return self.lengths > self.max_length

    @property
    def rewards(self) -> Tensor:
        return (self.right & ~self.cut).double()

    def shaped(self, rules: list[GroupPolicyGradient], shaping: Tensor, wrong: float = 0.0) -> Tensor:
        """Return rewards after the rule of that place, of 1 for right and `wrong` for wrong responses before it."""
        every = [
            rule.shaped(
                self.rewards + wrong * (1 - self.rewards),
                self.lengths.minimum(self.max_length).long(),
                truncated=self.cut,
                correct=self.rewards,
                well_formed=(~self.cut).double(),
            )
            for rule in rules
        ]
        return _picked(every, shaping)


def _picked(every: list[Tensor], place: Tensor) -> Tensor:
    """Return the one at a place that is a tensor."""
    found = every[0]
    for other, value in enumerate(every[1:], start=1):
        found = torch.where(place == other, value, found)
    return found


def overlong(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: what shaping does to a right response's reward, by length, and to advantages in a group of eight.

    Lengths are those that a response would have if nothing were cut off; past `max_length` it is cut there, has no answer and
    counts as wrong. The group is the batch; no prompt was sampled before; KL and selection are left out. Advantages with rewards
    1 and −1, as in DAPO's paper, stand beside: these are twice as far apart, so the same punishment weighs half as much.
    """
    bare = replace(without_kl(algorithm), shape=None)
    soft = replace(bare, shape=SoftOverlongPunishment(max_length=16, cache=4))
    own = replace(bare, shape=algorithm.shape)
    filtered = replace(bare, shape=OverlongFilter())
    own_floor = -float(numbers(own).get("floor", -torch.inf))

    def curve(
        shaping: Tensor, max_length: Tensor, cache: Tensor, factor: Tensor, mean_length: Tensor, number_right: Tensor
    ) -> dict[str, Tensor]:
        rules = [with_tensors(soft, {"max_length": max_length, "cache": cache, "factor": factor}), own, filtered, bare]
        is_soft, is_none = shaping == SOFT, (shaping == NONE) | (shaping == OWN) & (own.shape is None)
        whole, edge = torch.arange(1, LONGEST + 1, dtype=torch.double), max_length + 0.5
        # at the edge a step, not a slope: there stand the last response that is whole and the first that is cut
        at = torch.cat([whole, edge.expand(2)]).sort().values
        told = torch.cat([whole, torch.stack([max_length, max_length + 1])]).sort().values.unsqueeze(0)
        long = _Responses(told, told > 0, max_length)
        shaped, of_its_own = long.shaped(rules, shaping), long.shaped([own], shaping)
        off, both = long.rewards - shaped, torch.cat([shaped, of_its_own])

        lengths = (mean_length + torch.tensor(AWAY, dtype=torch.double)).unsqueeze(0)
        group = _Responses(lengths, torch.tensor([TURN], dtype=torch.double) < number_right, max_length)
        everyone = torch.ones(1, len(AWAY), 1, dtype=torch.bool)
        kept = _picked([rule.loss_mask(everyone, group.cut)[..., 0] for rule in rules], shaping)
        R, new_R, signed_R = group.rewards, group.shaped(rules, shaping), group.shaped(rules, shaping, -1.0)
        before = group_advantages(bare, R)
        (after, refused), (signed, refuses) = (_advantages(bare, rewards, kept) for rewards in (new_R, signed_R))

        right, cut, out = group.right & ~group.cut, group.cut, ~kept
        change = ((after - before).abs() * kept).nan_to_num()
        of_right = change * right
        most = torch.where(of_right.amax() >= FELT, of_right, change).argmax(1, keepdim=True)
        changed, moved = (change.amax() >= FELT) & ~refused, (new_R - R).abs().amax()
        stands, shown = kept & (after != 0) & ~refused, torch.cat([before, after, signed]).nan_to_num()
        scales, times = _scales(after, signed, new_R, signed_R)
        floor = torch.where(is_soft, 1.0, torch.where(shaping == OWN, torch.full_like(edge, own_floor), torch.inf))
        of_group = {"R": R, "new_R": new_R, "before": before, "after": after, "signed": signed}
        flags = {
            "is_soft": is_soft,
            "is_none": is_none,
            "is_shaped": ~is_none,
            "own_differs": ((of_its_own - shaped).abs().amax() > 0) & (own.shape is not None),
            "has_floor": torch.isfinite(floor),
            "has_right": (right & stands).any(),
            "has_wrong": (~right & stands).any(),
            "has_signed": stands.any() & ~refuses,
            "has_out": (shaping == FILTER) | out.any(),
            "refused": refused,
            "same_but_rewards": ~changed & ~is_none & (moved > FELT),
            "same": ~changed & ~is_none & (moved <= FELT),
            "lost": out.any(),
            "counted": ~out.any(),
            "signed_refused": refused | refuses,
            **scales,
            "half": scales["other"] & is_soft,
            "other": scales["other"] & ~is_soft,
        }
        for kind, of_kind in zip(KINDS, (right, cut, ~right & ~cut), strict=True):
            flags[f"{kind}_most"] = of_kind.gather(1, most)[0, 0] & changed
        return {
            "at": at,
            "whole": (at != edge).double(),
            "plain": long.rewards[0],
            "shaped": shaped[0],
            "own": of_its_own[0],
            "edge": edge,
            "start": torch.where(is_soft, max_length - cache, torch.nan),
            "first_off": torch.where(off >= off.amax() - 1e-9, told, torch.inf).amin(),
            "off": off.amax(),
            "floor": floor,
            "lowest_R": 1.1 * both.amin().clamp(max=-1.3),
            "highest_R": 1.1 * both.amax().clamp(min=1.3),
            "lowest_A": 1.1 * shown.amin().clamp(max=-2.7),
            "highest_A": 1.1 * shown.amax().clamp(min=2.7),
            "lengths": lengths[0],
            **{name: values[0] for name, values in of_group.items()},
            **{f"most_{name}": values.gather(1, most)[0, 0] for name, values in of_group.items()},
            "most_length": lengths.minimum(max_length).gather(1, most)[0, 0],
            "right": (right & kept)[0].double(),
            "wrong": (~right & kept)[0].double(),
            "out": out[0].double(),
            "kept": kept[0].double(),
            "cuts": cut.double().sum(),
            "moved": moved,
            "times": times,
            **flags,
        }

    return curve


def _advantages(rule: GroupPolicyGradient, rewards: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return advantages, 0 where a response is out of the loss, and whether the algorithm refuses such rewards: then all are NaN.

    MaxRL divides by the group's mean, which must be above 0.
    """
    with refusals() as found:
        advantages = group_advantages(rule, rewards) * kept
    refused = torch.stack([*found, (kept & ~kept).any()]).any()
    return advantages.masked_fill(refused, torch.nan), refused


def _scales(after: Tensor, signed: Tensor, new_R: Tensor, signed_R: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return which sentence holds of the advantages with rewards 1 and −1, and how many times as large they would be."""
    largest, other = after.abs().amax(), signed.abs().amax()
    nothing = (largest == 0) & (other == 0)
    same = _close(signed, after, FELT) & ~nothing
    divided = same & _close(signed_R.amax() - signed_R.amin(), 2 * (new_R.amax() - new_R.amin()))
    alike = _close(largest * signed, other * after, FELT) & (largest > 0) & ~same
    known = ~(largest + other).isnan()
    found = {"nothing": nothing, "divided": divided, "equal": same & ~divided, "alike": alike}
    return {**found, "other": known & ~nothing & ~same & ~alike}, other / largest


def _close(found: Tensor, like: Tensor, apart: float = 1e-8) -> Tensor:
    """Return whether all are as good as equal: NaN is not."""
    return ((found - like).abs() <= apart + 1e-5 * like.abs()).all()


def texts(algorithm: GroupPolicyGradient) -> dict[str, str]:
    """Return what the algorithm fixes of the words: its own shaping."""
    return {"own_rule": "none" if algorithm.shape is None else label(algorithm.shape)}


def _ends() -> tuple[Span | Rule, ...]:
    return Span("edge", LONGEST + 0.5, label="cut off, wrong", direct=True), Rule("edge", dash="", drag="max_length")


_LENGTH = Axis("length, tokens, if not cut off", 0, LONGEST + 0.5, ticks=tuple(range(0, 29, 4)))
_RESPONSE = "response of {most_length:d} tokens"
_SIGNED = "With rewards 1 and −1 in place of 1 and 0"
_CUTS = "the sampler cuts at {max_length} tokens"
OVERLONG = Picture(
    title="What is done about responses that grow too long?",
    look="Drag the edge at which the sampler cuts, or the place from which length is punished.",
    notice="A right response near the length limit can end with a negative advantage. Find the length from which it does.",
    alt="Two graphs against length in tokens: left the reward of a right response with and without shaping; right the "
    "advantages of a group of eight responses, a bar each, and what they were without shaping.",
    panels=(
        Panel(
            "What a right response earns",
            _LENGTH,
            Axis("reward R", "lowest_R", "highest_R"),
            (
                *_ends(),
                Rule("start", drag="cache", label="punished from here", direct=True, when="is_soft"),
                Rule(0, axis="y", dash="", width=1),
                Line("at", "plain", width=5, colour="grey", label="without", direct=True),
                Line("at", "own", "6 4", colour="green", label="its own", direct=True, when="own_differs"),
                Line("at", "shaped", label="shaped", direct=True, when="is_shaped"),
                Points("at", "shaped", size=4, where="whole", when="is_shaped"),
            ),
        ),
        Panel(
            "What a group of eight learns",
            _LENGTH,
            Axis("advantage A", "lowest_A", "highest_A"),
            (
                *_ends(),
                Rule("mean_length", drag="mean_length", label="mean length", direct=True),
                Rule(0, axis="y", dash="", width=1),
                Bars("lengths", "after", where="right", when="has_right", label="right: A"),
                Bars(
                    "lengths",
                    "after",
                    fill="hatch",
                    where="wrong",
                    when="has_wrong",
                    label="wrong: A",
                    colour="vermilion",
                ),
                Points(
                    "lengths", "before", "D", fill="none", when="is_shaped", label="A without shaping", colour="ink"
                ),
                Points(
                    "lengths",
                    "signed",
                    "_",
                    16,
                    where="kept",
                    when="has_signed",
                    label="A with rewards ±1",
                    colour="ink",
                ),
                Points("lengths", 0, "x", where="out", when="has_out", label="out of the loss", colour="ink"),
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
        Say("{name} refuses this group: its advantage is not defined for these rewards.", "refused"),
        *(
            Say(
                f"The {kind} {_RESPONSE} has reward {{most_new_R:.2f}} and A = {{most_after:+.2f}}; without shaping it has "
                "{most_R:.2f} and {most_before:+.2f}.",
                f"{kind}_most",
            )
            for kind in KINDS
        ),
        Say("A right response earns 1 up to {max_length} tokens and 0 beyond.", "is_none"),
        Say("Shaping changes rewards by up to {moved:.2f}, but no advantage.", "same_but_rewards"),
        Say("No response in the loss has another advantage than without shaping.", "same"),
    ),
    says=(
        Say(f"{{name}} with a soft punishment (from {{start:d}} to {{max_length}} tokens); {_CUTS}.", "is_soft"),
        Say(f"{{name}} with its own shaping ({{own_rule}}); {_CUTS}.", "shaping=the algorithm's own"),
        Say(f"{{name}} with the overlong filter; {_CUTS}.", "shaping=overlong filter"),
        Say(f"{{name}} without shaping; {_CUTS}.", "shaping=none"),
        Say(
            "It takes off up to {off:.2f}, from {first_off:d} tokens on, and never more than {floor:g}, the floor.",
            "has_floor",
        ),
        Say("Cut off, and out of the loss: {cuts:d} of the eight.", "lost"),
        Say("Cut off, and counted as wrong: {cuts:d} of the eight.", "counted"),
        Say(f"{_SIGNED} {{name}} refuses this group.", "signed_refused"),
        Say("All advantages are 0.", "nothing"),
        Say(f"{_SIGNED} every advantage would be the same: the scale is divided out.", "divided"),
        Say(f"{_SIGNED} every advantage would be the same.", "equal"),
        Say(f"{_SIGNED} advantages would be {{times:.1f}} times as large.", "alike"),
        Say(
            "With rewards 1 and −1, as in DAPO's paper, the same punishment weighs half as much: the "
            f"{_RESPONSE} would have A = {{most_signed:+.2f}}.",
            "half",
        ),
        Say(f"{_SIGNED} the {_RESPONSE} would have A = {{most_signed:+.2f}}.", "other"),
    ),
)

explore_overlong = explorer(
    "overlong",
    OVERLONG,
    overlong,
    algorithms=Algorithms(learns_from_a_group, DAPO),
    texts=texts,
    named={
        "soft punishment": {},
        "overlong filter": {"shaping": "filter", "mean_length": 13},
        "all eight right": {"factor": 0.25, "mean_length": 9, "number_right": 8},
        "Dr.GRPO": {"algorithm": DR_GRPO},
    },
)
