"""What becomes of a map's cells on transformers is said by a rule, from the committed runs of each seed."""

import math

import pytest

from rlviz.maps import confirm
from rlviz.maps.confirm import SEEDS, TRIALS, outcome, pairs
from rlviz.maps.shipped import SHIPPED
from rlviz.maps.stored import read_map


def test_the_rule_by_hand():
    up = [(1.2, 1.0), (1.3, 1.0), (1.1, 1.0)]  # mean .2, standard error .1/√3 = .058
    assert outcome(1, up) == "carries over (+0.2 ± 0.06)"
    assert outcome(-1, up).startswith("is reversed") and outcome(0, up).startswith("does not carry over")
    flat = [(1.1, 1.0), (0.9, 1.0), (1.0, 1.0)]
    assert outcome(0, flat).startswith("carries over") and outcome(1, flat).startswith("does not carry over")
    assert outcome(1, [*up[:2], (math.nan, 1.0)]) == "could not be measured (2 of 3 seeds)"
    assert outcome(1, [*up, (math.nan, 1.0)]) == "carries over (+0.2 ± 0.06, 3 of 4 seeds)"


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: f"{trial.map}-{trial.column}-{trial.row}")
def test_each_trial_is_of_a_cell_and_has_its_seeds(trial):
    found = read_map(SHIPPED[trial.map].file)
    cell = found.cells[trial.column - 1, trial.row - 1]
    assert cell.measured[found.plan["measure"]].sign == trial.sign
    assert found.plan["measure"] == trial.measure
    assert len(pairs(trial)) == SEEDS
    regime = found.regime((trial.column - 1, trial.row - 1))
    assert trial.settings.get("updates_per_rollout", 1) == regime.updates_per_rollout
    assert trial.settings.get("group_size", 8) == regime.group_size


def test_a_trial_trains_both_from_one_start(monkeypatch):
    """Two rollouts, a level that is there at once and one that is out of reach."""
    short = {**vars(TRIALS[2]), "rollouts": 2, "settings": {"num_prompts": 2, "group_size": 2}}
    assert confirm.values(confirm.Trial(**{**short, "level": 0.05}), 0) == (2.0, 2.0)
    both = confirm.values(confirm.Trial(**{**short, "level": 0.99, "measure": "entropy"}), 0)
    assert all(map(math.isnan, both))


def test_a_map_without_runs_says_so():
    assert confirm.carried("gspo-ratio") == "Not confirmed on transformers."
    assert confirm.carried("dupo-repeats").startswith(f"On small transformers, {SEEDS} seeds: cell (4, 1) ")
