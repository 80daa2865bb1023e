"""`explore_map`: what is drawn is what the map's frame holds."""

import numpy as np
import pandas as pd
import pytest

from rlviz import DCPO, GRPO
from rlviz.pictures import explore_map
from rlviz.study import MapSettings, read_map, regime_map
from rlviz.study.maps import NUMBERS, csv_text

# rare (x) and groups (y): mine, other, difference, error, counted, sign of the accuracy; the last cell was not run
CELLS = {
    (0.1, 2): (0.1, 0.5, -0.4, 0.01, 1.0, -1.0),
    (0.5, 2): (0.5, 0.5, 0.0, 0.0, 1.0, 0.0),
    (0.9, 2): (0.6, 0.5, 0.1, 0.05, 1.0, 0.0),
    (0.1, 4): (0.7, 0.5, 0.2, 0.09, 1.0, 1.0),
    (0.5, 4): (np.nan, np.nan, np.nan, np.nan, 0.2, np.nan),
}


def frame_of(cells=CELLS):
    """Return the frame of a map with these cells of accuracy; of the other measures all differences are .5."""
    settings = MapSettings(replicas=2, steps=1)
    one = regime_map(DCPO.without_kl(), GRPO.without_kl(), x="rare", cells=(1, 1), settings=settings).result()
    rows = []
    for (x, y), accuracy in cells.items():
        for row in one.to_dict("records"):
            numbers = accuracy if row["measure"] == "accuracy" else (1.0, 0.5, 0.5, 0.1, 1.0, 1.0)
            rows.append({**row, "rare": x, "groups": y, **dict(zip(NUMBERS, numbers, strict=True))})
    return pd.DataFrame(rows)


def test_what_is_drawn_is_what_the_frame_holds(tmp_path):
    path, frame = tmp_path / "m.csv", frame_of()
    path.write_text(csv_text(frame), encoding="utf-8")
    for which in (path, str(path), frame):
        explorer = explore_map(which, column=3)
        names = explorer.names()
        assert names.words("written") == ["−0.40", "0.00", "+0.10", "+0.20", "?", "?"]
        assert list(zip(names.array("cell_x"), names.array("cell_y"), strict=True))[2:4] == [(3, 1), (1, 2)]
        assert names.array("cells").tolist() == [-0.4, 0.0, 0.1, 0.2, 0.0, 0.0] and names.one("scale") == 0.4
        assert names.array("unsure").tolist() == [0, 1, 1, 0, 0, 0]
        assert (names.words("x_ticks"), names.words("y_ticks")) == (["0.1", "0.5", "0.9"], ["2", "4"])
        assert "In the chosen cell: +0.1 ± 0.05 of accuracy (0.6 against 0.5)." in explorer.conclusion
        explorer.set(column=2, row=2)
        assert "nothing can be compared" in explorer.conclusion
        explorer.set(column=1, measure="dead")
        assert "share of dead groups. In the chosen cell: +0.5 ± 0.1 of the groups" in explorer.conclusion
    for wrong, words in (
        ({"which": path, "column": 4}, "column must be from 1 to 3"),
        ({"which": frame.iloc[:0]}, "of this map no cell"),
        ({"which": "gspo-ration"}, "did you mean gspo-ratio"),
    ):
        with pytest.raises(ValueError, match=words):
            explore_map(**wrong)


def test_a_shipped_map_is_drawn_and_answered_by_its_sentence_in_its_own_measure_alone():
    row = read_map("dupo-repeats").query("measure == 'entropy' and success == .3 and group_size == 8").iloc[0]
    explorer = explore_map("dupo-repeats", measure="entropy", column=4, row=3)
    named = ["mine", "other", "difference", "error"]
    assert [explorer.names().one(name) for name in named] == pytest.approx(row[named].tolist())
    sentence = "Repeating the groups that teach saves rollouts"
    assert sentence not in explorer.conclusion and "entropy at equal accuracy" in explorer.conclusion
    assert explore_map("dupo-repeats", column=1).conclusion.startswith(sentence)
    assert "−43 ± 1 rollouts" in explore_map("dupo-repeats", measure="rollouts", column=1).conclusion
