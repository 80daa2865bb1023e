"""What comparisons, maps and verdicts refuse, before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rlviz import DAPO, DCPO, DPO, GRPO, PPO, Contender, compare
from rlviz.algorithms import DISTILLATION, GRPO_PROCESS
from rlviz.study import MapSettings, PolicyRegime, Regime, borrow, read_comparison, regime_map
from rlviz.study.claim import Trials, quoted
from rlviz.study.claims import find_claim
from rlviz.study.verdict import Part
from tests.refusals.row import table
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


def testing(seeds: Any) -> Any:
    return Trials([find_claim("starved")], seeds, Path("out"))


def of_policy(**given: Any) -> Any:
    small = PolicyRegime(updates_per_rollout=2, group_size=2, groups=4, lr=1e-3)
    return mapping(**{"regime": small, "settings": MapSettings.for_policy(steps=3), **given})


def between(one: Any, other: Any) -> Any:
    return regime_map(one, other, settings=QUICK)


def of_run(**given: Any) -> Any:
    return read_comparison([done()], **given)


ROWS = table(
    globals(),
    r"""
comparing(contenders=[]) → contenders must be one or more; got none
comparing(contenders=[*BOTH, Contender('grpo', FREE)])
    → contenders must have names of their own, in letters or digits; got 'GRPO'
comparing(seeds=0) → seeds must be from 1 to 10,000; got 0
comparing(seeds=[1, 1]) → seeds must be at least 1, or different numbers; got [1, 1]
comparing(budget='tokens') → budget must be one of responses, updates, seconds; got 'tokens'
comparing(amount=0) → amount must be above 0 and finite; got 0
comparing(amount=float('inf')) → amount must be above 0 and finite; got inf
comparing(seeds=10_001) → seeds must be from 1 to 10,000; got 10001
testing(range(10**9)) → seeds must be from 1 to 10,000; got 1000000000
comparing(jobs=0) → jobs must be from 1 to 1,024; got 0
comparing(jobs=1025) → jobs must be from 1 to 1,024; got 1025
comparing(task='chian') → task 'chian' is not known; did you mean chain…
comparing(policy='no-such-owner/no-such-model')
    → policy: 'no-such-owner/no-such-model' is no folder here, no shipped policy …
comparing(contenders=[Contender('GRPO', GRPO, replace(SHORT, group_size=1))])
    → group_size must be at least 2…; got 1
comparing(contenders=[Contender('DPO', DPO)])
    → budget: DPO learns from pairs, and its steps sample no responses; choose updates or seconds
comparing(contenders=[STUDENT]) → …Distillation learns from a teacher…
comparing(on='dask') → on must be local, ray, or ray:ADDRESS of a cluster; got 'dask'
of_run(budget='tokens') → budget must be one of responses, updates, seconds; got 'tokens'
read_comparison([done(), done()]) → … and … are the same run twice: GRPO with seed 0
read_comparison([done(), 'none']) → FileNotFoundError: run folder none holds no run (it has no config.json)
of_policy(x='success')
    → x cannot be success, which only the table has; with a policy it is updates_per_rollout, …
of_policy(x='grups') → x 'grups' is not known; did you mean group…
of_policy(regime=PolicyRegime(task='trap')) → task 'trap' is not known; did you mean trip…
of_policy(x_values=[0]) → updates_per_rollout must be at least 1 and …; got 0
of_policy(x='noise', x_values=[0.5, 2]) → noise must be at least 0 and at most 1; got 2
between(PPO, FREE) → algorithm must learn from groups of responses, as GRPO does; got PPO
between(GRPO_PROCESS, FREE) → algorithm…
between(DPO, GRPO) → algorithm must learn from groups of responses, as GRPO does; got DPO
between(GRPO, DPO) → against must learn from groups of responses, as GRPO does; got DPO
borrow(DCPO, GRPO, ['bound']) → slot 'bound' is not known; did you mean bounds…
Regime(spread=1.0) → spread must be 0 where there is one prompt; got 1 (see prompts)
find_claim('length_bais') → … 'length_bais' is not known; did you mean length_bias…
Part('tokens', (1.0,), 0.5) → values must be of two or more seeds, to have a spread; got 1
Part('tokens', (1.0, 2.0), 0) → smallest must be above 0; got 0
mapping(x='temperature') → x 'temperature' is not known; …known: updates_per_rollout, group_size…
mapping(x='groups', x_values=None) → x and y must be two settings; both are groups
mapping(x_values=[2, 2]) → x_values must grow from one to the next; got 2, 2
mapping(x_values=[]) → x_values must grow from one to the next; got …
mapping(x_values=[1, float('inf')]) → x_values must be numbers, and finite; got inf
mapping(x_values=[1.5]) → updates_per_rollout must be a whole number; got 1.5
mapping(y_values=[0, 1]) → groups must be at least 1 and at most 1024; got 0
mapping(x_values=None, cells=(0, 2)) → cells must be from 1 to 100; got 0
mapping(y_values=None, cells=(2, 101)) → cells must be from 1 to 100; got 101
mapping(x='spread', x_values=[0, 1]) → spread must be 0 where there is one prompt; got 1 (see prompts)
mapping(out='map.csv') → out must end in .jsonl; got map.csv
mapping(x='lr', settings=replace(QUICK, rates='tuned')) → rates cannot be tuned where lr is an axis
mapping(jobs=0) → jobs must be from 1 to 1,024; got 0
mapping(measure='speed') → measure must be one of accuracy, …; got 'speed'
quoted('starvd', folder=NOTEBOOKS / 'experiments') → … 'starvd' is not known; did you mean starved…
quoted('starved', 'moon', folder=NOTEBOOKS / 'experiments')
    → about must be words that the table says of starved; got 'moon'
quoted('starved', folder='.')
    → FileNotFoundError: folder: . has no verdicts.md, which `rlviz experiment --all` writes
""",
)
