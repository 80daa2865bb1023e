"""Any causal language model of transformers, read and sampled by its own modules, which are the truth in the tests.

A prompt is read once for its whole group: its keys and values go into transformers' cache, which the responses then attend to.
`AnyModel` has the methods of `small_models.decoder.Decoder` that take prompts and responses; begin there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from small_models import host
from small_models.decoder import needed_rows
from small_models.precision import without_autocast

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.modeling_layers import GradientCheckpointingLayer

_has_plain_head: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
_row_by_row: ContextVar[bool] = ContextVar("row_by_row", default=False)


class AnyModel:
    """A model of transformers, or for `hidden_states` its trunk, with the methods of `Decoder`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.language_model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.trunk = self.language_model.base_model

    @property
    def head(self) -> nn.Module | None:
        """The matrix that makes logits of states, None where logits are more than that (scaled, or capped)."""
        head = self.language_model.get_output_embeddings()
        if self.model not in _has_plain_head:
            if _row_by_row.get():  # hooks that count on what is read would see the first look
                return None
            ids = torch.arange(8, device=self.model.device).unsqueeze(0)
            with torch.no_grad(), without_autocast(self.model.device), ready_for_gradients(self.model):
                output = self.language_model(ids, output_hidden_states=True, use_cache=False)
                error = head(output.hidden_states[-1]) - output.logits
            tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(self.model.dtype, 0.1)
            _has_plain_head[self.model] = bool(error.abs().max() <= tolerance * output.logits.abs().max())
        return head if _has_plain_head[self.model] else None

    def logits(self, *inputs: Any) -> Tensor:
        """Return the logits [P, G, T, V] before each token; inputs: as in `hidden_states`."""
        return self.logits_and_states(*inputs)[0]

    def logits_and_states(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Return the logits [P, G, T, V] before each token, and the states [P, G, T, H] that they are a product of."""
        if (head := self.head) is not None:
            states = self.hidden_states(*inputs)
            return head(states), states

        def read(places: int, **tokens: Any) -> tuple[Tensor, Tensor]:
            output = self.language_model(**tokens, logits_to_keep=places, output_hidden_states=True)
            return output.logits, output.hidden_states[-1][:, -places:]

        logits, states = self._read(read, *inputs)
        return logits, states

    def hidden_states(self, *inputs: Any, after: bool = False) -> Tensor:
        """Return the state before each token, [P, G, T, H], or after it; inputs and meaning as of `Decoder.hidden_states`."""

        def read(places: int, **tokens: Any) -> tuple[Tensor]:
            return (self.trunk(**tokens).last_hidden_state[:, -places:],)

        return self._read(read, *inputs, after=after)[0]

    def _read(
        self,
        read: Callable[..., tuple[Tensor, ...]],
        prompts: Tensor,
        prompt_mask: Tensor,
        tokens: Tensor,
        wanted: Tensor | None = None,
        owner: Tensor | None = None,
        *,
        after: bool = False,
    ) -> tuple[Tensor, ...]:
        """Return what `read(places, **inputs)` gives of the last places of each row, put in the order [P, G, T, …]."""
        from transformers import DynamicCache

        alone = _row_by_row.get()
        rows, _, owner, same = needed_rows(tokens, wanted, owner, after=after, all_rows=alone)
        with ready_for_gradients(self.model) as recomputes:
            if alone or recomputes:  # what is computed again would enter a cache twice
                inputs = forward_inputs(prompts, prompt_mask, rows.unsqueeze(1), owner)
                values = read(1 + rows.shape[1], **inputs, use_cache=False)
            else:
                cache = DynamicCache(config=self.model.config)
                inputs = {"input_ids": prompts, **_mask_and_positions(prompt_mask)}
                values = tuple(part[owner] for part in read(1, **inputs, past_key_values=cache, use_cache=True))
                if rows.shape[1]:  # else nothing but an end of sequence is asked for
                    cache.batch_select_indices(owner)
                    inputs = forward_inputs(prompts, prompt_mask, rows.unsqueeze(1), owner)
                    inputs |= {
                        name: ids[:, -rows.shape[1] :] for name, ids in inputs.items() if name != "attention_mask"
                    }
                    responses = read(rows.shape[1], **inputs, past_key_values=cache, use_cache=True)
                    values = tuple(torch.cat(parts, 1) for parts in zip(values, responses, strict=True))
        return tuple(value[:, int(after) :].index_select(0, same).unflatten(0, tokens.shape[:2]) for value in values)

    def decode_steps(
        self, prompts: Tensor, prompt_mask: Tensor, owner: Tensor, max_new_tokens: int
    ) -> Generator[Tensor, Any, None]:
        """Yield logits as `Decoder.decode_steps` does, by transformers' cache."""
        from transformers import DynamicCache

        cache = DynamicCache(config=self.model.config)
        inputs = _mask_and_positions(prompt_mask)

        def read(ids: Tensor, **options: Any) -> Tensor:
            logits: Tensor = self.model(ids, **inputs, **options, past_key_values=cache, use_cache=True).logits
            return logits[:, -1]

        logits = read(prompts, logits_to_keep=1)[owner]
        cache.batch_select_indices(owner)
        if inputs:
            inputs = {
                "attention_mask": inputs["attention_mask"][owner],
                "position_ids": inputs["position_ids"][owner, -1:],
            }
        while True:
            token, rows = yield logits
            if rows is not None:  # rows that ended leave the batch, and the cache
                cache.batch_select_indices(rows)
                inputs = {name: values[rows] for name, values in inputs.items()}
            if inputs:
                inputs["attention_mask"] = torch.cat(
                    [inputs["attention_mask"], torch.ones_like(token).unsqueeze(-1)], 1
                )
                inputs["position_ids"] = inputs["position_ids"] + 1
            logits = read(token.unsqueeze(-1))


def forward_inputs(
    prompts: Tensor, prompt_mask: Tensor, tokens: Tensor, owner: Tensor | None = None
) -> dict[str, Tensor]:
    """Return what a forward without a cache reads: ids [P × G, S + T] of prompts [P, S] followed by tokens [P, G, T].

    Padding on the left is masked and counts as no position. Padding on the right needs no mask: no earlier token attends to it.
    """
    owner = torch.arange(len(prompts), device=prompts.device) if owner is None else owner
    owner, rows = owner.repeat_interleave(tokens.shape[1]), tokens.flatten(0, 1)
    mask = torch.cat([prompt_mask[owner], prompt_mask.new_ones(rows.shape)], dim=1)
    return {"input_ids": torch.cat([prompts[owner], rows], dim=1), **_mask_and_positions(mask)}


@contextmanager
def row_by_row() -> Iterator[None]:
    """Within it, each response stands in a row of its own behind its prompt, for hooks that count on that."""
    before = _row_by_row.set(True)
    try:
        yield
    finally:
        _row_by_row.reset(before)


def _mask_and_positions(mask: Tensor) -> dict[str, Tensor]:
    """Return attention_mask and position_ids of a mask [B, S] for transformers; nothing where no row is padded."""
    if not host.needs_sync(mask.device) and bool(mask.all()):
        return {}
    attention_mask = mask.long()
    return {"attention_mask": attention_mask, "position_ids": attention_mask.cumsum(-1).sub(1).clamp(min=0)}


@contextmanager
def ready_for_gradients(model: PreTrainedModel) -> Iterator[bool]:
    """Within it, the model is without dropout, and layers whose gradient checkpointing is on keep no activations.

    They are computed again when the gradients are. transformers does so in training mode alone, which brings dropout. The value
    is whether gradient checkpointing is on. Raises ValueError for a model with gradient checkpointing whose layers cannot do it.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    modules = list(model.modules())
    if any(module.training for module in modules):
        model.eval()
    flagged = [module for module in modules if vars(module).get("gradient_checkpointing")]
    layers = [module for module in flagged if isinstance(module, GradientCheckpointingLayer)]
    if not torch.is_grad_enabled():
        layers = []
    elif flagged and not layers:
        raise ValueError(
            f"policy: gradient checkpointing is on, but the layers of {type(model).__name__} would keep their activations; "
            "turn it off with model.gradient_checkpointing_disable()"
        )

    def checkpointed(layer: GradientCheckpointingLayer, forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: layer._gradient_checkpointing_func(partial(forward, **named), *args)

    for layer in layers:
        layer.forward = checkpointed(layer, layer.forward)
    try:
        yield bool(flagged)
    finally:
        for layer in layers:
            del layer.forward
