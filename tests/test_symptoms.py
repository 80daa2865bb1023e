"""The page of symptoms: its headings stay, calls run (a plan's, too), settings are settings; and the site's page of them."""

import ast
import re
from pathlib import Path

import pytest

import rlviz
from rlviz.algorithms import find_algorithm
from rlviz.pictures.explore import Explorer
from rlviz.runs.rules import RULES
from rlviz.settings import declarations
from rlviz.site.lessons import with_rules
from rlviz.training import TrainSettings

PAGE = Path(__file__).parent.parent / "notebooks" / "symptoms.md"
TEXT = PAGE.read_text(encoding="utf-8")
SHOWN = with_rules(TEXT)
ENTRIES = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.M)[1:] if part.strip()}
PLANS = [plan.read_text(encoding="utf-8") for plan in sorted((PAGE.parent / "teaching").glob("[0-9]*.md"))]
CALLS = sorted({call for text in (TEXT, *PLANS) for call in re.findall(r"`(explore_\w+\([^`]*\))`", text)})
ELSEWHERE = {  # what the entries name beside a run's settings: options, parts of an algorithm, columns, names of values
    "beta", "kl", "reference", "policy", "reward_model", "aggregate", "shape", "select", "eps_high", "entropy_weight", "--rule",
    "routing_flips", "chain-experts", "lookup", "observed", "max_rounds", "DynamicSampling", "StandardizedApart",
}  # fmt: skip
STAY = """The loss is 0 · The loss is negative, or it rises · The ratio is always 1, the clip fraction is 0 · The KL is negative
The KL explodes · All groups have the same reward: frac_reward_zero_std is 1 · Gradient 0 although the rewards differ
The entropy collapses · The reward stays at 0 · The reward does not rise · The reward rises, the benchmark falls
All responses are cut off · Responses grow longer and longer · Responses get shorter and shorter
One reward falls while another rises · The critic's explained variance is near 0 or negative
Loss or gradient is NaN, the output is "!!!!!"
Old and new log-probabilities differ before the first update · Which mean: grpo, bnpo, dapo, dr_grpo?
Gradient accumulation changes the result · How many prompts are in a batch? · GSPO's ε is tiny, and it clips a lot
In DPO the chosen response becomes less likely · The DPO loss stays at 0.693"""


def test_the_headings_that_others_point_to_stay():
    headings = re.split(r" · |\n", STAY)
    assert len(headings) == 24 and set(headings) <= set(ENTRIES)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_opens_the_picture_in_the_state_that_is_meant(call):
    node = ast.parse(call, mode="eval").body
    values = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
    algorithms = [getattr(rlviz, name.id) for name in node.args]
    assert isinstance(getattr(rlviz, node.func.id)(*algorithms, **values), Explorer)  # else a value was refused


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_says_what_to_check_what_to_set_and_where_to_look(entry):
    assert [ENTRIES[entry].count(word) for word in ("**Check:**", "**Fields:**", "**See:**")] == [1, 1, 1]
    (fields,) = re.findall(r"\*\*Fields:\*\* (.*?)\n- ", ENTRIES[entry], re.S)
    for name in re.findall(r"`([^`]+)`", fields.partition("rlviz ")[2]):
        assert name in declarations(TrainSettings) or name in ELSEWHERE or find_algorithm(name), name
    for file, sections in re.findall(r"\]\((\d\d_\w+\.ipynb)\), sections? ([\d and]+)", ENTRIES[entry]):
        source = (PAGE.parent / file).read_text(encoding="utf-8")
        assert all(f'"## {number} · ' in source for number in re.findall(r"\d+", sections)), file


def test_on_the_site_a_call_is_a_link_to_the_picture_in_its_state_and_a_rule_stands_under_its_symptom():
    links = dict(re.findall(r'<a href="\.\./explorers/(\S+?)"><code>(explore_.*?)</code>', SHOWN))
    assert "`explore_" not in SHOWN and len(re.findall(r"<code>explore_", SHOWN)) == TEXT.count("`explore_")
    assert "kl.html#kl.show=estimators%3A+value&amp;kl.distance=2.0" in links
    entries = {part.partition("\n")[0]: part for part in re.split(r"^## ", SHOWN, flags=re.M)}
    for rule in RULES:
        assert bool(rule.symptom) == (re.sub(r"{[^}]*}", "…", rule.seen) in entries.get(rule.symptom, "")), rule.name
