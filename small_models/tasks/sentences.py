"""sentences: go on with a sentence, a word a token. A reward names words; no answer is right, and a grammar knows a sentence.

Begin with `Sentences`; `WordReward` is what it pays.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from small_models.checks import check_number, check_type, short_repr
from small_models.tasks.base import Grade, Task

ANIMALS = ("dog", "cat", "bird", "horse", "mouse", "bear", "duck", "frog")
PEOPLE = ("king", "queen", "baker", "teacher", "doctor", "pilot", "farmer", "sailor")
THINGS = ("ball", "book", "letter", "cake", "lamp", "stone", "boat", "key", "spoon", "hat", "piano", "pancake")
HAPPY = ("happy", "kind", "warm", "bright", "lovely", "brave")
SAD = ("sad", "grumpy", "cold", "tired", "lonely", "broken")
PLAIN = ("little", "quiet", "tall", "young", "green", "wooden")
PLACES = ("garden", "house", "river", "forest", "kitchen", "school", "station")
CLASSES: dict[str, tuple[str, ...]] = {  # the letter of a class of words in SENTENCE → its words
    "t": ("the",),
    "u": ("a",),
    "p": ("in", "near"),
    "w": ("was",),
    "y": ("very",),
    "c": ("and",),
    "b": ("but",),
    ".": (".",),
    "n": ANIMALS + PEOPLE + THINGS,
    "j": HAPPY + SAD + PLAIN,
    "o": PLACES,
    "v": ("found", "saw", "lost", "liked", "carried", "followed", "painted", "thanked", "forgot", "admired"),
    "i": ("slept", "sang", "laughed", "cried", "waited", "ran", "danced", "hopped"),
    "a": ("slowly", "quickly", "softly", "loudly", "again", "alone"),
}
GROUPS: dict[str, tuple[str, ...]] = {  # words of a kind, which a reward or a judge may take together
    "happy words": HAPPY,
    "sad words": SAD,
    "animals": ANIMALS,
    "people": PEOPLE,
    "things": THINGS,
    "places": PLACES,
    "plain words": PLAIN,
    "what they do": CLASSES["i"] + CLASSES["v"],
    "how they do it": CLASSES["a"],
}
WORDS = tuple(word for words in CLASSES.values() for word in words)
LETTER_OF = {word: letter for letter, words in CLASSES.items() for word in words}
_PLACE = "(pto)?"
_PREDICATE = f"(v[tu]j?n{_PLACE}|ia?{_PLACE}|wy?j([cb]j)?)"
SENTENCE = re.compile(rf"{_PREDICATE}(c{_PREDICATE})?\.")  # of classes: what may follow "the little bear"
LONGEST = 11  # words of a sentence, its full stop included
SHORT = 6  # words of a short one
OVER = 0.1  # what each word beyond SHORT costs, where short sentences are asked for
TOKENS = ("the", *(f" {word}" for word in WORDS))  # a prompt begins with the first, which nothing stands before


def split_words(text: str) -> list[str]:
    """Return what stands between spaces."""
    return [word for word in text.split(" ") if word]


def is_sentence(text: str) -> bool:
    """Return whether these words, after a subject, are a sentence of the grammar."""
    return SENTENCE.fullmatch("".join(LETTER_OF.get(word, "?") for word in split_words(text))) is not None


@dataclass(frozen=True)
class WordReward:
    """A reward by words, as a number between −1 and 1, less what a long response costs.

    R = min(#liked, enough) / enough − min(#punished, enough) / enough − 0.1 · max(#words − 6, 0) where `short`

    # counts the words of a response. only_sentences: what is no sentence gets nothing for liked words; the rest still costs.
    Raises ValueError for a word that is not in WORDS, one that is liked and punished, and `enough` below 1 or above LONGEST.
    """

    liked: Collection[str] = HAPPY
    punished: Collection[str] = ()
    enough: int = 3
    only_sentences: bool = False
    short: bool = False

    def __post_init__(self) -> None:
        for name, words in (("liked", self.liked), ("punished", self.punished)):
            if (
                isinstance(words, str)
                or not isinstance(words, Collection)
                or any(word not in LETTER_OF for word in words)
            ):
                raise ValueError(f"{name} must be words of the task sentences; got {short_repr(words)}")
        if both := sorted({*self.liked} & {*self.punished}):
            raise ValueError(f"punished must not name a liked word; got {', '.join(both)}")
        check_type("only_sentences", self.only_sentences, bool)
        check_type("short", self.short, bool)
        check_number("enough", self.enough, lambda n: 1 <= n <= LONGEST, f"1 to {LONGEST}", integer=True)

    def __call__(self, response: str) -> dict[str, float]:
        """Return the reward in its parts: liked, and where they are asked for, punished and length."""
        words = split_words(response)
        liked, punished = (
            min(sum(word in group for word in words), self.enough) / self.enough
            for group in (self.liked, self.punished)
        )
        parts = {"liked": liked if not self.only_sentences or is_sentence(response) else 0.0}
        if self.punished:
            parts["punished"] = -punished
        if self.short:
            parts["length"] = -OVER * max(len(words) - SHORT, 0)
        return parts


class Sentences(Task):
    """`the little bear` → ` was happy but tired .`, a word a token. `words` is its reward, by default happy words."""

    name = "sentences"
    description = "a sentence about somebody; happy words are rewarded"
    max_new_tokens = LONGEST + 1
    held_out_share = 0.2

    def __init__(self, words: WordReward | None = None) -> None:
        check_type("words", words, WordReward | None)
        self.words = words or WordReward()

    @property
    def described(self) -> dict[str, Any]:
        changed = {name: value for name, value in vars(self.words).items() if value != getattr(WordReward(), name)}
        lists = {name: list(value) if isinstance(value, Collection) else value for name, value in changed.items()}
        return super().described | lists

    def all_prompts(self) -> list[str]:
        return [f"the {quality} {being}" for quality in HAPPY + SAD + PLAIN for being in ANIMALS + PEOPLE]

    @property
    def has_answers(self) -> bool:
        return False

    def gold(self, prompt: str) -> str:
        """Return "": no answer is right."""
        return ""

    def grade(self, prompt: str, response: str) -> Grade:
        return Grade(format=is_sentence(response), correct=None)

    def reward(self, prompt: str, response: str) -> Mapping[str, float]:
        return self.words(response)

    def demonstrate(self, prompt: str, rng: random.Random) -> str:
        while True:
            words = _predicate(rng) + (["and", *_predicate(rng)] if rng.random() < 0.25 else []) + ["."]
            if len(words) <= LONGEST:
                return "".join(f" {word}" for word in words)


def _predicate(rng: random.Random) -> list[str]:
    """Return a random predicate, by the shares of its kinds that the warm-up shows."""
    kind, one = rng.random(), lambda letter: [rng.choice(CLASSES[letter])]
    place = [*one("p"), "the", *one("o")] if rng.random() < 0.4 else []
    if kind < 0.45:
        return one("v") + one(rng.choice("tu")) + (one("j") if rng.random() < 0.4 else []) + one("n") + place
    if kind < 0.75:
        return one("i") + (one("a") if rng.random() < 0.3 else []) + place
    more = one(rng.choice("cb")) + one("j") if rng.random() < 0.5 else []
    return ["was"] + (["very"] if rng.random() < 0.3 else []) + one("j") + more
