"""Rewards of steps and learned ones: every number where its token is, and what a refresh learns from."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rlviz.algorithms import GRPO
from rlviz.training import TrainSettings, resume, train
from rlviz.training.records import repeated
from rlviz.training.reward_model import REFRESH_STEPS, refresh
from rlviz.training.rewards import agreement, step_rewards
from small_models.pairs import Pair, make_pairs
from small_models.policies import load_policy
from small_models.sampling import Samples, encode_prompts, encode_responses
from small_models.scorers import RewardModel
from small_models.tasks import Chain
from small_models.taste import Preference

TASK = Chain()
NO_KL = replace(GRPO, kl=None)
SHORT = TrainSettings(steps=2, num_prompts=6, group_size=4, evaluate_every=0, details_every=0, lr=1e-3)


@pytest.fixture(scope="module")
def policy():
    return load_policy("chain", device="cpu")


@pytest.fixture(scope="module")
def learned(policy):
    """A reward model that learned nothing yet, and pairs."""
    model = RewardModel.from_policy(policy)
    torch.nn.init.normal_(model.scorer.head.weight, std=0.5, generator=torch.Generator().manual_seed(0))
    return SimpleNamespace(model=model, pairs=make_pairs(policy, TASK, 40, seed=3))


def start(algorithm=NO_KL, settings=SHORT, **kwargs):
    return train(load_policy("chain", device="cpu"), TASK, algorithm, settings, **kwargs)


def written(policy, prompts, texts):
    """Return given responses as if they had been sampled, [P][G]."""
    ids, prompt_mask = encode_prompts(policy, prompts)
    tokens, mask = encode_responses(policy, [text for row in texts for text in row])
    shape = len(texts), len(texts[0]), tokens.shape[-1]
    tokens, mask = tokens.reshape(shape), mask.reshape(shape)
    zeros = torch.zeros(shape)
    return Samples(ids, prompt_mask, tokens, mask, zeros, zeros, torch.zeros(shape[:2], dtype=torch.bool), mask & ~mask)


def test_rewards_of_steps_stand_on_the_tokens_that_end_them(policy):
    # 3 + 5 + 2 + 7 + 1: running sums 3 8 0 7 8
    prompts, texts = ["35271="], [["38078#8", "39078#8", "#8", "#1", "38"]]
    rewards, ends = step_rewards(policy, TASK, prompts, texts, written(policy, prompts, texts))
    assert rewards[0].tolist() == [
        [1, 1, 1, 1, 1, 0, 0, 1],
        [1, 0, 1, 1, 1, 0, 0, 1],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert ends[0].int().tolist() == [
        [1, 1, 1, 1, 1, 0, 0, 1],
        [1, 1, 1, 1, 1, 0, 0, 1],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0, 0, 0],
    ]


def test_steps_end_inside_longer_tokens_too():
    pieces = {5: "38", 6: "0", 7: "78#", 8: "8", 1: "$"}
    policy = SimpleNamespace(vocabulary=SimpleNamespace(decode=lambda ids: pieces[ids[0]]))
    tokens = torch.tensor([[[5, 6, 7, 8, 1]]])
    mask, zeros = torch.ones_like(tokens, dtype=torch.bool), torch.zeros(tokens.shape)
    samples = Samples(tokens[0], mask[0], tokens, mask, zeros, zeros, torch.zeros(1, 1, dtype=torch.bool), ~mask)
    rewards, ends = step_rewards(policy, TASK, ["35271="], [["38078#8"]], samples)
    assert rewards[0, 0].tolist() == [1, 1, 1, 0, 1]
    assert ends[0, 0].tolist() == [True, True, True, False, True]


def test_repetition_by_hand(policy):
    samples = written(policy, ["11111="], [["1112#2", "#3"]])
    assert repeated(samples) == pytest.approx(2 / 10)  # 11, 11 among 7 + 3 tokens


class TestLearnedReward:
    def test_its_scores_are_the_rewards(self, learned):
        run = start(reward_model=learned.model)
        rollout = run.collect()
        torch.testing.assert_close(rollout.rewards, learned.model.score(rollout.samples))
        correct = torch.tensor([[float(g.correct) for g in row] for row in rollout.sampled.grades])
        assert agreement(rollout.sampled.outcomes, rollout.sampled.task_rewards) == agreement(rollout.rewards, correct)
        record = next(start(reward_model=learned.model))
        assert record.accuracy == pytest.approx(float(correct.mean()))
        assert record.reward == pytest.approx(float(rollout.rewards.mean()), abs=1e-6)
        assert record.reward_agreement == agreement(rollout.sampled.outcomes, rollout.sampled.task_rewards)
        assert record.reward_loss is None

    def test_the_model_given_stays_as_it_was(self, learned):
        before = {name: tensor.clone() for name, tensor in learned.model.scorer.state_dict().items()}
        run = start(settings=replace(SHORT, refresh_reward_every=1), reward_model=learned.model, pairs=learned.pairs)
        records = list(run)
        assert all(torch.equal(tensor, learned.model.scorer.state_dict()[name]) for name, tensor in before.items())
        assert any(not torch.equal(t, run.state.reward_model.scorer.state_dict()[n]) for n, t in before.items())
        assert records[0].reward_loss is None
        assert records[1].reward_loss > 0
        assert run.state.reward_pairs[: len(learned.pairs)] == learned.pairs
        assert len(run.state.reward_pairs) > len(learned.pairs)  # the next refresh may replay them

    def test_pairs_that_somebody_judged_outlive_a_stop(self, tmp_path):
        judged = [Preference("the little bear", " was kind .", " was sad .")]
        model = RewardModel.from_policy(load_policy("sentences", device="cpu"))
        settings = replace(SHORT, refresh_reward_every=2)
        run = train("sentences", NO_KL, settings, reward_model=model, pairs=judged, out=tmp_path / "run")
        next(run), run.close()
        again = resume(tmp_path / "run", device="cpu")
        assert again.state.reward_pairs == [Pair("the little bear", " was kind .", " was sad .")]
        assert next(again).step == 2

    def test_a_refresh_learns_from_fresh_pairs_and_a_tenth_of_older_ones(self, learned, monkeypatch):
        from rlviz.training import reward_model as module

        seen = []

        def spy(model, pairs, **options):
            seen.append((list(pairs), options["steps"]))
            return train_reward_model(model, pairs, **options)

        train_reward_model = module.train_reward_model
        monkeypatch.setattr(module, "train_reward_model", spy)
        fresh = [Pair(f"{n:05d}=", "#1", "#2") for n in range(90)]
        model = learned.model.copy()
        assert refresh(model, fresh, learned.pairs, seed=0) > 0
        refresh(model, fresh, learned.pairs, seed=1)
        (pairs, steps), (others, _) = seen
        assert set(pairs[90:]) != set(others[90:])
        assert pairs[:90] == fresh
        assert len(pairs) == 100  # ten older ones are a tenth of all; nine would be a tenth of the fresh
        assert len(set(pairs[90:])) == 10
        assert set(pairs[90:]) <= set(learned.pairs)
        assert steps == REFRESH_STEPS
        assert refresh(model, [], learned.pairs, seed=0) is None
