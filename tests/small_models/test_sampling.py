"""Sampling: what it returns agrees with a fresh forward, and what it saves it really saves."""

import pytest
import torch

from small_models.policies import build_policy, load_policy
from small_models.sampling import _apply_limits, _draw_tokens, sample
from small_models.tasks import Chain, Lookup
from tests.small_models.test_tasks import OneTable


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Rows:
    """Notes the shape of every batch of tokens that enters a model, by whichever way."""

    def __init__(self, policy):
        self.calls = []
        self.handle = policy.weights.model.embed_tokens.register_forward_pre_hook(self.count)

    def count(self, module, args):
        self.calls.append(tuple(args[0].shape))


def test_the_prompt_is_encoded_once_a_group_and_finished_rows_stop_costing():
    policy = load_policy("chain", device="cpu")
    rows = Rows(policy)
    samples = sample(policy, ["35271=", "11111=", "90909="], group_size=40, max_new_tokens=9, generator=seeded())
    assert rows.calls[0] == (3, 6)
    decoded = [count for count, *_ in rows.calls[1:]]
    for step, count in enumerate(decoded, start=1):
        unfinished = int((samples.lengths > step).sum())
        assert unfinished <= count < unfinished / 0.8 + 1
    assert sum(decoded) < 0.8 * 120 * len(decoded)
    rows.handle.remove()


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


def test_a_token_of_probability_zero_is_never_drawn():
    probabilities = torch.tensor([[0.0, 0.5, 0.5, 0.0]]).repeat(4, 1)
    uniform = torch.tensor([0.0, 0.4999, 0.5, 1 - 2**-53], dtype=torch.double)  # both ends of [0, 1) among them
    assert _draw_tokens(probabilities, uniform).tolist() == [1, 1, 2, 2]


def test_greedy_and_the_limits_on_the_distribution():
    policy = load_policy("trip", device="cpu")
    prompts = ["09+4=", "15+2="]
    kwargs = {"group_size": 200, "max_new_tokens": 4, "generator": seeded()}
    greedy = sample(policy, prompts, max_new_tokens=4, temperature=0)
    for restricted in (sample(policy, prompts, top_k=1, **kwargs), sample(policy, prompts, top_p=1e-9, **kwargs)):
        assert (restricted.tokens == greedy.tokens).all()
        assert (restricted.logp[restricted.mask] < 0).any()  # before the limits; after them each was certain
        torch.testing.assert_close(restricted.sampler_logp, torch.zeros_like(restricted.logp), rtol=0, atol=1e-5)


def test_the_nucleus_is_the_smallest_set_of_what_top_k_leaves():
    """0 to 3 with probabilities .4, .3, .2, .1. Of the likeliest two, .4 is .57, which is enough for top_p ½ and not for .6."""
    policy = build_policy(device="cpu")
    logits = torch.full((48,), -1e9)
    first = policy.tokenizer.convert_tokens_to_ids("0")
    logits[first : first + 4] = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    policy.model.lm_head.register_forward_hook(lambda module, args, output: logits.expand_as(output))

    def drawn(**limits):
        samples = sample(policy, ["1="], group_size=200, max_new_tokens=1, generator=seeded(), **limits)
        return "".join(sorted({text for (texts,) in [samples.texts(policy)] for text in texts}))

    assert drawn() == "0123"
    assert (drawn(top_k=2), drawn(top_p=0.5)) == ("01", "01")
    assert (drawn(top_k=2, top_p=0.5), drawn(top_k=2, top_p=0.6)) == ("0", "01")
    exact = torch.tensor([[0.5, 0.25, 0.25]])
    assert _apply_limits(exact, 0, 0.5).tolist() == [[0.5, 0, 0]]  # a half is a half


class Talkative(Lookup):
    """A tool for policies that write anything; what it says holds the end of a call and an end of sequence."""

    call_end = "e"

    def observe(self, prompt, written):
        return f"{len(written)}e$"


def scripted(script):
    """A policy that wants to write these characters, one a step, whatever it reads; a dot: it is not asked."""
    policy = build_policy(device="cpu")
    steps = iter(policy.tokenizer(script, add_special_tokens=False)["input_ids"])

    def want(module, args, logits):
        logits = torch.zeros_like(logits)
        logits[..., next(steps)] = 50.0
        return logits

    policy.model.lm_head.register_forward_hook(want)
    return policy


@pytest.mark.parametrize(
    ("task", "script", "text", "by_policy"),
    [
        (OneTable(), "?3;..?7;..#8$", "?3;7,?7;8,#8", "1110011100111"),
        (OneTable(), "#8$", "#8", "111"),
        (OneTable(), "?a;..?3;..#7$", "?a;-,?3;7,#7", "1110011100111"),
        (OneTable(), ";..;..#8$", ";-,;-,#8", "100100111"),
        (OneTable(), "?3;..?3;..?3;..?3;", "?3;7,?3;7,?3;-,?3;", "111001110011100111"),  # no room for an answer
        (Talkative(), "1e...e...#$", "1e2ee6e#", "11000100011"),  # its e and $ call and end nothing
    ],
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_transcript_by_hand(task, script, text, by_policy, temperature):
    samples = sample(scripted(script), ["kq:2:3="], task=task, max_new_tokens=18, temperature=temperature)
    assert samples.texts(build_policy())[0] == [text]
    assert samples.mask[0, 0].int().tolist() == [int(digit) for digit in by_policy]
    assert torch.equal(samples.observed, ~samples.mask) and samples.attention_mask.all()
    assert int(samples.lengths) == by_policy.count("1")
    assert int(samples.last_positions) == len(by_policy) - 1
    assert bool(samples.truncated) == (not script.endswith("$"))


@pytest.mark.parametrize(("room", "text", "last"), [(3, "?3;", 2), (4, "?3;7", 2), (5, "?3;7,", 2), (6, "?3;7,?", 5)])
def test_what_the_tool_writes_counts_among_the_new_tokens(room, text, last):
    samples = sample(scripted("?3;..?"), ["kq:2:3="], task=OneTable(), max_new_tokens=room)
    assert samples.texts(build_policy())[0] == [text]
    assert int(samples.last_positions) == last
    assert samples.truncated.all()
    assert samples.mask[0, 0].tolist() == [True, True, True, False, False, True][:room]


@pytest.mark.parametrize("task", [Chain(), Lookup()], ids=lambda task: task.name)
def test_a_response_does_not_depend_on_who_else_is_in_the_batch(task):
    policy = load_policy(task.name, device="cpu")
    a, b, c = task.held_out_prompts[:3]
    kwargs = {"task": task, "group_size": 12, "max_new_tokens": task.max_new_tokens}
    with_b, with_c, alone = (sample(policy, group, generator=seeded(), **kwargs) for group in ([a, b], [a, c], [a]))
    assert with_b.texts(policy)[0] == with_c.texts(policy)[0] == alone.texts(policy)[0]
    assert with_b.texts(policy)[1] != with_c.texts(policy)[1]
    without_stop = sample(policy, [a, b], stop_at_end=False, generator=seeded(), **kwargs)
    width = with_b.tokens.shape[-1]
    assert not without_stop.truncated.any()  # nobody waited for an end
    assert (with_b.tokens == without_stop.tokens[..., :width])[with_b.attention_mask].all()
