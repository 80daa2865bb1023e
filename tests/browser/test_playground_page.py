"""The playground in Chromium, from the disk: a transformer trains, every control answers, nothing breaks it, nobody is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz.runs.playground import TITLE
from tests.browser.playing import IN_SIGHT, SECONDS, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUICK = "#task=chain&play.updates_per_rollout=8&play.beta=0"  # learns in a few steps, of a second each
FAST = "#task=chain&play.updates_per_rollout=2&play.beta=0"  # for what does not depend on how much is learnt


def test_a_transformer_trains_and_learns(visit: Callable[..., Page]) -> None:
    page = visit(QUICK)
    assert page.title() == TITLE
    for step in range(5, 41, 5):
        until(page, f"rlviz.run.step >= {step}")
    records = page.evaluate("rlviz.run.records")
    first, last = (sum(one["accuracy"] for one in part) / 3 for part in (records[:3], records[-3:]))
    assert first < 0.5 and last > 0.75
    assert records[-1]["entropy"] < records[0]["entropy"] and records[-1]["clipped"] > 0
    assert page.evaluate("rlviz.run.accuracy") > 0.6
    assert page.locator(".play-said").inner_text().startswith("Step ")
    assert page.locator(".play-repeat svg path").count() > 2
    # A pause in a step loses none, and what runs beside it and the run before are drawn, too.
    for _ in range(3):
        page.get_by_role("button", name="Pause").click()
        step = page.evaluate("rlviz.run.step")
        page.wait_for_timeout(150)
        assert page.evaluate("rlviz.run.step") <= step + 1  # the one that was under way
        page.get_by_role("button", name="▶ Train").click()
    until(page, f"rlviz.run.step > {step} + 1")
    steps = [record["step"] for record in page.evaluate("rlviz.run.records")]
    assert steps == list(range(1, len(steps) + 1))
    page.get_by_label("beside", exact=True).select_option("DAPO")
    until(page, "rlviz.run.settings.beside === 'DAPO' && rlviz.run.step >= 2")
    labels = page.locator(".play-repeat .rlviz-direct")
    assert {"GRPO", "DAPO", "before"} <= set(labels.all_text_contents())


def test_a_visitor_s_first_step_is_told_slowly_from_left_to_right(visit: Callable[..., Page]) -> None:
    page = visit("#task=chain")
    stages = []
    end = time.monotonic() + SECONDS
    while page.evaluate("rlviz.run.step") < 2 and time.monotonic() < end:
        stage = page.evaluate("document.querySelector('.play-boxes').dataset.stage ?? ''")
        if stage and stage not in stages:
            stages.append(stage)
            assert page.evaluate("getComputedStyle(document.querySelector('.play-push .play-rows')).visibility") == (
                "hidden" if stage in "01" else "visible"
            )
        page.wait_for_timeout(40)
    assert stages == ["0", "1", "2", "3"]


def test_what_cannot_train_here_shows_a_recorded_run_until_another_is_chosen(visit: Callable[..., Page]) -> None:
    page = visit("#task=chain&play.algorithm=DPO")
    page.get_by_text("DPO needs pairs, made before training").wait_for()
    page.get_by_text("Step 1 of 120. DPO:").wait_for()
    assert page.locator(".play-boxes").is_hidden()
    page.get_by_label("algorithm").select_option("PPO")
    until(page, "document.querySelectorAll('.ri-left tbody tr').length === 8")
    assert "play.algorithm=PPO" in page.url and page.locator(".ri").count() == 1
    assert page.get_by_label("ε high").is_hidden() and page.evaluate("rlviz.run.step") == 0
    assert page.locator("option", has_text="Distillation: needs a teacher").first.is_disabled()
    page.get_by_label("algorithm").select_option("GRPO")
    until(page, "rlviz.run.step >= 2")
    assert page.locator(".ri").is_hidden() and page.locator(".play-boxes").is_visible()


def test_a_control_is_turned_while_it_trains_and_stands_in_the_address(visit: Callable[..., Page]) -> None:
    page = visit(FAST)
    until(page, "rlviz.run.step >= 2")
    page.get_by_label("ε high").focus()
    page.keyboard.press("ArrowLeft")
    until(page, "rlviz.run.settings.eps_high === 0.15")
    assert "play.eps_high=0.15" in page.url
    before = page.evaluate("rlviz.run.step")
    until(page, f"rlviz.run.step > {before} + 1")  # it went on, rather than began again
    page.get_by_label("task").select_option("trip")
    until(page, "rlviz.run.settings.task === 'trip' && rlviz.run.step >= 1 && rlviz.run.step < 10")
    assert page.locator(".play-sample .play-what").inner_text().startswith("a group: 8 answers to ")
    page.get_by_label("algorithm").select_option("DCPO")
    until(page, "rlviz.run.settings.algorithm === 'DCPO' && rlviz.run.step >= 1")
    assert page.get_by_label("β").is_hidden()  # DCPO has no KL term
    assert page.evaluate("rlviz.run.settings.eps_low") == 0.16
    page.evaluate("location.hash = '#task=chain&play.algorithm=GSPO'")
    until(page, "rlviz.run.settings.algorithm === 'GSPO' && rlviz.run.step >= 1")


def test_a_token_tells_its_terms_and_what_others_would_have_pushed(visit: Callable[..., Page]) -> None:
    page = visit(FAST)
    until(page, "rlviz.run.step >= 3")
    page.get_by_role("button", name="Pause").click()
    page.locator(".play-token").nth(1).click()
    terms = page.locator(".play-terms")
    terms.get_by_text("DCPO", exact=False).wait_for(timeout=SECONDS * 1000)
    words = terms.inner_text()
    assert "probability r = " in words and "Push on its log-probability" in words
    assert all(name in words for name in ("Dr.GRPO", "DAPO", "GSPO-token", "DCPO")) and " GRPO" not in words
    page.get_by_role("button", name="The next group").click()
    assert terms.is_hidden()
    page.get_by_label("step", exact=True).fill("1")
    assert page.locator(".play-buttons output").inner_text() == "step 1"


def test_what_box_3_says_is_what_its_colours_say(visit: Callable[..., Page]) -> None:
    page = visit("#task=chain&play.updates_per_rollout=4&play.group_size=2&play.beta=0.5")
    until(page, "rlviz.run.step >= 2")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(300)
    seen = set()
    for _ in range(16):
        words = page.locator(".play-push .play-what").inner_text()
        rows = page.locator(".play-push .play-row")
        ways = {way for way in ("play-up", "play-down") if rows.locator(f".{way}").count()}
        rights = page.evaluate(
            "[...document.querySelectorAll('.play-compare .play-row')].map((row, i) => ["
            "row.querySelector('.play-right') !== null, "
            "document.querySelectorAll('.play-push .play-row')[i].querySelectorAll('.play-down').length])"
        )
        if "only the KL pulls" in words:
            assert not ways and rows.locator("[data-pull]").count()
            assert "The KL term's pull" in page.locator(".play-push .play-foot").inner_text()
        elif "no push" in words:
            assert not ways and not rows.locator("[data-pull]").count()
        else:
            assert ways
            assert not any(
                down for is_right, down in rights if is_right
            )  # what is right is pushed down by nothing but KL
        seen.add(words)
        page.get_by_role("button", name="The next group").click()
    assert len(seen) > 1
    assert "During all updates: " in page.locator(".play-push .play-foot").inner_text()


def test_with_one_update_the_limits_rest_and_say_why(visit: Callable[..., Page]) -> None:
    page = visit("#task=chain")
    limits = [page.get_by_label(f"ε {side}") for side in ("low", "high")]
    notes = page.get_by_text("acts from the 2nd update on")
    assert all(one.is_disabled() for one in limits) and notes.count() == 2
    page.get_by_label("updates").fill("1")  # its second stop
    until(page, "rlviz.run.settings.updates_per_rollout === 2")
    assert all(one.is_enabled() for one in limits) and notes.count() == 0


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_an_experiment_and_a_token_answer_in_sight(browser: Browser, file: Path, width: int, height: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.goto(f"{file.as_uri()}#task=chain")
    until(page, "globalThis.rlviz?.run.step >= 1")
    page.get_by_role("link", name="a reward with a mistake").click()
    until(page, "rlviz.run.settings.reward === 'mistake'")
    section = page.locator(".play-asked")
    assert "digit after # is 7" in section.inner_text() and "#7 always pays" not in section.inner_text()
    section.get_by_text("What one should see").click()
    assert "#7 always pays" in section.inner_text()
    page.locator(".play-tries a").first.click()
    until(page, "rlviz.run.settings.beside === 'GRPO' && rlviz.run.step >= 2")
    assert page.locator(".play-question").evaluate(IN_SIGHT)
    assert page.locator(".play-repeat svg[viewBox]").first.evaluate(IN_SIGHT)
    assert "GRPO, own ε" in page.locator(".play-repeat .rlviz-direct").all_text_contents()
    page.get_by_role("button", name="Pause").click()
    page.locator(".play-push .play-token").nth(1).click()
    page.locator(".play-terms").get_by_text("DAPO").wait_for(timeout=SECONDS * 1000)
    page.wait_for_timeout(200)
    assert page.locator(".play-terms b").evaluate(IN_SIGHT)
    context.close()


def test_a_run_that_diverges_says_so_and_can_begin_again(visit: Callable[..., Page]) -> None:
    page = visit("#task=chain&play.lr=1000&play.updates_per_rollout=16")
    until(page, "document.querySelector('.play-said').textContent.includes('diverged') || rlviz.run.step > 25")
    page.get_by_label("learning rate").fill("3")
    page.get_by_role("button", name="⟲ Again").click()
    until(page, "rlviz.run.step >= 2 && rlviz.run.settings.lr === 0.0003")


def test_who_wants_no_motion_presses_train(chromium: str, browser: Browser, file: Path) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{file.as_uri()}#task=chain")
    until(page, "globalThis.rlviz?.run.accuracy > 0")
    page.wait_for_timeout(700)
    assert page.evaluate("rlviz.run.step") == 0
    page.get_by_role("button", name="▶ Train").click()
    until(page, "rlviz.run.step >= 2")
    context.close()


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_what_moves_is_in_sight(browser: Browser, file: Path, width: int, height: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": height}, has_touch=width < 500)
    page = context.new_page()
    page.goto(f"{file.as_uri()}{FAST}")
    until(page, "globalThis.rlviz?.run.step >= 2")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    train = page.get_by_role("button", name="Pause").bounding_box()
    box = page.locator(".play-sample").bounding_box()
    assert box and box["y"] + box["height"] < height * (1 if width > 1000 else 1.2)
    assert train and (width < 1000 or train["y"] + train["height"] < height)
    if width < 500:
        page.get_by_role("button", name="Pause").tap()
        until(page, "document.querySelector('.play-buttons button').textContent.includes('Train')")
    context.close()
