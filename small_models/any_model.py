"""Any causal language model of transformers, read and sampled by its own modules, which are the truth in the tests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from small_models import host

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache
    from transformers.modeling_layers import GradientCheckpointingLayer


class AnyModel:
    """A model, or its trunk where only states are asked for, as what `small_models.paths.OurDecoder` is for a few."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def logits(self, *place: Any) -> Tensor:
        """Return the logits [P, G, T, V] before each token; place: as in `states`."""
        return self._output(*place).logits.unflatten(0, place[2].shape[:2])

    def logits_and_states(self, *place: Any) -> tuple[Tensor, Tensor]:
        """Return the logits [P, G, T, V] before each token, and the states [P, G, T, H] that they are made of."""
        output, shape = self._output(*place, output_hidden_states=True), place[2].shape
        hidden = output.hidden_states[-1][:, -shape[-1] :]
        return output.logits.unflatten(0, shape[:2]), hidden.unflatten(0, shape[:2])

    def _output(
        self, prompts: Tensor, there: Tensor, tokens: Tensor, _: Any, owner: Tensor | None, **asked: Any
    ) -> Any:
        inputs = model_inputs(prompts, there, tokens[..., :-1], owner)
        with ready_for_gradients(self.model):
            return self.model(**inputs, use_cache=False, logits_to_keep=tokens.shape[-1], **asked)

    def states(
        self,
        prompts: Tensor,
        there: Tensor,
        tokens: Tensor,
        wanted: Tensor | None = None,
        owner: Tensor | None = None,
        *,
        after: bool = False,
    ) -> Tensor:
        """Return the trunk's state before each token, [P, G, T, H], or after it.

        prompts: [P, S], padded on the left where `there` is false. tokens: [P', G, T]. wanted: [P', G, T], true on the tokens
        that are asked for, None for all; here all are read. owner: the prompt of tokens[i], [P'], None for i.
        """
        inputs = model_inputs(prompts, there, tokens if after else tokens[..., :-1], owner)
        with ready_for_gradients(self.model):
            hidden = self.model(**inputs, use_cache=False).last_hidden_state[:, -tokens.shape[-1] :]
        return hidden.unflatten(0, tokens.shape[:2])

    def draw(self, prompts: Tensor, there: Tensor, owner: Tensor, room: int) -> Generator[Tensor, Any, None]:
        """Yield logits as `Decoder.draw` does, by transformers' cache."""
        cache = _new_cache(self.model, prompts.shape[1] + room)
        padded = host.waits(there.device) or not bool(there.all())
        position = there.long().cumsum(-1).sub(1).clamp(min=0) if padded else None
        attention = there.long() if padded else None

        def after(ids: Tensor, **more: Any) -> Tensor:
            more |= {"attention_mask": attention, "position_ids": position}
            logits: Tensor = self.model(ids, **more, past_key_values=cache, use_cache=True).logits
            return logits[:, -1]

        logits = after(prompts, logits_to_keep=1)[owner]
        cache.batch_select_indices(owner)
        if attention is not None and position is not None:
            attention, position = attention[owner], position[owner, -1:]
        while True:
            token, rows = yield logits
            if rows is not None:
                cache.batch_select_indices(rows)
            if attention is not None and position is not None:
                attention, position = (each if rows is None else each[rows] for each in (attention, position))
                attention, position = torch.cat([attention, torch.ones_like(token).unsqueeze(-1)], 1), position + 1
            logits = after(token.unsqueeze(-1))


def model_inputs(
    prompts: Tensor, there: Tensor, tokens: Tensor, owner: Tensor | None = None
) -> dict[str, Tensor | None]:
    """Return what a forward without a cache reads: ids [P × G, S + T] of prompts [P, S] followed by tokens [P, G, T].

    Padding on the left is masked and counts as no position. Padding on the right needs no mask: no earlier token attends to it.
    """
    owner = torch.arange(len(prompts), device=prompts.device) if owner is None else owner
    owner, after = owner.repeat_interleave(tokens.shape[1]), tokens.flatten(0, 1)
    attention, positions = None, None
    if host.waits(there.device) or not bool(there.all()):
        attention = torch.cat([there[owner], there.new_ones(after.shape)], dim=1).long()
        positions = attention.cumsum(-1).sub(1).clamp(min=0)
    ids = torch.cat([prompts[owner], after], dim=1)
    return {"input_ids": ids, "attention_mask": attention, "position_ids": positions}


@contextmanager
def ready_for_gradients(model: PreTrainedModel) -> Iterator[None]:
    """Within it, the model is without dropout, and layers whose gradient checkpointing is on keep no activations.

    They are computed again when the gradients are. transformers does so in training mode alone, which brings dropout.
    Raises ValueError for a model with gradient checkpointing whose layers cannot do it.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    modules = list(model.modules())
    if any(module.training for module in modules):
        model.eval()
    asked = [module for module in modules if vars(module).get("gradient_checkpointing")]
    layers = [module for module in asked if isinstance(module, GradientCheckpointingLayer)]
    if not torch.is_grad_enabled():
        layers = []
    elif asked and not layers:
        raise ValueError(
            f"policy: gradient checkpointing is on, but the layers of {type(model).__name__} would keep their activations; "
            "turn it off with model.gradient_checkpointing_disable()"
        )

    def again(layer: GradientCheckpointingLayer, forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: layer._gradient_checkpointing_func(partial(forward, **named), *args)

    for layer in layers:
        layer.forward = again(layer, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _new_cache(model: PreTrainedModel, room: int) -> Cache:
    """Return a cache that writes into room taken once, where transformers' copies everything at every token."""
    from transformers import DynamicCache
    from transformers.cache_utils import Cache, DynamicLayer

    class InOnePlace(DynamicLayer):
        length, is_initialized = 0, False

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            new = key_states, value_states
            if not self.is_initialized:
                self.all = [of.new_empty(*of.shape[:2], room, of.shape[-1]) for of in new]
                self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            start, self.length = self.length, self.length + key_states.shape[2]
            for of, more in zip(self.all, new, strict=True):
                of[:, :, start : self.length] = more
            self.keys, self.values = (of[:, :, : self.length] for of in self.all)
            return self.keys, self.values

        def get_seq_length(self, *_: Any) -> int:
            return self.length

        def batch_select_indices(self, indices: Tensor) -> None:
            self.all = [of[indices] for of in self.all]

    cache = DynamicCache(config=model.config)
    if cache.layers and all(type(layer) is DynamicLayer for layer in cache.layers):
        return Cache(layers=[InOnePlace() for _ in cache.layers])
    return cache  # sliding windows and recurrent states keep transformers' own layers
