"""`train_seeds` trains the same start anew for each seed: its runs are those of `train`, one after the other."""

from dataclasses import replace

import torch

from rlviz import load_policy, train
from rlviz.runs.seeds import train_seeds
from rlviz.training import LearnedReward, TrainSettings
from small_models.scorers import RewardModel

TINY = TrainSettings(steps=2, num_prompts=3, group_size=4, evaluate_every=0, lr_warmup_steps=0)


def test_each_seed_trains_the_same_start_as_train_would():
    runs, policies = train_seeds("chain", "chain", "grpo", TINY, seeds=(1, 0))
    for seed, records, policy in zip((1, 0), runs, policies, strict=True):
        alone = load_policy("chain")
        expected = list(train(alone, "chain", "grpo", replace(TINY, seed=seed)))
        assert [record.loss for record in records] == [record.loss for record in expected]
        for ours, theirs in zip(policy.model.parameters(), alone.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert runs[0][0].loss != runs[1][0].loss


def test_a_judge_is_the_seeds_own():
    start = load_policy("chain")
    models = [RewardModel.of(start), RewardModel.of(start)]
    with torch.no_grad():
        for parameter in models[1].scorer.parameters():
            parameter.add_(0.1)
    judges = [LearnedReward(model, [], [], 0.5) for model in models]
    runs, _ = train_seeds("chain", "chain", "grpo", replace(TINY, steps=1), (1,), judges=judges)
    theirs = [
        next(train(load_policy("chain"), "chain", "grpo", replace(TINY, steps=1, seed=1), reward_model=model)).reward
        for model in models
    ]
    assert runs[0][0].reward == theirs[1] != theirs[0]
