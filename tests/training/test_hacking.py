"""A learned reward is hacked without any planted bias, and a strong leash holds what was gained: short runs of two seeds."""

from dataclasses import replace

import pytest

from rlviz.algorithms import GRPO
from rlviz.pieces.kl import KLInLoss, k3
from rlviz.training import TrainSettings, history, learn_reward, train
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.tasks import Chain

TASK = Chain()
SETTINGS = TrainSettings(steps=25, num_prompts=16, lr=5e-4, evaluate_every=25, details_every=0)
FREE = replace(GRPO, kl=None)
LEASHED = replace(GRPO, kl=KLInLoss(beta=0.5, estimator=k3))


@pytest.fixture(scope="module", autouse=True)
def _enough_held_out_prompts():
    """Of 100, as most tests take, the standard error of an accuracy is .05, and what is asked for here is .08."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(evaluate.__kwdefaults__, "num_prompts", 500)
        yield


@pytest.fixture(scope="module")
def at_start():
    return evaluate(load_policy("chain", device="cpu"), TASK).accuracy


@pytest.fixture(scope="module", params=[0, 1])
def runs(request):
    """Return the histories of a free and of a leashed run on one reward model, and how good that is on held-out pairs."""
    seed = request.param
    learned = learn_reward(load_policy("chain", device="cpu"), TASK, seed=seed)
    settings = replace(SETTINGS, seed=seed)
    free, leashed = (
        history(list(train(load_policy("chain", device="cpu"), TASK, algorithm, settings, reward_model=learned.model)))
        for algorithm in (FREE, LEASHED)
    )
    return free, leashed, learned.held_out_accuracy


def test_reward_rises_while_accuracy_falls_and_a_strong_leash_holds_it(runs, at_start):
    free, leashed, held_out_pairs = runs
    assert held_out_pairs > 0.7  # no bad reward model
    for frame, least in ((free, 0.7), (leashed, 0.5)):
        assert frame["reward"].tail(5).mean() > frame["reward"].head(3).mean() + least
    assert free["held_out_accuracy"].iloc[-1] < at_start - 0.08
    assert leashed["held_out_accuracy"].iloc[-1] > at_start + 0.08
    agreement = free["reward_agreement"].astype(float)
    assert agreement.head(3).mean() > 0.7 and agreement.tail(5).mean() < agreement.head(3).mean() - 0.15
    assert leashed["kl"].tail(5).median() < free["kl"].tail(5).median() / 2
