"""Which experts each token is routed to, in a policy that is a mixture of experts, and routing replay.

In: a policy and responses. Out: the experts that its routers select (`routed`), or a context in which they are those of another
time (`record_routes`, `replay_routes`). All of it listens to the router modules of transformers by hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from small_models.any_model import forward_inputs, row_by_row
from small_models.policies import Policy, one_thread_if_small


def routed(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> Tensor | None:
    """Return the experts that work where each response token is drawn, likeliest first: [P, G, T, layers, k].

    They are those of the position before the token, whose output is the token's distribution. None for a policy without
    experts, or one whose routers do not say which they took.
    """
    experts = _selected_experts(policy, prompt_ids, prompt_mask, tokens)
    return None if experts is None else experts[:, :, -tokens.shape[-1] :]


def record_routes(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the experts of all that is read, for `replay_routes`: prompts' [P, S, layers, k], tokens' [P, G, layers, k, T].

    Nothing is read after the last token: its experts are 0, and are not put back. Raises ValueError for a policy without
    experts, or one whose routers do not say which they took or share weights out otherwise than `replay_routes` does.
    """

    def check_weights(router: nn.Module, _: Any, output: Any) -> None:
        logits, weights, selected = _tensors(output)
        if not torch.allclose(_shares(logits, selected), weights.float(), atol=1e-5):
            raise ValueError(f"policy must have routers that share weights p_e / Σ p out; got {type(router).__name__}")

    with _hooked(_routers(policy), check_weights):
        experts = _selected_experts(policy, prompt_ids, prompt_mask, tokens)
    if experts is None:
        raise ValueError(
            "policy must have experts, and routers that say which they took, as chain-experts; got one without"
        )
    s = prompt_ids.shape[1]
    return experts[:, 0, :s], nn.functional.pad(experts[:, :, s:].movedim(2, -1), (0, 1))


@contextmanager
def replay_routes(
    policy: Policy, prompt_routes: Tensor, token_routes: Tensor, owner: Tensor | None = None
) -> Iterator[None]:
    """Within it, what is read goes through the experts that `record_routes` gave, whatever the routers would select now.

    Routing replay (GSPO, arXiv 2507.18071, §4; of the sampler's routes: R3, 2510.11370): the experts are the old ones, and their
    weights the router's probabilities now, over these experts: p_e / Σ_selected p. owner: the prompt of token_routes[i], None: i.
    Raises ValueError where something else is read.
    """
    owner = torch.arange(len(token_routes), device=token_routes.device) if owner is None else owner
    prompts = prompt_routes[owner.repeat_interleave(token_routes.shape[1])]
    routes = torch.cat([prompts, token_routes.flatten(0, 1).movedim(-1, 1)[:, :-1]], dim=1).flatten(0, 1)
    routers = _routers(policy)
    layers = {id(router): layer for layer, router in enumerate(routers)}

    def put_back(router: nn.Module, _: Any, output: Any) -> Any:
        logits, weights, selected = _tensors(output)
        old = routes[:, layers[id(router)]]
        if old.shape != selected.shape:
            raise ValueError(
                f"routes must be of what is read: a router chose {list(selected.shape)}; got {list(old.shape)}"
            )
        return logits, _shares(logits, old).to(weights.dtype), old

    with row_by_row(), _hooked(routers, put_back):
        yield


def has_experts(policy: Policy) -> bool:
    """Return whether a policy has routers whose choices can be heard."""
    return bool(_routers(policy))


def flipped(old: Tensor, new: Tensor) -> Tensor:
    """Return where the set of experts differs, [P, G, T, layers], between two answers of `routed`; their order is no matter."""
    return (old.sort(-1).values != new.sort(-1).values).any(-1)


def routing_flips(old: Tensor, new: Tensor, mask: Tensor) -> float:
    """Return the share of decisions, one a token of `mask` [P, G, T] and layer, whose set of experts differs."""
    return float(flipped(old, new)[mask].double().mean())


def _routers(policy: Policy) -> list[nn.Module]:
    """Return the modules that select experts, first layer first: those whose logits transformers can record."""
    recorded = getattr(policy.weights, "_can_record_outputs", None) or {}
    kind = getattr(recorded.get("router_logits"), "target_class", None)
    return [] if kind is None else [module for module in policy.weights.modules() if isinstance(module, kind)]


def _selected_experts(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> Tensor | None:
    """Return the experts of each position of a prompt and of a response but for its last token: [P, G, S + T − 1, layers, k]."""
    routers = _routers(policy)
    heard: list[Tensor] = []

    def listen(_: nn.Module, __: Any, output: Any) -> None:  # experts are the integers among what a router returns
        heard.extend(part for part in _tensors(output) if not part.is_floating_point())

    if routers:
        inputs = forward_inputs(prompt_ids, prompt_mask, tokens[..., :-1])
        with one_thread_if_small(policy), torch.no_grad(), _hooked(routers, listen):
            policy.model.base_model(**inputs, use_cache=False)
    layers = [experts.reshape(*tokens.shape[:2], -1, experts.shape[-1]) for experts in heard]
    return torch.stack(layers, dim=3) if layers else None


def _shares(logits: Tensor, experts: Tensor) -> Tensor:
    """Return p_e / Σ p over these experts, [rows · positions, k]."""
    return logits.float().gather(-1, experts).softmax(-1)


def _tensors(output: Any) -> list[Tensor]:
    return [part for part in (output if isinstance(output, tuple) else (output,)) if isinstance(part, Tensor)]


@contextmanager
def _hooked(routers: list[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    handles = [router.register_forward_hook(hook) for router in routers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
