"""Every picture as a page: handles by mouse, finger and keys, controls to their ends, dark, a phone, two in one page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from rlviz.page.widget import fragment, pack, page
from tests.pictures.test_pictures import SPECS, WHOLE_RUNS, payload_of

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, CDPSession, JSHandle, Locator, Page

HOSTILE = '<img src=x onerror="document.title=1">{hole}'
every_picture = pytest.mark.parametrize("name", SPECS)
# what does not depend on the picture: one with texts in all places, algorithms beside it, and choices; one of cells and tokens
some_pictures = pytest.mark.parametrize("name", ["clip", "process"])
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
  const wrong = eval(isWrong), found = [], tell = (where) => found.push(...wrong(root).map((what) => `${where}: ${what}`));
  const change = (control, value, event) => { control.value = value; control.dispatchEvent(new Event(event)); };
  const state = () => root.querySelector(".rlviz-panels").innerHTML + root.querySelector("code").textContent;
  for (const fold of root.querySelectorAll("details")) fold.open = true;
  for (const list of [...root.querySelectorAll(".rlviz-controls select")]) {
    const own = list.value, before = state();
    const others = [...list.options].filter((one) => one.value && one.value !== own);
    for (const { value } of others.filter((one, i) => others.length < 8 || i % 4 === turn)) {
      if (!list.checkVisibility() || ![...list.options].some((one) => one.value === value)) continue;
      change(list, value, "change");
      tell(value);
      if (state() === before) found.push(`${value} moves nothing`);
      if (!own) root.querySelector(".rlviz-chip:last-of-type").click();
    }
    if (own) change(list, own, "change");
  }
  for (const slider of root.querySelectorAll(".rlviz-controls input")) {
    if (!slider.checkVisibility()) continue;
    const own = slider.value, seen = new Set([state()]);
    for (const end of [slider.min, slider.max]) {
      change(slider, end, "input");
      tell(`${slider.getAttribute("aria-label")} = ${slider.getAttribute("aria-valuetext")}`);
      seen.add(state());
    }
    if (seen.size < 2) found.push(`${slider.getAttribute("aria-label")} moves nothing`);
    change(slider, own, "input");
  }
  return found;
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

STANDS = (
    f"root => ({DRAWN})(root) + root.querySelector('.rlviz-said').textContent + root.querySelector('code').textContent"
)


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Page]:
    """Open a window with a mouse and a touch screen; at the end nothing may have failed, and nothing been asked of a network."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, has_touch=True, reduced_motion="reduce")
    tab, wrong = context.new_page(), []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    tab.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    tab.set_default_timeout(60_000)
    yield tab
    context.close()
    assert wrong == []


@pytest.fixture
def root(window: Page, name: str, tmp_path: Path) -> Locator:
    """Open a picture's own page from the disk, and return the picture."""
    file = tmp_path / f"{name}.html"
    file.write_text(page(name, fragment(pack(payload_of(name)), caption="…")), encoding="utf-8")
    window.set_viewport_size({"width": 1280, "height": 900})
    window.goto(file.as_uri())
    window.locator(".rlviz-panels svg").first.wait_for()
    return window.locator(".rlviz-picture")


@every_picture
def test_every_control_goes_to_both_ends_and_algorithms_are_drawn(root: Locator, name: str) -> None:
    before = root.evaluate(STATE)
    assert root.evaluate(EVERYWHERE, [WRONG, list(SPECS).index(name) % 4]) == []
    assert root.evaluate(STATE) == before


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
HANDLES = """(root, told) => {
  const [element, value] = told ?? [];
  if (value) element.value = value;
  if (element) element.dispatchEvent(new Event(value ? "change" : "click"));
  return [...root.querySelectorAll(".rlviz-grip")].map((one) => one.checkVisibility() && one.getAttribute("aria-label"));
}"""
LISTS = """root => [...root.querySelectorAll(".rlviz-controls select[aria-label]")].filter((one) => one.options.length)
  .sort((a, b) => a.options.length - b.options.length)"""


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


def by_hand() -> set[tuple[str, str]]:
    """Return a handle of each kind, (picture, what it is called): of each mark along each axis, the first that there is."""
    kinds: dict[tuple[str, str], tuple[str, str]] = {}
    for name, spec in SPECS.items():
        for mark in spec.picture.marks():
            if mark.drag:
                kind = type(mark).__name__, getattr(mark, "axis", "")
                kinds.setdefault(kind, (name, spec.controls[mark.drag].label or mark.drag))
    return set(kinds.values())


def drag(root: Locator, window: Page, i: int, finger: CDPSession) -> None:
    """Move a handle by mouse and by finger: value, picture and handle go with it."""
    grip = root.locator(".rlviz-grip").nth(i)
    grip.locator(".rlviz-disc").scroll_into_view_if_needed()
    across = "rlviz-along-x" in (grip.get_attribute("class") or "")
    for touches in (False, True):
        seen = [root.evaluate(SEEN, i)]
        x, y = seen[0]["x"], seen[0]["y"]
        places = [(x, y), *((x + way, y) if across else (x, y + way) for way in (110, -110))]
        for kind, (u, v) in zip(("Start", "Move", "Move"), places, strict=True):
            if touches:
                finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": [{"x": u, "y": v}]})
            else:
                window.mouse.move(u, v)
            if not touches and kind == "Start":
                window.mouse.down()
            seen.append(root.evaluate(SEEN, i))
        if touches:
            finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        else:
            window.mouse.up()
        for what in ("value", "picture", "x" if across else "y"):
            assert len({each[what] for each in seen}) > 1, f"{what}, {'finger' if touches else 'mouse'}"


def press(root: Locator, i: int) -> None:
    """Move a handle by keys: value and picture go with it, and come back."""
    seen = []
    for key in ("Home", "End", "ArrowLeft", "ArrowRight", "ArrowLeft"):
        root.locator(".rlviz-grip").nth(i).press(key)
        seen.append(root.evaluate(SEEN, i))
    home, end, left, right, again = seen
    assert home["value"] != end["value"] == right["value"] != left["value"] and home["picture"] != end["picture"]
    assert again == left


@every_picture
def test_every_handle_is_moved_by_keys_one_of_each_kind_by_hand_and_the_address_keeps_it(
    root: Locator, window: Page, name: str
) -> None:
    controls = SPECS[name].controls
    wanted = {controls[mark.drag].label or mark.drag for mark in SPECS[name].picture.marks() if mark.drag}
    moved: set[str] = set()
    for labels in handles(root):
        for i, label in enumerate(labels):
            if label and label not in moved:
                if (name, label) in by_hand():
                    drag(root, window, i, window.context.new_cdp_session(window))
                press(root, i)
                moved.add(label)
        if wanted <= moved:
            break
    assert moved == wanted
    if name in WHOLE_RUNS:
        return  # with all sliders at their ends a run takes minutes
    before = root.evaluate(ELSEWHERE)
    window.reload()
    window.locator(".rlviz-panels svg").first.wait_for()
    assert root.evaluate(STATE) == before


# Texts in sight whose colour is too near to the paper: less than 3 to 1, by WCAG's measure.
FAINT = """root => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04 ? c / 12.9 : ((c + 0.055) / 1.055) ** 2.4));
  const luminance = (colour) => light(parts(colour)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = luminance(getComputedStyle(root).backgroundColor);
  const isOnCell = (one) => one.parentNode.querySelector(".rlviz-cell") !== null;
  const contrast = (one) => {
    const { fill, color } = getComputedStyle(one), own = luminance(one.namespaceURI.endsWith("svg") ? fill : color);
    return (Math.max(own, paper) + 0.05) / (Math.min(own, paper) + 0.05);
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


@pytest.fixture
def place(stage: Page, name: str) -> Iterator[JSHandle]:
    """Draw a picture in an empty page, and take it away at the end."""
    stage.set_viewport_size({"width": 380, "height": 800})
    yield stage.evaluate_handle("packed => shown(packed)", pack(payload_of(name)))
    stage.evaluate("() => document.querySelectorAll('.rlviz-picture').forEach((one) => one.remove())")
    stage.emulate_media(color_scheme="light")


@every_picture
def test_a_phone_has_room_for_all_of_it_in_light_and_dark(place: JSHandle, stage: Page, name: str) -> None:
    assert place.evaluate(OUTSIDE) == {"scrolled": 0, "found": []}
    for scheme, is_dark in (("light", False), ("dark", True)):
        stage.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        seen = place.evaluate(FAINT)
        assert (seen["paper"] < 0.1) == is_dark and seen["faint"] == []


@some_pictures
def test_two_in_one_page_share_no_id_and_do_not_move_each_other(place: JSHandle, stage: Page, name: str) -> None:
    other = stage.evaluate_handle("packed => shown(packed)", pack(payload_of(name)))
    ids = stage.evaluate("() => [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids)) > 0
    before = place.evaluate(STANDS)
    other.evaluate(
        """root => root.querySelectorAll(".rlviz-controls input").forEach((slider) => {
          slider.value = slider.value === slider.max ? slider.min : slider.max;
          slider.dispatchEvent(new Event("input"));
        })"""
    )
    assert other.evaluate(DRAWN) != place.evaluate(DRAWN)
    assert place.evaluate(STANDS) == before


@some_pictures
def test_a_hostile_title_and_a_hostile_name_stay_texts(stage: Page, name: str) -> None:
    own = payload_of(name)["values"].get("algorithm")
    told = renamed(payload_of(name), own)
    told["picture"]["title"] = HOSTILE
    other = stage.evaluate_handle("packed => shown(packed)", pack(told))
    stage.wait_for_timeout(20)
    assert stage.evaluate("() => [document.images.length, document.title]") == [0, "stage"]
    assert other.evaluate("root => root.querySelector('h2').textContent") == HOSTILE
    if own is not None:
        assert other.evaluate("root => root.querySelector('select').value") == HOSTILE
        # the title, the option, and what is said of it
        assert str(other.evaluate("root => root.textContent")).count(HOSTILE) > 2
    other.evaluate("root => root.remove()")


def renamed(value: Any, old: str | None) -> Any:
    """Return what a page is told, with an algorithm under the hostile name wherever it is named."""
    if isinstance(value, str):
        return "|".join(HOSTILE if part == old else part for part in value.split("|"))
    if isinstance(value, dict):
        return {renamed(key, old): renamed(each, old) for key, each in value.items()}
    return [renamed(each, old) for each in value] if isinstance(value, list) else value
