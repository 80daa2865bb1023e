"""`rlviz map`: a picture and its cells in a CSV beside it, from which another picture is drawn."""

import re

from PIL import Image

from rlviz.pictures import explore_map
from rlviz.study import maps, read_map

TINY = ["map", "--replicas", 3, "--steps", 3, "--x-values", "1,4", "--y-values", "1,2", "--jobs", 1]


def one_line(result):
    return " ".join(result.output.split())


def test_a_map_as_picture_and_table_of_which_every_measure_is_drawn(rlviz, tmp_path, monkeypatch):
    out = tmp_path / "here" / "m.png"
    command = [*TINY, "--only", "bounds", "--level", ".5"]
    result = rlviz(*command, "--measure", "entropy", "--out", out)
    assert result.exit_code == 0, result.output
    cells = read_map(out.with_suffix(".csv"))
    assert (
        len(cells) == 2 * 2 * 4 and {*cells.algorithm} == {"GRPO with DCPO's bounds"} and {*cells.against} == {"GRPO"}
    )
    assert (cells.level[0], cells.steps[0], cells.replicas[0]) == (0.5, 3, 3)
    assert "entropy at equal accuracy" in Image.open(out).info["Description"] and Image.open(out).size[0] == 1500
    assert Image.open(out).info["Description"] in one_line(result)
    call = re.search(r"In Python: (explore_map\(.*\))", one_line(result))[1]
    assert eval(call, {"explore_map": explore_map}).caption in one_line(result)
    trained = []
    monkeypatch.setattr(maps.Cell, "run", lambda cell: trained.append(cell) or iter(()))
    result = rlviz(*command, "--measure", "dead", "--out", out.with_suffix(".html"))
    assert result.exit_code == 0 and len(trained) == 2, result.output  # the two corners that are tried before
    page = out.with_suffix(".html").read_text(encoding="utf-8")
    assert "share of dead groups" in page and "data-rlviz" in page
