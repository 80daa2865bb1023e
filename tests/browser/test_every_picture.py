"""Every explorer as a page: each control to both ends and back, each handle by key, each option, while nothing fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz.page.widget import page
from rlviz.pictures.catalogue import EXPLORERS, find_explorer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.quick(2)
WIDTH = 1280
# what is in sight: coordinates of marks, ticks and labels, and words, in any order
DRAWN = """() => {
    const isThere = { path: (one) => one.getAttribute("d"), text: (one) => one.textContent };
    const isSeen = (one) => !one.closest("[display=none]") && (isThere[one.tagName]?.(one) ?? true);
    const names = ["d", "x", "y", "cx", "cy", "width", "height", "fill"];
    const drawn = document.querySelectorAll(":is(.rlviz-area, .rlviz-axes, .rlviz-words) :is(path, text, rect, circle)");
    const marks = [...drawn].filter(isSeen);
    const told = marks.map((one) => [one.textContent, ...names.map((name) => one.getAttribute(name))].join("|")).sort();
    const words = [...document.querySelectorAll(".rlviz-said, .rlviz-call code")].map((one) => one.textContent);
    return [...words, ...told].join("\\n");
}"""


@pytest.fixture(params=EXPLORERS)
def shown(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Open an explorer with all its controls in sight; at the end nothing may have failed, and nothing been asked of anybody."""
    file = tmp_path / "page.html"
    file.write_text(page("one", find_explorer(request.param)().html()), encoding="utf-8")
    context, wrong = browser.new_context(reduced_motion="reduce"), list[str]()
    tab = context.new_page()
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    local = ("data:", "blob:", file.as_uri())
    tab.on("request", lambda asked: None if asked.url.startswith(local) else wrong.append(asked.url))
    tab.goto(file.as_uri())
    tab.locator(".rlviz-picture svg").first.wait_for()
    for fold in tab.locator("details").all():
        fold.evaluate("fold => { fold.open = true; }")
    yield tab
    context.close()
    assert wrong == []


def moved(tab: Page, move: Callable[[], None]) -> bool:
    """Return whether a move changes what is drawn or said; that takes a frame or two."""
    before = tab.evaluate(DRAWN)
    move()
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return bool(tab.evaluate(DRAWN) != before)


def at_rest(tab: Page) -> str:
    """Return what is drawn and said after the page was laid out anew: until then axes keep the room that they once took."""
    for width in (1000, WIDTH):
        tab.set_viewport_size({"width": width, "height": 800})
        moved(tab, lambda: None)
    return str(tab.evaluate(DRAWN))


def in_sight(found: Locator) -> list[Locator]:
    return [one for one in found.all() if one.is_visible()]


def test_every_slider_to_both_ends_and_back(shown: Page) -> None:
    start = at_rest(shown)
    for slider in in_sight(shown.locator("input[type=range]")):
        label, value = slider.get_attribute("aria-label"), slider.input_value()
        ends = [moved(shown, lambda key=key: slider.press(key)) for key in ("Home", "End")]  # noqa: B023
        assert ends[1], f"{label}: from the first end to the last"
        slider.fill(value)
        assert at_rest(shown) == start, f"{label} back at {value}"


def test_every_handle_answers_to_a_key_and_keeps_the_focus(shown: Page) -> None:
    start = at_rest(shown)
    for handle in in_sight(shown.locator(".rlviz-grip")):
        label, value = handle.get_attribute("aria-label"), handle.get_attribute("aria-valuenow")
        there, back = ("ArrowRight", "ArrowLeft")
        if value == handle.get_attribute("aria-valuemax"):
            there, back = back, there
        assert moved(shown, lambda: handle.press(there)), f"{label}: {there}"  # noqa: B023
        assert handle.get_attribute("aria-valuetext") and handle.get_attribute("aria-valuenow") != value
        handle.press(back)
        assert at_rest(shown) == start, f"{label} back at {value}"
        assert handle.evaluate("handle => handle === document.activeElement"), label


def test_every_option_is_computed_in_the_page(shown: Page) -> None:
    start = at_rest(shown)
    for menu in in_sight(shown.locator("select:not(.rlviz-beside *)")):
        label, value = menu.get_attribute("aria-label"), menu.input_value()
        for option in menu.locator("option").evaluate_all("options => options.map((option) => option.value)"):
            if option == value:
                continue
            moved(shown, lambda option=option: menu.select_option(option))  # noqa: B023
            assert not in_sight(shown.locator(".rlviz-why")), f"{label}: {option}"
        menu.select_option(value)
        assert at_rest(shown) == start, f"{label} back at {value}"
