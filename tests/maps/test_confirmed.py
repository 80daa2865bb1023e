"""What becomes of a map's cells on transformers is said by a rule, from the committed runs of each seed."""

import math
from dataclasses import replace

import pytest

from rlviz.study import MapSettings, confirm
from rlviz.study.confirm import COLUMNS, SEEDS, TRIALS, least, outcome, pairs, rows_of
from rlviz.study.maps import read_map
from rlviz.study.shipped import SHIPPED

IDS = [f"{trial.map}-{trial.column}-{trial.row}-{trial.regime.lr:g}" for trial in TRIALS]


def test_the_rule_by_hand():
    up = [(1.2, 1.0), (1.3, 1.0), (1.1, 1.0)]  # mean .2, standard error .1/√3 = .058
    assert outcome(1, up, 0.1) == "carries over (+0.2 ± 0.058)"
    assert outcome(-1, up, 0.1).startswith("is reversed")
    flat = [(1.1, 1.0), (0.9, 1.0), (1.0, 1.0)]  # mean 0, standard error .058
    assert outcome(1, flat, 0.1).startswith("does not carry over")
    for size, said in ((0.12, "carries over"), (0.11, "is open")):  # 2 standard errors are .115
        assert outcome(0, flat, size).startswith(said)
    for size, said in ((0.32, "carries over"), (0.3, "is open"), (0.09, "is open"), (0.08, "does not carry over")):
        assert outcome(0, up, size).startswith(said)  # from .085 to .315
    assert outcome(1, [*up[:2], (math.nan, 1.0)], 0.1) == "could not be measured (2 of 3 seeds)"
    assert outcome(1, [*up, (math.nan, 1.0)], 0.1) == "carries over (+0.2 ± 0.058, 3 of 4 seeds)"


@pytest.mark.parametrize("trial", TRIALS, ids=IDS)
def test_each_trial_is_of_a_cell_and_has_its_seeds(trial):
    found = read_map(SHIPPED[trial.map].file)
    cell = found.cells[trial.column - 1, trial.row - 1].measured[found.plan["measure"]]
    assert trial.sign == cell.sign or (trial.sign == 0 and abs(cell.difference) < least(trial))
    assert [int(row["seed"]) for row in rows_of(trial)] == [*range(SEEDS)] and len(pairs(trial)) == SEEDS
    regime = found.regime((trial.column - 1, trial.row - 1))
    for name in ("updates_per_rollout", "group_size", "noise"):
        assert getattr(trial.regime, name) == getattr(regime, name)
    assert trial.settings.rates == found.settings.rates
    rates = {(row["lr_mine"], row["lr_other"]) for row in rows_of(trial)}
    assert len(rates) == 1 and (trial.settings.rates == "tuned" or rates == {(f"{trial.regime.lr:g}",) * 2})
    assert found.plan["algorithm"]["name"] == confirm.algorithms(trial)[0].name


def test_every_map_is_tried_at_two_cells():
    for name in SHIPPED:
        assert len({(trial.column, trial.row) for trial in TRIALS if trial.map == name}) == 2


def test_a_trial_goes_on_with_the_seeds_that_are_missing(monkeypatch):
    """Two rollouts of both algorithms from one start; the rates are those of the rows that are there."""
    before = [
        dict(zip(COLUMNS, ("", "", "", "", str(seed), "1e-05", "2e-05", "1", "2"), strict=True)) for seed in range(4)
    ]
    monkeypatch.setattr(confirm, "rows_of", lambda trial: before)
    small = replace(TRIALS[IDS.index("dupo-repeats-4-1-0.0003")].regime, groups=2)
    short = replace(TRIALS[IDS.index("dupo-repeats-4-1-0.0003")], regime=small)
    for level, expected in ((0.05, "0"), (0.99, "2")):  # there at once; out of reach
        (row,) = confirm.run(replace(short, settings=MapSettings(steps=2, level=level)))
        assert (row["seed"], row["lr_mine"], row["lr_other"]) == ("4", "1e-05", "2e-05")
        assert (row["mine"], row["other"]) == (expected, expected)


def test_a_sentence_names_the_rate_where_a_cell_was_tried_at_two():
    said = confirm.carried("gspo-ratio")
    assert said.startswith(f"On small transformers, {SEEDS} seeds: cell (6, 2) ")
    assert "cell (6, 5) at learning rate 0.0003 " in said and "cell (6, 5) at learning rate 0.0001 " in said
