"""The tabular playground trains as a regime map's cell does, and a map's link brings exactly the cell's settings."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qsl

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, GRPO
from rlviz.page.tracing import evaluate
from rlviz.pictures import explore_map, explore_tables
from rlviz.pictures.entropy import REPLICAS
from rlviz.pictures.map import address, find_map
from rlviz.pictures.tables import BORROWED, OF_MAPS, STEPS, TABLES, TRAINED, paid, start_of, tables_curve
from rlviz.pieces.aggregation import token_mean
from rlviz.study.cells import course, measures, table_task
from rlviz.study.regime import Regime
from rlviz.study.shipped import SHIPPED
from rlviz.tabular import train_table

RUNNABLE = ("dcpo-limits", "dupo-repeats", "gspo-ratio", "clip-higher-noise")
AS_TENSORS = {"success": 0.1, "rare": 0.75, "noise": 0.0, "positions": 1, "lr": 1.0, "updates_per_rollout": 4}


def test_the_table_at_first_is_the_maps():
    for given in ({}, {"success": 0.05, "rare": 0.9, "positions": 6}, {"noise": 0.4, "positions": 2}):
        regime = Regime(**{"rare": 0.75, "success": 0.1, **given})
        numbers = {
            name: torch.tensor(float(getattr(regime, name))) for name in ("success", "rare", "noise", "positions")
        }
        task = table_task(regime)
        probabilities = start_of(numbers["success"].double(), numbers["rare"].double(), numbers["positions"].double())
        np.testing.assert_allclose(probabilities, task.starts[0], rtol=1e-6)
        good = torch.tensor([1.0] * 11 + [0.0] * 9, dtype=torch.double)
        checks = paid(good, numbers["noise"].double(), numbers["positions"].double())
        np.testing.assert_allclose(checks, task.success, rtol=1e-6)


def run_here(algorithm, against, regime, map_of, map_at):
    """Return what the curve says of both, and the maps' measures of the same runs by `train_table`."""
    generator, shape = torch.Generator().manual_seed(3), (REPLICAS, regime.positions, regime.groups * regime.group_size)
    draws, luck = [], []
    for _ in range(STEPS):
        draws.append(torch.rand(shape, generator=generator, dtype=torch.double))
        of_groups = (REPLICAS, regime.groups * regime.group_size)
        luck.append(torch.rand(of_groups, generator=generator, dtype=torch.double).view(REPLICAS, regime.groups, -1))
    of_tokens = (STEPS, REPLICAS, regime.positions, regime.groups, regime.group_size)
    given = {name: float(getattr(regime, name)) for name in AS_TENSORS}
    given |= {"group_size": regime.group_size, "step": 5, "kl_weight": 0.0, "map_at": map_at}
    given |= {
        "map_of": float(OF_MAPS.index(map_of)),
        "draws": torch.stack(draws).view(of_tokens),
        "luck": torch.stack(luck),
    }
    given |= {"good": torch.tensor([1.0] * 11 + [0.0] * 9, dtype=torch.double)}
    task, found = table_task(regime), []
    for one in (algorithm, against):
        own = {name: number[0] for name, number in TRAINED.own(one).items()}
        got = evaluate(tables_curve(one), {**given, **own})
        run = train_table(
            replace(one, kl=None, aggregate=token_mean), task, steps=STEPS, group_size=regime.group_size,
            groups=regime.groups, updates_per_rollout=regime.updates_per_rollout, lr=regime.lr, replicas=REPLICAS, seed=3,
        )  # fmt: skip
        found.append((got, course(run, task, regime.group_size)))
    return found


@pytest.mark.parametrize("measure", ["accuracy", "entropy", "rollouts"])
def test_a_run_is_measured_as_a_map_measures_it(measure):
    """From the same draws the page's curve and the map's own runs have the same mean of the measure."""
    regime = Regime(success=0.1, rare=0.75, noise=0.2, positions=2, groups=2, updates_per_rollout=2)
    at = STEPS if measure == "accuracy" else 0.6
    for got, seen in run_here(DAPO, GRPO, regime, measure, at):
        np.testing.assert_allclose(got["accuracy"], seen.accuracy.mean(0), rtol=1e-6)
        np.testing.assert_allclose(got["entropy"], seen.entropy.mean(0), rtol=1e-6)
        wanted = measures(seen, 0.6)[measure]
        assert float(got["here"]) == pytest.approx(np.nanmean(wanted), rel=1e-6)
        assert float(got["compared"]) == 1 and float(got["missed"]) == 0


def test_a_level_that_few_tables_reach_is_no_number():
    regime = Regime(success=0.02, rare=0.9, updates_per_rollout=1, lr=0.05)
    (got, _), _ = run_here(DAPO, GRPO, regime, "entropy", 0.95)
    assert np.isnan(float(got["here"])) and float(got["missed"]) == 1 and float(got["compared"]) == 0


def test_a_map_links_to_tables_with_its_cell_where_they_have_its_settings():
    assert [name for name in SHIPPED if address(find_map(name))] == list(RUNNABLE)
    for name in RUNNABLE:
        found = find_map(name)
        for kind, one in zip(("algorithm", "against"), found.names, strict=True):
            stored = found.plan[kind]
            assert stored["name"] == one
            member = TRAINED.members()[one]
            widths = {key: value for key, value in stored["bounds"].items() if key != "piece"}
            assert widths == {key: getattr(member.bounds, key) for key in widths}
            for slot in ("ratio", "select", "surrogate"):
                assert getattr(member, slot).__name__ == stored[slot]["piece"].split(":")[1]
        for place in ((0, 0), (5, 5), (4, 0), (1, 3)):
            shown = explore_map(name, column=place[0] + 1, row=place[1] + 1)
            names, measure, cell = shown.names(), found.plan["measure"], found.cells[place]
            ways = [way for way in shown.idea.picture.ways if names.holds(way.when)]
            if np.isnan(cell.measured[measure].sign):
                assert not ways
                continue
            (way,) = ways
            told = dict(parse_qsl(names.fill(way.address), strict_parsing=True))
            asked = {key.removeprefix("tables."): value for key, value in told.items()}
            regime = found.regime(place)
            for setting in (
                "updates_per_rollout",
                "group_size",
                "groups",
                "success",
                "rare",
                "noise",
                "positions",
                "lr",
            ):
                assert float(asked[setting]) == getattr(regime, setting) in TABLES.controls[setting].stops, setting
            assert (asked["algorithm"], asked["beside"], asked["map_of"]) == (*found.names, measure)
            assert float(asked["map_mine"]) == pytest.approx(cell.measured[measure].mine, rel=1e-5)
            assert float(asked["map_other"]) == pytest.approx(cell.measured[measure].other, rel=1e-5)
            at = found.settings.rollouts(regime) if measure == "accuracy" else found.settings.level
            assert float(asked["map_at"]) == pytest.approx(at)


def test_there_is_no_link_for_a_cell_of_dead_groups_and_for_one_that_was_not_measured():
    shown = explore_map("gspo-ratio", measure="dead")
    assert not [way for way in shown.idea.picture.ways if shown.names().holds(way.when)]


def test_the_words_hold_a_run_against_the_map():
    told = {"map_of": "accuracy", "map_at": 40, "map_mine": 0.9, "map_other": 0.8, "updates_per_rollout": 1}
    shown = explore_tables(BORROWED['borrow(DCPO, GRPO, ["bounds"])'], beside=(GRPO,), **told)
    assert shown.conclusion.startswith(
        "The map's 64 tables: 0.9 against 0.8 (accuracy). These 16: GRPO with DCPO's bounds 0."
    )
    assert shown.call.startswith('explore_tables(borrow(DCPO, GRPO, ["bounds"]), beside=(GRPO,), updates_per_rollout=1')
    assert "one standard error is twice as wide" in shown.caption
