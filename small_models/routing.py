"""Which experts each token is routed to, in a policy that is a mixture of experts, and how much of that an update changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from small_models.any_model import forward_inputs
from small_models.policies import Policy, one_thread_if_small


def routed(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> Tensor | None:
    """Return the experts that work where each response token is chosen, likeliest first: [P, G, T, layers, k].

    They are those of the position before the token, whose output is the token's distribution. None for a policy without
    experts, or one whose routers do not say which they took.
    """
    experts = _chosen(policy, prompt_ids, prompt_mask, tokens)
    return None if experts is None else experts[:, :, -tokens.shape[-1] :]


def record_routes(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the experts of all that is read, for `replay_routes`: of prompts [P, S, layers, k], of tokens [P, G, layers, k, T].

    Nothing is read after the last token: its experts are 0, and are not put back. Raises ValueError for a policy without
    experts, or one whose routers do not say which they took or share weights out otherwise than `replay_routes` does.
    """
    with _hooked(_routers(policy), _check_weights):
        experts = _chosen(policy, prompt_ids, prompt_mask, tokens)
    if experts is None:
        raise ValueError(
            "policy must have experts, and routers that say which they took, as chain-experts; got one without"
        )
    of_prompts, of_tokens = experts[:, 0, : prompt_ids.shape[1]], experts[:, :, prompt_ids.shape[1] :].movedim(2, -1)
    return of_prompts, nn.functional.pad(of_tokens, (0, 1))


def _chosen(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> Tensor | None:
    """Return the experts of each position of a prompt and of a response but for its last token: [P, G, S + T − 1, layers, k]."""
    if not (routers := _routers(policy)):
        return None
    inputs = forward_inputs(prompt_ids, prompt_mask, tokens[..., :-1])
    with one_thread_if_small(policy), torch.no_grad(), _listening(routers) as heard:
        policy.model.base_model(**inputs, use_cache=False)
    if not heard:
        return None
    layers = [choices.reshape(*tokens.shape[:2], -1, choices.shape[-1]) for choices in heard]
    return torch.stack(layers, dim=3)


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
    """Return the modules that choose experts, first layer first: those whose logits transformers can record."""
    recorded = getattr(policy.weights, "_can_record_outputs", None) or {}
    kind = getattr(recorded.get("router_logits"), "target_class", None)
    return [] if kind is None else [module for module in policy.weights.modules() if isinstance(module, kind)]


@contextmanager
def _listening(routers: list[nn.Module]) -> Iterator[list[Tensor]]:
    """Give a list that fills with what the routers choose, [rows · positions, k] a call: the integers among their outputs."""
    heard: list[Tensor] = []

    def hear(router: nn.Module, given: Any, output: Any) -> None:
        heard.extend(part for part in _parts(output) if not part.is_floating_point())

    with _hooked(routers, hear):
        yield heard


@contextmanager
def replay_routes(policy: Policy, of_prompts: Tensor, of_tokens: Tensor, owner: Tensor | None = None) -> Iterator[None]:
    """Let what is read go through the experts that `record_routes` gave, whatever the routers would choose now.

    Routing replay (GSPO, arXiv 2507.18071, §4; of the sampler's routes: R3, 2510.11370): the experts are the old ones, and their
    weights the router's probabilities now, over these experts: p_e / Σ_chosen p. owner: the prompt of of_tokens[i], None: i.
    Raises ValueError where something else is read.
    """
    owner = torch.arange(len(of_tokens), device=of_tokens.device) if owner is None else owner
    prompts = of_prompts[owner.repeat_interleave(of_tokens.shape[1])]
    routes = torch.cat([prompts, of_tokens.flatten(0, 1).movedim(-1, 1)[:, :-1]], dim=1).flatten(0, 1)
    routers = _routers(policy)
    layers = {id(router): layer for layer, router in enumerate(routers)}

    def put_back(router: nn.Module, given: Any, output: Any) -> Any:
        old = routes[:, layers[id(router)]]
        chosen = next(part for part in _parts(output) if not part.is_floating_point())
        if old.shape != chosen.shape:
            raise ValueError(
                f"routes must be of what is read: a router chose {list(chosen.shape)}; got {list(old.shape)}"
            )
        logits, given_weights, _ = _parts(output)
        return logits, _weights(logits, old).to(given_weights.dtype), old

    with _hooked(routers, put_back):
        yield


def _check_weights(router: nn.Module, given: Any, output: Any) -> None:
    """Raise ValueError for a router that does not share weights out as `_weights` does: asked once, and not at each replay."""
    logits, weights, chosen = _parts(output)
    if not torch.allclose(_weights(logits, chosen), weights.float(), atol=1e-5):
        raise ValueError(f"policy must have routers that share weights p_e / Σ p out; got {type(router).__name__}")


def _weights(logits: Tensor, chosen: Tensor) -> Tensor:
    """Return p_e / Σ p over the chosen experts, [rows · positions, k]."""
    return logits.float().gather(-1, chosen).softmax(-1)


def _parts(output: Any) -> list[Tensor]:
    return [part for part in (output if isinstance(output, tuple) else (output,)) if isinstance(part, Tensor)]


@contextmanager
def _hooked(routers: list[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    hooks = [router.register_forward_hook(hook) for router in routers]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()
