"""The cheat sheets say of each algorithm which mean it takes and how wide its limits are, as the library has them."""

import re
from pathlib import Path

import pytest
import torch

from rlviz import DAPO, DCPO, GSPO
from rlviz.algorithms import ALGORITHMS

TEACHING = Path(__file__).parent.parent / "notebooks" / "teaching"
SHEETS = {
    "cheatsheet.md": {
        "mean, mean": "mean of responses' means",
        "sum, mean": "sum of responses' means",
        "tokens, mean": "token mean",
        "tokens, constant": "sum / constant",
    },
    "cheatsheet.zh.md": {
        "mean, mean": "先回答内平均，再对回答平均",
        "sum, mean": "先回答内平均，再对回答求和",
        "tokens, mean": "词元平均",
        "tokens, constant": "求和除以常数",
    },
}


def rule(aggregate):
    """Return which mean an aggregation is, by the weights that it gives two responses of 2 and 8 tokens."""
    mask = torch.arange(8) < torch.tensor([[[2], [8]]])
    weights = aggregate(mask)[0]
    short, long = weights.sum(-1).tolist()
    if short == pytest.approx(long):  # each token has 1 / its response's length
        return {1.0: "sum, mean", 0.5: "mean, mean"}[short]
    assert weights[0, 0] == weights[1, 0]
    return "tokens, mean" if short + long == pytest.approx(1) else "tokens, constant"


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_cheat_sheet_says_which_mean_each_algorithm_takes(sheet):
    rows = [line.strip("| ").split(" | ") for line in (TEACHING / sheet).read_text("utf-8").splitlines()]
    said = {cells[0]: cells[-1] for cells in rows if len(cells) == 4}
    aggregates = {
        each.name: each.aggregate for each in ALGORITHMS if hasattr(each, "aggregate") and each.name != "GSPO"
    }
    known = {name: SHEETS[sheet][rule(aggregate)] for name, aggregate in aggregates.items() if name in said}
    assert len(known) >= 6
    assert {name: said[name] for name in known} == known


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_cheat_sheet_has_the_widths_of_limits_that_are_not_grpo_s(sheet):
    text = (TEACHING / sheet).read_text("utf-8")
    said = re.findall(r"text\{low\}\} = ([.\d]+)\$[,，] ?\$\\varepsilon_\{\\text\{high\}\} = ([.\d]+)\$", text)
    due = [(each.bounds.eps_low, each.bounds.eps_high) for each in (DAPO, GSPO, DCPO)]
    assert [(float(low), float(high)) for low, high in said] == due
