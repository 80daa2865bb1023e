"""What a notebook holds of a live picture once JupyterLab has saved it: a still one, for no later kernel knows the widget."""

from __future__ import annotations

from typing import Any

VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
STILL = "The picture as it was saved. Run this cell to move it."
NOTHING = "Run this cell to see what stood here."


def replace_views(model: dict[str, Any], **_: Any) -> None:
    """Take the views of widgets out of a notebook that is being saved; what is open in the browser stays as it is.

    model: of Jupyter's contents manager, changed in place. Where a view has a page that runs without a kernel beside it, that is
    left; else its image, and a sentence that says how it moves again. A view whose state is saved, too, stays.
    """
    if model.get("type") != "notebook" or not model.get("content"):
        return
    notebook = model["content"]
    states = notebook.get("metadata", {}).get("widgets", {}).get(STATE, {}).get("state", {})
    for cell in notebook["cells"]:
        outputs = []
        for output in cell.get("outputs", []):
            outputs.append(output)
            data = output.get("data", {})
            if VIEW not in data or data[VIEW].get("model_id") in states:
                continue
            del data[VIEW]
            if "image/png" in data:
                outputs.append({"output_type": "display_data", "data": {"text/plain": STILL}, "metadata": {}})
            elif "text/html" not in data:
                data["text/plain"] = NOTHING
        if "outputs" in cell:
            cell["outputs"] = outputs
