"""Every refusal is one sentence that names the argument, says what is allowed and what came; a row of a table each, by room."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from tests.refusals import (
    algorithms,
    declared,
    interop,
    lessons,
    pictures,
    runs,
    small_models,
    study,
    tabular,
    training,
)
from tests.refusals.row import LONGEST, PYTHON, Row

ROOMS = (algorithms, interop, lessons, pictures, runs, small_models, study, tabular, training)


def written(rows: list[Row], room: str) -> list[object]:
    return [pytest.param(row, id=f"{room}: {row.says[:60].replace('…', '..')}") for row in rows]


def in_folder(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def refused(row: Row, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the sentence, and that nothing was written where the call was made."""
    monkeypatch.chdir(folder)
    before = in_folder(folder)
    with pytest.raises(getattr(builtins, row.error), match=row.pattern) as caught:
        row.act()
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < LONGEST, sentence
    assert row.error == "TypeError" or not PYTHON.search(sentence), (
        sentence
    )  # of a call that does not fit, Python says best why
    assert in_folder(folder) == before


@pytest.mark.quick(10_000)
@pytest.mark.parametrize(
    "row", [each for room in ROOMS for each in written(room.ROWS, room.__name__.rpartition(".")[2])]
)
def test_what_is_wrong_is_refused(row, tmp_path, monkeypatch):
    refused(row, tmp_path, monkeypatch)


@pytest.mark.quick(10_000)
@pytest.mark.parametrize("row", written(declared.ROWS, "declared"))
def test_what_is_declared_is_kept(row, tmp_path, monkeypatch):
    refused(row, tmp_path, monkeypatch)
