"""Batched sampling with a key-value cache, and the log-probabilities of given responses from a fresh forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache, LlamaForCausalLM, MixtralForCausalLM
from transformers.cache_utils import Cache, DynamicLayer

from small_models.checks import check_at_least, check_kind, check_list, check_number, checked
from small_models.memory import check_fits
from small_models.policies import Policy, one_thread_if_small, ready_for_gradients
from small_models.tasks import Task
from small_models.tokenizer import encode, prefix_ids

STEP_BYTES = 4 + 4 + 4 + 8  # of a word of the vocabulary: logit, log-probability, probability, cumulated probability
TOKEN_BYTES = 8 + 8 + 4 + 4  # of a token: random number, id, log-probability, entropy


@dataclass(frozen=True)
class Samples:
    """P prompts × G responses of at most T tokens, with what the sampling policy thought of each token.

    prompt_ids, prompt_mask: [P, S], padded on the left. tokens, mask, logp, entropy: [P, G, T], padded on the right;
    `mask` is true on the tokens the policy produced, the end-of-sequence token included. `logp` (nats) is the
    log-probability of the token and `entropy` (nats) that of the whole next-token distribution, both at the
    sampling temperature and before top-k and top-p. truncated: [P, G], true where an end of sequence was waited for
    and did not come. observed: [P, G, T], true on the tokens that the task's environment wrote: they are part of the
    response and of what the policy read, and `mask` is false on them.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor
    logp: Tensor
    entropy: Tensor
    truncated: Tensor
    observed: Tensor

    @property
    def there(self) -> Tensor:
        """[P, G, T]: true on every token of a response, whoever wrote it."""
        return self.mask | self.observed

    @property
    def lengths(self) -> Tensor:
        """[P, G]: tokens that the policy wrote in each response, end of sequence included."""
        return self.mask.sum(-1)

    @property
    def last(self) -> Tensor:
        """[P, G]: place of the last token that the policy wrote."""
        return last_place(self.mask)

    def texts(self, policy: Policy) -> list[list[str]]:
        """Return the responses as text, [P][G], observations included, without the token that ended the sequence."""
        ends = policy.end_ids  # a slow look into the tokenizer
        rows = [
            [token for token, kept in zip(row, keep, strict=True) if kept and token not in ends]
            for row, keep in zip(self.tokens.flatten(0, 1).tolist(), self.there.flatten(0, 1).tolist(), strict=True)
        ]
        flat = policy.tokenizer.batch_decode(rows)
        group_size = self.tokens.shape[1]
        return [flat[start : start + group_size] for start in range(0, len(flat), group_size)]


def last_place(mask: Tensor) -> Tensor:
    """Return the place of the last true entry along the last dimension, 0 where there is none: [..., T] → [...]."""
    return (mask * torch.arange(mask.shape[-1], device=mask.device)).amax(-1)


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


@checked
def encode_prompts(policy: Policy, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return ids [P, S] and mask [P, S] of the prompts, padded on the left to the longest.

    A prompt begins as the tokenizer begins a text (with BOS, for Llama's and Gemma's), and once where it is written in the text.
    """
    begin = prefix_ids(policy.tokenizer)
    ids = [row if row[: len(begin)] == begin else begin + row for row in encode(policy.tokenizer, prompts)]
    width = max(len(row) for row in ids)
    padded = torch.full((len(ids), width), policy.pad_id)
    mask = torch.zeros(len(ids), width, dtype=torch.bool)
    for index, row in enumerate(ids):
        padded[index, width - len(row) :] = torch.tensor(row)
        mask[index, width - len(row) :] = True
    return padded.to(policy.device), mask.to(policy.device)


@checked
def encode_responses(policy: Policy, texts: Sequence[str | Sequence[str]]) -> tuple[Tensor, Tensor]:
    """Return tokens and mask [N, 1, T] of the responses, each with its end of sequence, padded on the right to the longest.

    An empty text is its end of sequence alone. A response may be given as its turns (`Task.turns`), the policy's and its
    environment's by turns: the mask is false on the environment's. Raises ValueError for a text that the vocabulary cannot
    write.
    """
    responses = [(text,) if isinstance(text, str) else text for text in texts]
    written = [turn for turns in responses for turn in turns if turn]
    ids = iter(encode(policy.tokenizer, written) if written else [])
    rows = []
    for turns in responses:
        row = [(token, place % 2 == 0) for place, turn in enumerate(turns) for token in (next(ids) if turn else ())]
        rows.append([*row, (policy.end_id, True)])
    width = max(map(len, rows))
    padded = torch.tensor([row + [(policy.pad_id, False)] * (width - len(row)) for row in rows], device=policy.device)
    tokens, mask = padded.unsqueeze(1).unbind(-1)
    return tokens, mask.bool()


def _restrict(probabilities: Tensor, top_k: int, top_p: float) -> Tensor:
    """Zero all but the `top_k` likeliest tokens, then all outside the smallest set of probability ≥ `top_p`."""
    if top_k:
        k = min(top_k, probabilities.shape[-1])
        kept = torch.zeros_like(probabilities)
        top = probabilities.topk(k, dim=-1)
        probabilities = kept.scatter(-1, top.indices, top.values)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= top_p * ordered.sum(-1, keepdim=True), 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, order, ordered)
    return probabilities


def _pick(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Return the token [B] whose slice of the cumulated probabilities [B, V] holds `uniform` [B], in [0, 1).

    Inverting the distribution takes one random number a row where torch.multinomial takes one a token: 3× faster here.
    """
    cumulated = probabilities.double().cumsum(-1)
    target = uniform.unsqueeze(-1) * cumulated[:, -1:]
    return torch.searchsorted(cumulated, target, right=True).squeeze(-1).clamp_(max=probabilities.shape[-1] - 1)


def check_sampling(max_new_tokens: int, temperature: float, top_k: int, top_p: float) -> None:
    """Raise ValueError when a sampling setting is outside its range."""
    check_at_least(1, max_new_tokens=max_new_tokens)
    check_number("temperature", temperature, lambda t: t >= 0, "0 (greedy) or above")
    check_number("top_k", top_k, lambda k: k >= 0, "0 (all tokens) or above", whole=True)
    check_number("top_p", top_p, lambda p: 0 < p <= 1, "above 0 and at most 1 (all tokens)")


class _Environment:
    """What a task's environment writes into the responses of a batch while they are sampled.

    tokens: [B, T], what has been written so far. given: [B, T], the environment's tokens where it has written one, else −1.
    """

    def __init__(self, policy: Policy, task: Task, prompts: Sequence[str], tokens: Tensor) -> None:
        self.policy, self.task, self.prompts, self.tokens = policy, task, prompts, tokens
        self.given = torch.full_like(tokens, -1)
        self._ends_a_call: dict[int, bool] = {}
        self._encoded: dict[str, Tensor] = {"": tokens.new_empty(0)}

    def answer(self, rows: Tensor, token: Tensor, step: int) -> None:
        """Answer the calls that end with these tokens of these rows, unless it wrote the tokens itself."""
        tokenizer, own = self.policy.tokenizer, self.given[rows, step] < 0
        calling = []
        for row, last in zip(rows[own].tolist(), token[own].tolist(), strict=True):
            if last not in self._ends_a_call:
                self._ends_a_call[last] = tokenizer.decode([last]).endswith(self.task.call_end)
            if self._ends_a_call[last]:
                calling.append(row)
        if not calling:
            return
        for row, text in zip(calling, tokenizer.batch_decode(self.tokens[calling, : step + 1].tolist()), strict=True):
            words = self.task.observe(self.prompts[row], text)
            if words not in self._encoded:
                self._encoded[words] = torch.tensor(encode(tokenizer, [words])[0], device=self.tokens.device)
            room = self.given[row, step + 1 :]
            observation = self._encoded[words][: len(room)]
            room[: len(observation)] = observation


class _Decoder:
    """The model with its cache: encodes each prompt once, then takes a token a live response and returns the next logits."""

    def __init__(self, policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, group_size: int, room: int) -> None:
        self.model = policy.model
        self.length = prompt_ids.shape[1]
        self.cache = _new_cache(policy, self.length + room)
        padded = not bool(prompt_mask.all())
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
        self.rotary = None
        if type(self.model) in (LlamaForCausalLM, MixtralForCausalLM) and not padded:
            every = torch.arange(self.length + room, device=prompt_ids.device).unsqueeze(0)
            self.rotary = self.model.model.rotary_emb(logits, every)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        self.cache.batch_select_indices(rows)
        if self.attention is not None and self.position is not None:
            self.attention, self.position = self.attention[rows], self.position[rows]

    def __call__(self, token: Tensor) -> Tensor:
        """Append a token [B] to each row and return the logits [B, V] after it."""
        token = token.unsqueeze(-1)
        self.length += 1
        if self.rotary is not None:
            return self._through_the_layers(token, self.rotary)
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

    def _through_the_layers(self, token: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """Call the model's own layers without its wrappers, which take a quarter of the time of so small a model."""
        core = self.model.model
        here = tuple(table[:, self.length - 1 : self.length] for table in rotary)
        hidden = core.embed_tokens(token)
        for layer in core.layers:
            hidden = layer(hidden, position_embeddings=here, past_key_values=self.cache)
        return self.model.lm_head(core.norm(hidden))[:, -1]


def sample(
    policy: Policy,
    prompts: Sequence[str],
    *,
    task: Task | None = None,
    group_size: int = 1,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    stop_at_end: bool = True,
    generator: torch.Generator | None = None,
) -> Samples:
    """Draw `group_size` responses to each prompt.

    A prompt is encoded once for its whole group, and a finished response leaves the batch. Each response depends on
    its own row of uniform numbers, so it stays the same whoever else is in the batch. `temperature=0` takes the
    likeliest token and reports log-probabilities at temperature 1. `stop_at_end=False` draws `max_new_tokens` for
    everyone (for timing). A `task` with a tool answers the calls in the responses to its prompts: what it writes passes
    through the same cache, and counts among the `max_new_tokens`. Raises ValueError for a setting out of range, or more
    tokens than the model has positions.
    """
    check_kind("policy", policy, Policy, "a Policy, as load_policy and build_policy return")
    check_list("prompts", prompts, str, "texts")
    check_sampling(max_new_tokens, temperature, top_k, top_p)
    check_at_least(1, group_size=group_size)
    if task is not None:
        check_kind("task", task, Task, "a Task of small_models.tasks, or None")
    if generator is not None:
        check_kind("generator", generator, torch.Generator, "a torch.Generator, or None")
    prompt_ids, prompt_mask = encode_prompts(policy, prompts)
    width = prompt_ids.shape[1]
    limit = getattr(policy.model.config, "max_position_embeddings", None)
    if limit is not None and width + max_new_tokens > limit:
        raise ValueError(
            f"max_new_tokens {max_new_tokens} after a prompt of {width} tokens exceeds the {limit} positions of this model"
        )
    rows = len(prompts) * group_size
    vocabulary = policy.model.get_output_embeddings().weight.shape[0]
    check_fits(
        rows * (STEP_BYTES * vocabulary + TOKEN_BYTES * max_new_tokens),
        policy.device,
        f"sampling {rows:,} responses at once",
        "lower group_size, or give fewer prompts at once",
    )
    policy.model.eval()
    with one_thread_if_small(policy), torch.inference_mode():
        device = policy.device
        uniform = torch.rand(rows, max_new_tokens, generator=generator, dtype=torch.double).to(device)
        tokens = torch.full((rows, max_new_tokens), policy.pad_id, device=device)
        logp = torch.zeros(rows, max_new_tokens, device=device)
        entropy = torch.zeros(rows, max_new_tokens, device=device)

        decode = _Decoder(policy, prompt_ids, prompt_mask, group_size, max_new_tokens)
        logits = decode.first_logits
        live = torch.arange(rows, device=device)  # the response that each row of the decoder belongs to
        finished = torch.zeros(rows, dtype=torch.bool, device=device)
        ends = torch.tensor(sorted(policy.end_ids), device=device)
        environment = None
        if task is not None and task.call_end:
            environment = _Environment(policy, task, [p for p in prompts for _ in range(group_size)], tokens)
        for step in range(max_new_tokens):
            logps = (_at_least_float(logits) / (temperature or 1.0)).log_softmax(-1)
            probabilities = logps.exp()
            if temperature == 0:
                token = probabilities.argmax(-1)
            else:
                token = _pick(_restrict(probabilities, top_k, top_p), uniform[live, step])
            if environment is not None:
                given = environment.given[live, step]
                token = torch.where(given < 0, token, given)
            tokens[live, step] = token  # a finished response may still be in the batch; what it adds is cut below
            logp[live, step] = logps.gather(-1, token.unsqueeze(-1)).squeeze(-1)
            entropy[live, step] = torch.special.entr(probabilities).sum(-1)
            if stop_at_end:
                ended = torch.isin(token, ends)
                finished = finished | (ended if environment is None else ended & (given < 0))
                going = len(live) - int(finished.sum())
                if going == 0:
                    break
                if going <= 0.8 * len(live):  # compacting copies the cache, so wait until it pays
                    kept = (~finished).nonzero().squeeze(-1)
                    decode.keep(kept)
                    live, token, finished = live[kept], token[kept], finished[kept]
            if step + 1 < max_new_tokens:
                if environment is not None:
                    environment.answer(live[~finished], token[~finished], step)
                logits = decode(token)

        own = torch.ones_like(tokens, dtype=torch.bool) if environment is None else environment.given < 0
        ended = torch.isin(tokens, ends) & own & stop_at_end
        drawn = step + 1
        there = (ended.long().cumsum(-1) - ended.long() == 0)[:, :drawn]  # up to the first end of sequence, and with it
        longest = int(there.any(0).sum())

    def grouped(values: Tensor, padding: float) -> Tensor:
        # a tensor made in inference mode cannot enter a gradient; what is computed from it out here can
        return values[:, :drawn].masked_fill(~there, padding)[:, :longest].reshape(len(prompts), group_size, longest)

    return Samples(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        tokens=grouped(tokens, policy.pad_id),
        mask=grouped(own, False),
        logp=grouped(logp, 0.0),
        entropy=grouped(entropy, 0.0),
        truncated=(~ended.any(-1) & stop_at_end).reshape(len(prompts), group_size),
        observed=grouped(~own, False),
    )


def model_inputs(prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> dict[str, Tensor | None]:
    """Return what a forward without a cache reads: ids [P × G, S + T] of prompts [P, S] followed by tokens [P, G, T].

    Padding on the left is masked and counts as no position. Padding on the right needs no mask: no earlier token attends to it.
    """
    group_size, after = tokens.shape[1], tokens.flatten(0, 1)
    ids = torch.cat([prompt_ids.repeat_interleave(group_size, 0), after], dim=1)
    attention, positions = None, None
    if not bool(prompt_mask.all()):
        before = prompt_mask.repeat_interleave(group_size, 0)
        attention = torch.cat([before, before.new_ones(after.shape)], dim=1).long()
        positions = attention.cumsum(-1).sub(1).clamp(min=0)
    return {"input_ids": ids, "attention_mask": attention, "position_ids": positions}


def response_logits(policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor) -> Tensor:
    """Return the logits [P, G, T, V] before each response token, from one forward without a cache (with gradient)."""
    inputs = model_inputs(prompt_ids, prompt_mask, tokens[..., :-1])
    with ready_for_gradients(policy.model):
        logits = policy.model(**inputs, use_cache=False, logits_to_keep=tokens.shape[-1]).logits
    return logits.reshape(*tokens.shape, -1)


def response_logits_and_hidden(
    policy: Policy, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Return `response_logits` and the hidden states [P, G, T, H] that they are made of, from one forward (with gradient)."""
    inputs, length = model_inputs(prompt_ids, prompt_mask, tokens[..., :-1]), tokens.shape[-1]
    with ready_for_gradients(policy.model):
        output = policy.model(**inputs, use_cache=False, logits_to_keep=length, output_hidden_states=True)
    hidden = output.hidden_states[-1][:, -length:]
    return output.logits.reshape(*tokens.shape, -1), hidden.reshape(*tokens.shape, -1)


def _at_least_float(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def token_logp(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return log π(token) in nats: logits [..., V] and tokens [...] → [...], at the sampling temperature (0 counts as 1)."""
    flat = _at_least_float(logits).flatten(0, -2) / (temperature or 1.0)
    return -F.cross_entropy(flat, tokens.flatten(), reduction="none").reshape(tokens.shape)


def token_entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the entropy in nats of each next-token distribution: logits [..., V] → [...]."""
    return torch.special.entr((_at_least_float(logits) / (temperature or 1.0)).softmax(-1)).sum(-1)
