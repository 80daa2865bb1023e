"""What every picture promises: its programs are its curve, its controls move it and give it back, its words are whole."""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import rlviz
from rlviz.algorithms import FORKING_TOKENS, GRPO
from rlviz.page.paper import shown
from rlviz.page.picture import Beside, Choice, Line, Slider
from rlviz.page.style import COLOURS
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.idea import Explorer, Idea, keys_of
from rlviz.pictures.shipped import shipped, traced
from tests.page.programs import needs_node, run

IDEAS = {name: find_explorer(name).idea for name in EXPLORERS}
# whole runs by torch, whose length is the product of all sliders: at random only the first stops of each, and no algorithm that
# chooses among tokens, which may be equal but for rounding
FIRST_STOPS = {"tables": 2}
every_picture = pytest.mark.parametrize("name", IDEAS)
of_algorithms = pytest.mark.parametrize("name", [name for name, idea in IDEAS.items() if idea.algorithms is not None])


def my_bounds(old_logp):
    room = 0.2 / old_logp.exp() ** 0.5
    return (1 - room).clamp(min=0.0), 1 + room


MINE = replace(GRPO, name="Mine", bounds=my_bounds)


def settings(idea, count: int, seed: int = 0) -> list[dict]:
    """Return arguments of an explorer: its defaults, each slider's both ends, and some at random."""
    ends = [
        {name: end} for name, each in idea.controls.items() if isinstance(each, Slider) for end in ends_of(idea, name)
    ]
    rng = random.Random(seed)
    if idea.name in FIRST_STOPS:
        return [{}, *(at_random(idea, rng) for _ in range(count // 3))]
    return [{}, *ends, *(at_random(idea, rng) for _ in range(count))]


def ends_of(idea, name: str) -> list:
    control = idea.controls[name]
    if idea.algorithms is not None and name in idea.algorithms.parameters:
        own = idea.algorithms.own(idea.algorithms.first)
        return list(own[name][1:3]) if name in own else []
    numbers = control.stops or (control.low, control.high)
    if not all(isinstance(number, int | float) for number in numbers):
        return []
    low, high = min(numbers), max(numbers)
    return [[low] * control.many, [high] * control.many] if control.many else [low, high]


def at_random(idea, rng: random.Random) -> dict:
    """Return arguments at random, those that a page's controls can have."""
    found: dict = {}
    for name, control in idea.controls.items():
        if idea.algorithms is not None and name in idea.algorithms.parameters:
            own = idea.algorithms.own(found.get("algorithm", idea.algorithms.first))
            if name in own:
                _, low, high, step = own[name]
                found[name] = on_a_step(rng, low, high, step)
        elif isinstance(control, Choice):
            chooses = {
                one for one, value in control.options.items() if idea.name in FIRST_STOPS and chooses_tokens(value)
            }
            found[name] = control.options[rng.choice([one for one in control.options if one not in chooses])]
        elif isinstance(control, Slider) and control.stops:
            found[name] = rng.choice(control.stops[: FIRST_STOPS.get(idea.name)])
        elif isinstance(control, Slider) and all(isinstance(end, int | float) for end in (control.low, control.high)):
            one = [on_a_step(rng, control.low, control.high, control.step) for _ in range(control.many or 1)]
            found[name] = one if control.many else one[0]
    return found


def chooses_tokens(algorithm) -> bool:
    return hasattr(algorithm, "can") and algorithm.can.choose is not None


def on_a_step(rng: random.Random, low: float, high: float, step: float) -> float:
    value = low + step * rng.randint(0, round((high - low) / step))
    return value if isinstance(step, int) and isinstance(low, int) else float(f"{value:.10g}")


@functools.cache
def at_named(name: str) -> list[tuple[dict, Explorer]]:
    """Return a picture's named settings, each with its explorer: to be looked at, and not to be moved."""
    return [(setting, Explorer(IDEAS[name], setting)) for setting in IDEAS[name].named.values()]


def moved_to(idea, arguments: list[dict]):
    """Yield arguments, and an explorer at them; it is one for all, as to make one takes as long as to ask it."""
    explorer = Explorer(idea, {})
    for each in arguments:
        explorer.set(**{name: value for name, value in (defaults(idea) | each).items() if name in idea.controls})
        yield each, explorer


@needs_node
@every_picture
def test_a_page_computes_what_the_curve_computes(name):
    idea = IDEAS[name]
    programs, cases, wanted = {}, [], []
    explorer = Explorer(idea, {})
    given = explorer.given()
    for arguments in settings(idea, 12):
        explorer.values = explorer._values_of(defaults(idea) | arguments)  # `set` would compute the curve once more
        key = explorer.key()
        program = given["variants"][key]["program"]
        assert program is not None, given["variants"][key].get("why")
        programs[program] = given["programs"][program]
        inputs = {row[1] for row in programs[program]["rows"] if row[0] == "input"}
        made, others = idea.build(key, explorer._members)
        data = {**idea.picture.data, **idea.read({}), **idea.data(*made, **others)}
        numbers = {n: idea.number(n, explorer.values, data) for n in inputs}
        if explorer.values.get("algorithm") == FORKING_TOKENS.name and name == "tables":
            continue  # tables of one place tie in entropy, and the last digit of a logarithm decides which tokens are kept
        cases.append((program, numbers))
        wanted.append(explorer._outputs(key, explorer.values))
    for (key, inputs), got, expected in zip(cases, run(programs, cases), wanted, strict=True):
        for output, value in expected.items():
            theirs, ours = np.broadcast_arrays(got[output], value.double().numpy())
            np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-9, err_msg=f"{name} {key} {output} {inputs}")


@pytest.mark.quick(14)
@every_picture
def test_one_shipped_program_is_what_is_traced(name):
    programs, keys = shipped(name)
    anew = f"python -m rlviz.pictures.shipped {name} traces its programs, which are committed"
    picked = [list(IDEAS[name].controls[pick].options) for pick in IDEAS[name].picks()]
    assert keys.keys() == set(keys_of(picked)), anew
    key = random.Random(name).choice(sorted(keys))
    assert programs[keys[key]] == IDEAS[name].traced(key, IDEAS[name].members), (key, anew)


@pytest.mark.quick(0)
@every_picture
def test_shipped_programs_are_those_that_are_traced(name):
    programs, keys = shipped(name)
    assert {"programs": programs, "keys": keys} == traced(IDEAS[name])


def test_a_new_algorithm_s_program_is_traced_alone(monkeypatch):
    (programs, keys), asked = shipped("overlong"), []
    before = {key: program for key, program in keys.items() if key != "DAPO"}
    monkeypatch.setattr("rlviz.pictures.shipped.shipped", lambda name: (programs, before))
    own = Idea.traced
    monkeypatch.setattr(Idea, "traced", lambda idea, key, members: asked.append(key) or own(idea, key, members))
    assert traced(IDEAS["overlong"], kept=True) == {"programs": programs, "keys": keys}
    assert asked == ["DAPO"]


@every_picture
def test_words_are_whole_at_every_setting(name):
    idea = IDEAS[name]
    for arguments, explorer in (*moved_to(idea, settings(idea, 6, seed=1)), *at_named(name)):
        for text in (explorer.conclusion, explorer.caption, explorer.alt):
            assert 20 < len(text) < 1200 and text.rstrip().endswith((".", "!", "?")), (arguments, text)
            assert not re.search(r"[{}]|\bnan\b|no number|\bNone\b|  ", text), (arguments, text)
        assert len(explorer.conclusion) <= 200, (arguments, explorer.conclusion)
        if idea.algorithms is not None:
            assert explorer.values["algorithm"] in explorer.caption


@of_algorithms
def test_every_algorithm_that_is_offered_is_shown(name):
    explorer = Explorer(IDEAS[name], {})
    for algorithm in IDEAS[name].members.values():
        explorer.set(algorithm=algorithm)
        assert explorer.algorithm == algorithm and algorithm.name in explorer.caption
        assert 20 < len(explorer.conclusion) <= 200, explorer.conclusion


@pytest.mark.quick(3)
@of_algorithms
def test_a_rule_of_one_s_own_comes_first_and_is_called_mine(name):
    explorer = find_explorer(name)(MINE)
    assert next(iter(explorer.given()["picture"]["controls"]["algorithm"]["options"])) == "Mine"
    assert explorer.given()["variants"][explorer.key()]["program"] is not None  # a page computes it
    assert "Mine" in explorer.caption and explorer.call == f"explore_{name}(mine)"


@every_picture
def test_a_handle_s_control_moves_its_mark(name):
    """Where the mark stands depends on the control that it drags, at some named setting or for some algorithm at least."""
    idea = IDEAS[name]
    dragged = [(mark, mark.drag) for mark in idea.picture.marks() if mark.drag]
    assert dragged or any(getattr(mark, "chosen", ()) for mark in idea.picture.marks()), "nothing can be touched"
    settings = [{}, *idea.named.values(), *({"algorithm": member} for member in idea.members.values())]
    for mark, control in dragged:
        assert any(len(places(idea, mark, control, setting)) > 1 for setting in settings), control


def places(idea, mark, control, setting) -> set:
    """Return where a mark stands at both ends of its control; nowhere for an algorithm without that parameter."""
    explorer, found = Explorer(idea, setting), set()
    ends = ends_of(idea, control) or [explorer.values[control], 2]
    if idea.algorithms is not None and control in idea.algorithms.parameters:
        own = idea.algorithms.own(explorer.algorithm)
        ends = own[control][1:3] if control in own else []
    for end in ends:
        explorer.set(**{control: end})
        channels = [getattr(mark, channel, None) for channel in ("at", "x", "y")]
        known = [channel for channel in channels if isinstance(channel, str) and channel in explorer.names()]
        found.add(str([np.round(explorer.names().array(channel), 9).tolist() for channel in known]))
    return found


@every_picture
def test_every_control_moves_the_picture_and_gives_it_back(name):
    idea = IDEAS[name]
    explorer = Explorer(idea, {})
    before = told(explorer)
    for control, value in moves(idea):
        own = explorer.call
        explorer.set(**{control: value})
        moved = told(explorer)
        assert moved != before, f"{control} moves nothing in {own}"
        again = eval(explorer.call, {f"explore_{name}": find_explorer(name), **names()})
        assert told(again) == moved
        explorer.set(**defaults(idea))
        assert told(explorer) == before


def names() -> dict:
    import rlviz.algorithms

    return vars(rlviz.algorithms)


def defaults(idea) -> dict:
    given = idea.signature.parameters.items()
    return {name: parameter.default for name, parameter in given if name not in idea.fixed}


def moves(idea):
    """Yield a control and another value of it, for those that are in sight at the defaults."""
    own = idea.algorithms.own(idea.algorithms.first) if idea.algorithms else {}
    for name, control in idea.controls.items():
        if control.__class__ is Slider and control.when and not Explorer(idea, {}).names().holds(control.when):
            continue
        if isinstance(control, Beside):
            yield name, [list(idea.members.values())[-1]]
        elif isinstance(control, Choice):
            yield name, next(value for option, value in control.options.items() if option != control.value)
        elif idea.algorithms is not None and name in idea.algorithms.parameters:
            if name in own:
                now, low, high, _ = own[name]
                yield name, low if high == now else high
        else:
            ends = ends_of(idea, name)
            if ends:
                yield name, next(end for end in reversed(ends) if end != control.value)


def told(explorer: Explorer) -> dict:
    """Return everything that is on show, as what can be compared."""
    shown = explorer.names()
    numbers = {n: tuple(np.ravel(v).tolist()) for n, v in shown.known.items() if not isinstance(v, str | list | tuple)}
    numbers = {n: tuple("nan" if isinstance(x, float) and math.isnan(x) else x for x in v) for n, v in numbers.items()}
    return {"numbers": numbers, "caption": explorer.caption, "values": explorer.values}


@every_picture
def test_a_page_knows_what_its_call_takes_for_a_choice(name):
    """Its options are words; what stands in the call is what Python takes for them."""
    idea = IDEAS[name]
    for control, told in Explorer(idea, {}).given()["picture"]["controls"].items():
        if told["is"] == "Choice" and control != "algorithm":
            assert told["options"] == dict(idea.controls[control].options), control


@every_picture
def test_the_last_row_can_read_every_named_setting_on_paper(name):
    """Words are whole, large, inside the paper and not on each other."""
    for arguments, explorer in at_named(name):
        figure = explorer.figure()
        FigureCanvasAgg(figure).draw()
        ticks = [label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        for text in figure.findobj(Text):
            box = text.get_window_extent()
            if not text.get_text().strip() or not text.get_visible() or not figure.bbox.overlaps(box):
                continue
            assert "{" not in text.get_text() and text.get_fontsize() >= 11, text
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
            assert inside or text in ticks, f"{arguments}: cut off: {text}"
        for ax in figure.axes:
            drawn = [text for text in (*ax.texts, ax.title) if text.get_visible() and text.get_text().strip()]
            for one, other in itertools.combinations(drawn, 2):
                a, b = one.get_window_extent().padded(-0.5), other.get_window_extent().padded(-0.5)
                assert not a.overlaps(b), f"{arguments}: {one} on {other}"


@every_picture
def test_lines_differ_without_their_colour(name):
    """Those of one panel that have names; two lines of one name are one thing."""
    for _, explorer in at_named(name):
        names = explorer.names()
        for panel in IDEAS[name].picture.panels:
            lines = [mark for mark in panel.marks if isinstance(mark, Line) and mark.label and shown(mark, names)]
            looks = {names.fill(mark.label): (mark.dash, mark.marker, mark.width) for mark in lines}
            assert len(set(looks.values())) == len(looks), (panel.title, looks)


def contrast(colour: str) -> float:
    """Return the WCAG contrast of a colour with white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


@pytest.mark.parametrize("colour", COLOURS)
def test_the_colours_can_be_told_from_paper(colour):
    assert contrast(COLOURS[colour]) >= 3


def test_the_explorer_in_the_readme_works():
    text = (Path(rlviz.pictures.__file__).parent / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict = {}
    exec(code, names)
    explorer = names["explore_frozen"](old_prob=0.5)
    assert explorer.conclusion == "CISPO pushes a good token by at most 5.00."  # the cap on its weight
    assert explorer.call == "explore_frozen(old_prob=0.5)"


def test_a_rule_of_one_s_own_is_traced_or_computed_by_the_kernel():
    def wider(old_logp):
        return 0.5 + 0 * old_logp, 1.5 + 0 * old_logp

    def by_size(old_logp):
        return (0.5, 1.5) if float(old_logp.exp().mean()) < 0.5 else (0.8, 1.2)

    for rule, traced_ in ((wider, True), (by_size, False)):
        explorer = rlviz.explore_clip(replace(GRPO, name="Mine | <b>", bounds=rule), old_prob=0.1)
        variant = explorer.given()["variants"]["Mine ¦ <b>"]
        assert (variant["program"] is not None) == traced_
        assert "until its ratio is 1.50" in explorer.conclusion
        answer = explorer._computed("Mine ¦ <b>", {**explorer.values, "old_prob": 0.9})
        upper = float(answer["outputs"]["upper"]["data"][0])
        assert upper == (1.5 if traced_ else 1.2)
    assert (
        "a number is read out of a tensor" in variant["why"] and "float(old_logp.exp().mean()) < 0.5" in variant["why"]
    )
    assert "<b>" not in explorer.html().replace("&lt;b&gt;", "")  # packed, or escaped


def test_a_rule_that_raises_is_a_sentence_and_the_page_is_told():
    def touchy(old_logp):
        if float(old_logp.exp().mean()) < 0.3:
            raise RuntimeError("not here")
        return 0.8, 1.2

    explorer = rlviz.explore_clip(replace(GRPO, name="Mine", bounds=touchy))
    answer = explorer._computed("Mine", {**explorer.values, "old_prob": 0.1})
    assert answer == {"why": "Not possible: RuntimeError: not here"}


def test_what_a_notebook_shows_and_saves(monkeypatch):
    shown: list = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    explorer = rlviz.explore_clip()
    explorer._ipython_display_()
    assert {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"} <= set(shown[0])
    monkeypatch.setenv("RLVIZ_FROZEN", "1")
    explorer._ipython_display_()
    live, image = shown[1:]
    assert "text/html" in live and "image/png" not in live and set(image) == {"image/png", "text/plain"}
    assert image["text/plain"] == explorer.alt and explorer.caption in explorer.alt
