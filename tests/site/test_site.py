"""The static site: every link leads somewhere, no page lets another host in, and no folder of others is written over."""

import base64
import gzip
import json
import os
import re
import shutil
from contextlib import suppress
from html import escape as html_escape, unescape
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import matplotlib.image
import nbformat
import pytest

from rlviz.algorithms import ALGORITHMS, DAPO, GRPO, RELATIVES, command_name, formulas, numbers, show
from rlviz.lessons import check
from rlviz.lessons.predictions import Prediction
from rlviz.lessons.puzzles import find_puzzle
from rlviz.page.widget import STARTED, pack
from rlviz.runs import playground, recorded_run
from rlviz.runs.recordings import RECORDINGS, packed
from rlviz.site import build, cells, html, lessons, pages
from rlviz.site.cells import lesson_body
from rlviz.site.lessons import Course
from rlviz.site.search import entries
from tests.browser.conftest import started

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"


PHONE = {"width": 390, "height": 844}


def test_no_page_is_wider_than_a_phone(chromium, site, real_course):
    """Each kind of page; solutions and appendices are made as lessons are. Pictures that answer: tests/browser."""
    shutil.copy(build.STYLE, real_course)
    wide = {}
    with started(chromium) as browser:
        page = browser.new_page(viewport=PHONE)
        pages_of_course = [
            file for file in real_course.rglob("*.html") if file.parent.name not in ("more", "solutions")
        ]
        for file in sorted([*site.rglob("*.html"), *pages_of_course]):
            page.goto(file.as_uri())
            width = page.evaluate("document.scrollingElement.scrollWidth")
            if width > PHONE["width"]:
                wide[file.name] = width
    assert not wide


class Links(HTMLParser):
    """What a page links to, loads and names."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.loaded, self.names, self.handlers = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.names.add(values["id"])
        self.handlers += [name for name in values if name.startswith("on")]
        if tag == "a" and "href" in values:
            self.targets.append(values["href"])
        elif tag in ("img", "script", "link", "iframe", "source"):
            self.loaded += [values[name] for name in ("src", "href") if values.get(name)]


class Tag(dict):
    """The attributes of one tag, in whichever order and quotes a writer put them."""

    def __init__(self, text):
        parser = HTMLParser()
        parser.handle_starttag = parser.handle_startendtag = lambda _, attrs: self.update(attrs)
        parser.feed(text)


@pytest.fixture(scope="module")
def site_links(site):
    return read_pages(site)


def read_pages(folder):
    """Return page → what it links to, loads and names, for all pages of a folder."""
    return {file: Links(file.read_text(encoding="utf-8")) for file in folder.rglob("*.html")}


def dead_links(folder, read):
    """Return what pages link to or load that is not there."""
    dead = []
    for file, links in read.items():
        for target in [*links.targets, *links.loaded]:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            path = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            known = path in read and (
                not parts.fragment or {parts.fragment, unquote(parts.fragment)} & read[path].names
            )
            if not (known or (path.is_file() and path not in read)):
                dead.append(f"{file.relative_to(folder)}: {target}")
    return dead


def test_every_internal_link_and_every_address_of_the_search_is_alive(site, site_links, course, monkeypatch):
    """Those of the course's own texts: see test_the_real_course_has_no_dead_link."""
    assert dead_links(site, site_links) == []
    monkeypatch.setattr(pages, "EXPLORERS", ("clip", "aggregation"))
    paths = {entry.path for entry in entries(course)}
    assert paths >= {"course/01_first.html", "explorers/clip.html", "algorithms/dr-grpo.html"}
    assert [path for path in paths if not (site / path).is_file()] == []


def test_no_page_loads_anything_from_elsewhere(site, site_links):
    for file, links in site_links.items():
        text = file.read_text(encoding="utf-8")
        assert not [one for one in links.loaded if urlsplit(one).scheme not in ("", "data")], file
        assert not links.handlers
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
        assert policy.startswith("default-src &#x27;none&#x27;; script-src &#x27;self&#x27;")
        assert "http" not in policy and "script-src &#x27;self&#x27; &#x27;unsafe" not in policy
        assert text.index("Content-Security-Policy") < text.index("<script")
        assert f'data-search="{"../" * (len(file.relative_to(site).parts) - 1)}"' in text, file
        # A browser takes <a … /> for open, and what follows for a part of it.
        assert not re.search(r"<(a|span|p|div|h\d)\b[^>]*/>", text), file


def test_a_policy_lets_in_the_scripts_of_its_page_and_no_others():
    data = '<script type="application/json">{}</script><script src="a.js"></script>'
    assert "sha256" not in html.policy(data)
    # printf 'alert(1)' | openssl dgst -sha256 -binary | base64
    assert "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='" in html.policy("<script>alert(1)</script>")


def test_what_there_is_to_see(site):
    names = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    assert names == {build.MARK, *json.loads((site / build.MARK).read_text(encoding="utf-8"))}
    assert {f"algorithms/{command_name(one)}.html" for one in (*ALGORITHMS, *RELATIVES)} <= names
    assert {"recordings/ppo.js", "explorers/clip.png", "course/solutions/01_first.html"} <= names
    text = unescape(re.sub("<[^>]*>", "", (site / "algorithms" / "grpo.html").read_text(encoding="utf-8")))
    for line in str(show(GRPO)).splitlines():
        assert line in text
    for name in RECORDINGS:
        assert packed(name) in (site / "runs" / f"{name}.html").read_text(encoding="utf-8")


def test_an_algorithm_stands_as_mathematics_beside_grpo(site):
    for algorithm in (*ALGORITHMS, *RELATIVES):
        text = (site / "algorithms" / f"{command_name(algorithm)}.html").read_text(encoding="utf-8")
        (region,) = re.findall(r'<div class="wide formulas".*?</div>', text, re.S)
        assert "<code>" not in region  # what the converter does not know
        if algorithm in (GRPO, DAPO):
            rows = formulas(algorithm, against=None if algorithm is GRPO else GRPO).lines()
            assert region.count("<math") == sum(len(row.parts(tex=True)) for *_, row in rows)
            assert region.count("mathcolor") == sum("".join(row.parts(tex=True)).count("textcolor") for *_, row in rows)


def test_the_first_picture_needs_few_bytes(site):
    needed = [(site / name).read_bytes() for name in ("index.html", "rlviz.js", "site.css")]
    assert sum(map(len, needed)) <= 300_000
    assert sum(len(gzip.compress(part)) for part in needed) <= 150_000


def test_a_lesson_is_read_with_its_formulas_links_and_pictures(site):
    text = (site / "course" / "01_first.html").read_text(encoding="utf-8")
    assert re.findall(r'<math [^>]*display="(\w+)"', text) == ["inline", "block"]
    assert "mathjax" not in text.lower() and "require" not in text
    assert 'href="experiments/verdicts.html#starved"' in text and 'href="02_second.html"' in text
    assert "README" not in text and "outside" in text  # what the site does not have is no link
    assert (site / "course" / "table.csv").read_text(encoding="utf-8") == "a,b\n"
    assert 'alt="Two graphs: A &gt; 0 and A &lt; 0."' in text
    assert "&lt;b&gt;" in text
    assert "sha256-" in text  # for the script of the output


def cell(source, *outputs, tag=None):
    """Return a cell of code."""
    metadata = {"tags": [tag] if tag else []}
    return nbformat.v4.new_code_cell(source, metadata=metadata, outputs=list(outputs))


def saved(**data):
    names = {"png": "image/png", "html": "text/html", "plain": "text/plain", "markdown": "text/markdown"}
    return nbformat.v4.new_output("display_data", {names[name]: value for name, value in data.items()})


def render(*cells_of_code, text="# 01 · Made up", course=NOTEBOOKS):
    """Return a lesson's body as its page shows it, and the files beside it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), *cells_of_code])
    here = PurePosixPath()
    return lesson_body(notebook, PurePosixPath("01_made_up.ipynb"), lambda text: Course(course).markdown(text, here))


def test_a_formula_in_a_lesson_s_output_is_mathml():
    body, _ = render(cell("formulas(…)", saved(markdown=formulas(DAPO, against=GRPO)._repr_markdown_())))
    assert body.count("<math") == sum(len(row.parts(tex=True)) for *_, row in formulas(DAPO, against=GRPO).lines())
    assert "$" not in body and 'mathcolor="#1A7EBB"' in body and "<table>" in body


def test_a_picture_that_answers_is_the_site_s_own_and_its_png_stands_there_until_it_does():
    explorer = pages.explorer_of("clip")
    image = base64.b64encode(explorer.png).decode()
    twin = saved(png=image, plain="Two graphs: A > 0.")
    text, files = render(cell("explore_clip()", saved(html=explorer.html()), twin, saved(png=image, plain="2 < 3.")))
    (place,) = re.findall(r'<div data-picture="clip">(.*?)</div>', text)
    assert place.startswith(f'<script type="application/json">{pack(explorer.page_payload())}</script><img ')
    width, height = matplotlib.image.imread(BytesIO(explorer.png)).shape[1::-1]
    for number, alt in ((1, "Two graphs: A > 0."), (2, "2 < 3.")):
        (image,) = [Tag(tag) for tag in re.findall(rf'<img [^>]*src="01_made_up/{number}\.png"[^>]*>', text)]
        assert (image["alt"], image["width"], image["height"]) == (alt, str(width), str(height))
    assert [(file.path, file.content) for file in files] == [
        (f"course/01_made_up/{number}.png", explorer.png) for number in (1, 2)
    ]
    assert text.count("<script") == 1  # data: the script is the site's own


def test_a_recorded_run_of_a_lesson_is_watched_in_its_page():
    run = recorded_run("dpo")
    bundle, metadata = run._repr_mimebundle_()
    del bundle["text/html"]  # as a notebook is saved
    text, files = render(cell("recorded_run()", nbformat.v4.new_output("display_data", bundle, metadata=metadata)))
    (place,) = re.findall(r'<div data-inspector="dpo">(.*?)</div>', text)
    assert packed("dpo") in place and 'src="01_made_up/1.png"' in place
    assert files[0].content == run.png


def test_a_lesson_s_page_has_no_imports_no_undone_exercise_and_no_word_about_running():
    result = Prediction("How many?", result=3).beside()
    text, _ = render(
        cell("import torch", tag="imports"),
        cell("check.it(None)", saved(plain="Not yet: a line"), tag="exercise"),
        cell("shown", saved(plain=f"How many? {result}.", html="<table>")),
        cell("told", nbformat.v4.new_output("stream", text=f"How many? {result}.")),
        text=f"Write it down. {next(iter(cells.WORDS))}Then read on.",
    )
    assert "Write it down. Then read on." in text
    assert "torch" not in text and "Not yet" not in text and "check" in text and "<table>" not in text
    assert re.sub("<[^>]*>", "", text).count("How many? The run says 3.") == 2
    folded = re.findall(r'<details class="code"><summary>Code, 1 line</summary>(.*?)</details>', text, re.S)
    assert len(folded) == 2 and not any("check" in code for code in folded)


def test_puzzles_are_answered_in_the_page_with_the_verdicts_of_their_checks():
    choice = find_puzzle("bug", "the_ratio").choices[0]
    text, _ = render(
        cell('unlabelled("grpo")', saved(plain="Which?\na) 16 groups of 8, 1 update a rollout", html="<ul>")),
        cell('check.unlabelled("grpo", "")  # a letter', saved(plain="Not yet: the answer is …"), tag="exercise"),
        cell('show_bug("the_ratio")', saved(plain=f"a) {choice}", html="<pre>")),
        cell('check.bug("the_ratio", line=0, does="")', tag="exercise"),
        cell("def mine():\n    return None\n\n\ncheck.grader(mine)", tag="exercise"),
    )
    assert "a)" not in text and "check.unlabelled" not in text and "check.bug" not in text and "grader" in text
    run, bug = text.split("data-quiz=")[1:]
    read = lambda part: dict(re.findall(r'<template data-choice="(\w+)">(.*?)</template>', part))  # noqa: E731
    assert read(run) == {letter: check.unlabelled("grpo", letter).markup for letter in "abcde"}
    buttons = [Tag(tag) for tag in re.findall(r"<input[^>]*>", bug)]
    values = [one["value"] for one in buttons if one["name"] == "the_ratio-line"]
    verdicts = read(bug)
    for line, value in enumerate(values, 1):
        for letter in "abcd":
            assert verdicts[value + letter] == check.bug("the_ratio", line=line, does=letter).markup
    assert len(values) == 3
    assert [one["value"] for one in buttons if one["name"] == "the_ratio-does"] == list("abcd")


def test_a_prediction_is_made_in_the_page_and_stands_beside_its_result():
    source = 'predict = Predictions("01", share="How many (0 to 1)?", way=("Up & down?", "<up>", "down"), n=f"{x}?")\npredict'
    results = [Prediction(question, result=value).beside() for question, value in (("a", 0.5), ("b", "down"))]
    printed = f"a table\nHow many (0 to 1)? {results[0]}.\nUp & down? {results[1]}.\n"
    text, _ = render(cell(f"%matplotlib inline\n{source}"), cell("x", nbformat.v4.new_output("stream", text=printed)))
    fields = [Tag(tag) for tag in re.findall(r"<(?:input|select)[^>]*>", text)]
    assert [one["name"] for one in fields if "name" in one] == ["share", "way"]
    assert re.findall(r"<option[^>]*>(.*?)</option>", text) == ["choose …", "&lt;up&gt;", "down"]
    assert "<pre>a table</pre>" in text
    assert '<p>How many (0 to 1)? <span data-guess="share">The run says</span> 0.5.</p>' in text
    assert '<p>Up &amp; down? <span data-guess="way">The run says</span> down.</p>' in text


def test_a_link_says_on_hover_what_its_lesson_lets_it_say(tmp_path):
    (tmp_path / "glossary.md").write_text("### held out\n", encoding="utf-8")
    text, _ = render(text='[held-out](glossary.md#held-out "Held-out · 留出. Never trained on.")', course=tmp_path)
    assert 'title="Held-out · 留出. Never trained on."' in text and 'href="glossary.html#held-out"' in text


def test_no_page_is_built_that_tells_its_reader_to_run_a_cell():
    for words in ("Press **Shift + Enter**.", "Run the next two cells.", "Change it and rerun."):
        with pytest.raises(ValueError, match=r"01_made_up\.ipynb: a page runs no cells, and its text says '"):
            render(text=words)
    texts = [cell.source for file in NOTEBOOKS.glob("*.ipynb") for cell in nbformat.read(file, 4).cells]
    assert [words for words in cells.WORDS if not any(words in text for text in texts)] == []


def test_a_training_panel_is_a_run_in_the_page_that_waits_for_train(tmp_path):
    source = 'training_panel("sort", settings=TrainSettings(updates_per_rollout=4, evaluate_every=10))'
    made_up = nbformat.v4.new_notebook(cells=[cell(source, saved(plain="Press Train."))])
    nbformat.write(made_up, tmp_path / "01_made_up.ipynb")
    (text,) = [file.content for file in lessons.course_pages(tmp_path) if file.path == "course/01_made_up.html"]
    place = re.search(r'<div data-playground="\.\./training/" data-waits="([^"]*)"><script[^>]*>([^<]*)</script>', text)
    payload = json.loads(gzip.decompress(base64.b64decode(place[2])))
    values = {name: control["value"] for name, control in payload["controls"].items()}
    assert values["task"] == "sort" and values["algorithm"] == "GRPO" and values["updates_per_rollout"] == 4
    assert payload["numbers"]["GRPO"] == {**numbers(GRPO), "beta": 0}
    loaded = sum(len(pack(part)) for name, part in playground.training_parts().items() if name in ("programs", "sort"))
    assert f", {loaded / 1e6:.1f} MB." in place[1]
    assert "wasm-unsafe-eval" in text and "worker-src blob:" in text  # what a training needs of the page's policy


def test_each_lesson_needs_few_bytes_and_no_script_of_its_own(real_course):
    """The page, and what it loads before its reader scrolls; pictures come as they are reached."""
    shared = sum(len(gzip.compress(part, 9)) for part in (build.script().content.encode(), build.STYLE.read_bytes()))
    files = sorted((real_course / "course").glob("[0-9]*.html"))
    assert len(files) == 20
    for file in files:
        page = file.read_text(encoding="utf-8")
        assert len(gzip.compress(page.encode(), 9)) + shared <= 250_000, file.stem
        scripts = re.findall(r"<script([^>]*)>", page)
        assert [one for one in scripts if "application/json" not in one] == [' src="../rlviz.js" defer=""'], file.stem
        assert "base64," not in page and page.count("<img") == page.count('<img loading="lazy"'), file.stem


def test_three_ways_lead_through_lessons_that_there_are(site):
    index = (site / "course" / "index.html").read_text(encoding="utf-8")
    assert all(who in index for who, _, _ in lessons.WAYS)
    assert index.count('href="01_first.html"') == 1 + sum("01" in numbers for _, numbers, _ in lessons.WAYS)
    numbers = {file.name[:2] for file in NOTEBOOKS.glob("*.ipynb")}
    assert {number for _, way, _ in lessons.WAYS for number in way} <= numbers


def test_a_lecture_is_slides_with_explorers_and_a_sheet_has_its_language(site):
    slides = (site / "slides" / "1.html").read_text(encoding="utf-8")
    first, second = slides.split("<section ")[1:]
    assert "A lecture" in first and "data-picture" not in first
    assert 'data-picture="clip"' in second and 'aria-label="The clip"' in second and ">2 / 2<" in second
    assert second.index("Look") < second.index("data-picture") < second.index("Then ask.")
    sheet = (site / "cheatsheet.zh.html").read_text(encoding="utf-8")
    assert '<html lang="zh">' in sheet and 'src="explorers/clip.png"' in sheet and "<math" in sheet
    assert 'href="teaching/01_first.html"' in (site / "course" / "index.html").read_text(encoding="utf-8")


def test_a_formula_that_the_converter_does_not_know_is_shown_as_it_is_written():
    assert lessons.formula("a_1", block=False).startswith("<math")
    for tex in (r"\left( a", r"\unheard{a}", r"\begin{aligned} a &= b \end{aligned}"):
        assert lessons.formula(tex, block=True) == f"<code>{html_escape(tex)}</code>"


def test_a_folder_of_others_is_left_alone(site, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    for free in (tmp_path / "new", copy):
        build.refuse_foreign(free)
    for name in ("notes.txt", "course/notes.txt"):
        (copy / name).write_text("mine", encoding="utf-8")
        with pytest.raises(ValueError, match=rf"holds {re.escape(name)}, which is neither"):
            build.build(copy, NOTEBOOKS)
        assert (copy / name).read_text(encoding="utf-8") == "mine"
        (copy / name).unlink()
    with pytest.raises(ValueError, match="must be a folder"):
        build.refuse_foreign(copy / "index.html")


def test_an_earlier_site_gives_way_only_to_a_whole_one_and_nothing_hidden_stays(tmp_path, monkeypatch):
    out = tmp_path / "site"

    def built(*contents):
        files = (html.File("index.html", text) if text else 1 / 0 for text in contents)
        monkeypatch.setattr(build, "files", lambda course: files)
        with suppress(ZeroDivisionError):
            build.build(out, NOTEBOOKS)
        return [path.name for path in tmp_path.iterdir()], (out / "index.html").read_text(encoding="utf-8")

    assert built("first") == (["site"], "first")
    assert built("half", None) == (["site"], "first")
    (tmp_path / ".site.new").mkdir()  # of a build that was killed
    (tmp_path / ".site.new" / "half.html").touch()
    assert built("second") == (["site"], "second") and not (out / "half.html").exists()
    out.rename(tmp_path / ".site.old")  # a kill between the two renames, and then a build that fails
    assert built("half", None) == (["site"], "second")

    def killed(source, target):
        if Path(source).name == ".site.new":
            raise KeyboardInterrupt
        return replace(source, target)

    replace = os.replace
    monkeypatch.setattr(build.os, "replace", killed)
    with suppress(KeyboardInterrupt):
        built("third")
    monkeypatch.undo()
    assert built("half", None) == (["site"], "second")


def test_the_real_course_has_no_dead_link(real_course):
    read = read_pages(real_course)
    dead = [one.split(": ") for one in dead_links(real_course, read)]
    assert [(page, to) for page, to in dead if "course/" in to or not to.startswith("..")] == []
    listed = [entry for entry in entries(NOTEBOOKS) if entry.path.startswith("course/")]
    for entry in listed:
        assert not entry.anchor or entry.anchor in read[real_course / entry.path].names, entry
    assert all(real_course / entry.path in read for entry in listed)
    assert sum(bool(entry.anchor) for entry in listed) > 200
    texts = "".join(file.read_text(encoding="utf-8") for file in read)
    assert "<math" in texts and "$$" not in re.sub(r"<(pre|script).*?</\1>", "", texts, flags=re.S)
    assert set(pages.computed()) == set(pages.EXPLORERS)


MOVE = re.compile(r"\*\*[Mm]ove\b.*?(?=\n\n(?!\d+\. |- )|\Z)", re.S)  # a paragraph, and the list after it
ANSWER = re.compile(r"<details>.*?</details>", re.S)


def labels_of(cell):
    """Return the labels of the controls of the pictures that a cell shows."""
    texts = [output.get("data", {}).get("text/html", "") for output in cell.get("outputs", ())]
    packed_ = [data for text in texts for _, data in STARTED.findall(text)]
    pictures = [json.loads(gzip.decompress(base64.b64decode(data))) for data in packed_]
    controls = [control for one in pictures for control in one["picture"]["controls"].items()]
    return [control.get("label") or name for name, control in controls]


def named_controls(text):
    """Return each `word` of a text from a bold Move to the end of its paragraph, or of the list after it, but of answers."""
    return re.findall(r"`([^`]+)`", "\n".join(MOVE.findall(ANSWER.sub("", text))))


def test_the_lessons_name_controls_that_their_pages_have():
    """Beside a picture, before or after it, a control is named by its label, in full or to a space or a comma."""
    named = 0
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        lesson = nbformat.read(file, as_version=4).cells
        has = [labels_of(cell) for cell in lesson]
        for place, cell in enumerate(lesson):
            labels = [label for beside in has[max(0, place - 1) : place + 2] for label in beside]
            if cell.cell_type != "markdown" or not labels:
                continue
            for control in named_controls(cell.source):
                assert any(f"{label},".startswith((f"{control} ", f"{control},")) for label in labels), (file, control)
                named += 1
    assert named > 20  # else they are written in another way, and nothing was looked at
