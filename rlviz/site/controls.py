"""What a lesson says of a picture's controls: it names none that its page lacks, or the site is not built."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlviz.page.widget import STARTED

MOVE = re.compile(r"\*\*[Mm]ove\b.*?(?=\n\n(?!\d+\. |- )|\Z)", re.DOTALL)  # a paragraph, and the list after it
ANSWER = re.compile(r"<details>.*?</details>", re.DOTALL)
NAMED = re.compile(r"`([^`]+)`")


def check_controls(cells: Sequence[Any], file: Path) -> None:
    """Raise ValueError where a text beside a picture names a control that the picture does not have."""
    for control, labels in named_controls(cells):
        if not any(label == control or label.startswith((f"{control} ", f"{control},")) for label in labels):
            raise ValueError(f"{file.name}: the text names the control `{control}`; its page has {', '.join(labels)}")


def named_controls(cells: Sequence[Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each control that a text names, and the labels of those that there are.

    In the texts right before and after a picture, from a bold Move to the end of its paragraph, or of the list after it, each
    `word` is a control's label, in full or to a space or a comma. Answers, which are folded, are not read.
    """
    has = [list(_labels(cell)) for cell in cells]
    for place, cell in enumerate(cells):
        labels = [label for beside in has[max(0, place - 1) : place + 2] for label in beside]
        if cell.cell_type == "markdown" and labels:
            moved = "\n".join(MOVE.findall(ANSWER.sub("", cell.source)))
            yield from ((control, labels) for control in NAMED.findall(moved))


def _labels(cell: Any) -> Iterator[str]:
    """Yield the labels of the controls of the pictures that a cell shows."""
    for output in cell.get("outputs", ()):
        for _, packed in STARTED.findall(output.get("data", {}).get("text/html", "")):
            controls = json.loads(gzip.decompress(base64.b64decode(packed)))["picture"]["controls"]
            yield from (control.get("label") or name for name, control in controls.items())
