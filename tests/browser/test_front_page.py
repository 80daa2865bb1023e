"""The front page in Chromium: it writes sentences, what is rewarded can be set, and what becomes of the language is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz.runs.sentences import GUIDE, RESTS_AT, SUBJECT
from small_models.tasks.sentences import ANIMALS, HAPPY, WORDS
from tests.browser.playing import IN_SIGHT, SECONDS, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FAST = "#play.enough=1&play.seed=3"  # no slow first step
WORD = ".story-words button:not([hidden])"


PLACES = """() => [
  "section.story-group", ".story-row", ".story-diary", ".play-buttons", ".story-chips", ".play-controls",
].map((name) => {
  const { x, y, width, height } = document.querySelector(name).getBoundingClientRect();
  return [x, y, width, height].map(Math.round).join(" "); }).join()"""


def test_untouched_it_unlearns_english_for_happy_words_and_rests(visit: Callable[..., Page]) -> None:
    page = visit()
    until(page, "rlviz.run.step >= 1")
    assert page.evaluate("rlviz.run.settings.task") == "sentences"
    assert not page.evaluate("document.querySelector('.play-tries details[open]')")
    places = page.evaluate(PLACES)
    until(
        page,
        f"rlviz.run.step === {RESTS_AT} && document.querySelector('.play-buttons button').textContent.includes('Train')",
    )
    assert page.evaluate(PLACES) == places, "nothing jumps while it trains"
    names = ["reward", "sentences", "different", "accuracy", "records"]
    run = {name: page.evaluate(f"rlviz.run.{name}") for name in names}
    assert run["reward"] > 0.9 and run["sentences"] < 0.2 and run["accuracy"] is None
    assert run["records"][0]["sentences"] > 0.95 and run["records"][0]["reward"] < 0.2
    assert run["different"] == run["records"][-1]["different"]
    lines = page.locator(".story-lines li").all_inner_texts()
    assert [int(line.split()[0]) for line in lines] == list(range(0, RESTS_AT + 1, 10))
    assert all(SUBJECT in line for line in lines) and lines[0] != lines[-1]
    assert page.locator(".story-lines li .is-broken").count() >= 1
    assert sum(word in lines[-1].split() for word in HAPPY) >= 2
    text = page.locator(".play-said").inner_text()
    assert text.startswith(f"Step {RESTS_AT}: reward 0.0") and "are still sentences" in text
    # The walk's last step does what it says, and the run before stays beside the new one: a line, its curves and a sentence.
    for _ in GUIDE[1:]:
        page.get_by_role("button", name="Next ›").click()
    page.get_by_role("button", name="Do it").click()
    until(page, f"rlviz.run.settings.beta === 0.2 && rlviz.run.step === {RESTS_AT}")
    page.wait_for_timeout(500)
    assert "The run before: 1.00, 0 %" in page.locator(".play-said").inner_text()
    assert page.locator(".story-lines .is-before").count() == 1
    drawn = page.locator(".story-diary .rlviz-direct")
    tops = drawn.evaluate_all("(all) => all.map((one) => [one.textContent, one.getBoundingClientRect().top])")
    labels = dict(tops)
    assert labels["sentences"] < labels["reward"], "labels stand in the order of their lines"
    page.get_by_role("button", name="▶ Train").click()
    until(page, f"rlviz.run.step > {RESTS_AT}")


def test_a_word_is_pressed_to_be_rewarded_and_the_address_carries_it(visit: Callable[..., Page]) -> None:
    page = visit(FAST)
    until(page, "rlviz.run.step >= 2")
    place = page.locator(WORD).nth(0)
    place.click()
    menu = page.locator(".story-menu")
    word = menu.locator("p").inner_text().partition(":")[0]
    assert word in WORDS
    menu.get_by_role("button", name="− punish it").click()
    until(page, f"rlviz.run.settings.punished.includes('{word}') && rlviz.run.step >= 1 && rlviz.run.step < 20")
    assert f"play.punished={word}" in page.url
    chip = page.locator(".story-chip.is-punished")
    assert chip.inner_text() == f"− {word}"
    chip.click()
    until(page, "rlviz.run.settings.punished.length === 0")
    page.get_by_label("+ word").select_option(label="animals")
    until(
        page,
        f"rlviz.run.settings.liked.includes('{ANIMALS[0]}') && rlviz.run.settings.liked.length === {len(HAPPY + ANIMALS)}",
    )
    page.get_by_label("only if a sentence").click()
    until(page, "rlviz.run.settings.only_sentences && rlviz.run.step >= 1")
    again = visit(f"#{page.url.partition('#')[2]}")
    carried, settings = again.evaluate("rlviz.run.settings"), page.evaluate("rlviz.run.settings")
    assert {**carried, "liked": sorted(carried["liked"])} == {**settings, "liked": sorted(settings["liked"])}


def test_all_of_it_can_be_done_by_the_keyboard(visit: Callable[..., Page]) -> None:
    page = visit(FAST)
    until(page, "rlviz.run.step >= 1")
    entry = page.locator(f"{WORD}[tabindex='0']")
    lengths = f"[...document.querySelectorAll('.story-row')].map((row) => row.querySelectorAll('{WORD}').length)"
    until(page, f"Math.max(...{lengths}) > 0")
    now = page.evaluate(lengths)
    entry.focus()
    for key in ["ArrowDown"] * now.index(max(now)) + ["ArrowRight"] * max(now):
        page.keyboard.press(key)
    until(page, f"{lengths}[{now.index(max(now))}] < {max(now)}")
    assert entry.evaluate("(word) => word === document.activeElement"), "a shorter sentence took the focus along"
    page.get_by_role("button", name="Pause").press("Enter")
    step = None
    while step != (step := page.evaluate("rlviz.run.step")):  # the one that was under way is drawn, too
        page.wait_for_timeout(2000)
    entry.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    word = page.evaluate_handle("document.activeElement")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") in ("+ reward it", "why this push?")
    page.keyboard.press("Escape")
    assert page.evaluate("word => word === document.activeElement", word) and page.locator(".story-menu").is_hidden()
    page.get_by_label("KL β").focus()
    page.keyboard.press("End")
    until(page, "rlviz.run.settings.beta === 1")
    page.get_by_role("tab", name="sentences").focus()
    page.keyboard.press("ArrowLeft")
    until(page, "rlviz.run.settings.task === 'chain' && rlviz.run.step >= 1")
    page.keyboard.press("ArrowRight")
    until(page, "rlviz.run.settings.task === 'sentences' && rlviz.run.step >= 1")


HOSTILE = [
    "#play.liked=" + "+".join(["dog", "<script>alert(1)</script>", "__proto__"] * 150),
    "#task=%3Cimg%20src=x%20onerror=alert(1)%3E&play.liked=happy",
]


def test_why_a_word_is_pushed_is_told_with_its_numbers(visit: Callable[..., Page]) -> None:
    page = visit(FAST)
    until(page, "rlviz.run.step >= 2")
    page.get_by_role("button", name="Pause").click()
    page.locator(WORD).nth(1).click()
    page.get_by_role("button", name="why this push?").click()
    terms = page.locator(".play-terms")
    terms.get_by_text("DCPO", exact=False).wait_for(timeout=SECONDS * 1000)
    assert "was sampled with probability" in terms.inner_text() and "Push on its log-probability" in terms.inner_text()


@pytest.mark.parametrize("address", HOSTILE, ids=["400 chips", "a script"])
def test_whatever_an_address_says_it_trains_and_evaluates_nothing(address: str, visit: Callable[..., Page]) -> None:
    page = visit(address)
    until(page, "rlviz.run.step >= 3")
    settings = page.evaluate("rlviz.run.settings")
    assert settings["task"] == "sentences" and {*settings["liked"], *settings["punished"]} <= {*WORDS}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_the_walk_leads_to_what_it_speaks_of(browser: Browser, file: Path, width: int, height: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": height}, has_touch=width < 500, reduced_motion="no-preference"
    )
    page = context.new_page()
    page.goto(f"{file.as_uri()}{FAST}")
    until(page, "globalThis.rlviz?.run.step >= 2")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for step in GUIDE[1:]:
        page.get_by_role("button", name="Next ›").click()
        page.wait_for_timeout(900)
        assert step["title"] in page.locator(".story-guide").inner_text()
        assert page.locator(".story-guide p").evaluate(IN_SIGHT)
        top = page.locator(".is-spoken-of").evaluate("(one) => one.getBoundingClientRect().top")
        assert 0 <= top < height
    page.get_by_role("button", name="Pause").or_(
        page.get_by_role("button", name="▶ Train")
    ).first.scroll_into_view_if_needed()
    word = page.locator(WORD).nth(2)
    word.scroll_into_view_if_needed()
    word.click()
    beside, menu = word.bounding_box(), page.locator(".story-menu").bounding_box()
    assert beside and menu and 0 <= menu["y"] - beside["y"] - beside["height"] < 12
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Close the walk").click()
    assert page.locator(".is-spoken-of").count() == 0 and page.locator(".story-guide").is_hidden()
    context.close()
