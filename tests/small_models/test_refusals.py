"""Every wrong argument is answered in one sentence that names it, says what is allowed, and quotes no Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rlviz.training import find_task, learn_reward, train_reward_model
from small_models.checks import check_fields, checked
from small_models.evaluation import evaluate
from small_models.pairs import Pair, encode_pairs, make_pairs
from small_models.policies import build_policy, load_policy
from small_models.sampling import check_sampling, sample
from small_models.scorers import RewardModel, Scorer
from small_models.tasks import Chain

if TYPE_CHECKING:
    import pandas as pd

TASK = Chain()
WRONG_NUMBERS = ("x", None, True, [], {}, 2.5, float("nan"), float("inf"), -1, 10**400, "1" * 100_000, object())
PYTHON = re.compile(
    r"not supported|unexpected|NoneType|positional|object has no|cannot be interpreted|not iterable|unhashable|supplied|overflow"
    r"|invalid literal|to unpack|scalar type"
)


@pytest.fixture(scope="module")
def policy():
    return load_policy("chain", device="cpu")


@pytest.fixture(scope="module")
def reward_model(policy):
    return RewardModel.of(policy)


def refuse(name, act):
    with pytest.raises(ValueError, match=rf"\b{name}\b") as refused:
        act()
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert len(sentence) < 300
    assert not PYTHON.search(sentence), sentence


PAIRS = [Pair("1=", "a", "b")]
WHOLE = {  # what calls it, and the arguments that are whole numbers
    "build": (build_policy, ("hidden_size", "num_layers", "num_heads", "experts", "max_length", "seed")),
    "sample": (
        lambda policy, **wrong: sample(policy, ["1="], **{"max_new_tokens": 2, **wrong}),
        ("group_size", "max_new_tokens", "top_k"),
    ),
    "evaluate": (lambda policy, **wrong: evaluate(policy, TASK, **wrong), ("num_prompts", "seed")),
    "make_pairs": (
        lambda policy, **wrong: make_pairs(policy, TASK, **{"count": 1, **wrong}),
        ("count", "samples_per_prompt", "seed"),
    ),
}


@pytest.mark.parametrize("value", WRONG_NUMBERS, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize(("name", "argument"), [(name, each) for name, (_, all_) in WHOLE.items() for each in all_])
def test_whole_numbers(name, argument, value, policy):
    call = WHOLE[name][0]
    if name == "build":
        refuse(argument, lambda: call(**{argument: value}))
    else:
        refuse(argument, lambda: call(policy, **{argument: value}))


@pytest.mark.parametrize("value", [value for value in WRONG_NUMBERS if value is not None], ids=lambda v: repr(v)[:12])
def test_a_room_of_one_s_own(value, policy):
    refuse("max_new_tokens", lambda: evaluate(policy, TASK, max_new_tokens=value))
    refuse("max_new_tokens", lambda: make_pairs(policy, TASK, 1, max_new_tokens=value))
    refuse("max_new_tokens", lambda: evaluate(policy, TASK, max_new_tokens=0))
    refuse("max_new_tokens", lambda: make_pairs(policy, TASK, 1, max_new_tokens=0))


@pytest.mark.parametrize("value", ["x", None, True, [], float("nan"), float("inf"), -1, "1" * 100_000, 1 + 2j])
def test_shares_and_temperatures(value, policy):
    refuse("temperature", lambda: sample(policy, ["1="], max_new_tokens=1, temperature=value))
    refuse("top_p", lambda: sample(policy, ["1="], max_new_tokens=1, top_p=value))
    refuse("temperature", lambda: evaluate(policy, TASK, temperature=value))
    for name in ("label_noise", "spurious", "temperature"):
        refuse(name, lambda name=name: make_pairs(policy, TASK, 1, **{name: value}))
    refuse("temperature", lambda: check_sampling(1, value, 0, 1.0))


@pytest.mark.parametrize("value", [None, "chain", 7, [], torch.nn.Linear(1, 1)], ids=lambda value: repr(value)[:12])
def test_policies_tasks_scorers(value, policy, reward_model):
    refuse("policy", lambda: sample(value, ["1="], max_new_tokens=1))
    refuse("policy", lambda: evaluate(value, TASK))
    refuse("policy", lambda: make_pairs(value, TASK, 1))
    refuse("policy", lambda: RewardModel.of(value))
    refuse("policy", lambda: learn_reward(value, TASK))
    refuse("task", lambda: evaluate(policy, value))
    refuse("task", lambda: make_pairs(policy, value, 1))
    refuse("task", lambda: learn_reward(policy, value))
    refuse("scorer", lambda: RewardModel(value, policy.tokenizer))
    refuse("tokenizer", lambda: RewardModel(reward_model.scorer, value))
    refuse("reads", lambda: RewardModel.of(policy, reads=value))
    refuse("kind", lambda: make_pairs(policy, TASK, 1, kind=value))
    refuse("model", lambda: next(train_reward_model(value, PAIRS)))
    if value is not None:
        refuse("task", lambda: sample(policy, ["1="], max_new_tokens=1, task=value))
        refuse("generator", lambda: sample(policy, ["1="], max_new_tokens=1, generator=value))
    if not callable(value):
        refuse("taste", lambda: make_pairs(policy, TASK, 1, taste=value))


@pytest.mark.parametrize(
    "value", ["1=", [], [1], [None], None, 7, ["1=", b"1="], {"1=": 1}], ids=lambda v: repr(v)[:12]
)
def test_prompts(value, policy):
    refuse("prompts", lambda: sample(policy, value, max_new_tokens=1))


@pytest.mark.parametrize("value", [["x"], [None], "xy", 7, [PAIRS], [("1=", "a", "b")]], ids=lambda v: repr(v)[:12])
def test_pairs(value, policy, reward_model):
    refuse("pairs", lambda: encode_pairs(policy, value))
    refuse("pairs", lambda: next(train_reward_model(reward_model, value)))
    refuse("pairs", lambda: learn_reward(policy, TASK, value))


@pytest.mark.parametrize("value", ["x", None, [], 2.5, 0, True])
def test_updates_of_a_reward_model(value, policy, reward_model):
    refuse("steps", lambda: next(train_reward_model(reward_model, PAIRS, steps=value)))
    refuse("batch_size", lambda: next(train_reward_model(reward_model, PAIRS, batch_size=value)))
    refuse("steps", lambda: learn_reward(policy, TASK, PAIRS, steps=value))
    if value != 0:
        refuse("seed", lambda: learn_reward(policy, TASK, PAIRS, seed=value))
        refuse("evaluate_every", lambda: next(train_reward_model(reward_model, PAIRS, evaluate_every=value)))
    if value != 2.5:
        refuse("lr", lambda: next(train_reward_model(reward_model, PAIRS, lr=value)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1 and at most 1000; got 0"),
        ({"num_layers": "two"}, "num_layers must be a whole number, at least 1 and at most 1000; got 'two'"),
        ({"num_heads": 0}, "num_heads must be at least 1 and at most 65536; got 0"),
        ({"max_length": 1}, "max_length must be at least 2, a token of a prompt and one of a response; got 1"),
        ({"seed": 2**63}, "seed must be at least 0, and below 2**63; got 9223372036854775808"),
        ({"hidden_size": 30}, "hidden_size must be a multiple of 2 × num_heads = 8; got 30"),
        (
            {"hidden_size": 2**15},
            "hidden_size, num_layers and experts would make a policy of 34,363,047,936 parameters; at most 1,000,000,000 "
            "are built here",
        ),
    ],
)
def test_what_build_policy_says(arguments, sentence):
    with pytest.raises(ValueError, match=r"num_|hidden_size|max_length|seed") as refused:
        build_policy(**arguments)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("experts", [0, 8])
def test_a_policy_is_as_large_as_the_refusal_counts(experts, monkeypatch):
    from small_models import policies

    count = build_policy(experts=experts, num_layers=3, device="cpu").num_parameters
    monkeypatch.setattr(policies, "LARGEST", count)
    build_policy(experts=experts, num_layers=3, device="cpu")
    monkeypatch.setattr(policies, "LARGEST", count - 1)
    refuse("num_layers", lambda: build_policy(experts=experts, num_layers=3))


@pytest.mark.parametrize("value", [None, 7, [], "", b"chain", "x" * 100_000, "a\0b", "a\nb", Scorer])
def test_what_cannot_be_a_policy(value):
    refuse("policy", lambda: load_policy(value))


@pytest.mark.parametrize("value", [None, 7, [], "tpu", torch.device("cpu"), "x" * 100_000])
def test_devices(value):
    refuse("device", lambda: load_policy("chain", device=value))
    refuse("device", lambda: build_policy(device=value))


@dataclass
class Base:
    size: int


@dataclass
class WithTable(Base):
    table: pd.DataFrame
    name: str


@checked
def of_table(size: int, table: pd.DataFrame | None = None, *, name: str = "x") -> pd.DataFrame:
    raise AssertionError


def test_what_is_annotated_for_type_checkers_alone_leaves_the_rest_checked():
    refuse("size", lambda: of_table("x"))
    refuse("name", lambda: of_table(1, name=2))
    refuse("size", lambda: check_fields(WithTable("x", None, "x")))
    refuse("name", lambda: check_fields(WithTable(1, None, 2)))
    check_fields(WithTable(1, None, "x"))


WELL_WRITTEN = {"chain": "38078#8", "ramble": "38078#8", "lookup": "?3;1,#2", "trip": "490"}


@pytest.mark.parametrize("prompt", ["1+x=", "abc", "1=:", "²=", ""])
@pytest.mark.parametrize("name", WELL_WRITTEN)
def test_prompts_of_another_task(name, prompt, policy):
    """As in a file of pairs that another task's prompts stand in."""
    task = find_task(name)
    refuse("prompt", lambda: task.gold(prompt))
    refuse("prompt", lambda: task.grade(prompt, WELL_WRITTEN[name]))
    if name == "lookup" and prompt.isascii():
        refuse("prompt", lambda: encode_pairs(policy, [Pair(prompt, WELL_WRITTEN[name], "1")], task))


@checked
def of_pairs(pairs: Sequence[Pair], numbers: Sequence[float] = ()) -> int:
    return len(pairs)


def test_arrays_are_lists_where_what_is_in_them_fits():
    assert of_pairs(np.array(PAIRS, dtype=object), np.arange(3)) == 1
    for wrong in (np.array([1, 2]), np.array(3), torch.ones(2), np.array([None])):
        refuse("pairs", lambda wrong=wrong: of_pairs(wrong))
    refuse("numbers", lambda: of_pairs([], np.array(3.0)))


def test_a_scorer_whose_weights_are_whole_numbers(reward_model, tmp_path):
    reward_model.save(tmp_path)
    tensors = load_file(tmp_path / "scorer.safetensors")
    save_file({name: tensor.char() for name, tensor in tensors.items()}, tmp_path / "scorer.safetensors")
    refuse("whole numbers", lambda: RewardModel.load(tmp_path, device="cpu"))
