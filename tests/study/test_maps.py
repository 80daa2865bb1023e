"""Regime maps: a cell is two runs of the table, certainty is a rule, a map goes on where it was and is refused for another."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz import DCPO, DPO, DR_GRPO, DUPO, GRPO, GRPO_PROCESS, PPO, TableTask, train_table
from rlviz.pieces.aggregation import token_mean
from rlviz.study import MapSettings, Measured, Regime, borrow, making, read_map, regime_map, run_pair, table_task
from rlviz.study.cells import Course, best_rate, course, kept_points, measures, paired, train_cell
from rlviz.study.regime import AXES, values_of
from rlviz.tabular import TableRun

FREE = replace(GRPO, kl=None)
QUICK = MapSettings(replicas=3, steps=2)
WAYS = (0.30, *[0.01] * 10, *[0.6 / 9] * 9)  # the table of MEASURED below, by hand
# entropy at accuracy .9, DCPO's limits less 0.2's, by a script that shares no line with rlviz.maps: (updates, groups) → nats
MEASURED = {(1, 1): 0.0, (1, 16): 0.0, (16, 1): 0.264, (16, 16): -0.256}


def begin(out=None, **given):
    given = {"x_values": [1, 2], "y_values": [1, 2], "settings": QUICK, **given}
    return regime_map(borrow(DCPO, FREE, ["bounds"]), FREE, out=out, **given)


def entropy_between(run, level):
    """Return the same as rlviz does, by numpy's own interpolation, a replica at a time."""
    found = []
    for accuracy, entropy in zip(run.accuracy, run.entropy, strict=True):
        there = np.flatnonzero(accuracy >= level)
        if not len(there):
            found.append(np.nan)
            continue
        two = slice(there[0] - 1, there[0] + 1)
        found.append(np.interp(level, accuracy[two], entropy[two]))
    return np.array(found)


def test_a_cell_is_two_runs_of_the_table():
    regime = Regime(updates_per_rollout=8, groups=2, group_size=4, lr=0.7)
    cell = run_pair(borrow(DCPO, FREE, ["bounds"]), FREE, regime, MapSettings(replicas=6, steps=20, level=0.7, seed=3))
    task = TableTask((*[1.0] * 11, *[0.0] * 9), start=WAYS)
    given = {"steps": 20, "group_size": 4, "groups": 2, "updates_per_rollout": 8, "lr": 0.7, "replicas": 6, "seed": 3}
    mine, other = (
        train_table(replace(FREE, bounds=bounds, aggregate=token_mean), task, **given)
        for bounds in (DCPO.bounds, GRPO.bounds)
    )
    expected = {
        "accuracy": (mine.accuracy[:, -1], other.accuracy[:, -1]),
        "entropy": (entropy_between(mine, 0.7), entropy_between(other, 0.7)),
        "rollouts": tuple(np.nan_to_num(run.steps_to_accuracy(0.7), nan=20) for run in (mine, other)),
    }
    for name, (first, second) in expected.items():
        gaps = (first - second)[np.isfinite(first - second)]
        found = cell.measured[name]
        assert found.difference == pytest.approx(gaps.mean(), rel=1e-9), name
        assert found.error == pytest.approx(gaps.std(ddof=1) / len(gaps) ** 0.5, rel=1e-9)
        assert found.counted == len(gaps) / 6
    at = cell.rollouts.astype(int)
    assert (at[0], at[-1]) == (0, 20)
    for place, run in enumerate((mine, other)):
        np.testing.assert_allclose(cell.accuracy[place, 0], run.accuracy[:, at].mean(0), rtol=1e-9)
        np.testing.assert_allclose(cell.entropy[place, 1], run.entropy[:, at].std(0, ddof=1) / 6**0.5, atol=1e-12)


@pytest.mark.parametrize("corner", MEASURED)
def test_the_corners_that_were_measured_before(corner):
    """With 24 replicas in place of 64: within three standard errors of the figure in MEASURED.

    Those are entropies after the first rollout that reaches .9; the map's are at .9 itself, of the same sign and smaller.
    """
    updates, groups = corner
    regime, settings = Regime(updates_per_rollout=updates, groups=groups), MapSettings(replicas=24, steps=60, level=0.9)
    mine, other = (train_cell(each, regime, settings) for each in (borrow(DCPO, FREE, ["bounds"]), FREE))
    first = paired(*(one.entropy[np.arange(24), (one.accuracy >= 0.9).argmax(1)] for one in (mine, other)))
    found = paired(*(measures(one, 0.9)["entropy"] for one in (mine, other)))
    if MEASURED[corner] == 0:
        assert first.difference == 0
        assert found.difference == 0 or math.isnan(found.difference)
    else:
        assert abs(first.difference - MEASURED[corner]) <= 3 * first.error
        assert found.sign == first.sign == math.copysign(1, MEASURED[corner])


def test_the_table_of_a_regime_by_hand():
    assert table_task(Regime()).start == pytest.approx(WAYS)
    assert table_task(Regime(rare=0.0)).start == pytest.approx((0.4, *[0.6 / 9] * 9))
    assert table_task(Regime(rare=1.0)).success == (*[1.0] * 10, *[0.0] * 9)
    two = table_task(Regime(success=0.49, positions=2, rare=0.0, noise=1.0))
    assert two.start[0] == pytest.approx(0.7) and two.success == pytest.approx([0.5**0.5] * 10)
    assert table_task(Regime(noise=0.5)).success == pytest.approx((*[0.75] * 11, *[0.25] * 9))
    # quantiles 1/6, 1/2, 5/6 of a normal distribution lie at −.9674, 0, .9674; 1/(1 + e^.9674) = .27540
    hard, middle, easy = table_task(Regime(success=0.5, spread=1.0, prompts=3, rare=0.0)).start
    assert (hard[0], middle[0], easy[0]) == pytest.approx((0.27540, 0.5, 0.72460), abs=1e-5)


def test_a_prompt_s_own_start_reaches_its_rows():
    regime = Regime(success=0.5, spread=1.0, prompts=3, rare=0.0, positions=2)
    run = train_table(FREE, table_task(regime), steps=1, replicas=2)
    by_prompt = run.probabilities[0, 0, :, :, 0].prod(-1)
    assert by_prompt == pytest.approx([0.27540, 0.5, 0.72460], abs=1e-5)


def test_what_is_measured_of_runs_by_hand():
    """Two actions of a table with one good one; the coin's throw is in the rewards and not in the accuracy."""
    task = TableTask((0.75, *[0.25] * 9))
    good = np.array([[0.4, 0.6, 0.8], [0.4, 0.5, 0.6]])
    probabilities = np.zeros((2, 3, 1, 1, 10))
    probabilities[..., 0, 0, 0], probabilities[..., 0, 0, 1] = good, 1 - good
    of_run = {name: np.zeros((2, 2)) for name in ("reward", "clip_low", "clip_high", "clip_dual")}
    entropies = np.array([[1.0, 0.8, 0.5], [1.0, 0.9, 0.7]])
    found = course(TableRun(entropies, good, probabilities=probabilities, **of_run), task, group_size=2)
    np.testing.assert_allclose(found.accuracy, good)
    # rewarded .75 · .4 + .25 · .6 = .45: both right .2025, both wrong .3025
    # so it is before the second rollout, with .55, while the third, with .65, is none of this run's
    assert found.dead[0] == pytest.approx([0.505, 0.505])
    by_level = measures(found, 0.7)
    assert by_level["rollouts"].tolist() == [2, 2]  # the second never came so far, and counts with all of its rollouts
    # from .6 to .8 the entropy falls from .8 to .5: at .7 it is .65
    assert by_level["entropy"][0] == pytest.approx(0.65) and math.isnan(by_level["entropy"][1])
    assert by_level["accuracy"].tolist() == [0.8, 0.6]
    assert found.dead.shape == (2, 2) and by_level["dead"] == pytest.approx(found.dead.mean(1))
    at_once = measures(Course(found.rollouts, good, entropies, found.dead), 0.4)
    assert at_once["rollouts"].tolist() == [0, 0] and at_once["entropy"].tolist() == [1.0, 1.0]


def test_certain_is_more_than_two_standard_errors_in_half_of_the_replicas():
    found = paired(np.array([1.0, 2.0, 3.0, np.nan]), np.array([0.0, 2.0, 1.0, 5.0]))
    assert (found.mine, found.other, found.difference, found.counted) == (2.0, 1.0, 1.0, 0.75)
    assert found.error == pytest.approx(1 / 3**0.5)  # gaps 1, 0, 2: standard deviation 1
    assert found.sign == 0  # 1 ≤ 1.155
    assert Measured(1, 0, 0.2, 0.1, 1).sign == 0
    assert Measured(1, 0, 0.2001, 0.1, 1).sign == 1
    assert Measured(1, 0, -0.2001, 0.1, 0.5).sign == -1
    assert Measured(1, 0, 0.0, 0.0, 1).sign == 0
    assert math.isnan(Measured(1, 0, 5.0, 0.1, 0.49).sign)
    assert math.isnan(paired(np.array([np.nan, 1.0]), np.array([1.0, np.nan])).sign)


def test_axes_have_as_many_values_as_were_asked_for_and_each_makes_a_regime():
    for name in AXES:
        for count in (1, 2, 8, 12):
            values = values_of(name, count, "x")
            assert len(values) == count == len(set(values))
            assert values[0] == AXES[name].low
            for value in values:
                Regime(**{"prompts": 2, name: value})
    assert values_of("updates_per_rollout", 5, "x") == (1, 2, 4, 8, 16)
    assert values_of("lr", 3, "x") == (0.1, 0.632, 4.0)
    assert values_of("noise", 3, "x") == (0.0, 0.35, 0.7)


def test_steps_or_equal_responses():
    equal = MapSettings(steps=7, responses=100)
    assert MapSettings(steps=7).rollouts(Regime(groups=16)) == 7
    assert equal.rollouts(Regime(group_size=8, groups=3)) == 4  # 24 a rollout
    assert equal.rollouts(Regime(group_size=8, groups=2, prompts=100)) == 1
    assert kept_points(61)[-1] == 60 and len(kept_points(61)) == 13
    assert kept_points(3).tolist() == [0, 1, 2]


def test_a_tuned_rate_is_each_algorithm_s_best_on_other_draws():
    """Dr.GRPO's advantage is half of GRPO's at success .5, so it wants the longer steps of two."""
    regime, settings = Regime(success=0.5, updates_per_rollout=1, groups=4, lr=0.25), MapSettings(replicas=8, steps=10)
    same = run_pair(DR_GRPO, FREE, regime, settings)
    tuned = run_pair(DR_GRPO, FREE, regime, replace(settings, rates="tuned"))
    assert same.rates == (0.25, 0.25) and tuned.rates == (1.0, 1.0)  # far below what is too much for either
    by_hand = run_pair(DR_GRPO, FREE, replace(regime, lr=1.0), settings)
    assert tuned.measured == by_hand.measured
    scores = []
    for factor in (0.25, 0.5, 1, 2, 4):
        found = train_table(
            replace(FREE, aggregate=token_mean), table_task(regime), steps=10, group_size=8, groups=4,
            updates_per_rollout=1, lr=16 * factor, replicas=2, seed=1,
        )  # fmt: skip
        scores.append((found.probabilities[..., :11].sum(-1).mean(), 16 * factor))
    much = replace(regime, lr=16.0)
    assert best_rate(FREE, much, settings) == max(scores)[1]


def test_a_map_goes_on_where_it_was_to_the_same_map(tmp_path, monkeypatch):
    out, ran = tmp_path / "map.jsonl", []
    whole = begin().result()

    def noted(*given):
        ran.append(given[2])
        return run_pair(*given)

    monkeypatch.setattr(making, "run_pair", noted)
    first = begin(out)
    done = [next(first)[0] for _ in range(3)]
    first.close()
    assert len(ran) == 2 + 3  # two corners were tried before
    with out.open("a") as file:
        file.write('{"cell":[0,')  # the power went
    again = begin(out)
    assert set(again.done) == set(done) and 0.4 < again.share < 1
    assert again.result().complete and again.share == pytest.approx(1)
    assert len(ran) == 2 + 3 + 2 + 1
    assert read_map(out).to_csv() == whole.to_csv()
    assert len(out.read_text().splitlines()) == 5


def test_another_map_is_refused_and_another_measure_is_not(tmp_path):
    out = tmp_path / "map.jsonl"
    begin(out).result()
    assert begin(out, measure="entropy").share == pytest.approx(1)
    for given, said in (
        ({"regime": Regime(lr=0.5)}, r"another map \(regime.lr 1.0, not 0.5\)"),
        ({"settings": replace(QUICK, seed=1)}, r"settings.seed 0, not 1"),
        ({"x_values": [1, 4]}, r"x.values \[1, 2\], not \[1, 4\]"),
        ({"y": "group_size", "y_values": [2, 4]}, r"y.name groups, not group_size"),
    ):
        with pytest.raises(ValueError, match=said):
            begin(out, **given)
    with pytest.raises(ValueError, match=r"algorithm.name .*, not Dr.GRPO"):
        regime_map(replace(DR_GRPO, kl=None), FREE, x_values=[1, 2], y_values=[1, 2], settings=QUICK, out=out)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": "temperature"}, "x 'temperature' is not known; .*known: updates_per_rollout, group_size"),
        ({"x": "groups", "x_values": None}, "x and y must be two settings; both are groups"),
        ({"x_values": [2, 2]}, "x_values must grow from one to the next; got 2, 2"),
        ({"x_values": []}, "x_values must grow"),
        ({"x_values": [1, float("inf")]}, "x_values must be numbers, and finite; got inf"),
        ({"x_values": [1.5]}, "updates_per_rollout must be a whole number; got 1.5"),
        ({"y_values": [0, 1]}, "groups must be at least 1; got 0"),
        ({"x_values": None, "cells": (0, 2)}, "cells must be at least 1; got 0"),
        ({"x": "spread", "x_values": [0, 1]}, r"spread must be 0 where there is one prompt; got 1 \(see prompts\)"),
        ({"out": "map.csv"}, "out must end in .jsonl; got map.csv"),
        ({"x": "lr", "settings": replace(QUICK, rates="tuned")}, "rates cannot be tuned where lr is an axis"),
        ({"jobs": 0}, "jobs must be at least 1; got 0"),
        ({"measure": "speed"}, "measure must be one of accuracy, .*; got 'speed'"),
    ],
)
def test_refusals(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=said):
        begin(**given)


def test_what_a_table_cannot_train_is_refused_at_once():
    for algorithm in (PPO, GRPO_PROCESS):
        with pytest.raises(ValueError, match="algorithm"):
            regime_map(algorithm, FREE, settings=QUICK)
    with pytest.raises(ValueError, match="slot 'bound' is not known; did you mean bounds"):
        borrow(DCPO, GRPO, ["bound"])
    mixed = borrow(DUPO, FREE, ["select", "bounds"])
    assert (mixed.select, mixed.bounds, mixed.advantage) == (DUPO.select, DUPO.bounds, FREE.advantage)
    assert mixed.name == "GRPO with DUPO's select and bounds"


@pytest.mark.parametrize("text", ["", "{}\n", "years of work\n", '{"x": {"name": "lr"}}\n', "[]\n{}\n"])
def test_a_file_that_is_no_map_is_refused_and_left_alone(text, tmp_path):
    file = tmp_path / "map.jsonl"
    file.write_text(text)
    for read in (lambda: read_map(file), lambda: begin(file)):
        with pytest.raises(ValueError, match=r"map\.jsonl is no map that this version of rlviz can read"):
            read()
    assert file.read_text() == text


def test_the_csv_has_a_row_for_each_cell_and_measure():
    found = begin().result()
    head, *rows = [line.split(",") for line in found.to_csv().splitlines()]
    assert head[:5] == ["updates_per_rollout", "groups", "measure", "algorithm", "against"]
    assert len(rows) == 4 * 4
    assert [row[:3] for row in rows[:5]] == [
        *(["1", "1", name] for name in ("accuracy", "entropy", "rollouts", "dead")),
        ["1", "2", "accuracy"],
    ]
    of_accuracy = dict(zip(head, rows[-4], strict=True))
    stored = found.cells[1, 1].measured["accuracy"]
    assert float(of_accuracy["difference"]) == pytest.approx(stored.difference, rel=1e-5)
    assert json.loads(json.dumps(dict(found.plan)))["measure"] == "accuracy"


@pytest.mark.parametrize("option", ["algorithm", "against"])
def test_what_learns_from_pairs_is_refused_by_name(option):
    pair = (DPO, GRPO) if option == "algorithm" else (GRPO, DPO)
    with pytest.raises(ValueError, match=rf"^{option} must learn from groups of responses, as GRPO does; got DPO$"):
        regime_map(*pair)
