"""The page of symptoms: calls run, links lead somewhere, settings are settings, numbers are those of the formulas."""

import ast
import math
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
ANCHORS = {"#" + entry.splitlines()[0].replace(" ", "-") for entry in ENTRIES}
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
    for link in re.findall(r"\]\((?!https)([^)]+)\)", entry):
        assert (PAGE.parent / link).exists() or link in ANCHORS
    (fields,) = re.findall(r"\*\*Fields:\*\* (.*?)\n- ", entry, re.S)
    ours = fields.partition("rlviz ")[2]
    for name in re.findall(r"`([^`]+)`", ours):
        known = name in declarations(TrainSettings) or name in ELSEWHERE
        assert known or find_algorithm(name), name


def test_no_line_of_an_entry_begins_like_a_heading():
    assert not re.search(r"^\s*#\d|^ +#", TEXT, re.M)  # "[trl #1]" that is broken at its space


def test_a_section_that_is_named_is_there():
    for file, sections in re.findall(r"\]\((\d\d_\w+\.ipynb)\), sections? ([\d and]+)", TEXT):
        source = (PAGE.parent / file).read_text(encoding="utf-8")
        for number in re.findall(r"\d+", sections):
            assert f'"## {number} · ' in source, (file, number)


def test_shares_of_dead_groups():
    for p, said in ((0.5, 1), (0.1, 43), (0.01, 92)):
        assert round(100 * (p**8 + (1 - p) ** 8)) == said and f"{said} % at p = {str(p)[1:]}" in TEXT
    assert round(1 / (1 - 0.99**8 - 0.01**8)) == 13 and "one group in thirteen" in TEXT
    assert 4 * 8 * 2 / 8 == 8 and "4 devices × 8 × 2 ÷ 8 are 8 prompts" in TEXT


def test_a_token_that_the_reference_likes_much_better_makes_the_mean_of_k3():
    k3 = {log_ratio: math.exp(-log_ratio) - 1 + log_ratio for log_ratio in (-4, 4)}  # ρ − 1 − log ρ, log ρ = −log ratio
    assert round(k3[-4]) == 50 and "e⁴ times less than the reference is 50" in TEXT
    assert round(k3[4]) == 3 and "it likes e⁴ times more 3" in TEXT
