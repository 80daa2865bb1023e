"""Gradient checkpointing: activations are computed anew in the backward pass, to the same gradients, without dropout."""

import pytest
import torch
from torch import nn

from small_models.any_model import AnyModel
from small_models.policies import build_policy
from small_models.sampling import encode_prompts, encode_responses, response_logits, sample
from tests.small_models.real import ARCHITECTURES, real_policy

pytestmark = pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable")  # its name until transformers 6
PROMPTS, TEXTS = ["12=", "3="], ["abc", "d"]


def calls_of(layer):
    """Return a list of the lengths that are read from now on, a call each."""
    calls = []
    layer.mlp.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0].shape[1]))
    return calls


def layers_of(model):
    return [module for name, module in model.named_modules() if name.split(".")[-2:-1] in (["layers"], ["h"])]


def logits_of(policy):
    prompt_ids, prompt_mask = encode_prompts(policy, PROMPTS)
    return response_logits(policy, prompt_ids, prompt_mask, encode_responses(policy, TEXTS)[0])


def gradients(policy):
    logits_of(policy).square().mean().backward()
    return {name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("name", "training"), [(name, number % 2 == 0) for number, name in enumerate(ARCHITECTURES)])
def test_layers_are_computed_again_to_the_same_gradients(name, training):
    stored, anew = real_policy(name), real_policy(name)
    for policy in (stored, anew):
        for module in policy.model.modules():  # dropout would show in the gradients
            if isinstance(module, nn.Dropout):
                module.p = 0.5
    anew.model.train(training)
    for policy in (stored, anew):
        _ = AnyModel(policy.model).head  # a first look, before calls are counted
    anew.model.gradient_checkpointing_enable({"use_reentrant": training})
    counts = [[calls_of(layer) for layer in layers_of(policy.model)] for policy in (stored, anew)]
    expected, got = gradients(stored), gradients(anew)
    width = encode_prompts(stored, PROMPTS)[0].shape[1]
    assert counts == [2 * [[width, 3]], 2 * [[width + 3, width + 3]]]
    assert set(got) == set(expected)
    for parameter, gradient in expected.items():
        torch.testing.assert_close(got[parameter], gradient, rtol=1e-5, atol=1e-7)


def test_a_model_whose_layers_cannot_is_refused():
    policy = build_policy(device="cpu")
    policy.model.gradient_checkpointing = True  # as a model sets it that decides by itself, in training mode alone
    with pytest.raises(
        ValueError, match=r"gradient checkpointing is on, but the layers of LlamaForCausalLM .* turn it off"
    ):
        logits_of(policy)


def test_dropout_stays_off_in_a_model_that_was_put_into_training_mode():
    policy = real_policy("gpt2")
    for module in policy.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5
    policy.model.train()
    first, second = (sample(policy, ["1="], max_new_tokens=6, temperature=0).logp for _ in range(2))
    assert torch.equal(first, second)
