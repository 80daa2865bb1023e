"""Maps: a cell is two runs of the table; certainty is a rule; a file goes on or is refused; what ships is true of its numbers."""

import math
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rlviz import DCPO, DR_GRPO, GRPO, PPO, TableTask, train_table
from rlviz.algorithms import TIS
from rlviz.cli import app
from rlviz.pieces.aggregation import sequence_sum, token_mean
from rlviz.study import MapSettings, borrow, read_map, regime_map
from rlviz.study.maps import FOLDER, SHIPPED, axis_values, compare_replicas, csv_text, table_task

FREE = replace(GRPO, kl=None)
PAIR = borrow(DCPO, FREE, ["bounds"]), FREE
QUICK = MapSettings(replicas=3, steps=2)
GRID = {"x_values": [1, 2], "y_values": [1, 2], "settings": QUICK}
WAYS = (0.30, *[0.01] * 10, *[0.6 / 9] * 9)  # of .4 right, a quarter rare
TRIALS = Path(__file__).parents[2] / "notebooks" / "experiments" / "map_cells.csv"


def test_a_cell_is_two_runs_of_the_table():
    settings = MapSettings(group_size=4, lr=0.7, replicas=6, steps=20, level=0.7, seed=3)
    found = regime_map(*PAIR, x_values=[8], y_values=[2], settings=settings).result().set_index("measure")
    task = TableTask((*[1.0] * 11, *[0.0] * 9), start=WAYS)
    given = {"steps": 20, "group_size": 4, "groups": 2, "updates_per_rollout": 8, "lr": 0.7, "replicas": 6, "seed": 3}
    runs = [
        train_table(replace(FREE, bounds=bounds, aggregate=token_mean), task, **given)
        for bounds in (DCPO.bounds, GRPO.bounds)
    ]
    reached = [np.array([np.flatnonzero([*(one >= 0.7), True])[0] for one in run.accuracy]) for run in runs]
    expected = {
        "accuracy": [run.accuracy[:, -1] for run in runs],
        "rollouts": [np.minimum(first, 20.0) for first in reached],
        "dead": [(run.accuracy[:, :20] ** 4 + (1 - run.accuracy[:, :20]) ** 4).mean(1) for run in runs],
    }
    entropies = []
    for run, first in zip(runs, reached, strict=True):
        parts = [slice(max(0, end - 1), end + 1) for end in first]
        rows = zip(parts, run.accuracy, run.entropy, strict=True)
        entropies.append(np.array([np.interp(0.7, a[s], h[s]) if a.max() >= 0.7 else np.nan for s, a, h in rows]))
    expected["entropy"] = entropies
    for name, (mine, other) in expected.items():
        gaps = (mine - other)[np.isfinite(mine - other)]
        row = found.loc[name]
        numbers = (gaps.mean(), gaps.std(ddof=1) / len(gaps) ** 0.5, len(gaps) / 6)
        assert (row.difference, row.error, row.counted) == pytest.approx(numbers, rel=1e-5), name
        assert row.mine - row.other == pytest.approx(row.difference, abs=1e-5)
    assert abs(found.loc["accuracy"].difference) > 0.001 and found.iloc[0].algorithm == "GRPO with DCPO's bounds"


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
    ("mine", "other", "difference", "error", "counted", "sign"),
    [
        ((4.0, 2.0), (1.0, 1.0), 2.0, 1.0, 1.0, 0.0),  # of 3 and 1: s = √2, s/√2 = 1, and 2 is not above 2 · 1
        ((4.1, 2.1, 3.1), (1.0, 1.0, 1.0), 2.1, 1 / 3**0.5, 1.0, 1.0),
        ((1.0, 1.0, 1.0), (4.1, 2.1, 3.1), -2.1, 1 / 3**0.5, 1.0, -1.0),
        ((5.0, 5.0, math.nan, 5.0), (4.0, 4.0, 4.0, math.nan), 1.0, 0.0, 0.5, 1.0),
        ((5.0, 5.0, math.nan, math.nan, 5.0), (4.0, 4.0, 4.0, 4.0, math.nan), 1.0, 0.0, 0.4, math.nan),
        ((5.0, math.nan), (4.0, 4.0), math.nan, math.nan, 0.5, math.nan),
    ],
)
def test_replicas_are_compared_pair_by_pair(mine, other, difference, error, counted, sign):
    found = compare_replicas(np.array(mine), np.array(other))
    numbers = [found[name] for name in ("difference", "error", "counted", "sign")]
    assert numbers == pytest.approx([difference, error, counted, sign], rel=1e-5, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "count", "values", "expected"),
    [
        ("groups", 5, None, (1, 2, 4, 8, 16)),  # by factors
        ("success", 3, None, (0.05, 0.4, 0.75)),  # by steps
        ("positions", 12, None, tuple(range(1, 13))),  # all differ, and end above 8
        ("lr", 1, (0.5, 2), (0.5, 2)),
    ],
)
def test_axes_have_as_many_values_as_were_asked_for(name, count, values, expected):
    assert axis_values("x", name, count, values) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x": "speed"}, "x 'speed' is not known"),
        ({"x": "groups"}, "x and y must be two settings"),
        ({"x_values": [2, 1]}, "x_values must grow"),
        ({"x_values": [1.5]}, "updates_per_rollout must be a whole number"),
        ({"cells": (0, 3)}, "cells must be from 1 to 100"),
        ({"x": "spread", "x_values": [0, 1]}, "spread must be 0 where there is one prompt"),
        ({"algorithm": PPO}, "algorithm must learn from groups"),
        ({"algorithm": TIS}, "algorithm must need no teacher and no other sampler"),
        ({"out": "map.png"}, "out must end in .csv"),
    ],
)
def test_what_cannot_be_run_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        regime_map(**{"algorithm": PAIR[0], "against": FREE, "settings": QUICK, **given})


def test_a_file_goes_on_and_one_of_another_map_is_refused(tmp_path):
    out = tmp_path / "here" / "m.csv"
    whole = regime_map(*PAIR, **GRID, out=out).result()
    pd.testing.assert_frame_equal(read_map(out), whole)
    text = out.read_text(encoding="utf-8")
    changes = ({"settings": replace(QUICK, lr=0.5)}, {"x_values": [1, 4]}, {"y": "group_size", "y_values": [2]})
    for changed in changes:
        with pytest.raises(ValueError, match="holds another map"):
            regime_map(*PAIR, **{**GRID, **changed}, out=out)
    wider = replace(PAIR[0], bounds=replace(DCPO.bounds, eps_high=0.3))  # of the same name
    with pytest.raises(ValueError, match="holds another map"):
        regime_map(wider, FREE, **GRID, out=out)
    assert out.read_text(encoding="utf-8") == text
    out.write_text(text[:-200], encoding="utf-8")  # within the last cell's rows
    assert [job.key for job in regime_map(*PAIR, **GRID, out=out).missing] == [(2, 2)]
    pd.testing.assert_frame_equal(regime_map(*PAIR, **GRID, out=out).result(), whole)
    out.write_text(
        text.splitlines(keepends=True)[0], encoding="utf-8"
    )  # stopped before the first cell: any map may begin
    other = {**GRID, "y": "group_size", "y_values": [2]}
    pd.testing.assert_frame_equal(regime_map(*PAIR, **other, out=out).result(), read_map(out))
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


def of_its_own_measure(name):
    frame = read_map(name)
    x, y = frame.columns[:2]
    cells = frame[frame["measure"] == SHIPPED[name]["measure"]].set_index([x, y])
    assert len(cells) == 36
    return cells["difference"].unstack().to_numpy(), cells["sign"].unstack().to_numpy(), cells  # [x, y]


def test_the_sentences_are_true_of_the_numbers():
    assert {*CORNERS} == {*SHIPPED}
    for name, corners in CORNERS.items():
        _, _, cells = of_its_own_measure(name)
        for place, sign in corners.items():
            one = cells.loc[place]
            assert one["sign"] == sign == np.sign(one.difference) * (abs(one.difference) > 2 * one.error), (name, place)
    assert not of_its_own_measure("dcpo-limits")[0][0].any()  # one update
    clip, certain, _ = of_its_own_measure("clip-higher-noise")
    assert not (certain == 1).any() and np.abs(clip[certain == -1]).max() < 0.05
    _, ratio, _ = of_its_own_measure("gspo-ratio")
    assert not ratio[:, 0].any() and not ratio[0].any() and (ratio >= 0).all()
    assert (of_its_own_measure("std-division")[1] == -1).all()
    assert np.abs(of_its_own_measure("std-division-tuned")[0]).max() <= 0.001
    saved, repeats, _ = of_its_own_measure("dupo-repeats")
    assert (repeats <= 0).all() and saved.argmin() == 0  # the lowest success, the smallest groups
    assert not repeats[3:, 4:].any()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_command_makes_the_map(name, tmp_path):
    """One cell, the first column and row, is taken away and made again by the command that made them all."""
    frame, out = read_map(name), tmp_path / "m.csv"
    x, y = frame.columns[:2]
    first = (frame[x] == frame[x].min()) & (frame[y] == frame[y].min())
    out.write_text(csv_text(frame[~first]), encoding="utf-8")
    program, *arguments = shlex.split(SHIPPED[name]["command"])
    result = CliRunner().invoke(app, [*arguments, "--jobs", "1", "--out", str(tmp_path / "m.png")])
    assert program == "rlviz" and result.exit_code == 0, result.output
    pd.testing.assert_frame_equal(read_map(out), frame, rtol=1e-4)
    assert (FOLDER / f"{name}.csv.gz").stat().st_size < 4_000


def test_the_outcomes_of_the_trials_follow_from_their_numbers():
    trials = pd.read_csv(TRIALS)
    assert len(trials) == 14 and {*trials["map"]} == {*SHIPPED}
    least = {"accuracy": 0.05, "entropy": 0.1, "rollouts": 2.0}
    for one in trials.itertuples():
        low, high, smallest = one.difference - 2 * one.error, one.difference + 2 * one.error, least[one.measure]
        sign, predicted = (low > 0) - (high < 0), {"more": 1, "less": -1, "no difference": 0}[one.predicted]
        outcome = (
            {predicted: "carries over", -predicted: "is reversed", 0: "does not carry over"}[sign]
            if predicted
            else ("carries over" if -smallest < low and high < smallest else "is open")
        )
        assert one.outcome == ("could not be measured" if one.seeds < 3 else outcome), one


def test_only_the_borrowed_slots_are_the_other_s():
    found = borrow(DR_GRPO, FREE, ["advantage", " bounds"])
    expected = {**FREE.slots(), "advantage": DR_GRPO.advantage, "bounds": DR_GRPO.bounds}
    assert found.slots() == expected and found.name == "GRPO with Dr.GRPO's advantage and bounds"
    with pytest.raises(ValueError, match="slot 'bound' is not known; did you mean bounds"):
        borrow(DCPO, FREE, ["bound"])


def test_algorithms_that_differ_in_their_aggregation_alone_learn_the_same():
    """All responses of a table have the same length, so another aggregation would only be another learning rate."""
    frame = regime_map(GRPO, replace(GRPO, aggregate=sequence_sum), cells=(1, 1), settings=QUICK).result()
    assert (frame[["mine", "other"]].nunique(axis=1) <= 1).all() and (frame["mine"] == frame["other"]).any()
