"""A real JupyterLab: every explorer by keyboard alone and by dragging; a run folder from somebody else."""

from __future__ import annotations

import json
import socket
import urllib.error
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rlviz import GRPO, TrainSettings, train
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.idea import Idea
from rlviz.training import find_task
from small_models.policies import load_policy
from tests.browser.cells import caption, cell_with, drawn_in, wait_until

if TYPE_CHECKING:
    from conftest import Lab, Notebook
    from playwright.sync_api import Locator

NAMES = sorted(name for name in EXPLORERS if not isinstance(find_explorer(name).idea, Idea))
MARK = "<img src=x onerror=\"document.title='PWNED'\"> $\\href{javascript:1}{x^2}$ \\(y^2\\)"
CONTROL = 'import ipywidgets\nipywidgets.HTMLMath("typeset: $x^2$")'  # what Jupyter does with a formula


def call(cell: Locator) -> str:
    return cell.locator(".rl-call").text_content() or ""


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


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_slider_of_each_kind_to_both_ends_and_back(explorers: Notebook, name: str) -> None:
    """A number's and a list's; tests/pictures/test_explorers.py moves every control."""
    page = explorers.page
    cell = cell_with(page, f"explore_{name}()")
    start, start_call = drawn_in(cell), call(cell)
    assert start_call == f"explore_{name}()"
    wait_until(page, lambda: bool(caption(cell)), f"{name}: the conclusion")
    assert cell.locator(".rl-picture [role=img]").get_attribute("aria-label")
    moved, kinds = 0, {}
    for row in cell.locator(".rl-control").filter(has=page.locator("input[type=range]")).all():
        if row.is_visible():
            kinds.setdefault(row.locator(".rl-value").count(), row)
    for row in kinds.values():
        slider = row.locator("input[type=range]").first
        label, value = slider.get_attribute("aria-label"), float(slider.input_value())
        slider.focus()
        for key, end in (("Home", "min"), ("End", "max")):
            if float(slider.input_value()) == float(slider.get_attribute(end) or 0):
                continue
            before = drawn_in(cell)
            page.keyboard.press(key)
            wait_until(page, lambda: drawn_in(cell) != before, f"{name}: {label}, {key}")  # noqa: B023
            assert slider.evaluate("slider => slider === document.activeElement"), "the focus is kept"
            moved += 1
        slider.fill(str(value))
        wait_until(
            page, lambda: (drawn_in(cell), call(cell)) == (start, start_call), f"{name}: {label} back at {value}"
        )
    assert moved


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", NAMES)
def test_every_handle_is_dragged_and_its_control_follows(explorers: Notebook, name: str) -> None:
    page = explorers.page
    cell = cell_with(page, f"explore_{name}()")
    handles = [handle for handle in cell.locator(".rl-handle").all() if handle.is_visible()]
    assert handles
    for handle in handles:
        start, label = (drawn_in(cell), call(cell)), handle.get_attribute("aria-label")
        value = handle.get_attribute("aria-valuenow")
        handle.locator(".grip").scroll_into_view_if_needed()
        box = handle.locator(".grip").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        across = handle.get_attribute("aria-orientation") == "horizontal"
        for way in (-60, 60):  # one of them leads away from an end
            page.mouse.move(x, y)
            page.mouse.down()
            for step in range(1, 7):
                page.mouse.move(x + way * step / 6 * across, y + way * step / 6 * (not across))
            page.mouse.up()
            for _ in range(60):  # the kernel answers in its own time; where nothing comes, the handle stood at this end
                page.wait_for_timeout(50)
                if moved := handle.get_attribute("aria-valuenow") != value:
                    break
            if moved:
                break
        wait_until(page, lambda: drawn_in(cell) != start[0] and call(cell) != start[1], f"{name}: {label} dragged")  # noqa: B023
        assert handle.evaluate("handle => handle === document.activeElement"), "the focus is where the hand was"
        assert handle.get_attribute("aria-valuetext")
        assert label is not None and value is not None
        put_back(cell, label, value)
        wait_until(page, lambda: (drawn_in(cell), call(cell)) == start, f"{name}: {label} back at {value}")  # noqa: B023


@pytest.mark.parametrize("name", NAMES)
def test_a_handle_answers_to_the_arrow_keys_and_keeps_the_focus(explorers: Notebook, name: str) -> None:
    page = explorers.page
    cell = cell_with(page, f"explore_{name}()")
    handle = next(handle for handle in cell.locator(".rl-handle").all() if handle.is_visible())
    start = drawn_in(cell), call(cell)
    value = handle.get_attribute("aria-valuenow")
    handle.focus()
    least, most = (float(handle.get_attribute(f"aria-value{end}") or 0) for end in ("min", "max"))
    there, back = ("ArrowRight", "ArrowLeft")
    if float(value or 0) in (least, most):
        page.keyboard.press(there)
        page.wait_for_timeout(500)
        if call(cell) == start[1]:  # it stands at its end
            there, back = back, there
            page.keyboard.press(there)
    else:
        page.keyboard.press(there)
    wait_until(page, lambda: call(cell) != start[1], f"{name}: a step by key")
    page.keyboard.press(back)
    wait_until(page, lambda: (drawn_in(cell), call(cell)) == start, f"{name}: a step back")
    assert handle.get_attribute("aria-valuenow") == value
    assert handle.evaluate("handle => handle === document.activeElement")


def put_back(cell: Locator, label: str, value: str) -> None:
    """Set the slider of this label, in sight or folded away, as a person's hand would."""
    slider = cell.locator(f'input[type=range][aria-label="{label}"]')
    slider.evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }", value
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_choice_of_algorithms_answers_to_the_keyboard(explorers: Notebook, name: str) -> None:
    page = explorers.page
    cell = cell_with(page, f"explore_{name}()")
    start_call = call(cell)
    # a map's two algorithms are those that were trained: what is chosen there is the map
    pick = cell.get_by_label("map" if name == "map" else "algorithm", exact=True)
    value = pick.evaluate("pick => pick.selectedIndex")
    pick.focus()
    page.keyboard.press("ArrowUp" if value else "ArrowDown")
    wait_until(page, lambda: call(cell) != start_call, f"{name}: another algorithm")
    assert not caption(cell).startswith("Not possible")
    pick.select_option(index=value)
    wait_until(page, lambda: call(cell) == start_call, f"{name}: the first algorithm again")


def test_two_views_share_no_id(explorers: Notebook) -> None:
    ids = explorers.page.evaluate("[...document.querySelectorAll('.rl-picture [id]')].map(element => element.id)")
    assert len(ids) > 5 and len(set(ids)) == len(ids)
    assert not [name for name in ids if "\ue000" in name]


def test_browser_reported_no_error_and_asked_nobody_else(explorers: Notebook) -> None:
    """Comes last, to see what the tests above did."""
    assert not explorers.errors
    assert not explorers.outside


def test_a_prediction_is_typed_kept_and_shown_beside_the_result(lab: Lab, run_in_lab: Callable[..., Notebook]) -> None:
    """What is no answer is asked for again."""
    cells = (
        'import os\nos.environ["RLVIZ_ASK"] = "1"  # these tests are somebody who answers\n'
        "from rlviz.exercises import Predictions\n"
        'predict = Predictions("typed", dead="Share of dead groups?", faster=("Which is faster?", "steps", "outcome"))',
        'predict("dead")\npredict("faster")\npredict.result("dead", 0.25)\npredict.result("faster", "steps")',
        "predict.table()",
    )
    first = run_in_lab("typed", *cells, answers=("a half", "50 %", "2")).page
    kept = json.loads((lab.folder / "predictions" / "typed.json").read_text(encoding="utf-8"))["predictions"]
    assert {name: (each["guess"], each["result"]) for name, each in kept.items()} == {
        "dead": (0.5, 0.25),
        "faster": ("outcome", "steps"),
    }
    outputs = first.locator(".jp-OutputArea")
    told = "Share of dead groups? you said 0.5; the run says 0.25."
    wait_until(first, lambda: told in " ".join(outputs.all_text_contents()), told)
    assert "a half is not a number, such as 0.5" in " ".join(outputs.all_text_contents())
    row = first.locator("table tr", has_text="Share of dead groups?").locator("td")
    assert row.all_text_contents() == ["Share of dead groups?", "0.5", "0.25"]


def test_a_run_folder_brings_no_script_and_no_latex(lab: Lab, run_in_lab: Callable[..., Notebook]) -> None:
    """No script of it runs, and no LaTeX of it is typeset."""
    out = lab.folder / "run"
    settings = TrainSettings(steps=1, num_prompts=1, group_size=2, evaluate_every=0, details_every=1)
    list(train(load_policy("chain", device="cpu"), find_task("chain"), GRPO, settings, out=out))
    row = json.loads((out / "samples.jsonl").read_text())
    for group in row["groups"]:
        group["prompt"] = group["gold"] = MARK
        for response in group["responses"]:
            response["text"] = MARK
            for token in response["tokens"]:
                token["token"] = MARK
    (out / "samples.jsonl").write_text(json.dumps(row) + "\n")
    config = json.loads((out / "config.json").read_text())
    config["algorithm"]["name"] = MARK
    (out / "config.json").write_text(json.dumps(config))
    notebook = run_in_lab("hostile", CONTROL, 'from rlviz import inspect_run\ninspect_run("run", "run")')
    notebook.page.locator(".jp-OutputArea mjx-container").first.wait_for(state="attached")  # the control is typeset
    inspector = notebook.page.locator(".ri")
    inspector.get_by_text("\\href{javascript:1}").first.wait_for(state="attached")
    notebook.page.wait_for_timeout(1000)
    assert inspector.locator("mjx-container").count() == 0
    assert inspector.locator('img[src="x"]').count() == 0 and "PWNED" not in notebook.page.title()
