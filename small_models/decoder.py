"""The transformer of the shipped policies, a Llama: `Decoder.forward` is the one place where a layer is computed.

    x = the embedding of each token
    a layer:   x ← x + O · attention(q, k, v),    q, k, v = Q, K, V · n(x),  q and k rotated by their position (RoPE)
               x ← x + down · (silu(gate · n(x)) ⊙ up · n(x))
    logits = head · n(x)                          n(x) = w ⊙ x / √(mean(x²) + ε)

Callers differ in what attention sees, so each brings its own `attend`: `hidden_states` reads whole responses for training,
`decode_steps` samples with a cache, and a page records the forward for its own training. Begin with `forward`, then `layers`.
A page has neither complex numbers nor fused operations: while it records, `norm`, `apply_rope` and `add_product` spell them out.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from small_models import host

Layer = namedtuple("Layer", "qkv out gate_up down")  # matrices [out, in], those that read the same input joined
# (layer number, x [..., H], qkv [..., 3, heads, width]) → x and what its attention returns, both [..., H]
Attend = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


class Decoder(nn.Module):
    """A Llama without biases, with a key head for each query head. model: all below the head, named as in transformers."""

    def __init__(self, config: Any, model: Any, lm_head: Any) -> None:
        super().__init__()
        self.config, self.model, self.lm_head = config, model, lm_head
        self.heads, self.width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        self.eps = config.rms_norm_eps

    device = property(lambda self: self.model.embed_tokens.weight.device)
    dtype = property(lambda self: self.model.embed_tokens.weight.dtype)

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    # --- the transformer ---

    def forward(self, x: Tensor, rope: Tensor, attend: Attend, layers: Sequence[Layer] | None = None) -> Tensor:
        """Return what the last layer leaves of embedded tokens x [..., H].

        rope: of each token's position, as `rope` returns it. attend: may shorten x, where later layers need fewer tokens.
        layers: what `layers` returned, for callers that run many tokens on the same weights.
        """
        for number, layer in enumerate(self.layers() if layers is None else layers):
            # One product makes queries, keys and values. v is rotated by the angle 0: cheaper than taking it apart.
            qkv = (self.norm(x) @ layer.qkv.T).unflatten(-1, (3, self.heads, -1, 2))
            x, attended = attend(number, x, apply_rope(qkv, rope).flatten(-2))
            x = add_product(x, attended, layer.out)
            gate, up = (self.norm(x) @ layer.gate_up.T).chunk(2, -1)
            gate = F.silu(gate)
            # Without a gradient, the product may overwrite its factor.
            gated = gate * up if gate.requires_grad or host.is_recording() else gate.mul_(up)
            x = add_product(x, gated, layer.down)
        return x

    def layers(self) -> list[Layer]:
        """Return the matrices of each layer as they are now, differentiable in the parameters.

        The weight of a norm is multiplied into the matrices that read it. A rotation turns pairs of numbers: transformers'
        pairs are (i, i + width / 2) of a head; the rows of q and k are reordered here so that partners are neighbours.
        """
        joined = []
        for layer in self.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            halves = (proj.weight.unflatten(0, (self.heads, 2, -1)) for proj in (attention.q_proj, attention.k_proj))
            q, k = (half.transpose(1, 2).flatten(0, 2) for half in halves)
            qkv = torch.cat([q, k, attention.v_proj.weight]) * layer.input_layernorm.weight
            gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * layer.post_attention_layernorm.weight
            joined.append(Layer(qkv, attention.o_proj.weight, gate_up, mlp.down_proj.weight))
        return joined

    def rope(self, positions: int) -> Tensor:
        """Return cos + i sin of the rotation of q, k and v at each position, [S, 3, 1, width / 2]; v's angle is 0."""
        exponents = torch.arange(0, self.width, 2, device=self.device).float() / self.width
        frequency = 1.0 / self.config.rope_parameters["rope_theta"] ** exponents
        frequencies = torch.stack([frequency, frequency, torch.zeros_like(frequency)]).unsqueeze(1)
        angle = torch.arange(positions, device=self.device).view(-1, 1, 1, 1) * frequencies
        rope = torch.stack([angle.cos(), angle.sin()], -1)  # in float32 whatever the weights are, as in transformers
        return torch.view_as_complex(rope.to(torch.promote_types(self.dtype, torch.float32)))

    def norm(self, x: Tensor) -> Tensor:
        """Return x / √(mean(x²) + ε)."""
        if host.is_recording():
            return x * ((x * x).mean(-1, keepdim=True) + self.eps).rsqrt()
        return F.rms_norm(x, x.shape[-1:], None, self.eps)

    def final_norm(self, x: Tensor) -> Tensor:
        """Return the states that the head reads, of what the last layer leaves."""
        return self.norm(x) * self.model.norm.weight

    # --- whole responses, for training ---

    def logits(self, *inputs: Any) -> Tensor:
        """Return the logits [P, G, T, V] before each token; inputs: as in `hidden_states`."""
        return self.logits_and_states(*inputs)[0]

    def logits_and_states(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """Return the logits [P, G, T, V] before each token, and the states [P, G, T, H] that they are a product of."""
        states = self.hidden_states(*inputs)
        return self.lm_head(states), states

    def hidden_states(
        self,
        prompts: Tensor,
        prompt_mask: Tensor,
        tokens: Tensor,
        wanted: Tensor | None = None,
        owner: Tensor | None = None,
        *,
        after: bool = False,
    ) -> Tensor:
        """Return the state before each token, [P, G, T, H], or after it; where `wanted` is false, any states.

        prompts, prompt_mask: [P, S], padded on the left. tokens, wanted: [P', G, T]. owner: the prompt of tokens[i], [P'],
        None for i. Each prompt is read once, equal responses once, and no token after the last wanted one.
        """
        rows, needed, owner, same = needed_rows(tokens, wanted, owner, after=after)
        states, index = self._read(prompts, prompt_mask, rows, needed, owner)
        index = index if after else torch.cat([owner.unsqueeze(1), index], 1)
        index = index[same]
        return self.final_norm(states).index_select(0, index.flatten()).unflatten(0, tokens.shape)

    def _read(
        self, prompts: Tensor, prompt_mask: Tensor, tokens: Tensor, needed: Tensor, owner: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what the last layer leaves of prompts [P, S] and of tokens [N, T], each row after its prompt owner [N].

        The first value is [P + K, H]: the last token of each prompt, then the K needed tokens (all of them on a GPU). The
        second is where in it the state after each token is, [N, T]; 0 where it is not needed.
        """
        (p, s), (n, t), device = prompts.shape, tokens.shape, tokens.device
        read_all = host.needs_sync(device)  # a GPU's host does not know how many tokens are needed
        needed = needed.flatten() | read_all
        index = torch.arange(n * t, device=device) if read_all else needed.nonzero().squeeze(1)
        # Matrix products work on one flat list: all tokens of the prompts, then the needed tokens of the responses. Positions
        # count padding too, as only the distance of two tokens enters attention.
        prompt_positions, positions = torch.arange(s + t, device=device).split([s, t])
        rope = self.rope(s + t).index_select(0, torch.cat([prompt_positions.repeat(p), positions.repeat(n)[index]]))
        x = self.model.embed_tokens(torch.cat([prompts.flatten(), tokens.flatten()[index]]))
        prompt_bias = attention_bias(prompt_mask, s, self.dtype)
        bias = attention_bias(F.pad(prompt_mask[owner], (0, t), value=True), t, self.dtype)
        last = len(self.model.layers) - 1

        def attend(number: int, x: Tensor, qkv: Tensor) -> tuple[Tensor, Tensor]:
            prompt_qkv, packed = qkv.split([p * s, len(index)])
            padded = packed.new_zeros(n * t, *packed.shape[1:]).index_copy(0, index, packed)
            q, k, v = prompt_qkv.unflatten(0, (p, s)).permute(2, 0, 3, 1, 4)
            response_q, response_k, response_v = padded.unflatten(0, (n, t)).permute(2, 0, 3, 1, 4)
            # Each response sees the keys of its prompt beside its own; those were computed once for the whole group.
            keys = torch.cat([k.index_select(0, owner), response_k], 2)
            values = torch.cat([v.index_select(0, owner), response_v], 2)
            prompt_out = attention(q, k, v, prompt_bias)
            response_out = attention(response_q, keys, values, bias)
            if number == last:  # from here on, only the last token of a prompt is needed
                x_prompts, x = x.split([p * s, len(index)])
                x, prompt_out = torch.cat([x_prompts.unflatten(0, (p, s))[:, -1], x]), prompt_out[:, -1:]
            return x, torch.cat([prompt_out.flatten(0, 1), response_out.flatten(0, 1).index_select(0, index)])

        return self.forward(x, rope, attend), torch.where(needed, needed.cumsum(0) + (p - 1), 0).view(n, t)

    # --- a token at a time, for sampling ---

    def decode_steps(
        self, prompts: Tensor, prompt_mask: Tensor, owner: Tensor, max_new_tokens: int
    ) -> Generator[Tensor, Any, None]:
        """Yield the logits [B, V] after each row's prompt, owner [B], and then after each token that is sent.

        Sent are a token a row, [B'], and which of the rows before these are, [B'], None for all.
        """
        s, layers, last = prompts.shape[1], self.layers(), len(self.model.layers) - 1
        head = (self.lm_head.weight * self.model.norm.weight).T
        rope, embed = self.rope(s + max_new_tokens), self.model.embed_tokens
        bias = attention_bias(prompt_mask, s, self.dtype)
        is_padded = host.needs_sync(prompt_mask.device) or not bool(prompt_mask.all())
        cache = head.new_empty(
            len(layers), 2, s + max_new_tokens, len(owner), len(head)
        )  # [layer, k or v, place, row, H]

        def attend_prompts(number: int, x: Tensor, qkv: Tensor) -> tuple[Tensor, Tensor]:
            q, k, v = parts = qkv.permute(2, 0, 3, 1, 4)
            cache[number][:, :s] = parts[1:].permute(0, 3, 1, 2, 4).flatten(3)[:, :, owner]
            attended = attention(q, k, v, bias)
            return (x[:, -1:], attended[:, -1:]) if number == last else (x, attended)

        x = self.forward(embed(prompts), rope[:s], attend_prompts, layers)
        logits = (self.norm(x[:, 0]) @ head)[owner]

        # For one new token a row, a product with 0s and 1s that sums each head's numbers is faster than a batched product.
        from_heads = torch.eye(self.heads, dtype=self.dtype, device=self.device).repeat_interleave(self.width, 1)
        to_heads = (from_heads * self.width**-0.5).T.contiguous()
        padding = F.pad(bias[:, 0, -1].expand(len(prompts), -1)[owner], (0, max_new_tokens)).T.unsqueeze(
            -1
        )  # [place, B, 1]

        def attend_token(number: int, x: Tensor, qkv: Tensor) -> tuple[Tensor, Tensor]:
            keys, values = cache[number][:, : place + 1]
            q, keys[place], values[place] = qkv.flatten(2).unbind(1)
            scores = (q * keys) @ to_heads  # [place, B, heads]
            scores = scores + padding[: place + 1] if is_padded else scores
            return x, (scores.softmax(0) @ from_heads * values).sum(0)

        for place in range(s, s + max_new_tokens):
            token, rows = yield logits
            if rows is not None:  # rows that ended leave the batch, and the cache
                before, padding = cache, padding[:, rows]
                cache = before.new_empty(*before.shape[:3], len(rows), before.shape[-1])
                cache[:, :, :place] = before[:, :, :place, rows]
            logits = self.norm(self.forward(embed(token), rope[place], attend_token, layers)) @ head


def apply_rope(pairs: Tensor, rope: Tensor) -> Tensor:
    """Return pairs (a, b) [..., 2] rotated: (a cos − b sin, a sin + b cos), which is (a + ib) · (cos + i sin).

    While operations are recorded, rope holds cos and sin in a last dimension.
    """
    if host.is_recording():
        (a, b), (cos, sin) = pairs.unbind(-1), rope.unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
    return torch.view_as_real(torch.view_as_complex(pairs) * rope)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Return softmax(q · kᵀ / √width + bias) · v: [B, heads, S, width] → [B, S, H]."""
    return F.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2).flatten(2)


def attention_bias(mask: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """Return what is added to the scores of the last `rows` places of mask [B, S]: 0 for what they may see, else −∞.

    A place sees itself and what the mask has before it. [B, 1, rows, S], or [1, 1, rows, S] where there is no padding.
    """
    mask = mask[:1] if not host.needs_sync(mask.device) and bool(mask.all()) else mask
    places = torch.arange(mask.shape[1], device=mask.device)
    queries = places[len(places) - rows :].unsqueeze(1)
    sees = (places < queries) & mask.unsqueeze(1) | (places == queries)
    return torch.zeros((), dtype=dtype, device=mask.device).where(sees, -torch.inf).unsqueeze(1)


def needed_rows(
    tokens: Tensor, wanted: Tensor | None, owner: Tensor | None, *, after: bool, all_rows: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the different rows of tokens that must be read for states before tokens [P', G, T], or after them.

    Rows [N, T'], which of their tokens are needed, [N, T'], their prompts, [N], and for each row of tokens which of these it is
    equal to, [P' × G]. wanted, owner: as in `Decoder.hidden_states`. all_rows: equal ones stand each for itself.
    """
    owner = torch.arange(len(tokens), device=tokens.device) if owner is None else owner
    owner, rows = owner.repeat_interleave(tokens.shape[1]), tokens.flatten(0, 1)
    needed = torch.ones_like(rows, dtype=torch.bool)
    if wanted is not None:
        needed = wanted.flatten(0, 1).flip(-1).cumsum(-1).flip(-1) > 0
    if not after:
        rows, needed = rows[:, :-1], needed[:, 1:]
    if all_rows or host.needs_sync(tokens.device):  # which rows are equal is a number that the host would wait for
        return rows, needed, owner, torch.arange(len(rows), device=rows.device)
    first, same = distinct_rows(torch.cat([owner.unsqueeze(1), rows.masked_fill(~needed, -1)], 1))
    return rows[first], needed[first], owner[first], same


def distinct_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of different rows among `rows` [N, W], and for each row which of these it is equal to, [N].

    Rows are told apart by a sum of their integers with random weights, in a tenth of the time that sorting whole rows takes.
    """
    weights = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0))
    sums, same = (rows * weights).sum(1).unique(return_inverse=True)
    first = torch.zeros_like(sums).index_copy_(0, same, torch.arange(len(rows)))
    if not torch.equal(rows[first][same], rows):  # two sums met by chance
        first = same = torch.arange(len(rows))
    return first, same


def add_product(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return x + y · weightᵀ, [..., H]."""
    if host.is_recording():
        return x + y @ weight.T
    return torch.addmm(x.flatten(0, -2), y.flatten(0, -2), weight.T).view_as(x)
