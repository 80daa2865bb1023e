"""Regime maps: a cell is two runs of the table, or of `train`; certainty is a rule; what a file holds; what carries over."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlviz import DCPO, DR_GRPO, DUPO, GRPO, TableTask, TrainSettings, train, train_table
from rlviz.pictures.map import map_curve, rule
from rlviz.pieces.aggregation import token_mean
from rlviz.study import MapSettings, Measured, PolicyRegime, Regime, borrow, confirm, policies, read_map, regime_map
from rlviz.study.cells import (
    Course,
    best_rate,
    compared,
    course,
    kept_points,
    measures,
    run_pair,
    table_task,
    train_cell,
)
from rlviz.study.confirm import SEEDS, TRIALS, least, outcome, pairs, rows_of
from rlviz.study.policies import noisy, train_policies, train_policy
from rlviz.study.regime import AXES, values_of
from rlviz.study.shipped import SHIPPED
from rlviz.tabular import TableRun
from rlviz.training import find_task
from small_models.evaluation import evaluate
from small_models.policies import load_policy

FREE = replace(GRPO, kl=None)
QUICK = MapSettings(replicas=3, steps=2)
SMALL, FEW = PolicyRegime(updates_per_rollout=2, group_size=2, groups=4, lr=1e-3), MapSettings.for_policy(steps=3)
WAYS = (0.30, *[0.01] * 10, *[0.6 / 9] * 9)  # the table of MEASURED below, by hand
# entropy at accuracy .9, DCPO's limits less 0.2's, by a script that shares no line with rlviz: (updates, groups) → nats
MEASURED = {(1, 1): 0.0, (1, 16): 0.0, (16, 1): 0.264, (16, 16): -0.256}


def begin(out=None, **given):
    given = {"x_values": [1, 2], "y_values": [1, 2], "settings": QUICK, **given}
    return regime_map(borrow(DCPO, FREE, ["bounds"]), FREE, out=out, **given)


# a cell


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
    first = compared(*(one.entropy[np.arange(24), (one.accuracy >= 0.9).argmax(1)] for one in (mine, other)))
    found = compared(*(measures(one, 0.9)["entropy"] for one in (mine, other)))
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


@pytest.mark.parametrize(
    ("difference", "error", "counted", "sign"),
    [(0.2, 0.1, 1, 0), (0.2001, 0.1, 1, 1), (-0.2001, 0.1, 0.5, -1), (0.0, 0.0, 1, 0), (5.0, 0.1, 0.49, math.nan)],
)
def test_certain_is_more_than_two_standard_errors_in_half_of_the_replicas(difference, error, counted, sign):
    assert Measured(1, 0, difference, error, counted).sign == pytest.approx(sign, nan_ok=True)
    found = compared(np.array([1.0, 2.0, 3.0, np.nan]), np.array([0.0, 2.0, 1.0, 5.0]))
    assert (found.mine, found.other, found.difference, found.counted) == (2.0, 1.0, 1.0, 0.75)
    assert found.error == pytest.approx(1 / 3**0.5)  # gaps 1, 0, 2: standard deviation 1
    assert math.isnan(compared(np.array([np.nan, 1.0]), np.array([1.0, np.nan])).sign)


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


# on a policy


def test_a_run_is_train_s_and_is_looked_at_after_every_other_rollout():
    found = train_policy(FREE, SMALL, FEW, seed=5)
    policy, task = load_policy("trip", device="cpu"), find_task("trip")
    given = {"num_prompts": 4, "group_size": 2, "updates_per_rollout": 2, "lr": 1e-3, "lr_warmup_steps": 0}
    seen, dead = [evaluate(policy, task)], []
    for record in train(policy, task, FREE, TrainSettings(steps=3, seed=5, evaluate_every=0, **given)):
        dead.append(record.zero_variance_groups)
        seen.append(evaluate(policy, task))
    looks = [seen[0], seen[2], seen[3]]  # the last rollout always
    assert found.rollouts.tolist() == [0, 2, 3] and found.dead.tolist() == [dead]
    assert found.accuracy.tolist() == [[one.accuracy for one in looks]]
    assert found.entropy.tolist() == [[one.entropy for one in looks]]
    later = Course(np.array([0, 2, 5]), np.array([[0.4, 0.5, 0.7], [0.4] * 3]), np.zeros((2, 3)), np.zeros((2, 5)))
    # the rollouts to a level are those looked at
    assert [measures(later, level)["rollouts"].tolist() for level in (0.6, 0.45)] == [[5, 5], [2, 5]]


def test_seeds_are_the_map_s_own_and_a_rate_is_tuned_on_others(monkeypatch):
    asked = []

    def noted(algorithm, regime, settings, seed):
        asked.append((regime.lr, seed))
        return Course(np.array([0, 2]), np.array([[0.1, regime.lr]]), np.zeros((1, 2)), np.zeros((1, 2)))

    monkeypatch.setattr(policies, "train_policy", noted)
    assert train_policies(FREE, SMALL, replace(FEW, replicas=3, seed=2)).accuracy.shape == (3, 2)
    assert asked == [(1e-3, 2000), (1e-3, 2001), (1e-3, 2002)]
    assert best_rate(FREE, SMALL, replace(FEW, replicas=2)) == 4e-3
    assert {seed for _, seed in asked[3:]} == {1000, 1001}


def test_noise_throws_a_coin_for_that_share_of_the_checks_and_leaves_the_task_alone():
    task = find_task("trip")
    prompt = task.train_prompts[0]
    right, wrong = task.gold(prompt), "abc"
    for noise, passed in ((0.0, (1.0, 0.0)), (0.4, (0.8, 0.2)), (1.0, (0.5, 0.5))):
        other = noisy(task, noise, seed=1)
        for response, share in zip((right, wrong), passed, strict=True):
            grades = [other.grade(prompt, response) for _ in range(4000)]
            assert np.mean([grade.correct for grade in grades]) == pytest.approx(share, abs=0.03)  # 4 standard errors
            assert all(grade.format == task.grade(prompt, response).format for grade in grades[:5])
    assert task.grade(prompt, right).correct and not task.grade(prompt, wrong).correct


# a map and its file


def test_a_map_s_rows_are_its_cells_and_are_read_again_but_for_a_torn_line(tmp_path):
    out = tmp_path / "map.jsonl"
    found = begin(out).result()
    head, *rows = [line.split(",") for line in found.to_csv().splitlines()]
    assert head[:5] == ["updates_per_rollout", "groups", "measure", "algorithm", "against"] and len(rows) == 4 * 4
    names = ("accuracy", "entropy", "rollouts", "dead")
    assert [row[:3] for row in rows] == [[x, y, name] for x in "12" for y in "12" for name in names]
    frame = found.frame.set_index(["updates_per_rollout", "groups", "measure"])
    for (column, row), cell in found.cells.items():
        numbers, measured = frame.loc[column + 1, row + 1, "accuracy"], cell.measured["accuracy"]
        assert numbers["difference"] == measured.difference == found.measured("accuracy", "difference")[row, column]
        assert tuple(numbers[["lr_mine", "lr_other"]]) == cell.rates
    assert float(rows[-4][7]) == pytest.approx(found.cells[1, 1].measured["accuracy"].difference, rel=1e-5)
    whole = out.read_text()
    with out.open("a") as file:
        file.write('{"cell":[0,')  # the power went
    assert read_map(out).to_csv() == found.to_csv() and begin(out).missing == [] and out.read_text() == whole


def test_a_map_on_a_policy_says_what_it_is(tmp_path):
    out = tmp_path / "m.jsonl"
    begin(out, y_values=[4], regime=SMALL, settings=replace(FEW, replicas=2)).result()
    found = read_map(out)
    assert found.complete and found.regime((1, 0)) == SMALL
    assert found.cells[0, 0].measured["accuracy"].difference == 0  # with one update no limit matters
    assert "(2 seeds on trip); learning rate 0.001 for both" in rule(map_curve(out, column=2))


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


def test_slots_are_borrowed_by_name():
    mixed = borrow(DUPO, FREE, ["select", "bounds"])
    assert (mixed.select, mixed.bounds, mixed.advantage) == (DUPO.select, DUPO.bounds, FREE.advantage)
    assert mixed.name == "GRPO with DUPO's select and bounds"


@pytest.mark.parametrize("text", ["", "{}\n", "years of work\n", '{"x": {"name": "lr"}}\n', "[]\n{}\n"])
def test_a_file_that_is_no_map_is_refused_and_left_alone(text, tmp_path):
    file = tmp_path / "map.jsonl"
    file.write_text(text)
    for read in (read_map, begin):
        with pytest.raises(ValueError, match=r"map\.jsonl is no map that this version of rlviz can read"):
            read(file)
    assert file.read_text() == text


# what carries over


UP, FLAT = (
    [(1.2, 1.0), (1.3, 1.0), (1.1, 1.0)],
    [(1.1, 1.0), (0.9, 1.0), (1.0, 1.0)],
)  # mean .2, and 0; error .1/√3 = .058


@pytest.mark.parametrize(
    ("sign", "found", "least", "said"),
    [
        (1, UP, 0.1, "carries over (+0.2 ± 0.058)"),
        (-1, UP, 0.1, "is reversed (+0.2 ± 0.058)"),
        (1, FLAT, 0.1, "does not carry over"),
        (0, FLAT, 0.12, "carries over"),  # 2 standard errors are .115
        (0, FLAT, 0.11, "is open"),
        (0, UP, 0.32, "carries over"),  # from .085 to .315
        (0, UP, 0.3, "is open"),
        (0, UP, 0.09, "is open"),
        (0, UP, 0.08, "does not carry over"),
        (1, [*UP[:2], (math.nan, 1.0)], 0.1, "could not be measured (2 of 3 seeds)"),
        (1, [*UP, (math.nan, 1.0)], 0.1, "carries over (+0.2 ± 0.058, 3 of 4 seeds)"),
    ],
)
def test_the_rule_by_hand(sign, found, least, said):
    assert outcome(sign, found, least).startswith(said)


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: "-".join(trial.key))
def test_each_trial_is_of_a_cell_and_has_its_seeds(trial):
    found, place = read_map(SHIPPED[trial.map].file), (trial.column - 1, trial.row - 1)
    cell, regime = found.cells[place].measured[found.plan["measure"]], found.regime(place)
    assert trial.sign == cell.sign or (trial.sign == 0 and abs(cell.difference) < least(trial))
    assert [int(row["seed"]) for row in rows_of(trial)] == [*range(SEEDS)] and len(pairs(trial)) == SEEDS
    for name in ("updates_per_rollout", "group_size", "noise"):
        assert getattr(trial.regime, name) == getattr(regime, name)
    assert trial.settings.rates == found.settings.rates
    rates = {(row["lr_mine"], row["lr_other"]) for row in rows_of(trial)}
    assert len(rates) == 1 and (trial.settings.rates == "tuned" or rates == {(f"{trial.regime.lr:g}",) * 2})
    assert found.plan["algorithm"]["name"] == confirm.algorithms(trial)[0].name
    assert (
        len({(one.column, one.row) for one in TRIALS if one.map == trial.map}) == 2
    )  # every map is tried at two cells


def test_a_sentence_names_the_rate_where_a_cell_was_tried_at_two():
    said = confirm.carried("gspo-ratio")
    assert said.startswith(f"On small transformers, {SEEDS} seeds: cell (6, 2) ")
    assert "cell (6, 5) at learning rate 0.0003 " in said and "cell (6, 5) at learning rate 0.0001 " in said
