"""The maps that come with rlviz: what each is called, the command that made it, and the sentence that it teaches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """A map beside this file. title: its question. command: what made it. sentence: what it teaches, in a line.

    corners: (column, row) from 1 → the sign that the sentence rests on there, 0: none that is certain.
    """

    name: str
    title: str
    command: str
    sentence: str
    corners: tuple[tuple[int, int, int], ...]

    @property
    def file(self) -> Path:
        return HERE / f"{self.name}.jsonl"


_TO_32 = "1,2,4,8,16,32"
_DIFFICULTY = (
    "--x spread --y success --x-values 0,.5,1,1.5,2,3 --y-values .05,.1,.2,.4,.6,.8 --prompts 8 --updates-per-rollout 1 "
    "--steps 40"
)
_EVERY = (
    Shipped(
        "dcpo-limits",
        "DCPO's limits: when do they keep entropy?",
        "rlviz map --algorithm dcpo --only bounds --measure entropy --level .9 "
        f"--x-values {_TO_32} --y-values {_TO_32}",
        "DCPO's limits keep entropy where groups are few and updates many; with many groups it is the other way round, and "
        "with one update a rollout no limit matters.",
        ((5, 1, 1), (6, 3, 1), (5, 5, -1), (6, 6, -1), (1, 1, 0), (1, 6, 0)),
    ),
    Shipped(
        "dupo-repeats",
        "Repeating groups that teach: when is it faster?",
        "rlviz map --algorithm dupo --only select --measure rollouts --level .9 --x success --y group_size "
        "--x-values .02,.05,.1,.3,.6,.85 --y-values 2,4,8,16,32,64 --groups 8 --updates-per-rollout 1 --lr 2 --steps 80",
        "Repeating the groups that teach saves rollouts where groups are small and success is rare, for most groups are dead "
        "there; with 32 responses and success from .3 on there is nothing to repeat.",
        ((1, 1, -1), (1, 3, -1), (3, 1, -1), (4, 5, 0), (5, 5, 0), (6, 6, 0)),
    ),
    Shipped(
        "gspo-ratio",
        "A ratio for the whole response: when does it help?",
        "rlviz map --algorithm gspo --only ratio --x positions --y updates_per_rollout "
        f"--x-values 1,2,3,4,6,8 --y-values {_TO_32} --groups 2 --steps 40",
        "GSPO's ratio, under GRPO's limits, is worth accuracy where responses are long and each rollout is used often; for "
        "responses of one token, and with one update, it is GRPO's.",
        ((6, 6, 1), (6, 5, 1), (4, 4, 1), (1, 6, 0), (1, 1, 0), (6, 1, 0)),
    ),
    Shipped(
        "clip-higher-noise",
        "Clip-higher: does it keep entropy when rewards are noisy?",
        "rlviz map --algorithm dapo --only bounds --measure entropy --level .7 --x updates_per_rollout --y noise "
        f"--x-values {_TO_32} --y-values 0,.2,.4,.6,.8,.9 --groups 4 --responses 1920",
        "At equal accuracy an upper limit of 0.28 keeps no more entropy than 0.2 in any cell, with exact rewards or noisy "
        "ones; where a difference is certain, it is less, and below .05 nats.",
        ((1, 1, 0), (1, 6, 0), (4, 1, -1), (6, 3, -1), (6, 6, 0)),
    ),
    Shipped(
        "std-division",
        "No division by the standard deviation, at one learning rate",
        f"rlviz map --algorithm dr-grpo --only advantage {_DIFFICULTY} --lr 4",
        "At one learning rate Dr.GRPO, which does not divide by the group's standard deviation, learns less in every cell, most "
        "where success is rare: its steps are shorter there (see the tuned map).",
        ((1, 1, -1), (1, 6, -1), (6, 1, -1), (6, 6, -1)),
    ),
    Shipped(
        "std-division-tuned",
        "No division by the standard deviation, each with its own learning rate",
        f"rlviz map --algorithm dr-grpo --only advantage {_DIFFICULTY} --lr 256 --rates tuned",
        "With learning rates tuned for each, nothing above .001 is left of what dividing by the standard deviation brings on a "
        "table: it was the length of the steps. In every cell the largest rate tried was best for both, so the best is not "
        "known.",
        ((1, 1, -1), (6, 6, -1)),
    ),
)
SHIPPED = {each.name: each for each in _EVERY}
