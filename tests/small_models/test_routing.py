"""Routing, on a policy whose embeddings and routers are set by hand, so that a token's experts follow from the token read."""

import pytest
import torch

from small_models.policies import build_policy, load_policy
from small_models.routing import flipped, record_routes, replay_routes, routed, routing_flips
from small_models.sampling import encode_prompts, encode_responses, response_logits, token_logp
from small_models.tokenizer import encode

# What the two layers' routers make of each character that is read: one number an expert, so that the two experts are, in
# layer 1: "1" → 0, 2; "2" → 3, 2; "=" → 1, 0, and in layer 2: "1" → 3, 0; "2" → 1, 3; "=" → 2, 1.
ROUTERS = {
    "1": ([3.0, 1.0, 2.0, 0.0], [2.0, 1.0, 0.0, 3.0]),
    "2": ([0.0, 1.0, 2.0, 3.0], [0.0, 3.0, 1.0, 2.0]),
    "=": ([2.0, 3.0, 0.0, 1.0], [0.0, 2.0, 3.0, 1.0]),
}


def set_routers(policy, routers):
    for number, layer in enumerate(policy.model.model.layers):
        layer.mlp.gate.weight.zero_()
        for place, columns in enumerate(routers.values()):
            layer.mlp.gate.weight[:, place] = torch.tensor(columns[number])


@pytest.fixture
def policy():
    """Attention and experts add nothing, so each router reads the embedding of the character at its place (its norm apart)."""
    policy = build_policy(hidden_size=8, num_layers=2, num_heads=1, experts=4, device="cpu")
    with torch.no_grad():
        policy.model.model.embed_tokens.weight.zero_()
        for place, character in enumerate(ROUTERS):
            policy.model.model.embed_tokens.weight[encode(policy.tokenizer, [character])[0][0], place] = 1.0
        for layer in policy.model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.experts.down_proj.zero_()
        set_routers(policy, ROUTERS)
    return policy


def encode_all(policy, prompts, responses):
    """Return prompt ids, prompt mask, tokens, mask of one response a prompt."""
    tokens, mask = encode_responses(policy, responses)
    return *encode_prompts(policy, prompts), tokens, mask


def test_the_experts_of_a_token_are_those_at_the_place_before_it(policy):
    prompt_ids, prompt_mask, tokens, _ = encode_all(policy, ["21=", "2"], ["12", "2"])
    assert not prompt_mask.all()  # padded on the left
    experts = routed(policy, prompt_ids, prompt_mask, tokens)
    read = ["=12", "22"]  # the last of the prompt, then the response without its end of sequence
    layers = {"1": [[0, 2], [3, 0]], "2": [[3, 2], [1, 3]], "=": [[1, 0], [2, 1]]}
    assert experts.shape == (2, 1, 3, 2, 2)
    assert experts[0, 0].tolist() == [layers[character] for character in read[0]]
    assert experts[1, 0, :2].tolist() == [layers[character] for character in read[1]]
    assert not experts.requires_grad and not any(module._forward_hooks for module in policy.model.modules())
    prompt_routes, token_routes = record_routes(policy, prompt_ids, prompt_mask, tokens)  # of what each place reads
    assert prompt_routes[0].tolist() == [layers[character] for character in "21="]
    assert token_routes[0, 0, ..., :2].movedim(-1, 0).tolist() == [layers["1"], layers["2"]]
    assert not token_routes[..., -1].any()


def test_flips_of_two_routers_by_hand(policy):
    *inputs, mask = encode_all(policy, ["21=", "2"], ["12", "2"])
    before = routed(policy, *inputs)
    assert routing_flips(before, routed(policy, *inputs), mask) == 0.0
    # Layer 1 ranks the experts of "2" the other way round, the same two: no flip. Layer 2 gives "1" expert 2 for its 0.
    with torch.no_grad():
        set_routers(
            policy,
            {
                **ROUTERS,
                "1": ([3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0]),
                "2": ([0.0, 1.0, 3.0, 2.0], ROUTERS["2"][1]),
            },
        )
    after = routed(policy, *inputs)
    where = flipped(before, after)
    # "=12" and "22" were read before the five tokens; the one "1" among them is flipped in layer 2: 1 of 5 × 2 decisions.
    assert where[0, 0].tolist() == [[False, False], [False, True], [False, False]]
    assert not where[1, 0, :2].any()
    assert routing_flips(before, after, mask) == pytest.approx(0.1)


def log_probabilities(policy, inputs):
    with torch.no_grad():
        return token_logp(response_logits(policy, *inputs), inputs[2])


@pytest.fixture
def moved():
    """A shipped policy of experts, prompts with responses, its log-probabilities and routes there, and then other routers."""
    policy = load_policy("chain-experts", device="cpu")
    *inputs, mask = encode_all(policy, ["35271=", "90210="], ["38078#8", "#2"])
    before, routes = log_probabilities(policy, inputs), record_routes(policy, *inputs)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in policy.model.model.layers:
            layer.mlp.gate.weight += 0.5 * torch.randn(layer.mlp.gate.weight.shape, generator=noise)
    return policy, inputs, mask, before, routes


def test_replayed_tokens_go_through_the_old_experts(moved):
    policy, inputs, mask, before, old = moved
    now = log_probabilities(policy, inputs)
    with replay_routes(policy, *record_routes(policy, *inputs)):  # its own
        torch.testing.assert_close(log_probabilities(policy, inputs)[mask], now[mask])
    with replay_routes(policy, *old):
        replayed, taken = log_probabilities(policy, inputs), record_routes(policy, *inputs)
    assert all(torch.equal(one, other) for one, other in zip(taken, old, strict=True))
    assert (now - before)[mask].abs().max() > 1e-3  # the routers did change
    assert not torch.allclose(replayed[mask], now[mask], atol=1e-4)
    torch.testing.assert_close(log_probabilities(policy, inputs), now)  # nothing is left behind
    unread = load_policy("chain-experts", device="cpu")
    with replay_routes(unread, *old):  # no first look at the model comes between
        torch.testing.assert_close(log_probabilities(unread, inputs)[mask], before[mask])


def test_the_old_experts_share_the_new_probabilities_out(moved):
    policy, inputs, _, _, old = moved
    router = policy.model.model.layers[0].mlp.gate
    heard = []
    with replay_routes(policy, *old):
        hook = router.register_forward_hook(lambda module, args, output: heard.append((args[0], *output)))
        log_probabilities(policy, inputs)
        hook.remove()
    hidden, _, weights, experts = heard[0]
    p = torch.softmax(hidden.reshape(-1, hidden.shape[-1]) @ router.weight.T, -1)
    chosen = torch.stack([p[torch.arange(len(p)), experts[:, k]] for k in range(experts.shape[1])], 1)
    torch.testing.assert_close(weights, (chosen / chosen.sum(1, keepdim=True)).detach())


def test_other_routes_policies_and_routers_are_refused(moved, monkeypatch):
    policy, inputs, _, _, (prompt_routes, token_routes) = moved
    for prompts, tokens in ((prompt_routes[:, 1:], token_routes), (prompt_routes[:1], token_routes[:1])):
        with replay_routes(policy, prompts, tokens), pytest.raises(ValueError, match="routes must be of what is read"):
            log_probabilities(policy, inputs)
    dense = load_policy("chain", device="cpu")
    assert routed(dense, *inputs) is None
    with pytest.raises(ValueError, match="must have experts"):
        record_routes(dense, *inputs)
    kind = type(policy.model.model.layers[0].mlp.gate)
    forward = kind.forward

    def halved(self, hidden):
        logits, weights, chosen = forward(self, hidden)
        return logits, weights / 2, chosen

    monkeypatch.setattr(kind, "forward", halved)
    with pytest.raises(ValueError, match="must have routers that share weights"):
        record_routes(policy, *inputs)
    assert routed(policy, *inputs) is not None  # to look at them is no matter of weights
