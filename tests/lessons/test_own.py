"""What a student saves is a file that stands alone, is loaded again, and is checked again."""

import math
from pathlib import Path

import pytest
import torch

from rlviz.lessons import load_solution, save_solution
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


def twice(x):
    return 2 * x


other_name = twice  # as `group_advantage = load_solution("group_advantage", otherwise=of_the_library)` in a lesson


def four_times(x):
    return other_name(other_name(x))


@pytest.fixture(autouse=True)
def beside_a_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_is_saved_with_what_it_needs_and_used_again(capsys):
    save_solution("pessimistic", my_objective)
    source = Path("mine/pessimistic.py").read_text(encoding="utf-8")
    parts = ("import math", "import torch", "ONE = 1.0", "def helper", "def my_objective")
    assert all(part in source for part in parts)
    again = load_solution("pessimistic", otherwise=wrong)
    assert again is not wrong and again.__globals__ is not my_objective.__globals__
    values = [torch.tensor([x]) for x in (1.5, 1.0, 0.8, 1.2)]
    assert again(*values).item() == pytest.approx(1.2)  # min(1.5 · 1, 1.2 · 1)
    assert "Using your own pessimistic" in capsys.readouterr().out
    # Without a check it is saved as it is, with what it has of the library, and under the name by which it is called.
    save_solution("anything", free)
    assert "from rlviz.pieces.surrogate import pessimistic" in Path("mine/anything.py").read_text(encoding="utf-8")
    assert load_solution("anything", otherwise=wrong)(torch.ones(1)).item() == 1.0
    save_solution("four_times", four_times)
    assert load_solution("four_times", otherwise=twice)(1) == 4


def test_what_does_not_pass_is_not_saved_and_not_used(capsys):
    save_solution("pessimistic", wrong)
    assert not Path("mine").exists()
    assert load_solution("pessimistic", otherwise=pessimistic) is pessimistic
    save_solution("pessimistic", my_objective)
    file = Path("mine/pessimistic.py")
    file.write_text(file.read_text(encoding="utf-8").replace("minimum", "maximum"), encoding="utf-8")
    assert load_solution("pessimistic", otherwise=pessimistic) is pessimistic
    file.write_text("def (", encoding="utf-8")
    assert load_solution("pessimistic", otherwise=pessimistic) is pessimistic
    out = capsys.readouterr().out
    assert all(words in out for words in ("Not kept", "there is no mine", "does not pass its check", "SyntaxError"))
