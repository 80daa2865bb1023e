"""A prompt is read once for its group where a model allows it, and the head meets a part of a large vocabulary at a time."""

import copy

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, BloomConfig, Gemma2Config

from small_models import any_model, sampling
from small_models.any_model import abilities, row_by_row
from small_models.policies import Policy
from small_models.sampling import compute_logp, encode_prompts, response_logits, token_entropy, token_logp
from tests.small_models.real import ARCHITECTURES, SIZES, byte_tokenizer, real_policy

PROMPTS = ["a prompt of some words", "shorter"]
WINDOWS = {"gemma3", "mistral"}


def policy_from(config):
    torch.manual_seed(0)
    return Policy(AutoModelForCausalLM.from_config(config).float().eval(), byte_tokenizer(), "policy")


def encoded(policy, group=6, length=4):
    tokens = torch.randint(4, 200, (len(PROMPTS), group, length), generator=torch.Generator().manual_seed(1))
    return *encode_prompts(policy, PROMPTS), tokens


def tokens_read(policy, *inputs):
    """Return how many tokens the model embeds for the logits of these inputs."""
    abilities(policy.model)
    counts = []
    handle = policy.model.get_input_embeddings().register_forward_hook(lambda _, ids, __: counts.append(ids[0].numel()))
    response_logits(policy, *inputs)
    handle.remove()
    return sum(counts)


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - WINDOWS))
def test_a_prompt_is_read_once_for_its_group(name):
    policy = real_policy(name)
    inputs = encoded(policy)
    width = inputs[0].shape[1]
    assert abilities(policy.model).obstacle == ""
    assert tokens_read(policy, *inputs) == 2 * (width + 6 * 3)  # nothing comes after a last token, so it is not read
    with row_by_row():
        assert tokens_read(policy, *inputs) == 2 * 6 * (width + 3)


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - WINDOWS))
def test_so_it_is_by_the_attention_that_adds_a_mask(name):
    torch.manual_seed(0)
    config = copy.deepcopy(ARCHITECTURES[name])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    policy = Policy(model, byte_tokenizer(), name)
    assert abilities(model).obstacle == ""
    inputs = encoded(policy)
    logits = response_logits(policy, *inputs)
    with row_by_row():
        torch.testing.assert_close(logits, response_logits(policy, *inputs), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", sorted(WINDOWS))
def test_a_model_with_windows_reads_each_response_behind_its_prompt(name):
    policy = real_policy(name)
    inputs = encoded(policy)
    assert "window" in abilities(policy.model).obstacle
    assert tokens_read(policy, *inputs) == 2 * 6 * (inputs[0].shape[1] + 3)


def test_a_model_that_takes_no_such_mask_is_found_out_by_a_look_at_it():
    """Bloom has no positions: its attention falls with the distance in the row, which it counts in a mask of two dimensions."""
    size = {"vocab_size": SIZES["vocab_size"], "hidden_size": 32, "n_layer": 2, "n_head": 4}
    policy = policy_from(BloomConfig(**size, bos_token_id=0, eos_token_id=1, pad_token_id=3))
    assert "its own" in abilities(policy.model).obstacle
    inputs = encoded(policy)
    assert tokens_read(policy, *inputs) == 2 * 6 * (inputs[0].shape[1] + 3)


@pytest.mark.parametrize(
    ("prompt", "response", "width", "expected"),
    # S / T · √(1 + 6H / S): 48 / 24 · √73 = 17.1; 160 / 512 · √22.6 = 1.5; 8 / 64 · √(1 + 24) = .6, and at least 1
    [(48, 24, 576, 17), (160, 512, 576, 1), (8, 64, 32, 1)],
)
def test_so_many_responses_share_a_row_that_each_takes_the_least_work(prompt, response, width, expected):
    reader = any_model.AnyModel(real_policy().model)
    reader.trunk.set_input_embeddings(nn.Embedding(4, width))
    prompt_mask, needed = torch.ones(2, prompt, dtype=torch.bool), torch.ones(3, response, dtype=torch.bool)
    size = reader._responses_a_row(prompt_mask, needed)
    assert size == expected

    def cost(k):  # of a response, in multiples of b
        length = prompt + k * response
        return length * (6 * width + length) / k

    assert cost(size) <= min(cost(k) for k in range(1, 60)) * 1.01


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_part_of_the_vocabulary_at_a_time_gives_the_same(name, monkeypatch):
    policy = real_policy(name)
    *prompts, tokens = encoded(policy)
    wanted = torch.arange(tokens.shape[-1]) < torch.tensor([4, 1, 3, 2, 4, 4]).unsqueeze(1)
    wanted = wanted.expand_as(tokens)
    weights = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(2))
    results = []
    for most in (10**9, 7 * SIZES["vocab_size"]):
        monkeypatch.setattr(sampling, "MOST_WITH_GRADIENT", most)
        policy.model.zero_grad()
        named = {"wanted": wanted, "temperature": 0.7, "with_entropy": True}
        logp, entropy = compute_logp(policy, *prompts, tokens, **named)
        ((logp + entropy) * weights)[wanted].sum().backward()
        gradients = [weight.grad.clone() for weight in policy.model.parameters()]
        results.append([logp[wanted], entropy[wanted], *gradients])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    logits = response_logits(policy, *prompts, tokens)
    torch.testing.assert_close(results[1][0], token_logp(logits, tokens, temperature=0.7)[wanted], rtol=0, atol=1e-5)
    torch.testing.assert_close(results[1][1], token_entropy(logits, temperature=0.7)[wanted], rtol=0, atol=1e-5)


def test_logits_that_are_more_than_a_product_stay_the_model_s(monkeypatch):
    """Gemma 2 caps its logits: c · tanh(x / c)."""
    config = Gemma2Config(**SIZES, final_logit_softcapping=0.5, layer_types=["full_attention"] * 2)
    policy = policy_from(config)
    assert not abilities(policy.model).has_plain_head
    monkeypatch.setattr(sampling, "MOST_WITH_GRADIENT", 1)
    *prompts, tokens = encoded(policy)
    logits = response_logits(policy, *prompts, tokens)
    assert logits.abs().max() <= 0.5
    torch.testing.assert_close(compute_logp(policy, *prompts, tokens)[0], token_logp(logits, tokens))
