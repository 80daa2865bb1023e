"""`explore_map`: what is drawn is what the map's frame holds, wherever its page computes it."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from rlviz.page.paper import SHADES
from rlviz.pictures import explore_map
from rlviz.study import MapSettings, read_map, regime_map
from rlviz.study.maps import NUMBERS, csv_text
from tests.page.programs import needs_node, run

# rare (x) and groups (y): mine, other, difference, error, counted, sign of the accuracy; the last cell was not run
CELLS = {
    (0.1, 2): (0.1, 0.5, -0.4, 0.01, 1.0, -1.0),
    (0.5, 2): (0.5, 0.5, 0.0, 0.0, 1.0, 0.0),
    (0.9, 2): (0.6, 0.5, 0.1, 0.05, 1.0, 0.0),
    (0.1, 4): (0.7, 0.5, 0.2, 0.09, 1.0, 1.0),
    (0.5, 4): (np.nan, np.nan, np.nan, np.nan, 0.2, np.nan),
}


def made(cells=CELLS, measure="accuracy"):
    """Return the frame of a map with these cells; of the other measures all differences are .5."""
    from rlviz import DCPO, GRPO

    settings = MapSettings(replicas=2, steps=1)
    some = regime_map(DCPO.without_kl(), GRPO.without_kl(), x="rare", cells=(1, 1), settings=settings).result()
    rows = []
    for (x, y), numbers in cells.items():
        for row in some.to_dict("records"):
            of = numbers if row["measure"] == measure else (1.0, 0.5, 0.5, 0.1, 1.0, 1.0)
            rows.append({**row, "rare": x, "groups": y, **dict(zip(NUMBERS, of, strict=True))})
    return pd.DataFrame(rows)


def test_what_is_drawn_is_what_the_frame_holds(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text(csv_text(made()), encoding="utf-8")
    for which in (path, str(path), made()):
        explorer = explore_map(which, column=3)
        names = explorer.names()
        assert names.words("written") == ["−0.40", "0.00", "+0.10", "+0.20", "?", "?"]
        assert list(zip(names.array("cell_x"), names.array("cell_y"), strict=True))[2:4] == [(3, 1), (1, 2)]
        assert names.array("cells").tolist() == [-0.4, 0.0, 0.1, 0.2, 0.0, 0.0] and names.one("scale") == 0.4
        assert names.array("unsure").tolist() == [0, 1, 1, 0, 0, 0]
        assert (names.words("x_ticks"), names.words("y_ticks")) == (["0.1", "0.5", "0.9"], ["2", "4"])
        assert explorer.conclusion == (
            "At share of rare good actions 0.9 and groups in a rollout 2, accuracy at the end: DCPO − GRPO = +0.1 ± 0.05 of "
            "accuracy, whose sign is not certain."
        )
        assert "More of it in 1 of 6 cells, less in 1; in 2 the sign is not certain." in explorer.caption
        assert "(2 replicas). Learning rate 1 for both, tuned for neither." in explorer.caption
        explorer.set(column=1, row=2)
        assert "DCPO − GRPO = +0.2 ± 0.09 of accuracy (0.7 against 0.5)." in explorer.conclusion
        explorer.set(column=2)
        assert "there is nothing to compare" in explorer.conclusion
        explorer.set(column=1, measure="dead")
        assert "share of dead groups: DCPO − GRPO = +0.5 ± 0.1 of the groups (1 against 0.5)." in explorer.conclusion
    assert explorer.call == "explore_map(measure='dead', column=1, row=2, which=which)"
    for wrong, words in (
        ({"column": 4}, "column must be from 1 to 3"),
        ({"which": made().iloc[:0]}, "of this map no cell"),
    ):
        with pytest.raises(ValueError, match=words):
            explore_map(**{"which": path, **wrong})
    with pytest.raises(ValueError, match="did you mean gspo-ratio"):
        explore_map("gspo-ration")


def test_a_large_map_has_signs_alone():
    wide = made({(column / 10, 2): (0.6, 0.5, 0.1, 0.01 * column, 1.0, float(column < 5)) for column in range(1, 10)})
    assert explore_map(wide).names().words("written") == ["+"] * 4 + [""] * 5


@needs_node
def test_a_page_computes_a_map_of_one_s_own():
    for column, row in ((1, 1), (3, 2)):
        explorer = explore_map(made(), column=column, row=row)
        idea, (program,) = explorer.idea, explorer.given()["programs"].values()
        key = explorer.key()
        values = {**explorer.values, "which": ""}
        data = idea.data(measure=idea.controls["measure"].options[key])
        inputs = {row[1]: idea.number(row[1], values, data) for row in program["rows"] if row[0] == "input"}
        (found,) = run({"map": program}, [("map", inputs)])
        for name, value in explorer._outputs(key, explorer.values).items():
            np.testing.assert_allclose(*np.broadcast_arrays(found[name], value.double().numpy()), err_msg=name)


def test_each_shipped_map_and_measure_is_drawn():
    own = explore_map("dupo-repeats", column=1).conclusion
    assert own == explore_map("dupo-repeats", measure="rollouts", column=1).conclusion and "= −43 ± 1 rollouts" in own
    row = read_map("dupo-repeats").query("measure == 'entropy' and success == .3 and group_size == 8").iloc[0]
    shown = explore_map("dupo-repeats", measure="entropy", column=4, row=3).names()
    assert [shown.one(name) for name in NUMBERS] == pytest.approx(row[[*NUMBERS]].tolist())


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_numbers_are_readable_on_every_colour():
    ink = luminance(to_rgb("#222222"))
    for share in np.linspace(0, 1, 21):
        assert (luminance(SHADES(share)) + 0.05) / (ink + 0.05) >= 4.5
