"""Programs run by node, for tests: what a page would compute, as arrays."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlviz.page.widget import data_to_json

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is missing: no page can be asked")
RUNNER = Path(__file__).parent / "run_programs.mjs"


def run(programs: Mapping[str, Any], cases: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return the outputs of programs, (key, inputs) each, in this order: name → array.

    (key, inputs, slices): the outputs after so many runs that have time for one round of a loop.
    """
    questions = [
        {
            "key": key,
            "inputs": {name: data_to_json(value) for name, value in inputs.items()},
            "slices": slices[0] if slices else None,
        }
        for key, inputs, *slices in cases
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cases.json"
        file.write_text(json.dumps({"programs": programs, "cases": questions}, allow_nan=False))
        done = subprocess.run(["node", str(RUNNER), str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [
        {
            name: np.array([float(x) for x in value["data"]]).reshape(value["shape"])
            for name, value in answer["outputs"].items()
        }
        for answer in json.loads(done.stdout)
    ]
