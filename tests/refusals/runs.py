"""What the pictures of runs refuse: what is no run, and what no curve can be drawn of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from rlviz import GRPO, PPO, diagnose, train, train_in_page
from rlviz.parallel import check_engine
from rlviz.runs.critic import plot_values
from rlviz.runs.inspector import inspect_run
from rlviz.runs.learning import plot_hacking
from rlviz.runs.panel import training_panel
from rlviz.runs.watching import train_seeds, watch
from rlviz.training import RunFolder
from tests.refusals.row import table
from tests.refusals.things import SHORT, done, done_on_pairs


def begun() -> Any:
    return train("chain", GRPO, SHORT)


def watching(**given: Any) -> Any:
    return watch(begun(), **given)


def reading(ratio: Any, advantages: Any, lower: Any, upper: Any) -> Any:
    return ratio * advantages if float(ratio.mean()) > 0 else ratio


HISTORY = pd.DataFrame({"step": [1], "reward": [0.0]})
ROWS = table(
    globals(),
    r"""
diagnose([]) → … has no step yet, so there is nothing to diagnose; come back after …
diagnose(3) → run must be a run folder, a run that is kept in one, a log, or a list of step records; got int
diagnose([1, 2]) → run must be a run folder, a run that is kept in one, a log, or a list of step records; got …
diagnose({}) → run must be a run folder, a run that is kept in one, a log, or a list of step records; got dict
diagnose(begun()) → run keeps no records of its own; give the list of them, and settings=run.settings
diagnose(done().parent) → FileNotFoundError: … holds no run…
inspect_run(7) → run must be a run folder, a list of step records or a training panel; got int
inspect_run('.') → FileNotFoundError: … holds no run…
inspect_run(begun()) → run keeps no records of its own; give the list of them, and algorithm=run.algorithm
inspect_run(done_on_pairs())
    → run learned from preference pairs and sampled no groups to look into; rlviz.runs.plot_learning_curves
    draws its history
inspect_run(done()).save('both.pdf') → path must end in .html; got 'both.pdf'
inspect_run(RunFolder.open(done_on_pairs()).records())
    → run learned from preference pairs and sampled no groups to look into; rlviz.runs.plot_learning_curves
    draws its history
plot_values({}) → answers must hold at least one; got none
plot_values({'right': (['4', 'end'], [0.3], 1.0)})
    → answers must have a value for each token; got 1 for 2 in 'right'
plot_values({'right': ([], [], 1.0)}) → answers must have a value for each token; got 0 for 0 in 'right'
plot_hacking({}) → runs must be one to 4 settings, to be told apart; got 0
plot_hacking({str(n): [HISTORY] for n in range(5)}) → runs must be one to 4 settings, to be told apart; got 5
plot_hacking({'a': [HISTORY], 'b': []}) → runs must hold a history for each setting; got none for b
training_panel('chian') → task 'chian' is not known; did you mean chain…
train_in_page(replace(GRPO, name='Mine', surrogate=reading)) → …float…
train_in_page(GRPO, 'lookup') → task must be one of chain, chain-rare, sort, trip; got 'lookup'
train_in_page(GRPO.with_parameters(eps_high=0.5))
    → algorithm: GRPO is the name of another one; give yours its own, by replace(…, name=…)
train_in_page(PPO) → algorithm: PPO needs a critic, which the page does not have; train it by the kernel
train_in_page(3) → algorithm must be …; got 3
train_seeds('chain', 'chain', 'grpo', SHORT, seeds=()) → seeds must hold at least one seed; got none
watch(7) → run must be a TrainingRun; got 7
watch([1]) → run must be a TrainingRun; got [1]
watching(of=0) → of must be at least 1; got 0
watching(of='all') → of must be a whole number; got 'all'
watching(name=7) → name must be a text; got 7
check_engine(⟨'dask' | '' | 'ray:' | 'local:2' | 'joblib' | ':1'⟩)
    → on must be local, ray, or ray:ADDRESS of a cluster; got ⟨⟩
""",
)
