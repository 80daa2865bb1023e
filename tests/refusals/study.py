"""What comparisons, maps and verdicts refuse, before anything is written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlviz import DAPO, DCPO, DPO, GRPO, PPO, Contender, compare
from rlviz.algorithms import DISTILLATION, GRPO_PROCESS
from rlviz.study import MapSettings, PolicyRegime, Regime, borrow, read_comparison, regime_map
from rlviz.study.claim import quoted
from rlviz.study.claims import find_claim
from rlviz.study.verdict import Part
from tests.refusals.row import Given, of
from tests.refusals.things import SHORT, done

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
FREE = replace(GRPO, kl=None)
BOTH = [Contender("GRPO", FREE, SHORT), Contender("DAPO", DAPO, SHORT)]
QUICK = MapSettings(replicas=3, steps=2)
STUDENT = Contender("Student", DISTILLATION, SHORT)


def comparing(**given: Any) -> Any:
    return compare(**{"contenders": BOTH, "task": "chain", "seeds": 1, "out": "out", **given})


def mapping(**given: Any) -> Any:
    given = {"x_values": [1, 2], "y_values": [1, 2], "settings": QUICK, **given}
    return regime_map(borrow(DCPO, FREE, ["bounds"]), FREE, **given)


def of_policy(**given: Any) -> Any:
    small = PolicyRegime(updates_per_rollout=2, group_size=2, groups=4, lr=1e-3)
    return mapping(**{"regime": small, "settings": MapSettings.for_policy(steps=3), **given})


def between(one: Any, other: Any) -> Any:
    return regime_map(one, other, settings=QUICK)


def experiments() -> None:
    Path("experiments").mkdir()
    shutil.copy(NOTEBOOKS / "experiments" / "verdicts.md", "experiments")


def of_run(**given: Any) -> Any:
    return read_comparison([done()], **given)


TABLE_ONLY: tuple[tuple[Given, str], ...] = (
    ({"x": "temperature"}, "x 'temperature' is not known; …known: updates_per_rollout, group_size…"),
    ({"x": "groups", "x_values": None}, "x and y must be two settings; both are groups"),
    ({"x_values": [2, 2]}, "x_values must grow from one to the next; got 2, 2"),
    ({"x_values": []}, "x_values must grow from one to the next; got "),
    ({"x_values": [1, float("inf")]}, "x_values must be numbers, and finite; got inf"),
    ({"x_values": [1.5]}, "updates_per_rollout must be a whole number; got 1.5"),
    ({"y_values": [0, 1]}, "groups must be at least 1; got 0"),
    ({"x_values": None, "cells": (0, 2)}, "cells must be at least 1; got 0"),
    ({"x": "spread", "x_values": [0, 1]}, "spread must be 0 where there is one prompt; got 1 (see prompts)"),
    ({"out": "map.csv"}, "out must end in .jsonl; got map.csv"),
    ({"x": "lr", "settings": replace(QUICK, rates="tuned")}, "rates cannot be tuned where lr is an axis"),
    ({"jobs": 0}, "jobs must be at least 1; got 0"),
    ({"measure": "speed"}, "measure must be one of accuracy, …; got 'speed'"),
)
ROWS = [
    *of(
        comparing,
        ({"contenders": []}, "contenders must be one or more; got none"),
        (
            {"contenders": [*BOTH, Contender("grpo", FREE)]},
            "contenders must have names of their own, in letters or digits; got 'GRPO'",
        ),
        ({"seeds": 0}, "seeds must be from 1 to 10,000; got 0"),
        ({"seeds": [1, 1]}, "seeds must be at least 1, or different numbers; got [1, 1]"),
        ({"budget": "tokens"}, "budget must be one of responses, updates, seconds; got 'tokens'"),
        ({"amount": 0}, "amount must be above 0 and finite; got 0"),
        ({"amount": float("inf")}, "amount must be above 0 and finite; got inf"),
        ({"jobs": 0}, "jobs must be at least 1; got 0"),
        ({"task": "chian"}, "task 'chian' is not known; did you mean chain…"),
        (
            {"policy": "no-such-owner/no-such-model"},
            "policy: 'no-such-owner/no-such-model' is no folder here, no shipped policy …",
        ),
        (
            {"contenders": [Contender("GRPO", GRPO, replace(SHORT, group_size=1))]},
            "group_size must be at least 2…; got 1",
        ),
        (
            {"contenders": [Contender("DPO", DPO)]},
            "budget: DPO learns from pairs, and its steps sample no responses; choose updates or seconds",
        ),
        ({"contenders": [STUDENT]}, "…Distillation learns from a teacher…"),
        ({"on": "dask"}, "on must be local, ray, or ray:ADDRESS of a cluster; got 'dask'"),
    ),
    *of(
        of_run,
        ({"budget": "tokens"}, "budget must be one of responses, updates, seconds; got 'tokens'"),
    ),
    *of(
        lambda: read_comparison([done(), done()]),
        ({}, "… and … are the same run twice: GRPO with seed 0"),
    ),
    *of(
        lambda: read_comparison([done(), "none"]),
        ({}, "run folder none holds no run (it has no config.json)"),
        error=FileNotFoundError,
    ),
    *of(mapping, *TABLE_ONLY),
    *of(
        of_policy,
        (
            {"x": "success"},
            "x cannot be success, which only the table has; with a policy it is updates_per_rollout, …",
        ),
        ({"x": "grups"}, "x 'grups' is not known; did you mean group…"),
        ({"regime": PolicyRegime(task="trap")}, "task 'trap' is not known; did you mean trip…"),
        ({"x_values": [0]}, "updates_per_rollout must be at least 1; got 0"),
        ({"x": "noise", "x_values": [0.5, 2]}, "noise must be at least 0 and at most 1; got 2"),
    ),
    *of(
        between,
        ((PPO, FREE), "algorithm must learn from groups of responses, as GRPO does; got PPO"),
        ((GRPO_PROCESS, FREE), "algorithm…"),
        ((DPO, GRPO), "algorithm must learn from groups of responses, as GRPO does; got DPO"),
        ((GRPO, DPO), "against must learn from groups of responses, as GRPO does; got DPO"),
    ),
    *of(borrow, ((DCPO, GRPO, ["bound"]), "slot 'bound' is not known; did you mean bounds…")),
    *of(Regime, ({"spread": 1.0}, "spread must be 0 where there is one prompt; got 1 (see prompts)")),
    *of(find_claim, (("length_bais",), "… 'length_bais' is not known; did you mean length_bias…")),
    *of(quoted, (("starvd",), "… 'starvd' is not known; did you mean starved…"), folder=experiments),
    *of(
        Part,
        (("tokens", (1.0,), 0.5), "values must be of two or more seeds, to have a spread; got 1"),
        (("tokens", (1.0, 2.0), 0), "smallest must be above 0; got 0"),
    ),
]
