"""What a student keeps is a file that stands alone, is taken up again, and is checked again."""

import math
from pathlib import Path

import pytest
import torch

from rlviz.lessons import keep, kept
from rlviz.pieces.surrogate import pessimistic

ONE = 1.0


def helper(ratio):
    return ratio * ONE


def my_objective(ratio, A, lower, upper):
    return torch.minimum(helper(ratio) * A, ratio.clamp(lower, upper) * A) * math.exp(0)


def wrong(ratio, A, lower, upper):
    return ratio * A


def free(x):
    return pessimistic(x, x, x, x)


@pytest.fixture(autouse=True)
def beside_a_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_is_kept_with_what_it_needs_and_used_again(capsys):
    keep("pessimistic", my_objective)
    source = Path("mine/pessimistic.py").read_text(encoding="utf-8")
    assert all(
        part in source for part in ("import math", "import torch", "ONE = 1.0", "def helper", "def my_objective")
    )
    again = kept("pessimistic", otherwise=wrong)
    assert again is not wrong
    assert again.__globals__ is not my_objective.__globals__
    values = [torch.tensor([x]) for x in (1.5, 1.0, 0.8, 1.2)]
    assert again(*values).item() == pytest.approx(1.2)  # min(1.5 · 1, 1.2 · 1)
    assert "Using your own pessimistic" in capsys.readouterr().out


def test_what_does_not_pass_is_not_kept_and_not_used(capsys):
    keep("pessimistic", wrong)
    assert not Path("mine").exists()
    assert kept("pessimistic", otherwise=pessimistic) is pessimistic
    keep("pessimistic", my_objective)
    file = Path("mine/pessimistic.py")
    file.write_text(file.read_text(encoding="utf-8").replace("minimum", "maximum"), encoding="utf-8")
    assert kept("pessimistic", otherwise=pessimistic) is pessimistic
    file.write_text("def (", encoding="utf-8")
    assert kept("pessimistic", otherwise=pessimistic) is pessimistic
    said = capsys.readouterr().out
    assert all(words in said for words in ("Not kept", "there is no mine", "does not pass its check", "SyntaxError"))


def test_a_name_without_a_check_is_kept_as_it_is(capsys):
    keep("anything", free)
    assert "from rlviz.pieces.surrogate import pessimistic" in Path("mine/anything.py").read_text(encoding="utf-8")
    assert kept("anything", otherwise=wrong)(torch.ones(1)).item() == 1.0


def twice(x):
    return 2 * x


other_name = twice  # as `group_advantage = kept("group_advantage", otherwise=of_the_library)` in a lesson


def four_times(x):
    return other_name(other_name(x))


def test_a_function_is_kept_under_the_name_by_which_it_is_called():
    keep("four_times", four_times)
    assert kept("four_times", otherwise=twice)(1) == 4
