"""Pictures that their page computes, in a real JupyterLab: no message while one drags, the kernel for what cannot be traced."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from tests.browser.cells import cell_with, wait_until

if TYPE_CHECKING:
    from conftest import Lab, Notebook
    from playwright.sync_api import Locator, Page

OWN = """
def halved(old_logp):
    width = 0.4 if float(old_logp.exp().mean()) < 0.5 else 0.1
    return 1 - width, 1 + width

mine = replace(GRPO, name="<b>Mine</b>", bounds=halved)
"""
HEAD = "%matplotlib inline\nfrom dataclasses import replace\nfrom rlviz import *"

pytestmark = pytest.mark.quick(1)


def note_messages(page: Page) -> None:
    """Keep, from now on, the widget messages that the page sends to its kernel."""
    page.evaluate(
        """() => {
            globalThis.sent = [];
            const send = WebSocket.prototype.send;
            WebSocket.prototype.send = function (data) {
                const text = typeof data === "string" ? data : new TextDecoder().decode(data);
                if (text.includes("comm_msg")) globalThis.sent.push(text);
                return send.call(this, data);
            };
        }"""
    )


def messages(page: Page) -> list[str]:
    return page.evaluate("globalThis.sent")


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


def test_dragging_asks_the_kernel_nothing_and_letting_go_tells_it(run_in_lab: Callable[..., Notebook]) -> None:
    notebook = run_in_lab("dragging", HEAD, "explore_clip()")
    page = notebook.page
    cell = cell_with(page, "explore_clip()")
    handle = cell.get_by_role("slider", name="ε high").and_(cell.locator("svg [role=slider]"))
    handle.wait_for()
    said = cell.get_by_role("status").first
    start = cell.locator(".rlviz-picture svg").first.inner_html()
    note_messages(page)
    drag(page, handle, 60)
    assert messages(page) == []
    assert cell.locator(".rlviz-picture svg").first.inner_html() != start
    page.mouse.up()
    wait_until(page, lambda: len(messages(page)) > 0, "the value that was let go")
    assert len(messages(page)) <= 2
    wait_until(page, lambda: "1.20" not in said.inner_text(), "the conclusion")
    for menu_or_slider in ("input[type=range]", "select"):  # JupyterLab would move to another cell
        control = cell.locator(menu_or_slider).first
        before = control.input_value()
        control.press("ArrowDown" if menu_or_slider == "select" else "ArrowRight")
        assert control.input_value() != before, menu_or_slider
    assert not notebook.errors and not notebook.outside


def test_a_saved_notebook_is_live_before_anything_runs(lab: Lab, open_page: Callable[[str], Notebook]) -> None:
    """A committed lesson, trusted as one's own is: its picture moves, its PNG is hidden, and no kernel was asked."""
    lesson = Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb"
    saved = nbformat.read(lesson, as_version=4)
    saved.cells = [cell for cell in saved.cells if "data-rlviz" in json.dumps(cell.get("outputs", []))]
    NotebookNotary(data_dir=str(lab.folder.parent / "data")).sign(saved)
    nbformat.write(saved, lab.folder / "saved.ipynb")
    notebook = open_page(f"http://127.0.0.1:{lab.port}/lab/workspaces/saved/tree/saved.ipynb?token={lab.token}")
    page = notebook.page
    page.get_by_text("| Idle").first.wait_for(timeout=120_000)  # a kernel that is still starting cannot be shut down
    assert len(saved.cells) == 3
    for saved_cell in saved.cells:
        cell = cell_with(page, saved_cell.source.splitlines()[-1])
        grip = cell.locator(".rlviz-picture svg [role=slider]").first
        before = grip.get_attribute("aria-valuenow")
        grip.press("ArrowLeft")
        assert grip.get_attribute("aria-valuenow") != before
        assert not any(image.is_visible() for image in cell.locator("img").all())
    assert not notebook.errors and not notebook.outside
    page.close()


def test_a_rule_that_cannot_be_traced_is_computed_by_the_kernel(run_in_lab: Callable[..., Notebook]) -> None:
    notebook = run_in_lab("own_rule", HEAD, OWN, "explore_clip(mine)")
    page = notebook.page
    cell = cell_with(page, "explore_clip(mine)")
    cell.get_by_text("The kernel computes this rule at each move").first.wait_for()
    cell.get_by_text("<b>Mine</b> pushes a good token up until its ratio is 1.10").first.wait_for()
    slider = cell.get_by_label("old probability").first
    slider.focus()
    page.keyboard.press("Home")
    cell.get_by_text("<b>Mine</b> pushes a good token up until its ratio is 1.40").first.wait_for()
    assert cell.locator(".rlviz-picture b").count() == 0  # a name stays text
    assert not notebook.errors and not notebook.outside


def test_a_transformer_trains_in_a_cell_s_output_by_a_rule_of_one_s_own(run_in_lab: Callable[..., Notebook]) -> None:
    rule = "from dataclasses import replace\nfrom rlviz import GRPO, train_in_page\n"
    rule += 'train_in_page(replace(GRPO, name="Mine", surrogate=lambda ratio, advantages, lower, upper: ratio * advantages))'
    notebook = run_in_lab("trains", rule)
    page = notebook.page
    # Playwright looks every half second, and a step takes a tenth: any step but the first is one that was seen
    page.locator(".play-said").get_by_text(re.compile(r"Step (?!1:)\d+:")).wait_for(timeout=120_000)
    assert page.get_by_label("algorithm", exact=True).input_value() == "Mine"
    assert "play." not in page.url  # in a notebook the address is not the playground's
    assert not notebook.errors
    assert not notebook.outside
