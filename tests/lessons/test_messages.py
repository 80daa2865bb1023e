"""Messages in Chinese: what the checks of lessons 00 to 03 can say has its row in the table, and no row is unused."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlviz import GRPO
from rlviz.lessons import assembly, check, exercise, judge, loops, messages, puzzles, show_bug, unlabelled
from rlviz.lessons.editions import exercises_of, read_notebook
from rlviz.lessons.verdict import Verdict, solution_link
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import token_mean

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LOSSES = (  # of lessons 02 and 03
    replace(GRPO, kl=None, advantage=GroupAdvantage(scale="none"), aggregate=token_mean),
    GRPO.without_kl(),
)
SOURCES = (  # what every check says, and those of these lessons that are no exercises of one function
    judge, exercise.Slip.__and__, assembly.judge_assembly, loops.table_loop, loops._read_curve, loops.grpo_loop,
    loops._wrong_tensors, loops._wrong_rewards, puzzles.judge_bug, puzzles.judge_unlabelled, puzzles._form, Verdict.word.fget,
    solution_link,
)  # fmt: skip
SENTENCE = re.compile(r"[a-z]{2,},? [a-z]{2,}|Right|Not yet")
CHINESE = re.compile("[\u4e00-\u9fff]")


def texts_in(node: ast.AST) -> Iterator[str]:
    """Give the texts of a piece of code, with a 7 for what a formatted one holds; no docstrings, no errors, no keys."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if is_docstring or (isinstance(node, ast.Raise) and "ValueError" in ast.unparse(node)):
        return
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
        children = (part for part in node.values if isinstance(part, ast.FormattedValue))
    elif isinstance(node, ast.Dict):
        children = iter(node.values)
    for child in children:
        yield from texts_in(child)


def sentences() -> Iterator[str]:
    """Give what the checks of lessons 00 to 03 can say, and the choices and questions of their puzzles."""
    calls = {(call.func.attr, ast.unparse(call.args[0])) for call in checked()}
    other = {"assembly", "table_loop", "grpo_loop", "bug", "unlabelled"}
    assert {name for name, _ in calls} - other <= set(check.EXERCISES)
    for name, argument in sorted(calls):
        if name in ("bug", "unlabelled"):
            puzzle = puzzles.find_puzzle(name, ast.literal_eval(argument))
            yield from (text for pair in puzzle.why.items() for text in pair)
        elif name in check.EXERCISES:
            one = check.EXERCISES[name]
            yield from (one.praise, one.per, *(slip.says for slip in one.slips))
    yield from (mistake.says for loss in LOSSES for mistake in assembly.slips(loss))
    yield from (puzzles.LINE_QUESTION, puzzles.BUG_QUESTION, puzzles.RUN_QUESTION)
    for source in SOURCES:
        yield from texts_in(ast.parse(textwrap.dedent(inspect.getsource(source))))
    yield from differences()


def checked() -> list[ast.Call]:
    files = [file for file in sorted(NOTEBOOKS.glob("*.ipynb")) if file.name[:2] in ("00", "01", "02", "03")]
    return [call for file in files for cell in read_notebook(file).cells for call in exercises_of(cell)]


def differences() -> Iterator[str]:
    """Give the sentences that name a number: in a place, with inputs or without, and none at all."""
    ones = torch.ones(2, 2, dtype=torch.double)
    other = ones.clone()
    other[0, 1] = 3
    yield judge._first_difference(ones, other, {})
    yield judge._first_difference(ones, other, {"ratio": ones})
    yield judge._first_difference(ones[0, 0], other[0, 1], {"rewards": ones[0]})
    yield judge._first_difference(ones[0, 0], other[0, 1] * float("nan"), {})


def test_whatever_the_checks_of_the_first_lessons_say_has_its_row_and_no_row_is_unused(monkeypatch):
    used = set()

    class Noting(dict):
        def __getitem__(self, row):
            used.add(row)
            return super().__getitem__(row)

    table = Noting(messages.read_table())
    monkeypatch.setattr(messages, "read_table", lambda: table)
    spoken = {text for text in sentences() if text}
    ends = {
        text: [messages.to_chinese(one) for one in (text, text.strip())] for text in spoken
    }  # some are a sentence's end
    english = {text for text in spoken if SENTENCE.search(text) and not CHINESE.search("".join(ends[text]))}
    assert len(spoken) > 300 and english == set()
    assert set(table) - used == set()


def test_a_row_in_chinese_has_no_other_places_than_the_english_one():
    for english, chinese in messages.read_table().items():
        assert set(messages.PLACE.findall(chinese)) <= set(messages.PLACE.findall(english)), english
        assert CHINESE.search(chinese) or english == "{one}, another {other}"


@pytest.mark.parametrize(
    ("language", "says"),
    [
        (None, "Not yet: your function returns None: write your lines, and return their result."),
        ("en", "Not yet: your function returns None: write your lines, and return their result."),
        ("zh", "还不对: 你的函数返回 None：写出你的代码，并返回结果。"),
    ],
)
def test_a_verdict_speaks_chinese_where_it_is_asked_to_and_only_there(language, says, monkeypatch):
    monkeypatch.delenv("RLVIZ_LANGUAGE", raising=False)
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")  # the system's language is not asked
    if language:
        monkeypatch.setenv("RLVIZ_LANGUAGE", language)
    verdict = check.reinforce(lambda *inputs: None)
    assert repr(verdict) == says and says.partition(": ")[2] in verdict.markup
    assert verdict.says.startswith("your function returns None")  # a table of grades is in English


def test_parts_of_a_message_are_in_chinese_too(monkeypatch):
    monkeypatch.setenv("RLVIZ_LANGUAGE", "zh")

    def twice_wrong(logp, mask, R, b):
        return (R * (logp * mask).sum(1)).mean()

    assert repr(check.reinforce(twice_wrong)) == (
        "还不对: 有两处问题。符号反了：优化器做的是最小化，所以要返回 (R − b) · log π 的平均值的相反数。"
        "另外：缺少基线：权重应当是 R − b。"
    )
    assert re.search(r"处（.*）：应为 .*，得到的是 ", repr(check.group_advantage(lambda rewards: rewards * 8)))
    assert repr(Verdict(False, "a sentence without a row.")) == "还不对: a sentence without a row."
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda what, **_: outputs.append(what))
    unlabelled("grpo")
    assert "这次训练用的是哪一种设置？\na) 16 组，每组 8 条，每次采样更新 1 次" in outputs[1]["text/plain"]
    assert "它会造成什么结果？" in str(show_bug("grpo"))
    assert check.bug("grpo", line=3, does="b").passed
