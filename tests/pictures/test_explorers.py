"""What holds for every explorer: controls move what a page shows and give it back, handles lead where they stand, words and calls
are true, the last row can read it.

Each control is moved to both ends, a choice of algorithms too, and the SVG compared that a page would show. The algorithms
between are chosen without drawing, upwards and downwards, and the artists compared.
"""

import html
import inspect
import itertools
import re
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.spines import Spine
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter

import rlviz
from rlviz import pictures
from rlviz.algorithms import GRPO, Algorithm
from rlviz.pictures import entropy
from rlviz.pictures.arguments import Chips, Choice, Range, Stop, WholeNumbers
from rlviz.pictures.arrays import remembered
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.explore import Algorithms, Explorer, small_multiples
from rlviz.pictures.frozen import frames
from rlviz.pictures.idea import Idea
from rlviz.tabular import train_table

NAMES = [name for name in EXPLORERS if not isinstance(find_explorer(name).idea, Idea)]  # those that matplotlib moves
OF_ALGORITHMS = [name for name in NAMES if find_explorer(name).idea.algorithms is not None]


def my_bounds(old_logp):
    room = 0.2 / old_logp.exp() ** 0.5
    return (1 - room).clamp(min=0.0), 1 + room


MINE = replace(GRPO, name="Mine", bounds=my_bounds)


@pytest.fixture(scope="module", autouse=True)
def _a_third_of_the_updates():
    """Pictures are compared here, not trainings: a table takes 1, 2 or 6 updates where the explorer says 1, 4 or 16."""

    def train_on_less(*given, updates_per_rollout, **others):
        return train_table(*given, updates_per_rollout=-(-updates_per_rollout // 3), **others)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(entropy, "train_table", train_on_less)
        patched.setattr(entropy, "_train", remembered(maxsize=256)(inspect.unwrap(entropy._train)))
        yield


def shown(explorer):
    """Return all that a page shows of the picture."""
    handles = [None if handle["hidden"] else handle["at"] for handle in explorer.handles]
    return explorer.still + explorer.moving, handles


@cache
def at_start(name):
    """Return an explorer as it is made, for tests that only look at it."""
    return find_explorer(name)()


def evaluated(call):
    """Run the line that an explorer gives to copy, as in a notebook cell after the usual imports."""
    names = {name: getattr(rlviz, name) for name in rlviz.__all__ if name.isupper()}
    functions = {name: getattr(pictures, name) for name in dir(pictures)}
    return eval(call, {**names, **functions, "mine": MINE})


def picture_of(call):
    """Return the picture of the curve that this line explores, not drawn yet, and its caption."""
    idea = find_explorer(call.partition("(")[0].removeprefix("explore_")).idea
    names = {name: getattr(rlviz, name) for name in rlviz.__all__ if name.isupper()}
    curve = eval(call, {**names, f"explore_{idea.name}": idea.curve, "mine": MINE})
    picture = idea.picture(curve)
    return picture, picture.caption(curve)


def state(artist):
    """Return what an artist shows, as values that can be compared."""
    found = [type(artist).__name__, artist.get_visible(), artist.get_alpha()]
    if isinstance(artist, Line2D):
        found += [artist.get_xydata(), artist.get_color(), artist.get_linestyle(), artist.get_marker()]
    elif isinstance(artist, Collection):
        found += [*(path.vertices for path in artist.get_paths()), artist.get_offsets(), artist.get_facecolor()]
    elif isinstance(artist, Patch):
        found += [artist.get_path().vertices, artist.get_patch_transform().get_matrix(), artist.get_facecolor()]
    elif isinstance(artist, Text):
        found += [artist.get_text(), artist.get_color()]
        if (
            artist.get_text() and artist.axes is not None and artist in artist.axes.texts
        ):  # others are placed when drawn
            found += artist.get_position()
    elif isinstance(artist, Axes):
        found += [artist.get_xlim(), artist.get_ylim(), artist.get_xscale(), artist.get_yscale()]
        formatters = artist.xaxis.get_major_formatter(), artist.yaxis.get_major_formatter()
        found += [each.seq for each in formatters if isinstance(each, FixedFormatter)]
    return [np.round(each, 9).tolist() if isinstance(each, np.ndarray) else each for each in found]


def states(picture):
    """Return what the artists that move show, and what the others do; ticks, spines and frames follow from those."""
    found = {True: [], False: []}

    def walk_through(artist, moves):
        found[moves].append(state(artist))
        frame = artist.get_frame() if isinstance(artist, Legend) else None
        for part in artist.get_children():
            if isinstance(part, Axis):
                found[moves].append(state(part.label))
            elif part is not frame and not isinstance(part, Spine):
                walk_through(part, moves or part in moving)

    moving = set(picture.moving)
    walk_through(picture.figure, moves=False)
    return [str(found[moves]) for moves in (True, False)]


def ends(control):
    """Return the values at both ends of a slider or of a choice of algorithms; for another menu each of its values."""
    if isinstance(control, Range):
        return [control.low, control.high]
    if isinstance(control, WholeNumbers):
        _, *others = control.value
        return [(end, *others) for end in (control.low, control.high)]
    if isinstance(control, Chips):
        return [(control.options[-1][1],)]
    values = [value for _, value in control.options]
    if isinstance(control, Stop):
        return [values[0], values[-1]]
    return [*values[:2], values[-1]] if any(isinstance(value, Algorithm) for value in values) else values


def is_slider(control):
    return not isinstance(control, Choice | Chips) or isinstance(control, Stop)


def movable(explorer):
    """Return name → control, of those in sight."""
    return {name: control for name, control in explorer.controls.items() if not control.hidden}


@dataclass(frozen=True)
class Look:
    """What an explorer shows when one control stands at a value."""

    control: str
    value: object
    by_slider: bool
    picture: tuple
    caption: str
    alt: str
    call: str


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
        by_slider = control is not None and is_slider(control)
        return Look(name, value, by_slider, shown(explorer), explorer.caption, explorer.alt, explorer.call)

    start, moved, back = look(), [], []
    for control_name, control in movable(explorer).items():
        before = control.value
        for value in ends(control):
            if value != before:
                control.value = value
                moved.append(look(control_name, control, value))
        control.value = before
        back.append(look(control_name, control, before))
    for control in movable(explorer).values():
        control.value = ends(control)[-1]
    return Walk(explorer, start, moved, back, look())


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_control_moves_the_picture_and_gives_it_back(name):
    seen = walk(name)
    assert {look.control for look in seen.moved} == set(movable(at_start(name)))
    for look in seen.moved:
        assert not look.caption.startswith("Not possible"), f"{look.control} = {look.value}: {look.caption}"
        # two algorithms may have the same bounds, and then differ in words only
        moved = look.picture != seen.start.picture or (not look.by_slider and look.caption != seen.start.caption)
        assert moved, f"{look.control} = {look.value}"
    for look in seen.back:
        assert look.picture == seen.start.picture, f"{look.control} leaves something behind"
        assert (look.caption, look.call) == (seen.start.caption, seen.start.call)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_call_makes_the_same_picture(name):
    seen = walk(name)
    assert seen.start.call == f"{find_explorer(name).__name__}()"
    again = evaluated(seen.end.call)
    assert (again.call, again.caption, again.alt) == (seen.end.call, seen.end.caption, seen.end.alt)
    assert shown(again) == seen.end.picture


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_call_says_each_control_that_was_moved(name):
    for look in walk(name).moved:
        argument = look.control.split()[0]
        assert argument == "algorithm" or f"{argument}=" in look.call, (look.control, look.value, look.call)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_choice_is_drawn_as_if_made_with_it(name):
    """Axes and legends that depend on it are drawn anew."""
    for look in walk(name).moved:
        if not look.by_slider and look.control != "algorithm":
            assert shown(evaluated(look.call)) == look.picture, (look.control, look.value)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_words_say_what_is_shown(name):
    seen = walk(name)
    for look in (seen.start, *seen.moved, seen.end):
        assert look.alt == f"{seen.explorer.picture.alt} {look.caption}"
        assert 40 < len(look.caption) < 900, look.caption
        assert look.caption.rstrip().endswith((".", ")")) and "nan" not in look.caption.split()
        assert "  " not in look.caption
    assert len({look.caption for look in seen.moved}) > len(seen.explorer.controls) / 2


@pytest.mark.parametrize("name", NAMES)
def test_the_coordinates_in_the_page_are_the_curve_s_numbers(name):
    """Every line with a name, read back from its path and its axes; a line is what the curve holds by its picture's own tests."""
    explorer = at_start(name)
    compared = 0
    for ax, where in zip(explorer.picture.figure.axes, explorer.axes, strict=True):
        assert (tuple(where["x"]), tuple(where["y"])) == (ax.get_xlim(), ax.get_ylim())
        place = explorer.picture.figure.axes.index(ax)
        for line in ax.get_lines():
            if line not in explorer.picture.moving or not (line.get_gid() or "") or not line.get_visible():
                continue
            drawn = points_in(explorer.moving, f"{place} {line.get_label()}")
            pixels = line.get_transform().transform(line.get_xydata()[np.isfinite(line.get_xydata()).all(1)])
            pixels[:, 1] = explorer.size[1] - pixels[:, 1]
            inside = (
                (pixels > -49).all(1) & (pixels[:, 0] < explorer.size[0] + 49) & (pixels[:, 1] < explorer.size[1] + 49)
            )
            if not inside.any() or line.get_linestyle() == "None":
                continue
            assert len(drawn), line.get_label()
            compared += inside.sum()
            away = [distance(point, drawn) for point in pixels[inside]]
            assert max(away) < 0.01, (line.get_label(), max(away))
    assert compared or not any(line.get_gid() for ax in explorer.picture.figure.axes for line in ax.get_lines())


def points_in(fragment, curve):
    """Return the corners of the path of this name."""
    found = re.search(rf'data-curve="{re.escape(html.escape(curve))}" d="([^"]*)"', fragment)
    pairs = re.findall(r"([ML ])(-?[\d.e+-]+) (-?[\d.e+-]+)", found[1]) if found else []
    return [(float(x), float(y), letter == "M") for letter, x, y in pairs]


def distance(point, corners):
    """Return how far a point is from a line of corners, in pixels."""
    (px, py), nearest = point, np.inf
    for (ax, ay, _), (bx, by, begins) in itertools.pairwise(corners):
        if begins:
            continue
        length = np.hypot(bx - ax, by - ay)
        along = 0 if length == 0 else np.clip(((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length**2, 0, 1)
        nearest = min(nearest, np.hypot(px - ax - along * (bx - ax), py - ay - along * (by - ay)))
    return nearest


@pytest.mark.parametrize("name", NAMES)
def test_a_handle_leads_where_it_stands(name):
    """Dragged to where another value puts it, its control has that value, and a call that says so."""
    explorer = find_explorer(name)()
    places = [place for place, handle in enumerate(explorer.handles) if not handle["hidden"]]
    assert places, "nothing can be dragged"
    for place in places:
        control = explorer.controls[explorer.handles[place]["control"]]
        before, start = control.value, shown(explorer)
        for value in ends(control):
            control.value = value
            handle = explorer.handles[place]
            if handle["hidden"]:
                continue
            picture, call, at = shown(explorer), explorer.call, handle["at"]
            control.value = before
            explorer.asked = {"turn": explorer.answered + 1, "handle": place, "place": at}
            led = explorer.handles[place]["at"] == pytest.approx(
                at
            )  # where a limit has a floor, several values stand there
            near = 1e-9 + 0.51 * getattr(control, "step", 0)
            assert led or control.value == pytest.approx(value, abs=near), (control.name, at)
            if control.value == value:
                assert (shown(explorer), explorer.call) == (picture, call)
        control.value = before
        assert shown(explorer) == start


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_handles_are_as_many_for_every_setting(name):
    seen = walk(name)
    count = len(at_start(name).handles)
    for look in (*seen.moved, seen.end):
        assert len(look.picture[1]) == count, (look.control, look.value)


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_conclusion_is_one_sentence_and_its_details_are_others(name):
    seen = walk(name)
    explorer = seen.explorer
    assert explorer.caption == f"{explorer.conclusion} {explorer.details}".strip()
    assert 20 < len(explorer.conclusion) <= 200, explorer.conclusion
    assert explorer.conclusion.endswith((".", ")"))
    assert explorer.conclusion not in explorer.details


@pytest.mark.parametrize("name", OF_ALGORITHMS)
def test_with_every_algorithm_that_it_offers(name, monkeypatch):
    """By the artists: for some those of a new picture, for each the same whichever came before; nothing is drawn."""
    explorer, laid_out, seen = find_explorer(name)(), [], {}
    arrangements = [explorer.picture.still(explorer.curve)]

    def arrange(arrangement):
        if arrangement != arrangements[-1]:
            laid_out.append(explorer.caption)
        arrangements.append(arrangement)

    monkeypatch.setattr(explorer._drawn, "arrange", arrange)
    monkeypatch.setattr(explorer._drawn, "moving", str)
    _, standing = states(explorer.picture)
    control = explorer.controls["algorithm"]
    for label, algorithm in (*control.options, *reversed(control.options)):
        control.value = algorithm
        assert not explorer.caption.startswith("Not possible"), f"{label}: {explorer.caption}"
        before, (moving, standing) = standing, states(explorer.picture)
        assert laid_out or standing == before, f"{label}: what stands still has changed, and is not drawn anew"
        laid_out.clear()
        if label not in seen:
            seen[label] = [explorer.caption, moving, standing]
            if algorithm in ends(control):
                fresh, words = picture_of(explorer.call)
                assert [words, *states(fresh)] == seen[label], label
        assert [explorer.caption, moving, standing] == seen[label], label


@pytest.mark.parametrize("name", OF_ALGORITHMS)
def test_with_a_rule_of_one_s_own(name):
    explorer = find_explorer(name)(MINE)
    assert explorer.controls["algorithm"].options[0] == ("Mine", MINE)
    assert "Mine" in explorer.caption
    assert "mine" in explorer.call
    picture, words = picture_of(explorer.call)
    assert (states(picture), words) == (states(explorer.picture), explorer.caption)


def contrast(colour):
    """Return the WCAG contrast of a colour with white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def seen(artist):
    return artist.get_visible() and artist.get_alpha() in (None, 1, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_last_row_can_read_it(name):
    figure = find_explorer(name)().picture.figure
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
    for ax in at_start(name).picture.figure.axes:
        named = [line for line in ax.get_lines() if seen(line) and not line.get_label().startswith("_")]
        styles = [(str(line._dash_pattern), line.get_marker(), line.get_linewidth()) for line in named]
        assert len(set(styles)) == len(styles), [(line.get_label(), s) for line, s in zip(named, styles, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_the_static_twin_draws_each_setting(name):
    """Two of them; the others are made, and not drawn."""
    explore = find_explorer(name)
    twin = explore.idea.twin
    assert len(twin) >= 2
    assert all(explore.idea.curve(**given) for given in twin.values())
    two = dict(itertools.islice(twin.items(), 2))
    figure = small_multiples(explore, two)
    FigureCanvasAgg(figure).draw()
    assert [part.get_suptitle() for part in figure.subfigs] == list(two)
    assert len(figure.axes) >= len(at_start(name).picture.figure.axes)


@pytest.mark.parametrize("name", NAMES)
def test_choices_and_numbers_out_of_reach_are_refused_in_a_sentence(name):
    """Each argument is given what it cannot be; the sentence names it."""
    explore = find_explorer(name)
    if name in OF_ALGORITHMS:
        with pytest.raises(ValueError, match="algorithm must be an algorithm, such as GRPO; got 'grpo'"):
            explore("grpo")
    for argument, control in at_start(name).controls.items():
        if argument == "algorithm" or argument not in inspect.unwrap(explore).__kwdefaults__:
            continue
        wrong = {WholeNumbers: None, Chips: GRPO}.get(type(control), "bananas")
        if wrong is not None:
            with pytest.raises(ValueError, match=rf"^{argument}\b.* must be .*; got"):
                explore(**{argument: wrong})


@pytest.mark.parametrize("name", NAMES)
def test_a_page_without_a_kernel_has_its_controls_in_the_explorer_s_order(name):
    """The grid's own order is that of the frames: what changes the standing part comes first there."""
    explorer = at_start(name)
    one_each = {n: values[:1] for n, values in explorer.idea.grid.items()}
    data = frames(explorer, one_each)
    shown = [data["controls"][place]["name"] for place in data["order"]]
    assert shown == [n for n in explorer.controls if n in set(shown)]
    assert set(shown) == {n for n in one_each if not explorer.controls[n].hidden}


@pytest.mark.parametrize("name", NAMES)
def test_no_part_of_a_narrow_screen_shows_some_of_another(name):
    """Panels, whose frames are 6 pixels wide, lie beside each other, and words lie in one of them whole."""
    explorer = at_start(name)
    inner = [(x + 6, y + 6, x + width - 6, y + height - 6) for x, y, width, height in explorer.panels]
    for one, other in itertools.combinations(inner, 2):
        apart = one[2] <= other[0] + 1 or other[2] <= one[0] + 1 or one[3] <= other[1] + 1 or other[3] <= one[1] + 1
        assert apart, (one, other)
    for legend in filter(Artist.get_visible, explorer.picture.figure.legends):
        for text in legend.get_texts():
            box = text.get_window_extent()
            top, bottom = explorer.size[1] - box.y1, explorer.size[1] - box.y0
            within = (
                x <= box.x0 and box.x1 <= x + width and y <= top and bottom <= y + height
                for x, y, width, height in explorer.panels
            )  # fmt: skip
            assert any(within) or not text.get_text().strip(), text


def test_a_parameter_without_a_range_is_refused():
    with pytest.raises(
        ValueError, match=r"parameters must be of eps_low, .*, which have a slider's range; got 'slope'"
    ):
        Algorithms(fits=bool, parameters=["eps_high", "slope"])
