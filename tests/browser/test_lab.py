"""The course as a user has it: `rlviz lab` runs, and a notebook with everything that answers is open in a real JupyterLab.

One notebook has all that is tried: pictures that the page computes, a rule that the kernel computes, the training panel, a run in
the page, and a run folder of somebody who means harm. The inspector and predictions have tests without a server.
"""

from __future__ import annotations

import json
import re
import socket
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from rlviz import GRPO, TrainSettings, train
from tests.browser.cells import caption, cell_with, drawn_in, wait_until

if TYPE_CHECKING:
    from conftest import Lab, Notebook
    from playwright.sync_api import Locator, Page

MARK = "<img src=x onerror=\"document.title='PWNED'\"> $\\href{javascript:1}{x^2}$ \\(y^2\\)"
CELLS = (
    """%matplotlib inline
from dataclasses import replace
import ipywidgets
from rlviz import *

def halved(old_logp):
    width = 0.4 if float(old_logp.exp().mean()) < 0.5 else 0.1
    return 1 - width, 1 + width

mine = replace(GRPO, name="<b>Mine</b>", bounds=halved)""",
    "explore_clip()",
    "explore_clip(mine)",
    "training_panel(settings=TrainSettings(steps=2000))",  # long enough to be stopped twice
    'inspect_run("hostile", "hostile")',
    'ipywidgets.HTMLMath("typeset: $x^2$")',  # what Jupyter does with a formula
    'train_in_page(replace(GRPO, name="Mine", surrogate=lambda ratio, advantages, lower, upper: ratio * advantages))',
)
SMALL = {"width": 1366, "height": 768}  # a usual laptop's window, of which JupyterLab leaves 640 pixels to a notebook
PANEL = """() => {
    const box = (one) => one.getBoundingClientRect(), panel = document.querySelector(".rlviz-panel");
    const at = box(panel).top, picture = panel.querySelector(".rlviz-picture");
    return {
        high: box(picture.querySelector(".rlviz-panels")).bottom - at,
        wide: box(picture).width / box(panel).width,
        past: [...panel.querySelectorAll("svg[viewBox], button")].filter((one) => box(one).right > box(panel).right).length,
    };
}"""


def hurt(run: Path) -> None:
    """Write into each text of a run what a page must not obey."""
    rows = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    for group in (group for row in rows for group in row["groups"]):
        group["prompt"] = group["gold"] = MARK
        for response in group["responses"]:
            response["text"] = MARK
            for token in response["tokens"]:
                token["token"] = MARK
    (run / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = json.loads((run / "config.json").read_text())
    config["algorithm"]["name"] = MARK
    (run / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def notebook(lab: Lab, run_in_lab: Callable[..., Notebook]) -> Notebook:
    """The notebook, all of its cells run."""
    settings = TrainSettings(steps=3, num_prompts=1, group_size=2, evaluate_every=0, details_every=1)
    list(train("chain", GRPO, settings, out=lab.folder / "hostile"))
    hurt(lab.folder / "hostile")
    return run_in_lab("everything", *CELLS)


@pytest.fixture
def page(notebook: Notebook, tmp_path: Path) -> Iterator[Page]:
    """Return the page, and leave a picture of what it showed when the test ended, for whoever reads a failure."""
    yield notebook.page
    notebook.page.screenshot(path=tmp_path / "end.png")


def test_serves_this_machine_only(lab: Lab) -> None:
    assert lab.url.startswith("http://127.0.0.1:")
    socket.create_connection(("127.0.0.1", lab.port), timeout=10).close()
    # Another address of this same machine: a server on all interfaces would answer there.
    with pytest.raises(OSError):  # noqa: PT011 - refused here, unreachable on other systems
        socket.create_connection(("127.0.0.2", lab.port), timeout=3).close()


def test_refuses_whoever_has_no_token(lab: Lab) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        lab.ask("api/contents", token=False)
    assert refusal.value.code == 403
    assert lab.ask("api/contents").status == 200


def test_the_address_that_was_printed_opens_the_first_lesson_whose_saved_pictures_answer_before_anything_runs(
    lab: Lab, open_page: Callable[[str], Notebook]
) -> None:
    """A committed lesson, trusted as one's own is: its picture moves, its PNG is hidden, and no kernel was asked."""
    lesson = Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb"
    saved = nbformat.read(lesson, as_version=4)
    saved.cells = [cell for cell in saved.cells if "data-rlviz" in json.dumps(cell.get("outputs", []))]
    for cell in saved.cells:
        cell.metadata.pop("jupyter", None)  # a cell is found by its source, which the first one hides
    NotebookNotary(data_dir=str(lab.folder.parent / "data")).sign(saved)
    nbformat.write(saved, lab.folder / lesson.name)
    opened = open_page(lab.url)
    opened.page.get_by_text("| Idle").first.wait_for(timeout=120_000)  # one that is starting cannot be shut down
    assert len(saved.cells) == 3
    for saved_cell in saved.cells:
        cell = cell_with(opened.page, saved_cell.source.splitlines()[-1])
        grip = cell.locator(".rlviz-picture svg [role=slider]").first
        before = grip.get_attribute("aria-valuenow")
        grip.press("ArrowRight" if before == grip.get_attribute("aria-valuemin") else "ArrowLeft")
        assert grip.get_attribute("aria-valuenow") != before
        assert not any(image.is_visible() for image in cell.locator("img").all())
    assert not opened.errors and not opened.outside
    opened.page.close()


def cell_of(page: Page, code: str) -> Locator:
    return page.locator(".jp-Notebook .jp-CodeCell", has=page.locator(".jp-InputArea", has_text=code))


def test_a_transformer_trains_in_a_cell_s_output_by_a_rule_of_one_s_own(page: Page) -> None:
    cell = cell_of(page, "train_in_page")
    cell.scroll_into_view_if_needed()
    # Playwright looks every half second, and a step takes a tenth: any step but the first is one that was seen
    cell.locator(".play-said").get_by_text(re.compile(r"Step (?!1:)\d+:")).wait_for(timeout=120_000)
    assert cell.get_by_label("algorithm", exact=True).input_value() == "Mine"
    assert "play." not in page.url  # in a notebook the address is not the playground's
    cell.get_by_role("button", name="Pause").click()


NOTE_MESSAGES = """() => {  // the widget messages that the page sends to its kernel from now on
    globalThis.sent = [];
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) {
        const text = typeof data === "string" ? data : new TextDecoder().decode(data);
        if (text.includes("comm_msg")) globalThis.sent.push(text);
        return send.call(this, data);
    };
}"""


def drag(page: Page, handle: Locator, by: float, steps: int = 12) -> None:
    boxes = [handle.bounding_box()]

    def still() -> bool:  # a picture takes its width when its cell has one, and another handle may come under the mouse
        page.wait_for_timeout(250)
        boxes.append(handle.bounding_box())
        return boxes[-1] == boxes[-2]

    wait_until(page, still, "a handle that stays where it is")
    box = boxes[-1]
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, steps + 1):
        page.mouse.move(x + by * step / steps, y)
        page.wait_for_timeout(20)


def test_dragging_asks_the_kernel_nothing_and_letting_go_tells_it(page: Page) -> None:
    cell = cell_with(page, "explore_clip()")
    handle = cell.get_by_role("slider", name="ε high").and_(cell.locator("svg [role=slider]"))
    handle.wait_for()
    status = cell.get_by_role("status").first
    start = cell.locator(".rlviz-picture svg").first.inner_html()
    page.evaluate(NOTE_MESSAGES)
    drag(page, handle, 60)
    assert page.evaluate("sent") == []
    assert cell.locator(".rlviz-picture svg").first.inner_html() != start
    page.mouse.up()
    wait_until(page, lambda: len(page.evaluate("sent")) > 0, "the value that was let go")
    assert len(page.evaluate("sent")) <= 2
    wait_until(page, lambda: "1.20" not in status.inner_text(), "the conclusion")
    for menu_or_slider in ("input[type=range]", "select"):  # JupyterLab would move to another cell
        control = cell.locator(menu_or_slider).first
        before = control.input_value()
        control.press("ArrowDown" if menu_or_slider == "select" else "ArrowRight")
        assert control.input_value() != before, menu_or_slider


def test_a_rule_that_cannot_be_traced_is_computed_by_the_kernel(page: Page) -> None:
    cell = cell_with(page, "explore_clip(mine)")
    cell.get_by_text("The kernel computes this rule at each move").first.wait_for()
    cell.get_by_text("<b>Mine</b> stops a good token above ratio 1.10").first.wait_for()
    cell.get_by_label("old probability").first.focus()
    page.keyboard.press("Home")
    cell.get_by_text("<b>Mine</b> stops a good token above ratio 1.40").first.wait_for()
    assert cell.locator(".rlviz-picture b").count() == 0  # a name stays text


def step(cell: Locator) -> int:
    """Return the step that the caption names; 0 before the first."""
    match = re.search(r"Step (\d+) of \d+", caption(cell))
    return int(match[1]) if match else 0


def press(cell: Locator, name: str) -> None:
    cell.get_by_role("button", name=name, exact=True).click()


def test_the_panel_trains_stops_and_resumes_and_fits_a_small_window(page: Page) -> None:
    window = page.viewport_size
    page.set_viewport_size(SMALL)
    cell = cell_with(page, "training_panel(")
    empty = drawn_in(cell)
    assert cell.locator(".rlviz-panels").get_attribute("aria-label")
    assert step(cell) == 0

    press(cell, "Train")
    wait_until(page, lambda: step(cell) >= 2, "two steps, which make a line")
    early, early_pixels = step(cell), drawn_in(cell)
    assert empty != early_pixels
    seen = page.evaluate(PANEL)
    assert seen["high"] <= 560 and seen["wide"] > 0.98 and not seen["past"], seen
    wait_until(page, lambda: step(cell) > early, "a further step")
    assert caption(cell).startswith("Training.")

    press(cell, "Stop")
    wait_until(page, lambda: caption(cell).startswith("Stopped"), "stopped")
    stopped, stopped_pixels = step(cell), drawn_in(cell)
    assert early_pixels != stopped_pixels
    page.wait_for_timeout(1500)
    assert step(cell) == stopped
    assert drawn_in(cell) == stopped_pixels

    press(cell, "Resume")
    wait_until(page, lambda: caption(cell).startswith("Training."), "training again")
    assert step(cell) > stopped
    press(cell, "Stop")
    wait_until(page, lambda: caption(cell).startswith("Stopped"), "stopped again")
    assert drawn_in(cell) != stopped_pixels
    assert window is not None
    page.set_viewport_size(window)


def test_a_run_folder_brings_no_script_and_no_latex(page: Page) -> None:
    """No script of it runs, and no LaTeX of it is typeset."""
    cell_of(page, "HTMLMath").scroll_into_view_if_needed()
    page.locator(".jp-OutputArea mjx-container").first.wait_for(state="attached")  # the control is typeset
    cell = cell_of(page, '"hostile"')
    cell.scroll_into_view_if_needed()
    cell.get_by_text("\\href{javascript:1}").first.wait_for(state="attached")
    page.wait_for_timeout(1000)
    assert cell.locator("mjx-container").count() == 0
    assert cell.locator('img[src="x"]').count() == 0 and "PWNED" not in page.title()


def test_the_browser_reported_no_error_and_asked_nobody_else(notebook: Notebook) -> None:
    """Comes last, to see what the tests above did."""
    assert not notebook.errors
    assert not notebook.outside
