"""The site's search: every address of its index is there, what people type finds what answers it, and it is small."""

import base64
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rlviz.page.script import module, script
from rlviz.site.search import Entry, config_fields, entries, plain, search_index, symptoms, terms, to_json
from tests.site.queries import BOTH_LANGUAGES, HELD_OUT, NOTHING, OTHERS, THREADS

COURSE = Path(__file__).parents[2] / "notebooks"
QUERIES = (*THREADS, *OTHERS, *BOTH_LANGUAGES, *HELD_OUT)
NODE = shutil.which("node")
RUN = "\nconst find = searcher({index}); console.log(JSON.stringify({queries}.map((query) => find(query).map((one) => one[1]))));"


@pytest.fixture(scope="module")
def index():
    """The index of the whole course, as entries."""
    return list(entries(COURSE))


@pytest.fixture(scope="module")
def find(index):
    """A function: what is typed → the titles that the page's own script finds."""
    if NODE is None:
        pytest.skip("node is missing: no page can be asked")
    typed = [query for query, *_ in QUERIES]
    typed += [*NOTHING, *(entry.title for entry in index)]
    program = module("search") + RUN.format(index=json.dumps(to_json(index)), queries=json.dumps(typed))
    command = [NODE, "--input-type=module", "-"]
    done = subprocess.run(command, input=program, capture_output=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(typed, json.loads(done.stdout), strict=True)).__getitem__


@pytest.mark.parametrize(("typed", "wanted", "within"), QUERIES)
def test_what_people_type_finds_what_answers_it(find, typed, wanted, within):
    first = find(typed)[:within]
    assert any(title.lower().startswith(wanted.lower()) for title in first), first


def test_a_result_shows_no_sign_of_markdown_and_no_part_of_a_formula(index):
    signs = re.compile(r"[`$*\\]|\]\(|^[>#·]|> \*|> >")
    assert [one.look for one in index if signs.search(one.look)] == []
    looks = {one.title: one.look for one in index if one.kind == "Term"}
    assert looks["Ratio"] == "（重要性）比率 · r_t\xa0=\xa0π_θ(o_t)/π_old(o_t), ratio in the code."
    assert looks["Standard error"].startswith("标准误 · How uncertain a mean is: the standard deviation divided by √n.")
    long = terms("### t\n\n**T · 词.** " + "word " * 22 + "then $A = (R - \\text{mean})/\\text{std}$ ends it. *词。*\n")
    assert [one.look[-6:] for one in long] == ["then …"]  # the whole formula has no room: none of it stands there


def test_every_title_finds_itself_and_of_what_the_site_does_not_have_nothing_is_found(find, index):
    assert [entry.title for entry in index if entry.title not in find(entry.title)[:3]] == []
    assert [typed for typed in NOTHING if find(typed)] == []


def test_the_index_and_its_script_are_small_and_the_index_is_what_the_page_reads(index):
    file = search_index(COURSE)
    assert len(file.content.encode()) + script("search").stat().st_size <= 60_000
    packed = file.content.removeprefix('packed["search"]="').removesuffix('";\n')
    read = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert read == json.loads(json.dumps(to_json(index)))
    assert {kind for kind, _ in read["kinds"]} == {entry.kind for entry in index}


def test_what_an_entry_is_made_of():
    (symptom,) = symptoms(
        "# S\n\n## The `kl` is 0\n\n**Not a fault.** See [this](a.md), $\\pi$.\n\n- **Fields:** `a_b/c`.\n"
    )
    address, words = ("course/symptoms.html", "The-kl-is-0"), "Not a fault See this Fields a_b/c"
    assert symptom == Entry("Symptom", "The kl is 0", *address, "Not a fault. See this, π.", words)
    table = "| lesson | idea | TRL | verl |\n| --- | --- | --- | --- |\n| [00](0.md) | size G | `n_g=8` | `r.n=1`, as `x` |\n"
    assert [(one.title, one.anchor, one.look) for one in config_fields(table)] == [
        ("size G: n_g, r.n", "n_g", "TRL: n_g=8 · verl: r.n=1, as x")
    ]
    (term,) = terms(
        "### dead group\n\n**Dead group · 失效组.** A group of $G$ equals: $\\tfrac12\\log\\rho$. *一个组。*\n"
    )
    look = "失效组 · A group of G equals: 1/2\xa0log\xa0ρ."
    assert (term.title, term.anchor, term.look) == ("Dead group", "dead-group", look)
    assert plain("1. a *b* `c`  <b>d</b>") == "a b c d"
