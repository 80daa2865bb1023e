"""What one token weighs under each aggregation, and how that changes when a batch is cut into two parts."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO, PolicyGradient
from rlviz.algorithms.base import with_tensors
from rlviz.page.picture import Axis, Bars, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.clip import has_a_ratio
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pieces.aggregation import Constant, sequence_mean, sequence_sum, token_mean

RESPONSES = 4
LONGEST = 16  # tokens of a response
ROWS = ("sequence sum", "constant", "token mean", "sequence mean", "its own")  # from below
CONSTANT, OTHER = 2, len(ROWS)
ACROSS = (0.33, 0.11, -0.11, -0.33)  # of a row, its four responses
ALIKE = 1e-9


def aggregation_curve(algorithm: PolicyGradient) -> Curve:
    """Return the curve: what a token weighs in responses of different lengths, and what cutting the batch in two makes of it.

    A token's weight under each of the four aggregations, and under the algorithm's if it is none of them. Under the algorithm's,
    what all tokens of a response weigh together: in the whole batch, and in the mean of the means of two parts, as when gradients
    of micro-batches are averaged. They agree only when every part stands for as much of the batch: as many responses where
    these are averaged, as many tokens where those are.
    """
    aggregate = algorithm.aggregate
    rules = {1: sequence_sum, 3: token_mean, 4: sequence_mean}
    row_of_algorithm = next((row for row, rule in rules.items() if rule == aggregate), OTHER)
    length = aggregate.max_length if isinstance(aggregate, Constant) else -1

    def curve(lengths: Tensor, max_length: Tensor, cut: Tensor) -> dict[str, Tensor]:
        constant = with_tensors(DR_GRPO, {"max_length": max_length}).aggregate
        mask = (torch.arange(LONGEST) < lengths.reshape(RESPONSES, 1)).unsqueeze(0)
        rows = (sequence_sum, constant, token_mean, sequence_mean, aggregate)
        weights = torch.stack([rule(mask)[0, :, 0].double() for rule in rows])
        chosen_at = torch.where(max_length == length, CONSTANT, torch.full_like(max_length, row_of_algorithm))
        row = torch.arange(1.0, OTHER + 1, dtype=torch.double).unsqueeze(1)
        is_chosen = (row == chosen_at).expand(weights.shape)

        def in_parts(first: int) -> Tensor:
            """Return the weights in the mean over two parts, each aggregated alone; the first part has `first` responses."""
            return torch.cat([aggregate(part) / 2 for part in (mask[:, :first], mask[:, first:])], 1).double()

        part_weights = in_parts(1)
        for first in range(2, RESPONSES):
            part_weights = torch.where(cut == first, in_parts(first), part_weights)
        batch_bars, parts_bars = ((rule * mask).sum(-1)[0] for rule in (aggregate(mask).double(), part_weights))
        bars, times = torch.cat([batch_bars, parts_bars]), parts_bars / batch_bars
        top = 1.05 * 2 ** (bars.amax().clamp(min=1.0).log2() - 1e-9).ceil()  # a sum of 1 may be 1 + 2e-16
        return {
            "row": with_gaps(row + torch.tensor(ACROSS, dtype=torch.double)),
            "weight_chosen": with_gaps(weights.masked_fill(~is_chosen, torch.nan)),
            "weight_others": with_gaps(weights.masked_fill(is_chosen | (row == OTHER), torch.nan)),
            "rows_end": torch.where(chosen_at == OTHER, OTHER + 0.6, torch.full_like(chosen_at, OTHER - 0.4)),
            "constant_at": weights[CONSTANT - 1, 0],
            "chosen_at": chosen_at,
            "name_at": 1.4 * weights[-1].amax(),
            "whole": batch_bars,
            "parts": parts_bars,
            "bottom": torch.where(bars.amin() >= 0, 0.0, -top),
            "top": top,
            "knife": cut + 0.5,
            "alike": (times.amax() - times.amin() <= ALIKE * times.amax()).double(),
            "least_times": times.amin(),
            "most_times": times.amax(),
        }

    return curve


def with_gaps(rows: Tensor) -> Tensor:
    """Return rows one after the other, with a NaN behind each, at which a line is broken."""
    return torch.nn.functional.pad(rows, (0, 1), value=torch.nan).flatten()


AGGREGATION = Picture(
    title="What does a token weigh, and does it stay so in micro-batches?",
    look="Drag the cut: where the batch is split into two parts, whose means are averaged.",
    notice="The mean over a sequence gives a token of a long response less weight; the mean over all tokens gives each the "
    "same. Weights computed on the whole batch and then cut stay right.",
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
                    for y, colour, width in (("weight_others", "blue", 1.5), ("weight_chosen", "vermilion", 3))
                    for mark in (
                        Line(y, "row", width=width, colour=colour),
                        Points(y, "row", size=12, fill="none", colour=colour),
                        Text("digits", y, "row", colour=colour),
                    )
                ),
                Text("{name}", "name_at", "chosen_at", "right", colour="vermilion"),
            ),
        ),
        Panel(
            "All tokens of a response",
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
        Say(
            "Averaging the means of two parts, {name} gives every token {least_times:.0%} of its weight in the whole batch.",
            "alike",
        ),
        Say(
            "Averaging the means of two parts, {name} gives tokens between {least_times:.3g} and {most_times:.3g} times their "
            "weight in the whole batch."
        ),
    ),
    data={
        "rows": ROWS,
        "digits": ["1", "2", "3", "4", ""] * OTHER,
        "whole_at": [response - 0.17 for response in range(1, RESPONSES + 1)],
        "parts_at": [response + 0.17 for response in range(1, RESPONSES + 1)],
    },
)

explore_aggregation = explorer(
    "aggregation",
    AGGREGATION,
    aggregation_curve,
    algorithms=Algorithms(has_a_ratio, DAPO),
    named={
        "DAPO, cut in halves": {},
        "equal lengths": {"lengths": (8, 8, 8, 8)},
        "GRPO, cut after the first": {"algorithm": GRPO, "cut": 1},
        "DCPO": {"algorithm": DCPO},
    },
)
