"""A picture is read from the last row and on a phone, goes out as a file or a link, and keeps a setting beside another."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from PIL import Image

from rlviz.algorithms import GRPO
from rlviz.page.widget import page as page_of
from rlviz.pictures import Explorer, explore_advantages, explore_clip, explore_coin, explore_process, explore_walk

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Download, Page

SEEN = {"clip": explore_clip, "process": explore_process, "walk": explore_walk, "coin": explore_coin}
# Pixels: how high the letters of each text in sight are, its words, and its box.
TEXTS = """() => {
  const around = "h2, h3, figcaption, .rlviz-label, .rlviz-said, select, button:not(.rlviz-play)";
  const all = [...document.querySelectorAll(`.rlviz-picture :is(svg text, ${around})`)];
  const isSeen = (one) => one.checkVisibility({ opacityProperty: true }) && one.getBoundingClientRect().width;
  return all.filter((one) => one.textContent.trim() && isSeen(one)).map((one) => {
    const { left, right, top, bottom } = one.getBoundingClientRect(), isGraph = Boolean(one.ownerSVGElement);
    const zoom = isGraph ? one.getScreenCTM().a : 1;
    return [zoom * parseFloat(getComputedStyle(one).fontSize), one.textContent, [left, right, top, bottom], isGraph];
  });
}"""
STATE = """() => [...document.querySelectorAll(".rlviz-controls :is(input, select)")].map((one) => one.value)
  .concat(document.querySelector("code").textContent, document.querySelector(".rlviz-said").textContent)"""


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Return what opens an explorer's page from the disk; nothing may fail there, or be refused by its policy."""
    context, wrong = browser.new_context(reduced_motion="reduce"), []

    def opens(explorer: Explorer, size: tuple[int, int] = (1280, 720), address: str = "") -> Page:
        file = tmp_path / f"{explorer.spec.name}.html"
        file.write_text(page_of("a picture", explorer.html()), encoding="utf-8")
        tab = context.new_page()
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        tab.set_viewport_size({"width": size[0], "height": size[1]})
        tab.goto(file.as_uri() + address)
        tab.locator(".rlviz-panels svg text").first.wait_for()
        return tab

    yield opens
    context.close()
    assert wrong == []


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_the_last_row_can_read_it(name: str, size: tuple[int, int], opened: Callable[..., Page]) -> None:
    """Text is at least 2 % as high as the screen: 14.4 pixels on a small projector, 21.6 on a large one."""
    texts = opened(SEEN[name](), size).evaluate(TEXTS)
    small = [(height, words) for height, words, *_ in texts if height < 0.02 * size[1]]
    assert len(texts) > 10 and small == []


@pytest.mark.parametrize("name", SEEN)
def test_on_a_phone_no_words_lie_on_each_other_or_leave_it(name: str, opened: Callable[..., Page]) -> None:
    texts = opened(SEEN[name](), (390, 844)).evaluate(TEXTS)
    assert [words for _, words, (left, right, *_), _ in texts if left < 0 or right > 390] == []
    graphs = [(words, box) for _, words, box, is_graph in texts if is_graph]
    for i, (one, (left, right, top, bottom)) in enumerate(graphs):
        for other, (start, end, high, low) in graphs[:i]:
            across, down = min(right, end) - max(left, start), min(bottom, low) - max(top, high)
            assert across < 2 or down < 4, (one, other)


def saved(tab: Page, kind: str) -> Download:
    with tab.expect_download() as file:
        tab.get_by_role("button", name=kind, exact=True).click()
    return file.value


@pytest.mark.parametrize("explorer", [explore_clip(eps_high=0.28), explore_process()], ids=["clip", "process"])
def test_it_is_saved_as_it_is_with_its_title_and_what_is_on_show(
    explorer: Explorer, opened: Callable[..., Page]
) -> None:
    tab = opened(explorer)
    file = saved(tab, "SVG")
    assert file.suggested_filename == f"{explorer.spec.name}-grpo.svg"
    text = file.path().read_text(encoding="utf-8")
    words = [one.text for one in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert words[:2] == [explorer.title, explorer.setting]
    assert {one for _, one, _, is_graph in tab.evaluate(TEXTS) if is_graph} <= set(words)
    assert "class=" not in text.replace('class="rlviz', "") and not re.search(r'style="[^"]*(var\(|light-dark)', text)
    picture = saved(tab, "PNG")
    assert picture.suggested_filename == f"{explorer.spec.name}-grpo.png"
    image = Image.open(io.BytesIO(picture.path().read_bytes())).convert("RGB")
    size = re.search(r'<svg[^>]* width="(\d+)" height="(\d+)"', text)
    assert size and image.size == (2 * int(size[1]), 2 * int(size[2]))
    colours = {colour for _, colour in image.getcolors(1 << 24) or []}
    blue, grey = (0, 114, 178), (127, 127, 127)  # of lines and of rules
    assert image.getpixel((2, 2)) == (255, 255, 255) and colours >= {blue, grey}


def test_a_link_opens_the_picture_as_it_is_and_what_cannot_be_is_the_nearest_that_can(
    opened: Callable[..., Page],
) -> None:
    explorer = explore_clip(old_prob=0.3, beside=(GRPO.with_parameters(eps_high=0.5),))
    tab = opened(explorer)
    tab.get_by_role("button", name="Copy link").click()
    address = "#" + tab.url.split("#")[1]
    assert opened(explore_clip(), address=address).evaluate(STATE) == tab.evaluate(STATE)
    wrong = "#clip.old_prob=7&clip.eps_low=-1&clip.up_to=&clip.algorithm=NO&clip.beside=GRPO~eps_high=9,NO~x=1"
    now = opened(explore_clip(), address=wrong)
    assert now.evaluate("document.querySelector('code').textContent") == "explore_clip(eps_low=0.01, old_prob=1)"
    inherited = "#clip.algorithm=constructor&clip.beside=toString,__proto__,GRPO~constructor=1"
    assert opened(explore_clip(), address=inherited).evaluate(STATE) == opened(explore_clip()).evaluate(STATE)
    counted = opened(explore_advantages(), address="#advantages.group_size=5.6")
    assert counted.evaluate("document.querySelector('code').textContent") == "explore_advantages(group_size=6)"
    far = opened(explore_clip(eps_high=1.5))  # further than its slider goes
    assert far.evaluate("document.querySelector('code').textContent") == "explore_clip(eps_high=1.5)"


def test_a_setting_is_pinned_beside_and_stays_while_the_sliders_move(opened: Callable[..., Page]) -> None:
    tab = opened(explore_clip(eps_high=0.5))
    menu = tab.locator(".rlviz-beside select")
    assert menu.locator("option").nth(1).inner_text() == "pin GRPO, ε high 0.5"
    menu.select_option(index=1)
    lines = "[...document.querySelectorAll('.rlviz-area path')].filter((one) => one.checkVisibility())"
    line = f"{lines}.find((one) => one.getAttribute('stroke-dasharray') === '5 2 1 2').getAttribute('d')"
    before, main = tab.evaluate(line), tab.evaluate(f"{lines}.map((one) => one.getAttribute('d')).join()")
    slider = tab.get_by_role("slider", name="ε high").first
    slider.press("Home")
    assert tab.evaluate(line) == before and tab.evaluate(f"{lines}.map((one) => one.getAttribute('d')).join()") != main
    assert tab.locator(".rlviz-chip").inner_text().replace("\n", "").startswith("GRPO, ε high 0.5")
    call = tab.evaluate("document.querySelector('code').textContent")
    assert call == "explore_clip(eps_high=0.01, beside=(GRPO.with_parameters(eps_high=0.5),))"
    ends = tab.evaluate("[...document.querySelectorAll('.rlviz-direct')].map((one) => one.textContent)")
    assert "GRPO, ε high 0.5" in ends
