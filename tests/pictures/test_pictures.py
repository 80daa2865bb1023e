"""What every picture promises: programs are its curve, all that is computed is seen, controls move it, words fit."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import rlviz
import rlviz.algorithms
from rlviz.page.names import FIELD, Names
from rlviz.page.paper import is_visible
from rlviz.page.picture import Beside, Choice, Draws, Line, Mark, Panel, Rule, Slider, Span, Tokens
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.explore import Explorer
from rlviz.pictures.idea import Idea, keys_of
from rlviz.pictures.shipped import shipped, traced
from rlviz.site.pages import live
from tests.page.programs import needs_node, run

IDEAS = {name: find_explorer(name).idea for name in EXPLORERS}
# whole runs by torch, as long as the product of their sliders: only at the first stops of each
WHOLE_RUNS = {"entropy": 2}
# outputs that are drawn of a run of one's own, and of an estimator of one's own
OF_ONE_S_OWN = {"bounds": r"tokens_(cut|free|ratio)", "kl": r"(value|value_noise|gradient_error|gradient_noise)4(_at)?"}
SILENT = {("walk", "eps_low")}  # of a good token, which the picture begins with
every_picture = pytest.mark.parametrize("name", IDEAS)


def ends_of(idea: Idea, name: str) -> list[Any]:
    """Return the first and the last value of a slider; none of another control, or of a parameter that is not there."""
    control = idea.controls[name]
    if idea.algorithms is not None and name in idea.algorithms.parameters:
        return list(idea.algorithms.own(idea.algorithms.first).get(name, ())[1:3])
    numbers = getattr(control, "stops", ()) or (getattr(control, "low", ""), getattr(control, "high", ""))
    numbers = numbers[: WHOLE_RUNS.get(idea.name)]
    if not all(isinstance(number, int | float) for number in numbers):
        return []
    return [[end] * control.many if control.many else end for end in (min(numbers), max(numbers))]


def others(idea: Idea) -> Iterator[tuple[str, Any]]:
    """Yield each choice that is there at first with each other option, and algorithms beside the chosen one."""
    for name, control in idea.controls.items():
        if isinstance(control, Beside):
            yield name, list(idea.members.values())[-control.most :]
        elif isinstance(control, Choice) and name != "algorithm":
            yield from ((name, value) for option, value in control.options.items() if option != control.value)


def at_random(idea: Idea, rng: random.Random, member: Any = None) -> dict[str, Any]:
    """Return arguments at random, those that a page's controls can have; of this algorithm, or of any."""
    found: dict[str, Any] = {}
    for name, control in idea.controls.items():
        if idea.algorithms is not None and name in idea.algorithms.parameters:
            own = idea.algorithms.own(found["algorithm"])
            if name in own:
                found[name] = on_a_step(rng, *own[name][1:])
        elif name == "algorithm":
            found[name] = rng.choice([*members_of(idea)]) if member is None else member
        elif isinstance(control, Choice):
            found[name] = rng.choice([*control.options.values()])
        elif isinstance(control, Slider) and control.stops:
            found[name] = rng.choice(control.stops[: WHOLE_RUNS.get(idea.name)])
        elif isinstance(control, Slider) and all(isinstance(end, int | float) for end in (control.low, control.high)):
            one = [on_a_step(rng, control.low, control.high, control.step) for _ in range(control.many or 1)]
            found[name] = one if control.many else one[0]
    return found


def on_a_step(rng: random.Random, low: float, high: float, step: float) -> float:
    value = low + step * rng.randint(0, round((high - low) / step))
    return value if isinstance(step, int) and isinstance(low, int) else float(f"{value:.10g}")


def members_of(idea: Idea) -> list[Any]:
    """Return the algorithms offered; in whole runs none that chooses among tokens, which are equal there but for rounding."""
    return [one for one in idea.members.values() if not (idea.name in WHOLE_RUNS and one.can.choose)]


@functools.cache
def tour(name: str) -> list[tuple[dict[str, Any], str, dict[str, Any], Names, str]]:
    """Return (arguments, key, values, names, conclusion) of a covering choice: the defaults, named settings, each slider at
    both ends, each option of each choice, and each algorithm with all other controls at random."""
    idea, rng = IDEAS[name], random.Random(f"a tour of {name}")
    settings = [
        {},
        *idea.named.values(),
        *({control: end} for control in idea.controls for end in ends_of(idea, control)),
    ]
    settings += [{control: value} for control, value in others(idea)]
    settings += [at_random(idea, rng, member) for member in members_of(idea) or [None] * 6]
    explorer, found = Explorer(idea, {}), []  # one goes to all: to make one costs more than to move it
    usual = {control: idea.signature.parameters[control].default for control in idea.controls}
    for arguments in settings[:: 4 if name in WHOLE_RUNS else 1]:
        explorer.set(**usual | arguments)
        found.append((arguments, explorer.key(), dict(explorer.values), explorer.names(), explorer.conclusion))
    return found


@functools.cache
def given_of(name: str) -> dict[str, Any]:
    """Return what a page is told of a picture."""
    return Explorer(IDEAS[name], {}).given()


def inputs_of(idea: Idea, program: Mapping[str, Any], key: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page gives a program: numbers, arrays, and recipes of chance with their sizes."""
    arguments, picked = idea.build(key, idea.members)
    data = {**idea.picture.data, **idea.read({}), **idea.data(*arguments, **picked)}

    def told(name: str) -> Any:
        value = data.get(name)
        if not isinstance(value, Draws):
            return idea.number(name, values, data)
        shape = tuple(int(values[size]) if isinstance(size, str) else size for size in value.shape)
        return replace(value, shape=shape, of=value.of or shape[-1])

    return {row[1]: told(row[1]) for row in program["rows"] if row[0] == "input"}


@needs_node
@every_picture
def test_a_page_computes_what_the_curve_computes(name):
    """By the programs that are shipped, one for each choice that picks one: what is out of date has other numbers, or outputs."""
    (programs, keys), stops = shipped(name), tour(name)
    picked = [list(IDEAS[name].controls[pick].options) for pick in IDEAS[name].picks()]
    assert keys.keys() == set(keys_of(picked)) and set(keys.values()) == programs.keys()
    cases = [(keys[key], inputs_of(IDEAS[name], programs[keys[key]], key, values)) for _, key, values, *_ in stops]
    for (arguments, _, _, names, _), (program, _), got in zip(stops, cases, run(programs, cases), strict=True):
        assert got.keys() == programs[program]["outputs"].keys()
        for output, theirs in got.items():
            ours = np.asarray(names.known[output], dtype=float)
            off = ~np.isclose(*np.broadcast_arrays(theirs, ours), rtol=1e-9, atol=1e-9, equal_nan=True)
            where = f"{arguments}: {output}; python -m rlviz.pictures.shipped {name} traces anew"
            assert off.sum() <= off.size // 100, where  # a ratio that lies on a limit is cut or not by its last digit


# one of each kind: with loops, with sizes that change, with a run's data, with choices that pick, and plain ones
@pytest.mark.parametrize("name", ["coin", "sampling", "bounds", "advantages", "mismatch", "map"])
def test_a_shipped_program_is_what_is_traced(name):
    programs, keys = shipped(name)
    key = random.Random(name).choice(sorted(keys))
    assert programs[keys[key]] == IDEAS[name].traced(key, IDEAS[name].members), key


def test_a_new_algorithm_s_program_is_traced_alone(monkeypatch):
    (programs, keys), asked = shipped("overlong"), []
    before = {key: program for key, program in keys.items() if key != "DAPO"}
    monkeypatch.setattr("rlviz.pictures.shipped.shipped", lambda name: (programs, before))
    own = Idea.traced
    monkeypatch.setattr(Idea, "traced", lambda idea, key, members: asked.append(key) or own(idea, key, members))
    assert traced(IDEAS["overlong"], kept=True) == {"programs": programs, "keys": keys}
    assert asked == ["DAPO"]


def read_by(part: Any) -> set[str]:
    """Return the names that a part of a picture reads: its channels and conditions, and the names in braces in its words."""
    values = [getattr(part, field.name) for field in fields(part)]
    words = [
        one for value in values for one in (value if isinstance(value, tuple) else [value]) if isinstance(one, str)
    ]
    return {
        re.sub(r"^!?(b\d_)?", "", one) for word in words for one in (word, *(found[0] for found in FIELD.findall(word)))
    }


def is_seen(panel: Panel, mark: Mark, names: Names) -> bool:
    """Return whether a mark has anything inside its panel's axes now."""
    if not names.holds(panel.when) or not is_visible(mark, names):
        return False
    limits = {
        along: sorted(names.one(getattr(getattr(panel, along), end)) for end in ("low", "high")) for along in "xy"
    }
    if isinstance(mark, Tokens) or getattr(mark, "corner", ""):
        return True
    if isinstance(mark, Rule):
        return any(limits[mark.axis][0] <= at <= limits[mark.axis][1] for at in names.array(mark.at))
    if isinstance(mark, Span):
        return max(names.one(mark.low), limits[mark.axis][0]) < min(names.one(mark.high), limits[mark.axis][1])
    ends = [names.array(getattr(mark, end)) for end in ("y", "base", "low", "high") if hasattr(mark, end)] or [
        names.array(0.0)
    ]
    x, where, on, *ends = np.broadcast_arrays(
        names.array(mark.x), names.array(mark.where or 1.0), names.array(getattr(mark, "on", 1.0)), *ends
    )
    if isinstance(mark, Line) and len(x) == 2:  # its ends may lie outside, and what is between them inside
        x, where, on, *ends = (np.linspace(*one, 99) for one in (x, where, on, *ends))
    feet, tops = np.minimum.reduce(ends), np.maximum.reduce(ends)
    inside = (x >= limits["x"][0]) & (x <= limits["x"][1]) & (where != 0) & (on != 0)
    if not hasattr(mark, "on"):
        inside &= (tops >= limits["y"][0]) & (feet <= limits["y"][1])
        inside &= (tops > feet) if len(ends) > 1 else True
    return bool(inside.any())


@every_picture
def test_what_is_computed_is_seen_or_said(name):
    """Each output is read by a mark that is in sight at some setting, an axis, a panel, a control or the conclusion."""
    picture, outputs = IDEAS[name].picture, {one for program in shipped(name)[0].values() for one in program["outputs"]}
    always = [*picture.panels, *(axis for panel in picture.panels for axis in (panel.x, panel.y)), *picture.conclusion]
    unread = outputs - set().union(*map(read_by, [*always, *IDEAS[name].controls.values()]))
    marks = [(panel, mark) for panel in picture.panels for mark in panel.marks]
    runs = IDEAS[name].read(
        {}
    )  # a run lies over a picture only if one is given: its marks have a test beside the picture's
    unread -= set().union(set(), *(read_by(mark) for _, mark in marks if mark.when in runs))
    for *_, names, _ in tour(name):
        seen = [(panel, mark) for panel, mark in marks if is_seen(panel, mark, names)]
        marks = [one for one in marks if one not in seen]
        unread -= set().union(set(), *(read_by(mark) for _, mark in seen))
    unread = {one for one in unread if not re.fullmatch(OF_ONE_S_OWN.get(name, ""), one)}
    assert not unread, f"{sorted(unread)} are computed, and nothing that can be seen reads them"


@every_picture
def test_words_are_whole_and_short(name):
    picture = IDEAS[name].picture
    assert 1 <= len(picture.conclusion) <= 2
    assert picture.title.endswith("?") and len(picture.title) <= 75
    assert 20 <= len(picture.look) <= 110 and picture.look.endswith(".")
    assert 20 <= len(picture.notice) <= 260 and len(re.findall(r"[.?!](?= |$)", picture.notice)) <= 3
    assert 20 <= len(picture.alt) <= 300 and picture.alt.endswith(".")
    for arguments, _, _, _, conclusion in tour(name):
        assert 20 < len(conclusion) <= 200 and conclusion.endswith("."), (arguments, conclusion)
        assert not re.search(r"[{}]|\bnan\b|no number|\bNone\b|  ", conclusion), (arguments, conclusion)


@every_picture
def test_every_control_moves_the_picture_and_its_call_gives_it_back(name):
    idea, explorer = IDEAS[name], Explorer(IDEAS[name], {})
    made = {output for program in shipped(name)[0].values() for output in program["outputs"]}

    def told(one: Explorer) -> dict[str, Any]:
        known = {n: value for n, value in one.names().known.items() if re.sub(r"^b\d_", "", n) in made}
        return {n: np.ravel(np.asarray(v, dtype=float)).astype(str).tolist() for n, v in known.items()} | {
            "": one.conclusion
        }

    first = told(explorer)
    for control in idea.controls if name not in WHOLE_RUNS else ():
        values = [*ends_of(idea, control), *(value for other, value in others(idea) if other == control)]
        before = dict(explorer.values)
        moved = [explorer.set(**{control: value}) or told(explorer) for value in values]
        is_there = Explorer(idea, {}).names().holds(getattr(idea.controls[control], "when", ""))
        assert not values or not is_there or (name, control) in SILENT or any(one != first for one in moved), control
        again = eval(explorer.call, {f"explore_{name}": find_explorer(name), **vars(rlviz.algorithms)})
        assert again.values == explorer.values and told(again) == told(explorer)
        explorer.values = before
    assert told(explorer) == first
    assert any(mark.drag or getattr(mark, "chosen", ()) for mark in idea.picture.marks())  # something can be touched
    assert len(live(name, "../").encode()) <= 54_000  # of 55 kB of its page


@every_picture
def test_the_last_row_can_read_a_picture_on_paper(name):
    """Words are whole, 2 % of a slide's height, inside the paper and not on each other, at the first and last named setting."""
    settings = list(IDEAS[name].named.values()) or [{}]
    for arguments in settings[:1] + settings[1:][-1:]:
        explorer = Explorer(IDEAS[name], arguments)
        figure = explorer.figure()
        FigureCanvasAgg(figure).draw()
        ticks = [label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        assert "".join(text.get_text() for text in figure.texts).replace(r"\$", "$").startswith(explorer.title[:40])
        for text in figure.findobj(Text):
            box = text.get_window_extent()
            if not text.get_text().strip() or not text.get_visible() or not figure.bbox.overlaps(box):
                continue
            size = text.get_fontsize() / 72 / (figure.get_figwidth() * 9 / 16)  # of a slide as wide as the figure
            assert "{" not in text.get_text() and (size >= 0.02 or figure.get_figwidth() > 10), text
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
            assert inside or text in ticks, f"{arguments}: cut off: {text}"
        for ax in figure.axes:
            drawn = [text for text in (*ax.texts, ax.title) if text.get_visible() and text.get_text().strip()]
            for one, other in itertools.combinations(drawn, 2):
                a, b = one.get_window_extent().padded(-0.5), other.get_window_extent().padded(-0.5)
                assert not a.overlaps(b), f"{arguments}: {one} on {other}"


def test_the_explorer_in_the_readme_works():
    text = (Path(rlviz.pictures.__file__).parent / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = code.replace(
        "CISPO, WIDTHS)", "CISPO, WIDTHS, among=(CISPO, GRPO))"
    )  # whose programs are traced here, so two
    names: dict[str, Any] = {}
    exec(code, names)
    explorer = names["explore_frozen"](old_prob=0.5)
    assert explorer.conclusion == "CISPO pushes a good token by at most 5.00."  # the cap on its weight
    assert explorer.call == "explore_frozen(old_prob=0.5)"
