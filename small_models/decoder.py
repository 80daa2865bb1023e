"""Sampling's forward for any causal language model of transformers: its own modules, with a cache that takes its room once."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from small_models import host
from small_models.policies import Policy


class _PreallocatedLayer(DynamicLayer):
    """A cache layer that writes into room taken once, where DynamicLayer copies everything at every token."""

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.max_length = max_length
        self.length = 0
        self.is_initialized = False

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            batch, heads, _, width = key_states.shape
            self.all_keys = key_states.new_empty(batch, heads, self.max_length, width)
            self.all_values = value_states.new_empty(batch, heads, self.max_length, value_states.shape[-1])
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True
        start, self.length = self.length, self.length + key_states.shape[2]
        self.all_keys[:, :, start : self.length] = key_states
        self.all_values[:, :, start : self.length] = value_states
        self.keys = self.all_keys[:, :, : self.length]
        self.values = self.all_values[:, :, : self.length]
        return self.keys, self.values

    def get_seq_length(self, *args: object) -> int:
        return self.length

    def batch_select_indices(self, indices: Tensor) -> None:
        self.all_keys, self.all_values = self.all_keys[indices], self.all_values[indices]


def _new_cache(policy: Policy, max_length: int) -> Cache:
    cache = DynamicCache(config=policy.model.config)
    if cache.layers and all(type(layer) is DynamicLayer for layer in cache.layers):
        return Cache(layers=[_PreallocatedLayer(max_length) for _ in cache.layers])
    return cache  # sliding windows and recurrent states keep transformers' own layers


class Decoder:
    """Reads each prompt [P, S] once through the model, then takes a token of each live response and returns the next logits."""

    def __init__(self, policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, group_size: int, room: int) -> None:
        self.model = policy.model
        self.cache = _new_cache(policy, prompt_ids.shape[1] + room)
        padded = host.waits(prompt_mask.device) or not bool(prompt_mask.all())
        positions = prompt_mask.long().cumsum(-1).sub(1).clamp(min=0) if padded else None
        logits = self.model(
            prompt_ids,
            attention_mask=prompt_mask.long() if padded else None,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        owner = torch.arange(len(prompt_ids), device=prompt_ids.device).repeat_interleave(group_size)
        self.cache.batch_select_indices(owner)
        self.first_logits = logits[owner]
        self.attention = prompt_mask[owner].long() if padded else None
        self.position = positions[owner, -1:] if positions is not None else None

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        self.cache.batch_select_indices(rows)
        if self.attention is not None and self.position is not None:
            self.attention, self.position = self.attention[rows], self.position[rows]

    def __call__(self, token: Tensor) -> Tensor:
        """Append a token [B] to each row and return the logits [B, V] after it."""
        token = token.unsqueeze(-1)
        if self.attention is not None and self.position is not None:
            self.attention = torch.cat([self.attention, torch.ones_like(token)], dim=1)
            self.position = self.position + 1
        return self.model(
            token,
            attention_mask=self.attention,
            position_ids=self.position,
            past_key_values=self.cache,
            use_cache=True,
        ).logits[:, -1]
