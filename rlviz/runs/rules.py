"""The rules of `diagnose`, read from rules.md: what each looks at, from which value on and why, what it says, what to try.

A rule holds where all its conditions hold at once, on numbers that are smoothed over a window of steps (`measures.py`). It is
said where it holds at the end of the run, with the step since which it has held. The most important rules come first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rlviz.runs.measures import MEASURES, Condition

Grade = Literal["warning", "note"]
Program = Literal["rlviz", "trl", "verl", "plain"]  # plain: in words, for logs of other programs

FILE = Path(__file__).with_name("rules.md")
PERSISTS = 3  # steps for which a rule must hold: the median of a window moves at every step
RELATIONS = ("silences", "explains", "includes")  # what a rule says of others
ALL = ("warnings",)  # in place of the rules that one explains
FEWEST = 20  # steps: four of the shortest windows (`measures.APART`)
CONDITION = re.compile(r"`(\w+)` ([\w ]+) ([≥≤]) ([\d.e+-]+): (.+)")  # column, measure, sign, limit, reason


@dataclass(frozen=True)
class Rule:
    """What is unusual, and what a person who has seen it before would say.

    where: all of these must hold at the end of the run; the first one's measure is the number. seen: what was seen, with {0},
    {1}, … for the conditions' measures, {step} for the step since which, {since} for that in words. usually: what it usually
    means. setting: what to try, and advice: how; options in it stand in braces, by their name in `OPTIONS`. lesson: its notebook.
    symptom: the heading of notebooks/symptoms.md that says more. fewest: steps a run must have; from FEWEST on its beginning and
    end must be apart. persists: steps for which it must have held. silences: rules that say less than this one does.
    explains: rules whose findings follow from this one, where they begin no earlier; ALL for all of them.
    includes: those of which this one says the same and more, whenever they begin.
    """

    name: str
    grade: Grade
    where: tuple[Condition, ...]
    seen: str
    usually: str
    setting: str
    advice: str
    lesson: str
    symptom: str = ""
    fewest: int = FEWEST
    persists: int = field(default=PERSISTS, kw_only=True)
    silences: tuple[str, ...] = field(default=(), kw_only=True)
    explains: tuple[str, ...] = field(default=(), kw_only=True)
    includes: tuple[str, ...] = field(default=(), kw_only=True)


def parse_rules(text: str) -> tuple[tuple[Rule, ...], Mapping[str, Mapping[Program, str]]]:
    """Return the rules that stand in a text, a heading each, and the options of its table: name → program → its word for it."""
    rules = []
    for section in re.split(r"^### ", text, flags=re.M)[1:]:
        head, seen, points = re.split(r"\n\n", section.strip(), maxsplit=2)
        name, _, grade = head.partition(": ")
        if grade not in ("warning", "note"):
            raise ValueError(f"{FILE.name}: {name} must be a warning or a note; got {grade!r}")
        lines = [line.removeprefix("- ") for line in points.partition("\n\n")[0].splitlines()]
        conditions = []
        for line in (line for line in lines if line.startswith("`")):
            match = CONDITION.fullmatch(line)
            if match is None or match[2] not in MEASURES:
                raise ValueError(
                    f"{FILE.name}: {name} must have conditions like `entropy` now ≥ 0.1: why; got {line!r}"
                )
            conditions.append(Condition(match[1], match[2], match[3], float(match[4]), match[5]))
        texts = dict(line.split(": ", 1) for line in lines if not line.startswith("`"))
        (setting,) = (words.removeprefix("Try ").strip("{}") for words in texts if words.startswith("Try "))
        lesson, _, symptom = texts["Read"].partition("; ")
        needs = [int(number) for number in re.findall(r"\d+", texts.get("Needs", ""))] or [FEWEST, PERSISTS]
        rule = Rule(
            name,
            "warning" if grade == "warning" else "note",
            tuple(conditions),
            seen,
            texts["Meaning"],
            setting,
            texts[f"Try {{{setting}}}"],
            lesson,
            symptom,
            needs[0],
            persists=needs[1],
            **{key: tuple(texts[key.capitalize()].split(", ")) for key in RELATIONS if key.capitalize() in texts},
        )
        rules.append(rule)
    rows = re.findall(r"^\| (\w+) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", text, flags=re.M)[1:]
    programs: tuple[Program, ...] = ("rlviz", "trl", "verl", "plain")
    return tuple(rules), {name: dict(zip(programs, words, strict=True)) for name, *words in rows}


RULES, OPTIONS = parse_rules(FILE.read_text(encoding="utf-8"))
