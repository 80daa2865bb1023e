"""Every refusal is one sentence that names the argument, says what is allowed and what came; a row of a table each, by room."""

from __future__ import annotations

import builtins
from importlib import import_module
from pathlib import Path

import pytest

from tests.refusals.row import LONGEST, PYTHON

TABLES = "algorithms declared interop lessons pictures runs small_models study tabular training".split()
ROWS = [
    pytest.param(row, id=f"{name}: {row.says[:60].replace('…', '..')}")
    for name in TABLES
    for row in import_module(f"tests.refusals.{name}").ROWS
]


def in_folder(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("row", ROWS)
def test_what_is_wrong_is_refused_in_a_sentence(row, tmp_path, monkeypatch):
    """And nothing is written where the call was made."""
    monkeypatch.chdir(tmp_path)
    before = in_folder(tmp_path)
    with pytest.raises(getattr(builtins, row.error), match=row.pattern) as caught:
        row.act()
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < LONGEST, sentence
    if row.error != "TypeError":  # of a call that does not fit, Python says best why
        assert not PYTHON.search(sentence), sentence
    assert in_folder(tmp_path) == before
