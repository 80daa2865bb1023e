"""What a claim says, part by part, what became of each, and how tables and pictures say it.

Each part is tagged: measured (and then seen, negligible, not seen at this scale or reversed), arithmetic, or not testable here.
A verdict is the list of them; no claim is called seen as a whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from statistics import fmean
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import pandas as pd

from rlviz.study.difference import paired
from small_models.checks import check_number

Outcome = Literal["seen", "negligible", "not seen at this scale", "reversed"]
SEEN, NEGLIGIBLE, NOT_SEEN, REVERSED = OUTCOMES = get_args(Outcome)
P = TypeVar("P", "Part", "Arithmetic")


class Title(NamedTuple):
    """What stands above a panel: `lines`, a sentence each; and at its rows: name of the row → word."""

    lines: list[str]
    rows: dict[str, str]


@dataclass(frozen=True)
class Shown:
    """Where a picture shows a part, and the sentence in the title there: it is true of either sign, and the outcome follows it.

    panel: the name of the axes. says: `0.2 needs [more|fewer] rollouts than {}`; the words left of | are the claim's, those right
    of it are said where the mean is below 0. label: what stands for {}, and behind it the size of the mean in brackets; without
    a label {} is the size. form: how the size is written. base: of the logarithm that the values are; written is its power.
    """

    panel: str
    says: str
    label: str = ""
    _: KW_ONLY
    form: str = "{:.3g}"
    base: float | None = None

    def sentence(self, opposite: bool, filling: str) -> str:
        """Return the sentence of one sign."""
        return re.sub(r"\[(.*?)\|(.*?)\]", lambda either: either[1 + opposite], self.says).format(filling)

    def size(self, mean: float) -> str:
        """Return a mean as the sentence has it: its size, for the words have the sign."""
        size = self.form.format(abs(mean)) if self.base is None else f"×{self.form.format(self.base ** abs(mean))}"
        return f"{self.label} ({size})" if self.label else size


class _CanBeShown:
    def titled(self: P, panel: str, says: str, label: str = "", **how: Any) -> P:  # type: ignore[misc]
        """Return the part with the place in the picture that shows it, and the sentence of the title there: see `Shown`."""
        return replace(self, shown=Shown(panel, says, label, **how))


@dataclass(frozen=True)
class Part(_CanBeShown):
    """One thing that a claim says, and that is measured: `values`, a number a seed, above 0 where it holds.

    smallest: the smallest effect of interest, in the unit of the values, written down before they are known. claimed: the
    size that the claim names. With the mean over seeds and its band of two standard errors, a part is

    seen        above 0 in every seed, the band too, and the mean at least `smallest` and at least `claimed`
    reversed    below 0 in every seed, the band too, and the mean at most −`smallest`
    negligible  the whole band between −`smallest` and `smallest`
    not seen at this scale  else; and where a seed had nothing to measure, a NaN

    shown: where the picture says so; `titled` adds it. Raises ValueError for fewer than two values, which have no spread, and
    for a `smallest` that is not above 0.
    """

    words: str
    values: Sequence[float] | pd.Series
    smallest: float
    claimed: float = 0.0
    shown: Shown | None = None

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"values must be of two or more seeds, to have a spread; got {len(self.values)}")
        check_number("smallest", self.smallest, lambda number: number > 0, "above 0")
        object.__setattr__(self, "values", tuple(map(float, self.values)))

    @property
    def sign(self) -> int:
        """1 or −1 where all seeds have it and their mean is more than two standard errors from 0, else 0."""
        if len(self._known) < len(self.values) or not paired(self.values).sign:
            return 0
        return int(min(self.values) > 0) - int(max(self.values) < 0)

    @property
    def outcome(self) -> Outcome:
        if len(self._known) < len(self.values):
            return "not seen at this scale"
        if self.sign and self.sign * self.mean >= max(self.smallest, self.claimed if self.sign > 0 else 0.0):
            return "seen" if self.sign > 0 else "reversed"
        return "negligible" if paired(self.values).within(self.smallest) else "not seen at this scale"

    @property
    def mean(self) -> float:
        """The mean over the seeds in which there was something to measure; NaN where there was nothing in any."""
        return paired(self._known).size

    @property
    def became(self) -> str:
        """The outcome, and before it where the sign is the claimed one and only the size is not."""
        smaller = self.sign > 0 and self.outcome == NOT_SEEN
        return f"of the claimed sign but smaller, {self.outcome}" if smaller else self.outcome

    @property
    def _known(self) -> list[float]:
        return [value for value in self.values if not math.isnan(value)]

    def __str__(self) -> str:
        known = self._known
        if not known:
            return f"measured: {self.words}: nothing to measure, {self.became}"
        smallest = f", smallest effect of interest {self.smallest:g}"
        missing = f", not measurable in {len(self.values) - len(known)}" if len(known) < len(self.values) else ""
        span = f"{self.mean:+.3g} (by seed {min(known):+.3g} to {max(known):+.3g}{missing}{smallest})"
        return f"measured: {self.words}: {span}, {self.became}"


@dataclass(frozen=True)
class Arithmetic(_CanBeShown):
    """One thing that a claim says and that no run can contradict, since it follows from definitions; values: how much of it."""

    words: str
    values: Sequence[float] | pd.Series
    _: KW_ONLY
    shown: Shown | None = None
    became: ClassVar[str] = "arithmetic"

    @property
    def mean(self) -> float:
        return fmean(map(float, self.values))

    def __str__(self) -> str:
        return f"arithmetic: {self.words}: {self.mean:+.3g}"


@dataclass(frozen=True)
class NotTestable:
    """One thing that a claim says and that cannot be tested here, and why."""

    words: str
    why: str

    def __str__(self) -> str:
        return f"not testable here: {self.words}, for {self.why}"


KINDS = {Arithmetic: "arithmetic", NotTestable: "not testable here"}
MANY = 4  # parts of one sentence that a title can name
Said: TypeAlias = "Part | Arithmetic | NotTestable | str"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: the parts that it has, and among them texts, numbers that do not count."""

    said: tuple[Said, ...]

    @property
    def parts(self) -> tuple[Outcome, ...]:
        """What was measured came to."""
        return tuple(each.outcome for each in self.said if isinstance(each, Part))

    @property
    def says(self) -> str:
        """The parts and the numbers with their spread, in words."""
        return "; ".join(map(str, self.said)) + "."

    def __str__(self) -> str:
        return in_counts(self.said)


def in_counts(said: Iterable[Said]) -> str:
    """Return how many parts came to what: `2 of 3 measured parts seen, 1 reversed; 1 arithmetic`."""
    said = list(said)
    parts = [each.outcome for each in said if isinstance(each, Part)]
    others = [f"{parts.count(outcome)} {outcome}" for outcome in OUTCOMES[1:] if outcome in parts]
    measured = (
        f"{parts.count(SEEN)} of {len(parts)} measured part{'s' * (len(parts) != 1)} seen"
        if parts
        else "nothing measured"
    )
    tagged = {kind: sum(isinstance(each, of) for each in said) for of, kind in KINDS.items()}
    return "; ".join([", ".join([measured, *others]), *(f"{count} {kind}" for kind, count in tagged.items() if count)])


def judged(*said: Said) -> Verdict:
    """Return the verdict on a claim that says all these parts. Texts are numbers beside them that do not count."""
    return Verdict(said)


def titles(verdict: Verdict) -> dict[str, Title]:
    """Return the title of each panel in which a part is shown.

    Parts of the same sentence, sign and outcome share a line. Of a sentence with more parts than `MANY` the title has the counts,
    and each row its outcome.
    """
    found: dict[str, Title] = {}
    shown = [(each.shown, each) for each in verdict.said if isinstance(each, Part | Arithmetic) and each.shown]
    for says in dict.fromkeys((how.panel, how.says) for how, _ in shown):
        alike = [(how, each) for how, each in shown if (how.panel, how.says) == says]
        title = found.setdefault(says[0], Title([], {}))
        if len(alike) > MANY:
            title.lines.append(f"{alike[0][0].sentence(False, 'these')}: {in_counts(each for _, each in alike)}")
            for how, each in alike:
                if how.label in title.rows:
                    raise ValueError(f"shown: two parts stand at the row {how.label} of {how.panel}; give each a panel")
                title.rows[how.label] = each.became
            continue
        for opposite in dict.fromkeys(each.mean < 0 for _, each in alike):
            of_sign = [(how, each) for how, each in alike if (each.mean < 0) == opposite]
            groups: dict[str, list[str]] = {became: [] for became in dict.fromkeys(each.became for _, each in of_sign)}
            for how, each in of_sign:
                groups[each.became].append(how.size(each.mean))
            first, *others = ((", ".join(sizes), became) for became, sizes in groups.items())
            sentence = f"{of_sign[0][0].sentence(opposite, first[0])}: {first[1]}"
            title.lines.append("; ".join([sentence, *(f"{sizes}: {became}" for sizes, became in others)]))
    return found
