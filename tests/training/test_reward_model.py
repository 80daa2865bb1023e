"""Training a reward model: the loss is Bradley and Terry's of the scores before the update; a tie counts half."""

import pytest
import torch

from rlviz.training import reward_model
from rlviz.training.reward_model import pair_accuracy, train_reward_model
from small_models.pairs import Pair
from small_models.policies import build_policy
from small_models.sampling import encode_prompts
from small_models.scorers import RewardModel

PAIRS = [
    Pair(f"{prompt}=", chosen, rejected)
    for prompt, chosen, rejected in
    (("1", "ab", "ba"), ("12", "acc", "b"), ("3", "a", "cba"), ("45", "ac", "bc"), ("678", "abb", "bab"), ("9", "aa", ""))
]  # fmt: skip


def tiny(reads="last"):
    policy = build_policy(hidden_size=16, num_layers=1, num_heads=2, seed=1, device="cpu")
    policy.model.double()
    return RewardModel.from_policy(policy, reads=reads)


def score_alone(model, prompt, response):
    """The score of one response, without batch or padding, read off the trunk and the head themselves."""
    ids, _ = encode_prompts(model.reader, [prompt])
    ids = ids[0].tolist() + [model.tokenizer(c)["input_ids"][0] for c in response] + [1]
    hidden = model.scorer.trunk(torch.tensor([ids])).last_hidden_state[0, -len(response) - 1 :]
    scores = [state @ model.scorer.head.weight[0] + model.scorer.head.bias[0] for state in hidden]
    return scores[-1] if model.reads == "last" else sum(scores) / len(scores)


def gap(model, pair):
    return score_alone(model, pair.prompt, pair.chosen) - score_alone(model, pair.prompt, pair.rejected)


def test_accuracy_counts_a_tie_half(monkeypatch):
    model = tiny()
    monkeypatch.setattr(
        RewardModel, "rewards", lambda self, prompt_ids, prompt_mask, tokens, mask: mask.sum(-1).double()
    )
    texts = ("aa", "b"), ("a", "b"), ("a", "bb"), ("", "bb"), ("a", "")
    pairs = [Pair("1=", *both) for both in texts]
    for at_once in (256, 2, 1):  # the longer one scores higher: right, tie, wrong, wrong, right
        monkeypatch.setattr(reward_model, "AT_ONCE", at_once)
        assert pair_accuracy(model, pairs) == 2.5 / 5


@pytest.mark.parametrize("reads", ["last", "mean"])
def test_updates_are_those_of_a_plain_loop_over_pairs(reads):
    model, plain = tiny(reads), tiny(reads)
    losses = train_reward_model(model, PAIRS, steps=6, lr=1e-2, batch_size=6)
    parameters = list(plain.scorer.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.0)
    norms = []
    for seen in losses:
        gaps = torch.stack([gap(plain, pair) for pair in PAIRS])
        loss = torch.log1p(torch.exp(-gaps)).mean()
        assert seen == pytest.approx(float(loss.detach()), abs=1e-6)
        gradients = torch.autograd.grad(loss, parameters)
        norms.append(sum(float(g.square().sum()) for g in gradients) ** 0.5)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient * min(1.0, 1 / norms[-1])
        optimizer.step()
    assert max(norms) > 1.05  # so that scaling gradients down to norm 1 counts
    for pair in PAIRS:
        assert gap(model, pair).item() == pytest.approx(gap(plain, pair).item(), abs=1e-5)
