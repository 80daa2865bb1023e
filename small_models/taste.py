"""A judge's taste: pairs of sentences that somebody judged, and a Bradley–Terry model of them, which is a reward.

Begin with `fit_taste`. `read_preferences` and `merge_preferences` are for files, `SimulatedJudge` for a taste that is known.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch

from small_models.checks import check_at_least, check_not_empty, check_number, checked, short_repr
from small_models.pairs import Pair, read_pairs_as
from small_models.tasks.sentences import ANIMALS, GROUPS, HAPPY, LONGEST, SAD, WORDS, is_sentence, split_words

LENGTH, SENTENCE = "length", "sentence"  # features beside the words
GROUP_OF = {word: group for group, words in GROUPS.items() for word in words}
GRADIENT, NEWTON_STEPS = 1e-9, 50  # the fit ends at this norm of the gradient, or after so many steps
SHARPNESS = 2.0  # of a simulated judge, per unit of taste
SHORT = 7  # words, full stop included, that a simulated judge reads without getting tired


@dataclass(frozen=True)
class Preference(Pair):
    """Two different responses to a prompt of the task sentences, of which a judge chose one; equal: it found neither better.

    Raises ValueError for a word that the task does not have, and for responses of the same words.
    """

    equal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("prompt", "chosen", "rejected"):
            if unknown := set(split_words(getattr(self, name))).difference(WORDS):
                raise ValueError(f"{name} must have words of the task sentences; got {short_repr(min(unknown))}")
        if split_words(self.chosen) == split_words(self.rejected):
            raise ValueError(f"chosen and rejected must differ; both are {short_repr(self.chosen)}")


def features(response: str) -> dict[str, float]:
    """Return φ by name: how often each word and each of `GROUPS` stands in a response, #words / `LONGEST`, 1 for a sentence.

    A count of 0 is left out.
    """
    words = split_words(response)
    groups = Counter(GROUP_OF[word] for word in words if word in GROUP_OF)
    return {**Counter(words), **groups, LENGTH: len(words) / LONGEST, SENTENCE: float(is_sentence(response))}


@dataclass(frozen=True)
class Taste:
    """A reward w · φ(response). weights, deviations: feature → its weight w, and the standard deviation of its posterior."""

    weights: Mapping[str, float]
    deviations: Mapping[str, float]

    def __call__(self, prompt: str, response: str) -> float:
        return sum(self.weights.get(name, 0.0) * value for name, value in features(response).items())


@checked
def fit_taste(
    preferences: Sequence[Preference], *, prior: float = 1.0, with_sentence: bool = False, with_groups: bool = False
) -> Taste:
    """Fit P(a preferred to b) = σ(w · (φ(a) − φ(b))), Bradley and Terry's model, by its maximum a posteriori.

    w maximises Σ [y log σ + (1 − y) log(1 − σ)] − |w|² / (2 prior²), y = 1 for the chosen response and ½ for equal ones.
    Deviations are roots of the inverse Hessian's diagonal. Features are words and length; with_sentence: and
    "is it a sentence", which pairs of sentences alone say nothing of; with_groups: and `GROUPS`, with which few pairs say more.
    Raises ValueError for no preferences, and for a prior outside 0.01 to 100.
    """
    check_not_empty("preferences", preferences)
    check_number("prior", prior, lambda deviation: 0.01 <= deviation <= 100, "from 0.01 to 100")
    names = (*WORDS, LENGTH, *([SENTENCE] if with_sentence else []), *(GROUPS if with_groups else []))
    phi = [[features(text) for text in (judged.chosen, judged.rejected)] for judged in preferences]
    rows = [[a.get(name, 0) - b.get(name, 0) for name in names] for a, b in phi]
    differences = torch.tensor(rows, dtype=torch.double)
    labels = torch.tensor([0.5 if judged.equal else 1.0 for judged in preferences], dtype=torch.double)

    def gradient(w: torch.Tensor) -> torch.Tensor:
        return differences.T @ (labels - (differences @ w).sigmoid()) - w / prior**2

    w, precision = torch.zeros(len(names), dtype=torch.double), torch.eye(len(names), dtype=torch.double) / prior**2
    for step in range(NEWTON_STEPS + 1):
        p = (differences @ w).sigmoid()
        information = differences.T @ (differences * (p * (1 - p)).unsqueeze(1)) + precision
        slope = gradient(w)
        if slope.norm() <= GRADIENT or step == NEWTON_STEPS:
            break
        move = torch.linalg.solve(information, slope)
        # A whole step can overshoot, where many pairs say the same and a few contradict them.
        while gradient(w + move).norm() > slope.norm():
            move = move / 2
        w = w + move
    deviations = torch.linalg.inv(information).diagonal().sqrt()
    return Taste(dict(zip(names, w.tolist(), strict=True)), dict(zip(names, deviations.tolist(), strict=True)))


def read_preferences(path: str | os.PathLike[str]) -> list[Preference]:
    """Read judged pairs, JSON lines with prompt, chosen, rejected and, where neither is better, `"equal": true`.

    `pairs.read_pairs` reads the same file without equal ones, and `pairs.write_pairs` writes it. Raises ValueError that names
    file, line and what is wrong there, and for a file without a pair.
    """
    return read_pairs_as(Preference, path, with_equal=True)


@dataclass(frozen=True)
class Merged:
    """Several judges' preferences, and how often two judges of the same pair agree.

    compared: how many times two judges judged the same pair. agreement: the share in which they said the same; NaN for none.
    """

    preferences: list[Preference]
    compared: int
    agreement: float


def merge_preferences(*judges: Sequence[Preference]) -> Merged:
    """Merge the preferences of several judges; of a pair that one of them judged twice, the last answer is compared."""
    answers: dict[tuple[str, frozenset[str]], dict[int, str]] = defaultdict(dict)
    for number, preferences in enumerate(judges):
        for judged in preferences:
            chosen, rejected = (" ".join(split_words(text)) for text in (judged.chosen, judged.rejected))
            answers[judged.prompt, frozenset((chosen, rejected))][number] = "equal" if judged.equal else chosen
    same = [first == second for pair in answers.values() for first, second in combinations(pair.values(), 2)]
    return Merged([judged for one in judges for judged in one], len(same), sum(same) / len(same) if same else math.nan)


def true_taste(prompt: str, response: str) -> float:
    """Return the taste of the simulated judge: −1 for what is no sentence, else

    min(#happy words, 2) + min(#animals, 1) − #sad words − 0.1 · max(#words − 7, 0).
    """
    words = split_words(response)
    if not is_sentence(response):
        return -1.0
    happy, animals, sad = (sum(word in group for word in words) for group in (HAPPY, ANIMALS, SAD))
    return min(happy, 2) + min(animals, 1) - sad - 0.1 * max(len(words) - SHORT, 0)


@dataclass(frozen=True)
class SimulatedJudge:
    """A judge with a known taste r: P(a preferred to b) = m + (1 − 2m) σ(2 (r(a) − r(b))), m its share of `mistakes`.

    taste: a function of prompt and response. Raises ValueError for mistakes outside 0 to below 0.5.
    """

    taste: Callable[[str, str], float] = true_taste
    mistakes: float = 0.0

    def __post_init__(self) -> None:
        check_number("mistakes", self.mistakes, lambda share: 0 <= share < 0.5, "from 0 to below 0.5")

    def prefers(self, prompt: str, first: str, second: str) -> float:
        """Return the probability that the first response is preferred."""
        margin = SHARPNESS * (self.taste(prompt, first) - self.taste(prompt, second))
        return self.mistakes + (1 - 2 * self.mistakes) / (1 + math.exp(-margin))

    def judge(self, responses: Mapping[str, Sequence[str]], count: int, *, seed: int) -> list[Preference]:
        """Judge `count` pairs of different responses to the same prompt, drawn at random. responses: prompt → texts.

        A text with a word that the task does not have, such as "wasthe", is passed over.
        Raises ValueError where no prompt has two different responses.
        """
        check_at_least(1, count=count)
        usable = {
            prompt: [text for text in dict.fromkeys(texts) if set(split_words(text)) <= {*WORDS}]
            for prompt, texts in responses.items()
        }
        different = {prompt: texts for prompt, texts in usable.items() if len(texts) > 1}
        if not different:
            raise ValueError("responses must hold two different texts to a prompt; got none")
        rng, preferences = random.Random(seed), list[Preference]()
        for _ in range(count):
            prompt = rng.choice(list(different))
            first, second = rng.sample(different[prompt], 2)
            is_first = rng.random() < self.prefers(prompt, first, second)
            preferences.append(Preference(prompt, *((first, second) if is_first else (second, first))))
        return preferences
