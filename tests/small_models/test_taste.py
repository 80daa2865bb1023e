"""A judge's taste: the fit against torch's own loss, files of judged pairs, simulated judges."""

import json
import math
import random

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

from small_models.pairs import Pair, encode_pairs, read_pairs, write_pairs
from small_models.policies import load_policy
from small_models.tasks.sentences import WORDS, Sentences
from small_models.taste import (
    GROUPS,
    Preference,
    SimulatedJudge,
    features,
    fit_taste,
    merge_preferences,
    read_preferences,
    true_taste,
)

PROMPT = "the little bear"
CALM, LOUD, SHORT = " was kind .", " was grumpy .", " slept ."
BETTER, SAME = Preference(PROMPT, CALM, LOUD), Preference(PROMPT, LOUD, SHORT, equal=True)
GOOD = {"prompt": PROMPT, "chosen": CALM, "rejected": LOUD}


def preferences_at_random(count, seed=0):
    """Return preferences between demonstrations, by a judge who tosses a coin, some of them equal."""
    rng = random.Random(seed)
    texts = [Sentences().demonstrate(PROMPT, rng) for _ in range(3 * count)] + [" was was .", " the the"]
    return [Preference(PROMPT, *rng.sample([*dict.fromkeys(texts)], 2), equal=rng.random() < 0.2) for _ in range(count)]


def test_features_are_counts_of_words_and_groups_length_and_sentencehood():
    words = {"was": 1, "kind": 2, "but": 1, ".": 1}
    assert features(" was kind but kind .") == words | {"happy words": 2, "length": 5 / 11, "sentence": 1}
    assert features("") == {"length": 0, "sentence": 0}


# a thousand against ten: whole steps of Newton's method go to and fro between two places for ever
LOPSIDED = (
    *[Preference(PROMPT, " kind", "")] * 1000,
    *[Preference(PROMPT, 2 * " again", 11 * " kind")] * 10,
    Preference(PROMPT, 8 * " again", ""),
)
CASES = [
    (preferences_at_random(25), 0.7, {}),
    (preferences_at_random(3), 100.0, {"with_groups": True}),
    (preferences_at_random(300), 1.0, {"with_sentence": True}),
    (LOPSIDED, 1.0, {}),
]


@pytest.mark.parametrize(("preferences", "prior", "more"), CASES, ids=range(4))
def test_at_the_fit_torch_s_cross_entropy_has_no_slope_and_the_curvature_of_the_deviations(preferences, prior, more):
    """The loss is convex, so that no slope is its least; its Hessian is autograd's."""
    taste = fit_taste(preferences, prior=prior, **more)
    extra = {"with_sentence": ["sentence"], "with_groups": [*GROUPS]}
    names = [*WORDS, "length", *(name for option in more for name in extra[option])]
    assert [*taste.weights] == names == [*taste.deviations]
    phi = [[features(text) for text in (judged.chosen, judged.rejected)] for judged in preferences]
    rows = [[a.get(name, 0) - b.get(name, 0) for name in taste.weights] for a, b in phi]
    differences = torch.tensor(rows, dtype=torch.double)
    y = torch.tensor([1 - judged.equal / 2 for judged in preferences], dtype=torch.double)

    def loss(w):
        return cross_entropy(differences @ w, y, reduction="sum") + (w / prior).square().sum() / 2

    w, deviations = (torch.tensor([*part.values()], dtype=torch.double) for part in (taste.weights, taste.deviations))
    assert torch.autograd.functional.jacobian(loss, w).norm() < 2e-9 < w.norm()
    torch.testing.assert_close(torch.autograd.functional.hessian(loss, w).inverse().diagonal().sqrt(), deviations)


def test_what_cannot_be_fitted_or_judged_is_refused():
    with pytest.raises(ValueError, match=r"prior must be .*0\.01 to 100.*got 0"):
        fit_taste([BETTER], prior=0.0)
    with pytest.raises(ValueError, match=r"mistakes must be .*0 to below 0\.5.*got 0\.5"):
        SimulatedJudge(mistakes=0.5)
    with pytest.raises(ValueError, match="prompt must not be empty"):
        Preference("", CALM, LOUD)
    with pytest.raises(ValueError, match="two different texts"):
        SimulatedJudge().judge({PROMPT: [CALM, CALM], "the sad king": [SHORT, " thethe ."]}, 1, seed=0)


def test_files_are_pairs_that_dpo_reads_too(tmp_path):
    path = tmp_path / "judged.jsonl"
    write_pairs([BETTER, SAME], path)
    equal = {"prompt": PROMPT, "chosen": LOUD, "rejected": SHORT, "equal": True}
    assert [json.loads(line) for line in path.read_text().splitlines()] == [GOOD, equal]
    assert read_preferences(path) == [BETTER, SAME]
    assert read_pairs(path) == [Pair(PROMPT, CALM, LOUD)]
    with pytest.raises(ValueError, match="pairs must prefer one response; leave out those that are equal"):
        encode_pairs(load_policy("sentences", device="cpu"), read_preferences(path))


BROKEN = (
    ([GOOD, GOOD | {"chosen": " was elated ."}], "line 2: chosen must have words of the task sentences; got 'elated'"),
    ([GOOD, GOOD | {"rejected": "was  kind ."}], "line 2: chosen and rejected must differ; both are ' was kind .'"),
    ([GOOD | {"equal": "yes"}], "line 1: .*equal"),
    ([{"prompt": PROMPT, "chosen": CALM}], "line 1 lacks rejected"),
    ([], "holds no pairs"),
)


@pytest.mark.parametrize(("lines", "words"), BROKEN)
def test_a_file_by_somebody_else_is_refused_in_a_sentence(lines, words, tmp_path):
    path = tmp_path / "judged.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ValueError, match=words) as refused:
        read_preferences(path)
    assert "judged.jsonl" in str(refused.value) and "\n" not in str(refused.value)


def test_merging_counts_how_often_two_judges_agree():
    """Pair 1: the same by both, though turned and spaced otherwise; pair 2: a contradiction; pair 3: equal against chosen."""
    first = [BETTER, Preference(PROMPT, CALM, SHORT), SAME]
    second = [Preference(PROMPT, "was kind .", LOUD), Preference(PROMPT, SHORT, CALM), Preference(PROMPT, LOUD, SHORT)]
    merged = merge_preferences(first, second, [Preference("the sad king", CALM, LOUD)])
    assert merged.preferences == [*first, *second, Preference("the sad king", CALM, LOUD)]
    assert (merged.compared, merged.agreement) == (3, 1 / 3)
    assert merge_preferences(first, second, first[:1]).agreement == 3 / 5  # pair 1 has three judges, who all agree
    assert math.isnan(merge_preferences(first).agreement)


def test_the_simulated_taste_by_hand():
    ten_words = " was happy but kind and found a warm cat ."
    assert true_taste(PROMPT, ten_words) == pytest.approx(2 + 1 - 0.1 * 3)
    assert true_taste(PROMPT, " was sad and liked a dog .") == 1 - 1
    assert true_taste(PROMPT, " happy happy") == -1


def test_a_simulated_judge_errs_as_often_as_its_formula_says():
    """CALM is worth 1, SHORT 0: σ(2) = .8808, and with a fifth of mistakes .2 + .6 · .8808 = .7285; 4 standard errors."""
    for mistakes, chance in ((0.0, 0.8808), (0.2, 0.7285)):
        judge = SimulatedJudge(mistakes=mistakes)
        assert judge.prefers(PROMPT, CALM, SHORT) == pytest.approx(chance, abs=1e-4)
        preferences = judge.judge({PROMPT: [CALM, SHORT, SHORT], "the sad king": [SHORT]}, 4000, seed=1)
        share = sum(judged.chosen == CALM for judged in preferences) / 4000
        assert abs(share - chance) < 4 * math.sqrt(chance * (1 - chance) / 4000)
        assert preferences == judge.judge({PROMPT: [CALM, SHORT]}, 4000, seed=1)
