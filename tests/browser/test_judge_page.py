"""The tab "you are the judge" in Chromium: pairs by the keyboard, a taste, training on it, a blind test, and files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz.runs.judge import DEFAULTS, FIRST, TEST
from small_models.tasks.sentences import WORDS
from small_models.taste import read_preferences, true_taste
from tests.browser.playing import until

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def page(visit: Callable[..., Page]) -> Page:
    opened = visit("#tab=judge")
    until(opened, "document.querySelectorAll('.judge-side span')[1]?.textContent.length > 3")
    return opened


def judge(page: Page, count: int) -> None:
    """Press the sentence that the simulated judge likes better, so many times."""
    for _ in range(count):
        before = page.locator(".judge-cards").first.inner_text()
        first, second = (true_taste("", one.inner_text()) for one in page.locator(".judge-side span").all())
        page.keyboard.press("1" if first > second else "2" if second > first else "0")
        until(page, f"document.querySelector('.judge-cards').innerText !== {json.dumps(before)}")


def test_a_visitor_judges_trains_and_is_asked_blindly(page: Page) -> None:
    learn, test = (page.get_by_role("button", name=name) for name in ("▶ Train on it", "Blind test"))
    assert learn.is_disabled() and test.is_disabled()
    judge(page, FIRST + 2)
    pairs = page.evaluate("rlviz.run.preferences")
    assert len(pairs) == FIRST + 2 and all(
        set(f"{one['chosen']} {one['rejected']}".split()) <= {*WORDS} for one in pairs
    )
    page.keyboard.press("u")
    until(page, f"rlviz.run.preferences.length === {FIRST + 1}")
    assert page.locator(".judge-weights li").count() > 3 and page.locator(".judge-best li").count() == 6
    learn.click()
    until(page, "rlviz.run.rounds.length === 1")
    (first,) = page.evaluate("rlviz.run.rounds")
    assert (first["pairs"], first["steps"], first["beta"]) == (FIRST + 1, DEFAULTS["steps"], DEFAULTS["beta"])
    assert first["to"] > first["from"] and first["sentences"] > 0.5  # subjects and sides are drawn anew each time
    test.click()
    until(page, "document.querySelector('.judge-cards h2').textContent.startsWith('Blind')")
    sides = page.locator(".judge-side")
    assert not {"trained", "before", "after"} & {*sides.first.evaluate("(one) => one.outerHTML").split()}
    judge(page, TEST)
    text = page.locator(".play-said").first.inner_text()
    assert "You preferred the trained policy in " in text and "95 % interval" in text
    assert page.evaluate("rlviz.run.rounds[0].test") and page.locator(".judge-reveal li").count() == TEST
    page.get_by_role("button", name="Ten more pairs").click()
    page.get_by_role("link", name="no KL").click()
    until(page, "rlviz.run.rounds.length === 2")
    second = page.evaluate("rlviz.run.rounds[1]")
    assert (second["beta"], second["gate"], first["gate"]) == (0, False, True)
    # Another tab does not lose what was judged.
    page.get_by_role("tab", name="sentences", exact=True).click()
    until(page, "rlviz.run.step >= 1 && !rlviz.run.rounds")
    page.keyboard.press("1")
    page.get_by_role("tab", name="you are the judge").click()
    until(page, f"rlviz.run.rounds?.length === 2 && rlviz.run.preferences.length === {FIRST + 1}")


def test_pairs_are_files_that_python_reads_and_a_wrong_one_is_named(page: Page, tmp_path: Path) -> None:
    judge(page, 3)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save pairs").click()
    path = tmp_path / "pairs.jsonl"
    download.value.save_as(path)
    assert len(read_preferences(path)) == 3
    page.locator("input[type=file]").set_input_files(path)
    until(page, "rlviz.run.preferences.length === 6")
    words = page.locator(".play-said").first.inner_text()
    assert "pairs.jsonl: 3 pairs. 3 times two judged the same pair, and said the same in 100 %." in words
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"prompt": "the little bear", "chosen": "was rich .", "rejected": "was sad ."}\n')
    page.locator("input[type=file]").set_input_files(wrong)
    until(page, "document.querySelector('.play-said').textContent.includes('wrong.jsonl cannot be read')")
    assert 'line 1: chosen must have words of the task; got "rich".' in page.locator(".play-said").first.inner_text()
    assert page.evaluate("rlviz.run.preferences.length") == 6
