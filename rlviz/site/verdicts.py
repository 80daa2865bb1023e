"""The claims of the sources on one page: a card a claim, with outcomes and first effect; unfolded, all parts and the picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from rlviz.markup import Markup, element
from rlviz.site.html import File, page, table
from rlviz.study.claim import Claim, read
from rlviz.study.claims import CLAIMS
from rlviz.study.difference import paired
from rlviz.study.verdict import NEGLIGIBLE, NOT_SEEN, REVERSED, SEEN, Arithmetic, NotTestable, Outcome, Part, Verdict

TITLE = "Which claims were seen on small models?"
SIGNS: dict[
    Outcome, tuple[str, str]
] = {  # outcome → sign and word, the same in every place; the word names its colour, too
    SEEN: ("✓", "seen"),
    NEGLIGIBLE: ("≈", "negligible"),
    NOT_SEEN: ("?", "not seen"),
    REVERSED: ("⇄", "reversed"),
}
COLUMNS = (
    "what came of it",
    "part",
    "a dot a seed, a bar of ± 2 standard errors, grey what is too small",
    "mean (seed to seed)",
    "too small below",
)
WIDTH = 200  # of a spread, in its own units


def verdicts_page(course: Path, reading: Markup) -> File:
    """Return the page of all claims of which the course has trials, judged anew; their pictures stand beside it.

    reading: what the outcomes mean, which is folded there.
    """
    folder = course / "experiments"
    kept = [(claim, folder / f"{claim.name}.csv") for claim in CLAIMS]
    judged = [(claim, claim.judge(read(file))) for claim, file in kept if file.is_file()]
    parts = [part for _, verdict in judged for part in verdict.parts]
    choices = [_choice("all", f"all {len(parts)} measured parts", checked="")]
    choices += [_choice(word, _word(each, parts.count(each)), class_=_named(each)) for each, (_, word) in SIGNS.items()]
    return page(
        "course/experiments/verdicts.html",
        TITLE,
        element("h1", TITLE),
        element(
            "fieldset",
            element("legend", "Show claims with a part that was", class_="quiet"),
            *choices,
            class_="outcomes",
        ),
        element("details", element("summary", "What the words mean, and how many seeds"), reading),
        element("div", *(_card(claim, verdict) for claim, verdict in judged), class_="verdicts"),
    )


def _named(outcome: Outcome) -> str:
    """Return the class that gives an outcome its colour."""
    return SIGNS[outcome][1].replace(" ", "-")


def _word(outcome: Outcome, count: int | str = "") -> str:
    sign, word = SIGNS[outcome]
    return " ".join([sign, *([str(count)] if count else []), word])


def _choice(value: str, words: str, *, class_: str = "", **how: str) -> Markup:
    radio = element("input", type="radio", name="outcome", value=value, **how)
    return element("label", radio, words, class_=class_)


def _card(claim: Claim, verdict: Verdict) -> Markup:
    """Return a claim, folded; its name, to which lessons link, stands inside, and a browser that is sent there unfolds it."""
    outcomes = [outcome for outcome in SIGNS if outcome in verdict.parts]
    strip = [
        element(
            "span",
            _word(each, verdict.parts.count(each)),
            class_=_named(each),
            style=f"flex-grow:{verdict.parts.count(each)}",
        )
        for each in outcomes
    ] or [element("span", "nothing measured; arithmetic")]
    first = next((each for each in verdict.said if isinstance(each, Part)), None)
    effect = element("span", *([*_effect(first), f" {first.words}"] if first else verdict.said[:1]), class_="effect")
    picture = f"{claim.name}.png"
    return element(
        "details",
        element(
            "summary",
            element("img", src=picture, alt="", loading="lazy"),
            element("h2", claim.claim),
            element("span", *strip, class_="strip"),
            effect,
        ),
        element("p", f"Source: {claim.source}. ", element("code", f"rlviz experiment {claim.name}"), id=claim.name),
        table(COLUMNS, _rows(verdict)),
        element("ul", *(element("li", each) for each in verdict.said if isinstance(each, str))),
        element("img", src=picture, alt=f"The trials, drawn: {verdict}.", loading="lazy"),
        class_=" ".join(map(_named, outcomes)),
    )


def _effect(part: Part) -> Iterator[Markup | str]:
    known = [value for value in part.values if not math.isnan(value)]
    if known:
        yield element("b", f"{part.mean:+.3g}")
        yield f" ({min(known):+.3g} to {max(known):+.3g})"
    else:
        yield "nothing to measure"


def _rows(verdict: Verdict) -> Iterator[tuple[object, ...]]:
    for each in verdict.said:
        if isinstance(each, Part):
            word, effect = (
                element("span", _word(each.outcome), class_=_named(each.outcome)),
                element("span", *_effect(each)),
            )
            yield word, each.words, _spread(each), effect, f"{each.smallest:g}"
        elif isinstance(each, Arithmetic):
            yield each.became, each.words, "", f"{each.mean:+.3g}", ""
        elif isinstance(each, NotTestable):
            yield "not testable here", f"{each.words}, for {each.why}", "", "", ""


def _spread(part: Part) -> Markup:
    """Return a part drawn: 0, what is too small to speak of, the mean ± 2 standard errors, and a dot a seed."""
    known = [value for value in part.values if not math.isnan(value)]
    band = paired(known)
    ends = [*known, *(end for end in (band.low, band.high) if not math.isnan(end)), -part.smallest, part.smallest]
    low, high = min(ends), max(ends)

    def x(value: float) -> float:
        return round(4 + (WIDTH - 8) * (value - low) / (high - low), 1)

    marks = [element("line", x1=x(band.low), x2=x(band.high), y1=10, y2=10)] if len(known) > 1 else []
    return element(
        "svg",
        element("rect", x=x(-part.smallest), y=1, width=round(x(part.smallest) - x(-part.smallest), 1), height=18),
        element("path", d=f"M{x(0)} 0V20"),
        *marks,
        *(element("circle", cx=x(value), cy=10, r=3.5) for value in known),
        viewBox=f"0 0 {WIDTH} 20",
        class_=f"spread {_named(part.outcome)}",
        aria_hidden="true",
    )
