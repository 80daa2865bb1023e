"""A site of two explorers, two small notebooks and a lecture, built once; what is cut is only how much of the same there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rlviz.site import build, lessons, pages
from tests.browser.conftest import chromium  # noqa: F401

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

LESSON = [
    "# 01 · First\n\nA formula $r = \\pi_\\theta / \\pi_{old}$, and one displayed:\n\n"
    "$$J = \\mathbb{E}\\left[\\min(r A, 1)\\right]$$\n",
    "See [the verdict](experiments/verdicts.md#starved), [the second](02_second.ipynb), [a table](table.csv) and "
    "[outside](../README.md). ![a picture](experiments/starved.png)",
]


def notebook(path: Path, texts: list[str], outputs: list[dict[str, object]]) -> None:
    cells: list[dict[str, object]] = [
        {"cell_type": "markdown", "metadata": {}, "source": text, "id": f"m{i}"} for i, text in enumerate(texts)
    ]
    code = {"cell_type": "code", "metadata": {}, "source": "x = 1  # <b>", "id": "c", "execution_count": 1}
    exercise = {**code, "id": "e", "metadata": {"tags": ["exercise"]}, "source": "def mine():\n    return None"}
    code_cells = [{**code, "outputs": outputs}, {**exercise, "outputs": []}]
    written = {"cells": [*cells, *code_cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written), encoding="utf-8")


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lessons, a solution, and a verdict with its picture."""
    folder = tmp_path_factory.mktemp("course")
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    output: dict[str, object] = {"output_type": "display_data", "metadata": {}}
    live = '<p id="live"></p><script type="module">document.getElementById("live").textContent = "it runs"</script>'
    picture = {**output, "data": {"image/png": pixel, "text/plain": "Two graphs: A > 0 and A < 0."}}
    notebook(folder / "01_first.ipynb", LESSON, [picture, {**output, "data": {"text/html": live}}])
    notebook(folder / "02_second.ipynb", ["# 02 · Second"], [])
    notebook(folder / "solutions" / "01_first.ipynb", ["# 01 · First, solved"], [])
    (folder / "experiments").mkdir()
    (folder / "experiments" / "verdicts.md").write_text("# Claims\n\n## starved\n", encoding="utf-8")
    (folder / "experiments" / "starved.png").write_bytes(b"a picture")
    (folder / "teaching" / "slides").mkdir(parents=True)
    (folder / "teaching" / "slides" / "1.md").write_text(
        "# A lecture\n\n---\n## Look\n\n![The clip](explorer:clip)\n\nThen ask.\n", encoding="utf-8"
    )
    (folder / "teaching" / "cheatsheet.zh.md").write_text("# 一页\n\n$r = 1$\n", encoding="utf-8")
    (folder / "teaching" / "01_first.md").write_text("# 01: for the teacher\n", encoding="utf-8")
    (folder / "symptoms.md").write_text(
        "# Symptoms\n", encoding="utf-8"
    )  # every page leads to it, and to the real model
    notebook(folder / "18_take_it_home.ipynb", ["# 18 · A real model"], [])
    (folder / "table.csv").write_text("a,b\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def site(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    out = tmp_path_factory.mktemp("built") / "site"
    few = ("clip", "aggregation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "EXPLORERS", few)
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda *_: None)  # where axes stand does not matter
        build.build(out, course)
    return out


@pytest.fixture(scope="session")
def real_course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the real course, as the site has them, in a folder."""
    out = tmp_path_factory.mktemp("real")
    for file in lessons.course_pages(NOTEBOOKS):
        file.write(out)
    return out
