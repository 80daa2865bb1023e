"""The claims of the sources on one page: a card a claim, with outcomes and first effect; unfolded, every effect and its seeds."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from rlviz.markup import Markup, element
from rlviz.site.html import File, page, table
from rlviz.study.claims import CLAIMS
from rlviz.study.effects import MEASURED, NEGLIGIBLE, NOT_SEEN, NOT_TESTABLE, REVERSED, SEEN, Claim, Effect
from rlviz.study.verdicts import read_trials

TITLE = "Which claims were seen on small models?"
SIGNS = {  # outcome → sign and word, the same in every place; the word names its colour, too
    SEEN: ("✓", "seen"),
    NEGLIGIBLE: ("≈", "negligible"),
    NOT_SEEN: ("?", "not seen"),
    REVERSED: ("⇄", "reversed"),
}
DRAWN = "a dot a seed, a bar of ± 2 standard errors, grey what is too small"
COLUMNS = ("what came of it", "part", DRAWN, "mean (seed to seed)", "too small below")
WIDTH = 200  # of a spread, in its own units


def verdicts_page(course: Path, reading: Markup) -> File:
    """Return the page of all claims of which the course has trials, judged anew.

    reading: what the outcomes mean, which is folded there.
    """
    files = {claim: course / "experiments" / f"{claim.name}.csv" for claim in CLAIMS}
    frames = {claim: read_trials(file) for claim, file in files.items() if file.is_file()}
    cards = [(claim, claim.effects(frame), claim.numbers(frame)) for claim, frame in frames.items()]
    outcomes = [effect.outcome for _, effects, _ in cards for effect in effects if effect.kind == MEASURED]
    choices = [outcome_choice("all", f"all {len(outcomes)} measured parts", checked="")]
    for outcome, (_, word) in SIGNS.items():
        choices.append(
            outcome_choice(word, outcome_word(outcome, outcomes.count(outcome)), class_=outcome_class(outcome))
        )
    legend = element("legend", "Show claims with a part that was", class_="quiet")
    return page(
        "course/experiments/verdicts.html",
        TITLE,
        element("h1", TITLE),
        element("fieldset", legend, *choices, class_="outcomes"),
        element("details", element("summary", "What the words mean, and how many seeds"), reading),
        element("div", *(claim_card(*card) for card in cards), class_="verdicts"),
    )


def outcome_class(outcome: str) -> str:
    """Return the class that gives an outcome its colour."""
    return SIGNS[outcome][1].replace(" ", "-")


def outcome_word(outcome: str, count: int | str = "") -> str:
    sign, word = SIGNS[outcome]
    return f"{sign} {count} {word}" if count else f"{sign} {word}"


def outcome_choice(value: str, words: str, *, class_: str = "", **attributes: str) -> Markup:
    radio = element("input", type="radio", name="outcome", value=value, **attributes)
    return element("label", radio, words, class_=class_)


def claim_card(claim: Claim, effects: list[Effect], numbers: list[str]) -> Markup:
    """Return a claim, folded; its name, to which lessons link, stands inside, and a browser that is sent there unfolds it."""
    measured = [effect for effect in effects if effect.kind == MEASURED]
    count = Counter(effect.outcome for effect in measured)
    strip = [
        element(
            "span",
            outcome_word(outcome, count[outcome]),
            class_=outcome_class(outcome),
            style=f"flex-grow:{count[outcome]}",
        )
        for outcome in SIGNS
        if outcome in count
    ] or [element("span", "nothing measured; arithmetic")]
    first = (measured or effects)[0]
    effect = element("span", *effect_size(first), f" {first.words}", class_="effect")
    return element(
        "details",
        element("summary", element("h2", claim.says), element("span", *strip, class_="strip"), effect),
        element("p", f"Source: {claim.source}. ", element("code", f"rlviz experiment {claim.name}"), id=claim.name),
        table(COLUMNS, [*map(effect_row, effects), *((NOT_TESTABLE, note, "", "", "") for note in claim.notes)]),
        element("ul", *(element("li", line) for line in numbers)) if numbers else "",
        class_=" ".join(outcome_class(outcome) for outcome in SIGNS if outcome in count),
    )


def effect_size(effect: Effect) -> list[Markup | str]:
    known = effect.known
    if not known:
        return ["nothing to measure"]
    seeds = f" ({min(known):+.3g} to {max(known):+.3g})" if effect.kind == MEASURED else ""
    return [element("b", f"{effect.mean:+.3g}"), seeds]


def effect_row(effect: Effect) -> tuple[object, ...]:
    size = element("span", *effect_size(effect))
    if effect.kind != MEASURED:
        return effect.outcome, effect.words, "", size, ""
    outcome = element("span", outcome_word(effect.outcome), class_=outcome_class(effect.outcome))
    return outcome, effect.words, spread_drawing(effect), size, f"{effect.smallest:g}"


def spread_drawing(effect: Effect) -> Markup:
    """Return an effect drawn: 0, what is too small to matter, the mean ± 2 standard errors, and a dot a seed."""
    known, band, smallest = effect.known, effect.interval, effect.smallest
    ends = [*known, *(end for end in (band.low, band.high) if not math.isnan(end)), -smallest, smallest]
    low, high = min(ends), max(ends)

    def x(value: float) -> float:
        return round(4 + (WIDTH - 8) * (value - low) / (high - low), 1)

    return element(
        "svg",
        element("rect", x=x(-smallest), y=1, width=round(x(smallest) - x(-smallest), 1), height=18),
        element("path", d=f"M{x(0)} 0V20"),
        element("line", x1=x(band.low), x2=x(band.high), y1=10, y2=10) if len(known) > 1 else "",
        *(element("circle", cx=x(value), cy=10, r=3.5) for value in known),
        viewBox=f"0 0 {WIDTH} 20",
        class_=f"spread {outcome_class(effect.outcome)}",
        aria_hidden="true",
    )
