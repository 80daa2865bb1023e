"""Every picture as a page: a phone, dark, controls to their ends, handles by keys and mouse, the address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from rlviz.page.widget import fragment, pack, page
from rlviz.pictures import Explorer
from tests.browser.cells import wait_until
from tests.pictures.test_pictures import SPECS, WHOLE_RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

# What is wrong in the picture now: a refusal, a sentence with a hole, a place that is no number.
WRONG = """root => {
  const said = root.querySelector(".rlviz-said"), texts = [...root.querySelectorAll(".rlviz-said, h3, text")];
  const isBad = (text) => /[{}]|NaN|undefined|no number/.test(text);
  const paths = [...root.querySelectorAll(".rlviz-area path")].filter((one) => one.checkVisibility());
  return [
    ...(said.classList.contains("rlviz-failed") || !said.textContent ? [`said: ${said.textContent}`] : []),
    ...texts.filter((one) => one.checkVisibility() && isBad(one.textContent)).map((one) => one.textContent),
    ...paths.filter((one) => isBad(one.getAttribute("d"))).map((one) => one.getAttribute("d").slice(0, 80)),
    ...(root.querySelector(".rlviz-why").hidden ? [] : [root.querySelector(".rlviz-why").textContent]),
  ];
}"""
# Choices, of a list with many a fourth of them by turns, and every slider in sight to both ends, and back; what was wrong where.
EVERYWHERE = """(root, [isWrong, turn]) => {
  const wrong = eval(isWrong), faults = [], tell = (where) => faults.push(...wrong(root).map((what) => `${where}: ${what}`));
  const change = (control, value, event) => { control.value = value; control.dispatchEvent(new Event(event)); };
  const state = () => root.querySelector(".rlviz-panels").innerHTML + root.querySelector("code").textContent;
  for (const fold of root.querySelectorAll("details")) fold.open = true;
  for (const list of [...root.querySelectorAll(".rlviz-controls select")]) {
    const usual = list.value, before = state();
    const others = [...list.options].filter((one) => one.value && one.value !== usual);
    for (const { value } of others.filter((one, i) => others.length < 8 || i % 4 === turn)) {
      if (!list.checkVisibility() || ![...list.options].some((one) => one.value === value)) continue;
      change(list, value, "change");
      tell(value);
      if (state() === before) faults.push(`${value} moves nothing`);
      if (!usual) root.querySelector(".rlviz-chip:last-of-type").click();
    }
    if (usual) change(list, usual, "change");
  }
  for (const slider of root.querySelectorAll(".rlviz-controls input")) {
    if (!slider.checkVisibility()) continue;
    const usual = slider.value, seen = new Set([state()]);
    for (const end of [slider.min, slider.max]) {
      change(slider, end, "input");
      tell(`${slider.getAttribute("aria-label")} = ${slider.getAttribute("aria-valuetext")}`);
      seen.add(state());
    }
    if (seen.size < 2) faults.push(`${slider.getAttribute("aria-label")} moves nothing`);
    change(slider, usual, "input");
  }
  return faults;
}"""
# Where the controls in sight stand, and the call that says the same.
STATE = """root => {
  for (const fold of root.querySelectorAll("details")) fold.open = true;
  return [
  ...[...root.querySelectorAll(".rlviz-controls :is(input, select)")].filter((one) => one.checkVisibility())
    .map((one) => [one.getAttribute("aria-label"), one.getAttribute("aria-valuetext") ?? one.value]),
  [root.querySelector("code").textContent], [...root.querySelectorAll(".rlviz-chip")].map((one) => one.textContent),
  ];
}"""
DRAWN = r"""root => [...root.querySelectorAll(".rlviz-area > g")].filter((one) => one.checkVisibility())
  .map((one) => one.innerHTML.replace(/url.*?\)/g, "")).join()"""


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    """Open a window; at the end nothing may have failed, and nothing been asked of a network."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab, wrong = context.new_page(), []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    tab.set_default_timeout(60_000)
    yield tab
    context.close()
    assert wrong == []


@pytest.fixture
def root(window: Page, name: str, tmp_path: Path) -> Locator:
    """Open a picture's own page from the disk, and return the picture."""
    file = tmp_path / f"{name}.html"
    file.write_text(page(name, fragment(pack(Explorer(SPECS[name], {}).page_payload()), caption="…")), encoding="utf-8")
    window.set_viewport_size({"width": 1280, "height": 900})
    window.goto(file.as_uri())
    window.locator(".rlviz-panels svg").first.wait_for()
    return window.locator(".rlviz-picture")


# The state after every control was moved elsewhere.
ELSEWHERE = f"""root => {{
  for (const control of root.querySelectorAll(".rlviz-controls :is(select, input)")) {{
    if (control.options) control.selectedIndex = control.selectedIndex === 1 ? 0 : 1;
    else control.value = control.value === control.max ? control.min : control.max;
    for (const event of control.options ? ["change"] : ["input", "change"]) control.dispatchEvent(new Event(event));
  }}
  return ({STATE})(root);
}}"""
# What a handle says, where it stands, and a number that tells the whole picture from others.
SEEN = f"""(root, i) => {{
  const grip = root.querySelectorAll(".rlviz-grip")[i], disc = grip.querySelector(".rlviz-disc").getBoundingClientRect();
  const picture = [...({DRAWN})(root)].reduce((sum, letter) => (Math.imul(sum, 31) + letter.charCodeAt(0)) | 0, 0);
  return {{ value: grip.getAttribute("aria-valuenow"), x: disc.x + disc.width / 2, y: disc.y + disc.height / 2, picture }};
}}"""
# The handles in sight, each by what it moves, after another choice of a list, or press of a button, if that is asked for.
HANDLES = """(root, choice) => {
  const [element, value] = choice ?? [];
  if (value) element.value = value;
  if (element) element.dispatchEvent(new Event(value ? "change" : "click"));
  const isThere = (one) => one.checkVisibility() && one.getAttribute("display") !== "none";
  return [...root.querySelectorAll(".rlviz-grip")].map((one) => isThere(one) && one.getAttribute("aria-label"));
}"""
LISTS = """root => [...root.querySelectorAll(".rlviz-controls select[aria-label]")].filter((one) => one.options.length)
  .sort((a, b) => a.options.length - b.options.length)"""


# Texts in sight whose colour is too near to the paper: less than 3 to 1, by WCAG's measure.
FAINT = """root => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04 ? c / 12.9 : ((c + 0.055) / 1.055) ** 2.4));
  const luminance = (colour) => light(parts(colour)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = luminance(getComputedStyle(root).backgroundColor);
  const isOnCell = (one) => one.parentNode.querySelector(".rlviz-cell") !== null;
  const contrast = (one) => {
    const { fill, color } = getComputedStyle(one), ink = luminance(one.namespaceURI.endsWith("svg") ? fill : color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  };
  const texts = [...root.querySelectorAll("h2, h3, p, summary, label, text")].filter((one) => one.checkVisibility());
  return { paper, faint: texts.filter((one) => !isOnCell(one) && contrast(one) < 3).map((one) => one.textContent) };
}"""
# What reaches beyond the window, or is as small as 12 pixels or less.
OUTSIDE = """root => {
  for (const fold of root.querySelectorAll("details")) fold.open = true;
  const right = document.documentElement.clientWidth;
  const wide = [...root.querySelectorAll("*")].filter((one) => one.checkVisibility() && !one.closest("svg"))
    .filter((one) => one.getBoundingClientRect().right > right + 0.5 || one.getBoundingClientRect().left < 0);
  const small = [...root.querySelectorAll("p, text, label")].filter((one) => one.checkVisibility() && one.textContent)
    .filter((one) => parseFloat(getComputedStyle(one).fontSize) <= 12);
  return {
    scrolled: document.documentElement.scrollWidth - right,
    found: [...wide, ...small].map((one) => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 40)}`),
  };
}"""


def handles(root: Locator) -> Iterator[list[str]]:
    """Yield the handles in sight at each named setting and each option of a list: some are there at one alone."""
    yield root.evaluate(HANDLES)
    buttons = root.locator(".rlviz-named button").element_handles()
    for button in [*buttons, *buttons[:1]]:
        yield root.evaluate(HANDLES, [button])
    for lists in root.evaluate_handle(LISTS).get_properties().values():
        for value in lists.evaluate("list => [...list.options].map((one) => one.value)"):
            if value:
                yield root.evaluate(HANDLES, [lists, value])


def handle_label(controls: Mapping[str, Any], moved: str) -> str:
    """Return what the handle of a control is called: its label, and of a slider of which there are many its number."""
    name = moved if moved in controls else moved.rstrip("0123456789")
    return " ".join([controls[name].label or name, *[moved[len(name) :]] * (name != moved)])


def by_hand() -> set[tuple[str, str]]:
    """Return a handle of each kind, (picture, what it is called): of each mark along each axis, the first that there is."""
    kinds: dict[tuple[str, str], tuple[str, str]] = {}
    for name, spec in SPECS.items():
        for mark in spec.picture.marks():
            if mark.drag:
                kind = type(mark).__name__, getattr(mark, "axis", "")
                kinds.setdefault(kind, (name, handle_label(spec.controls, mark.drag)))
    return set(kinds.values())


def drag(root: Locator, window: Page, i: int) -> None:
    """Move a handle by the mouse: value, picture and handle go with it."""
    grip = root.locator(".rlviz-grip").nth(i)
    grip.locator(".rlviz-disc").scroll_into_view_if_needed()
    across = "rlviz-along-x" in (grip.get_attribute("class") or "")
    seen = [root.evaluate(SEEN, i)]
    x, y = seen[0]["x"], seen[0]["y"]
    window.mouse.move(x, y)
    window.mouse.down()
    for way in (110, -110):
        window.mouse.move(*((x + way, y) if across else (x, y + way)))
        seen.append(root.evaluate(SEEN, i))
    window.mouse.up()
    for what in ("value", "picture", "x" if across else "y"):
        assert len({state[what] for state in seen}) > 1, what


def press(root: Locator, i: int) -> None:
    """Move a handle by keys: value and picture go with it, and come back."""
    seen = []
    for key in ("Home", "End", "ArrowLeft", "ArrowRight", "ArrowLeft"):
        root.locator(".rlviz-grip").nth(i).press(key)
        seen.append(root.evaluate(SEEN, i))
    home, end, left, right, again = seen
    assert home["value"] != end["value"] == right["value"] != left["value"] and home["picture"] != end["picture"]
    assert again == left


@pytest.mark.parametrize("name", SPECS)
def test_a_picture_fits_a_phone_and_all_that_moves_in_it_moves_and_stands_in_the_address(
    root: Locator, window: Page, name: str
) -> None:
    window.set_viewport_size({"width": 380, "height": 800})
    wait_until(window, lambda: window.evaluate("document.documentElement.scrollWidth") <= 380, "its new width")
    assert root.evaluate(OUTSIDE) == {"scrolled": 0, "found": []}
    for scheme, is_dark in (("dark", True), ("light", False)):
        window.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        seen = root.evaluate(FAINT)
        assert (seen["paper"] < 0.1) == is_dark and seen["faint"] == []
    window.set_viewport_size({"width": 1280, "height": 900})
    window.wait_for_timeout(100)

    # Every control goes to both its ends, and comes back.
    before = root.evaluate(STATE)
    assert root.evaluate(EVERYWHERE, [WRONG, list(SPECS).index(name) % 4]) == []
    assert root.evaluate(STATE) == before

    # Every handle is moved by keys, one of each kind by the mouse.
    controls = SPECS[name].controls
    wanted = {handle_label(controls, mark.drag) for mark in SPECS[name].picture.marks() if mark.drag}
    moved: set[str] = set()
    for labels in handles(root):
        for i, label in enumerate(labels):
            if label and label not in moved:
                if (name, label) in by_hand():
                    drag(root, window, i)
                press(root, i)
                moved.add(label)
        if wanted <= moved:
            break
    assert moved == wanted
    if name in WHOLE_RUNS:
        return  # with all sliders at their ends a run takes minutes

    # The address leads back to where all controls were moved.
    before = root.evaluate(ELSEWHERE)
    window.reload()
    window.locator(".rlviz-panels svg").first.wait_for()
    assert root.evaluate(STATE) == before
