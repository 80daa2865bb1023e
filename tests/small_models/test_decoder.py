"""Models × laws: whatever reads or samples a model gives what transformers' own forward gives of one response, alone.

A shipped policy is computed by `small_models.decoder`; the others by transformers' modules (`small_models.any_model`). All in
double precision, with weights far from uniform: a wrong position, prompt or expert shows.
"""

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from small_models.decoder import Decoder, distinct_rows
from small_models.policies import build_policy, load_policy, recompute_activations
from small_models.precision import in_bfloat16
from small_models.sampling import (
    encode_prompts,
    encode_responses,
    response_logits,
    response_logits_and_hidden,
    sample,
    token_entropy,
    token_logp,
)
from small_models.scorers import Scorer
from small_models.shipped_files import decoder_of
from small_models.tasks import Lookup
from tests.small_models.real import ARCHITECTURES, END, real_policy

MODELS = ["shipped", "experts", *ARCHITECTURES]
PROMPTS = {"equal lengths": ["123=", "987="], "padded": ["1=", "98765="], "one": ["21="]}
RESPONSES = {
    "several": [["12#3", "12#3", "7", "45:6"], ["", "9", "9#9#9", "9"]],
    "empty": [["", ""], ["", ""]],  # an end of sequence alone: no token of a response is ever read
}
# transformers norms and rotates in single precision, whatever the weights are
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def policy_of(kind):
    if kind in ARCHITECTURES:
        policy = real_policy(kind, ends=(END, *range(4, 84)))  # a third of the vocabulary, so that responses end
    elif kind == "shipped":
        policy = load_policy("chain", device="cpu")
    else:
        policy = build_policy(hidden_size=32, experts=4, seed=3, device="cpu")
        with torch.no_grad():
            for parameter in policy.weights.parameters():
                parameter.mul_(4.0)
    policy.weights.double()
    return policy


def encode(policy, prompts, responses):
    """[P, S] prompts; tokens and mask [P, G, T]."""
    responses = responses[: len(prompts)]
    tokens, mask = encode_responses(policy, [text for row in responses for text in row])
    shape = len(prompts), len(responses[0]), tokens.shape[-1]
    return *encode_prompts(policy, prompts), tokens.reshape(shape), mask.reshape(shape)


def alone(model, prompt_ids, prompt_mask, tokens, mask):
    """Return logits before each token [N, V], and states before and after it [N, H], of each response read by itself."""
    logits, before, after = [], [], []
    for p, g in torch.cartesian_prod(*map(torch.arange, mask.shape[:2])).tolist():
        prompt, length = prompt_ids[p][prompt_mask[p]], int(mask[p, g].nonzero().max()) + 1  # a hole is read
        ids, wanted = torch.cat([prompt, tokens[p, g, :length]]), mask[p, g, :length]
        output = model(ids.unsqueeze(0), output_hidden_states=True)
        states = output.hidden_states[-1][0, len(prompt) - 1 :]
        logits.append(output.logits[0, len(prompt) - 1 : -1][wanted])
        before.append(states[:-1][wanted])
        after.append(states[1:][wanted])
    return tuple(map(torch.cat, (logits, before, after)))


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def check_agreement(policy, prompt_ids, prompt_mask, tokens, mask, rtol=1e-5):
    """Log-probabilities and the gradient of a weighted sum of them are those of each response alone."""
    logp = token_logp(response_logits(policy, prompt_ids, prompt_mask, tokens, wanted=mask), tokens)[mask]
    weights = torch.randn(logp.shape, generator=torch.Generator().manual_seed(0), dtype=logp.dtype)
    ours = gradients(policy.weights, (logp * weights).sum())
    expected = token_logp(alone(policy.model, prompt_ids, prompt_mask, tokens, mask)[0], tokens[mask])
    torch.testing.assert_close(logp, expected, rtol=rtol, atol=rtol)
    for name, gradient in gradients(policy.model, (expected * weights).sum()).items():
        scale = max(1.0, float(gradient.abs().max()))  # single precision is relative to the largest
        torch.testing.assert_close(ours[name] / scale, gradient / scale, rtol=rtol, atol=rtol, msg=name)
    return logp


READ = [
    *((kind, "padded", "several") for kind in MODELS),
    *((kind, "padded", "empty") for kind in ("shipped", "llama")),
    *((kind, "equal lengths", "several") for kind in ("shipped", "gemma3")),
    *((kind, "one", "several") for kind in ("shipped", "experts")),
]


@pytest.mark.parametrize(("kind", "prompts", "responses"), READ)
def test_logits_and_gradients_are_those_of_each_response_alone(kind, prompts, responses):
    """A tool's tokens are not wanted and yet read; a policy may draw the padding token, whose embedding gets no gradient."""
    policy = policy_of(kind)
    assert isinstance(policy.backend, Decoder) == (kind == "shipped")
    prompt_ids, prompt_mask, tokens, mask = encode(policy, PROMPTS[prompts], RESPONSES[responses])
    logp = check_agreement(policy, prompt_ids, prompt_mask, tokens, mask)
    assert logp.std() > 0.1 or responses == "empty"
    if responses == "several":
        check_agreement(policy, prompt_ids, prompt_mask, tokens, mask & (torch.arange(mask.shape[-1]) != 1))
        tokens[0, 0, 1] = tokens[-1, 2, 3 if len(tokens) > 1 else 0] = policy.pad_id
        check_agreement(policy, prompt_ids, prompt_mask, tokens, mask)


def test_with_norms_in_double_precision_they_agree_to_the_last_digits(monkeypatch):
    """Where no prompt is padded, positions and so the angles, in single precision, are the same too."""

    def norm(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()

    monkeypatch.setattr(LlamaRMSNorm, "forward", norm)
    policy = policy_of("shipped")
    check_agreement(policy, *encode(policy, PROMPTS["equal lengths"], RESPONSES["several"]), rtol=1e-12)


@pytest.mark.parametrize("kind", ["shipped", "gemma3"])
def test_states_and_scorers_before_and_after_each_token(kind):
    policy = policy_of(kind)
    scorer = Scorer.from_policy(policy)
    for parameter in scorer.head.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    prompt_ids, prompt_mask, tokens, mask = encode(policy, PROMPTS["padded"], RESPONSES["several"])
    inputs = prompt_ids, prompt_mask, tokens
    _, before, after = alone(policy.model, *inputs, mask)
    logits, hidden = response_logits_and_hidden(policy, *inputs, wanted=mask)
    torch.testing.assert_close(hidden[mask], before, **CLOSE)
    torch.testing.assert_close(policy.model.lm_head(hidden), logits, **CLOSE)
    for read, states in ((scorer.values, before), (scorer.scores, after)):
        expected = scorer.head(states).squeeze(-1)
        torch.testing.assert_close(read(*inputs, wanted=mask)[mask], expected, **CLOSE)
        torch.testing.assert_close(read(*inputs)[mask], expected, **CLOSE)
    order = torch.tensor([6, 1, 3, 4])  # rows with an owner are the rows of their groups
    owner, wanted = order // 4, mask.flatten(0, 1)[order]
    rows = tokens.flatten(0, 1)[order].unsqueeze(1)
    values = scorer.values(*inputs[:2], rows, owner=owner)[:, 0]
    torch.testing.assert_close(values[wanted], scorer.values(*inputs).flatten(0, 1)[order][wanted], **CLOSE)
    row_logits = response_logits(policy, *inputs[:2], rows, wanted=wanted.unsqueeze(1), owner=owner)[:, 0]
    torch.testing.assert_close(row_logits[wanted], logits.flatten(0, 1)[order][wanted], **CLOSE)


class Talkative(Lookup):
    """A tool for policies that write anything; what it says holds the end of a call and an end of sequence."""

    call_end = tuple("eqrstuvwxyz")  # which end no response of ours or of `real_policy`

    def observe(self, prompt, written):
        return f"{len(written) % 10}e$"


SAMPLED = [*((kind, "padded") for kind in MODELS), ("shipped", "equal lengths"), ("gemma3", "equal lengths")]


@pytest.mark.parametrize("with_tool", [False, True])
@pytest.mark.parametrize(("kind", "prompts"), SAMPLED)
def test_what_is_sampled_is_what_a_fresh_forward_says(kind, prompts, with_tool):
    policy, prompts = policy_of(kind), PROMPTS[prompts]
    task, temperature = (Talkative(), 1.0) if with_tool else (None, 0.7)
    settings = {"task": task, "group_size": 40, "max_new_tokens": 20, "temperature": temperature}
    samples = sample(policy, prompts, generator=torch.Generator().manual_seed(0), **settings)
    assert samples.lengths.min() < samples.lengths.max()  # rows ended at different times, so the cache was compacted
    assert task is None or samples.observed.sum() > 4 or kind == "shipped"
    mask = samples.attention_mask
    with torch.no_grad():
        logits = response_logits(policy, **samples.model_inputs)[mask]
    logp = token_logp(logits, samples.tokens[mask], temperature=temperature)
    torch.testing.assert_close(samples.logp[mask], logp.float(), rtol=1e-4, atol=1e-4)
    entropy = token_entropy(logits, temperature=temperature).float()
    torch.testing.assert_close(samples.entropy[mask], entropy, rtol=1e-4, atol=1e-4)


def test_a_prompt_is_read_once_and_so_is_each_of_its_responses(monkeypatch):
    policy, read, forward = policy_of("shipped"), [], nn.Embedding.forward
    inputs = encode(policy, ["123=", "987="], [["12", "12", "7", "12"], ["1", "", "1", "12"]])
    monkeypatch.setattr(nn.Embedding, "forward", lambda self, ids: (read.append(ids.numel()), forward(self, ids))[1])
    response_logits(policy, *inputs[:3], wanted=inputs[3])
    # two prompts of 4; of the responses 12 and 7, then 1, nothing and 12, each without its end, which nothing comes after
    assert sum(read) == 2 * 4 + (2 + 1) + (1 + 0 + 2)


def test_rows_are_told_apart_even_where_their_sums_meet(monkeypatch):
    rows = torch.tensor([[1, 2], [2, 1], [1, 2], [0, 0]])
    first, same = distinct_rows(rows)
    assert len(first) == 3 and torch.equal(rows[first][same], rows)
    monkeypatch.setattr(torch, "randint", lambda *a, **k: torch.ones(2, dtype=torch.long))  # 1 + 2 = 2 + 1
    first, same = distinct_rows(rows)
    assert torch.equal(rows[first][same], rows)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable")  # its name until transformers 6
def test_what_a_decoder_does_not_know_is_computed_by_transformers():
    """A decoder has float32 and float64, and the shape of the shipped policies; activations it cannot recompute."""
    policy, trunk = load_policy("chain", device="cpu"), build_policy(device="cpu").model.base_model
    assert policy.path == "plain" and decoder_of(trunk) is not None
    with in_bfloat16(policy.device):
        assert policy.path == "transformers" and decoder_of(trunk) is None
    other = policy.on_transformers()
    assert other.path == "transformers" and other.weights is policy.model
    policy.weights.bfloat16()
    assert policy.path == "transformers"
    recompute_activations(trunk)
    assert decoder_of(trunk) is None
    assert decoder_of(build_policy(num_layers=1, device="cpu").model.base_model) is None
    assert decoder_of(build_policy(experts=4, device="cpu").model.base_model) is None
