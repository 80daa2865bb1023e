"""Batched sampling with a key-value cache, and the log-probabilities of responses from a fresh forward.

In: a policy and prompts as text. Out: `Samples`, tensors of responses with what the policy thought of each token; or the logits
of responses that are there already (`response_logits`, `token_logp`). Begin with `sample`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from small_models import host
from small_models.checks import check_at_least, check_not_empty, check_number, checked
from small_models.decoder import Decoder
from small_models.memory import check_fits
from small_models.policies import Policy, one_thread_if_small
from small_models.tasks import Task
from small_models.tokenizer import decode, encode, prefix_ids

STEP_BYTES = 4 + 4 + 4 + 8  # of a word of the vocabulary: logit, log-probability, probability, cumulated probability
TOKEN_BYTES = 8 + 8 + 4 + 4  # of a token: random number, id, log-probability, entropy
LOOK_EVERY = 16  # tokens; a GPU's host waits for all the work it gave when it asks which rows have ended
MOST_WITH_GRADIENT = 64_000_000  # logits of a forward; more are made a part at a time, and again for the gradient
FULL_ENOUGH = 0.8  # share of unfinished rows from which the cache is not compacted: that copies all of it


@dataclass(frozen=True)
class Samples:
    """P prompts × G responses of at most T tokens, with what the sampling policy thought of each token.

    prompt_ids, prompt_mask: [P, S], padded on the left. tokens, mask, logp, entropy: [P, G, T], padded on the right;
    `mask` is true on the tokens the policy produced, the end-of-sequence token included. `logp` (nats) is the
    log-probability of the token and `entropy` (nats) that of the whole next-token distribution, both at the
    sampling temperature and before top-k and top-p. truncated: [P, G], true where an end of sequence was waited for
    and did not come. observed: [P, G, T], true on the tokens that the task's environment wrote: they are part of the
    response and of what the policy read, and `mask` is false on them. sampler_logp: [P, G, T], the log-probability with which
    the token was really drawn, where that is another one than `logp`: after top-k and top-p, `logp` less the log of the mass
    that these leave. None where it is the same.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor
    logp: Tensor
    entropy: Tensor
    truncated: Tensor
    observed: Tensor
    sampler_logp: Tensor | None = None

    @property
    def attention_mask(self) -> Tensor:
        """[P, G, T]: true on every token of a response, whether the policy or a tool wrote it."""
        return self.mask | self.observed

    @property
    def lengths(self) -> Tensor:
        """[P, G]: tokens that the policy wrote in each response, end of sequence included."""
        return self.mask.sum(-1)

    @property
    def last_positions(self) -> Tensor:
        """[P, G]: position of the last token that the policy wrote."""
        return last_position(self.mask)

    @property
    def model_inputs(self) -> dict[str, Any]:
        """The arguments of `response_logits` for every token: `response_logits(policy, **samples.model_inputs)`."""
        prompts = {"prompt_ids": self.prompt_ids, "prompt_mask": self.prompt_mask}
        return prompts | {"tokens": self.tokens, "wanted": self.attention_mask}

    def map_tensors(self, change: Callable[[Tensor], Tensor], *, prompts: bool = True) -> Samples:
        """Return the samples with every tensor changed in the same way; prompts: those of the prompts too."""
        names = [name for name in vars(self) if prompts or not name.startswith("prompt")]
        tensors = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(self, **{name: change(value) for name, value in tensors.items()})

    def take(self, groups: Tensor) -> Samples:
        """Return the groups at these indices."""
        return self.map_tensors(lambda values: values[groups])

    def first_responses(self) -> Samples:
        """Return one response to each prompt."""
        return self.map_tensors(lambda values: values[:, :1], prompts=False)

    @classmethod
    def concatenate(cls, parts: Sequence[Samples]) -> Samples:
        """Return the groups of several calls as those of one, prompts padded on the left, responses on the right (with 0)."""
        if len(parts) == 1:
            return parts[0]

        def join(name: str) -> Tensor | None:
            values = [getattr(part, name) for part in parts]
            if values[0] is None or name == "truncated":
                return None if values[0] is None else torch.cat(values)
            width, left = max(value.shape[-1] for value in values), name.startswith("prompt")
            gaps = [width - value.shape[-1] for value in values]
            return torch.cat([F.pad(v, (gap, 0) if left else (0, gap)) for v, gap in zip(values, gaps, strict=True)])

        return cls(**{name: join(name) for name in vars(parts[0])})  # type: ignore[arg-type]

    def texts(self, policy: Policy) -> list[list[str]]:
        """Return the responses as text, [P][G], observations included, without the token that ended the sequence."""
        ends = policy.end_ids  # a slow look into the tokenizer
        tokens, masks = (values.flatten(0, 1).tolist() for values in host.on_host(self.tokens, self.attention_mask))
        rows = [
            [token for token, is_token in zip(row, mask, strict=True) if is_token and token not in ends]
            for row, mask in zip(tokens, masks, strict=True)
        ]
        flat = decode(policy.vocabulary, rows)
        group_size = self.tokens.shape[1]
        return [flat[start : start + group_size] for start in range(0, len(flat), group_size)]


def last_position(mask: Tensor) -> Tensor:
    """Return the position of the last true entry along the last dimension, 0 where there is none: [..., T] → [...]."""
    return (mask * torch.arange(mask.shape[-1], device=mask.device)).amax(-1)


# --- text to tokens ---


@checked
def encode_prompts(policy: Policy, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return ids [P, S] and mask [P, S] of the prompts, padded on the left to the longest.

    A prompt begins as the tokenizer begins a text (with BOS, for Llama's and Gemma's), and once where it is written in the text.
    """
    begin = prefix_ids(policy.vocabulary)
    ids = [row if row[: len(begin)] == begin else begin + row for row in encode(policy.vocabulary, prompts)]
    width = max(len(row) for row in ids)
    padded = torch.tensor([[policy.pad_id] * (width - len(row)) + row for row in ids])
    places = torch.arange(width) - width
    mask = places >= -torch.tensor([len(row) for row in ids]).unsqueeze(1)
    return padded.to(policy.device), mask.to(policy.device)


@checked
def encode_responses(policy: Policy, texts: Sequence[str | Sequence[str]]) -> tuple[Tensor, Tensor]:
    """Return tokens and mask [N, 1, T] of the responses, each with its end of sequence, padded on the right to the longest.

    An empty text is its end of sequence alone. A response may come as its turns (`Task.turns`), the policy's and its
    environment's by turns: the mask is false on the environment's. Raises ValueError for a text that the vocabulary cannot
    write.
    """
    responses = [(text,) if isinstance(text, str) else text for text in texts]
    written = [turn for turns in responses for turn in turns if turn]
    ids = iter(encode(policy.vocabulary, written) if written else [])
    rows = []
    for turns in responses:
        row = [(token, place % 2 == 0) for place, turn in enumerate(turns) for token in (next(ids) if turn else ())]
        rows.append([*row, (policy.end_id, True)])
    width = max(map(len, rows))
    padded = torch.tensor([row + [(policy.pad_id, False)] * (width - len(row)) for row in rows], device=policy.device)
    tokens, mask = padded.unsqueeze(1).unbind(-1)
    return tokens, mask.bool()


# --- sampling ---


def _apply_limits(probabilities: Tensor, top_k: int, top_p: float) -> Tensor:
    """Zero all but the `top_k` likeliest tokens, then all outside the smallest set of probability ≥ `top_p`."""
    if top_k:
        top = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
        probabilities = torch.zeros_like(probabilities).scatter(-1, top.indices, top.values)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= top_p * ordered.sum(-1, keepdim=True), 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, order, ordered)
    return probabilities


def _draw_tokens(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Return the token [B] whose slice of the cumulated probabilities [B, V] holds `uniform` [B], in [0, 1).

    Inverting the distribution takes one random number a row where torch.multinomial takes one a token: 3× faster here.
    """
    cumulated = probabilities.double().cumsum(-1)
    target = uniform.unsqueeze(-1) * cumulated[:, -1:]
    return torch.searchsorted(cumulated, target, right=True).squeeze(-1).clamp_(max=probabilities.shape[-1] - 1)


class _Environment:
    """What a task's environment writes into the responses of a batch while they are sampled.

    tokens: [B, T], what has been written so far. observed: [B, T], the environment's tokens where it has written one, else −1.
    """

    def __init__(self, policy: Policy, task: Task, prompts: Sequence[str], tokens: Tensor) -> None:
        self.policy, self.task, self.prompts, self.tokens = policy, task, prompts, tokens
        self.observed = torch.full_like(tokens, -1)
        self._ends_a_call: dict[int, bool] = {}
        self._encoded: dict[str, Tensor] = {"": tokens.new_empty(0)}

    def answer_calls(self, rows: Tensor, token: Tensor, step: int) -> None:
        """Write the answers to calls that end with these tokens of these rows, unless the environment wrote the tokens."""
        vocabulary, by_policy = self.policy.vocabulary, self.observed[rows, step] < 0
        calling = []
        for row, last in zip(rows[by_policy].tolist(), token[by_policy].tolist(), strict=True):
            if last not in self._ends_a_call:
                self._ends_a_call[last] = vocabulary.decode([last]).endswith(self.task.call_end)
            if self._ends_a_call[last]:
                calling.append(row)
        if not calling:
            return
        for row, text in zip(calling, decode(vocabulary, self.tokens[calling, : step + 1].tolist()), strict=True):
            words = self.task.observe(self.prompts[row], text)
            if words not in self._encoded:
                self._encoded[words] = torch.tensor(encode(vocabulary, [words])[0], device=self.tokens.device)
            room = self.observed[row, step + 1 :]
            observation = self._encoded[words][: len(room)]
            room[: len(observation)] = observation


@checked
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
    its own row of uniform numbers, so it stays the same whatever else is in the batch. `temperature=0` takes the
    likeliest token and reports log-probabilities at temperature 1. `stop_at_end=False` draws `max_new_tokens` for
    everyone (for timing). A `task` with a tool answers the calls in the responses to its prompts: what it writes passes
    through the same cache, and counts among the `max_new_tokens`. Raises ValueError for a setting out of range, or more
    tokens than the model has positions.
    """
    check_not_empty("prompts", prompts)
    check_at_least(1, max_new_tokens=max_new_tokens, group_size=group_size)
    check_number("temperature", temperature, lambda t: t >= 0, "0 (greedy) or above")
    check_number("top_k", top_k, lambda k: k >= 0, "0 (all tokens) or above", integer=True)
    check_number("top_p", top_p, lambda p: 0 < p <= 1, "above 0 and at most 1 (all tokens)")
    prompt_ids, prompt_mask = encode_prompts(policy, prompts)
    width = prompt_ids.shape[1]
    limit = policy.positions
    if limit is not None and width + max_new_tokens > limit:
        raise ValueError(
            f"max_new_tokens {max_new_tokens} after a prompt of {width} tokens exceeds the {limit} positions of this model"
        )
    rows = len(prompts) * group_size
    vocabulary = policy.weights.get_output_embeddings().weight.shape[0]
    check_fits(
        rows * (STEP_BYTES * vocabulary + TOKEN_BYTES * max_new_tokens),
        policy.device,
        f"sampling {rows:,} responses at once",
        "lower group_size, or give fewer prompts at once",
    )
    policy.weights.eval()
    with one_thread_if_small(policy), torch.inference_mode():
        device = policy.device
        # All random numbers are drawn before the first token, so that no row's depend on which others are still running.
        uniform = torch.rand(rows, max_new_tokens, generator=generator, dtype=torch.double).to(device)
        tokens = torch.full((rows, max_new_tokens), policy.pad_id, device=device)
        owner = torch.arange(len(prompts), device=device).repeat_interleave(group_size)
        decoding = policy.backend.decode_steps(prompt_ids, prompt_mask, owner, max_new_tokens)
        logits = next(decoding)
        logp, entropy = (torch.zeros(tokens.shape, device=device) for _ in range(2))
        ends = torch.tensor(sorted(policy.end_ids), device=device)
        is_limited = temperature > 0 and (top_k > 0 or top_p < 1)
        mass = torch.ones(tokens.shape, device=device) if is_limited else None  # that top-k and top-p leave
        environment = None
        if task is not None and task.call_end:
            environment = _Environment(policy, task, [p for p in prompts for _ in range(group_size)], tokens)
        live = torch.arange(rows, device=device)  # the response that each row of the logits belongs to
        finished = torch.zeros(rows, dtype=torch.bool, device=device)
        for step in range(max_new_tokens):
            logits = _to_float(logits)
            if temperature not in (0, 1):
                logits = logits / temperature
            if temperature == 0:
                token = logits.argmax(-1)
            else:
                probabilities = _apply_limits(logits.softmax(-1), top_k, top_p)
                token = _draw_tokens(probabilities, uniform[live, step])
                if mass is not None:
                    mass[live, step] = probabilities.sum(-1).to(mass.dtype)
            # Where the environment has something to say, its token replaces the policy's, which reads it as any other.
            if environment is not None:
                observed = environment.observed[live, step]
                token = torch.where(observed < 0, token, observed)
            tokens[live, step] = token  # of a finished response too, until it leaves; what that adds is cut off below
            logps = logits.log_softmax(-1)
            logp[live, step] = logps.gather(-1, token.unsqueeze(-1)).squeeze(-1).to(logp.dtype)
            entropy[live, step] = torch.special.entr(logps.exp()).sum(-1).to(logp.dtype)
            # Finished rows leave the batch, now and then: to see how many there are, the host must wait for a GPU.
            if stop_at_end:
                ended = (token.unsqueeze(-1) == ends).any(-1)  # torch.isin takes three times as long
                finished = finished | (ended if environment is None else ended & (observed < 0))
            unfinished = None  # rows that stay, where others leave
            if stop_at_end and (step + 1) % (LOOK_EVERY if host.needs_sync(device) else 1) == 0:
                running = len(live) - int(finished.sum())
                if running == 0:
                    break
                if running <= FULL_ENOUGH * len(live):
                    unfinished = (~finished).nonzero().squeeze(-1)
                    live, token, finished = live[unfinished], token[unfinished], finished[unfinished]
            if step + 1 < max_new_tokens:
                if environment is not None:
                    environment.answer_calls(live[~finished], token[~finished], step)
                logits = decoding.send((token, unfinished))

        # A response ends with its first end of sequence that the policy wrote; after it there is padding.
        by_policy = torch.ones_like(tokens, dtype=torch.bool) if environment is None else environment.observed < 0
        ended = torch.isin(tokens, ends) & by_policy & stop_at_end
        drawn = step + 1
        mask = (ended.long().cumsum(-1) - ended.long() == 0)[:, :drawn]
        longest = int(mask.any(0).sum()) if stop_at_end else drawn

    def grouped(values: Tensor, padding: float) -> Tensor:
        # A tensor of inference mode cannot enter a gradient; what is computed from it out here can.
        return values[:, :drawn].masked_fill(~mask, padding)[:, :longest].reshape(len(prompts), group_size, longest)

    return Samples(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        tokens=grouped(tokens, policy.pad_id),
        mask=grouped(by_policy, False),
        logp=grouped(logp, 0.0),
        entropy=grouped(entropy, 0.0),
        truncated=(~ended.any(-1) & stop_at_end).reshape(len(prompts), group_size),
        observed=grouped(~by_policy, False),
        sampler_logp=None if mass is None else grouped(logp - mass.log(), 0.0),
    )


# --- responses that are there already ---


def response_logits(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    tokens: Tensor,
    *,
    wanted: Tensor | None = None,
    owner: Tensor | None = None,
) -> Tensor:
    """Return the logits [P, G, T, V] before each response token, from one forward without a cache (with gradient).

    wanted: true on the tokens [P, G, T] whose logits are asked for (None: all); those of others are finite and mean nothing.
    owner: which prompt tokens[i] answers, [P'] for tokens [P', G, T] (None: prompt i).
    """
    return policy.backend.logits(prompt_ids, prompt_mask, tokens, wanted, owner)


def response_logits_and_hidden(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    tokens: Tensor,
    *,
    wanted: Tensor | None = None,
    owner: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `response_logits` and the hidden states [P, G, T, H] that they are made of, from one forward (with gradient)."""
    return policy.backend.logits_and_states(prompt_ids, prompt_mask, tokens, wanted, owner)


def compute_logp(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    tokens: Tensor,
    *,
    wanted: Tensor | None = None,
    owner: Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return log π of each response token [P, G, T] in nats, and if asked the entropy there, by one forward (with gradient).

    wanted, owner: as in `response_logits`; temperature: as in `token_logp`. Of a large vocabulary only a part of the logits
    exists at a time, as the head is applied again in the backward pass.
    """

    def measure(logits: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        entropy = token_entropy(logits, temperature=temperature) if with_entropy else logits.new_empty(0)
        return token_logp(logits, chosen, temperature=temperature), entropy

    backend, inputs = policy.backend, (prompt_ids, prompt_mask, tokens, wanted, owner)
    vocabulary = policy.weights.get_output_embeddings().weight.shape[0]
    if tokens.numel() * vocabulary <= MOST_WITH_GRADIENT or isinstance(backend, Decoder) or backend.head is None:
        logp, entropy = measure(backend.logits(*inputs), tokens)
        return logp, entropy if with_entropy else None
    head, states = backend.head, backend.hidden_states(*inputs)
    place = (torch.ones_like(tokens, dtype=torch.bool) if wanted is None else wanted).flatten().nonzero().squeeze(1)
    parts = [
        checkpoint(lambda *part: measure(head(part[0]), part[1]), *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(
            *(
                values[place].split(MOST_WITH_GRADIENT // vocabulary)
                for values in (states.flatten(0, 2), tokens.flatten())
            ),
            strict=True,
        )
    ]
    logp, entropy = (torch.cat(values) for values in zip(*parts, strict=True))

    def spread(values: Tensor) -> Tensor:
        return values.new_zeros(tokens.numel()).index_copy(0, place, values).view_as(tokens)

    return spread(logp), spread(entropy) if with_entropy else None


def _to_float(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def token_logp(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return log π(token) in nats: logits [..., V] and tokens [...] → [...], at the sampling temperature (0 counts as 1)."""
    flat = _to_float(logits).flatten(0, -2) / (temperature or 1.0)
    return -F.cross_entropy(flat, tokens.flatten(), reduction="none").reshape(tokens.shape)


def token_entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the entropy in nats of each next-token distribution: logits [..., V] → [...]."""
    return torch.special.entr((_to_float(logits) / (temperature or 1.0)).softmax(-1)).sum(-1)
