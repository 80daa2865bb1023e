"""What one token weighs under each aggregation, and how that changes when a batch is cut into two parts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.idea import Algorithms, explorer
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean, weighted_sum
from rlviz.pieces.words import label

RESPONSES = 4
LONGEST = 16  # tokens of a response
ROWS = ("sequence sum", "constant", "token mean", "sequence mean", "its own")  # from below
OWN = len(ROWS)
ACROSS = (0.33, 0.11, -0.11, -0.33)  # of a row, its four responses
ALIKE = 1e-9


def aggregation(algorithm: PolicyGradient) -> Curve:
    """Return the curve: what a token weighs in responses of different lengths, and what cutting the batch in two makes of it.

    A token's weight under each of the four aggregations, and under the algorithm's own if it is none of them; and, under its
    own, what all tokens of a response weigh together: in the whole batch, and in the mean of the means of two parts, as when
    gradients of micro-batches are averaged. They agree only when every part stands for as much of the batch: as many responses
    where these are averaged, as many tokens where those are.
    """
    own = algorithm.aggregate
    fixed = {sequence_sum: 1.0, token_mean: 3.0, sequence_mean: 4.0}
    length = own.max_length if isinstance(own, Constant) else -1

    def curve(lengths: Tensor, max_length: Tensor, cut: Tensor) -> dict[str, Tensor]:
        constant = with_tensors(DR_GRPO, {"max_length": max_length}).aggregate
        mask = (torch.arange(LONGEST) < lengths.reshape(RESPONSES, 1)).unsqueeze(0)
        every = torch.stack(
            [rule(mask)[0, :, 0].double() for rule in (sequence_sum, constant, token_mean, sequence_mean, own)]
        )
        own_at = torch.where(max_length == length, 2.0, torch.full_like(max_length, fixed.get(own, OWN)))  # type: ignore[arg-type]
        row = torch.arange(1.0, OWN + 1, dtype=torch.double).unsqueeze(1)
        is_own = (row == own_at).expand(every.shape)
        of_parts = _of_parts(own, mask, 1)
        for responses in range(2, RESPONSES):
            of_parts = torch.where(cut == responses, _of_parts(own, mask, responses), of_parts)
        alone = torch.eye(RESPONSES, dtype=torch.double).reshape(RESPONSES, 1, RESPONSES, 1) * mask
        whole, parts = (
            torch.stack([weighted_sum(one, weights, mask) for one in alone.unbind()])
            for weights in (own(mask).double(), of_parts)
        )

        times, weight = parts / whole, every[-1]
        both = torch.cat([whole, parts])
        top = 1.05 * 2 ** (both.amax().clamp(min=1.0).log2() - 1e-9).ceil()  # a sum of 1 may be 1 + 2e-16
        is_same, is_positive = ((parts - whole).abs() <= ALIKE * whole.abs()).all(), (whole > 0).all()
        is_scaled = ((times - times[0]).abs() <= ALIKE * times[0].abs()).all()
        flags = {
            "same": is_same,
            "another": ~is_same & ~is_positive,
            "scaled": ~is_same & is_positive & is_scaled,
            "trap": ~is_same & is_positive & ~is_scaled,
            "level": weight.amax() - weight.amin() <= ALIKE * weight.amax().abs(),
        }
        at = {
            "most": _first(times, times.amax()),
            "least": _first(times, times.amin()),
            "heaviest": _first(weight, weight.amax()),
            "lightest": _first(weight, weight.amin()),
        }
        return {
            "row": _broken(row + torch.tensor(ACROSS, dtype=torch.double)),
            "weight_own": _broken(every.masked_fill(~is_own, torch.nan)),
            "weight_others": _broken(every.masked_fill(is_own | (row == OWN), torch.nan)),
            "rows_end": torch.where(own_at == OWN, OWN + 0.6, torch.full_like(own_at, OWN - 0.4)),
            "constant_at": every[1, 0],
            "own_at": own_at,
            "name_at": 1.4 * weight.amax(),
            "whole": whole,
            "parts": parts,
            "bottom": torch.where(both.amin() >= 0, 0.0, -top),
            "top": top,
            "knife": cut + 0.5,
            "second": RESPONSES - cut,
            **{f"times_{i}": times[i - 1] for i in range(1, RESPONSES + 1)},
            **{name: place + 1 for name, place in at.items()},
            **{f"{name}_times": times[at[name]] for name in ("most", "least")},
            **{f"{name}_weight": weight[at[name]] for name in ("heaviest", "lightest")},
            **{f"{name}_length": lengths[at[name]] for name in ("heaviest", "lightest")},
            **flags,
        }

    return curve


def _of_parts(aggregate: Callable[[Tensor], Tensor], mask: Tensor, cut: int) -> Tensor:
    """Return the weights of a batch in the mean over two parts, each with weights of its own; the first has `cut` responses."""
    return torch.cat([aggregate(part) / 2 for part in (mask[:, :cut], mask[:, cut:])], 1).double()


def _first(values: Tensor, extreme: Tensor) -> Tensor:
    """Return the place of the first that is as good as the extreme one: rounding does not choose between equals."""
    return ((values - extreme).abs() <= ALIKE * extreme.abs()).double().argmax(0, keepdim=True)


def _broken(rows: Tensor) -> Tensor:
    """Return rows one after the other, with a gap behind each where a line is broken."""
    return torch.nn.functional.pad(rows, (0, 1), value=torch.nan).flatten()


def texts(algorithm: PolicyGradient) -> dict[str, str]:
    """Return what the algorithm fixes of the words: what its aggregation is called."""
    return {"aggregation": label(algorithm.aggregate)}


_AVERAGED = "Averaging the means of two parts, {name}"
AGGREGATION = Picture(
    title="What does a token weigh, and does it stay so in micro-batches?",
    look="Drag the cut: where the batch is split into two parts, whose means are averaged.",
    notice=(
        "The mean over a sequence gives a token of a long response less weight; the mean over all tokens gives each the "
        "same. Cut the batch in two and see where averaging the parts goes wrong."
    ),
    alt="Left, the weight of one token of each response under each aggregation, on a log scale. Right, bars of the weight of "
    "each whole response, its tokens together: in the batch, and in the mean of two parts.",
    panels=(
        Panel(
            "One token of response 1, 2, 3 and 4",
            Axis("weight of the token (log scale)", 0.003, 8.0, log=1, ticks=(0.01, 0.1, 1.0)),
            Axis("", 0.4, "rows_end", names="rows"),
            (
                Rule("constant_at", dash="6 2 1 2", width=1.5, colour="ink", drag="max_length"),
                *(
                    mark
                    for of, colour, width in (("others", "blue", 1.5), ("own", "vermilion", 3))
                    for mark in (
                        Line(f"weight_{of}", "row", width=width, colour=colour),
                        Points(f"weight_{of}", "row", size=12, fill="none", colour=colour),
                        Text("digits", f"weight_{of}", "row", colour=colour),
                    )
                ),
                Text("{name}", "name_at", "own_at", "right", colour="vermilion"),
            ),
        ),
        Panel(
            "All tokens of a response, whole and cut",
            Axis("response, by its number of tokens", 0.4, RESPONSES + 0.6, names="lengths"),
            Axis("weight of all its tokens", "bottom", "top"),
            (
                Rule(0, axis="y", dash="", width=1),
                Bars("whole_at", "whole", 0.3, label="in the whole batch"),
                Bars("parts_at", "parts", 0.3, fill="hatch", colour="vermilion", label="mean of the parts' means"),
                Rule("knife", dash="6 3", colour="ink", label="cut", direct=True, drag="cut"),
            ),
        ),
    ),
    controls={
        "cut": Slider(1, RESPONSES - 1, 1, 2, "first part, responses"),
        "lengths": Slider(1, LONGEST, 1, (2, 4, 8, 16), "lengths", many=RESPONSES),
        "max_length": Slider(1, 64, 1, 16, "constant's length", rare=True),
    },
    conclusion=(
        Say(f"{_AVERAGED} gives every response the weight that it has in the whole batch: no trap here.", "same"),
        Say(f"{_AVERAGED} has another objective than in the whole batch.", "another"),
        Say(f"{_AVERAGED} gives every token {{times_1:.3g}} times its weight: another learning rate.", "scaled"),
        Say(
            f"{_AVERAGED} gives {{most_times:.3g}} times its weight to a token of response {{most:d}}, and {{least_times:.3g}} "
            "times to one of response {least:d}: the trap."
        ),
    ),
    says=(
        Say("The aggregation is {aggregation}: a token weighs {heaviest_weight:.3g} in every response.", "level"),
        Say(
            "The aggregation is {aggregation}: a token of response {heaviest:d} (length {heaviest_length}) weighs "
            "{heaviest_weight:.3g}, of response {lightest:d} (length {lightest_length}) {lightest_weight:.3g}.",
            "!level",
        ),
        Say("The parts have {cut} and {second:d} responses."),
        Say(
            "Tokens of responses 1 to 4 count {times_1:.3g}, {times_2:.3g}, {times_3:.3g} and {times_4:.3g} times what they "
            "should. Weights computed on the whole batch and then cut stay right.",
            "trap",
        ),
    ),
    data={
        "rows": ROWS,
        "digits": ["1", "2", "3", "4", ""] * OWN,
        "whole_at": [response - 0.17 for response in range(1, RESPONSES + 1)],
        "parts_at": [response + 0.17 for response in range(1, RESPONSES + 1)],
    },
)

explore_aggregation = explorer(
    "aggregation",
    AGGREGATION,
    aggregation,
    algorithms=Algorithms(has_a_ratio, DAPO),
    texts=texts,
    named={
        "DAPO, cut in halves": {},
        "equal lengths": {"lengths": (8, 8, 8, 8)},
        "GRPO, cut after the first": {"algorithm": GRPO, "cut": 1},
        "DCPO": {"algorithm": DCPO},
    },
)
