"""A map's cell on a transformer: the runs of `train`, the same measures, noise as the table has it, and the map goes on."""

from dataclasses import replace

import numpy as np
import pytest

from rlviz import GRPO, TrainSettings, train
from rlviz.pictures.map import map_curve, rule
from rlviz.study import MapSettings, PolicyRegime, borrow, making, policies, read_map, regime_map
from rlviz.study.cells import Course, best_rate, measures
from rlviz.study.policies import noisy, train_policies, train_policy
from rlviz.training import find_task
from small_models.evaluation import evaluate
from small_models.policies import load_policy

FREE = replace(GRPO, kl=None)
SMALL = PolicyRegime(updates_per_rollout=2, group_size=2, groups=4, lr=1e-3)
FEW = MapSettings.for_policy(replicas=2, steps=3)


@pytest.fixture(autouse=True)
def quick_evaluations(monkeypatch):
    monkeypatch.setattr(policies, "HELD_OUT", 40)


def test_a_run_is_train_s_and_is_looked_at_after_every_other_rollout():
    found = train_policy(FREE, SMALL, FEW, seed=5)
    policy, task = load_policy("trip", device="cpu"), find_task("trip")
    given = {"num_prompts": 4, "group_size": 2, "updates_per_rollout": 2, "lr": 1e-3, "lr_warmup_steps": 0}
    seen, dead = [evaluate(policy, task, num_prompts=40)], []
    for record in train(policy, task, FREE, TrainSettings(steps=3, seed=5, evaluate_every=0, **given)):
        dead.append(record.zero_variance_groups)
        seen.append(evaluate(policy, task, num_prompts=40))
    looks = [seen[0], seen[2], seen[3]]  # the last rollout always
    assert found.rollouts.tolist() == [0, 2, 3]
    assert found.accuracy.tolist() == [[one.accuracy for one in looks]]
    assert found.entropy.tolist() == [[one.entropy for one in looks]]
    assert found.dead.tolist() == [dead]


def test_seeds_are_the_map_s_own_and_a_rate_is_tuned_on_others(monkeypatch):
    asked = []

    def noted(algorithm, regime, settings, seed):
        asked.append((regime.lr, seed))
        return Course(np.array([0, 2]), np.array([[0.1, regime.lr]]), np.zeros((1, 2)), np.zeros((1, 2)))

    monkeypatch.setattr(policies, "train_policy", noted)
    assert train_policies(FREE, SMALL, replace(FEW, replicas=3, seed=2)).accuracy.shape == (3, 2)
    assert asked == [(1e-3, 2000), (1e-3, 2001), (1e-3, 2002)]
    assert best_rate(FREE, SMALL, FEW) == 4e-3
    assert {seed for _, seed in asked[3:]} == {1000, 1001}


def test_the_rollouts_to_a_level_are_those_looked_at():
    seen = Course(np.array([0, 2, 5]), np.array([[0.4, 0.5, 0.7], [0.4, 0.4, 0.4]]), np.zeros((2, 3)), np.zeros((2, 5)))
    assert measures(seen, 0.6)["rollouts"].tolist() == [5, 5] and measures(seen, 0.45)["rollouts"].tolist() == [2, 5]


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


def test_a_map_on_a_policy_goes_on_and_says_what_it_is(tmp_path, monkeypatch):
    out = tmp_path / "m.jsonl"
    given = {"x_values": [1, 2], "y_values": [4], "regime": SMALL, "settings": FEW, "out": out}
    first = regime_map(borrow(GRPO, FREE, ["bounds"]), FREE, **given)
    place, _ = next(first)
    first.close()
    ran = []
    monkeypatch.setattr(making, "run_pair", lambda *pair: ran.append(pair[2]) or first.done[place])
    regime_map(borrow(GRPO, FREE, ["bounds"]), FREE, **given).result()
    assert len(ran) == 2 + 1  # two corners are tried before
    found = read_map(out)
    assert found.complete and found.regime((1, 0)) == SMALL
    assert found.cells[place].measured["accuracy"].difference == 0  # the bounds are its own
    assert "(2 seeds on trip); learning rate 0.001 for both" in rule(map_curve(out, column=2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": "success"}, "x cannot be success, which only the table has; with a policy it is updates_per_rollout"),
        ({"x": "grups"}, "x 'grups' is not known; did you mean group"),
        ({"regime": PolicyRegime(task="trap")}, "task 'trap' is not known; did you mean trip"),
        ({"x_values": [0]}, "updates_per_rollout must be at least 1; got 0"),
        ({"x": "noise", "x_values": [0.5, 2]}, "noise must be at least 0 and at most 1; got 2"),
    ],
)
def test_refusals(given, said):
    with pytest.raises(ValueError, match=said):
        regime_map(FREE, FREE, **{"regime": SMALL, "x_values": [1], "y_values": [4], **given})
