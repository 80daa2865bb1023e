"""Lessons say of a claim what the table of verdicts says: each outcome and each number quoted is a link that names its part."""

import json
import re
from pathlib import Path

import pytest

from rlviz.study import quoted
from rlviz.study.verdict import OUTCOMES

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LESSONS = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
LINK = re.compile(r'\[([^\][]+)\]\(experiments/verdicts\.md#(\w+) "([^"]+)"\)')
CODE = re.compile(r"```.*?```|`[^`]*`", re.S)
COUNTED = "17_the_family.ipynb"  # says of all claims together how many parts came to what, and asserts the counts


def faults(text):
    """Return what a lesson's text says of a claim otherwise than the table, or without naming the part."""
    rest = CODE.sub("", LINK.sub("", text)).lower()
    unnamed = re.findall(r"\b(not seen|reversed|negligible)\b", rest)
    unnamed += [bold for bold in rest.split("**")[1::2] if re.search(r"\bseen\b", bold)]
    found = [f"{said!r} names no part" for said in unnamed]
    for word, name, about in LINK.findall(text):
        lines = quoted(name, about, folder=NOTEBOOKS / "experiments")
        bare = [re.sub(r"^(measured|arithmetic|not testable here): ", "", line) for line in lines]
        named = [line for line in bare if line.startswith(about)]
        if len(named) != 1:
            found.append(f"{about!r} begins {len(named)} lines of {name}")
        elif not agrees(word, named[0]):
            found.append(f"{word!r} is not what the table has: {named[0]}")
    return found


def agrees(word, line):
    """Whether a line of the table has this outcome, or this number: of a part its mean, else any; without its sign, rounded."""
    if word.lower() in OUTCOMES:
        return line.endswith((f", {word.lower()}", f"nothing to measure, {word.lower()}"))
    mean = re.search(r": ([+-][\d.e-]+)(?= \(by seed|$)", line)
    numbers = [mean[1]] if mean else re.findall(r"\d+(?:\.\d+)?", line)
    digits = len(word.partition(".")[2])
    return any(abs(abs(float(number)) - float(word)) <= 0.5 * 10**-digits + 1e-9 for number in numbers)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)
def test_a_lesson_says_what_the_table_says(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and path.name != COUNTED:
            assert faults(text) == []
        for call in re.findall(r'quoted\("(\w+)"', text):
            printed = "".join(line for output in cell["outputs"] for line in output.get("text", [])).splitlines()
            assert printed and set(printed) <= set(quoted(call, folder=NOTEBOOKS / "experiments")), (
                "a cell that quotes prints nothing else"
            )


def test_a_quotation_that_is_not_in_the_table_is_found():
    def link(word, about, name="starved"):
        return f'[{word}](experiments/verdicts.md#{name} "{about}")'

    assert faults(f"It was **{link('seen', 'than under 1.0')}**, {link('9', 'than under 1.0')} more.") == []
    assert faults("It can be seen, and runs reversed in code.".replace("reversed", "backwards")) == []
    assert faults(link("not seen at this scale", "than under 0.28")) == []
    for text, fault in (
        (link("reversed", "than under 1.0"), "'reversed' is not what the table has"),
        (link("seen", "than under 0.28"), "'seen' is not"),  # `not seen at this scale` has the word in it
        (link("8", "than under 1.0"), "'8' is not"),
        (link("15", "than under 1.0"), "'15' is not"),  # of one seed
        (link("seen", "than under"), "begins 3 lines"),
        ("The claim is **seen**.", "names no part"),
        ("**Flips: seen**, often", "names no part"),
        ("It is negligible.", "names no part"),
        ("Not seen at this scale.", "names no part"),
    ):
        assert fault in " ".join(faults(text)), text


def test_a_part_or_all_of_them_are_quoted():
    folder = NOTEBOOKS / "experiments"
    assert quoted("starved", "than under 1.0", folder=folder) == [
        "measured: than under 1.0: +9.2 (by seed +5 to +15, smallest effect of interest 2), seen"
    ]
    assert len(quoted("STARVED", folder=folder)) == 13
