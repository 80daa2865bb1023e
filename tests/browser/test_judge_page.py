"""The tab "you are the judge" in Chromium: pairs by the keyboard, a taste, training on it, a blind test, and files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz.runs.judge import DEFAULTS, FIRST, PAIR_DEFAULTS, TEST
from small_models.pairs import write_pairs
from small_models.tasks import Sentences
from small_models.tasks.sentences import WORDS
from small_models.taste import Preference, fit_taste, read_preferences, true_taste
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


def test_dpo_trains_on_the_pairs_and_ten_more_go_on_from_the_present_policy(page: Page) -> None:
    page.keyboard.press("0")
    until(page, "rlviz.run.preferences.length === 1")
    judge(page, FIRST + 1)
    page.get_by_label("how it trains").select_option(label="DPO on the pairs")
    page.get_by_role("button", name="▶ Train on it").click()
    decided = [one for one in page.evaluate("rlviz.run.preferences") if not one["equal"]]
    status = page.locator(".play-said").first.inner_text()
    assert status.startswith(f"DPO trains on {len(decided)} pairs, ")
    assert f"{FIRST + 2 - len(decided)} of the pairs are left out: equal, " in status
    until(page, "rlviz.run.rounds.length === 1")
    (first,) = page.evaluate("rlviz.run.rounds")
    assert (first["by"], first["pairs"], first["steps"]) == ("DPO", len(decided), PAIR_DEFAULTS["steps"])
    assert first["beta"] == PAIR_DEFAULTS["beta"] and not first["goesOn"] and first["sentences"] > 0.5
    records = page.evaluate("rlviz.run.records")
    assert records[0]["pair_accuracy"] == 0 and records[-1]["pair_accuracy"] > 0.8 and records[-1]["loss"] < 0.6
    texts = page.locator(".story-row:visible .story-words").all_inner_texts()
    chosen = {" ".join(one["chosen"].split()) for one in decided}
    assert {" ".join(text.replace("■", "").split()) for text in texts} & chosen
    page.get_by_role("button", name="Ten more pairs").click()
    until(page, "document.querySelector('.play-said').textContent.includes('goes on from there')")
    page.get_by_label("how it trains").select_option(label="GRPO on its reward")
    page.get_by_role("button", name="▶ Train it further").click()
    until(page, "rlviz.run.rounds.length === 2")
    second = page.evaluate("rlviz.run.rounds[1]")
    assert (second["by"], second["goesOn"], second["steps"]) == ("GRPO", True, DEFAULTS["steps"])
    assert page.evaluate("rlviz.run.records[0].kl") > records[0]["kl"] + 0.01  # it begins away from the first model
    assert page.get_by_role("button", name="▶ Train on it").is_enabled()


def test_answers_survive_a_reload_and_can_be_cleared(page: Page) -> None:
    judge(page, 3)
    before = page.evaluate("rlviz.run.preferences")
    page.reload()
    until(page, "rlviz.run?.preferences?.length === 3")
    assert page.evaluate("rlviz.run.preferences") == before
    page.evaluate("sessionStorage.setItem(Object.keys(sessionStorage)[0], 'broken')")
    page.reload()
    until(page, "document.querySelectorAll('.judge-side span')[1]?.textContent.length > 3")
    assert page.evaluate("rlviz.run.preferences") == []
    judge(page, 2)
    page.get_by_role("button", name="clear").click()
    until(page, "rlviz.run.preferences.length === 0")
    page.reload()
    until(page, "document.querySelectorAll('.judge-side span')[1]?.textContent.length > 3")
    assert page.evaluate("rlviz.run.preferences") == []


@pytest.mark.parametrize(("count", "is_certain"), [(10, False), (300, True)])
def test_where_no_belief_is_certain_the_page_says_so(page: Page, tmp_path: Path, count: int, is_certain: bool) -> None:
    rng, task = random.Random(0), Sentences()
    pairs = []
    while len(pairs) < count:
        worse, better = sorted((task.demonstrate("", rng) for _ in range(2)), key=lambda text: true_taste("", text))
        if better != worse:
            pairs.append(Preference("the little bear", better, worse))
    taste = fit_taste(pairs, with_groups=True)
    assert is_certain == any(abs(weight) > 2 * taste.deviations[name] for name, weight in taste.weights.items())
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    page.locator("input[type=file]").set_input_files(tmp_path / "pairs.jsonl")
    until(page, f"rlviz.run.preferences.length === {count}")
    assert ("None is certain yet" in page.locator(".judge-weights").inner_text()) is not is_certain


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
