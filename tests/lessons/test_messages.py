"""Messages in Chinese: what the checks of lessons 00 to 03 say of a slip has its row in the table."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlviz import GRPO
from rlviz.lessons import assembly, check, judge, messages, puzzles, show_bug, unlabelled
from rlviz.lessons.editions import exercises_of, read_notebook
from rlviz.lessons.verdict import Verdict
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.aggregation import token_mean

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LOSSES = (  # of lessons 02 and 03
    replace(GRPO, kl=None, advantage=GroupAdvantage(scale="none"), aggregate=token_mean),
    GRPO.without_kl(),
)
CHINESE = re.compile("[\u4e00-\u9fff]")


def sentences() -> Iterator[str]:
    """Give what is said to slips and choices in lessons 00 to 03, and what the judge says to what it does not know."""
    calls = {(call.func.attr, ast.unparse(call.args[0])) for call in checked()}
    for name, argument in sorted(calls):
        if name in ("bug", "unlabelled"):
            puzzle = puzzles.find_puzzle(name, ast.literal_eval(argument))
            yield from (text for pair in puzzle.why.items() for text in pair)
        elif name in check.EXERCISES:
            one = check.EXERCISES[name]
            yield from (one.praise, *(slip.says for slip in one.slips))
    yield from (mistake.says for loss in LOSSES for mistake in assembly.slips(loss))
    yield from (
        puzzles.LINE_QUESTION,
        puzzles.BUG_QUESTION,
        puzzles.RUN_QUESTION,
        "Right",
        "Not yet",
        *judge._ADVICE.values(),
    )
    yield from (check.group_advantage(answer).says for answer in ANSWERS)


def checked() -> list[ast.Call]:
    files = [file for file in sorted(NOTEBOOKS.glob("*.ipynb")) if file.name[:2] in ("00", "01", "02", "03")]
    return [call for file in files for cell in read_notebook(file).cells for call in exercises_of(cell)]


ANSWERS = (
    lambda rewards: rewards * 8,
    lambda rewards: rewards.mean(),
    lambda rewards: rewards.mean(1, keepdim=True),
    lambda rewards: 0.5,
    lambda rewards: None,
    lambda rewards: 1 / 0,
)


def test_whatever_the_checks_of_the_first_lessons_say_of_a_slip_has_its_row():
    spoken = {text for text in sentences() if text}
    assert len(spoken) > 150
    assert [text for text in spoken if not CHINESE.search(messages.to_chinese(text))] == []


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
    show_bug("grpo")
    assert "它会造成什么结果？" in outputs[2]["text/plain"]
    assert check.bug("grpo", line=3, does="b").passed
