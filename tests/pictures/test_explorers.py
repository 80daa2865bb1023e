"""What holds for every explorer: sliders move pixels and give them back, words and calls are true, the last row can read it."""

import html
import inspect
import io
import itertools
import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from PIL import Image

import rlviz
from rlviz import pictures
from rlviz.algorithms import GRPO
from rlviz.pictures.base import Picture
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.clip import clip_curve
from rlviz.pictures.controls import Control, Counts, Several
from rlviz.pictures.explore import Algorithms, Explorer, Slider, small_multiples

NAMES = EXPLORERS
OF_ALGORITHMS = [name for name in NAMES if find_explorer(name).idea.algorithms is not None]


def my_bounds(old_logp):
    room = 0.2 / old_logp.exp() ** 0.5
    return (1 - room).clamp(min=0.0), 1 + room


MINE = replace(GRPO, name="Mine", bounds=my_bounds)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pixels(explorer):
    return np.asarray(Image.open(io.BytesIO(explorer.png)).convert("RGB")).astype(int)


def evaluated(call):
    """Run the line that an explorer gives to copy, as in a notebook cell after the usual imports."""
    names = {name: getattr(rlviz, name) for name in rlviz.__all__ if name.isupper()}
    functions = {name: getattr(pictures, name) for name in dir(pictures)}
    return eval(call, {**names, **functions, "mine": MINE})


def ends(control):
    """Return the values at both ends of a slider; for a dropdown each of its values."""
    if hasattr(control, "slider"):
        slider = control.slider
        if hasattr(slider, "options"):
            return [slider.options[0][1], slider.options[-1][1]]
        return [slider.min, slider.max]
    if isinstance(control, Several):
        return [(control.box.options[-1][1],)]
    return [value for _, value in control.box.options]


def movable(explorer):
    """Return name → the widget to set, control by control, of those in sight."""
    found = {}
    for name, control in explorer.controls.items():
        if control.hidden:
            continue
        for place, part in enumerate(control.parts if isinstance(control, Counts) else [control]):
            found[f"{name} {place}" if isinstance(control, Counts) else name] = part
    return found


@dataclass(frozen=True)
class Look:
    """What an explorer shows when one control stands at a value. words_of_page: its alt text as the page holds it."""

    control: str
    value: object
    by_slider: bool
    png: bytes
    caption: str
    alt: str
    call: str
    words_of_page: str


@dataclass(frozen=True)
class Walk:
    """An explorer all of whose controls were moved, one at a time, to both ends and back, and then all to their last end."""

    explorer: Explorer
    start: Look
    moved: list[Look]
    back: list[Look]
    end: Look


@cache
def walk(name):
    explorer = find_explorer(name)()

    def look(name="", control=None, value=None):
        page = html.unescape(explorer._image.value)
        by_slider = hasattr(control, "slider")
        return Look(name, value, by_slider, explorer.png, explorer.caption, explorer.alt, explorer.call, page)

    start, moved, back = look(), [], []
    for control_name, control in movable(explorer).items():
        trait = control.slider if isinstance(control, Control) else control.box
        before = trait.value
        for value in ends(control):
            if value != before:
                trait.value = value
                moved.append(look(control_name, control, value))
        trait.value = before
        back.append(look(control_name, control, before))
    for control in movable(explorer).values():
        trait = control.slider if isinstance(control, Control) else control.box
        trait.value = ends(control)[-1]
    return Walk(explorer, start, moved, back, look())


@pytest.mark.parametrize("name", NAMES)
def test_every_control_moves_pixels_and_gives_them_back(name):
    seen = walk(name)
    assert {look.control for look in seen.moved} == set(movable(find_explorer(name)()))
    for look in seen.moved:
        assert not look.caption.startswith("Not possible"), f"{look.control} = {look.value}: {look.caption}"
        # two algorithms may have the same bounds, and then differ in words only
        moved = look.png != seen.start.png or (not look.by_slider and look.caption != seen.start.caption)
        assert moved, f"{look.control} = {look.value}"
    for look in seen.back:
        assert look.png == seen.start.png, f"{look.control} leaves something behind"
        assert (look.caption, look.call) == (seen.start.caption, seen.start.call)


@pytest.mark.parametrize("name", NAMES)
def test_the_call_makes_the_same_picture(name):
    seen = walk(name)
    assert seen.start.call == f"{find_explorer(name).__name__}()"
    again = evaluated(seen.end.call)
    assert (again.call, again.caption, again.alt) == (seen.end.call, seen.end.caption, seen.end.alt)
    assert again.png == seen.end.png


@pytest.mark.parametrize("name", NAMES)
def test_the_call_says_each_control_that_was_moved(name):
    for look in walk(name).moved:
        argument = look.control.split()[0]
        assert argument == "algorithm" or f"{argument}=" in look.call, (look.control, look.value, look.call)


@pytest.mark.parametrize("name", NAMES)
def test_a_choice_is_drawn_as_if_made_with_it(name):
    """Axes and legends that depend on it are drawn anew."""
    for look in walk(name).moved:
        if not look.by_slider and look.control != "algorithm":
            assert evaluated(look.call).png == look.png, (look.control, look.value)


@pytest.mark.parametrize("name", NAMES)
def test_words_say_what_is_shown(name):
    seen = walk(name)
    for look in (seen.start, *seen.moved, seen.end):
        assert look.alt == f"{seen.explorer.picture.alt} {look.caption}"
        assert look.alt in look.words_of_page
        assert 40 < len(look.caption) < 900, look.caption
        assert look.caption.rstrip().endswith((".", ")")) and "nan" not in look.caption.split()
        assert "  " not in look.caption
    assert len({look.caption for look in seen.moved}) > len(seen.explorer.controls) / 2


@pytest.mark.parametrize("name", NAMES)
def test_blitting_draws_what_a_full_drawing_draws(name):
    explorer = walk(name).explorer
    blitted = pixels(explorer)
    for artist in explorer.picture.moving:
        artist.set_animated(False)
    canvas = FigureCanvasAgg(explorer.picture.figure)
    canvas.draw()
    full = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    # blitting draws the moving artists last, so they may lie over a spine or a grey line: a few thin lines' worth
    assert (full != blitted).any(-1).mean() < 0.015


@pytest.mark.parametrize("name", OF_ALGORITHMS)
def test_with_every_algorithm_that_it_offers(name):
    explorer = find_explorer(name)()
    for label, algorithm in explorer.controls["algorithm"].box.options:
        explorer.controls["algorithm"].box.value = algorithm
        assert not explorer.caption.startswith("Not possible"), f"{label}: {explorer.caption}"
        fresh = evaluated(explorer.call)
        assert fresh.caption == explorer.caption
        assert fresh.png == explorer.png, label


@pytest.mark.parametrize("name", OF_ALGORITHMS)
def test_with_a_rule_of_one_s_own(name):
    explorer = find_explorer(name)(MINE)
    assert explorer.controls["algorithm"].box.options[0] == ("Mine", MINE)
    assert "Mine" in explorer.caption
    assert "mine" in explorer.call
    assert explorer.png == evaluated(explorer.call).png


def contrast(colour):
    """Return the WCAG contrast of a colour with white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def seen(artist):
    return artist.get_visible() and artist.get_alpha() in (None, 1, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_last_row_can_read_it(name):
    explorer = find_explorer(name)()
    figure = explorer.picture.figure
    FigureCanvasAgg(figure).draw()
    box = figure.bbox
    for text in figure.findobj(Text):
        extent = text.get_window_extent()
        if not text.get_text().strip() or not text.get_visible() or not box.overlaps(extent):
            continue
        assert text.get_fontsize() >= 11, text
        assert contrast(text.get_color()) >= 3, text
        inside = extent.x0 >= -1 and extent.y0 >= -1 and extent.x1 <= box.x1 + 1 and extent.y1 <= box.y1 + 1
        ticks = [label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        assert inside or text in ticks, f"cut off: {text}"
    for line in figure.findobj(Line2D):
        if seen(line) and line.get_linewidth() >= 1.5 and line.get_linestyle() != "None":
            assert contrast(line.get_color()) >= 3, line
    for ax in figure.axes:
        drawn = [t for t in (*ax.texts, ax.title) if t.get_visible() and t.get_text().strip()]
        for one, other in itertools.combinations(drawn, 2):
            a, b = one.get_window_extent(), other.get_window_extent()
            assert not (a.x0 < b.x1 - 1 and b.x0 < a.x1 - 1 and a.y0 < b.y1 - 1 and b.y0 < a.y1 - 1), (
                f"{one} on {other}"
            )
        if isinstance(ax.get_legend(), Legend):
            assert ax.get_legend().get_texts()[0].get_fontsize() >= 11


@pytest.mark.parametrize("name", NAMES)
def test_lines_differ_without_their_colour(name):
    for ax in find_explorer(name)().picture.figure.axes:
        named = [line for line in ax.get_lines() if seen(line) and not line.get_label().startswith("_")]
        styles = [(str(line._dash_pattern), line.get_marker(), line.get_linewidth()) for line in named]
        assert len(set(styles)) == len(styles), [(line.get_label(), s) for line, s in zip(named, styles, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_the_static_twin_draws_each_setting(name):
    twin = find_explorer(name).idea.twin
    assert len(twin) >= 2
    figure = small_multiples(find_explorer(name), twin)
    FigureCanvasAgg(figure).draw()
    headings = [part.get_suptitle() for part in figure.subfigs]
    assert headings == list(twin)
    single = find_explorer(name)().picture.figure
    assert len(figure.axes) >= len(twin) * len(single.axes) / 2


@pytest.mark.parametrize("name", NAMES)
def test_choices_and_numbers_out_of_reach_are_refused_in_a_sentence(name):
    """Each argument is given what it cannot be; the sentence names it."""
    explore = find_explorer(name)
    explorer = explore()
    if name in OF_ALGORITHMS:
        with pytest.raises(ValueError, match="algorithm must be an algorithm, such as GRPO; got 'grpo'"):
            explore("grpo")
    for argument, control in explorer.controls.items():
        if argument == "algorithm" or argument not in inspect.unwrap(explore).__kwdefaults__:
            continue
        wrong = {Counts: None, Several: GRPO}.get(type(control), "bananas")
        if wrong is not None:
            with pytest.raises(ValueError, match=rf"^{argument}\b.* must be .*; got"):
                explore(**{argument: wrong})


def test_of_the_algorithms_chosen_beside_the_first_three_count():
    explorer = pictures.explore_clip()
    beside = explorer.controls["beside"]
    others = [(place, value) for place, (_, value) in enumerate(beside.box.options) if value != GRPO][:4]
    beside.box.index = [place for place, _ in others]
    assert beside.value == tuple(value for _, value in others[:3])
    assert len(explorer.curve.names) == 1 + 3
    assert "Not possible" not in explorer.caption


def test_a_control_out_of_sight_is_no_part_of_the_call():
    explorer = pictures.explore_kl(apart=3.0)
    assert explorer.call == "explore_kl(apart=3.0)"
    explorer.controls["show"].box.value = "value"
    assert explorer.call == "explore_kl(show='value')"
    explorer.controls["show"].box.value = "fits"
    assert explorer.call == "explore_kl(apart=3.0)"


@pytest.mark.parametrize("beside", [("dapo",), "dapo"])
def test_beside_takes_algorithms_only(beside):
    with pytest.raises(
        ValueError, match=re.escape(f"beside must be a list of algorithms, such as GRPO; got {beside!r}")
    ):
        pictures.explore_clip(beside=beside)


def test_a_curve_of_no_algorithm_and_one_with_an_argument_too_many():
    def one_token(*, advantage: float = 1.0):
        return clip_curve(GRPO, advantage=advantage)

    class Side(Picture):
        alt = "A graph."

        def draw(self, curve):
            (self.line,) = self.figure.add_subplot().plot([], [])
            return [self.line]

        def show(self, curve):
            self.line.set_data(curve.ratio, curve.objective)

        def words(self, curve):
            return f"A token with A = {curve.advantage:g}."

    slider = {"advantage": Slider(0.1, 2.0, 0.1, "A")}
    explorer = pictures.explorer("one_token", one_token, Side, controls=slider, twin={})()
    explorer.controls["advantage"].slider.value = 0.5
    assert explorer.call == "explore_one_token(advantage=0.5)"
    assert explorer.caption == "A token with A = 0.5."
    with pytest.raises(ValueError, match="controls of one_token: size must be both a control and an argument"):
        pictures.explorer("one_token", one_token, Side, controls={**slider, "size": slider["advantage"]}, twin={})


def test_a_parameter_without_a_range_is_refused():
    with pytest.raises(
        ValueError, match=r"parameters must be of eps_low, .*, which have a slider's range; got 'slope'"
    ):
        Algorithms(fits=bool, parameters=["eps_high", "slope"])
