"""A prompt is read once for its group, and the head meets a part of a large vocabulary at a time."""

import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, Gemma2Config

from small_models import sampling
from small_models.any_model import AnyModel, row_by_row
from small_models.policies import Policy
from small_models.sampling import compute_logp, encode_prompts, response_logits, token_entropy, token_logp
from tests.small_models.real import ARCHITECTURES, SIZES, byte_tokenizer, real_policy

PROMPTS = ["a prompt of some words", "shorter"]
# Bloom has no positions: its attention falls with the distance in the row, which it counts in the mask
BLOOM = BloomConfig(
    vocab_size=SIZES["vocab_size"], hidden_size=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1, pad_token_id=3
)


def policy_from(config):
    torch.manual_seed(0)
    return Policy(AutoModelForCausalLM.from_config(config).float().eval(), byte_tokenizer(), "policy")


def encoded(policy, group=6, length=4):
    tokens = torch.randint(4, 200, (len(PROMPTS), group, length), generator=torch.Generator().manual_seed(1))
    return *encode_prompts(policy, PROMPTS), tokens


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable")  # its name until transformers 6
@pytest.mark.parametrize("name", [*ARCHITECTURES, "bloom"])
def test_a_prompt_is_read_once_for_its_group(name):
    policy = policy_from(BLOOM) if name == "bloom" else real_policy(name)
    inputs, counts = encoded(policy), []
    logits = [response_logits(policy, *inputs)]  # with a first look at the model
    policy.model.get_input_embeddings().register_forward_hook(lambda _, ids, __: counts.append(ids[0].numel()))
    response_logits(policy, *inputs)
    with row_by_row():
        logits.append(response_logits(policy, *inputs))
    policy.model.gradient_checkpointing_enable()
    logits.append(response_logits(policy, *inputs))
    width, alone = inputs[0].shape[1], 2 * 6 * (inputs[0].shape[1] + 3)  # the last token is not read
    assert counts == [2 * width, 2 * 6 * 3, alone, alone]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-4)
    assert torch.equal(logits[1], logits[2])


def test_a_part_of_the_vocabulary_at_a_time_gives_the_same(monkeypatch):
    policy = real_policy()
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
    assert AnyModel(policy.model).head is None
    monkeypatch.setattr(sampling, "MOST_WITH_GRADIENT", 1)
    *prompts, tokens = encoded(policy)
    logits = response_logits(policy, *prompts, tokens)
    assert logits.abs().max() <= 0.5
    torch.testing.assert_close(compute_logp(policy, *prompts, tokens)[0], token_logp(logits, tokens))
