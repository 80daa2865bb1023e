"""Two batches fill with groups, one of them with dynamic sampling, and what a useful response costs."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import DAPO
from rlviz.page.picture import Axis, Bars, Draws, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.groups import LARGEST_GROUP, share_all_equal
from rlviz.pictures.spec import explorer

MOST_PROMPTS = 12
STREAM = DAPO.can.max_rounds * MOST_PROMPTS  # groups that can be sampled
WIDE, STREAM_WIDE = 6, 24  # squares in a row of a batch, and of all groups


def batches_curve() -> Curve:
    """Return the curve: which of the first `sampled` groups are in GRPO's batch and in one with dynamic sampling, and the price.

    A group is useful if its responses are right and wrong; GRPO takes the first P groups, DAPO the first P useful ones, and
    stops after max_rounds · P. The groups are always the same ones: sliders move the picture, not the luck.
    """

    def curve(
        success_rate: Tensor, group_size: Tensor, prompts: Tensor, sampled: Tensor, responses: Tensor, coins: Tensor
    ) -> dict[str, Tensor]:
        outcomes = (coins[:, : responses.shape[0]] < success_rate).double()  # [stream, G]
        useful, number = DAPO.uses(outcomes), torch.arange(STREAM, dtype=torch.double)
        drawn = (number < torch.minimum(sampled, DAPO.can.max_rounds * prompts)).double()
        is_place = (torch.arange(MOST_PROMPTS, dtype=torch.double) < prompts).double()

        # GRPO's batch: the first groups, whatever they are.
        first = slice(None, MOST_PROMPTS)
        grpo_alive = drawn[first] * is_place * useful[first]
        grpo_dead = drawn[first] * is_place * (1 - useful[first])
        # The other one: its place k holds the k-th useful group, once that is drawn.
        order = (useful == 0).double().sort(stable=True).indices[first]
        filled = useful[order] * drawn[order] * is_place
        is_full = (filled.sum() == prompts).double()
        last = (number[order] * is_place).amax() + 1  # the group that fills it
        spent = torch.where(is_full > 0, last, drawn.sum())
        grpo_spent = torch.minimum(drawn.sum(), prompts)
        useful_groups = torch.stack([grpo_alive.sum(), filled.sum()])
        return {
            "grpo_alive": grpo_alive,
            "grpo_dead": grpo_dead,
            "filled": filled,
            "is_place": is_place,
            "stream_alive": useful * (number < spent),
            "stream_dead": (1 - useful) * (number < spent),
            "expected": 1 / (1 - share_all_equal(success_rate, group_size)),
            "prices": torch.where(useful_groups > 0, torch.stack([grpo_spent, spent]) / useful_groups, torch.nan),
            "alive": useful_groups[0],
            "used": useful_groups[1],
            "is_full": is_full,
            "grpo_responses": grpo_spent * group_size,
            "responses_sampled": spent * group_size,
            "grpo_useful": useful_groups[0] * group_size,
            "useful_responses": useful_groups[1] * group_size,
        }

    return curve


def _batch(title: str, alive: str, dead: str = "") -> Panel:
    grey = (Points("x", "y", "s", 19, colour="grey", where=dead, label="dead"),) if dead else ()
    return Panel(
        title,
        Axis("", 0.4, WIDE + 0.6, ticks=None),
        Axis("", 0.4, MOST_PROMPTS / WIDE + 0.6, ticks=None),
        (
            Points("x", "y", "s", 19, colour="grey", fill="none", where="is_place"),
            *grey,
            Points("x", "y", "s", 19, where=alive, label="right and wrong"),
        ),
        tall=0.6,
    )


BATCHES = Picture(
    title="What does a batch without dead groups cost?",
    look="Press ▶ beside the groups sampled: two batches fill. Then drag the success rate.",
    notice="GRPO's batch has grey holes; dynamic sampling fills each place. Per useful response both pay the same on average: "
    "1 over the share of groups with right and wrong responses.",
    alt="Two batches as squares, grey for dead groups and blue for those with right and wrong responses; all groups sampled, in "
    "order; and how many responses are sampled per useful one.",
    panels=(
        _batch("GRPO: the first groups", "grpo_alive", "grpo_dead"),
        _batch("Dynamic sampling: useful groups alone", "filled"),
        Panel(
            "All groups that dynamic sampling drew",
            Axis("", 0.4, STREAM_WIDE + 0.6, ticks=None),
            Axis("", 0.4, STREAM / STREAM_WIDE + 0.6, ticks=None),
            (
                Points("stream_x", "stream_y", "s", 11, colour="grey", where="stream_dead", label="thrown away"),
                Points("stream_x", "stream_y", "s", 11, where="stream_alive", label="used"),
            ),
            tall=0.75,
        ),
        Panel(
            "What does a useful response cost?",
            Axis("", 0.4, 2.6, names="names"),
            Axis("responses per useful one", 0.8, 20, log=1, ticks=(1, 2, 5, 10, 20)),
            (
                Bars("place", "prices", 0.6, base=0.8),
                Rule(
                    "expected", axis="y", colour="ink", label="expected: {expected:.2f}", direct=True, drag="group_size"
                ),
                Text("{grpo_responses:d} / {grpo_useful:d}", 1.0, 0.95, colour="ink"),
                Text("{responses_sampled:d} / {useful_responses:d}", 2.0, 0.95, colour="ink"),
            ),
            tall=0.75,
        ),
    ),
    controls={
        "success_rate": Slider(0.02, 0.98, 0.01, 0.9, "success rate p"),
        "group_size": Slider(2, LARGEST_GROUP, 1, 4, "group size G"),
        "prompts": Slider(2, MOST_PROMPTS, 1, MOST_PROMPTS, "prompts P"),
        "sampled": Slider(1, STREAM, 1, STREAM, "groups sampled, at most", plays=True),
    },
    data={
        "responses": Draws("uniform", ("group_size",), 0),  # a size is the length of an input
        "coins": Draws("uniform", (STREAM, LARGEST_GROUP), 89),
        "x": [float(i % WIDE + 1) for i in range(MOST_PROMPTS)],
        "y": [float(MOST_PROMPTS // WIDE - i // WIDE) for i in range(MOST_PROMPTS)],
        "stream_x": [float(i % STREAM_WIDE + 1) for i in range(STREAM)],
        "stream_y": [float(STREAM // STREAM_WIDE - i // STREAM_WIDE) for i in range(STREAM)],
        "names": ["GRPO", "dynamic sampling"],
        "place": [1.0, 2.0],
    },
    conclusion=(
        Say(
            "Useful in GRPO's batch: {alive:d} of {prompts:d} groups. Dynamic sampling fills all {prompts:d} places: it "
            "samples {responses_sampled:d} responses for {useful_responses:d} useful ones.",
            "is_full",
        ),
        Say("Dynamic sampling has filled {used:d} of {prompts:d} places so far, with {responses_sampled:d} responses."),
    ),
)

explore_batches = explorer(
    "batches",
    BATCHES,
    batches_curve,
    free=True,
    example={"group_size": 5},
    named={
        "p = 0.9, groups of 4": {},
        "p = 0.5": {"success_rate": 0.5},
        "p = 0.98: never full": {"success_rate": 0.98},
        "groups of 16": {"group_size": 16},
    },
)
