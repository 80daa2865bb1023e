"""Numbers that functions take, outside of ranges that are not declared: the sentence has the argument, "must" and the value."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlviz import DAPO, GRPO, Contender, compare
from rlviz.interop import explain_config, to_trl
from rlviz.pieces.mismatch import MaskedWeight
from rlviz.runs.watching import watch
from rlviz.tabular import TableTask, good_actions, rare_good_action, train_table
from rlviz.training import find_task, learn_reward, train, train_reward_model
from small_models.evaluation import evaluate
from small_models.pairs import make_pairs
from small_models.policies import build_policy
from small_models.sampling import sample
from tests.refusals.sentence import refused
from tests.refusals.things import PAIRS, SHORT, policy, reward_model

NOT_NUMBERS = ("x", None, True, [], {}, math.nan, math.inf, 1j)
NOT_COUNTS = (*NOT_NUMBERS, 0, -1, 2.5)


def call(function: Any, *arguments: Any, **defaults: Any) -> Any:
    """Return the function with arguments bound, fixtures of `things` called when it is; it takes one more by name."""

    def changed(**one_more: Any) -> Any:
        values = [x() if x in (policy, chain, reward_model) else x for x in arguments]
        return function(*values, **{**defaults, **one_more})

    return changed


def chain() -> Any:
    return find_task("chain")


def watched(of: Any) -> Any:
    return next(watch(train("chain", GRPO, SHORT), of=of))


SAMPLE = call(sample, policy, prompts=["35271="], max_new_tokens=2)
EVALUATE = call(evaluate, policy, chain)
MAKE_PAIRS = call(make_pairs, policy, chain, count=1)
LEARN = call(learn_reward, policy, chain, PAIRS)
UPDATE = call(train_reward_model, reward_model, PAIRS)
TABLE = call(train_table, GRPO)
TASK = call(TableTask, success=(0.0, 1.0))
COMPARE = call(compare, [Contender("GRPO", GRPO, SHORT)], "chain", seeds=1, out="out")
# function, names of its arguments that are whole numbers of at least 1
COUNTS = (
    (build_policy, "hidden_size num_layers num_heads max_length"),
    (SAMPLE, "group_size max_new_tokens"),
    (EVALUATE, "num_prompts"),
    (MAKE_PAIRS, "count samples_per_prompt"),
    (LEARN, "steps"),
    (UPDATE, "steps batch_size"),
    (TABLE, "steps groups group_size updates_per_rollout minibatches replicas"),
    (TASK, "prompts positions"),
)
# function, argument, wrong values beside those of another type
NUMBERS = (
    (build_policy, "seed", -1, 2**63, 10**400),
    (SAMPLE, "temperature", -1.0),
    (SAMPLE, "top_k", -1, 2.5),
    (SAMPLE, "top_p", 0.0, 1.1),
    (EVALUATE, "seed", -1),
    (MAKE_PAIRS, "label_noise", -0.1, 0.5),
    (MAKE_PAIRS, "spurious", -0.1, 1.1),
    (MAKE_PAIRS, "temperature", 0.0),
    (UPDATE, "lr", 0.0),
    (TABLE, "lr", 0.0),
    (TABLE, "temperature", -1.0, 1e-7),
    (TABLE, "entropy_weight", -0.1),
    (TABLE, "seed", -1, 2**63),
)
# what has no check of its type
RANGES = (
    (build_policy, "num_layers", 1001),
    (build_policy, "max_length", 1),
    (build_policy, "experts", 1, 2),
    (build_policy, "hidden_size", 30),
    (COMPARE, "seeds", 0, 10_001, [1, 1]),
    (COMPARE, "jobs", 0, 1025),
    (COMPARE, "amount", 0, math.inf, "x"),
    (good_actions, "good", 0, 20),
    (rare_good_action, "start", 0.0, 1.0),
    (TASK, "start", (0.5, 0.6), (1.0,), "even"),
    (TableTask, "success", (1.0,), (0.5, 1.5), (0.5, math.nan), "likely", None),
    (MaskedWeight, "lowest", -1.0, 2.0),
    (MaskedWeight, "highest", 0.2, math.nan, math.inf),
    (DAPO.with_parameters, "cache", 0, 17),
    (call(to_trl, DAPO), "accumulation", 0, 1.5, 5),
    (call(explain_config, "num_generations: 8"), "devices", 0),
    (watched, "of", 0, "all"),
)
CASES = [
    *((function, name, NOT_COUNTS) for function, names in COUNTS for name in names.split()),
    *((function, name, (*NOT_NUMBERS, *wrong)) for function, name, *wrong in NUMBERS),
    *((function, name, tuple(wrong)) for function, name, *wrong in RANGES),
]


@pytest.mark.parametrize(("function", "name", "wrong"), CASES, ids=lambda part: part if isinstance(part, str) else "")
def test_a_number_out_of_its_range_is_refused(function, name, wrong, tmp_path, monkeypatch):
    """Before anything is written."""
    monkeypatch.chdir(tmp_path)
    for value in wrong:
        came = "complex" if isinstance(value, complex) else repr(value)[:20]
        refused(partial(function, **{name: value}), name, "must", came)
    assert not list(Path().iterdir())
