"""The static site in a real browser, opened from the disk: live, played, linked, and deaf to every other host."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

from rlviz.lessons import check
from rlviz.lessons.predictions import UNPREDICTED
from rlviz.site import html, lessons, pages, questions
from rlviz.site.build import STYLE, script
from rlviz.site.search import search_index
from rlviz.site.teaching import BETWEEN, EXPLORER, teaching_pages

if TYPE_CHECKING:
    from conftest import Notebook
    from playwright.sync_api import Browser, Page

COURSE = Path(__file__).parents[2] / "notebooks"
DECKS = sorted((COURSE / "teaching" / "slides").glob("*.md"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Front page, recorded runs, and one explorer; what the other pages add needs no browser."""
    root = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "EXPLORERS", ("clip",))
        files = [*pages.front(), *pages.runs(), *pages.explorers(), search_index(COURSE)]
    live = '<p id="live"></p><script type="module">document.getElementById("live").textContent = "it runs"</script>'
    asks, result = {"share": ("How many?",)}, f"How many? {UNPREDICTED} 0.5."
    quiz = [questions.puzzle_form("bug", "the_ratio"), questions.puzzle_form("unlabelled", "grpo")]
    quiz += [questions.prediction_form(asks), questions.result_text(result, asks)]
    return written(
        root,
        [*files, html.page("lesson.html", "A lesson", html.Markup(live)), html.page("quiz.html", "Questions", *quiz)],
    )


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course's own slides."""
    slides = (file for file in teaching_pages(COURSE) if file.path.startswith("slides/"))
    return written(tmp_path_factory.mktemp("slides"), slides)


def written(root: Path, files: Iterable[html.File]) -> Path:
    """Write pages to a folder, with what all of them load."""
    for file in [*files, script(), html.File("site.css", STYLE.read_text("utf-8"))]:
        file.write(root)
    return root


@pytest.fixture
def visit(open_page: Callable[[str], Notebook], folder: Path) -> Iterator[Callable[..., Page]]:
    """Return what opens a page of the site from the disk; at the end none may have complained, or asked another host."""
    opened: list[Notebook] = []

    def go(address: str, *, root: Path = folder, watched: bool = True) -> Page:
        tab = open_page(f"file://{root}/{address}")
        if watched:
            opened.append(tab)
        return tab.page

    yield go
    for tab in opened:
        assert not tab.errors
        assert not [url for url in tab.outside if not url.startswith("file:")]
        tab.page.close()


def test_questions_are_answered_by_keyboard_and_a_guess_stands_beside_its_result(visit: Callable[..., Page]) -> None:
    page = visit("quiz.html")
    bug, run = page.locator("[data-quiz]").all()
    line, does = bug.get_by_role("group").all()
    answer = bug.locator("[aria-live]")
    line.get_by_role("radio").first.focus()
    for key in ("Space", "ArrowDown", "ArrowDown"):  # to line 3
        page.keyboard.press(key)
    assert line.get_by_role("radio").nth(2).is_checked()
    assert answer.inner_text() == "Choose a line and what it does: the answer stands here."
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    for place in range(does.get_by_role("radio").count()):
        letter = "abcd"[place]
        assert answer.inner_text() == str(check.bug("the_ratio", line=3, does=letter))
        page.keyboard.press("ArrowDown")
    line.get_by_role("radio").first.check()  # and back at the first choice
    assert answer.inner_text() == str(check.bug("the_ratio", line=1, does="a"))
    run.get_by_label("64 groups of 2, 4 updates a rollout", exact=True).check()
    assert run.locator("[aria-live]").inner_text() == str(check.unlabelled("grpo", "d"))
    field, result = page.get_by_label("How many?"), page.get_by_text("How many?").last
    assert result.inner_text() == "How many? The run says 0.5."
    field.fill("<b>.7</b>")
    assert result.inner_text() == "How many? you said <b>.7</b>; the run says 0.5."
    field.fill("")
    assert result.inner_text() == "How many? The run says 0.5."


def step_of(page: Page) -> int:
    return int(page.evaluate("location.hash.split('=')[1].split('-')[0]"))


def test_on_the_front_page_a_model_trains_whose_weights_come_when_they_are_needed(visit: Callable[..., Page]) -> None:
    page = visit("index.html#play.seed=1")
    page.wait_for_function("() => globalThis.rlviz?.run?.step >= 2", timeout=90_000)
    loaded = "() => [...document.scripts].map((one) => one.src.split('/').at(-1)).filter((name) => name && name !== 'rlviz.js')"
    assert page.evaluate(loaded) == ["programs.js", "sentences.js"]
    page.get_by_role("tab", name="learns to add").click()
    page.wait_for_function("() => rlviz.run.settings.task === 'chain' && rlviz.run.step >= 1", timeout=90_000)
    page.get_by_label("task", exact=True).select_option("sort")
    page.wait_for_function("() => rlviz.run.settings.task === 'sort' && rlviz.run.step >= 1", timeout=90_000)
    assert page.evaluate(loaded) == ["programs.js", "sentences.js", "chain.js", "sort.js"]


def test_a_recorded_run_is_played_and_its_address_leads_back(visit: Callable[..., Page]) -> None:
    page = visit("runs/grpo.html")
    page.get_by_role("button", name="▶ Play").click()
    page.wait_for_function("() => location.hash.startsWith('#place=12-')", timeout=60_000)  # the third step with tokens
    page.get_by_role("button", name="response 3, token 2").first.click()  # who looks stops it
    page.get_by_role("button", name="▶ Play").wait_for(timeout=3000)
    at = step_of(page)
    page.wait_for_timeout(3500)
    assert step_of(page) == at and at >= 12
    left, address = page.locator(".ri-right").inner_text(), page.evaluate("location.hash")
    assert address == f"#place={at}-{page.evaluate('location.hash.split(`-`)[1]')}-2-1"
    again = visit(f"runs/grpo.html{address}")
    again.wait_for_function("(text) => document.querySelector('.ri-right')?.innerText === text", arg=left)
    again.locator(".ri-bar input").focus()
    again.keyboard.press("End")
    again.get_by_text("Step 80 of 80.").first.wait_for()
    again.get_by_role("button", name="▶ Play").click()  # at the end it begins anew
    again.get_by_text(re.compile(r"Step [1-7]?\d of 80\.")).first.wait_for()


def test_a_run_on_pairs_is_played_without_groups(visit: Callable[..., Page]) -> None:
    page = visit("runs/dpo.html")
    page.get_by_text("Step 1 of 120.").first.wait_for()
    page.get_by_text("Nothing is sampled in a step").wait_for()
    page.get_by_role("button", name="▶ Play").click()
    page.get_by_text(re.compile(r"Step ([4-9]|\d\d+) of 120\.")).first.wait_for(timeout=60_000)
    page.get_by_text("Log-probability against the start").first.wait_for()
    assert page.locator(".ri .tok").count() == 0


def test_the_search_is_worked_by_keys_said_aloud_and_fits_a_phone(visit: Callable[..., Page]) -> None:
    page = visit("runs.html")
    search = page.get_by_role("search")
    field, options = search.get_by_role("combobox"), search.get_by_role("option")
    page.keyboard.press("/")
    page.keyboard.type("clip_ratio")
    options.first.wait_for()
    assert options.first.inner_text().startswith("Symptom\nThe ratio is always 1")
    assert field.get_attribute("aria-expanded") == "true" and field.input_value() == "clip_ratio"
    assert search.get_by_role("status").inner_text() == f"{options.count()} found"
    for key, at in (("ArrowDown", 1), ("ArrowUp", 0), ("ArrowUp", options.count() - 1), ("ArrowDown", 0)):
        page.keyboard.press(key)
        assert [one.get_attribute("aria-selected") for one in options.all()].index("true") == at
        assert field.get_attribute("aria-activedescendant") == options.nth(at).get_attribute("id")
    page.keyboard.press("Escape")
    assert field.get_attribute("aria-expanded") == "false" and options.count() == 0
    field.fill("docker/")
    search.get_by_role("option", name="Nothing found for “docker/”").wait_for()
    assert (options.first.get_attribute("href") or "").endswith("course/symptoms.html")
    page.set_viewport_size({"width": 375, "height": 720})
    field.fill("frac_reward_zero_std")
    search.get_by_role("option", name="All groups have the same reward").wait_for()
    box = search.get_by_role("listbox").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 375
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    field.fill("when does cliping stop a token")
    search.get_by_role("option", name="When does clipping stop a token?").wait_for()
    field.press("Enter")
    page.wait_for_url("**/explorers/clip.html")


CALLS = ".rlviz-call code"


def calls_of(page: Page, count: int) -> list[str]:
    """Return the calls under a page's pictures, as soon as there are so many pictures."""
    page.wait_for_function(f"(count) => document.querySelectorAll('{CALLS}').length === count", arg=count)
    return page.locator(CALLS).all_text_contents()


def test_each_picture_of_a_deck_opens_as_its_explorer_does_and_the_address_leads_back(
    visit: Callable[..., Page], decks: Path
) -> None:
    deck = DECKS[0]
    names = [match["name"] for match in EXPLORER.finditer(deck.read_text(encoding="utf-8"))]
    at_first = [f"explore_{name}()" for name in names]
    page = visit(f"slides/{deck.stem}.html", root=decks)
    assert calls_of(page, len(names)) == at_first
    last = page.locator("[data-picture]").last
    slider = last.locator("input[type=range]:visible").first
    slider.focus()
    page.keyboard.press("ArrowLeft" if slider.evaluate("one => one.value === one.max") else "ArrowRight")
    page.wait_for_function(
        f"(call) => [...document.querySelectorAll('{CALLS}')].at(-1).textContent !== call", arg=at_first[-1]
    )
    moved = [*at_first[:-1], last.locator(CALLS).text_content()]
    again = visit(f"slides/{deck.stem}.html{page.evaluate('location.hash')}", root=decks)
    assert calls_of(again, len(names)) == moved


PAST = """() => [...document.querySelectorAll(".slide")].flatMap((slide, i) => {
    const {left, top, right} = slide.getBoundingClientRect();
    const low = slide.querySelector(".number").getBoundingClientRect().top;
    const past = [...slide.querySelectorAll("*:not(.number)")].filter((one) => {
        if (!one.checkVisibility() || one.closest(".rlviz-status, [clip-path]")) return false;
        const box = one.getBoundingClientRect();
        return box.width && (box.left < left || box.right > right || box.top < top || box.bottom > low);
    });
    return past.length || slide.scrollHeight > innerHeight ? [[i + 1, past[0]?.outerHTML.slice(0, 80)]] : [];
})"""
SEEN = "() => document.elementFromPoint(640, 360).closest('.slide').querySelector('.number').textContent"


def fitted(page: Page, pictures: int) -> None:
    """Wait until every picture of a deck is there and has found its height."""
    calls_of(page, pictures)
    page.wait_for_function(
        """() => {
        const now = [...document.querySelectorAll(".slide *")].map((one) => one.clientHeight).join();
        const isStill = now === window.before;
        window.before = now;
        return isStill;
    }""",
        polling=500,
    )


@pytest.mark.parametrize("deck", DECKS, ids=lambda deck: deck.stem)
def test_each_slide_fits_a_projector_and_a_printed_page_and_keys_and_buttons_lead_through(
    visit: Callable[..., Page], decks: Path, deck: Path
) -> None:
    text = deck.read_text(encoding="utf-8")
    page = visit("index.html")
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"file://{decks}/slides/{deck.stem}.html")
    fitted(page, len(EXPLORER.findall(text)))
    assert page.evaluate(PAST) == []
    count = len(BETWEEN.split(text))
    forward = ("ArrowRight", "PageDown", "Space", "ArrowDown")
    for place in range(1, count):
        assert page.evaluate(SEEN) == f"{place} / {count}"
        page.keyboard.press(forward[place % len(forward)])
    assert page.evaluate(SEEN) == f"{count} / {count}"
    for key, slide in (("PageDown", count), ("Home", 1), ("ArrowLeft", 1), ("End", count), ("ArrowUp", count - 1)):
        page.keyboard.press(key)
        assert page.evaluate(SEEN) == f"{slide} / {count}", key
    page.get_by_role("button", name="The slide before").click()
    assert page.evaluate(SEEN) == f"{count - 2} / {count}"
    page.get_by_role("button", name="The next slide").click()
    assert page.evaluate(SEEN) == f"{count - 1} / {count}"
    assert len(re.findall(rb"/Type /Page\b", page.pdf(prefer_css_page_size=True))) == count
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(600)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_control_of_a_slide_keeps_its_keys_but_for_the_clicker_s(visit: Callable[..., Page], decks: Path) -> None:
    page = visit("slides/1.html", root=decks)
    fitted(page, 2)
    clip = page.locator("[data-picture=clip]")
    clip.scroll_into_view_if_needed()
    here = page.evaluate(SEEN)
    for control in (clip.get_by_label("ε high").first, clip.locator(".rlviz-grip").first):
        value = "one => one.value ?? one.getAttribute('aria-valuenow')"
        control.focus()
        before = control.evaluate(value)
        page.keyboard.press("ArrowRight")
        assert control.evaluate(value) != before and page.evaluate(SEEN) == here
        moved = control.evaluate(value)
        page.keyboard.press("PageDown")
        assert control.evaluate(value) == moved and page.evaluate(SEEN) != here
        page.keyboard.press("ArrowLeft")  # the slide has the keys now
        assert page.evaluate(SEEN) == here


def test_no_page_can_reach_another_host(visit: Callable[..., Page]) -> None:
    """What a page tries here, its own policy refuses before a request is made."""
    page = visit("index.html", watched=False)
    requests: list[str] = []
    page.on("requestfinished", lambda request: requests.append(request.url))
    page.on("requestfailed", lambda request: requests.append(f"{request.url} {request.failure}"))
    refused = page.evaluate("""async () => {
        const seen = [];
        document.addEventListener('securitypolicyviolation', (event) => seen.push(event.effectiveDirective));
        new Image().src = 'http://127.0.0.1:9/pixel.png';
        const script = document.createElement('script');
        script.src = 'http://127.0.0.1:9/track.js';
        document.head.append(script);
        await fetch('http://127.0.0.1:9/beacon').catch(() => {});
        document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.hurt = 1">');
        await new Promise((done) => setTimeout(done, 300));
        return [seen.sort(), window.hurt ?? null];
    }""")
    assert refused[0] == ["connect-src", "img-src", "script-src-attr", "script-src-elem"]
    assert refused[1] is None
    assert all("csp" in url for url in requests if "127.0.0.1" in url)


@pytest.fixture(scope="module")
def lesson(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lesson with a training panel and a picture that answers, and what its training loads."""
    course = tmp_path_factory.mktemp("notebooks")
    panel = 'training_panel("sort", settings=TrainSettings(updates_per_rollout=4))'
    clip, new = pages.explorer_of("clip"), nbformat.v4
    image = {"image/png": base64.b64encode(clip.png).decode(), "text/plain": clip.alt}
    outputs = [new.new_output("display_data", data) for data in ({"text/html": clip.html(), "text/plain": ""}, image)]
    cells = [
        new.new_markdown_cell("# 01 · Made up"),
        new.new_code_cell(panel),
        new.new_code_cell("explore_clip()", outputs=outputs),
    ]
    nbformat.write(new.new_notebook(cells=cells), course / "01_made_up.ipynb")
    training = [file for file in pages.front() if file.path.startswith("training/")]
    return written(tmp_path_factory.mktemp("lessons"), [*lessons.course_pages(course), *training])


def test_in_a_lesson_a_picture_answers_and_a_model_trains_when_its_reader_asks_for_it(
    visit: Callable[..., Page], lesson: Path
) -> None:
    page = visit("course/01_made_up.html", root=lesson)
    page.locator("[data-picture=clip] .rlviz-grip").first.wait_for()
    assert page.locator("[data-picture] > img").count() == 0  # which stood there before
    loaded = "() => [...document.scripts].map((one) => one.src.split('/').at(-1)).filter(Boolean)"
    assert page.evaluate(loaded) == ["rlviz.js"]
    train, single = (page.get_by_role("button", name=name) for name in ("▶ Train", "One step"))
    assert single.is_disabled() and page.evaluate("location.hash") == ""
    top = train.bounding_box()
    train.click()
    page.wait_for_function("() => globalThis.rlviz?.run?.step >= 2", timeout=90_000)
    assert page.evaluate(loaded) == ["rlviz.js", "programs.js", "sort.js"] and single.is_enabled()
    settings = page.evaluate("rlviz.run.settings")
    assert (settings["task"], settings["updates_per_rollout"], settings["beta"]) == ("sort", 4, 0)
    pause = page.get_by_role("button", name="❚❚ Pause")
    assert top is not None and pause.bounding_box()["y"] == top["y"]  # type: ignore[index]
    pause.click()


def test_a_lesson_is_read_where_no_script_runs(lesson: Path, browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{lesson}/course/01_made_up.html")
    picture = page.locator("[data-picture] > img")
    picture.scroll_into_view_if_needed()
    assert picture.evaluate("one => one.naturalWidth") > 500
    page.get_by_text("The model trains where JavaScript runs.").wait_for()
    context.close()


def test_nothing_is_wider_than_a_phone_and_the_script_of_a_lesson_s_output_runs(
    visit: Callable[..., Page], folder: Path
) -> None:
    page = visit("lesson.html")
    page.get_by_text("it runs").wait_for()
    page.set_viewport_size({"width": 390, "height": 844})
    for address in ("index.html", "runs/lookup.html", "explorers/clip.html"):
        page.goto(f"file://{folder}/{address}")
        page.wait_for_timeout(600)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
