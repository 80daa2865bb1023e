"""The pages of the site but for the course: front page, explorers, recorded runs, algorithms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from rlviz.algorithms import ALGORITHMS, GRPO, RELATIVES, command_name, differences, family_table, formulas, show
from rlviz.algorithms.family import Algorithm
from rlviz.markup import Markup, element, joined
from rlviz.page.widget import pack
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.runs import playground
from rlviz.runs.recordings import RECORDINGS, packed
from rlviz.site.html import File, coloured_code, data, page, table
from rlviz.site.lessons import formula

FIRST_EXPLORER = "clip"
TITLE = playground.TITLE
SENTENCE = (
    "Policy optimisation (PPO, GRPO, DAPO, GSPO, DCPO and their relatives) in pictures that you can touch and "
    "runs that you can watch, small enough for a laptop."
)
LINKS = {  # from a recorded run on the front page
    "PPO": {"Lesson 04: PPO →": "course/04_ppo.html", "Explorer: GAE →": "explorers/gae.html"},
    "DPO": {"Lesson 14: DPO →": "course/14_preferences_and_dpo.html", "Explorer: DPO →": "explorers/dpo.html"},
}
READ = (
    "Click a step in the curves, then a response, then a token: beside the responses stands its objective with its "
    "numbers, each of which opens into where it comes from, and below it what other algorithms would have made of the same "
    "token. The address of the page leads back to what you see."
)
REAL = "course/18_take_it_home.html"
QUESTION = "A run of yours looks wrong? "
PAPER = re.compile(r"(\d{4}\.\d{5})")


@cache
def explorer_of(name: str) -> Any:
    """Return an explorer as it is at first."""
    return find_explorer(name)()


@cache
def packed_explorer(name: str) -> str:
    """Return what a page needs to compute an explorer, packed."""
    return pack(explorer_of(name).page_payload())


@cache
def computed() -> dict[str, str]:
    """Return what each explorer computes, in words for a reader."""
    text = Path(__file__).with_name("computed.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^# (\w+)\n(.+)$", text, re.M))


def live(name: str, root: str) -> Markup:
    """Return an explorer that answers in the page, and what shows its picture where JavaScript does not run."""
    picture = element("img", src=f"{root}explorers/{name}.png", alt=explorer_of(name).alt)
    return joined(data(packed_explorer(name), data_picture=name), element("noscript", picture))


def front() -> Iterator[File]:
    """The front page: a model that trains, and the ways on; its programs and weights are files, loaded after it is seen."""
    ways = (
        ("Explorers", "explorers/index.html", "One idea each, with sliders and things to drag."),
        ("Symptoms", "course/symptoms.html", "The loss is 0, the KL is negative: what it is, and what to check."),
        ("Recorded runs", "runs.html", "Real training, step by step, down to each token and under other algorithms."),
        (
            "The same on a real model",
            REAL,
            "SmolLM2 learns sums, and finds the hole in a reward: the same loss, 135M weights.",
        ),
        ("Algorithms", "algorithms/index.html", "Each on one page, as code that runs, beside GRPO."),
        ("Lessons", "course/index.html", "The course, to read here or to run, and three ways through it."),
        ("Teach", "teaching.html", "Slides whose pictures can be dragged, and a sheet to print."),
    )
    lesson = element("a", "See a lesson", href="course/index.html")
    without = element("noscript", element("p", "The model trains where JavaScript runs. ", lesson))
    links = [element("li", element("a", name, href=to), element("span", words)) for name, to, words in ways]
    yield page(
        "index.html",
        TITLE,
        element("p", QUESTION, element("a", "Find the symptom", href="course/symptoms.html"), ".", class_="asked"),
        element("h1", TITLE),
        joined(data(pack(playground.tabs(LINKS)), data_tabs="training/"), without),
        element("section", element("h2", "Go on"), element("p", SENTENCE), element("ul", *links, class_="ways")),
        trains=True,
    )
    for name, part in playground.training_parts().items():
        yield File(f"training/{name}.js", f'packed["training/{name}"]="{pack(part)}";\n')


def runs() -> Iterator[File]:
    """A page for each recorded run, and an index of them; what the front page shows is a file beside."""
    entries = (
        element("li", element("a", run.title, href=f"runs/{name}.html"), element("span", run.look))
        for name, run in RECORDINGS.items()
    )
    yield page(
        "runs.html",
        "Recorded runs",
        element("h1", "Recorded runs"),
        element("p", "Small models, really trained. Play a run, or go to a step, a response and a token of it."),
        element("ul", *entries, class_="ways"),
    )
    summary = element("summary", "How to read it, and how it was trained")
    for name, run in RECORDINGS.items():
        yield page(
            f"runs/{name}.html",
            run.title,
            element("h1", run.title),
            element("p", run.look),
            data(packed(name), data_inspector=name),
            element("noscript", element("p", "The run can be watched where JavaScript runs.")),
            element("details", summary, element("p", READ), coloured_code(run.call, run.language)),
        )
    for name, _ in playground.RECORDED.values():
        yield File(f"recordings/{name}.js", f'packed["recordings/{name}"]="{packed(name)}";\n')


def explorers() -> Iterator[File]:
    """A page for each explorer, and an index of them in small."""
    order = sorted(EXPLORERS, key=lambda name: name != FIRST_EXPLORER)
    titles = {name: explorer_of(name).title for name in order}
    entries = [
        element(
            "li",
            element("a", element("img", src=f"{name}.png", alt="", loading="lazy"), titles[name], href=f"{name}.html"),
            element("span", find_explorer(name).spec.picture.look),
        )
        for name in order
    ]
    index = element("ul", *entries, class_="ways small")
    yield page("explorers/index.html", "Explorers", element("h1", "Explorers"), index)
    for before, name, after in zip([None, *order], order, [*order[1:], None], strict=False):
        ways = [
            element("a", words.format(titles[neighbour]), href=f"{neighbour}.html")
            for words, neighbour in (("← {}", before), ("{} →", after))
            if neighbour
        ]
        yield page(
            f"explorers/{name}.html",
            titles[name],
            live(name, "../"),
            element("details", element("summary", "What is computed"), element("p", computed()[name])),
            element("nav", *ways, class_="beside", aria_label="Other explorers"),
        )
        yield File(f"explorers/{name}.png", explorer_of(name).png)


def source_links(text: str) -> Markup:
    """Return where an algorithm is from, each paper a link."""
    parts: list[object] = list(PAPER.split(text))
    parts[1::2] = [element("a", paper, href=f"https://arxiv.org/abs/{paper}") for paper in parts[1::2]]
    return joined(*parts)


def algorithms() -> Iterator[File]:
    """A page for each algorithm, made from its pieces, and the table of the family."""
    yield page(
        "algorithms/index.html",
        "Algorithms",
        element("h1", "The family"),
        element("p", "Two algorithms differ exactly by their pieces. A name leads to the algorithm on one page."),
        linked_family_table(ALGORITHMS),
        element("h2", "Relatives that came later"),
        linked_family_table(RELATIVES),
    )
    for algorithm in (*ALGORITHMS, *RELATIVES):
        name = command_name(algorithm)
        source = ["Source: ", source_links(algorithm.source), ". "] if algorithm.source else []
        differs, marked = [], []
        if rows := [(row.slot, row.before, row.after, row.why) for row in differences(GRPO, algorithm)]:
            differs = [element("h2", "What differs from GRPO"), table(("slot", "GRPO", algorithm.name, "why"), rows)]
            diff = coloured_code(str(show(algorithm, against=GRPO)), "diff")
            marked = [element("details", element("summary", "Marked against GRPO"), diff)]
        yield page(
            f"algorithms/{name}.html",
            algorithm.name,
            element("h1", algorithm.name),
            element("p", *source, "Models in play: ", ", ".join(algorithm.models), "."),
            *formula_section(algorithm),
            *differs,
            element("h2", "On one page"),
            element("p", "Its pieces' own source, as Python that runs: ", element("code", f"rlviz show {name}")),
            coloured_code(str(show(algorithm))),
            *marked,
            element("p", "Train it: ", element("code", f"rlviz train --algorithm {name}")),
        )


def formula_section(algorithm: Algorithm) -> Iterator[Markup]:
    """Return an algorithm's formulas, beside GRPO's where it is another: in each row what differs is underlined."""
    is_compared = algorithm is not GRPO
    yield element("h2", "As mathematics")
    if is_compared:
        both = element("b", "both")
        yield element("p", "Underlined in colour: what differs from GRPO. ", both, ": the same in the two.")
    rows = []
    for slot, name, row in formulas(algorithm, against=GRPO if is_compared else None).lines():
        parts = (formula(rf"\displaystyle {part}", block=False) for part in row.parts(tex=True))
        cells = [element("th", slot, scope="row"), *([element("td", name)] if is_compared else [])]
        cells.append(element("td", *(element("span", part) for part in parts)))
        rows.append(element("tr", *cells, **({"class_": "begins"} if slot else {})))
    table_ = element("table", element("tbody", *rows))
    yield element("div", table_, class_="wide formulas", tabindex="0", role="region", aria_label="formulas")


def linked_family_table(members: tuple[Algorithm, ...]) -> Markup:
    frame = family_table(members).reset_index()
    links = [element("a", member.name, href=f"{command_name(member)}.html") for member in members]
    rows = [
        (link, *row[1:-1], source_links(row[-1]))
        for link, row in zip(links, frame.itertuples(index=False), strict=True)
    ]
    return table(list(frame.columns), rows)


SECTIONS = (front, explorers, runs, algorithms)
