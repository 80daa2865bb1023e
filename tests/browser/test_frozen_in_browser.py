"""An explorer without a kernel, in a page of its own from disk: it answers, it asks nobody, and it says what it shows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlviz.algorithms import DCPO, GRPO
from rlviz.pictures import explore_clip, explore_map
from rlviz.pictures.frozen import freeze, page
from rlviz.pictures.map import map_curve, say_cell

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

OLD_PROBS = (0.1, 0.2, 0.4, 0.6, 0.8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("frozen") / "clip.html"
    frozen = freeze(explore_clip(up_to=4.0), {"algorithm": (GRPO, DCPO), "old_prob": OLD_PROBS})
    path.write_text(page("<clip> & more", frozen), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Browser, file: Path) -> Iterator[Callable[..., Page]]:
    contexts: list[BrowserContext] = []

    def open_file(**context: object) -> Page:
        contexts.append(browser.new_context(**context))  # type: ignore[arg-type]
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(file.as_uri())
        return tab

    errors: list[str] = []
    asked: list[str] = []
    yield open_file
    for context in contexts:
        context.close()
    assert not errors
    assert [url for url in asked if not url.startswith(("data:", "blob:", file.as_uri()))] == []


def until(tab: Page, condition: Callable[[], bool], expected: str) -> None:
    """Poll: the page's policy lets no string be evaluated, which Playwright's own waiting would do."""
    for _ in range(400):
        if condition():
            return
        tab.wait_for_timeout(50)
    pytest.fail(f"still not after 20 s: {expected}")


def shown(tab: Page) -> tuple[str, str]:
    return tab.locator(".rl-picture [role=img]").inner_html(), tab.locator(".rl-call").text_content() or ""


@pytest.mark.quick(1)
def test_it_answers_as_the_kernel_would(opened: Callable[..., Page]) -> None:
    """Each point of the grid is, to the letter, the picture that a live explorer sends for those values."""
    tab = opened()
    tab.locator(".rl-explorer").wait_for()
    assert tab.title() == "<clip> & more"
    slider, pick = tab.get_by_label("old probability").first, tab.get_by_label("algorithm")
    for index, name in enumerate(("GRPO", "DCPO")):
        pick.select_option(index=index)
        for place, old_prob in enumerate(OLD_PROBS):
            slider.fill(str(place))
            live = explore_clip((GRPO, DCPO)[index], up_to=4.0, old_prob=old_prob)
            drawn, call = shown(tab)
            assert call == live.call
            assert numbers_in(drawn) == numbers_in(live.still + live.moving), (name, old_prob)
            until(tab, lambda: tab.get_by_role("status").text_content() == live.conclusion, live.conclusion)  # noqa: B023


def numbers_in(fragment: str) -> list[str]:
    """Return the paths and the words of a fragment: the page writes attributes and ids in its own way."""
    return re.findall(r' d="([^"]*)"', fragment) + re.findall(r"<text[^>]*>([^<]*)</text>", fragment)


def test_a_handle_goes_to_the_nearest_frame_by_hand_and_by_key(opened: Callable[..., Page]) -> None:
    tab = opened()
    handle = tab.locator(".rl-handle").and_(tab.get_by_label("old probability"))
    handle.wait_for()
    box = handle.locator(".grip").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 85, y)  # from ratio 1 / 0.6 towards 1 / 0.4
    tab.mouse.up()
    assert "old_prob=0.4" in shown(tab)[1]
    tab.keyboard.press("ArrowRight")  # a larger ratio stands for a smaller probability
    assert "old_prob=0.2" in shown(tab)[1]
    assert handle.get_attribute("aria-valuetext") == "0.2"
    assert handle.evaluate("handle => handle === document.activeElement")
    tab.keyboard.press("End")  # ratio 10 lies beyond the axes: the handle waits at their edge
    assert "old_prob=0.1" in shown(tab)[1]
    edge = handle.locator(".grip").bounding_box()
    assert edge is not None and edge["x"] > x + 85
    tab.keyboard.press("Home")
    assert "old_prob=0.8" in shown(tab)[1]


def test_dark_narrow_and_by_keyboard_from_the_first_tab(opened: Callable[..., Page]) -> None:
    tab = opened(viewport={"width": 480, "height": 900}, color_scheme="dark")
    tab.locator(".rl-dark .rl-picture, .rl-picture.rl-dark").first.wait_for()
    panels = tab.locator(".rl-picture > svg")
    until(
        tab, lambda: tab.locator(".rl-picture > svg:has(> use)").count() == 4, "two graphs, and the legend in two parts"
    )
    boxes = [panel.bounding_box() for panel in panels.all()[-4:]]
    for above, below in itertools.pairwise(boxes):
        assert above is not None and below is not None and below["y"] >= above["y"] + above["height"] - 1
    assert tab.evaluate("document.documentElement.scrollWidth") <= 480
    before = shown(tab)
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    tab.keyboard.press("ArrowRight")
    assert shown(tab) != before


def test_without_scripts_there_is_the_picture_and_what_it_shows(opened: Callable[..., Page]) -> None:
    tab = opened(java_script_enabled=False)
    image = tab.get_by_role("img")
    assert (image.get_attribute("alt") or "").startswith("Two graphs of the objective")
    assert "GRPO pushes a good token up" in (tab.locator("p").first.text_content() or "")


def test_a_click_on_a_cell_of_a_map_shows_its_runs(browser: Browser, tmp_path: Path) -> None:
    explorer = explore_map()
    file = tmp_path / "map.html"
    frozen = freeze(explorer, {"row": (1, 2, 3), "column": (1, 2, 3)})
    file.write_text(page("map", frozen), encoding="utf-8")
    tab = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    tab.goto(file.as_uri())
    picture = tab.locator(".rl-picture > svg[viewBox]").first
    picture.wait_for()
    place = picture.bounding_box()
    assert place is not None
    left, top, width, height = explorer.axes[0]["box"]
    scale = place["width"] / explorer.size[0]
    x, y = left + width * 1.5 / 6, top + height * (1 - 2.5 / 6)  # the middles of column 2 and row 3, of six
    tab.mouse.click(place["x"] + scale * x, place["y"] + scale * y)
    expected = "explore_map(column=2, row=3)"
    tab.get_by_text(expected).wait_for(timeout=20_000)
    assert say_cell(map_curve(column=2, row=3)) in (tab.locator(".rl-explorer details p").last.text_content() or "")
    tab.close()
