"""Any causal language model of transformers, read and sampled by its own modules, which are the truth in the tests.

A prompt is read once for its whole group: `pack` puts it before several responses in one row, with positions that restart at
each response and a mask in which a response sees the prompt and itself. A first look at each model (`abilities`) tells whether
it honours both. `AnyModel` has the methods of `small_models.decoder.Decoder` that take prompts and responses; begin there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
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
    from transformers.cache_utils import Cache
    from transformers.modeling_layers import GradientCheckpointingLayer

MASKS = "eager", "sdpa"  # attention of transformers that takes a mask of each pair of tokens
_abilities: WeakKeyDictionary[nn.Module, Abilities] = WeakKeyDictionary()
_row_by_row: ContextVar[bool] = ContextVar("row_by_row", default=False)


@dataclass(frozen=True)
class Abilities:
    """How a model may be read.

    obstacle: why each response reads its prompt anew, in words; empty where a prompt can be read once for its group.
    has_plain_head: whether logits are the states times the output embeddings, and nothing more.
    """

    obstacle: str
    has_plain_head: bool


class AnyModel:
    """A model of transformers, or for `hidden_states` its trunk, with the methods of `Decoder`."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.language_model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.trunk = self.language_model.base_model

    @property
    def head(self) -> nn.Module | None:
        """The matrix that makes logits of states, None where logits are more than that (scaled, or capped)."""
        return self.language_model.get_output_embeddings() if abilities(self.model).has_plain_head else None

    def logits(self, *inputs: Any) -> Tensor:
        """Return the logits [P, G, T, V] before each token; inputs: as in `hidden_states`."""
        return self.logits_and_states(*inputs)[0]

    def logits_and_states(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Return the logits [P, G, T, V] before each token, and the states [P, G, T, H] that they are a product of."""
        if self.head is not None:
            states = self.hidden_states(*inputs)
            return self.head(states), states

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
        is_fixed = _row_by_row.get()
        rows, needed, owner, same = needed_rows(tokens, wanted, owner, after=after, all_rows=is_fixed)
        size = 1 if is_fixed or abilities(self.model).obstacle else self._responses_a_row(prompt_mask, needed)
        packed = pack(prompts, prompt_mask, rows, needed, owner, size, self.model.dtype)
        places = packed.inputs["input_ids"].shape[1] - prompts.shape[1] + 1
        with ready_for_gradients(self.model):
            values = read(places, **packed.inputs, use_cache=False)
        index = packed.index(places)[same]
        index = index[:, 1:] if after else index
        return tuple(
            value.flatten(0, 1).index_select(0, index.flatten()).unflatten(0, tokens.shape) for value in values
        )

    def _responses_a_row(self, prompt_mask: Tensor, needed: Tensor) -> int:
        """Return how many responses of T tokens behind a prompt of S take the least work for each of them.

        A token costs a + bL where L tokens stand in its row: with states of width H a layer multiplies with 12 H² weights, and
        with L keys and values. So a response costs (S + kT)(a + b(S + kT)) / k, least at k = S / T · √(1 + a / bS), a / b = 6H.
        """
        width = self.trunk.get_input_embeddings().weight.shape[1]
        prompt, response = (float(mask.sum(1).double().mean()) for mask in (prompt_mask, needed))
        return max(1, round(prompt / max(1.0, response) * (1 + 6 * width / prompt) ** 0.5))

    def decode_steps(
        self, prompts: Tensor, prompt_mask: Tensor, owner: Tensor, max_new_tokens: int
    ) -> Generator[Tensor, Any, None]:
        """Yield logits as `Decoder.decode_steps` does, by transformers' cache."""
        cache = _new_cache(self.model, prompts.shape[1] + max_new_tokens)
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


@dataclass(frozen=True)
class Packed:
    """Prompts and responses as rows that a model reads: its inputs, and where the tokens of each response stand.

    row, first: [N], the row that response i stands in and the place of its first token there; needed: [N, T].
    prompt: tokens of a prompt with its padding.
    """

    inputs: dict[str, Tensor]
    row: Tensor
    first: Tensor
    needed: Tensor
    prompt: int

    def index(self, places: int) -> Tensor:
        """Return where the state before the first token and after each token is among the last places of all rows, [N, 1 + T]."""
        start = self.row * places
        inside = self.first - self.prompt + 1 + torch.arange(self.needed.shape[1], device=start.device).unsqueeze(-1)
        return torch.cat([start.unsqueeze(1), (start + inside.masked_fill(~self.needed.T, 0)).T], 1)


def pack(
    prompts: Tensor,
    prompt_mask: Tensor,
    rows: Tensor,
    needed: Tensor,
    owner: Tensor,
    size: int,
    dtype: torch.dtype,
) -> Packed:
    """Put each prompt [S] and up to `size` of its responses, one after the other, into one row.

    rows, needed: [N, T], the responses and which of their tokens are read; owner: their prompts, [N]. Where a row has several,
    the mask [K, 1, L, L] lets a token see its prompt and its own response up to itself: it is added to the scores, in the
    model's dtype, since "eager" attention adds a mask and "sdpa" takes one of either kind.
    """
    s, device = prompts.shape[1], prompts.device
    if size == 1:
        numbers = torch.arange(len(rows), device=device)
        inputs = forward_inputs(prompts, prompt_mask, rows.unsqueeze(1), owner)
        return Packed(inputs, numbers, torch.full_like(numbers, s), needed, s)
    packed: list[list[int]] = []  # prompt, responses and length of each row
    latest: dict[int, int] = {}  # of each prompt, the row that still has room
    places = []
    for prompt, length in zip(owner.tolist(), needed.sum(1).tolist(), strict=True):
        if prompt not in latest or packed[latest[prompt]][1] == size:
            latest[prompt] = len(packed)
            packed.append([prompt, 0, s])
        row = packed[latest[prompt]]
        places.append((latest[prompt], row[2]))
        row[1:] = row[1] + 1, row[2] + length
    row_of, first_of = torch.tensor(places, device=device).unbind(1)
    prompt_rows, width = torch.tensor([row[0] for row in packed], device=device), max(row[2] for row in packed)

    def fill(prompt_values: Tensor, response_values: Tensor, padding: int) -> Tensor:
        values = torch.nn.functional.pad(prompt_values[prompt_rows], (0, width - s), value=padding)
        response, token = needed.nonzero(as_tuple=True)
        values[row_of[response], first_of[response] + token] = response_values[needed]
        return values

    # Positions count no padding; a response's go on where its prompt ends.
    prompt_positions = prompt_mask.cumsum(1) - 1
    after_prompt = prompt_positions[owner, -1:] + 1 + torch.arange(rows.shape[1], device=device)
    responses = torch.arange(len(rows), device=device).unsqueeze(1).expand(rows.shape)
    block = fill(torch.where(prompt_mask, -1, -2), responses, -2)  # -1: a prompt, -2: padding
    sees = (block.unsqueeze(1) == -1) | (block.unsqueeze(1) == block.unsqueeze(2))
    sees = sees.tril() | torch.eye(width, dtype=torch.bool, device=device)
    inputs = {
        "input_ids": fill(prompts, rows, 0),
        "position_ids": fill(prompt_positions.clamp(min=0), after_prompt, 0),
        "attention_mask": torch.zeros((), dtype=dtype, device=device).where(sees, torch.finfo(dtype).min).unsqueeze(1),
    }
    return Packed(inputs, row_of, first_of, needed, s)


@contextmanager
def row_by_row() -> Iterator[None]:
    """Within it, each response stands in a row of its own behind its prompt, for hooks that count on that."""
    before = _row_by_row.set(True)
    try:
        yield
    finally:
        _row_by_row.reset(before)


def abilities(model: PreTrainedModel) -> Abilities:
    """Return how this model may be read, from its config and from two prompts that it reads both ways; looked at once."""
    if model not in _abilities:
        if _row_by_row.get():  # hooks that count on what is read would see the first look
            return Abilities("hooks count on one response a row", False)
        with torch.no_grad(), without_autocast(model.device), ready_for_gradients(model):
            _abilities[model] = _look(model)
    return _abilities[model]


def _look(model: PreTrainedModel) -> Abilities:
    from transformers.cache_utils import DynamicCache, DynamicLayer

    reader, device = AnyModel(model), model.device
    ids = torch.arange(20, device=device) % (reader.trunk.get_input_embeddings().weight.shape[0])
    prompts, rows = ids[:8].view(2, 4), ids[8:].view(4, 3)
    prompt_mask = torch.arange(4, device=device) >= torch.tensor([[1], [0]], device=device)
    needed, owner = torch.ones_like(rows, dtype=torch.bool), torch.tensor([0, 0, 1, 1], device=device)

    def states(size: int) -> Tensor:
        packed = pack(prompts, prompt_mask, rows, needed, owner, size, model.dtype)
        values = reader.trunk(**packed.inputs, use_cache=False).last_hidden_state[:, 3:]
        return values.flatten(0, 1)[packed.index(values.shape[1])]

    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(model.dtype, 0.1)
    alone = states(1)
    head = reader.language_model.get_output_embeddings()
    has_plain_head = head is not None
    if has_plain_head and reader.language_model is not reader.trunk:
        inputs = forward_inputs(prompts, prompt_mask, rows.unsqueeze(1), owner)
        logits = reader.language_model(**inputs, use_cache=False).logits[:, 3:]
        has_plain_head = _is_close(head(alone), logits, tolerance)
    layers = DynamicCache(config=model.config).layers
    if not all(type(layer) is DynamicLayer for layer in layers):
        return Abilities("some of its layers see a window of the last tokens", has_plain_head)
    if reader.trunk.config._attn_implementation not in MASKS:
        return Abilities(f"its attention, {reader.trunk.config._attn_implementation}, takes no mask", has_plain_head)
    try:
        is_same = _is_close(states(2), alone, tolerance)
    except Exception:  # what a model says of a mask that it does not take is its own
        is_same = False
    return Abilities("" if is_same else "it reads a mask or positions in a way of its own", has_plain_head)


def _is_close(values: Tensor, expected: Tensor, tolerance: float) -> bool:
    return bool((values - expected).abs().max() <= tolerance * expected.abs().max())


def _mask_and_positions(mask: Tensor) -> dict[str, Tensor]:
    """Return attention_mask and position_ids of a mask [B, S] for transformers; nothing where no row is padded."""
    if not host.needs_sync(mask.device) and bool(mask.all()):
        return {}
    attention_mask = mask.long()
    return {"attention_mask": attention_mask, "position_ids": attention_mask.cumsum(-1).sub(1).clamp(min=0)}


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
        yield
    finally:
        for layer in layers:
            del layer.forward


def _new_cache(model: PreTrainedModel, places: int) -> Cache:
    """Return a cache of so many places, allocated once, where transformers' copies everything at every token."""
    from transformers import DynamicCache
    from transformers.cache_utils import Cache, DynamicLayer

    class AllocatedLayer(DynamicLayer):
        length, is_initialized = 0, False

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            new = key_states, value_states
            if not self.is_initialized:
                self.all = [values.new_empty(*values.shape[:2], places, values.shape[-1]) for values in new]
                self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            start, self.length = self.length, self.length + key_states.shape[2]
            for stored, values in zip(self.all, new, strict=True):
                stored[:, :, start : self.length] = values
            self.keys, self.values = (stored[:, :, : self.length] for stored in self.all)
            return self.keys, self.values

        def get_seq_length(self, *_: Any) -> int:
            return self.length

        def batch_select_indices(self, indices: Tensor) -> None:
            self.all = [stored[indices] for stored in self.all]

    cache = DynamicCache(config=model.config)
    if cache.layers and all(type(layer) is DynamicLayer for layer in cache.layers):
        return Cache(layers=[AllocatedLayer() for _ in cache.layers])
    return cache  # sliding windows and recurrent states keep transformers' own layers
