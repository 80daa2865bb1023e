"""A taste in a page: the fit is Python's, the interval is Wilson's, an order is by chance alone, and files are read by both."""

from __future__ import annotations

import json
import random

import pytest

from small_models.tasks import Sentences
from small_models.tasks.sentences import WORDS
from small_models.taste import Preference, fit_taste, merge_preferences, read_preferences
from tests.page.in_node import evaluate_js
from tests.page.programs import needs_node

pytestmark = needs_node


def ask(code, value):
    return evaluate_js("taste", code, value)


def judged(count, seed):
    rng, task = random.Random(seed), Sentences()
    pairs = []
    while len(pairs) < count:
        texts = [task.demonstrate("", rng) for _ in range(2)]
        if rng.random() < 0.2:
            texts[0] = " " + " ".join(rng.choices(WORDS, k=5))  # no sentence
        if texts[0] != texts[1]:
            pairs.append(Preference(rng.choice(task.train_prompts), *texts, equal=rng.random() < 0.1))
    return pairs


@pytest.mark.parametrize(("count", "prior", "more"), [(1, 1.0, False), (40, 1.0, True), (200, 3.0, True)])
def test_the_fit_is_pythons(count, prior, more):
    pairs = judged(count, count)
    expected = fit_taste(pairs, prior=prior, with_sentence=more, with_groups=more)
    how = {"prior": prior, "withSentence": more, "withGroups": more}
    value = {"pairs": [vars(one) for one in pairs], "how": how}
    result = ask("taste.fitTaste(given.pairs, task, given.how)", value)
    assert result["weights"] == pytest.approx(dict(expected.weights), abs=1e-7)
    assert result["deviations"] == pytest.approx(dict(expected.deviations), abs=1e-7)


def test_the_doubt_about_a_pair_is_the_posterior_variance_of_its_difference():
    """Before any pair the posterior is the prior, N(0, 4): of "dog dog" against "cat" 4 · (2² + 1² + (1 / 11)²)."""
    assert ask('taste.fitTaste([], task, { prior: 2 }).doubt("dog dog", "cat")', None) == pytest.approx(
        4 * (5 + 1 / 121)
    )


INTERVALS = {
    (6, 8): (0.4093, 0.9285),
    (0, 8): (0.0, 0.3244),
    (8, 8): (0.6756, 1.0),
    (50, 100): (0.4038, 0.5962),
}  # of tables


def test_the_interval_is_wilsons():
    result = ask("given.map(([wins, of]) => taste.wilson(wins, of))", list(INTERVALS))
    for got, expected in zip(result, INTERVALS.values(), strict=True):
        assert got == pytest.approx(expected, abs=1e-4)


def test_how_probable_a_blind_result_is_by_chance():
    """Two tails of the binomial with p = ½: 5 of 5 is 2 / 2⁵, 6 of 8 2 · (28 + 8 + 1) / 2⁸, half of them certain."""
    chances = {(5, 5): 2 / 32, (0, 5): 2 / 32, (6, 6): 2 / 64, (6, 8): 74 / 256, (4, 8): 1.0, (0, 0): 1.0}
    assert ask("given.map(([wins, of]) => taste.signTest(wins, of))", list(chances)) == pytest.approx(
        [*chances.values()]
    )


def test_over_ten_thousand_draws_each_side_comes_first_as_often():
    code = "Array.from({ length: 10000 }, () => taste.shuffled([0, 1, 2]).join(''))"
    orders = ask(code, None)
    for order in ("012", "021", "102", "120", "201", "210"):
        assert abs(orders.count(order) - 10_000 / 6) < 5 * (10_000 * (1 / 6) * (5 / 6)) ** 0.5  # five deviations


FINE = {"prompt": "the little bear", "chosen": " was happy .", "rejected": " was sad ."}
FILES = {
    "": "it holds no pairs: one a line, as JSON with prompt, chosen and rejected",
    "\n{": "line 2: it is no JSON",
    json.dumps({**FINE, "chosen": "was rich ."}): 'line 1: chosen must have words of the task; got "rich"',
    json.dumps({**FINE, "chosen": 3}): "line 1: chosen must be a text",
    json.dumps({**FINE, "rejected": "was happy . "}): "line 1: chosen and rejected must differ",
    json.dumps({**FINE, "equal": "yes"}): "line 1: equal must be true or false",
    "null": "line 1: prompt must be a text",
    (json.dumps(FINE) + "\n") * 10_001: "line 10001: a file holds at most 10,000 pairs; split it",
}


def test_a_file_of_somebody_else_is_refused_in_a_sentence():
    read = (
        "(text) => { try { return taste.readPreferences(text, task).length; } catch (error) { return error.message; } }"
    )
    assert ask(f"given.map({read})", list(FILES)) == list(FILES.values())


def test_what_a_page_saves_python_reads_and_back(tmp_path):
    pairs = judged(30, 5)
    text = ask("taste.writePreferences(given)", [vars(one) for one in pairs])
    (tmp_path / "pairs.jsonl").write_text(text, encoding="utf-8")
    assert read_preferences(tmp_path / "pairs.jsonl") == pairs
    assert ask("taste.readPreferences(given, task)", text) == [vars(one) for one in pairs]


def test_two_judges_of_the_same_pairs_agree_as_python_says():
    first, rng = judged(40, 8), random.Random(3)
    turned = [Preference(one.prompt, one.rejected, one.chosen) if rng.random() < 0.3 else one for one in first[10:]]
    judges = [first, turned, judged(5, 1)]
    merged = merge_preferences(*judges)
    result = ask("taste.agreement(given)", [[vars(one) for one in judge] for judge in judges])
    assert (result["compared"], result["share"]) == (merged.compared, pytest.approx(merged.agreement))
    assert merged.compared == 30 and 0.5 < merged.agreement < 0.9
    assert ask("taste.agreement(given).compared", [[vars(one) for one in first]]) == 0
