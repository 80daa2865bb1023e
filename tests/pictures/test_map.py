"""`explore_map`: what is drawn is what the map's file holds, and the shipped maps' sentences are true of it."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from typer.testing import CliRunner

import rlviz
from rlviz.cli import app
from rlviz.page.paper import SHADES
from rlviz.pictures import explore_map
from rlviz.pictures.map import SIZE, find_map
from rlviz.study import MapSettings, maps, regime_map
from rlviz.study.cells import Cell, Measured
from rlviz.study.confirm import carried
from rlviz.study.shipped import SHIPPED
from tests.page.programs import needs_node, run

NAMES = tuple(SHIPPED)


def made(differences, errors, tmp_path):
    """Write a map of one row with these differences in accuracy, and return its path."""
    plan = begin_plan(len(differences))
    at, curve = np.array([0.0, 5.0]), np.array([[[0.2, 0.9], [0.0, 0.1]], [[0.2, 0.6], [0.0, 0.2]]])
    cells = {}
    for column, (difference, error) in enumerate(zip(differences, errors, strict=True)):
        found = Measured(0.5 + difference, 0.5, difference, error, 1.0)
        cells[column, 0] = Cell(
            dict.fromkeys(("accuracy", "entropy", "rollouts", "dead"), found), (1.0, 1.0), at, curve, curve
        )
    path = tmp_path / "m.jsonl"
    lines = [maps.json_text(plan), *(maps.cell_line(place, cell) for place, cell in cells.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def begin_plan(columns):
    from rlviz import DCPO, GRPO

    given = {"x_values": range(1, columns + 1), "y_values": [2]}
    return regime_map(DCPO, GRPO, settings=MapSettings(replicas=4, steps=5), **given).plan


def test_what_is_drawn_is_what_is_stored(tmp_path):
    path = made([-0.4, 0.0, 0.1, 0.2], [0.01, 0.0, 0.05, 0.09], tmp_path)
    explorer = explore_map(str(path), column=3)
    names = explorer.names()
    assert names.words("written_accuracy") == ["−0.40", "0.00", "+0.10", "+0.20"]
    assert list(zip(names.array("cell_x"), names.array("cell_y"), strict=True)) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert names.array("unsure").tolist() == [0, 1, 1, 0]  # 0 ≤ 0 and .1 ≤ 2 · .05
    assert names.array("cells").tolist() == [-0.4, 0.0, 0.1, 0.2] and names.one("scale") == 0.4
    assert names.array("at").tolist() == [0, 5] and names.array("accuracy0").tolist() == [0.2, 0.9]
    assert names.array("accuracy1").tolist() == [0.2, 0.6] and names.array("accuracy1_high").max() == pytest.approx(0.8)
    assert explorer.conclusion == (
        "At updates a rollout 3 and groups in a rollout 2, which has a higher accuracy is not certain: +0.1 ± 0.05."
    )
    assert "DCPO has a higher accuracy than GRPO in 1 of 4 cells, less in 1; in 2 the sign" in explorer.caption
    explorer.set(column=4)
    assert "DCPO has a higher accuracy than GRPO, 0.7 against 0.5 (+0.2 ± 0.09)." in explorer.conclusion
    explorer.set(column=1)  # −.4: the other one has more
    assert "GRPO has a higher accuracy than DCPO, 0.5 against 0.1 (−0.4 ± 0.01)." in explorer.conclusion


@needs_node
def test_a_page_computes_a_map_of_one_s_own_with_a_cell_missing(tmp_path):
    path = made([-0.4, 0.1, 0.2], [0.01, 0.05, 0.09], tmp_path)
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    for column in (1, 3):
        explorer = explore_map(path, column=column)
        idea, (program,) = explorer.idea, explorer.given()["programs"].values()
        asked = [row[1] for row in program["rows"] if row[0] == "input"]
        inputs = {name: idea.number(name, explorer.values, explorer._data) for name in asked}
        (found,) = run({"map": program}, [("map", inputs)])
        for name, value in explorer._outputs("", explorer.values).items():
            np.testing.assert_allclose(*np.broadcast_arrays(found[name], value.double().numpy()), err_msg=name)
    assert explorer.names().array("cells").tolist() == [-0.4, 0.1, 0.0]  # what is not known has no colour
    assert explorer.conclusion.endswith("nothing was run yet.")


def test_a_large_map_has_signs_and_a_missing_cell_a_question_mark(tmp_path):
    path = made([-0.4, 0.0, *[0.1] * 8], [0.01] * 10, tmp_path)
    torn = path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]
    path.write_text("".join(torn), encoding="utf-8")
    picture = explore_map(path, column=10)
    assert picture.names().words("written_accuracy") == ["−", "", *["+"] * 7, "?"]
    assert "nothing was run yet" in picture.caption and "1 cannot be judged" in picture.caption


def test_a_map_of_one_s_own_begins_in_its_last_column_and_is_alone(tmp_path):
    path = made([-0.4, 0.1], [0.01, 0.05], tmp_path)
    for which in (str(path), path, find_map(path)):
        explorer = explore_map(which)
        assert (explorer.values["column"], explorer.values["row"]) == (2, 1)
        assert list(explorer.values) == ["measure", "column", "row"]
    assert explore_map(str(path)).call == f"explore_map(which={str(path)!r})"
    assert explorer.call == "explore_map(which=which)" and explorer.given()["call"]["fixed"] == ["which=which"]
    with pytest.raises(ValueError, match="column must be from 1 to 2; got 3"):
        explore_map(str(path), column=3)


def test_shipped_maps_have_the_cells_that_their_sliders_reach():
    assert {find_map(name).shape for name in SHIPPED} == {(SIZE, SIZE)}


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_numbers_are_readable_on_every_colour():
    ink = luminance(to_rgb("#222222"))
    for share in np.linspace(0, 1, 21):
        assert (luminance(SHADES(share)) + 0.05) / (ink + 0.05) >= 4.5


@pytest.mark.parametrize("name", NAMES)
def test_the_command_made_the_map(name, tmp_path, monkeypatch):
    """The command, given the shipped cells, accepts them as its own and runs nothing."""
    drawn = []
    monkeypatch.setattr(maps._Job, "run", None)
    monkeypatch.setattr("rlviz.cli.map._draw", lambda kept, measure, out: drawn.append((kept, measure)))
    out = tmp_path / f"{name}.png"
    out.with_suffix(".jsonl").write_bytes(SHIPPED[name].file.read_bytes())
    program, *arguments = shlex.split(SHIPPED[name].command)
    assert program == "rlviz"
    result = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert drawn == [(out.with_suffix(".jsonl"), find_map(name).plan["measure"])]


@pytest.mark.parametrize("name", NAMES)
def test_the_sentence_is_true_of_the_data(name):
    each, found = SHIPPED[name], find_map(name)
    assert found.complete and each.file.stat().st_size <= 100_000
    assert each.corners
    sign = found.measured(found.plan["measure"], "sign")
    for column, row, expected in each.corners:
        assert sign[row - 1, column - 1] == expected, (column, row)
        one = found.cells[column - 1, row - 1].measured[found.plan["measure"]]
        if expected == 0:
            assert abs(one.difference) <= 2 * one.error
        else:
            assert one.difference * expected > 2 * one.error
    assert each.sentence in explore_map(name).caption
    readme = (Path(rlviz.__file__).parent / "study" / "README.md").read_text(encoding="utf-8")
    assert f"**{each.name}**" in readme and each.sentence in " ".join(readme.split())
    assert each.command in readme and carried(name) in " ".join(readme.split())


def differences(name):
    """Return what the map was made for in all of its cells, and which are certain."""
    found = find_map(name)
    measure = found.plan["measure"]
    return found.measured(measure, "difference"), found.measured(measure, "sign")


def test_what_the_sentences_say_of_all_cells_and_of_sizes():
    limits, _ = differences("dcpo-limits")
    assert not limits[:, 0].any()  # one update
    clip, certain = differences("clip-higher-noise")
    assert not (certain == 1).any() and np.abs(clip[certain == -1]).max() < 0.05
    _, of_ratio = differences("gspo-ratio")
    assert not of_ratio[:, 0].any() and not of_ratio[0].any() and (of_ratio >= 0).all()
    _, same = differences("std-division")
    assert (same == -1).all()
    tuned, _ = differences("std-division-tuned")
    assert np.abs(tuned).max() <= 0.001
    of_tuned = find_map("std-division-tuned")
    assert {cell.rates for cell in of_tuned.cells.values()} == {(4 * of_tuned.plan["regime"]["lr"],) * 2}
    repeats, of_repeats = differences("dupo-repeats")
    assert (of_repeats <= 0).all() and repeats.argmin() == 0  # the lowest success, the smallest groups
    assert not of_repeats[4:, 3:].any()


@pytest.mark.parametrize("name", NAMES)
def test_cells_of_a_shipped_map_agree_with_their_curves(name):
    """The last point of the accuracy's curves is the measure "accuracy", stored beside it."""
    for cell in find_map(name).cells.values():
        measured = cell.measured["accuracy"]
        assert cell.accuracy[:, 0, -1] == pytest.approx([measured.mine, measured.other], abs=6e-4)
        assert measured.difference == pytest.approx(measured.mine - measured.other, abs=1e-4)
        assert np.all(cell.entropy[0, 0, 0] == cell.entropy[1, 0, 0])  # both begin alike


def test_the_picture_says_whether_the_learning_rate_was_tuned():
    for name in NAMES:
        words, tuned = explore_map(name).names().fill("{rule}"), "--rates tuned" in SHIPPED[name].command
        said = (
            "tuned for each, the largest tried was best in 36 of 36 cells" if tuned else "for both, tuned for neither"
        )
        assert said in words and "|mean| ≤ 2 standard errors (64 replicas)" in words
