"""What the teacher has is true: plans fill their minutes, cheat sheets have the widths and the means of the library."""

import re
from pathlib import Path

import pytest
import torch

from rlviz import DAPO, DCPO, GSPO
from rlviz.algorithms import ALGORITHMS

COURSE = Path(__file__).parent.parent / "notebooks"
PLANS = sorted((COURSE / "teaching").glob("[0-9]*.md"))
# the weights of all tokens of two responses of 2 and 8 tokens, and what an aggregation with these is called
MEANS = {
    (0.5, 0.5): {"mean of responses' means", "先回答内平均，再对回答平均"},
    (1.0, 1.0): {"sum of responses' means", "先回答内平均，再对回答求和"},
    (0.2, 0.8): {"token mean", "词元平均"},
    (2 / 32, 8 / 32): {"sum / constant", "求和除以常数"},
}


def test_there_is_a_plan_for_every_lesson():
    assert [plan.stem for plan in PLANS] == [lesson.stem for lesson in sorted(COURSE.glob("[0-9][0-9]_*.ipynb"))]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_fills_its_minutes(plan):
    text = plan.read_text(encoding="utf-8")
    parts = re.findall(r"^## (50|90) minutes$(.*?)(?=^## )", text, re.M | re.S)
    assert len(parts) == 2
    for minutes, part in parts:
        assert sum(map(int, re.findall(r"^\| (\d+) \|", part, re.M))) == int(minutes)


@pytest.mark.parametrize("sheet", ["cheatsheet.md", "cheatsheet.zh.md"])
def test_a_cheat_sheet_has_the_widths_and_the_means_of_the_library(sheet):
    text = (COURSE / "teaching" / sheet).read_text(encoding="utf-8")
    widths = re.findall(r"text\{low\}\} = ([.\d]+)\$[,，] ?\$\\varepsilon_\{\\text\{high\}\} = ([.\d]+)\$", text)
    due = [(a.bounds.eps_low, a.bounds.eps_high) for a in (DAPO, GSPO, DCPO)]
    assert [(float(low), float(high)) for low, high in widths] == due
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()]
    means = {cells[0]: cells[-1] for cells in rows if len(cells) == 4}
    known = [a for a in ALGORITHMS if hasattr(a, "aggregate") and a.name != "GSPO" and a.name in means]
    assert len(known) >= 6
    for algorithm in known:
        weights = algorithm.aggregate(torch.arange(8) < torch.tensor([[[2], [8]]])).sum(-1).flatten().tolist()
        (names,) = [names for due, names in MEANS.items() if weights == pytest.approx(due)]
        assert means[algorithm.name] in names
