"""`rlviz map`: a picture, a CSV and the cells beside it; it goes on where it was, and refuses in a sentence."""

import csv
import re
import signal
from unittest.mock import Mock

import typer
from PIL import Image

from rlviz.pictures import explore_map
from rlviz.study import MapSettings, PolicyRegime, maps, read_map, run_pair

TINY = ["map", "--replicas", 3, "--steps", 3, "--x-values", "1,4", "--y-values", "1,2", "--jobs", 1]


def one_line(result):
    return " ".join(result.output.split())


def test_a_map_as_picture_and_table(rlviz, tmp_path):
    out = tmp_path / "here" / "m.png"
    result = rlviz(*TINY, "--only", "bounds", "--measure", "entropy", "--level", ".5", "--out", out)
    assert result.exit_code == 0, result.output
    found = read_map(out.with_suffix(".jsonl"))
    assert found.names == ("GRPO with DCPO's bounds", "GRPO") and found.complete
    assert found.plan["algorithm"]["kl"] is None and found.plan["against"]["kl"] is None
    assert (found.settings.level, found.settings.steps, found.settings.replicas) == (0.5, 3, 3)
    rows = list(csv.DictReader(out.with_suffix(".csv").open(encoding="utf-8")))
    assert len(rows) == 2 * 2 * 4
    assert Image.open(out).size == (1500, 792)  # 10 inches, and 1.2 times the usual height of 4.4, at 150 dots
    assert Image.open(out).info["Description"] in one_line(result)
    call = re.search(r"A cell's runs: (explore_map\(.*\))", one_line(result))[1]
    assert eval(call, {"explore_map": explore_map}).caption.split(".")[0] in one_line(result)


def test_another_measure_is_drawn_without_running_again_and_html_answers(rlviz, tmp_path, monkeypatch):
    assert rlviz(*TINY, "--out", tmp_path / "m.png").exit_code == 0
    monkeypatch.setattr(maps._Job, "run", None)  # nothing may be run
    result = rlviz(*TINY, "--measure", "dead", "--out", tmp_path / "m.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "m.html").read_text(encoding="utf-8")
    assert "dead groups" in page and "data-rlviz" in page


def test_a_policy_in_place_of_the_table(rlviz, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("rlviz.study.regime_map", lambda *both, **given: asked.append(given) or [])
    monkeypatch.setattr("rlviz.cli.map.run_under_a_bar", Mock(side_effect=typer.Exit))
    for task in (["--task", "sort"], []):
        rlviz("map", "--policy", "chain-rare", *task, "--noise", ".2", "--steps", 5, "--out", tmp_path / "m.png")
    assert asked[0]["regime"] == PolicyRegime("chain-rare", "sort", noise=0.2) and asked[0]["cells"] is None
    assert asked[1]["regime"] == PolicyRegime("chain-rare", "chain", noise=0.2)
    assert asked[0]["settings"] == MapSettings(replicas=3, steps=5, level=0.5)


def test_another_map_in_the_same_file_is_refused(rlviz, tmp_path):
    out = tmp_path / "m.png"
    assert rlviz(*TINY, "--out", out).exit_code == 0
    kept = out.with_suffix(".jsonl").read_text(encoding="utf-8")
    result = rlviz(*TINY, "--lr", ".5", "--out", out)
    assert result.exit_code == 2
    assert "m.jsonl holds another map (regime.lr 1.0, not 0.5); choose another file, or remove it" in one_line(result)
    assert out.with_suffix(".jsonl").read_text(encoding="utf-8") == kept


def test_ctrl_c_keeps_the_cells_that_are_done(rlviz, tmp_path, monkeypatch, default_signals):
    out, ran = tmp_path / "m.png", []

    def interrupted(*given):
        ran.append(given)
        if len(ran) == 2 + 3:  # two corners are tried before; the third cell is under way
            signal.raise_signal(signal.SIGINT)
        return run_pair(*given)

    monkeypatch.setattr(maps, "run_pair", interrupted)
    result = rlviz(*TINY, "--out", out)
    assert result.exit_code == 130, result.output
    assert "The cells that are done are kept; the same command goes on." in one_line(result)
    assert len(read_map(out.with_suffix(".jsonl")).cells) == 2 and not out.exists()
    assert rlviz(*TINY, "--out", out).exit_code == 0
    assert len(ran) == 2 + 3 + 2 + 2 and out.exists()
