"""Lessons say of a claim what verdicts.md says: each outcome and number that they quote is a link that names its line."""

import json
import re
from pathlib import Path

import pytest

from rlviz.study import quoted
from rlviz.study.effects import OUTCOMES

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LESSONS = sorted(file for folder in (".", "more") for file in (NOTEBOOKS / folder).glob("[0-9]*.ipynb"))
LINK = re.compile(r'\[([^\][]+)\]\((?:\.\./)?experiments/verdicts\.md#(\w+) "([^"]+)"\)')


def agrees(word, name, about):
    """Return whether one line on a claim begins like this, and has this outcome or number (a part's is its mean), rounded."""
    lines = quoted(name, about, folder=NOTEBOOKS / "experiments")
    bare = (re.sub(r"^(measured|arithmetic): ", "", line) for line in lines)
    (line,) = (line for line in bare if line.startswith(about))
    if word.lower() in OUTCOMES:
        return line.endswith(f", {word.lower()}")
    mean = re.search(r": ([+-][\d.e-]+)(?= \(by seed|$)", line)
    numbers = [mean[1]] if mean else re.findall(r"\d+(?:\.\d+)?", line)
    digits = len(word.partition(".")[2])
    return any(abs(abs(float(number)) - float(word)) <= 0.5 * 10**-digits + 1e-9 for number in numbers)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: str(path.relative_to(NOTEBOOKS)))
def test_a_lesson_says_what_the_table_says(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        assert [link for link in LINK.findall(text) if not agrees(*link)] == []
        for name in re.findall(r'quoted\("(\w+)"', text):  # a cell that quotes prints nothing else
            printed = "".join(line for output in cell["outputs"] for line in output["text"]).splitlines()
            assert printed and set(printed) <= set(quoted(name, folder=NOTEBOOKS / "experiments"))


def test_a_quotation_that_is_not_in_the_table_is_found():
    wide, narrow = ("starved", "than under 1.0"), ("starved", "than under 0.28")  # +9.2 (+5 to +15), seen; not seen …
    assert all(agrees(word, *wide) for word in ("seen", "9", "9.2")) and agrees("not seen at this scale", *narrow)
    assert not any(agrees(word, *wide) for word in ("reversed", "8", "15", "9.3")) and not agrees("seen", *narrow)
