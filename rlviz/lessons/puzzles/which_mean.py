"""Which mean?: Dr.GRPO with the length mean kept, and the weights of one rule."""

from matplotlib.figure import Figure
from torch import Tensor

from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.pictures.base import dress, new_figure
from rlviz.pictures.weights import token_weights
from rlviz.pieces.aggregation import sequence_sum


def constant_weights(mask: Tensor) -> Tensor:
    responses = mask.any(-1).sum()
    return mask.double() / (16 * responses)


BUG = Bug(
    constant_weights,
    "16 → mask.sum(-1, keepdim=True).clamp(min=1)",
    choices=(
        "every token weighs the same, whatever the length",
        "each response weighs the same: the length bias is still there",
        "long responses count four times as much as short ones",
        "padding gets a weight",
    ),
    does="each response weighs the same: the length bias is still there",
    why="it divides by the response's own length, which is GRPO's mean; Dr.GRPO divides by a fixed maximum. Leaving out the "
    "std is only the other half (a pull request to TRL, 3138, asks for this one).",
)

LENGTHS = [2, 4, 8]


def _draw() -> Figure:
    figure = new_figure(11, 4.2)
    one, whole = figure.subplots(1, 2)
    rows = token_weights(sequence_sum, LENGTHS)
    places = range(len(LENGTHS))
    for ax, values, words in (
        (one, [row[0] for row in rows], "one token"),
        (whole, [row.sum() for row in rows], "a response"),
    ):
        bars = ax.bar(places, [float(value) for value in values], color="#0072B2")
        ax.bar_label(bars, fmt="%.3g")
        dress(ax, title=f"What does {words} weigh?", x="tokens of the response", y="weight")
        ax.set_xticks(list(places), [str(length) for length in LENGTHS])
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="DCPO's sequence sum",
    why={
        "GRPO's sequence mean": "the shape is the same, but there three responses weigh 1 together: a third each.",
        "DAPO's token mean": "then a token would weigh 1/14 in every response.",
        "Dr.GRPO's constant, 16": "then a token would weigh the same in every response, 1/48.",
        "DCPO's sequence sum": "each response weighs 1, so a token weighs 1 / length: a mean within the response, then a sum.",
        "a plain sum over tokens": "then a token would weigh 1 and a response its length.",
    },
)
