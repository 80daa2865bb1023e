"""What every picture promises: its programs are its curve, its controls move it and give it back, its words are whole.

What is asked of a picture at many settings is asked on one tour through them (`tour`), which computes each of them once.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from matplotlib.transforms import Bbox

import rlviz
import rlviz.algorithms
from rlviz.algorithms import GRPO
from rlviz.page.names import Names
from rlviz.page.paper import shown, ticks_of
from rlviz.page.picture import Beside, Choice, Draws, Line, Slider
from rlviz.page.style import COLOURS
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.explore import Explorer
from rlviz.pictures.idea import Idea, keys_of
from rlviz.pictures.shipped import shipped, traced
from tests.page.programs import needs_node, run

IDEAS = {name: find_explorer(name).idea for name in EXPLORERS}
# whole runs by torch, whose length is the product of all sliders: only at the first stops of each, and under no algorithm that
# chooses among tokens, which are equal here but for rounding
WHOLE_RUNS = {"entropy": 2}
SILENT = {("walk", "eps_low")}  # of a good token, which the picture begins with
every_picture = pytest.mark.parametrize("name", IDEAS)


def my_bounds(old_logp):
    room = 0.2 / old_logp.exp() ** 0.5
    return (1 - room).clamp(min=0.0), 1 + room


MINE = replace(GRPO, name="Mine", bounds=my_bounds)


@dataclass(frozen=True)
class Stop:
    """A picture at one setting: its name, the arguments that were changed, its program's key, and everything that is on show."""

    idea: str
    arguments: Mapping[str, Any]
    key: str
    values: Mapping[str, Any]
    names: Names
    conclusion: str
    caption: str
    alt: str
    call: str

    def told(self) -> dict[str, Any]:
        """Return what can be compared: what the program makes, for those beside it too, and the words."""
        made = {output for program in shipped(self.idea)[0].values() for output in program["outputs"]}
        known = {name: value for name, value in self.names.known.items() if re.sub(r"^b\d_", "", name) in made}
        numbers = {name: np.ravel(np.asarray(value, dtype=float)).astype(str).tolist() for name, value in known.items()}
        return {"numbers": numbers, "caption": self.caption}


def stop(explorer: Explorer, arguments: Mapping[str, Any]) -> Stop:
    words = explorer.conclusion, explorer.caption, explorer.alt
    return Stop(
        explorer.idea.name, arguments, explorer.key(), dict(explorer.values), explorer.names(), *words, explorer.call
    )


@functools.cache
def tour(name: str) -> list[Stop]:
    """Return a picture at its defaults, at both ends of each slider, and at random under each algorithm.

    What a control of the first algorithm does is seen at its ends; every other choice comes by turns. One explorer goes to all.
    """
    idea, rng = IDEAS[name], random.Random(f"a tour of {name}")
    explorer = Explorer(idea, {})
    ends = [{control: end} for control in idea.controls for end in ends_of(idea, control)]
    members = [member for member in idea.members.values() if not (name in WHOLE_RUNS and member.can.choose)]
    alone = {control: [] for control, each in idea.controls.items() if isinstance(each, Beside)}
    by_turns = [at_random(idea, rng, member) | alone for member in members or [None] * 6]
    found = [stop(explorer, {})]
    for arguments in by_turns if name in WHOLE_RUNS else [*ends, *by_turns]:
        explorer.set(
            **{control: value for control, value in (defaults(idea) | arguments).items() if control in idea.controls}
        )
        found.append(stop(explorer, arguments))
    explorer.set(**{control: value for control, value in defaults(idea).items() if control in idea.controls})
    return [*found, stop(explorer, {})]


def ends_of(idea: Idea, name: str) -> list:
    """Return the first and the last value of a slider; none of another control, or of a parameter that is not there."""
    control = idea.controls[name]
    if idea.algorithms is not None and name in idea.algorithms.parameters:
        own = idea.algorithms.own(idea.algorithms.first)
        return list(own[name][1:3]) if name in own else []
    numbers = getattr(control, "stops", ()) or (getattr(control, "low", ""), getattr(control, "high", ""))
    if not all(isinstance(number, int | float) for number in numbers):
        return []
    low, high = min(numbers), max(numbers)
    return [[low] * control.many, [high] * control.many] if control.many else [low, high]


def at_random(idea: Idea, rng: random.Random, member: Any = None) -> dict:
    """Return arguments at random, those that a page's controls can have; of this algorithm, or of any."""
    found: dict = {}
    for name, control in idea.controls.items():
        if idea.algorithms is not None and name in idea.algorithms.parameters:
            own = idea.algorithms.own(found.get("algorithm", idea.algorithms.first))
            if name in own:
                _, low, high, step = own[name]
                found[name] = on_a_step(rng, low, high, step)
        elif name == "algorithm":
            of = [each for each in idea.members.values() if not (idea.name in WHOLE_RUNS and each.can.choose)]
            found[name] = rng.choice(of) if member is None else member
        elif isinstance(control, Choice):
            found[name] = control.options[rng.choice(list(control.options))]
        elif isinstance(control, Slider) and control.stops:
            found[name] = rng.choice(control.stops[: WHOLE_RUNS.get(idea.name)])
        elif isinstance(control, Slider) and all(isinstance(end, int | float) for end in (control.low, control.high)):
            one = [on_a_step(rng, control.low, control.high, control.step) for _ in range(control.many or 1)]
            found[name] = one if control.many else one[0]
    return found


def on_a_step(rng: random.Random, low: float, high: float, step: float) -> float:
    value = low + step * rng.randint(0, round((high - low) / step))
    return value if isinstance(step, int) and isinstance(low, int) else float(f"{value:.10g}")


def defaults(idea: Idea) -> dict:
    given = idea.signature.parameters.items()
    return {name: parameter.default for name, parameter in given if name not in idea.fixed}


@functools.cache
def at_named(name: str) -> list[tuple[dict, Explorer]]:
    """Return a picture's named settings, each with its explorer: to be looked at, and not to be moved; one of whole runs."""
    settings = list(IDEAS[name].named.values())
    return [(setting, Explorer(IDEAS[name], setting)) for setting in settings[: 1 if name in WHOLE_RUNS else None]]


@functools.cache
def given_of(name: str) -> dict[str, Any]:
    """Return what a page is told of a picture."""
    return Explorer(IDEAS[name], {}).given()


def inputs_of(idea: Idea, program: Mapping[str, Any], at: Stop) -> dict[str, Any]:
    """Return what a page gives a program: numbers, arrays, and recipes of chance with their sizes."""
    made, others = idea.build(at.key, idea.members)
    data = {**idea.picture.data, **idea.read({}), **idea.data(*made, **others)}

    def told(name: str) -> Any:
        value = data.get(name)
        if not isinstance(value, Draws):
            return idea.number(name, at.values, data)
        shape = tuple(int(at.values[size]) if isinstance(size, str) else size for size in value.shape)
        return replace(value, shape=shape, of=value.of or shape[-1])

    return {row[1]: told(row[1]) for row in program["rows"] if row[0] == "input"}


@needs_node
@every_picture
def test_a_page_computes_what_the_curve_computes(name):
    """By the programs that are shipped, one for each choice that picks one: what is out of date has other numbers, or outputs."""
    (programs, keys), stops = shipped(name), tour(name)[:-1]
    assert {each.key for each in stops if name not in WHOLE_RUNS} <= keys.keys()
    cases = [(keys[each.key], inputs_of(IDEAS[name], programs[keys[each.key]], each)) for each in stops]
    for at, (program, _), got in zip(stops, cases, run(programs, cases), strict=True):
        assert got.keys() == programs[program]["outputs"].keys()
        for output, theirs in got.items():
            ours = np.asarray(at.names.known[output], dtype=float)
            off = ~np.isclose(*np.broadcast_arrays(theirs, ours), rtol=1e-9, atol=1e-9, equal_nan=True)
            where = f"{at.arguments}: {output}; python -m rlviz.pictures.shipped {name} traces anew"
            assert off.sum() <= off.size // 100, where  # a ratio that lies on a limit is cut or not by its last digit


@every_picture
def test_every_choice_has_a_shipped_program(name):
    picked = [list(IDEAS[name].controls[pick].options) for pick in IDEAS[name].picks()]
    programs, keys = shipped(name)
    assert keys.keys() == set(keys_of(picked)), f"python -m rlviz.pictures.shipped {name} --missing"
    assert set(keys.values()) == programs.keys()


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


@every_picture
def test_words_are_whole_at_every_setting(name):
    for at in (*tour(name), *(stop(explorer, setting) for setting, explorer in at_named(name))):
        for text in (at.conclusion, at.caption, at.alt):
            assert 20 < len(text) < 1200 and text.rstrip().endswith((".", "!", "?")), (at.arguments, text)
            assert not re.search(r"[{}]|\bnan\b|no number|\bNone\b|  ", text), (at.arguments, text)
        assert len(at.conclusion) <= 200, (at.arguments, at.conclusion)
        assert at.values.get("algorithm", "") in at.caption


# pictures whose programs differ in kind, and in what of a rule is in them: bounds alone, free sizes, a loop, choices that pick
@pytest.mark.parametrize("name", ["clip", "ratio", "loop", "advantages"])
def test_a_rule_of_one_s_own_comes_first_and_is_called_mine(name):
    explorer = find_explorer(name)(MINE)
    assert next(iter(explorer.given()["picture"]["controls"]["algorithm"]["options"])) == "Mine"
    assert explorer.given()["variants"][explorer.key()]["program"] is not None  # a page computes it
    assert "Mine" in explorer.caption and explorer.call == f"explore_{name}(mine)"


@every_picture
def test_every_control_moves_the_picture_and_gives_it_back(name):
    """An end of each slider, and another option of each choice; then all of them at once, by the call that says where it is."""
    idea, (first, *stops, last) = IDEAS[name], tour(name)
    assert last.told() == first.told()
    for control in idea.controls:
        ends = [each.told() for each in stops if set(each.arguments) == {control}]
        is_there = first.names.holds(getattr(idea.controls[control], "when", "")) and (name, control) not in SILENT
        assert not ends or not is_there or any(each != first.told() for each in ends), f"{control} moves nothing"
    explorer = Explorer(idea, {})
    for control, other in others(idea) if name not in WHOLE_RUNS else ():
        before = stop(explorer, {}).told()
        explorer.set(**{control: other})
        assert stop(explorer, {}).told() != before, f"{control} moves nothing"
    call = {f"explore_{name}": find_explorer(name), **vars(rlviz.algorithms)}
    for at in (stops[-1], stop(explorer, {})):
        again = eval(at.call, {**call, **vars(rlviz)})
        assert stop(again, {}).told() == at.told()


def others(idea: Idea):
    """Yield each choice that is there at first with another option, and algorithms beside the chosen one."""
    for name, control in idea.controls.items():
        if isinstance(control, Beside):
            yield name, [list(idea.members.values())[-1]]
        elif isinstance(control, Choice) and not control.when:
            yield name, next(value for option, value in control.options.items() if option != control.value)


@every_picture
def test_something_can_be_touched(name):
    assert any(mark.drag or getattr(mark, "chosen", ()) for mark in IDEAS[name].picture.marks())


@every_picture
def test_a_page_knows_what_its_call_takes_for_a_choice(name):
    """Its options are words; what stands in the call is what Python takes for them."""
    idea = IDEAS[name]
    for control, told in given_of(name)["picture"]["controls"].items():
        if told["is"] == "Choice" and control != "algorithm":
            assert told["options"] == dict(idea.controls[control].options), control


@every_picture
def test_the_last_row_can_read_a_picture_on_paper(name):
    """Words are whole, large, inside the paper and not on each other, at the first named setting and at the last."""
    settings = at_named(name)
    for arguments, explorer in settings[:1] + settings[1:][-1:]:
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
            ends = [text for text in drawn if text.get_transform() == ax.transAxes and text.get_weight() == "bold"]
            for text, line in itertools.product(
                ends if name not in ("kl", "map") else (), ax.lines
            ):  # whose names are too long
                path = line.get_transform().transform_path(line.get_path())
                box = Bbox.intersection(text.get_window_extent().padded(-1), ax.bbox)  # beyond it no line is drawn
                assert not (box and path.intersects_bbox(box, filled=False)), f"{arguments}: {text} on a line"


@pytest.mark.parametrize("most", [3, 7, 10.7, 12.5, 60, 400])
def test_what_is_counted_has_whole_ticks(most):
    ticks = ticks_of(0.3, most, whole=True)
    assert 2 <= len(ticks) <= 6 and all(tick == round(tick) for tick in ticks), ticks


@every_picture
def test_no_number_of_tokens_steps_or_rollouts_is_broken(name):
    for _, explorer in at_named(name)[:1]:
        figure = explorer.figure()
        counted = [ax for ax in figure.axes if re.fullmatch("token|action|(training )?step|rollout", ax.get_xlabel())]
        assert [tick for ax in counted for tick in ax.get_xticks() if tick % 1] == []


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
    code = code.replace(
        "CISPO, WIDTHS)", "CISPO, WIDTHS, among=(CISPO, GRPO))"
    )  # whose programs are traced here, so two
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
        assert "above ratio 1.50" in explorer.conclusion
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
