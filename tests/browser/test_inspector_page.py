"""The inspector without a kernel and a network: from the curve to the step, the token, its terms, other algorithms."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz import GRPO, TrainSettings, train
from rlviz.runs.inspector import inspect_run
from rlviz.training import find_task
from small_models.policies import load_policy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

MARK = "<img src=x onerror=\"document.title='PWNED'\">$x^2$"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page with three frozen inspectors: a run, the same with hostile texts, and a run on sentences."""
    settings = TrainSettings(
        steps=6, num_prompts=4, group_size=4, updates_per_rollout=4, lr=1e-3, lr_warmup_steps=0, evaluate_every=0,
        details_every=2, details_groups=2, watch_every=1,
    )  # fmt: skip
    records = list(train(load_policy("chain", device="cpu"), find_task("chain"), GRPO, settings))

    def hostile(group):
        tokens = lambda r: tuple(replace(token, token=MARK) for token in r.tokens)  # noqa: E731
        responses = tuple(replace(r, text=MARK, tokens=tokens(r)) for r in group.responses)
        return replace(group, prompt=MARK, gold=MARK, responses=responses)

    sentences = list(train("sentences", GRPO, replace(settings, steps=2)))
    nasty = [replace(record, groups=tuple(map(hostile, record.groups))) for record in records[:1]]
    parts = [
        inspect_run(records, algorithm=GRPO).html(),
        inspect_run(nasty, algorithm=replace(GRPO, name=MARK)).html(),
        inspect_run(sentences, algorithm=GRPO).html(),
    ]
    file = tmp_path_factory.mktemp("frozen") / "page.html"
    head = "<!doctype html><meta charset=utf-8><title>inspector</title><body style='margin:8px'>"
    file.write_text(head + "\n".join(parts), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def requests() -> list[str]:
    """Return the addresses that the page asked for, and what it complained of."""
    return []


@pytest.fixture(scope="module")
def page(browser: Browser, frozen: Path, requests: list[str]) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: requests.append(f"error: {error}"))
    page.on("console", lambda message: requests.append(f"error: {message.text}") if message.type == "error" else None)
    page.goto(frozen.as_uri())
    page.locator(".ri").nth(1).locator("table").first.wait_for(timeout=30_000)
    return page


@pytest.fixture
def view(page: Page) -> Locator:
    return page.locator(".ri").first


def statuses(view: Locator) -> list[str]:
    return view.get_by_role("status").all_text_contents()


def test_from_a_click_on_the_curve_to_another_algorithm(page: Page, view: Locator) -> None:
    assert statuses(view)[0].startswith("Step 6 of 6.")
    box = view.locator(".ri-curves svg").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])  # in the first axes
    assert re.match(r"Step [2345] of 6\.", statuses(view)[0])
    assert "after the updates of step " + statuses(view)[0][5] in view.locator(".ri-right h4").first.text_content()

    before = statuses(view)[1]
    other = view.locator("tbody tr").nth(1).locator(".tok").nth(1)
    other.click()
    assert view.locator(".tok[aria-pressed=true]").count() == 1
    assert "Response 2, token 2 of" in view.locator(".ri-right h4").first.text_content()
    assert statuses(view)[1] != before

    ratio = view.locator("summary", has_text="ratio").first
    ratio.click()
    assert "= exp(logp − old_logp)" in view.locator("details[open]").first.text_content()
    page.keyboard.press("Tab")  # into what it is made of
    page.keyboard.press("Enter")
    assert "= log(new_prob) = log(0." in view.locator("details[open] details[open]").first.text_content()
    page.keyboard.press("Tab")

    assert not view.locator(".ri-others table").is_visible()  # this algorithm alone, until one asks for more
    view.get_by_text("More: the same token under another algorithm").click()
    rows = view.locator(".ri-others tbody tr")
    assert "GRPO (this run)" in rows.first.text_content()
    gspo = view.get_by_role("button", name="GSPO", exact=True)
    gspo.click()
    assert "token ratio → sequence ratio" in view.locator(".ri-others").text_content()
    assert page.evaluate("document.activeElement.textContent") == "GSPO"  # the focus stays
    assert "needs pairs of a chosen and a rejected response" in view.locator(".ri-others").text_content()
    other.focus()
    page.keyboard.press("ArrowLeft")
    assert "token 1 of" in view.locator(".ri-right h4").first.text_content()
    assert page.evaluate("document.activeElement.className").startswith("tok")
    assert view.locator("details[open]").count() >= 2  # what was opened stays open for another token
    assert "token ratio → sequence ratio" in view.locator(".ri-others").text_content()


@pytest.fixture(scope="module")
def long_page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a run like a real model's: a chat template, 3 responses of 200 tokens, with control tokens, two clipped."""
    settings = TrainSettings(steps=1, num_prompts=4, group_size=3, evaluate_every=0, details_every=1, details_groups=1)
    (record,) = train(load_policy("chain", device="cpu"), find_task("chain"), GRPO, settings)
    group = record.groups[0]
    one = replace(group.responses[0].tokens[0], token=" word", clipped=False)
    tokens = [one] * 200
    tokens[1] = replace(one, token="<|im_start|>")
    tokens[2] = tokens[150] = replace(one, clipped=True)
    responses = tuple(replace(r, text=" word" * 200, truncated=True, tokens=tuple(tokens)) for r in group.responses)
    prompt, control = "<|im_start|>user\nHow many?<|im_end|>\n", ("<|im_start|>", "<|im_end|>")
    group = replace(group, prompt=prompt, user_text="How many?", control=control, responses=responses)
    out = tmp_path_factory.mktemp("long") / "page.html"
    inspect_run([replace(record, groups=(group,))], algorithm=GRPO).save(out)
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(out.as_uri())
    page.locator(".tok").first.wait_for(timeout=30_000)
    yield page
    page.close()


def test_the_users_words_stand_before_what_the_model_reads(long_page: Page) -> None:
    assert "<|im_" not in long_page.locator(".ri-groups").inner_text()
    text = "How many? (right answer "
    assert long_page.locator(".ri-left p").first.inner_text().startswith(text)
    reads = long_page.locator(".ri-reads")
    assert not reads.is_visible()
    long_page.get_by_text("What the model reads").click()
    assert reads.text_content() == "<|im_start|>user\nHow many?<|im_end|>\n"
    assert reads.locator(".ri-dim").all_text_contents() == ["<|im_start|>", "<|im_end|>"]
    colour = "e => getComputedStyle(e.querySelector('code')).color"
    word, control = (long_page.locator(".ri-left tbody tr").last.locator(".tok").nth(place) for place in (0, 1))
    assert control.text_content() == "<|im_start|>" and control.evaluate(colour) != word.evaluate(colour)


def test_a_long_response_folds_and_all_of_it_stays_reachable(long_page: Page) -> None:
    rows = long_page.locator(".ri-left tbody tr")
    first, last = rows.first.locator(".tok"), rows.last.locator(".tok")
    assert (first.count(), last.count()) == (60, 60)  # a row's first tokens
    fold = rows.first.get_by_role("button", name="140 more tokens, 1 of them clipped")
    fold.focus()
    long_page.keyboard.press("Enter")
    assert (first.count(), last.count()) == (200, 60)
    assert long_page.evaluate("document.activeElement.textContent") == "fewer"  # the focus stays, and folds it again
    long_page.keyboard.press("Enter")
    assert first.count() == 60
    # A click draws the rows of the old and the new choice alone.
    rows.nth(2).evaluate("row => { row.marked = true }")
    first.nth(5).click()
    assert rows.nth(2).evaluate("row => row.marked")
    # Beyond the fold a chosen token stands with its neighbours: the last one with 8 before it, token 150 with 8 on each side.
    long_page.keyboard.press("End")
    assert first.count() == 60 + 9
    assert "token 200 of 200" in long_page.locator(".ri-right h4").inner_text()
    for _ in range(49):
        long_page.keyboard.press("ArrowLeft")
    assert first.count() == 60 + 17
    pressed = rows.first.locator("[aria-pressed=true]")
    assert "token 151" in pressed.get_attribute("aria-label") and "clipped" in pressed.get_attribute("aria-label")
    assert long_page.evaluate("document.activeElement === document.querySelector('.tok[aria-pressed=true]')")


def test_keys_scrub_through_the_steps(page: Page, view: Locator) -> None:
    slider = view.get_by_role("slider", name="step").last  # the one of the bar
    slider.focus()
    page.keyboard.press("Home")
    assert statuses(view)[0].startswith("Step 1 of 6.")
    page.keyboard.press("ArrowRight")
    assert statuses(view)[0].startswith("Step 2 of 6.")
    assert page.evaluate("document.activeElement.type") == "range"
    before = view.locator(".ri-curves path[stroke-dasharray='2 3']").first.get_attribute("d")
    page.keyboard.press("End")
    assert statuses(view)[0].startswith("Step 6 of 6.")
    assert view.locator(".ri-curves path[stroke-dasharray='2 3']").first.get_attribute("d") != before


def test_it_fits_one_screen_with_the_objective_in_sight(page: Page, view: Locator) -> None:
    box = view.locator(".ri-main").bounding_box()
    assert box is not None and box["height"] <= 700 and box["width"] <= 1270
    top, column = view.locator(".ri-top").bounding_box(), view.locator(".ri-right").bounding_box()
    view.locator(".ri-right").evaluate("e => e.scrollTop = 1e6")
    after = view.locator(".ri-top").bounding_box()
    assert (
        top is not None and column is not None and after is not None and after["y"] == pytest.approx(column["y"], abs=2)
    )


def luminance(colour: str) -> float:
    numbers = [float(x) for x in re.findall(r"[\d.]+", colour)][:3]
    parts = numbers if "srgb" in colour else [x / 255 for x in numbers]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tokens_stay_readable_on_their_colour(page: Page, view: Locator, theme: str) -> None:
    page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    colours = view.locator(".tok").evaluate_all(
        "all => all.map(e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).color])"
    )
    assert len({ground for ground, _ in colours}) > 2
    for ground, ink in colours:
        light, dark = sorted((luminance(ground), luminance(ink)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ground, ink)
    paper = luminance(view.evaluate("e => getComputedStyle(e).backgroundColor"))
    assert (paper < 0.1) == (theme == "dark")
    page.evaluate("delete document.documentElement.dataset.theme")


def test_on_a_phone_tokens_come_first_and_the_sum_stays_in_sight(page: Page, view: Locator) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(400)
    places = [view.locator(f".ri-{part}").bounding_box() for part in ("head", "left", "curves", "right")]
    tops = [place["y"] for place in places if place]
    assert len(tops) == 4 and tops[:3] == sorted(tops[:3])
    assert view.locator(".ri-curves figure:visible").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    sheet = places[3]
    assert (
        sheet is not None
        and sheet["y"] + sheet["height"] <= 844 + 1
        and view.locator(".ri-top .line").first.is_visible()
    )
    page.set_viewport_size({"width": 1280, "height": 720})


def test_hostile_texts_are_text_and_ids_are_unique(page: Page) -> None:
    view = page.locator(".ri").nth(1)
    assert MARK in view.locator(".ri-left").text_content()
    assert MARK.replace(" ", "␣") in view.locator("table").first.text_content()
    assert page.locator('img[src="x"]').count() == 0 and "PWNED" not in page.title()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids)) and len(ids) > 2


def test_a_sentence_reads_as_a_sentence_and_nothing_is_right_or_wrong(page: Page) -> None:
    view = page.locator(".ri").nth(2)
    for row in view.locator("tbody tr:has(.tok)").all():
        words = row.locator(".tok").all_text_contents()
        assert (
            row.locator("td").first.inner_text().removesuffix("■").split() == words[: len(words) - (words[-1] == "■")]
        )
    assert view.locator(".tok").count() > 8
    assert re.findall(r"\b(right|wrong|NaN|undefined|null)\b|␣", view.inner_text()) == []


def test_nothing_was_asked_of_anybody(requests: list[str], frozen: Path) -> None:
    """Comes last, to see what the tests above did."""
    assert [url for url in requests if url != frozen.as_uri() and not url.startswith(("data:", "blob:"))] == []
