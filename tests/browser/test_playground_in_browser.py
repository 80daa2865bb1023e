"""The playground in a real browser, as a web page and in JupyterLab: Train and Stop, two tabs, the keyboard alone."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.error
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from conftest import Lab, Notebook
    from playwright.sync_api import Page, Route

SECONDS = 90  # how long a start, a step or a redraw may take on a slow machine
LOST = "widget model not found"  # Voila's, rarely; the page loads again then
OWN_BEACON = "voila/api/shutdown"  # Voila's, without the token: refused when the page loads again, as ours is not
HOW_LOADED = "performance.getEntriesByType('navigation')[0].type"
CONTROLS = (
    *("task", "algorithm", "steps", "first seed", "seeds, in turn", "eps_low", "eps_high", "beta"),
    *("group size", "num prompts", "learning rate", "updates per rollout", "minibatches", "temperature"),
)


@dataclass(frozen=True)
class Tab:
    """A page with a playground in it."""

    page: Page

    @property
    def caption(self) -> str:
        return self.page.get_by_role("status").text_content() or ""

    @property
    def step(self) -> int:
        found = re.search(r"step (\d+) of \d+", self.caption)
        return int(found[1]) if found else 0

    @property
    def picture(self) -> str:
        """The picture as the page draws it."""
        return self.page.locator(".rlviz-playground .rl-picture").inner_html()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def put(self, name: str, value: str) -> None:
        box = self.page.get_by_label(name, exact=True)
        box.fill(value)
        box.press("Enter")

    def wait_until(self, condition: Callable[[], bool], expected: str) -> None:
        for _ in range(SECONDS * 10):
            if condition():
                return
            self.page.wait_for_timeout(100)
        pytest.fail(f"still not after {SECONDS} s: {expected}; the caption says {self.caption!r}")

    def wait_for(self, start: str) -> None:
        self.wait_until(lambda: self.caption.startswith(start), start)


@pytest.fixture
def open_tab(open_page: Callable[[str], Notebook], voila: Lab) -> Iterator[Callable[[], Tab]]:
    """Return what opens the page in a new tab; at the end no tab may have complained, or asked another host."""
    opened: list[Notebook] = []

    def open_one() -> Tab:
        opened.append(open_page(voila.url))
        opened[-1].page.get_by_role("button", name="Train", exact=True).wait_for(timeout=SECONDS * 1000)
        return Tab(opened[-1].page)

    yield open_one
    for tab in opened:
        lost = any(LOST in error for error in tab.errors)
        if lost and not tab.page.is_closed():
            assert tab.page.evaluate(HOW_LOADED) == "reload"
        assert not [error for error in tab.errors if LOST not in error and not (lost and OWN_BEACON in error)]
        assert not tab.outside
        if not tab.page.is_closed():
            tab.page.close(run_before_unload=True)


def train_stop_resume_reset(tab: Tab) -> None:
    empty = tab.picture
    tab.put("steps", "60")
    tab.press("Train")
    tab.wait_until(lambda: tab.step >= 2, "two steps, which make a line")
    early = tab.step
    assert tab.picture != empty
    tab.wait_until(lambda: tab.step > early, "a further step")
    assert tab.caption.startswith("Training. Run 1, GRPO on chain")

    tab.press("Stop")
    tab.wait_for("Stopped")
    stopped, picture = tab.step, tab.picture
    assert stopped < 60
    tab.page.wait_for_timeout(1000)
    assert tab.step == stopped
    assert tab.picture == picture

    tab.press("Resume")
    tab.wait_until(lambda: tab.step > stopped, "training again")
    tab.press("Stop")
    tab.wait_for("Stopped")

    tab.page.get_by_label("algorithm", exact=True).select_option("DAPO")
    since = tab.page.get_by_text("Since run 1: GRPO → DAPO")
    since.wait_for(timeout=SECONDS * 1000)
    tab.press("Train")
    tab.wait_for("Training. Run 2, DAPO on chain")
    assert tab.caption.endswith("Grey: run 1.")
    tab.press("Stop")
    tab.wait_for("Stopped")

    tab.press("Reset")
    tab.wait_for("Press Train.")
    tab.wait_until(lambda: tab.picture == empty, "the empty picture")
    assert tab.page.get_by_label("steps", exact=True).input_value() == "120"


def test_a_run_plays_while_the_kernel_starts(open_page: Callable[[str], Notebook], voila: Lab) -> None:
    """The page itself notes what it shows: a kernel that is forked may answer within a second."""
    tab = open_page("about:blank")
    page = tab.page
    page.add_init_script("""
        window.seen = new Set();
        new MutationObserver(() => {
            const played = document.querySelector("#greeting .rl-play");
            if (played && document.querySelector("#greeting .rl-picture svg")) seen.add(`stage ${played.dataset.stage}`);
            if (document.body && document.body.innerText.includes("The kernel is starting")) seen.add("said");
            if (document.querySelector("#greeting") && document.querySelector(".rlviz-playground button")) seen.add("both");
        }).observe(document, { subtree: true, childList: true, attributes: true });
    """)
    page.goto(voila.url)
    page.get_by_role("button", name="Train", exact=True).wait_for(timeout=SECONDS * 1000)
    seen = set(page.evaluate("[...seen]"))
    assert {"said", "stage 0", "stage 1"} <= seen
    assert "both" not in seen
    assert page.locator("#greeting").count() == 0
    assert not tab.errors
    page.close(run_before_unload=True)


@pytest.mark.quick(1)
def test_trains_and_stops_as_a_web_page(open_tab: Callable[[], Tab]) -> None:
    train_stop_resume_reset(open_tab())


def test_a_page_that_lost_its_kernel_s_answer_loads_again(open_page: Callable[[str], Notebook], voila: Lab) -> None:
    replaced: list[int] = []

    def lose_first(route: Route) -> None:
        """Let Voila's widget manager say once that it knows no such model."""
        answer = route.fetch()
        code = answer.text()
        known, told = "t=await o.get_model(r.model_id)", "if(o.restoredStatus)"
        replaced.append(min(code.count(known), code.count(told)))
        once = f"if(!sessionStorage.lost)throw sessionStorage.lost='once';{known}"
        route.fulfill(response=answer, body=code.replace(known, once).replace(told, "if(true)"))

    page = open_page("about:blank").page
    page.route("**/jupyterlab-manager/static/*.js*", lose_first)
    page.goto(voila.url)
    page.get_by_role("button", name="Train", exact=True).wait_for(timeout=SECONDS * 1000)
    assert any(replaced)
    assert page.evaluate("sessionStorage.lost") == "once"
    assert page.evaluate(HOW_LOADED) == "reload"
    page.unroute_all()  # else the page's last words, that it closes, are held back with all else that it sends
    page.close(run_before_unload=True)


def test_the_address_is_the_setting(open_page: Callable[[str], Notebook], voila: Lab) -> None:
    tab = open_page(f"{voila.url}#task=sort&eps_high=0.4")
    page = tab.page
    page.get_by_role("button", name="Train", exact=True).wait_for(timeout=SECONDS * 1000)
    Tab(page).wait_until(
        lambda: page.get_by_label("eps_high", exact=True).input_value() == "0.4", "the address's eps_high"
    )
    Tab(page).put("steps", "30")
    page.wait_for_function("() => location.hash === '#task=sort&steps=30&eps_high=0.4'", timeout=SECONDS * 1000)
    page.evaluate("location.hash = 'steps=20'")
    Tab(page).wait_until(
        lambda: page.get_by_label("steps", exact=True).input_value() == "20", "the new address's steps"
    )
    assert not tab.errors
    page.close(run_before_unload=True)


def test_a_notebook_s_tab_that_is_gone_stops_its_training(playground_in_lab: Notebook, lab: Lab) -> None:
    """The kernel stays, as JupyterLab's do; the lock of a run under way tells from outside that it trains."""
    runs = lab.folder.parent / "runtime" / "rlviz-training"
    tab = Tab(playground_in_lab.page)
    tab.put("steps", "300")
    tab.press("Train")
    tab.wait_until(lambda: tab.step >= 1, "a step")
    assert list(runs.glob("*.lock"))
    tab.page.goto("about:blank")
    closed = time.monotonic()
    while list(runs.glob("*.lock")) and time.monotonic() - closed < 60:
        time.sleep(0.2)
    assert time.monotonic() - closed < 20 + 5  # the step in progress, on a busy machine


def test_trains_and_stops_in_a_notebook(playground_in_lab: Notebook) -> None:
    train_stop_resume_reset(Tab(playground_in_lab.page))
    assert not playground_in_lab.errors
    assert not playground_in_lab.outside


def test_buttons_picture_and_caption_need_no_scrolling(open_tab: Callable[[], Tab]) -> None:
    page = open_tab().page
    for place in (
        page.locator(".rlviz-playground .rl-picture svg"),
        page.get_by_role("status"),
        page.get_by_text("Reset"),
    ):
        box = place.bounding_box()
        assert box is not None
        assert box["x"] >= 0 and box["x"] + box["width"] <= 1280
        assert box["y"] >= 0 and box["y"] + box["height"] <= 900


def test_two_tabs_do_not_disturb_each_other(open_tab: Callable[[], Tab]) -> None:
    one, two = open_tab(), open_tab()
    empty = two.picture
    one.put("steps", "20")
    one.press("Train")
    one.wait_for("Done. Run 1")
    two.page.wait_for_timeout(500)
    assert two.picture == empty
    assert two.caption.startswith("Press Train.")

    two.page.get_by_label("task", exact=True).select_option("sort")
    two.put("steps", "20")
    one.put("first seed", "1")
    one.press("Train")
    two.press("Train")
    one.wait_for("Done. Run 2, GRPO on chain, seed 1, step 20 of 20")
    two.wait_for("Done. Run 1, GRPO on sort, seed 0, step 20 of 20")


def test_a_closed_tab_ends_its_kernel_in_the_midst_of_a_run(open_tab: Callable[[], Tab], voila: Lab) -> None:
    def kernels() -> int:
        with voila.ask("api/kernels") as answer:
            return len(json.load(answer))

    other = open_tab()
    other.wait_until(lambda: kernels() == 1, "the kernels of the tabs before have ended")
    tab = open_tab()
    tab.press("Train")
    tab.wait_until(lambda: tab.step >= 1, "a step")
    assert kernels() == 2
    tab.page.close(run_before_unload=True)
    other.wait_until(lambda: kernels() == 1, "the closed tab's kernel has ended")


def test_the_keyboard_alone_operates_everything(open_tab: Callable[[], Tab]) -> None:
    tab = open_tab()
    keyboard = tab.page.keyboard
    focused = """() => {
        const at = document.activeElement, row = at.closest('.widget-hbox')
        const label = at.labels && at.labels.length ? at.labels[0].textContent : ''
        const name = row && row.querySelector('label') ? row.querySelector('label').textContent : ''
        return [at.tagName, at.getAttribute('role') || '', label || (at.getAttribute('role') ? name : at.textContent)]
    }"""
    tab.page.get_by_role("button", name="More settings").focus()
    keyboard.press("Space")
    tab.page.get_by_label("temperature", exact=True).wait_for()
    tab.page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(60):
        keyboard.press("Tab")
        reached.append(tuple(tab.page.evaluate(focused)))
    fields = [name for tag, _, name in reached if tag in ("INPUT", "SELECT")]
    sliders = [name for _, role, name in reached if role == "slider"]
    others = [name for tag, _, name in reached if tag in ("BUTTON", "SUMMARY")]
    assert set(fields) >= set(CONTROLS)
    assert set(sliders) >= set(CONTROLS) - {"task", "algorithm"}
    assert set(others) >= {"What these are", "More settings", "Train", "Reset"}

    def go_to(kind: str, name: str) -> None:
        for _ in range(80):
            keyboard.press("Tab")
            tag, role, text = tab.page.evaluate(focused)
            if (role or tag) == kind and text == name:
                return
        pytest.fail(f"Tab never comes to {name}")

    go_to("SELECT", "algorithm")
    keyboard.press("ArrowDown")
    tab.wait_until(
        lambda: tab.page.get_by_label("algorithm", exact=True).input_value() == "Dr.GRPO", "the next algorithm"
    )
    go_to("INPUT", "steps")
    keyboard.press("Control+a")
    keyboard.type("30")
    keyboard.press("Enter")
    go_to("slider", "group size")
    keyboard.press("ArrowRight")
    tab.wait_until(lambda: tab.page.get_by_label("group size", exact=True).input_value() == "9", "group size 9")
    tab.page.get_by_text("steps=30, evaluate_every=10, group_size=9").wait_for()
    go_to("BUTTON", "Train")
    keyboard.press("Enter")
    tab.wait_for("Training. Run 1, Dr.GRPO on chain")
    go_to("BUTTON", "Stop")
    keyboard.press("Space")
    tab.wait_for("Stopped")
    go_to("BUTTON", "Resume")
    keyboard.press("Enter")
    tab.wait_for("Done")
    go_to("BUTTON", "Reset")
    keyboard.press("Enter")
    tab.wait_for("Press Train.")


def test_edges_and_words_stand_out_from_what_is_behind_them(open_tab: Callable[[], Tab]) -> None:
    seen = open_tab().page.evaluate("""() => {
        const colour = (selector, property) => [...document.querySelectorAll('.rlviz-playground ' + selector)]
            .map(element => [selector, property, getComputedStyle(element)[property]])
        return [
            ...colour('input', 'borderTopColor'), ...colour('select', 'borderTopColor'), ...colour('button', 'borderTopColor'),
            ...colour('.noUi-connects', 'backgroundColor'), ...colour('.noUi-handle', 'backgroundColor'),
            ...colour('.rlviz-group', 'borderTopColor'), ...colour('h3', 'color'), ...colour('label', 'color'),
            ...colour('input', 'color'), ...colour('summary', 'color'), ...colour('code', 'color'),
        ]
    }""")
    assert len({(selector, what) for selector, what, _ in seen}) == 11
    for selector, what, colour in seen:
        assert contrast_on_white(colour) >= (4.5 if what == "color" else 3), (selector, what, colour)


def contrast_on_white(colour: str) -> float:
    """WCAG 2's contrast ratio of a colour, laid over white, with white."""
    red, green, blue, *alpha = (float(part) for part in re.findall(r"[\d.]+", colour))
    opaque = alpha[0] if alpha else 1.0
    parts = [(opaque * part + (1 - opaque) * 255) / 255 for part in (red, green, blue)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def test_contrast_is_computed_as_defined() -> None:
    assert contrast_on_white("rgb(0, 0, 0)") == pytest.approx(21)
    assert contrast_on_white("rgba(0, 0, 0, 0)") == pytest.approx(1)
    assert contrast_on_white("rgb(118, 118, 118)") == pytest.approx(4.54, abs=0.01)


def test_serves_this_machine_only_and_refuses_whoever_has_no_token(voila: Lab) -> None:
    assert voila.url.startswith("http://127.0.0.1:")
    with pytest.raises(OSError):  # noqa: PT011 - refused here, unreachable on other systems
        socket.create_connection(("127.0.0.2", voila.port), timeout=3).close()
    with pytest.raises(urllib.error.HTTPError) as refusal:
        voila.ask("api/kernels", token=False)
    assert refusal.value.code == 403
    page = urlsplit(voila.url).path.lstrip("/")
    with voila.ask(page, token=False) as answer:
        assert "/login?next=" in answer.url
    with voila.ask("api/kernels") as answer:
        assert answer.status == 200
