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
from rlviz.pictures.shipped import load_programs, trace_programs
from rlviz.pictures.spec import ExplorerSpec
from rlviz.site.pages import live
from tests.page.programs import needs_node, run

SPECS = {name: find_explorer(name).spec for name in EXPLORERS}
# whole runs by torch, as long as the product of their sliders: only at the first stops of each
WHOLE_RUNS = {"entropy": 2, "simplex": 2}
LOOPS = {"coin", "dpo", "length", "loop", "walk"}  # of many steps: a third of the algorithms go through these
# outputs that are drawn of a run of one's own, and of an estimator of one's own
OF_ONE_S_OWN = {"bounds": r"tokens_(cut|free|ratio)", "kl": r"(value|value_noise|gradient_error|gradient_noise)4(_at)?"}
SILENT = {("walk", "eps_low")}  # of a good token, which the picture begins with
every_picture = pytest.mark.parametrize("name", SPECS)


def slider_ends(spec: ExplorerSpec, name: str) -> list[Any]:
    """Return the first and the last value of a slider; none of another control, or of a parameter that is not there."""
    control = spec.controls[name]
    if spec.algorithms is not None and name in spec.algorithms.parameters:
        return list(spec.algorithms.slider_ranges(spec.algorithms.first).get(name, ())[1:3])
    if not isinstance(control, Slider):
        return []
    numbers = (control.stops or (control.low, control.high))[: WHOLE_RUNS.get(spec.name)]
    return [[end] * control.many if control.many else end for end in (min(numbers), max(numbers))]


def other_options(spec: ExplorerSpec) -> Iterator[tuple[str, Any]]:
    """Yield each choice with each other option, and algorithms beside the chosen one."""
    for name, control in spec.controls.items():
        if isinstance(control, Beside):
            yield name, list(spec.members.values())[-control.most :]
        elif isinstance(control, Choice) and name != "algorithm":
            yield from ((name, value) for option, value in control.options.items() if option != control.value)


def at_random(spec: ExplorerSpec, rng: random.Random, member: Any = None) -> dict[str, Any]:
    """Return arguments at random, those that a page's controls can have; of this algorithm, or of any."""

    def on_a_step(low: float, high: float, step: float) -> float:
        value = low + step * rng.randint(0, round((high - low) / step))
        return value if isinstance(step, int) and isinstance(low, int) else float(f"{value:.10g}")

    arguments: dict[str, Any] = {}
    for name, control in spec.controls.items():
        if spec.algorithms is not None and name in spec.algorithms.parameters:
            ranges = spec.algorithms.slider_ranges(arguments["algorithm"])
            if name in ranges:
                arguments[name] = on_a_step(*ranges[name][1:])
        elif name == "algorithm":
            arguments[name] = rng.choice([*members_of(spec)]) if member is None else member
        elif isinstance(control, Choice):
            arguments[name] = rng.choice([*control.options.values()])
        elif isinstance(control, Slider) and control.stops:
            arguments[name] = rng.choice(control.stops[: WHOLE_RUNS.get(spec.name)])
        elif isinstance(control, Slider):
            numbers = [on_a_step(control.low, control.high, control.step) for _ in range(control.many or 1)]
            arguments[name] = numbers if control.many else numbers[0]
    return arguments


def members_of(spec: ExplorerSpec) -> list[Any]:
    """Return the algorithms offered; in whole runs none that chooses among tokens, which are equal there but for rounding."""
    return [member for member in spec.members.values() if not (spec.name in WHOLE_RUNS and member.can.choose)]


@functools.cache
def tour(name: str) -> list[tuple[dict[str, Any], str, dict[str, Any], Names, str]]:
    """Return (arguments, key, values, names, conclusion) of a covering choice: the defaults, named settings, each slider at
    both ends, each option of each choice, and each algorithm with all other controls at random."""
    spec, rng = SPECS[name], random.Random(f"a tour of {name}")
    settings: list[dict[str, Any]] = [{}, *map(dict, spec.named.values())]
    settings += [{control: end} for control in spec.controls for end in slider_ends(spec, control)]
    settings += [{control: value} for control, value in other_options(spec)]
    members = members_of(spec) or [None] * 6
    settings += [at_random(spec, rng, member) for member in members[:: 3 if name in LOOPS else 1]]
    explorer, stops = Explorer(spec, {}), []  # one goes to all: to make one costs more than to move it
    usual = {control: spec.signature.parameters[control].default for control in spec.controls}
    for arguments in settings[:: 6 if name in WHOLE_RUNS else 1]:
        explorer.set(**usual | arguments)
        stops.append((arguments, explorer.key(), dict(explorer.values), explorer.names(), explorer.conclusion))
    return stops


def program_inputs(
    spec: ExplorerSpec, program: Mapping[str, Any], key: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a page gives a program: numbers, arrays, and recipes of chance with their sizes."""
    arguments, choices = spec.curve_arguments(key, spec.members)
    data = {**spec.picture.data, **spec.read_fixed({}), **spec.data(*arguments, **choices)}
    inputs = {}
    for name in [row[1] for row in program["rows"] if row[0] == "input"]:
        value = data.get(name)
        if isinstance(value, Draws):
            shape = tuple(int(values[size]) if isinstance(size, str) else size for size in value.shape)
            inputs[name] = replace(value, shape=shape, of=value.of or shape[-1])
        else:
            inputs[name] = spec.to_number(name, values, data)
    return inputs


@needs_node
@every_picture
def test_a_page_computes_what_the_curve_computes(name):
    """By the programs that are shipped, one for each choice that picks one: what is out of date has other numbers, or outputs."""
    (programs, ids), stops, spec = load_programs(name), tour(name), SPECS[name]
    assert [*ids] == spec.keys(spec.members) and set(ids.values()) == programs.keys()
    cases = [(ids[key], program_inputs(spec, programs[ids[key]], key, values)) for _, key, values, *_ in stops]
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
    programs, ids = load_programs(name)
    key = random.Random(name).choice(sorted(ids))
    assert programs[ids[key]] == SPECS[name].trace(key, SPECS[name].members), key


def test_a_new_algorithm_s_program_is_traced_alone(monkeypatch):
    (programs, ids), traced = load_programs("overlong"), []
    before = {key: program for key, program in ids.items() if key != "DAPO"}
    monkeypatch.setattr("rlviz.pictures.shipped.load_programs", lambda name: (programs, before))
    trace = ExplorerSpec.trace
    monkeypatch.setattr(
        ExplorerSpec, "trace", lambda spec, key, members: traced.append(key) or trace(spec, key, members)
    )
    assert trace_programs(SPECS["overlong"], only_missing=True) == {"programs": programs, "keys": ids}
    assert traced == ["DAPO"]


def names_in(part: Any) -> set[str]:
    """Return the names that a part of a picture reads: its channels and conditions, and the names in braces in its words."""
    values = [getattr(part, field.name) for field in fields(part)]
    words = [
        word for value in values for word in (value if isinstance(value, tuple) else [value]) if isinstance(word, str)
    ]
    names = [name for word in words for name in (word, *(match[0] for match in FIELD.findall(word)))]
    return {re.sub(r"^!?(b\d_)?", "", name) for name in names}


def is_seen(panel: Panel, mark: Mark, names: Names) -> bool:
    """Return whether a mark has anything inside its panel's axes now."""
    if not names.holds(panel.when) or not is_visible(mark, names):
        return False
    limits = {along: sorted(map(names.one, (axis.low, axis.high))) for along, axis in (("x", panel.x), ("y", panel.y))}
    if isinstance(mark, Tokens) or getattr(mark, "corner", ""):
        return True
    if isinstance(mark, Rule):
        return any(limits[mark.axis][0] <= at <= limits[mark.axis][1] for at in names.array(mark.at))
    if isinstance(mark, Span):
        return max(names.one(mark.low), limits[mark.axis][0]) < min(names.one(mark.high), limits[mark.axis][1])
    heights = [getattr(mark, end) for end in ("y", "base", "low", "high") if hasattr(mark, end)] or [0.0]
    channels = (mark.x, mark.where or 1.0, getattr(mark, "on", 1.0), *heights)
    x, where, on, *ends = np.broadcast_arrays(*map(names.array, channels))
    if isinstance(mark, Line) and len(x) == 2:  # its ends may lie outside, and what is between them inside
        x, where, on, *ends = (np.linspace(*pair, 99) for pair in (x, where, on, *ends))
    feet, tops = np.minimum.reduce(ends), np.maximum.reduce(ends)
    inside = (x >= limits["x"][0]) & (x <= limits["x"][1]) & (where != 0) & (on != 0)
    if not hasattr(mark, "on"):
        inside &= (tops >= limits["y"][0]) & (feet <= limits["y"][1])
        inside &= (tops > feet) if len(ends) > 1 else True
    return bool(inside.any())


@every_picture
def test_what_is_computed_is_seen_or_said(name):
    """Each output is read by a mark that is in sight at some setting, an axis, a panel, a control or the conclusion."""
    spec, picture = SPECS[name], SPECS[name].picture
    outputs = {output for program in load_programs(name)[0].values() for output in program["outputs"]}
    always = [*picture.panels, *(axis for panel in picture.panels for axis in (panel.x, panel.y)), *picture.conclusion]
    unread = outputs - set().union(*map(names_in, [*always, *spec.controls.values()]))
    marks = [(panel, mark) for panel in picture.panels for mark in panel.marks]
    # a run lies over a picture only if it is passed: its marks have a test beside the picture's
    runs = spec.read_fixed({})
    unread -= set().union(set(), *(names_in(mark) for _, mark in marks if mark.when in runs))
    for *_, names, _ in tour(name):
        in_sight = [(panel, mark) for panel, mark in marks if is_seen(panel, mark, names)]
        marks = [pair for pair in marks if pair not in in_sight]
        unread -= set().union(set(), *(names_in(mark) for _, mark in in_sight))
    unread = {output for output in unread if not re.fullmatch(OF_ONE_S_OWN.get(name, ""), output)}
    assert not unread, f"{sorted(unread)} are computed, and nothing that can be seen reads them"


@every_picture
def test_words_are_whole_and_short(name):
    picture = SPECS[name].picture
    words = {"title": (75, "?"), "look": (110, "."), "notice": (260, "."), "alt": (300, ".")}
    assert all(
        20 <= len(getattr(picture, n)) <= most and getattr(picture, n)[-1] == end for n, (most, end) in words.items()
    )
    for arguments, _, _, _, conclusion in tour(name):
        assert 20 < len(conclusion) <= 200 and conclusion.endswith("."), (arguments, conclusion)
        assert not re.search(r"[{}]|\bnan\b|no number|\bNone\b|  ", conclusion), (arguments, conclusion)


@every_picture
def test_every_control_moves_the_picture(name):
    spec, stops = SPECS[name], tour(name)
    outputs = {output for program in load_programs(name)[0].values() for output in program["outputs"]}

    def is_moved(names: Names, conclusion: str) -> bool:
        known = {n: value for n, value in names.known.items() if re.sub(r"^b\d_", "", n) in outputs}
        pairs = [(value, first.known.get(n)) for n, value in known.items()]
        return conclusion != answer or not all(b is not None and np.array_equal(a, b, equal_nan=True) for a, b in pairs)

    *_, first, answer = stops[0]
    for control in spec.controls if name not in WHOLE_RUNS else ():
        moved = [is_moved(*stop[-2:]) for stop in stops[1:] if [*stop[0]] == [control]]
        is_there = first.holds(getattr(spec.controls[control], "when", ""))
        assert any(moved) or not moved or not is_there or (name, control) in SILENT, control
    assert any(mark.drag or getattr(mark, "chosen", ()) for mark in spec.picture.marks())  # something can be touched
    assert len(live(name, "../").encode()) <= 54_000  # of 55 kB of its page


@every_picture
def test_the_last_row_can_read_a_picture_on_paper(name):
    """Words are whole, 2 % of a slide's height, inside the paper and not on each other, at the first and last named setting."""
    settings = list(SPECS[name].named.values()) or [{}]
    for arguments in settings[:1] + settings[1:][-1:] * (name not in WHOLE_RUNS):
        explorer = Explorer(SPECS[name], arguments)
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
            for first, second in itertools.combinations(drawn, 2):
                a, b = first.get_window_extent().padded(-0.5), second.get_window_extent().padded(-0.5)
                assert not a.overlaps(b), f"{arguments}: {first} on {second}"


def test_the_explorer_in_the_readme_works():
    text = (Path(rlviz.pictures.__file__).parent / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = code.replace("CISPO, WIDTHS)", "CISPO, WIDTHS, among=(CISPO, GRPO))")  # two, for they are traced here
    names: dict[str, Any] = {}
    exec(code, names)
    explorer = names["explore_frozen"](old_prob=0.5)
    assert explorer.conclusion == "CISPO pushes a good token by at most 5.00."  # the cap on its weight
