"""The page of symptoms: calls run, settings are settings."""

import ast
import re
from pathlib import Path

import pytest

import rlviz
from rlviz.algorithms import find_algorithm
from rlviz.settings import declarations
from rlviz.training import TrainSettings

PAGE = Path(__file__).parent.parent / "notebooks" / "symptoms.md"
TEXT = PAGE.read_text(encoding="utf-8")
ENTRIES = [part for part in re.split(r"^## ", TEXT, flags=re.M)[1:] if part.strip()]
CALLS = sorted(set(re.findall(r"`(explore_\w+\([^`]*\))`", TEXT)))
ELSEWHERE = {  # what the entries name beside a run's settings: options, parts of an algorithm, columns, names of values
    "beta", "kl", "reference", "policy", "reward_model", "aggregate", "shape", "select", "eps_high", "entropy_weight", "--rule",
    "routing_flips", "chain-experts", "lookup", "observed", "max_rounds", "DynamicSampling", "StandardizedApart",
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_call_opens_the_picture_in_the_state_that_is_meant(call):
    made = ast.parse(call, mode="eval").body
    assert isinstance(made, ast.Call) and isinstance(made.func, ast.Name)
    values = {word.arg: ast.literal_eval(word.value) for word in made.keywords}
    own = [getattr(rlviz, name.id) for name in made.args if isinstance(name, ast.Name)]
    assert getattr(rlviz, made.func.id)(*own, **values).caption


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.splitlines()[0])
def test_an_entry_says_what_to_check_what_to_set_and_where_to_look(entry):
    for word in ("**Check:**", "**Fields:**", "**See:**"):
        assert entry.count(word) == 1
    (fields,) = re.findall(r"\*\*Fields:\*\* (.*?)\n- ", entry, re.S)
    ours = fields.partition("rlviz ")[2]
    for name in re.findall(r"`([^`]+)`", ours):
        known = name in declarations(TrainSettings) or name in ELSEWHERE
        assert known or find_algorithm(name), name


def test_a_section_that_is_named_is_there():
    for file, sections in re.findall(r"\]\((\d\d_\w+\.ipynb)\), sections? ([\d and]+)", TEXT):
        source = (PAGE.parent / file).read_text(encoding="utf-8")
        for number in re.findall(r"\d+", sections):
            assert f'"## {number} · ' in source, (file, number)
