"""What every picture promises: its programs are its curve, its controls move it and give it back, its words are whole."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlviz
from rlviz.algorithms import GRPO
from rlviz.page.picture import Beside, Choice, Slider
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.idea import Explorer
from rlviz.pictures.shipped import shipped, traced
from tests.page.programs import needs_node, run

IDEAS = {name: find_explorer(name).idea for name in EXPLORERS if hasattr(find_explorer(name).idea, "traced")}
every_picture = pytest.mark.parametrize("name", IDEAS)


def settings(idea, count: int, seed: int = 0) -> list[dict]:
    """Return arguments of an explorer: its defaults, each slider's both ends, and some at random."""
    ends = [
        {name: end} for name, each in idea.controls.items() if isinstance(each, Slider) for end in ends_of(idea, name)
    ]
    rng = random.Random(seed)
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
            found[name] = control.options[rng.choice(list(control.options))]
        elif isinstance(control, Slider) and control.stops:
            found[name] = rng.choice(control.stops)
        elif isinstance(control, Slider) and all(isinstance(end, int | float) for end in (control.low, control.high)):
            one = [on_a_step(rng, control.low, control.high, control.step) for _ in range(control.many or 1)]
            found[name] = one if control.many else one[0]
    return found


def on_a_step(rng: random.Random, low: float, high: float, step: float) -> float:
    value = low + step * rng.randint(0, round((high - low) / step))
    return value if isinstance(step, int) and isinstance(low, int) else float(f"{value:.10g}")


@needs_node
@every_picture
def test_a_page_computes_what_the_curve_computes(name):
    idea = IDEAS[name]
    programs, cases, wanted = {}, [], []
    for arguments in settings(idea, 12):
        explorer = Explorer(idea, arguments)
        key, given = explorer.key(), explorer.given()
        program = given["variants"][key]["program"]
        assert program is not None, given["variants"][key].get("why")
        programs[program] = given["programs"][program]
        inputs = {row[1] for row in programs[program]["rows"] if row[0] == "input"}
        made, others = idea.build(key, explorer._members)
        data = {**idea.picture.data, **idea.read({}), **idea.data(*made, **others)}
        cases.append((program, {n: idea.number(n, explorer.values, data) for n in inputs}))
        wanted.append(explorer._outputs(key, explorer.values))
    for (key, inputs), got, expected in zip(cases, run(programs, cases), wanted, strict=True):
        for output, value in expected.items():
            theirs, ours = np.broadcast_arrays(got[output], value.double().numpy())
            np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-9, err_msg=f"{name} {key} {output} {inputs}")


@every_picture
def test_shipped_programs_are_those_that_are_traced(name):
    programs, keys = shipped(name)
    assert {"programs": programs, "keys": keys} == traced(IDEAS[name])


@every_picture
def test_words_are_whole_at_every_setting(name):
    idea = IDEAS[name]
    for arguments in [*settings(idea, 6, seed=1), *idea.named.values()]:
        explorer = Explorer(idea, arguments)
        for text in (explorer.conclusion, explorer.caption, explorer.alt):
            assert 20 < len(text) < 1200 and text.rstrip().endswith((".", "!", "?")), (arguments, text)
            assert not re.search(r"[{}]|\bnan\b|no number|\bNone\b|  ", text), (arguments, text)
        if idea.algorithms is not None:
            assert explorer.values["algorithm"] in explorer.caption


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
def test_a_value_outside_its_range_is_refused_by_name(name):
    idea = IDEAS[name]
    for control_name, control in idea.controls.items():
        if isinstance(control, Slider) and not control.many:
            with pytest.raises(ValueError, match=control_name):
                Explorer(idea, {control_name: float("inf")})
            for end in ends_of(idea, control_name)[:1]:
                with pytest.raises(ValueError, match=f"{control_name}.*got"):
                    Explorer(idea, {control_name: end - 1000})
            with pytest.raises(ValueError, match=control_name):
                Explorer(idea, {control_name: "much"})
        elif isinstance(control, Choice) and control_name != "algorithm":
            with pytest.raises(ValueError, match=f"{control_name} must be one of"):
                Explorer(idea, {control_name: "nothing"})
    with pytest.raises(TypeError, match="no argument"):
        Explorer(idea, {"nothing": 1})


@every_picture
def test_a_picture_is_drawn_on_paper_at_every_named_setting(name):
    for arguments in IDEAS[name].named.values():
        figure = Explorer(IDEAS[name], arguments).figure()
        figure.canvas.draw()
        texts = [text for ax in figure.axes for text in [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]]
        assert not any("{" in text.get_text() for text in texts)
        assert all(text.get_fontsize() >= 11 for text in texts if text.get_text())


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        (7, "lengths must be 4"),
        ((1, 2, 3, 99), "lengths must be from 1 to 16; got 99"),
        ((1, 2, 3, "a"), "lengths must be a number"),
    ],
)
def test_an_argument_of_several_numbers_is_refused_by_name(lengths, says):
    with pytest.raises(ValueError, match=says):
        rlviz.pictures.explore_aggregation(lengths=lengths)


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
