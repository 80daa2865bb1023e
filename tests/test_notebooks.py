"""Notebooks are committed clean, with outputs, and define no formula that the library has. nbval runs them."""

import ast
import base64
import gzip
import io
import json
import re
import runpy
from functools import cache
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from rlviz.lessons.editions import exercises_of, key_of
from rlviz.page.widget import STARTED, relative_rows
from rlviz.pictures.shipped import load_programs
from rlviz.runs import recorded_run

ROOT = Path(__file__).parent.parent
TOOL = runpy.run_path(str(ROOT / ".ci" / "notebooks.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("[0-9]*.ipynb"))
LESSONS = [path for path in NOTEBOOKS if path.parent.name == "notebooks"]
MEGABYTES = 7  # of all lessons and solutions with their outputs
EACH_LESSON = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)


@cache
def cells(path):
    return nbformat.read(path, as_version=4).cells


def sources(path, kind):
    return [cell.source for cell in cells(path) if cell.cell_type == kind]


def as_saved(image: Image.Image) -> str:
    """Return an image as a notebook saves it: PNG, base64."""
    file = io.BytesIO()
    image.save(file, "png")
    return base64.b64encode(file.getvalue()).decode()


WITH_PALETTE, WITHOUT = as_saved(Image.new("P", (2, 2))), as_saved(Image.new("RGBA", (2, 2), "white"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_committed_notebooks_are_clean(path):
    assert TOOL["problems"](path) == []


def test_committed_notebooks_are_small():
    """Where one grows beyond it, `python .ci/notebooks.py clean` makes PNGs small; an explorer has about 60 kB."""
    assert sum(path.stat().st_size for path in NOTEBOOKS) <= MEGABYTES * 1e6


@EACH_LESSON
def test_lessons_take_their_formulas_from_the_library(path):
    for source in sources(path, "code"):
        tree = ast.parse("\n".join(line for line in source.splitlines() if not line.startswith("%")))
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not calls & {"torch.clamp", "torch.min", "torch.minimum", "torch.exp"}, source


@EACH_LESSON
def test_no_cell_answers_a_prediction_before_it_asks(path):
    """A reader sees the code first: a result is computed there, and no choice of its question stands for it."""
    for source in sources(path, "code"):
        assert not re.findall(r"""predict\.result\(\s*["']\w+["'],\s*["'][^"']*["']\s*\)""", source)


@EACH_LESSON
def test_solutions_answer_every_exercise_of_their_lesson_and_assert_that_they_pass(path):
    """By what `rlviz grade` calls an exercise; a design and a transfer question have no check."""
    solution = path.parent / "solutions" / path.name
    exercises, answered = (
        {key_of(call) for cell in cells(one) for call in exercises_of(cell)} for one in (path, solution)
    )
    assert exercises and exercises <= answered
    source = "\n".join(sources(solution, "code"))
    assert len(re.findall(r"^verdict = check\.", source, re.M)) == source.count("assert verdict.passed") > 0


def test_every_solution_has_its_lesson():
    assert {path.name for path in NOTEBOOKS if path.parent.name == "solutions"} == {path.name for path in LESSONS}


def words(text):
    """Return how many words a text has; signs alone are none, nor is what a link says on hover."""
    text = re.sub(r'(?<=\S) "[^"\n]*"(?=\))', "", text)
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


@EACH_LESSON
def test_a_lesson_is_short(path):
    """At most five sections, 1,000 words in sight, 2,050 with what is folded, and 90 lines of code."""
    text = "\n\n".join(sources(path, "markdown"))
    assert len(re.findall(r"^## ", text, re.M)) <= 5
    assert words(re.sub(r"<details>.*?</details>", "", text, flags=re.S)) <= 1000
    assert words(text) <= 2050
    assert sum(bool(line.strip()) for source in sources(path, "code") for line in source.splitlines()) <= 90


MANY_EXERCISES = {"03_grpo", "17_the_family"}  # they have a training loop, and an idea of one's own


@EACH_LESSON
def test_a_lesson_states_its_minutes(path):
    """Reading: 130 words a minute, folds among them, the seconds that cells state, and a minute a picture."""
    text, code = "\n\n".join(sources(path, "markdown")), [cell for cell in cells(path) if cell.cell_type == "code"]
    seconds = sum(int(number) for cell in code for number in re.findall(r"^# (\d+) seconds?", cell.source, re.M))
    pictures = sum(any("image/png" in output.get("data", {}) for output in cell.outputs) for cell in code)
    exercises = sum(map(int, re.findall(r"^#+ .*[●○]{3}\s+(\d+) minutes", text, re.M)))
    stated = re.search(r"^\*\*(\d+) minutes to read and to move, (\d+) of exercises\.\*\*", text, re.M)
    assert 0 <= int(stated[1]) - (words(text) / 130 + seconds / 60 + pictures) < 3 and int(stated[1]) <= 25
    assert int(stated[2]) == exercises and (exercises <= 35 or path.stem in MANY_EXERCISES)


@EACH_LESSON
def test_a_lesson_begins_and_ends_with_its_one_idea(path):
    """A question, the picture that answers it, which is the first cell and moves at once, and a sentence to remember."""
    text = "\n\n".join(sources(path, "markdown"))
    head = re.search(
        r"^# .*\n\n> \*\*Question\.\*\* .+\n>\n> \*\*Picture\.\*\* Below: .+\n>\n> \*\*Remember\.\*\* (.+)\n", text
    )
    assert head and f"**{head[1]}**" in text.partition("## What to take away")[2]
    first = next(cell for cell in cells(path) if cell.cell_type == "code")
    assert len(first.source.splitlines()) <= 8 and first.metadata["jupyter"]["source_hidden"]
    kinds = set().union(*(output.get("data", {}) for output in first.outputs))
    assert "image/png" in kinds and ("text/html" in kinds or "recorded_run" in first.source)


def notebook_of(*outputs, **metadata):
    cell = nbformat.v4.new_code_cell("1", outputs=list(outputs), execution_count=3)
    return nbformat.v4.new_notebook(cells=[cell], metadata=metadata)


def test_cleaning_strips_widget_state_gives_a_png_a_palette_and_keeps_outputs_and_words(tmp_path):
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "words"}
    alt = {"image/png": {"alt": "two dots"}}
    output = nbformat.v4.new_output("display_data", view | {"image/png": WITHOUT}, metadata=alt)
    bar = nbformat.v4.new_output("display_data", view)  # of progress: without the widget nothing but its first state
    path = tmp_path / "00_x.ipynb"
    nbformat.write(notebook_of(bar, output, widgets={"state": {}}), path)
    assert TOOL["main"](["check", str(path)]) == 1
    TOOL["main"](["clean", str(path)])
    clean = nbformat.read(path, as_version=4)
    (cleaned,) = clean.cells[0].outputs
    assert "widgets" not in clean.metadata and set(cleaned.data) == {"image/png", "text/plain"}
    assert Image.open(io.BytesIO(base64.b64decode(cleaned.data["image/png"]))).mode == "P" and cleaned.metadata == alt
    assert TOOL["main"](["check", str(path)]) == 0 and TOOL["problems"](path) == []


def test_a_link_to_the_glossary_says_the_first_sentence_on_its_term():
    """On hover, in JupyterLab, on GitHub and on the site; what it said before is replaced."""
    link = "[**reward**](glossary.md#reward{}), [a rollout](../glossary.md#rollout) and [the list](glossary.md)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(link.format(' "of old (once)"'))])
    (cell,) = TOOL["cleaned"](notebook).cells
    assert cell.source.startswith(
        '[**reward**](glossary.md#reward "Reward · 奖励. The number that says how good a response was, R."), '
    )
    assert '(../glossary.md#rollout "Rollout' in cell.source and "of old" not in cell.source
    assert cell.source.endswith("[the list](glossary.md)")


def test_a_recorded_run_is_saved_as_its_png_and_its_name():
    """The HTML of one is 200 kB; the site has the run as a file, and puts it back."""
    data, metadata = recorded_run("dpo")._repr_mimebundle_()
    (cell,) = TOOL["cleaned"](notebook_of(nbformat.v4.new_output("display_data", data, metadata=metadata))).cells
    (output,) = cell.outputs
    assert set(output.data) == {"image/png", "text/plain"} and output.metadata["text/html"] == {"recorded": "dpo"}


def test_what_was_printed_together_is_one_output():
    """A kernel sends it in as many messages as it likes; a warning, or a picture, between two lines keeps its place."""
    picture = nbformat.v4.new_output("display_data", {"image/png": WITH_PALETTE})
    printed = (("stdout", "a"), ("stdout", "b"), ("stderr", "!"), ("stdout", "c"), ("stdout", "d"), ("stdout", "e"))
    streams = [nbformat.v4.new_output("stream", name=name, text=f"{text}\n") for name, text in printed]
    (cell,) = TOOL["cleaned"](notebook_of(*streams[:4], picture, *streams[4:])).cells
    assert [one.get("text") for one in cell.outputs] == ["a\nb\n", "!\n", "c\n", None, "d\ne\n"]


ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="x", traceback=[])


@pytest.mark.parametrize(
    ("outputs", "problem"), [([], "no outputs are saved"), ([ERROR], "an error is saved in its outputs")]
)
def test_errors_and_missing_outputs_are_found(outputs, problem, tmp_path):
    nbformat.write(TOOL["cleaned"](notebook_of(*outputs)), tmp_path / "00_x.ipynb")
    assert TOOL["problems"](tmp_path / "00_x.ipynb") == [problem]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_saved_explorers_hold_the_programs_of_today(path):
    """Else `python .ci/notebooks.py run FILE`: the script that `clean` puts there may not know what an older program asks for."""
    for cell in cells(path):
        for output in cell.get("outputs", ()):
            for _, packed in STARTED.findall(output.get("data", {}).get("text/html", "")):
                payload = json.loads(gzip.decompress(base64.b64decode(packed)))
                programs, keys = load_programs(payload["name"])
                theirs = {name: program for name, program in payload["programs"].items() if name in programs}
                assert theirs == {name: relative_rows(programs[name]) for name in theirs}
                mine = set(payload["programs"]) - set(programs)  # of a rule that the lesson writes, or an old one
                variants = payload["variants"].items()
                assert mine <= {variant["program"] for key, variant in variants if key not in keys}, payload["name"]
