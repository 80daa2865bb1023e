"""What the small models refuse: every argument of the wrong kind, sizes, pairs, prompts, rules, devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlviz.training import find_task, learn_reward, train, train_reward_model
from small_models.checks import check_fields, checked
from small_models.evaluation import evaluate
from small_models.pairs import Pair, encode_pairs, encode_responses, make_pairs, read_pairs
from small_models.policies import build_policy, choose_device, load_policy
from small_models.sampling import check_sampling, sample
from small_models.scorers import RewardModel, Scorer
from small_models.tasks import Chain, Grade, Trip
from small_models.warm_start import RECIPES, warm_start
from tests.refusals.row import Row, of, table
from tests.refusals.things import PAIRS, file, policy, reward_model, tiny
from tests.small_models.real import chat_policy

if TYPE_CHECKING:
    import pandas as pd

TASK = Chain()
NAN, INF = float("nan"), float("inf")
# what an argument should be → wrong values, each with how the sentence shows it
NO_NUMBER = [("x", "'x'"), (None, "None"), (True, "True"), ([], "[]"), ("1" * 100_000, "'11111…")]
NO_OBJECT = [
    (None, "None"),
    ("chain", "'chain'"),
    (7, "7"),
    ([], "[]"),
    (torch.nn.Linear(1, 1), "a value of type Linear"),
]
WRONG: dict[str, list[tuple[Any, str]]] = {
    "a number": [*NO_NUMBER, (NAN, "nan"), (INF, "inf"), (-1, "-1"), (1 + 2j, "a value of type complex")],
    "a whole number": [
        *NO_NUMBER, ({}, "{}"), (2.5, "2.5"), (NAN, "nan"), (INF, "inf"), (-1, "-1"), (10**400, "1000000…"),
        (object(), "a value of type object"),
    ],
    "an object": NO_OBJECT,
    "an object or None": NO_OBJECT[1:],
    "a list of texts": [
        ("1=", "'1='"), ([1], "[1]"), ([None], "[None]"), (None, "None"), (7, "7"), (["1=", b"1="], "…b'1='…"),
        ({"1=": 1}, "{'1=': 1}"),
    ],
    "a list of pairs": [
        (["x"], "…'x'…"), ([None], "…None…"), ("xy", "'xy'"), (7, "7"), ([PAIRS], "[…"),
        ([("1=", "a", "b")], "…('1=', 'a', 'b')…"),
    ],
    "a device": [(None, "None"), (7, "7"), ([], "[]"), ("tpu", "'tpu'"), ("x" * 100_000, "'xxxxx…"), (torch.device("cpu"), "…")],
}  # fmt: skip
WRONG["a whole number or None"] = [wrong for wrong in WRONG["a whole number"] if wrong[0] is not None]
WRONG["a count"] = [*WRONG["a whole number"], (0, "0")]
WRONG["a count or None"] = [*WRONG["a whole number or None"], (0, "0")]


def kinds(call: Any, **arguments: str) -> list[Row]:
    """Return a row for each wrong value of each argument, given what the argument should be."""
    return [
        Row(partial(call, **{name: value}), f"{name} must be …; got {shown}")
        for name, kind in arguments.items()
        for value, shown in WRONG[kind]
    ]


def sampling(**given: Any) -> Any:
    return sample(**{"policy": policy(), "prompts": ["35271="], "max_new_tokens": 2, **given})


def checking(**given: Any) -> Any:
    return check_sampling(**{"max_new_tokens": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, **given})


def evaluating(**given: Any) -> Any:
    return evaluate(**{"policy": policy(), "task": TASK, **given})


def making_pairs(**given: Any) -> Any:
    return make_pairs(**{"policy": policy(), "task": TASK, "count": 1, **given})


def encoding(**given: Any) -> Any:
    return encode_pairs(**{"policy": policy(), "pairs": PAIRS, **given})


def encoding_short(**given: Any) -> Any:
    return encode_pairs(build_policy(hidden_size=8, num_layers=1, num_heads=2, max_length=8, device="cpu"), **given)


def writing(*texts: str) -> Any:
    return encode_responses(tiny(), texts)


def scoring(**given: Any) -> Any:
    return RewardModel(**{"scorer": reward_model().scorer, "tokenizer": tiny().tokenizer, **given})


def scoring_of(**given: Any) -> Any:
    return RewardModel.of(**{"policy": tiny(), **given})


def learning(**given: Any) -> Any:
    return learn_reward(**{"policy": policy(), "task": TASK, "pairs": PAIRS, **given})


def updating(**given: Any) -> Any:
    return next(train_reward_model(**{"model": reward_model(), "pairs": PAIRS, **given}))


def warming(**given: Any) -> Any:
    return next(warm_start(tiny(), TASK, **given))


class AlwaysRight(Trip):
    """Of its responses none is wrong."""

    def grade(self, prompt: str, response: str) -> Grade:
        return Grade(True, True)


def of_one_kind(**given: Any) -> Any:
    return make_pairs(load_policy("trip", device="cpu"), AlwaysRight(), **given)


@dataclass
class Base:
    """A field that a class inherits."""

    size: int


@dataclass
class WithTable(Base):
    """A field whose type is known to type checkers alone."""

    table: pd.DataFrame
    name: str


@checked
def of_table(size: int, table: pd.DataFrame | None = None, *, name: str = "x") -> pd.DataFrame:
    raise AssertionError


@checked
def of_pairs(pairs: Sequence[Pair], numbers: Sequence[float] = ()) -> int:
    return len(pairs)


GOOD_PAIR = b'{"prompt": "1=", "chosen": "2", "rejected": "3"}'
EGGS = '{"prompt": "a?", "answer": 0}\n{"prompt": "b?", "answer": 1}\n'
RULES = """
from small_models.tasks import Grade

def even(prompt, response, answer):
    return len(response) % 2 == 0
def raises(prompt, response, answer):
    raise KeyError("no such key")
def leaves(prompt, response, answer):
    raise SystemExit(0)
def half(prompt, response, answer):
    return 0.5
NUMBER = 1
"""
RARE = next(recipe for recipe in RECIPES if recipe.name == "chain-rare")


def third_pair(line: str | bytes) -> Any:
    line = line if isinstance(line, bytes) else line.encode()
    return read_pairs(file("pairs.jsonl", b"\n".join([GOOD_PAIR, b"", line, GOOD_PAIR])))


def prompts(text: str) -> Any:
    return find_task(file("eggs.jsonl", text), rule="last-number", policy=chat_policy())


def third_prompt(line: str) -> Any:
    return prompts(EGGS + line)


def own_rule(name: str) -> str:
    return f"{file('rules.py', RULES)}:{name}"


def by_rule(rule: str, **given: Any) -> Any:
    return find_task(file("eggs.jsonl", EGGS), rule=rule, **given)


ROWS = table(
    globals(),
    r"""
build_policy(num_layers=⟨0 | 1001⟩) → num_layers must be at least 1 and at most 1000; got ⟨⟩
build_policy(num_layers='two') → num_layers must be a whole number, at least 1 and at most 1000; got 'two'
build_policy(num_heads=0) → num_heads must be at least 1 and at most 65536; got 0
build_policy(max_length=1) → max_length must be at least 2, a token of a prompt and one of a response; got 1
build_policy(seed=2 ** 63) → seed must be at least 0, and below 2**63; got 9223372036854775808
build_policy(hidden_size=30) → hidden_size must be a multiple of 2 × num_heads = 8; got 30
build_policy(hidden_size=2 ** 15)
    → hidden_size, num_layers and experts would make a policy of 34,363,047,936 parameters; at most
    1,000,000,000 are built here
build_policy(experts=⟨1 | 2⟩) → experts must be 0 (none) or at least 3, so that there is a choice; got ⟨⟩
choose_device('tpu') → device must be one of auto, cpu, cuda; got 'tpu'
load_policy('no-such-owner/no-such-model')
    → policy: 'no-such-owner/no-such-model' is no folder here, no shipped policy (chain, …)…
sampling(max_new_tokens=0) → max_new_tokens must be at least 1; got 0
sampling(max_new_tokens=⟨59 | 100⟩) → …⟨⟩ after a prompt of 6 tokens exceeds the 64 positions…
sampling(temperature=-1.0) → temperature must be 0 (greedy) or above; got -1.0
sampling(top_k=-1) → top_k must be 0 (all tokens) or above; got -1
sampling(top_p=⟨0.0 | 1.1⟩) → top_p must be above 0 and at most 1 (all tokens); got ⟨⟩
sampling(prompts=['3É=']) → text '3É=' holds ['É']; this vocabulary has …
⟨sampling(prompts | encoding(pairs⟩=[]) → … must hold at least one; got none
sampling(prompts=['']) → text '' has no tokens; a prompt needs at least one
sampling(group_size=10 ** 9, max_new_tokens=4)
    → sampling 1,000,000,000 responses at once would take … GB …; lower group_size…
writing('1', 'É') → …['É']…
making_pairs(count=0) → count must be at least 1; got 0
making_pairs(kind='good_bad') → kind must be one of right_wrong, better_worse; got 'good_bad'
making_pairs(samples_per_prompt=1) → samples_per_prompt must be at least 2, …; got 1
making_pairs(label_noise=⟨-0.1 | 0.5⟩) → label_noise must be from 0 to below 0.5, …; got ⟨⟩
making_pairs(spurious=1.1) → spurious must be from 0 to 1; got 1.1
making_pairs(temperature=0.0) → temperature must be above 0 (greedy responses are all alike); got 0.0
# 4 prompts a pair in batches of 64: 4 × 100 → 7 batches, 7 × 64 × 8 = 3584 responses
of_one_kind(count=100, samples_per_prompt=8) → count: 3584 responses gave 0 of the 100 pairs asked for; …
Pair('', '1', '2') → prompt must not be empty
Pair('1=', '1', '1') → chosen and rejected must differ; both are '1'
Pair('1=', 1, '1') → chosen must be a text; got 1
Pair('1=', '1', None) → rejected must be a text; got None
encoding_short(pairs=[Pair('1=', '2', '3'), Pair('123=', '1', '5678')])
    → the pair on prompt '123=' has 9 tokens, more than the 8 positions of this model
encode_pairs(policy(), [Pair(⟨'1+x=' | 'abc' | '1=:'⟩, '?3;1,#2', '1')], find_task('lookup'))
    → prompt must be written as … is; got ⟨⟩
scoring_of(reads='sum') → reads must be one of last, mean; got 'sum'
RewardModel.load('nothing', device='cpu') → …there is no folder nothing
warming(target_accuracy=⟨0.0 | 1.5⟩) → target_accuracy must be above 0 and at most 1; got ⟨⟩
RARE.with_target(0.25) → target_accuracy: chain-rare ends after 10 updates, whatever they reach
# what only type checkers know of leaves the rest checked
of_table(size='x') → size must be a whole number; got 'x'
of_table(size=1, name=2) → name must be a text; got 2
check_fields(WithTable('x', None, 'x')) → size must be a whole number; got 'x'
check_fields(WithTable(1, None, 2)) → name must be a text; got 2
# arrays are lists where what is in them fits
of_pairs(torch.ones(2)) → pairs must be a list of Pair; got …
of_pairs([], np.array(3.0)) → numbers must be a list of numbers; got …
find_task(⟨'chain' | 'ramble' | 'lookup' | 'trip'⟩).gold(⟨'1+x=' | 'abc' | '1=:' | '²=' | ''⟩)
    → prompt must be written as … is; got '…'
find_task(⟨'chain' | 'ramble'⟩).grade(⟨'1+x=' | 'abc' | '1=:' | '²=' | ''⟩, '38078#8')
    → prompt must be written as … is; got '…'
find_task('lookup').grade(⟨'1+x=' | 'abc' | '1=:' | '²=' | ''⟩, '?3;1,#2')
    → prompt must be written as … is; got ⟨⟩
find_task('trip').grade(⟨'1+x=' | 'abc' | '1=:' | '²=' | ''⟩, '490') → prompt must be written as … is; got ⟨⟩
load_policy(⟨None | 7 | []⟩) → policy must be …; got ⟨⟩
load_policy(⟨'' | b'chain' | 'x' * 100_000 | 'a\0b' | 'a\nb' | Scorer⟩) → policy…
third_pair("{'prompt': 1}") → …pairs.jsonl, line 3 is not JSON (… at byte 1)
third_pair(b'\xff') → …pairs.jsonl, line 3 is not UTF-8 text
third_pair('[1, 2]')
    → …pairs.jsonl, line 3 must be an object with the keys prompt, chosen, rejected; got [1, 2]
third_pair('{"prompt": "1=", "chosen": "2"}') → …pairs.jsonl, line 3 lacks rejected
third_pair('{"prompt": "1="}') → …pairs.jsonl, line 3 lacks chosen
third_pair('{"prompt": "1=", "chosen": 2, "rejected": "3"}')
    → …pairs.jsonl, line 3: chosen must be a text; got 2
third_pair('{"prompt": "1=", "chosen": ["2"], "rejected": "3"}')
    → …pairs.jsonl, line 3: chosen must be a text; got ["2"]
third_pair('{"prompt": null, "chosen": "2", "rejected": "3"}')
    → …pairs.jsonl, line 3: prompt must be a text; got null
third_pair('{"prompt": "", "chosen": "2", "rejected": "3"}') → …pairs.jsonl, line 3: prompt must not be empty
third_pair('{"prompt": "1=", "chosen": "2", "rejected": "2"}')
    → …pairs.jsonl, line 3: chosen and rejected must differ; both are '2'
read_pairs(file('pairs.jsonl', '\n\n'))
    → …pairs.jsonl holds no pairs; it needs one a line, as JSON with the keys …
third_prompt('{"prompt": "c?"}') → …eggs.jsonl, line 3 lacks answer
third_prompt('oops') → …eggs.jsonl, line 3 is not JSON (invalid character at byte 0)
third_prompt('{"prompt": 5, "answer": 1}') → …eggs.jsonl, line 3: prompt must be a text or a list; got 5
third_prompt('{"prompt": " ", "answer": 1}') → …eggs.jsonl, line 3: prompt must not be empty
third_prompt('{"prompt": [{"role": "user"}], "answer": 1}') → …eggs.jsonl, line 3: prompt[0] lacks content
third_prompt('{"prompt": "c?", "answer": "yes"}')
    → …eggs.jsonl, line 3: answer must hold a number, which last-number looks for; got 'yes'
third_prompt('{"prompt": "a?", "answer": "7"}')
    → …eggs.jsonl, line 3: the prompt is that of line 1, with another answer
prompts('') → task: …eggs.jsonl holds no prompt; two are needed, one to learn from and one to test on
prompts(EGGS[:30]) → task: …eggs.jsonl holds one prompt; two are needed, one to learn from and one to test on
find_task(file('eggs.jsonl', EGGS))
    → rule is missing: how are responses to the prompts of …eggs.jsonl graded? Give last-number, …
by_rule('last') → rule must be last-number, exact, or FILE.py:function; got 'last'
find_task('none.jsonl', rule='exact') → task: there is no file none.jsonl
find_task('eggs.csv', rule='exact') → task must be one of chain, …, or a file ending in .jsonl; got 'eggs.csv'
find_task('chain', rule='exact') → rule is for a task from a file, FILE.jsonl; got the task 'chain'
find_task('chain', chat='on') → chat is for a task from a file, FILE.jsonl; got the task 'chain'
by_rule('none.py:even') → rule: there is no Python file none.py
by_rule(file('rules.py', 'def even(:') + ':even') → rule: …cannot be imported (SyntaxError…
by_rule(own_rule('evn')) → rule: …rules.py has no function evn; it has Grade, even…
by_rule(own_rule('NUMBER')) → rule: …rules.py has no function NUMBER; it has Grade, even…
by_rule(own_rule('raises')) → …raised KeyError: 'no such key' for a response to …eggs.jsonl, line 1…
by_rule(own_rule('leaves')) → …raised SystemExit: 0…
by_rule(own_rule('half'))
    → rule: …rules.py:half must return True or False, or a Grade; got 0.5 for a response to …eggs.jsonl, line
    1
by_rule('exact', chat='on', policy=chat_policy(chat=False))
    → chat cannot be on: the tokenizer of … has no chat template
train(by_rule('exact'), 'grpo') → policy is missing: …eggs.jsonl… has no warm start; name a model
of_pairs(np.array(⟨[1, 2] | 3 | [None]⟩)) → pairs must be a list of Pair; got …
""",
)
ROWS += [
    *kinds(build_policy, **dict.fromkeys(("hidden_size", "num_layers", "num_heads", "max_length"), "a count")),
    *kinds(build_policy, experts="a whole number", seed="a whole number", device="a device"),
    *kinds(lambda device: load_policy("chain", device=device), device="a device"),
    *kinds(sampling, policy="an object", prompts="a list of texts", group_size="a count", max_new_tokens="a count"),
    *kinds(sampling, temperature="a number", top_k="a whole number", top_p="a number"),
    *kinds(sampling, task="an object or None", generator="an object or None"),
    *kinds(checking, temperature="a number"),
    *kinds(evaluating, policy="an object", task="an object", num_prompts="a count", seed="a whole number"),
    *kinds(evaluating, temperature="a number", max_new_tokens="a count or None"),
    *kinds(making_pairs, policy="an object", task="an object", count="a count", samples_per_prompt="a count"),
    *kinds(making_pairs, seed="a whole number", max_new_tokens="a count or None", kind="an object"),
    *kinds(making_pairs, label_noise="a number", spurious="a number", temperature="a number"),
    *kinds(encoding, pairs="a list of pairs"),
    *kinds(scoring, scorer="an object", tokenizer="an object"),
    *kinds(scoring_of, policy="an object", reads="an object"),
    *kinds(
        learning, policy="an object", task="an object", pairs="a list of pairs", steps="a count", seed="a whole number"
    ),
    *kinds(updating, model="an object", pairs="a list of pairs", steps="a count", batch_size="a count"),
    *kinds(updating, evaluate_every="a whole number", lr="a number"),
    *of(making_pairs, *(({"taste": each}, f"taste must be …; got {shown}") for each, shown in NO_OBJECT[:4])),
]
