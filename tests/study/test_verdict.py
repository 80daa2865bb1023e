"""What becomes of a claim's part: the rule, and the words of it in the table and in a picture's title."""

import math

import pytest

from rlviz.study.verdict import OUTCOMES, Arithmetic, NotTestable, Part, Shown, in_counts, judged, titles

SEEN, NEGLIGIBLE, NOT_SEEN, REVERSED = OUTCOMES


@pytest.mark.parametrize(
    ("values", "smallest", "claimed", "outcome"),
    [
        ((1.0, 2.0, 3.0), 0.5, 0.0, SEEN),  # mean 2, std 1, two standard errors 2/√3 = 1.15
        ((-1.0, -2.0, -3.0), 0.5, 0.0, REVERSED),
        ((1.0, -2.0, 3.0), 0.5, 0.0, NOT_SEEN),
        ((0.1, 0.1, 4.0), 0.01, 0.0, NOT_SEEN),  # all above 0; mean 1.4, std 2.25, two standard errors 2.6
        ((-0.1, -0.1, -4.0), 0.01, 0.0, NOT_SEEN),
        ((1.0, 2.0, 3.0), 0.5, 2.1, NOT_SEEN),  # too small for what was claimed
        ((1.0, 2.0, 3.0), 0.5, 2.0, SEEN),
        ((-1.0, -2.0, -3.0), 0.5, 2.1, REVERSED),
        ((1.0, 2.0, 3.0), 2.0, 0.0, SEEN),
        ((1.0, 2.0, 3.0), 2.1, 0.0, NOT_SEEN),  # a sign, and too small; but it may be as large as 3.15
        ((-1.0, -2.0, -3.0), 2.1, 0.0, NOT_SEEN),
        ((1.0, 2.0, 3.0), 3.2, 0.0, NEGLIGIBLE),  # the band ends at 2 + 1.1547
        ((-1.0, -2.0, -3.0), 3.2, 0.0, NEGLIGIBLE),
        ((1.0, 2.0, 3.0), 3.15, 0.0, NOT_SEEN),
        ((0.1, -0.1, 0.0), 0.2, 0.0, NEGLIGIBLE),  # mean 0, std .1, two standard errors .115
        ((0.1, -0.1, 0.0), 0.11, 0.0, NOT_SEEN),
        ((1.0,) * 9 + (-0.1,), 0.1, 0.0, NOT_SEEN),  # one seed says no; mean .89, std .35, two standard errors .22
        ((-1.0,) * 9 + (0.1,), 0.1, 0.0, NOT_SEEN),
        ((0.0, 0.0), 0.1, 0.0, NEGLIGIBLE),
        ((0.5, 0.5), 0.1, 0.0, SEEN),  # no spread at all
        ((1.0, 2.0, math.nan), 0.5, 0.0, NOT_SEEN),
        ((math.nan, 1.0, 2.0), 5.0, 0.0, NOT_SEEN),
        ((-1.0, -2.0, math.nan), 0.5, 0.0, NOT_SEEN),
        ((math.nan, math.nan), 0.5, 0.0, NOT_SEEN),
    ],
)
def test_the_rule(values, smallest, claimed, outcome):
    part = Part("words", values, smallest=smallest, claimed=claimed)
    assert part.outcome == outcome
    assert str(part).startswith("measured: words: ") and str(part).endswith(outcome)


def test_the_words_say_numbers_spread_and_outcome():
    def said(*values, **others):
        return str(Part("tokens", values, smallest=0.5, **others))

    assert said(1.0, 2.0, 3.0) == "measured: tokens: +2 (by seed +1 to +3, smallest effect of interest 0.5), seen"
    assert said(1.0, math.nan) == (
        "measured: tokens: +1 (by seed +1 to +1, not measurable in 1, smallest effect of interest 0.5), not seen at this scale"
    )
    assert said(1.0, 2.0, 3.0, claimed=2.5).endswith(", of the claimed sign but smaller, not seen at this scale")
    assert said(1.0, -2.0, 3.0, claimed=2.5).endswith("of interest 0.5), not seen at this scale")
    assert said(0.1, 0.2).endswith("of interest 0.5), negligible")
    assert said(math.nan, math.nan) == "measured: tokens: nothing to measure, not seen at this scale"


def test_a_verdict_is_the_list_of_what_was_measured():
    up, flat, down, small = (
        Part(words, values, smallest=0.5)
        for words, values in {"up": (1, 1), "flat": (1, -1), "down": (-1, -1), "small": (0.1, 0.1)}.items()
    )
    by_definition, elsewhere = Arithmetic("sums", (2.0, 4.0)), NotTestable("a large model", "there is none")
    assert judged(up).parts == (SEEN,) and str(judged(up)) == "1 of 1 measured part seen"
    assert judged(up, flat, small, down, down).parts == (SEEN, NOT_SEEN, NEGLIGIBLE, REVERSED, REVERSED)
    assert str(judged(up, flat, small, down, down)) == (
        "1 of 5 measured parts seen, 1 negligible, 1 not seen at this scale, 2 reversed"
    )
    verdict = judged(up, by_definition, elsewhere, "a number")
    assert verdict.parts == (SEEN,)  # the others do not count
    assert str(verdict) == "1 of 1 measured part seen; 1 arithmetic; 1 not testable here"
    assert verdict.says == (
        f"{up}; arithmetic: sums: +3; not testable here: a large model, for there is none; a number."
    )
    assert str(judged(by_definition)) == "nothing measured; 1 arithmetic"
    assert in_counts([*verdict.said, down, by_definition]) == (
        "1 of 2 measured parts seen, 1 reversed; 2 arithmetic; 1 not testable here"
    )


def test_a_title_is_made_of_the_parts_alone():
    def part(label, *values, says="a needs [more|fewer] steps than {}", **others):
        return Part(label, values, smallest=0.5, shown=Shown("left", says, label, **others))

    def lines(*parts):
        return titles(judged(*parts))["left"].lines

    up, down = part("b", 1, 2, 3), part("b", -1, -2, -3)
    assert lines(up) == ["a needs more steps than b (2): seen"]
    assert lines(down) == ["a needs fewer steps than b (2): reversed"]
    assert lines(up, part("c", 1, 3), part("d", 0.1, 0.2)) == [
        "a needs more steps than b (2): seen; c (2): not seen at this scale; d (0.15): negligible"
    ]
    assert lines(up, part("c", 4, -5)) == [
        "a needs more steps than b (2): seen",
        "a needs fewer steps than c (0.5): not seen at this scale",
    ]
    assert lines(part("", 3, 3, says="a is [faster|slower], {}", base=2)) == ["a is faster, ×8: seen"]
    assert lines(part("", -1, -1, says="{} [more|less]", form="{:.0%}")) == ["100% less: reversed"]
    short = Part("b", (1, 2, 3), smallest=0.5, claimed=5, shown=Shown("left", "by {}"))
    assert lines(short) == ["by 2: of the claimed sign but smaller, not seen at this scale"]
    assert lines(part("b", math.nan, math.nan)) == ["a needs more steps than b (nan): not seen at this scale"]
    assert lines(Arithmetic("sums", (2.0, 4.0), shown=Shown("left", "sums [of|less] {}"))) == ["sums of 3: arithmetic"]
    many = titles(judged(*(part(label, 1, 1) for label in "bcde"), part("f", -1, -1)))["left"]
    assert many.lines == ["a needs more steps than these: 4 of 5 measured parts seen, 1 reversed"]
    assert many.rows == {**dict.fromkeys("bcde", SEEN), "f": REVERSED}
    twice = [part(label, 1, 1, says=says) for says in ("{} first", "{} again") for label in "bcdef"]
    with pytest.raises(ValueError, match="two parts stand at the row b of left"):
        titles(judged(*twice))
    assert titles(judged(Part("not shown", (1, 2), smallest=0.5), "a number")) == {}
