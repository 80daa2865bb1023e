"""`watch` hands on a run's records unchanged; in a notebook the runs of one cell share a picture that says the time left.

`train_seeds` trains the same start anew for each seed: its runs are those of `train`, one after the other.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlviz import load_policy
from rlviz.algorithms import DPO
from rlviz.runs import watching as module
from rlviz.runs.watching import train_seeds, watch
from rlviz.training import LearnedReward, PairSettings, TrainSettings, train
from small_models.scorers import RewardModel

pytestmark = pytest.mark.usefixtures("axes_stay")

TINY = TrainSettings(steps=3, num_prompts=3, group_size=4, evaluate_every=0)
SHORT = replace(TINY, steps=2, lr_warmup_steps=0)


@pytest.fixture
def notebook(monkeypatch):
    """A shell with a kernel, and what its cells display."""
    shell, displayed = SimpleNamespace(kernel=object(), execution_count=1), []

    def display(picture, display_id):
        displayed.append(picture)
        picture.saved = []
        return SimpleNamespace(update=lambda now: picture.saved.append((now.caption, now.png)))

    monkeypatch.setattr(module, "get_ipython", lambda: shell)
    monkeypatch.setattr(module, "display", display)
    monkeypatch.setattr(module, "REDRAW_SECONDS", 0.0)
    return shell, displayed


def rewards(records):
    return [record.reward for record in records]


def test_the_runs_of_a_cell_share_a_picture(notebook, monkeypatch):
    shell, displayed = notebook
    first = rewards(watch(train("chain", "grpo", TINY), name="one", of=3))
    (picture,) = displayed
    assert picture.caption.startswith("Run 1 of 3 (one), step 3 of 3, about ")
    second = rewards(watch(train("chain", "dapo", TINY), of=3))
    assert displayed == [picture] and [picture.data[f"r{number}_reward"] for number in (0, 1)] == [first, second]
    shell.execution_count = 2
    list(watch(train("chain", "grpo", TINY)))
    assert len(displayed) == 2 and " left" not in displayed[1].caption
    monkeypatch.setattr(module, "get_ipython", lambda: None)  # in a script: the same records, and no picture
    assert rewards(watch(train("chain", "grpo", TINY))) == first and len(displayed) == 2


def test_the_time_left_counts_the_runs_to_come(notebook, monkeypatch):
    _, displayed = notebook
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for record in watch(train("chain", "grpo", TINY), of=2):
        now[0] += 10
        picture = displayed[0]
        if record.step == 2:  # 20 s for 2 steps: 10 s a step, and 4 to go
            assert picture.seconds_left == pytest.approx(40.0)
            (response, *_), prompt = record.group, record.prompt
            text = f"{prompt} → {response.text} (reward {response.reward:.2f})."
            assert (
                picture.caption.endswith(f" It says: {text}") and "about 20 s left" in picture.caption
            )  # 10 s, as it drew


def test_a_run_that_is_left_early_ends(notebook):
    _, displayed = notebook
    records = watch(train("chain", "grpo", TINY))
    next(records)
    records.close()
    assert len(displayed[0].seeds[0]) == 1 and displayed[0].data["steps"] == 3  # the axes hold the run that was planned
    assert displayed[0].saved  # nothing comes that would be waited for


def test_runs_of_one_name_are_seeds_of_one_thing(notebook):
    _, displayed = notebook
    runs = [rewards(watch(train("chain", "grpo", replace(TINY, seed=seed)), name="a", of=3)) for seed in (0, 1)]
    (picture,) = displayed
    np.testing.assert_allclose(picture.data["r0_reward"], np.mean(runs, 0))
    seeds = np.array(picture.data["r0_reward_each"], float)
    np.testing.assert_array_equal(seeds[np.isfinite(seeds)], np.concatenate(runs))
    assert picture.caption.startswith("Run 2 of 3 (a), step 3 of 3, about ") and not picture.saved
    last = rewards(watch(train("chain", "dapo", TINY), name="b", of=3))
    np.testing.assert_allclose(picture.data["r0_reward"], np.mean(runs, 0))
    assert picture.data["r1_reward"] == last
    # what a saved notebook holds is the picture as it ended, once
    assert picture.saved == [(picture.caption, picture.png)]
    assert picture.caption.startswith("Run 3 of 3 (b), step 3 of 3: reward ")


def test_runs_on_pairs_are_handed_on(notebook):
    _, displayed = notebook
    records = list(watch(train("chain", DPO, PairSettings(steps=2, num_pairs=8, batch_size=4))))
    assert len(records) == 2 and not displayed


def test_each_seed_trains_the_same_start_as_train_would():
    runs, policies = train_seeds("chain", "chain", "grpo", SHORT, seeds=(1, 0))
    for seed, records, policy in zip((1, 0), runs, policies, strict=True):
        alone = load_policy("chain")
        expected = list(train(alone, "chain", "grpo", replace(SHORT, seed=seed)))
        assert [record.loss for record in records] == [record.loss for record in expected]
        for ours, theirs in zip(policy.model.parameters(), alone.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert runs[0][0].loss != runs[1][0].loss


def test_a_judge_is_the_seeds_own():
    start = load_policy("chain")
    models = [RewardModel.from_policy(start), RewardModel.from_policy(start)]
    with torch.no_grad():
        for parameter in models[1].scorer.parameters():
            parameter.add_(0.1)
    judges = [LearnedReward(model, [], [], 0.5) for model in models]
    runs, _ = train_seeds("chain", "chain", "grpo", replace(SHORT, steps=1), (1,), judges=judges)
    theirs = [
        next(train(load_policy("chain"), "chain", "grpo", replace(SHORT, steps=1, seed=1), reward_model=model)).reward
        for model in models
    ]
    assert runs[0][0].reward == theirs[1] != theirs[0]
