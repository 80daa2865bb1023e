"""A real JupyterLab: who is served, predictions that are typed, a run folder from somebody else."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rlviz import GRPO, TrainSettings, train
from rlviz.training import find_task
from small_models.policies import load_policy
from tests.browser.cells import wait_until

if TYPE_CHECKING:
    from conftest import Lab, Notebook

MARK = "<img src=x onerror=\"document.title='PWNED'\"> $\\href{javascript:1}{x^2}$ \\(y^2\\)"
CONTROL = 'import ipywidgets\nipywidgets.HTMLMath("typeset: $x^2$")'  # what Jupyter does with a formula


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


def test_a_prediction_is_typed_kept_and_shown_beside_the_result(lab: Lab, run_in_lab: Callable[..., Notebook]) -> None:
    """What is no answer is asked for again."""
    cells = (
        'import os\nos.environ["RLVIZ_ASK"] = "1"  # these tests are somebody who answers\n'
        "from rlviz.lessons import Predictions\n"
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


SMALL = {
    "width": 1366,
    "height": 768,
}  # a usual laptop's window, of which JupyterLab leaves about 640 pixels to the notebook
PANEL = """() => {
    const box = (one) => one.getBoundingClientRect(), panel = document.querySelector(".rlviz-panel");
    const at = box(panel).top, picture = panel.querySelector(".rlviz-picture");
    return {
        high: box(picture.querySelector(".rlviz-panels")).bottom - at,
        wide: box(picture).width / box(panel).width,
        past: [...panel.querySelectorAll("svg[viewBox], button")].filter((one) => box(one).right > box(panel).right).length,
    };
}"""


def test_the_training_panel_s_settings_buttons_and_curves_fit_a_small_window(
    run_in_lab: Callable[..., Notebook],
) -> None:
    page = run_in_lab("panel", "from rlviz import training_panel\ntraining_panel()").page
    page.set_viewport_size(SMALL)
    page.get_by_role("button", name="Train", exact=True).click()
    page.locator(".rlviz-panel .rlviz-said", has_text=re.compile(r"Step \d+ of 120")).wait_for(timeout=90_000)
    seen = page.evaluate(PANEL)
    assert seen["high"] <= 560 and seen["wide"] > 0.98 and not seen["past"], seen


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
