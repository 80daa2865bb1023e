"""Scorers: what they read before and after each token, how a reward model reads a response, and what they keep on disk."""

import os

import pytest
import torch

from small_models.policies import build_policy
from small_models.sampling import encode_prompts, sample
from small_models.scorers import RewardModel, Scorer
from small_models.tokenizer import build_tokenizer
from tests.small_models.real import real_policy


def policy_of():
    policy = build_policy(hidden_size=16, num_layers=1, num_heads=2, seed=1, device="cpu")
    policy.model.double()
    return policy


def with_some_head(scorer):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in scorer.head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return scorer


def test_numbers_are_the_bias_at_first_and_of_at_least_single_precision():
    policy = policy_of()
    policy.model.bfloat16()
    scorer = Scorer.from_policy(policy)
    ids, mask = encode_prompts(policy, ["12=", "3="])
    tokens = torch.tensor([[[4, 5, 1]], [[1, 0, 0]]])
    assert torch.equal(scorer.values(ids, mask, tokens), torch.zeros(2, 1, 3))
    with torch.no_grad():
        scorer.head.bias.fill_(0.75)
    assert torch.equal(scorer.scores(ids, mask, tokens), torch.full((2, 1, 3), 0.75))


def test_a_scorer_has_weights_of_its_own_and_learns_in_all_of_them():
    policy = policy_of().frozen_copy()
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    scorer = with_some_head(Scorer.from_policy(policy))
    ids, mask = encode_prompts(policy, ["12="])
    scorer.scores(ids, mask, torch.tensor([[[4, 5, 1]]])).sum().backward()
    unused = [name for name, parameter in scorer.named_parameters() if parameter.grad is None]
    assert not unused
    torch.optim.SGD(scorer.parameters(), lr=1.0).step()
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())


class Fixed(Scorer):
    """A scorer that gives the scores it was given."""

    def __init__(self, scores):
        policy = policy_of()
        super().__init__(policy.model.base_model, 16)
        self.fixed = torch.nn.Parameter(torch.tensor(scores, dtype=torch.double))

    def scores(self, prompt_ids, prompt_mask, tokens, *, wanted):
        return self.fixed


def test_a_response_is_read_at_its_last_token_or_as_a_mean_over_its_tokens():
    scorer = Fixed([[[1.0, 2.0, 6.0], [10.0, -3.0, 5.0]], [[7.0, 8.0, 9.0], [0.5, 0.25, 4.0]]])
    mask = torch.tensor([[[1, 1, 1], [1, 0, 0]], [[1, 1, 0], [1, 0, 1]]]).bool()  # the last one has a hole
    nothing = torch.zeros(2, 1, dtype=torch.long)
    inputs = nothing, nothing.bool(), torch.zeros(2, 2, 3, dtype=torch.long), mask
    last, mean = (RewardModel(scorer, build_tokenizer(), reads).rewards(*inputs) for reads in ("last", "mean"))
    assert last.tolist() == [[6.0, 10.0], [8.0, 4.0]]
    assert mean.tolist() == [[3.0, 10.0], [7.5, 2.25]]  # (1+2+6)/3, 10, (7+8)/2, (.5+4)/2
    last.sum().backward()
    assert scorer.fixed.grad.tolist() == [[[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 0, 1]]]


@pytest.mark.parametrize("kind", ["ours", "gpt2"])
def test_save_and_load_give_the_same_bits(kind, tmp_path):
    """Over an older one, in whatever precision; its copy and what was read learn on their own."""
    policy = real_policy(kind) if kind == "gpt2" else build_policy(device="cpu")
    model = RewardModel.from_policy(policy, reads="mean")
    model.save(tmp_path)
    with_some_head(model.scorer.double() if kind == "ours" else model.scorer)
    model.save(tmp_path)
    again = RewardModel.load(tmp_path, device="cpu")
    copy = model.copy()
    samples = sample(policy, ["1=", "98765="], group_size=3, max_new_tokens=6)
    expected = model.score(samples)
    assert not expected.requires_grad and expected.unique().numel() > 3
    with torch.no_grad():
        model.scorer.head.weight.fill_(0.0)
    for other in (copy, again):
        assert other.reads == "mean" and torch.equal(other.score(samples), expected)
        assert all(p.requires_grad for p in other.scorer.parameters())
    assert again.tokenizer("35=")["input_ids"] == policy.tokenizer("35=")["input_ids"]
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".safetensors"}


DAMAGES = {
    "cut": lambda folder: os.truncate(folder / "scorer.safetensors", 1000),
    "another way to read": lambda folder: (folder / "reward_model.json").write_text('{"reads": "sum"}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_a_sentence(damage, tmp_path):
    RewardModel.from_policy(policy_of()).save(tmp_path)
    DAMAGES[damage](tmp_path)
    with pytest.raises(ValueError, match=f"in {tmp_path} cannot be read") as caught:
        RewardModel.load(tmp_path, device="cpu")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
