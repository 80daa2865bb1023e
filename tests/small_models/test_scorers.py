"""Scorers: what they read before and after each token, how a reward model reads a response, and what they keep on disk."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, MixtralConfig

from small_models.policies import Policy, build_policy
from small_models.sampling import Samples, encode_prompts
from small_models.scorers import RewardModel, Scorer
from small_models.tokenizer import build_tokenizer

SHARED = {"vocab_size": 48, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
CONFIGS = {
    "gpt2": GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=64, **SHARED),
    "mixtral": MixtralConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
        num_experts_per_tok=2,
        **SHARED,
    ),
}
PROMPTS = {"equal lengths": ["123=", "987="], "padded": ["1=", "98765=", "ab="]}


def policy_of(name="llama"):
    if name == "llama":
        policy = build_policy(hidden_size=16, num_layers=1, num_heads=2, seed=1, device="cpu")
    else:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            policy = Policy(AutoModelForCausalLM.from_config(CONFIGS[name]).eval(), build_tokenizer(), name)
    if name != "mixtral":  # PyTorch multiplies experts' matrices in single precision alone
        policy.model.double()
    return policy


def with_some_head(scorer):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in scorer.head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return scorer


def rollout(policy, prompts, group_size=3):
    """Any responses, of 1 to 6 tokens."""
    generator = torch.Generator().manual_seed(0)
    prompt_ids, prompt_mask = encode_prompts(policy, prompts)
    shape = len(prompts), group_size, 6
    lengths = torch.tensor([1, 6, 4]).expand(shape[:2]).unsqueeze(-1)
    mask = torch.arange(6) < lengths
    tokens = torch.randint(2, 48, shape, generator=generator).masked_fill(~mask, policy.pad_id)
    nothing = torch.zeros(shape)
    return Samples(
        prompt_ids, prompt_mask, tokens, mask, nothing, nothing, torch.zeros(shape[:2], dtype=torch.bool), mask & ~mask
    )


def test_every_score_is_the_bias_at_first():
    policy = policy_of()
    scorer = Scorer.of(policy)
    ids, mask = encode_prompts(policy, ["12=", "3="])
    tokens = torch.tensor([[[4, 5, 1]], [[1, 0, 0]]])
    assert torch.equal(scorer.values(ids, mask, tokens), torch.zeros(2, 1, 3).double())
    with torch.no_grad():
        scorer.head.bias.fill_(0.75)
    assert torch.equal(scorer.scores(ids, mask, tokens), torch.full((2, 1, 3), 0.75).double())


def test_a_scorer_has_weights_of_its_own_and_learns_in_all_of_them():
    policy = policy_of().frozen_copy()
    before = {name: value.clone() for name, value in policy.model.state_dict().items()}
    scorer = with_some_head(Scorer.of(policy))
    ids, mask = encode_prompts(policy, ["12="])
    scorer.scores(ids, mask, torch.tensor([[[4, 5, 1]]])).sum().backward()
    unused = [name for name, parameter in scorer.named_parameters() if parameter.grad is None]
    assert not unused
    torch.optim.SGD(scorer.parameters(), lr=1.0).step()
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())


def test_a_copy_has_weights_of_its_own():
    model = RewardModel.of(policy_of(), reads="mean")
    copy = model.copy()
    with torch.no_grad():
        model.scorer.head.bias.fill_(3.0)
    assert copy.scorer.head.bias.item() == 0 and copy.reads == "mean"
    assert all(p.requires_grad for p in copy.scorer.parameters())


def test_numbers_have_at_least_single_precision():
    policy = policy_of()
    policy.model.bfloat16()
    ids, mask = encode_prompts(policy, ["12="])
    scorer = with_some_head(Scorer.of(policy))
    assert scorer.values(ids, mask, torch.tensor([[[4, 5, 1]]])).dtype == torch.float32


class Fixed(Scorer):
    """A scorer that gives the scores it was given."""

    def __init__(self, scores):
        policy = policy_of()
        super().__init__(policy.model.base_model, 16)
        self.given = torch.nn.Parameter(torch.tensor(scores, dtype=torch.double))

    def scores(self, prompt_ids, prompt_mask, tokens, *, wanted):
        return self.given


def test_a_response_is_read_at_its_last_token_or_as_a_mean_over_its_tokens():
    scorer = Fixed([[[1.0, 2.0, 6.0], [10.0, -3.0, 5.0]], [[7.0, 8.0, 9.0], [0.5, 0.25, 4.0]]])
    mask = torch.tensor([[[1, 1, 1], [1, 0, 0]], [[1, 1, 0], [1, 0, 1]]]).bool()  # the last one has a hole
    nothing = torch.zeros(2, 1, dtype=torch.long)
    place = nothing, nothing.bool(), torch.zeros(2, 2, 3, dtype=torch.long), mask
    last, mean = (RewardModel(scorer, build_tokenizer(), reads).rewards(*place) for reads in ("last", "mean"))
    assert last.tolist() == [[6.0, 10.0], [8.0, 4.0]]
    assert mean.tolist() == [[3.0, 10.0], [7.5, 2.25]]  # (1+2+6)/3, 10, (7+8)/2, (.5+4)/2
    last.sum().backward()
    assert scorer.given.grad.tolist() == [[[0, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 0, 1]]]


@pytest.mark.parametrize("reads", ["last", "mean"])
def test_scoring_samples_is_the_differentiable_version_without_its_gradient(reads):
    policy = policy_of()
    model = RewardModel.of(policy, reads=reads)
    with_some_head(model.scorer)
    samples = rollout(policy, PROMPTS["padded"])
    rewards = model.rewards(samples.prompt_ids, samples.prompt_mask, samples.tokens, samples.mask)
    assert rewards.requires_grad and not model.score(samples).requires_grad
    assert torch.equal(model.score(samples), rewards)
    assert rewards.shape == (3, 3) and rewards.unique().numel() > 3


@pytest.mark.parametrize("name", ["llama", *CONFIGS])
@pytest.mark.parametrize("reads", ["last", "mean"])
def test_save_and_load_give_the_same_bits(name, reads, tmp_path):
    policy = policy_of(name)
    model = RewardModel.of(policy, reads=reads)
    with_some_head(model.scorer)
    model.save(tmp_path)
    state = torch.get_rng_state()
    again = RewardModel.load(tmp_path, device="cpu")
    assert torch.equal(torch.get_rng_state(), state)  # loading draws no random number
    assert again.reads == reads
    samples = rollout(policy, PROMPTS["padded"])
    assert torch.equal(model.score(samples), again.score(samples))
    for key, value in model.scorer.state_dict().items():
        assert torch.equal(value, again.scorer.state_dict()[key]), key
    assert again.tokenizer("35=")["input_ids"] == policy.tokenizer("35=")["input_ids"]
    assert all(p.requires_grad for p in again.scorer.parameters())
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".safetensors"}
    assert torch.equal(Scorer.load(tmp_path, device="cpu").head.weight, model.scorer.head.weight)


def test_saving_over_an_older_one_replaces_it(tmp_path):
    model = RewardModel.of(policy_of())
    model.save(tmp_path)
    with_some_head(model.scorer)
    model.save(tmp_path)
    assert torch.equal(RewardModel.load(tmp_path, device="cpu").scorer.head.weight, model.scorer.head.weight)


def _cut_weights(folder):
    file = folder / "scorer.safetensors"
    file.write_bytes(file.read_bytes()[:-50])


def _other_config(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 32}))


@pytest.mark.parametrize(
    "damage",
    [
        _cut_weights,
        _other_config,
        lambda folder: (folder / "scorer.safetensors").unlink(),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "reward_model.json").unlink(),
        lambda folder: (folder / "reward_model.json").write_text('{"reads": "sum"}'),
        lambda folder: (folder / "reward_model.json").write_text("[]"),
        lambda folder: (folder / "tokenizer.json").write_text("{"),
    ],
)
def test_what_is_damaged_is_a_sentence(damage, tmp_path):
    RewardModel.of(policy_of()).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=f"in {tmp_path} cannot be read") as caught:
        RewardModel.load(tmp_path, device="cpu")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_weight_that_is_missing_is_not_made_up(tmp_path):
    RewardModel.of(policy_of()).save(tmp_path)
    tensors = load_file(tmp_path / "scorer.safetensors")
    name = next(name for name in tensors if "layers" in name)
    del tensors[name]
    save_file(tensors, tmp_path / "scorer.safetensors")
    with pytest.raises(ValueError, match=name):
        Scorer.load(tmp_path, device="cpu")


def test_whole_numbers_are_no_weights(tmp_path):
    RewardModel.of(policy_of()).save(tmp_path)
    tensors = load_file(tmp_path / "scorer.safetensors")
    save_file({name: tensor.char() for name, tensor in tensors.items()}, tmp_path / "scorer.safetensors")
    with pytest.raises(ValueError, match="whole numbers stand for its"):
        RewardModel.load(tmp_path, device="cpu")
