"""Which column of rlviz's records a metric of TRL, ms-swift, verl, OpenRLHF, SkyRL, NeMo-RL or slime is, by log_names.md.

A log is read by the names that it shares with one of these, no matter which program wrote it (`writer_of`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rlviz.runs.measures import NAN
from rlviz.runs.rules import Program
from rlviz.types import PART

Names = Mapping[str, str]
FILE = Path(__file__).with_suffix(".md")
TAG = "tag-"  # before the name of a metric in the name of TensorBoard's file, in which _ stands for each /
LONGEST_NAME = 200  # characters of a metric's name
SEPARATOR = re.compile(r" */ *")  # a table that was copied from a notebook has spaces around it
PART_MEAN = re.compile(r"rewards/([^/]+)(/mean)?")  # older TRL wrote the mean of a part without saying so
VALIDATION = re.compile(r"val-(core|aux)/.+/acc/mean@\d+|validation/accuracy")
ACCURACY = re.compile(r"(eval_)?rewards/\w*(accuracy|correct)\w*(/mean)?")
UPDATE = {"loss", "grad_norm"}  # columns that are no measurements: with NaN there the policy is lost
CRITIC_NORM = "critic/grad_norm"  # verl's, beside the losses
SWIFT = {"global_step/max_steps", "train_speed(iter/s)", "train_speed(s/it)", "memory(GiB)", "entropy/mean"}


@dataclass(frozen=True)
class Writer:
    """A program that writes logs. title: whose names they are; names: its metric → column; program: whose options advice has."""

    title: str
    names: Names
    program: Program


def parse_names(text: str) -> tuple[dict[str, Writer], Names]:
    """Return the programs that write logs, and what no record of rlviz has, metric → column, from the tables of a text."""
    by_program, beside = (
        [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:2] == "| "]
        for table in text.split("\n## ")
    )
    (_, *keys), _, (_, *titles), (_, *programs), *rows = by_program
    writers = {}
    for place, key in enumerate(keys):
        names = {name: column for column, *cells in rows for name in cells[place].split()}
        writers[key] = Writer(titles[place], names, cast(Program, programs[place]))
    return writers, {name: column for column, cell in beside[2:] for name in cell.split()}


WRITERS, MORE = parse_names(FILE.read_text(encoding="utf-8"))
ALL_NAMES: Names = {**{n: column for writer in WRITERS.values() for n, column in writer.names.items()}, **MORE}
# a printed dictionary that has one of them is a step of training; a configuration has others
STEP_NAMES = {name for name, column in ALL_NAMES.items() if column in ("reward", "loss", "margin")}
FLAT = {name.replace("/", "_"): name for name in ALL_NAMES}
TABLE_NAMES = {"Training Loss": "loss", "Validation Loss": "eval_loss"}  # in the table that Trainer draws in a notebook


def writer_of(logged: Set[str]) -> str:
    """Return whose names these are, a key of WRITERS: the program that shares most of them, of as many the first."""
    if logged & SWIFT and logged & set(WRITERS["trl"].names):
        return "ms-swift"
    return max(WRITERS, key=lambda key: len(logged & set(WRITERS[key].names)) - (key == "ms-swift"))


def program_of(source: str) -> Program:
    """Return whose options advice on a log has; those in plain words for a source that a folder of another version names."""
    return WRITERS[source].program if source in WRITERS else "plain"


def metric_name(name: str) -> str:
    """Return the trainer's name of a metric, before which W&B and TensorBoard put train/."""
    if name.startswith(TAG):
        flat = name.removeprefix(TAG).removeprefix("train_")
        return FLAT.get(flat, re.sub(r"^rewards_(\w+)_mean$", r"rewards/\1/mean", flat))
    name = SEPARATOR.sub("/", TABLE_NAMES.get(name, name))
    return re.sub(r"^eval/", "eval_", name.removeprefix("train/"))


def is_accuracy(name: str) -> bool:
    """Return whether a metric is a share of right responses."""
    return bool(ACCURACY.fullmatch(name) or VALIDATION.fullmatch(name))


def extra_column(name: str) -> str | None:
    """Return the column of what `diagnose` looks at beside a record's: one of MORE, or the mean of a part of the reward."""
    part = None if name in WRITERS["trl-dpo"].names or is_accuracy(name) else PART_MEAN.fullmatch(name)
    return MORE.get(name) or (f"{PART}{part[1]}" if part else None)


def nan_column(name: str) -> str | None:
    """Return the column of a metric that was logged as no finite number; None for what the policy's update is made of."""
    column = ALL_NAMES.get(name)
    kind = "critic" if column == "value_loss" or name == CRITIC_NORM else "measured"
    return None if column in UPDATE else f"{NAN[kind]}{name}"
