"""The task of sentences: its grammar against an enumeration by word classes, its reward by hand, its words and its policy."""

import random
from itertools import product

import pytest

from small_models.policies import build_policy
from small_models.tasks import Sentences, WordReward
from small_models.tasks.sentences import CLASSES, HAPPY, LONGEST, SAD, SHORT, TOKENS, WORDS, is_sentence

TASK = Sentences()
FIRST = {letter: words[0] for letter, words in CLASSES.items()}  # a word of each class


def predicates():
    """Yield every predicate of the grammar, a word a class: three kinds, each with all that may be left out."""
    place = [[], ["in", "the", "garden"]]
    for article, quality, where in product(("the", "a"), ([], ["sad"]), place):
        yield ["found", article, *quality, "dog", *where]
    for how, where in product(([], ["slowly"]), place):
        yield ["slept", *how, *where]
    for very, more in product(([], ["very"]), ([], ["and", "sad"], ["but", "sad"])):
        yield ["was", *very, "sad", *more]


def classes_of(words):
    return tuple(next(letter for letter, members in CLASSES.items() if word in members) for word in words)


ALL = {classes_of([*one, "."]) for one in predicates()}
ALL |= {classes_of([*one, "and", *other, "."]) for one in predicates() for other in predicates()}


def test_sentences_are_those_of_the_enumeration_and_one_more_or_less_word_breaks_them():
    rng = random.Random(0)
    for letters in rng.sample(sorted(ALL), 120):
        words = [rng.choice(CLASSES[one]) for one in letters]
        assert is_sentence(" ".join(words))
        for at in range(len(words)):
            shorter = words[:at] + words[at + 1 :]
            assert is_sentence(" ".join(shorter)) == (classes_of(shorter) in ALL)
            longer = [*words[:at], rng.choice(WORDS), *words[at:]]
            assert is_sentence(" ".join(longer)) == (classes_of(longer) in ALL)


def test_classes_share_no_word_and_every_word_is_a_token():
    assert len(set(WORDS)) == len(WORDS) == sum(map(len, CLASSES.values())) and 80 <= len(WORDS) <= 95
    assert ("the", *(f" {word}" for word in WORDS)) == TOKENS
    assert not any(
        is_sentence(text) for text in ("", "was", "was happy", "was happy . .", "Was happy .", "was happy .\nx")
    )


REWARDS = {  # reward → text → its parts
    WordReward(): {
        "was happy and kind .": {"liked": 2 / 3},
        "happy happy happy happy": {"liked": 1},
        "was sad .": {"liked": 0},
        "": {"liked": 0},
    },
    WordReward(HAPPY, SAD, enough=1): {
        "was happy but sad .": {"liked": 1, "punished": -1},
        "was sad and cold .": {"liked": 0, "punished": -1},
    },
    WordReward(("dog",), enough=2, only_sentences=True): {"saw a dog .": {"liked": 0.5}, "dog dog": {"liked": 0}},
    WordReward(("dog",), ("cat",), enough=1, only_sentences=True): {"dog cat": {"liked": 0, "punished": -1}},
    WordReward((), short=True): {
        "a " * SHORT: {"liked": 0, "length": 0},
        "a " * (SHORT + 3): {"liked": 0, "length": -0.3},
    },
}


def test_rewards_by_hand():
    for reward, texts in REWARDS.items():
        for text, parts in texts.items():
            assert Sentences(reward).reward("the little bear", text) == reward(text) == pytest.approx(parts), text


def test_what_makes_no_sense_is_refused():
    for fields, why in (
        ({"liked": ["hapy"]}, r"liked must be words of the task sentences; got \['hapy'\]"),
        ({"liked": "happy"}, "liked must be words of the task sentences; got 'happy'"),
        ({"liked": ["sad"], "punished": SAD}, "punished must not name a liked word; got sad"),
        ({"enough": 0}, "enough must be"),
    ):
        with pytest.raises(ValueError, match=why):
            WordReward(**fields)
    for tokens in ([], ["a", "a"], [""], [1]):
        with pytest.raises(ValueError, match="tokens must be different texts, at least one; got"):
            build_policy(tokens=tokens, device="cpu")


def test_prompts_name_a_subject_and_demonstrations_are_sentences_that_fit():
    rng = random.Random(1)
    assert len(TASK.all_prompts()) == 288 and len(TASK.held_out_prompts) == 58
    texts = [TASK.demonstrate("", rng) for _ in range(1500)]
    assert all(is_sentence(text) and len(text.split()) <= LONGEST for text in texts)
    assert {word for text in texts for word in text.split()} == {*WORDS}
    assert TASK.grade("", texts[0]).format and TASK.grade("", texts[0]).correct is None
    best = "was happy and kind and was warm ."
    assert is_sentence(best) and TASK.score("", best).reward == 1 and not TASK.has_accuracy
