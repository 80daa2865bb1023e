"""The plain forward against transformers' own: the same numbers, for the same parameters, and only where that holds."""

import copy

import pytest
import torch
from torch import nn

from small_models import packed, plain
from small_models.paths import computing, fits
from small_models.policies import Policy, build_policy, load_policy
from small_models.sampling import (
    encode_prompts,
    encode_responses,
    response_logits,
    response_logits_and_hidden,
    sample,
    token_logp,
)
from small_models.scorers import Scorer
from small_models.tasks import Chain, Lookup
from tests.small_models.real import real_policy

PROMPTS = {"equal lengths": ["123=", "987="], "padded": ["1=", "98765="], "one": ["21="]}
RESPONSES = {
    "several": [["12#3", "12#3", "7", "45:6"], ["", "9", "9#9#9", "9"]],
    "one each": [["12#3"], ["9#9#9"]],
    "empty": [["", ""], ["", ""]],  # an end of sequence alone: no token of a response is ever read
}


def policy_of(kind):
    """A policy in double precision with weights far from uniform: a wrong position, prompt or expert shows."""
    policy = build_policy(hidden_size=32, num_layers=3, experts=4 if kind == "experts" else 0, seed=3, device="cpu")
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            parameter.mul_(1.5 if "norm" in name else 4.0)
            if "norm" in name:
                parameter.add_(torch.linspace(-0.5, 0.5, len(parameter)))
    if kind == "experts":
        policy.model.set_experts_implementation("eager")  # the default multiplies them in single precision alone
    return Policy(policy.model.double(), policy.tokenizer, kind)


def place(policy, prompts, responses):
    """[P, S] prompts; tokens and mask [P, G, T]."""
    responses = responses[: len(prompts)]
    prompt_ids, prompt_mask = encode_prompts(policy, prompts)
    tokens, mask = encode_responses(policy, [text for row in responses for text in row])
    shape = len(prompts), len(responses[0]), tokens.shape[-1]
    return prompt_ids, prompt_mask, tokens.reshape(shape), mask.reshape(shape)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", ["dense", "experts"])
@pytest.mark.parametrize("responses", RESPONSES)
@pytest.mark.parametrize("prompts", PROMPTS)
def test_log_probabilities_and_gradients_are_those_of_transformers(prompts, responses, kind):
    policy = policy_of(kind)
    prompt_ids, prompt_mask, tokens, mask = place(policy, PROMPTS[prompts], RESPONSES[responses])
    weights = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0), dtype=policy.model.dtype) * mask
    found = {}
    for path in ("plain", "transformers"):
        with computing(path):
            assert fits(policy.model) == (path == "plain")
            logp = token_logp(response_logits(policy, prompt_ids, prompt_mask, tokens, wanted=mask), tokens)
            found[path] = logp[mask], gradients(policy.model, (logp * weights).sum())
    tolerance = {
        "rtol": 1e-5,
        "atol": 1e-5,
    }  # transformers norms and turns in single precision, whatever the weights are
    torch.testing.assert_close(found["plain"][0], found["transformers"][0], **tolerance)
    assert found["plain"][0].std() > 0.1 or not mask[..., 1:].any()
    for name, gradient in found["transformers"][1].items():
        scale = max(1.0, float(gradient.abs().max()))  # single precision is relative to the largest
        torch.testing.assert_close(found["plain"][1][name] / scale, gradient / scale, **tolerance, msg=name)


def test_in_single_precision_they_agree_to_a_hundred_thousandth():
    policy = load_policy("chain", device="cpu")
    samples = sample(
        policy, Chain().train_prompts[:8], group_size=8, max_new_tokens=9, generator=torch.Generator().manual_seed(0)
    )
    found = {}
    for path in ("plain", "transformers"):
        with computing(path):
            logp = token_logp(response_logits(policy, **samples.place), samples.tokens)
            found[path] = logp[samples.mask], gradients(policy.model, (logp * samples.mask).mean())
    torch.testing.assert_close(found["plain"][0], found["transformers"][0], rtol=0, atol=1e-5)
    torch.testing.assert_close(
        found["plain"][0], samples.logp[samples.mask], rtol=0, atol=1e-5
    )  # as the decoder had it
    for name, gradient in found["transformers"][1].items():
        torch.testing.assert_close(found["plain"][1][name], gradient, rtol=0, atol=1e-5, msg=name)


def test_no_padding_gets_a_gradient():
    """What is not wanted may hold any number, and a gradient that flows into it reaches nothing of the response's own."""
    policy = policy_of("dense")
    prompt_ids, prompt_mask, tokens, mask = place(policy, PROMPTS["padded"], RESPONSES["several"])
    other = tokens.masked_fill(~mask, 7)
    first, second = (
        gradients(
            policy.model,
            token_logp(response_logits(policy, prompt_ids, prompt_mask, t, wanted=mask), tokens)[mask].sum(),
        )
        for t in (tokens, other)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("spoil", ["a hole", "a pad that was sampled"])
def test_holes_and_sampled_pads_are_read_as_transformers_reads_them(spoil):
    """A tool's tokens are not wanted and yet read; a policy may draw the padding token, whose embedding gets no gradient."""
    policy = policy_of("dense")
    prompt_ids, prompt_mask, tokens, mask = place(policy, PROMPTS["padded"], RESPONSES["several"])
    if spoil == "a hole":
        mask = mask & (torch.arange(mask.shape[-1]) != 1)
    else:
        tokens[0, 0, 1] = tokens[1, 2, 3] = policy.pad_id
    found = {}
    for path in ("plain", "transformers"):
        with computing(path):
            logp = token_logp(response_logits(policy, prompt_ids, prompt_mask, tokens, wanted=mask), tokens)[mask]
            found[path] = logp, gradients(policy.model, logp.sum())
    torch.testing.assert_close(found["plain"][0], found["transformers"][0], rtol=1e-5, atol=1e-5)
    for name, gradient in found["transformers"][1].items():
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(found["plain"][1][name] / scale, gradient / scale, rtol=1e-5, atol=1e-5, msg=name)


def test_rows_with_an_owner_are_the_rows_of_their_groups():
    policy = policy_of("dense")
    prompt_ids, prompt_mask, tokens, mask = place(policy, PROMPTS["padded"], RESPONSES["several"])
    whole = response_logits(policy, prompt_ids, prompt_mask, tokens, wanted=mask)
    order = torch.tensor([6, 1, 3, 4])
    rows, owner = tokens.flatten(0, 1)[order].unsqueeze(1), order // 4
    for path in ("plain", "transformers"):
        with computing(path):
            logits = response_logits(policy, prompt_ids, prompt_mask, rows, owner=owner)
        kept = mask.flatten(0, 1)[order]
        torch.testing.assert_close(logits.squeeze(1)[kept], whole.flatten(0, 1)[order][kept], rtol=1e-5, atol=1e-5)


def test_hidden_states_make_the_logits():
    policy = policy_of("dense")
    at = place(policy, PROMPTS["padded"], RESPONSES["several"])
    logits, hidden = response_logits_and_hidden(policy, *at[:3], wanted=at[3])
    torch.testing.assert_close(policy.model.lm_head(hidden), logits)
    with computing("transformers"):
        there = response_logits_and_hidden(policy, *at[:3])[1]
        torch.testing.assert_close(hidden[at[3]], there[at[3]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("responses", RESPONSES)
def test_scorers_agree_before_and_after_each_token(responses):
    policy = policy_of("dense")
    scorer = Scorer.of(policy)
    nn.init.normal_(scorer.head.weight, generator=torch.Generator().manual_seed(1))
    prompt_ids, prompt_mask, tokens, mask = place(policy, PROMPTS["padded"], RESPONSES[responses])
    at = prompt_ids, prompt_mask, tokens
    for read in (scorer.values, scorer.scores):
        found = read(*at, wanted=mask)[mask]
        with computing("transformers"):
            torch.testing.assert_close(found, read(*at)[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "experts"])
@pytest.mark.parametrize("prompts", PROMPTS)
@pytest.mark.parametrize("task", [None, Lookup()], ids=["no tool", "tool"])
def test_the_same_random_numbers_draw_the_same_responses(task, prompts, kind):
    policy = load_policy("lookup", device="cpu") if task else policy_of(kind)
    texts = list(task.train_prompts[:3]) if task else PROMPTS[prompts]
    found = []
    for path in ("plain", "transformers"):
        with computing(path):
            generator = torch.Generator().manual_seed(1)
            found.append(sample(policy, texts, task=task, group_size=32, max_new_tokens=20, generator=generator))
    assert torch.equal(found[0].tokens, found[1].tokens)
    assert found[0].lengths.unique().numel() > 1  # rows left the batch on the way
    for name in ("logp", "entropy"):
        torch.testing.assert_close(getattr(found[0], name), getattr(found[1], name), rtol=1e-4, atol=1e-4)


def tokens_read(monkeypatch, call):
    """How many tokens a call looks up in the embedding."""
    count, embed = [], plain.Trunk.embed
    monkeypatch.setattr(plain.Trunk, "embed", lambda self, ids: (count.append(ids.numel()), embed(self, ids))[1])
    call()
    return sum(count)


def test_a_prompt_is_read_once_and_so_is_each_of_its_responses(monkeypatch):
    policy = policy_of("dense")
    prompt_ids, prompt_mask, tokens, mask = place(
        policy, ["123=", "987="], [["12", "12", "7", "12"], ["1", "", "1", "12"]]
    )
    read = tokens_read(monkeypatch, lambda: response_logits(policy, prompt_ids, prompt_mask, tokens, wanted=mask))
    # two prompts of 4; of the responses 12 and 7, then 1, nothing and 12, each without its end, which nothing comes after
    assert read == 2 * 4 + (2 + 1) + (1 + 0 + 2)


def test_rows_are_told_apart_even_where_their_sums_meet(monkeypatch):
    rows = torch.tensor([[1, 2], [2, 1], [1, 2], [0, 0]])
    first, again = packed.distinct(rows)
    assert len(first) == 3 and torch.equal(rows[first][again], rows)
    monkeypatch.setattr(torch, "randint", lambda *a, **k: torch.ones(2, dtype=torch.long))  # 1 + 2 = 2 + 1
    first, again = packed.distinct(rows)
    assert torch.equal(rows[first][again], rows)


def spoil(policy, how):
    model, config = policy.model, policy.model.config
    if how == "a hook":
        model.model.layers[0].mlp.register_forward_hook(lambda *_: None)
    elif how == "a hook before":
        model.lm_head.register_forward_pre_hook(lambda *_: None)
    elif how == "a hook of gradients":
        model.model.norm.register_full_backward_hook(lambda *_: None)
    elif how == "a forward of its own":
        model.model.layers[1].forward = model.model.layers[1].forward
    elif how == "a module of another kind":
        model.model.layers[0].mlp.down_proj = nn.Sequential(model.model.layers[0].mlp.down_proj)
    elif how == "checkpointing":
        model.gradient_checkpointing_enable()
    elif how == "half precision":
        model.bfloat16()
    else:
        setattr(
            config,
            *{"window": ("sliding_window", 4), "gelu": ("hidden_act", "gelu"), "large": ("vocab_size", 10**9)}[how],
        )
    return model


@pytest.mark.parametrize(
    "how",
    [
        "a hook",
        "a hook before",
        "a hook of gradients",
        "a forward of its own",
        "a module of another kind",
        "checkpointing",
        "half precision",
        "window",
        "gelu",
        "large",
    ],
)
def test_what_it_does_not_know_takes_the_other_path(how):
    policy = build_policy(device="cpu")
    assert fits(policy.model)
    assert not fits(spoil(policy, how))


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gpt2", "gemma3", "mistral"])
def test_other_architectures_and_fewer_keys_than_queries_take_the_other_path(name):
    assert not fits(real_policy(name).model)


def test_autocast_takes_the_other_path():
    policy = build_policy(device="cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not fits(policy.model)
    assert fits(policy.model)


def test_a_hook_is_called():
    policy, heard = build_policy(device="cpu"), []
    at = place(policy, PROMPTS["padded"], RESPONSES["several"])[:3]
    before = response_logits(policy, *at)
    policy.model.model.layers[0].register_forward_hook(lambda *_: heard.append(1))
    torch.testing.assert_close(response_logits(policy, *at), before, rtol=1e-4, atol=1e-5)
    assert heard


def test_a_trunk_is_of_the_parameters_as_they_are_now():
    policy = policy_of("dense")
    at = place(policy, PROMPTS["padded"], RESPONSES["several"])
    before = response_logits(policy, *at[:3])
    changed = Policy(copy.deepcopy(policy.model), policy.tokenizer, "changed")
    with torch.no_grad():
        for parameter in changed.model.parameters():
            parameter.mul_(1.1)
    assert not torch.allclose(response_logits(changed, *at[:3])[at[3]], before[at[3]])
    assert torch.equal(response_logits(policy, *at[:3])[at[3]], before[at[3]])
