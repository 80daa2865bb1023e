"""Maps: a cell is two runs of the table; a file goes on or is refused; what ships is true of its numbers."""

import math
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rlviz import DCPO, DR_GRPO, GRPO, PPO, TableTask, train_table
from rlviz.algorithms import TIS
from rlviz.cli import app
from rlviz.pieces.aggregation import sequence_sum, token_mean
from rlviz.study import MapSettings, borrow, read_map, regime_map
from rlviz.study.maps import SHIPPED, axis_values, compare_replicas, csv_text, table_task

FREE = replace(GRPO, kl=None)
PAIR = borrow(DCPO, FREE, ["bounds"]), FREE
QUICK = MapSettings(replicas=3, steps=2)
GRID = {"x_values": [1, 2], "y_values": [1, 2], "settings": QUICK}
WAYS = (0.30, *[0.01] * 10, *[0.6 / 9] * 9)  # of .4 right, a quarter rare


def test_a_cell_is_two_runs_of_the_table():
    settings = MapSettings(group_size=4, lr=0.7, replicas=6, steps=20, level=0.7, seed=3)
    cell = regime_map(*PAIR, x_values=[8], y_values=[2], settings=settings).result().set_index("measure")
    task = TableTask((*[1.0] * 11, *[0.0] * 9), start=WAYS)
    options = {"steps": 20, "group_size": 4, "groups": 2, "updates_per_rollout": 8, "lr": 0.7, "replicas": 6, "seed": 3}
    measures = {"accuracy": [], "rollouts": [], "dead": [], "entropy": []}
    for bounds in (DCPO.bounds, GRPO.bounds):
        run = train_table(replace(FREE, bounds=bounds, aggregate=token_mean), task, **options)
        p, first = run.accuracy, np.array([np.flatnonzero([*(row >= 0.7), True])[0] for row in run.accuracy])
        measures["accuracy"].append(p[:, -1])
        measures["rollouts"].append(np.minimum(first, 20.0))
        measures["dead"].append((p[:, :20] ** 4 + (1 - p[:, :20]) ** 4).mean(1))
        ends = zip(first, p, run.entropy, strict=True)  # entropy on the line between two rollouts
        between = [np.interp(0.7, a[n - 1 : n + 1], h[n - 1 : n + 1]) if n < 21 else np.nan for n, a, h in ends]
        measures["entropy"].append(np.array(between))
    for name, (mine, other) in measures.items():
        gaps = (mine - other)[np.isfinite(mine - other)]
        numbers = (gaps.mean(), gaps.std(ddof=1) / len(gaps) ** 0.5, len(gaps) / 6)
        assert tuple(cell.loc[name, ["difference", "error", "counted"]]) == pytest.approx(numbers, rel=1e-5), name
    assert abs(cell.loc["accuracy"].difference) > 0.001 and cell.iloc[0].algorithm == "GRPO with DCPO's bounds"


def test_the_table_by_hand():
    assert table_task(MapSettings()).start == pytest.approx(WAYS)
    assert table_task(MapSettings(rare=0.0)).start == pytest.approx((0.4, *[0.6 / 9] * 9))
    two = table_task(MapSettings(success=0.25, rare=0.2, noise=0.4, positions=2))  # each position right with √.25 = .5
    assert two.positions == 2 and two.start == pytest.approx((0.4, *[0.01] * 10, *[0.5 / 9] * 9))
    coin = 0.4 * 0.5**0.5
    assert two.success == pytest.approx((*[0.6 + coin] * 11, *[coin] * 9))
    spread = table_task(MapSettings(success=0.5, spread=1.0, prompts=3, rare=0.0))
    z = 0.9674215661  # the normal quantile of 5/6
    assert [row[0] for row in spread.starts] == pytest.approx([1 / (1 + math.exp(z)), 0.5, 1 / (1 + math.exp(-z))])


@pytest.mark.parametrize(
    ("mine", "other", "numbers"),  # difference, error, counted, sign
    [
        ((4.0, 2.0), (1.0, 1.0), (2.0, 1.0, 1.0, 0.0)),  # of 3 and 1: s = √2, s/√2 = 1, and 2 is not above 2 · 1
        ((1.0, 1.0, 1.0), (4.1, 2.1, 3.1), (-2.1, 1 / 3**0.5, 1.0, -1.0)),
        ((5.0, 5.0, math.nan, 5.0), (4.0, 4.0, 4.0, math.nan), (1.0, 0.0, 0.5, 1.0)),
        ((5.0, 5.0, math.nan, math.nan, 5.0), (4.0, 4.0, 4.0, 4.0, math.nan), (1.0, 0.0, 0.4, math.nan)),
        ((5.0, math.nan), (4.0, 4.0), (math.nan, math.nan, 0.5, math.nan)),
    ],
)
def test_replicas_are_compared_pair_by_pair(mine, other, numbers):
    row, columns = compare_replicas(np.array(mine), np.array(other)), ("difference", "error", "counted", "sign")
    assert [row[column] for column in columns] == pytest.approx(numbers, rel=1e-5, nan_ok=True)


def test_axes_have_as_many_values_as_were_asked_for_and_what_cannot_be_run_is_refused():
    assert axis_values("x", "groups", 5, None) == (1, 2, 4, 8, 16)  # by factors
    assert axis_values("x", "success", 3, None) == (0.05, 0.4, 0.75)  # by steps
    assert axis_values("x", "positions", 12, None) == tuple(range(1, 13))  # all differ, and end above 8
    for options, words in (
        ({"x": "groups"}, "x and y must be two settings"),
        ({"x_values": [2, 1]}, "x_values must grow"),
        ({"x_values": [1.5]}, "updates_per_rollout must be a whole number"),
        ({"algorithm": PPO}, "algorithm must learn from groups"),
        ({"algorithm": TIS}, "algorithm must need no teacher and no other sampler"),
        ({"out": "map.png"}, "out must end in .csv"),
    ):
        with pytest.raises(ValueError, match=words):
            regime_map(**{"algorithm": PAIR[0], "against": FREE, "settings": QUICK, **options})


def test_a_file_goes_on_and_one_of_another_map_is_refused(tmp_path):
    out = tmp_path / "here" / "m.csv"
    frame = regime_map(*PAIR, **GRID, out=out).result()
    pd.testing.assert_frame_equal(read_map(out), frame)
    text = out.read_text(encoding="utf-8")
    wider = replace(PAIR[0], bounds=replace(DCPO.bounds, eps_high=0.3))  # of the same name
    for changes in ({"settings": replace(QUICK, lr=0.5)}, {"x_values": [1, 4]}, {"algorithm": wider}):
        with pytest.raises(ValueError, match="holds another map"):
            regime_map(**{"algorithm": PAIR[0], "against": FREE, **GRID, **changes}, out=out)
    assert out.read_text(encoding="utf-8") == text
    out.write_text("\n".join(text.splitlines()[:-4]), encoding="utf-8")  # without the last cell's rows
    assert [job.key for job in regime_map(*PAIR, **GRID, out=out).missing] == [(2, 2)]
    pd.testing.assert_frame_equal(regime_map(*PAIR, **GRID, out=out).result(), frame)
    out.write_text("years of work\n", encoding="utf-8")
    with pytest.raises(ValueError, match="is there already"):
        regime_map(*PAIR, **GRID, out=out)
    assert out.read_text(encoding="utf-8") == "years of work\n"


CORNERS = {  # (x, y) → the sign that the map's sentence rests on there
    "dcpo-limits": {(16, 1): 1, (32, 4): 1, (16, 16): -1, (32, 32): -1, (1, 1): 0, (1, 32): 0},
    "dupo-repeats": {(0.02, 2): -1, (0.02, 8): -1, (0.1, 2): -1, (0.3, 32): 0, (0.6, 32): 0, (0.85, 64): 0},
    "gspo-ratio": {(8, 32): 1, (8, 16): 1, (4, 8): 1, (1, 32): 0, (1, 1): 0, (8, 1): 0},
    "clip-higher-noise": {(1, 0): 0, (1, 0.9): 0, (8, 0): -1, (32, 0.4): -1, (32, 0.9): 0},
    "std-division": {(0, 0.05): -1, (0, 0.8): -1, (3, 0.05): -1, (3, 0.8): -1},
    "std-division-tuned": {(0, 0.05): -1, (3, 0.8): -1},
}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_map_s_sentence_is_true_of_its_numbers(name):
    frame = read_map(name)
    cells = frame[frame["measure"] == SHIPPED[name]["measure"]].set_index([*frame.columns[:2]])
    for place, sign in CORNERS[name].items():
        cell = cells.loc[place]
        assert cell["sign"] == sign == np.sign(cell.difference) * (abs(cell.difference) > 2 * cell.error), place


def test_a_shipped_map_is_what_its_command_makes(tmp_path):
    """One cell, the first column and row, is taken away and made again by the command that made them all."""
    name = "gspo-ratio"
    frame, out = read_map(name), tmp_path / "m.csv"
    x, y = frame.columns[:2]
    first = (frame[x] == frame[x].min()) & (frame[y] == frame[y].min())
    out.write_text(csv_text(frame[~first]), encoding="utf-8")
    _, *arguments = shlex.split(SHIPPED[name]["command"])
    result = CliRunner().invoke(app, [*arguments, "--jobs", "1", "--out", str(tmp_path / "m.png")])
    assert result.exit_code == 0, result.output
    pd.testing.assert_frame_equal(read_map(out), frame, rtol=1e-4)


def test_only_the_borrowed_slots_are_the_other_s_and_the_aggregation_changes_nothing():
    both = borrow(DR_GRPO, FREE, ["advantage", " bounds"])
    assert both.slots() == {**FREE.slots(), "advantage": DR_GRPO.advantage, "bounds": DR_GRPO.bounds}
    with pytest.raises(ValueError, match="slot 'bound' is not known; did you mean bounds"):
        borrow(DCPO, FREE, ["bound"])
    # all responses of a table are equally long: another aggregation would only be another learning rate
    frame = regime_map(GRPO, replace(GRPO, aggregate=sequence_sum), cells=(1, 1), settings=QUICK).result()
    assert (frame[["mine", "other"]].nunique(axis=1) <= 1).all() and (frame["mine"] == frame["other"]).any()
