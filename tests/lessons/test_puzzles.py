"""Each lesson's bug and unlabelled run: the answer is among the choices, each wrong one is told so, the run is what it says."""

import io
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from rlviz.algorithms import DCPO, DPO, DPO_LINEAR, GRPO
from rlviz.lessons import check, show_bug, unlabelled
from rlviz.lessons.puzzles import bug_form, run_form, runs
from rlviz.lessons.puzzles.bugs import BUGS
from rlviz.lessons.puzzles.runs import RUNS
from rlviz.pieces.values import entropy
from rlviz.tabular import train_table
from tests.pieces.tensors import close, double, slope

# the line or lines to blame, read off the printed source
BLAMED = {
    "policy_gradients": (2, 3, 4), "the_ratio": (3,), "ppo": (2,), "grpo": (3,), "kl": (4,), "which_mean": (3,), "dapo": (3, 4),
    "dupo_and_agents": (2, 3), "gspo": (4,), "dcpo": (5, 6), "entropy_collapse": (3,), "preferences_and_dpo": (3,),
    "reward_hacking": (3,), "two_engines": (5,), "the_family": (4,), "own_idea": (5,), "write_the_judge": (4, 6),
    "what_did_it_learn": (3,), "take_it_home": (6,),
}  # fmt: skip


def test_the_lines_to_blame_are_those_of_the_edit():
    assert {lesson: bug.lines for lesson, bug in BUGS.items()} == BLAMED


# --- what the suspects do, by hand ---


def test_limits_of_the_new_probability_have_a_slope_of_their_own():
    # A > 0, above the limit: J = upper(r q) = ½ + ½ √(1 + .8/(r q)); q = .01, r = 8: √11 · ½ + ½ = 2.158 < 8, and
    # dJ/dr = ¼ · (−.8 / (r² q)) / √11 = −.3125 / √11. Under limits of the old probability J = 5 there, and stays 5
    suspect, right = BUGS["dcpo"].wrong, BUGS["dcpo"].right
    old_logp, ratio = double([0.01]).log(), double([8.0]).requires_grad_()
    inputs = double([1.0]), *DCPO.bounds(old_logp), old_logp
    close(suspect(ratio, *inputs), [0.5 + 0.5 * math.sqrt(11)])
    close(slope(suspect, ratio.detach(), *inputs), [-0.3125 / math.sqrt(11)])
    close(right(ratio, *inputs), [5.0])
    # A < 0, q = .9, r = .6: the limit at .54 is ½, so J = −r, where the old limit .769 has cut it
    old_logp = double([0.9]).log()
    close(suspect(double([0.6]), double([-1.0]), *DCPO.bounds(old_logp), old_logp), [-0.6])


def test_minus_the_surprise_has_the_entropy_for_its_mean_and_no_gradient():
    # each action counted as often as it is drawn: the mean of −log p is H, the mean of its gradient is −Σ p ∇log p = −∇Σ p = 0
    logits = double([1.0, 0.2, -0.7]).requires_grad_()
    log_probs = logits.log_softmax(0)
    mean = -(log_probs.detach().exp() * BUGS["entropy_collapse"].wrong(log_probs, torch.zeros(3))).sum()
    close(mean, entropy(log_probs))
    close(torch.autograd.grad(mean, logits, retain_graph=True)[0], [0.0, 0.0, 0.0])
    assert torch.autograd.grad(entropy(log_probs), logits)[0].abs().max() > 0.1


def test_a_reference_that_moves_hides_the_linear_loss_and_one_with_gradient_stops_everything():
    chosen, rejected, fixed = double([-3.0, -1.0]), double([-2.0, -4.0]), double([-5.0, -5.0])

    def loss(algorithm, reference):
        return lambda new: algorithm.loss(new, rejected, reference(new), reference(rejected)).loss

    def moving(logp):
        return BUGS["preferences_and_dpo"].wrong(logp, fixed)

    close(loss(DPO, moving)(chosen), math.log(2))
    # σ(0) = ½ of β = .1, over two pairs
    close(slope(loss(DPO, moving), chosen), [-0.025, -0.025])
    close(slope(loss(DPO_LINEAR, lambda new: BUGS["preferences_and_dpo"].right(new, fixed)), chosen), [-0.05, -0.05])
    close(slope(loss(DPO, lambda new: new), chosen), [0.0, 0.0])


def counted(gain):
    return lambda function: function(gain, range(2))


TWO_AND_EIGHT = torch.arange(8) < torch.tensor([[2], [8]])
FOUR = torch.arange(3) < torch.tensor([[1], [3], [2], [2]])
WORTH = double([[[0.1, 0.2]]]).log(), double([[[0.2, 0.2]]]).log(), double([[[1, -1]]]), torch.ones(1, 1, 2).bool()
BY_HAND = {  # lesson → what is done with either function, what comes of the wrong one, and of the right one
    # from 5 to 9 tokens: 8 8 5 tokens lose ¾ ¾ 0; 3 4 5 nothing, so of the first two groups only the first is let through
    "dapo": (
        lambda f: f(double([[1, 1, 1], [0, 0, 0], [1, 0, 1]]), torch.tensor([[8, 8, 5], [3, 4, 5], [8, 3, 8]])),
        [0, 2],
        [2],
    ),
    # ratios 1; 2 tokens with A = 1, 8 with A = −1: (2 − 8) / 2
    "gspo": (lambda f: f(0.0 * TWO_AND_EIGHT, 0.0 * TWO_AND_EIGHT, TWO_AND_EIGHT, double([1, -1])), -3, 0),
    # before the first update a token's objective is w · A, and so should be its slope; a weight of the policy now counts it
    # twice. w = ½ and 1, A = 1 and −1, two tokens
    "two_engines": (lambda f: slope(f, WORTH[0], *WORTH), [[[-2 * 0.5 / 2, 2 / 2]]], [[[-0.5 / 2, 1 / 2]]]),
    # every c gains −1 but for one lucky seed of .2: the report is the mean of that one, (3 − 1) / 2
    "own_idea": (counted(lambda c, seed: 3.0 if (c, seed) == (0.2, 1) else -1.0), (0.2, 1.0), (0.2, -1.0)),
    # 1, 3, 2 and 2 tokens, a part each, and only the first has a loss: 1 of 8 tokens; in its own part it is all, of 4 parts
    "take_it_home": (lambda f: f(double([[1, 0, 0]] + 3 * [[0, 0, 0]]), FOUR), 1 / 4, 1 / 8),
}


@pytest.mark.parametrize("lesson", BY_HAND)
def test_a_suspect_and_the_right_one_give_what_a_hand_works_out(lesson):
    call, wrong, right = BY_HAND[lesson]
    for function, due in ((BUGS[lesson].wrong, wrong), (BUGS[lesson].right, right)):
        close(torch.as_tensor(call(function), dtype=torch.double), due)


# --- choices ---


@pytest.mark.parametrize(("kind", "lesson"), [*(("bug", name) for name in BUGS), *(("run", name) for name in RUNS)])
def test_a_puzzle_has_one_answer_which_is_its_letter_or_its_words_however_they_are_typed(kind, lesson):
    """A keyboard has a hyphen, no U+2212, and no curly apostrophe; a capital and a space too many do not count either."""
    puzzle = (BUGS if kind == "bug" else RUNS)[lesson]

    def passes(answer):
        if kind == "run":
            return check.unlabelled(lesson, answer).passed
        passed = {line for line in range(1, 12) if check.bug(lesson, line=line, does=answer).passed}
        assert passed in (set(), set(puzzle.lines))
        return bool(passed)

    assert len(puzzle.choices) >= 3 and (kind == "bug" or all(puzzle.why.values()))
    for letter, choice in zip("abcdefg", puzzle.choices, strict=False):
        typed = choice.replace("−", "-").replace("’", "'").replace("×", "x")
        answers = (letter, f" {letter.upper()})", choice, f"“{typed.upper()}.”", f"  {typed.replace(' ', '  ')}")
        assert {passes(answer) for answer in answers} == {choice == puzzle.does}, choice
    assert not passes("g") and not passes(0)


def test_a_table_comes_out_again():
    """By the call in its first line."""
    file = runs.TABLES / "keeping_entropy.csv"
    call, _, text = file.read_text(encoding="utf-8").partition("\n")
    committed = pd.read_csv(io.StringIO(text))
    again = eval(call.removeprefix("# "), {"train_table": train_table, "GRPO": GRPO, "replace": replace})
    for name in ("accuracy", "entropy"):
        np.testing.assert_allclose(committed[name], getattr(again, name).mean(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(committed[f"{name} low"], np.quantile(getattr(again, name), 0.1, 0), rtol=1e-4)


@pytest.mark.parametrize("lesson", RUNS)
def test_a_run_is_drawn_and_its_setting_is_not_told(lesson, monkeypatch, capsys):
    displayed = []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: displayed.append(what))
    unlabelled(lesson)
    figure, question = displayed
    assert len(figure.axes) >= 2
    for ax in figure.axes:
        low, high = ax.get_ylim()
        assert not ax.axison or ax.lines or ax.patches
        assert all(low <= y <= high or math.isnan(y) for line in ax.lines for y in line.get_ydata()), ax.get_title()
    assert all(choice in question["text/plain"] for choice in RUNS[lesson].choices)
    assert RUNS[lesson].does not in " ".join(ax.get_title() for ax in figure.axes)
    assert ("62 % of the groups have equal rewards" in capsys.readouterr().out) is (lesson == "take_it_home")


def test_buttons_give_the_verdict_of_the_check_and_the_call_that_grading_reads():
    form = bug_form("the_ratio")
    question, lines, _, choices, result = form.children
    assert question.value == "Which line is to blame?" and [number for _, number in lines.options] == [1, 2, 3]
    choices.value = "a"
    assert result.value == ""  # a line is missing
    lines.value = 3
    for letter in "abcd":
        choices.value = letter
        assert result.value.startswith(check.bug("the_ratio", line=3, does=letter).markup)
        assert f"check.bug(&quot;the_ratio&quot;, line=3, does=&quot;{letter}&quot;)" in result.value
    _, settings, result = run_form("grpo").children
    settings.value = "d"
    assert "<b>Right:</b> about half of the responses teach" in result.value
    settings.value = "a"
    assert "<b>Not yet:</b> with groups of 8" in result.value and "check.unlabelled(&quot;grpo&quot;" in result.value


def test_buttons_stand_where_somebody_can_click_and_text_elsewhere(monkeypatch):
    displayed = []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: displayed.append(what))
    show_bug("grpo")
    (text,) = (part["text/plain"] for part in displayed)
    assert " 3      return" in text and all(f"{letter}) " in text for letter in "abc")
    monkeypatch.setattr("rlviz.lessons.puzzles.is_clickable", lambda: True)
    show_bug("grpo")
    unlabelled("grpo")
    assert displayed[1]["text/plain"] in text
    assert [type(part).__name__ for part in displayed[2:]] == ["VBox", "DescribedFigure", "VBox"]
