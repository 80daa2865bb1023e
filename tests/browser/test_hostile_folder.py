"""A run folder from somebody else in a real JupyterLab: no script of it runs, and no LaTeX of it is typeset."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlviz import GRPO, TrainSettings, train
from rlviz.training import find_task
from small_models.policies import load_policy

if TYPE_CHECKING:
    from conftest import Lab, Notebook

MARK = "<img src=x onerror=\"document.title='PWNED'\"> $\\href{javascript:1}{x^2}$ \\(y^2\\)"
CONTROL = 'import ipywidgets\nipywidgets.HTMLMath("typeset: $x^2$")'  # what Jupyter does with a formula


def test_a_run_folder_brings_no_script_and_no_latex(lab: Lab, run_in_lab: Callable[..., Notebook]) -> None:
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
