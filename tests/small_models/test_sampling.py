"""Sampling: what it returns agrees with a fresh forward, and what it saves it really saves."""

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, MistralConfig, MixtralConfig

from small_models.policies import Policy, build_policy, load_policy
from small_models.sampling import _pick, response_logits, sample, token_entropy, token_logp
from small_models.tokenizer import build_tokenizer

SHARED = {"vocab_size": 48, "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
OTHERS = {
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, **SHARED),
    "mistral, sliding window": MistralConfig(sliding_window=4, **SMALL, **SHARED),
    "mixtral": MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **SMALL, **SHARED),
}


def policy_of(name):
    if name == "llama":
        return build_policy(seed=1, device="cpu")
    torch.manual_seed(0)
    return Policy(AutoModelForCausalLM.from_config(OTHERS[name]).float().eval(), build_tokenizer(), name)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["llama", *OTHERS])
@pytest.mark.parametrize("prompts", [["123=", "987="], ["1=", "98765432=", "abc="]], ids=["equal lengths", "padded"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_old_log_probabilities_and_entropy_agree_with_a_fresh_forward(name, prompts, temperature):
    policy = policy_of(name)
    samples = sample(policy, prompts, group_size=16, max_new_tokens=24, temperature=temperature, generator=seeded())
    assert samples.lengths.min() < samples.lengths.max()  # rows ended at different times, so the cache was compacted
    with torch.no_grad():
        logits = response_logits(policy, samples.prompt_ids, samples.prompt_mask, samples.tokens)
    mask = samples.mask
    fresh = token_logp(logits, samples.tokens, temperature=temperature)
    torch.testing.assert_close(samples.logp[mask], fresh[mask], rtol=0, atol=1e-5)
    torch.testing.assert_close(
        samples.entropy[mask], token_entropy(logits, temperature=temperature)[mask], rtol=0, atol=1e-5
    )


def test_shipped_policies_agree_to_1e_5_on_a_whole_rollout():
    policy = load_policy("chain", device="cpu")
    prompts = [f"{number:05d}=" for number in range(0, 100_000, 3137)]
    samples = sample(policy, prompts, group_size=8, max_new_tokens=9, generator=seeded())
    with torch.no_grad():
        logits = response_logits(policy, samples.prompt_ids, samples.prompt_mask, samples.tokens)
    assert (samples.logp - token_logp(logits, samples.tokens))[samples.mask].abs().max() < 1e-5


class Rows:
    """Notes the shape of every batch of tokens that enters a model, by whichever way."""

    def __init__(self, policy):
        self.calls = []
        self.handle = policy.model.get_input_embeddings().register_forward_pre_hook(self.count)

    def count(self, module, args):
        self.calls.append(tuple(args[0].shape))


def test_the_prompt_is_encoded_once_a_group_and_finished_rows_stop_costing():
    policy = load_policy("chain", device="cpu")
    rows = Rows(policy)
    samples = sample(policy, ["35271=", "11111=", "90909="], group_size=40, max_new_tokens=9, generator=seeded())
    assert rows.calls[0] == (3, 6)
    decoded = [count for count, _ in rows.calls[1:]]
    for step, count in enumerate(decoded, start=1):
        unfinished = int((samples.lengths > step).sum())
        assert unfinished <= count < unfinished / 0.8 + 1
    assert sum(decoded) < 0.8 * 120 * len(decoded)
    rows.handle.remove()


def test_a_response_does_not_depend_on_who_else_is_in_the_batch():
    policy = load_policy("chain", device="cpu")
    together = sample(policy, ["35271=", "11111="], group_size=4, max_new_tokens=9, generator=seeded())
    without_stop = sample(
        policy, ["35271=", "11111="], group_size=4, max_new_tokens=9, stop_at_end=False, generator=seeded()
    )
    width = together.tokens.shape[-1]
    assert (together.tokens == without_stop.tokens[..., :width])[together.mask].all()


def test_padding_a_prompt_changes_nothing():
    policy = build_policy(seed=2, device="cpu")
    alone = sample(policy, ["12="], max_new_tokens=6, generator=seeded())
    beside = sample(policy, ["12=", "123456789="], max_new_tokens=6, generator=seeded())
    width = alone.tokens.shape[-1]
    assert (alone.tokens[0] == beside.tokens[0, :, :width]).all()
    torch.testing.assert_close(alone.logp[0], beside.logp[0, :, :width], rtol=0, atol=1e-5)


def test_tokens_come_with_the_policy_s_probabilities():
    policy = load_policy("trip", device="cpu")
    count = 20_000
    first = sample(policy, ["09+4="], group_size=count, max_new_tokens=1, generator=seeded(3)).tokens.flatten()
    with torch.no_grad():
        ids = torch.tensor([policy.tokenizer("09+4=", add_special_tokens=False)["input_ids"]])
        expected = policy.model(ids).logits[0, -1].softmax(-1)
    seen = torch.bincount(first, minlength=48) / count
    # a share's standard error is at most √(¼ / 20,000) = .0035; five of them
    assert (seen - expected).abs().max() < 0.018
    assert expected.max() < 0.9  # else the check would be easy to pass


def test_a_token_of_probability_zero_is_never_picked():
    probabilities = torch.tensor([[0.0, 0.5, 0.5, 0.0]]).repeat(4, 1)
    uniform = torch.tensor([0.0, 0.4999, 0.5, 1 - 2**-53], dtype=torch.double)  # both ends of [0, 1) among them
    assert _pick(probabilities, uniform).tolist() == [1, 1, 2, 2]


def test_greedy_and_the_limits_on_the_distribution():
    policy = load_policy("trip", device="cpu")
    prompts = ["09+4=", "15+2="]
    kwargs = {"group_size": 200, "max_new_tokens": 4, "generator": seeded()}
    greedy = sample(policy, prompts, max_new_tokens=4, temperature=0)
    for restricted in (sample(policy, prompts, top_k=1, **kwargs), sample(policy, prompts, top_p=1e-9, **kwargs)):
        assert (restricted.tokens == greedy.tokens).all()
    three = sample(policy, prompts[:1], top_k=3, **kwargs)
    assert three.tokens[0, :, 0].unique().numel() == 3
    assert sample(policy, prompts[:1], **kwargs).tokens[0, :, 0].unique().numel() > 3
    nucleus = sample(policy, prompts[:1], top_p=0.5, **kwargs)
    with torch.no_grad():
        logits = response_logits(policy, nucleus.prompt_ids, nucleus.prompt_mask, nucleus.tokens)[0, :, 0].softmax(-1)
    ordered = logits[0].sort(descending=True)
    kept = ordered.indices[: int((ordered.values.cumsum(0) < 0.5).sum()) + 1]
    assert set(nucleus.tokens[0, :, 0].tolist()) == set(kept.tolist())


def test_log_probabilities_are_those_before_top_k():
    policy = load_policy("trip", device="cpu")
    samples = sample(policy, ["09+4="], group_size=8, max_new_tokens=4, top_k=1, generator=seeded())
    assert (samples.logp[samples.mask] < 0).any()


def test_truncation_is_flagged_and_the_end_token_counts():
    policy = load_policy("chain", device="cpu")
    short = sample(policy, ["35271="], group_size=20, max_new_tokens=2, generator=seeded())
    assert short.truncated.all()
    whole = sample(policy, ["35271="], group_size=20, max_new_tokens=9, generator=seeded())
    assert not whole.truncated.all()
    for text, length, truncated in zip(whole.texts(policy)[0], whole.lengths[0], whole.truncated[0], strict=True):
        assert len(text) == length - (0 if truncated else 1)


def test_the_same_seed_gives_the_same_samples():
    policy = load_policy("chain", device="cpu")
    a, b, c = (
        sample(policy, ["35271="], group_size=9, max_new_tokens=9, generator=seeded(s)).texts(policy) for s in (1, 1, 2)
    )
    assert a == b != c


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"max_new_tokens": 100}, "100 after a prompt of 6 tokens exceeds the 64 positions"),
        ({"temperature": -1.0}, "temperature must be 0"),
        ({"temperature": float("nan")}, "temperature must be 0"),
        ({"top_k": -1}, "top_k must be 0"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"group_size": 0}, "group_size"),
    ],
)
def test_settings_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        sample(build_policy(), ["35271="], **{"max_new_tokens": 4, **wrong})


def test_prompts_that_the_vocabulary_cannot_write_are_refused():
    with pytest.raises(ValueError, match=r"\['É'\]"):
        sample(build_policy(), ["3É="], max_new_tokens=2)
    with pytest.raises(ValueError, match="no tokens"):
        sample(build_policy(), [""], max_new_tokens=2)
