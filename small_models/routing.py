"""Which experts each token is routed to, in a policy that is a mixture of experts, and how much of that an update changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from small_models.any_model import model_inputs
from small_models.policies import Policy, one_thread_if_small


def routed(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> Tensor | None:
    """Return the experts that work where each response token is chosen, likeliest first: [P, G, T, layers, k].

    They are those of the position before the token, whose output is the token's distribution. None for a policy without
    experts, or one whose routers do not say which they took.
    """
    if not (routers := _routers(policy)):
        return None
    inputs = model_inputs(prompt_ids, prompt_mask, tokens[..., :-1])
    rows, length = len(tokens.flatten(0, 1)), tokens.shape[-1]
    with one_thread_if_small(policy), torch.no_grad(), _listening(routers) as heard:
        policy.model.base_model(**inputs, use_cache=False)
    if not heard:
        return None
    layers = [choices.reshape(rows, -1, choices.shape[-1])[:, -length:] for choices in heard]
    return torch.stack(layers, dim=2).reshape(*tokens.shape, len(layers), -1)


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


def listening(policy: Policy) -> AbstractContextManager[list[Tensor]]:
    """Give a list that fills with the experts that each call of a router chooses, which `replaying` can put back."""
    return _listening(_routers(policy))


@contextmanager
def replaying(policy: Policy, routes: Sequence[Tensor]) -> Iterator[None]:
    """Let tokens go through the experts that they went through when `listening` heard these, on the same inputs.

    Routing replay (GSPO, arXiv 2507.18071, §4): the experts are the old ones, and their weights the router's probabilities now,
    over these experts: p_e / Σ_chosen p. Raises ValueError where the calls do not match those that were heard.
    """
    left = list(routes)

    def put_back(router: nn.Module, given: Any, output: Any) -> Any:
        chosen = next(part for part in _parts(output) if not part.is_floating_point())
        old = left.pop(0) if left else chosen[:0]
        if old.shape != chosen.shape:
            raise ValueError(
                f"routes must be heard on the same inputs: a router chose {list(chosen.shape)}; got {list(old.shape)}"
            )
        logits, given_weights, _ = _parts(output)
        if not torch.allclose(_weights(logits, chosen), given_weights.float(), atol=1e-5):
            raise ValueError(f"policy must have routers that share weights p_e / Σ p out; got {type(router).__name__}")
        return logits, _weights(logits, old).to(given_weights.dtype), old

    with _hooked(_routers(policy), put_back):
        yield


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
