"""A picture that its page computes, opened from the disk: handles, controls, words, address; nothing is asked of anybody."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from matplotlib.figure import Figure
from nbconvert import HTMLExporter

from rlviz.markup import joined
from rlviz.page.image import png
from rlviz.page.picture import Axis, Cells, Choice, Line, Panel, Picture, Rule, Say, Slider, Tokens
from rlviz.page.widget import STARTED, Variant, fragment, pack, page, page_payload, starting

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, FloatRect, Locator, Page

PNG = base64.b64encode(png(Figure(figsize=(1, 1)))).decode()
HOSTILE = '<img src=x onerror="document.title=1">{nothing}'
LOW, HIGH = 0.0, 4.0  # of the x axis
# y = width · x; one rule rises with the width, at 1 + width, and one falls, at 3 − width
LINEAR: dict[str, Any] = {
    "rows": [
        ["input", "x"],
        ["input", "width"],
        ["mul", [{"r": 0}, {"r": 1}]],
        ["add", [{"r": 1}, 1]],
        ["sub", [3, {"r": 1}]],
    ],
    "outputs": {"y": 2, "upper": 3, "lower": 4},
}
SQUARE: dict[str, Any] = {"rows": [["input", "x"], ["mul", [{"r": 0}, {"r": 0}]]], "outputs": {"y": 1}}
PICTURE = Picture(
    HOSTILE,
    "Drag a handle.",
    (
        Panel(
            "lines",
            Axis("x", LOW, HIGH),
            Axis(HOSTILE, -2, 6),
            (
                Rule("upper", drag="width", label="rises"),
                Rule("lower", drag="width", colour="ink"),
                Line("x", "y", label="{name}", direct=True),
            ),
        ),
        Panel(
            "cells",
            Axis("", 0.5, 2.5, names="words"),
            Axis("", 0.5, 1.5),
            (Cells("one", "level", "one", 2, text="words"),),
        ),
        Panel("tokens", Axis(), Axis(), (Tokens("words", "one", 2),)),
    ),
    {
        "algorithm": Choice(
            {n: n for n in ("straight", "curved", "mine", HOSTILE)}, "straight", "algorithm", picks=True
        ),
        "width": Slider(0, 1, 0.1, 0.4, "width"),
        "shift": Slider(0, 1, 0.01, 0.5, "shift", plays=True),
    },
    (Say("The rule stands at {upper:.1f}.", "upper"), Say("There is no rule.")),
    data={"x": [0.0, 1.0, 2.0, 3.0, 4.0], "one": [1.0, 2.0], "level": [1.0, 1.0], "words": ["a", HOSTILE]},
    named={"wide": {"width": 1.0}},
)
VARIANTS = {
    "straight": Variant("linear", numbers={"width": (0.4, 0.0, 1.0, 0.1)}, texts={"name": HOSTILE}),
    "curved": Variant("square", texts={"name": "curved"}),
    "mine": Variant(None, why="It branches on a number."),
    HOSTILE: Variant("linear", numbers={"width": (0.7, 0.0, 1.0, 0.1)}, texts={"name": "b"}),
}


def payload(**values: Any) -> dict[str, Any]:
    defaults = {"algorithm": "straight", "shift": 0.5}
    call = {"function": "explore_it", "defaults": defaults, "sources": {"curved": "CURVED"}}
    programs: Any = {"linear": LINEAR, "square": SQUARE}
    return page_payload(
        "it", PICTURE, programs=programs, variants=VARIANTS, family=("straight",), values=values, call=call
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    one, other = (fragment(pack(payload(**values)), caption="…") for values in ({}, {"width": 0.8}))
    (folder / "one.html").write_text(page("one", one), encoding="utf-8")
    (folder / "two.html").write_text(page("two", joined(one, other)), encoding="utf-8")
    (folder / "same.html").write_text(page("same", joined(one, one)), encoding="utf-8")
    without = [
        STARTED.sub(lambda place: starting(*place.groups(), carries_script=False), text) for text in (one, other)
    ]
    notebooks = {
        "saved": (one, other),
        "saved_last": (other,),
        "saved_once": (one, without[1]),
        "saved_late": (without[0], other),
        "saved_without": (without[0],),
    }
    for name, fragments in notebooks.items():
        (folder / f"{name}.html").write_text(as_html(*fragments), encoding="utf-8")
    return folder


def as_html(*fragments: str) -> str:
    """Return a notebook with these outputs, each before its PNG, as nbconvert shows it, without what it gets from elsewhere."""
    outputs = [({"text/html": one, "text/plain": "…"}, {"image/png": PNG, "text/plain": "…"}) for one in fragments]
    new = nbformat.v4
    cells = [
        new.new_code_cell("1", outputs=[new.new_output("display_data", data) for data in pair]) for pair in outputs
    ]
    html, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    return re.sub(r'<script[^>]* src="https?:[^>]*>\s*</script>', "", html)


@pytest.fixture
def opened(browser: Browser, folder: Path) -> Iterator[Callable[..., Page]]:
    """Return what opens a file; at the end nothing may have failed, and nothing been asked of another place."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def open_file(name: str = "one.html", *, hash: str = "", **how: Any) -> Page:
        contexts.append(browser.new_context(reduced_motion="reduce", **how))
        tab = contexts[-1].new_page()
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        local = ("data:", "blob:", folder.as_uri())
        tab.on("request", lambda request: None if request.url.startswith(local) else wrong.append(request.url))
        tab.goto(f"{(folder / name).as_uri()}{hash}")
        tab.locator(".rlviz-picture svg").first.wait_for()
        return tab

    yield open_file
    for context in contexts:
        context.close()
    assert wrong == []


def value(tab: Page, name: str, place: int = 0) -> float:
    """Return where a slider stands: what it says to who cannot see it."""
    return float(tab.get_by_role("slider", name=name, exact=True).nth(place).get_attribute("aria-valuetext") or "nan")


def box(element: Locator) -> FloatRect:
    rect = element.bounding_box()
    assert rect is not None
    return rect


def middle(element: Locator) -> tuple[float, float]:
    rect = box(element)
    return rect["x"] + rect["width"] / 2, rect["y"] + rect["height"] / 2


def unit(tab: Page) -> float:
    """Return how many pixels one of the x axis is: from its ends."""
    return box(tab.locator("figure").first.locator(".rlviz-axis").last)["width"] / (HIGH - LOW)


@pytest.mark.parametrize(("handle", "sign"), [(0, 1), (1, -1)])
def test_a_handle_takes_its_mark_to_the_pointer(opened: Callable[..., Page], handle: int, sign: int) -> None:
    """A rule dragged by three tenths of the axis: the width that puts it there is .3 more where it rises, less where it falls."""
    tab = opened()
    disc = tab.locator(".rlviz-disc").nth(handle)
    x, y = middle(disc)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 0.3 * unit(tab), y + 3, steps=5)
    tab.mouse.up()
    assert value(tab, "width") == pytest.approx(0.4 + 0.3 * sign)
    assert middle(disc)[0] - x == pytest.approx(0.3 * unit(tab), abs=1)


def test_a_finger_moves_a_handle_and_not_the_page(opened: Callable[..., Page]) -> None:
    tab = opened(viewport={"width": 380, "height": 500}, has_touch=True, is_mobile=True)
    disc = tab.locator(".rlviz-disc").first
    disc.scroll_into_view_if_needed()
    x, y = middle(disc)
    finger = tab.context.new_cdp_session(tab)
    places = [(0.0, 0), (0.0, -30), (0.15, -30), (0.3, -30)]  # up first, as a finger that scrolls
    for kind, (way, up) in zip(("touchStart", *["touchMove"] * 3), places, strict=True):
        point = {"x": x + 15 + way * unit(tab), "y": y + 15 + up}  # beside the disc, within 22 pixels of its middle
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert value(tab, "width") == pytest.approx(0.7)
    assert middle(disc)[1] == y  # the page stands where it stood


def test_keys_move_a_handle(opened: Callable[..., Page]) -> None:
    tab = opened()
    handle = tab.locator(".rlviz-grip").first
    handle.focus()
    numbers = []
    for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "PageDown", "PageUp", "Home", "End"):
        handle.press(key)
        numbers.append(float(handle.get_attribute("aria-valuenow") or "nan"))
    assert numbers == pytest.approx([0.5, 0.6, 0.5, 0.0, 1.0, 0.0, 1.0])
    assert (handle.get_attribute("aria-valuemin"), handle.get_attribute("aria-valuemax")) == ("0", "1")


def test_a_slider_plays_to_its_end_and_a_hand_stops_it(opened: Callable[..., Page]) -> None:
    tab = opened()
    play = tab.get_by_role("button", name="play: shift")
    assert tab.locator(".rlviz-play").count() == 1 and value(tab, "shift") == 0.5
    play.click()
    tab.locator(".rlviz-play", has_text="❚❚").wait_for()
    tab.locator(".rlviz-play", has_text="▶").wait_for()
    assert value(tab, "shift") == 1
    play.click()  # from its end it begins anew
    assert 0 <= value(tab, "shift") < 0.5
    play.click()
    stopped = value(tab, "shift")
    tab.wait_for_timeout(500)
    assert value(tab, "shift") == stopped
    play.click()
    tab.get_by_role("slider", name="width", exact=True).first.press("ArrowRight")
    stopped = value(tab, "shift")
    tab.wait_for_timeout(500)
    assert value(tab, "shift") == stopped and value(tab, "width") == pytest.approx(0.5)


def test_the_pointer_reads_values_and_a_click_brings_the_nearest_handle(opened: Callable[..., Page]) -> None:
    """At x = 3 the line is at .4 · 3. The rules stand at 1.4 and 2.6: a click at 2.9 takes the second there, 3 − .1."""
    tab = opened()
    x, y = middle(tab.locator(".rlviz-disc").first)
    tab.mouse.move(x + 1.55 * unit(tab), y - 80)
    assert tab.locator(".rlviz-tip text").all_text_contents() == [f"{HOSTILE} 1.2", "3"]
    x, y = middle(tab.locator(".rlviz-disc").nth(1))
    tab.mouse.click(x + 0.3 * unit(tab), y - 60)
    assert value(tab, "width") == pytest.approx(0.1)


def test_the_conclusion_is_said_when_the_hand_rests(opened: Callable[..., Page]) -> None:
    tab = opened()
    sentence, status = tab.locator(".rlviz-said"), tab.get_by_role("status")
    status.get_by_text("The rule stands at 1.4.").wait_for(state="attached")
    tab.get_by_role("slider", name="width", exact=True).first.fill("0.9")
    assert (sentence.text_content(), status.text_content()) == ("The rule stands at 1.9.", "The rule stands at 1.4.")
    status.get_by_text("The rule stands at 1.9.").wait_for(state="attached")
    assert box(sentence)["y"] < box(tab.locator("figure").first)["y"]


def test_an_algorithm_brings_its_own_numbers(opened: Callable[..., Page]) -> None:
    tab = opened()
    pick, width = tab.get_by_label("algorithm", exact=True), tab.locator("label", has_text="width")
    pick.select_option("curved")
    assert not width.is_visible()
    assert not tab.locator(".rlviz-grip").first.is_visible()
    assert tab.locator(".rlviz-said").text_content() == "There is no rule."
    assert tab.locator("code").text_content() == "explore_it(CURVED)"
    pick.select_option(HOSTILE)
    assert value(tab, "width") == pytest.approx(0.7)
    tab.get_by_role("button", name="wide").click()
    assert value(tab, "width") == 1
    pick.select_option("straight")
    assert value(tab, "width") == pytest.approx(0.4)
    assert tab.locator("code").text_content() == "explore_it()"

    # What no page can compute says so and leaves the picture.
    before = tab.locator(".rlviz-area path").last.get_attribute("d")
    pick.select_option("mine")
    assert tab.locator(".rlviz-why").text_content() == "It branches on a number."
    assert tab.locator(".rlviz-area path").last.get_attribute("d") == before
    pick.select_option("straight")
    assert not tab.locator(".rlviz-why").is_visible()


def test_two_pictures_in_one_page_keep_apart(opened: Callable[..., Page]) -> None:
    tab = opened("two.html", hash="#it-2.shift=0.25")
    tab.locator(".rlviz-picture").nth(1).locator("svg").first.wait_for()
    assert [value(tab, "shift", place) for place in (0, 1)] == [0.5, 0.25]
    tab.locator(".rlviz-picture").nth(1).locator(".rlviz-grip").first.press("ArrowLeft")
    widths = [p.get_by_role("slider", name="width", exact=True).first for p in tab.locator(".rlviz-picture").all()]
    assert [float(p.get_attribute("aria-valuetext") or "nan") for p in widths] == pytest.approx([0.4, 0.7])
    assert "it-2.width=0.7" in tab.url and "#it.width" not in tab.url and "&it.width" not in tab.url
    assert tab.locator("style[data-rlviz=draw]").count() == 1
    same = opened("same.html")  # the same data twice
    same.locator(".rlviz-picture").nth(1).locator("svg").first.wait_for()


@pytest.mark.parametrize(
    ("name", "widths"),
    [("saved", [0.4, 0.8]), ("saved_last", [0.8]), ("saved_once", [0.4, 0.8]), ("saved_late", [0.4, 0.8])],
)
def test_each_output_of_a_saved_notebook_is_live(opened: Callable[..., Page], name: str, widths: list[float]) -> None:
    """With its own script, or with that of another output, drawn before it or after it; each hides its own PNG."""
    tab = opened(f"{name}.html")
    tab.locator(".rlviz-picture").nth(len(widths) - 1).locator("svg").first.wait_for()
    sliders = [p.get_by_role("slider", name="width", exact=True).first for p in tab.locator(".rlviz-picture").all()]
    assert [float(one.get_attribute("aria-valuetext") or "nan") for one in sliders] == widths
    images = tab.locator(f'img[src*="{PNG}"]')
    assert images.count() == len(widths) and not any(image.is_visible() for image in images.all())


def test_an_output_whose_script_is_gone_keeps_its_png(browser: Browser, folder: Path) -> None:
    """The output that carried it was deleted, say."""
    with browser.new_page() as tab:
        tab.goto((folder / "saved_without.html").as_uri())
        tab.wait_for_timeout(300)
        assert tab.locator(".rlviz-picture").count() == 0
        assert tab.locator(f'img[src*="{PNG}"]').is_visible()


def test_texts_stay_texts(opened: Callable[..., Page]) -> None:
    tab = opened()
    tab.get_by_label("algorithm", exact=True).select_option(HOSTILE)
    tab.wait_for_timeout(100)
    assert (tab.title(), tab.locator("img").count()) == ("one", 0)
    assert tab.locator("h2").text_content() == HOSTILE
    assert tab.locator(".rlviz-tokens > *").all_text_contents() == ["a", HOSTILE]
    assert HOSTILE in tab.locator(".rlviz-area text").all_text_contents()


def test_light_and_dark(opened: Callable[..., Page]) -> None:
    """As the reader's system is; or as the page, or JupyterLab, says."""

    def paper(tab: Page) -> str:
        return str(tab.locator(".rlviz-picture").evaluate("root => getComputedStyle(root).backgroundColor"))

    white, black = "rgb(255, 255, 255)", "rgb(22, 24, 28)"
    tab = opened(color_scheme="light")
    assert (paper(tab), paper(opened(color_scheme="dark"))) == (white, black)
    tab.locator("html").evaluate("html => { html.dataset.theme = 'dark'; }")
    assert paper(tab) == black
    tab.locator("html").evaluate("html => { delete html.dataset.theme; document.body.dataset.jpThemeLight = 'false'; }")
    assert paper(tab) == black
