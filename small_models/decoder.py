"""A decoder: what the small policies compute, from token ids to logits. `Decoder.forward` is the whole of it.

    x = the embedding of each token
    a layer:   x ← x + O · attention(q, k, v),   q, k, v = Q, K, V · n(x), where q and k are turned by their position
               x ← x + down · (silu(gate · n(x)) ⊙ up · n(x)), or a sum of such, over the experts of each token
    logits = head · n(x)                          n(x) = w ⊙ x / √(mean(x²) + ε)

`draw` computes it for prompts, once, and then for a token at a time; `read` for groups of responses, each prompt once for all of
them. Matrices that read the same input are one, the weight w of the norm before them multiplied in, which makes it quick.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from small_models import host

# A layer's matrices, [out, in]. With experts there are a norm and a router, and gate_up and down are [E, out, in].
Layer = namedtuple("Layer", "qkv out gate_up down norm router", defaults=(None, None))


class Decoder(nn.Module):
    """A Llama or a Mixtral, as its config says. model: all below the head, parameters named as in transformers, or its own."""

    def __init__(self, config: Any, model: Any, lm_head: Any) -> None:
        super().__init__()
        self.config, self.model, self.lm_head = config, model, lm_head
        self.heads, self.width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        self.eps = config.rms_norm_eps

    device = property(lambda self: self.model.embed_tokens.weight.device)
    dtype = property(lambda self: self.model.embed_tokens.weight.dtype)

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits [B, S, V] after each token of rows [B, S]. A page can record it, for it reads no number."""
        with host.recording():
            places = torch.arange(ids.shape[1], device=ids.device)
            turns, later, x = self.turns(ids.shape[1]), places > places.unsqueeze(1), self.model.embed_tokens(ids)
            for layer in self.layers():
                q, k, v = self.qkv(x, layer, turns).permute(2, 0, 3, 1, 4)  # [B, heads, S, width]
                scores = (q @ k.mT * self.width**-0.5).masked_fill(later, -torch.inf)
                seen = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
                x = self.rest(x.flatten(0, 1), seen.flatten(0, 1), layer).view_as(x)
            return self.lm_head(self.final(x))

    def layers(self) -> list[Layer]:
        """Return the matrices of each layer as they are now, differentiable in the parameters.

        A rotation turns pairs of numbers: transformers' are from a head's two halves, here partners stand side by side.
        """
        joined = []
        for layer in self.model.layers:
            attention, mlp, norm = layer.self_attn, layer.mlp, layer.post_attention_layernorm.weight
            halves = (of.weight.unflatten(0, (self.heads, 2, -1)) for of in (attention.q_proj, attention.k_proj))
            q, k = (of.transpose(1, 2).flatten(0, 2) for of in halves)
            first = torch.cat([q, k, attention.v_proj.weight]) * layer.input_layernorm.weight, attention.o_proj.weight
            if hasattr(mlp, "experts"):
                joined.append(Layer(*first, mlp.experts.gate_up_proj, mlp.experts.down_proj, norm, mlp.gate.weight))
            else:
                gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * norm
                joined.append(Layer(*first, gate_up, mlp.down_proj.weight))
        return joined

    def turns(self, positions: int) -> Tensor:
        """Return cos + i sin of the angles that q, k, v are turned by at each position, [S, 3, 1, width / 2]; v's are 0.

        A page has no complex numbers: while it records, cos and sin in a last dimension.
        """
        exponents = torch.arange(0, self.width, 2, device=self.device).float() / self.width
        once = 1.0 / self.config.rope_parameters["rope_theta"] ** exponents
        each = torch.stack([once, once, torch.zeros_like(once)]).unsqueeze(1)
        angle = torch.arange(positions, device=self.device).view(-1, 1, 1, 1) * each
        turns = torch.stack([angle.cos(), angle.sin()], -1)  # in float32 whatever the weights are, as in transformers
        turns = turns.to(torch.promote_types(self.dtype, torch.float32))
        return turns if host.is_recording() else torch.view_as_complex(turns)

    def norm(self, x: Tensor) -> Tensor:
        """Return x / √(mean(x²) + ε)."""
        return F.rms_norm(x, x.shape[-1:], None, self.eps)

    def final(self, x: Tensor) -> Tensor:
        """Return the states that the head reads, of what the last layer leaves."""
        return self.norm(x) * self.model.norm.weight

    def qkv(self, x: Tensor, layer: Layer, turns: Tensor) -> Tensor:
        """Return queries, keys and values of a layer's input, turned: [..., H] → [..., 3, heads, width]."""
        return _turned((self.norm(x) @ layer.qkv.T).unflatten(-1, (3, self.heads, -1, 2)), turns).flatten(-2)

    def rest(self, x: Tensor, seen: Tensor, layer: Layer) -> Tensor:
        """Return a layer's output, from its input [M, H] and what its attention saw [M, H]."""
        x = torch.addmm(x, seen, layer.out.T)
        if layer.router is None:
            return torch.addmm(x, _gated(self.norm(x), layer.gate_up), layer.down.T)
        read = self.norm(x) * layer.norm
        shares = (read @ layer.router.T).softmax(-1)
        weights, chosen = shares.topk(self.config.num_experts_per_tok)
        weights = weights / weights.sum(-1, keepdim=True)
        if host.waits(x.device):  # nobody knows which rows an expert has: each reads all, most at a share of 0
            shares = torch.zeros_like(shares).scatter(-1, chosen, weights)
            return x + torch.einsum("me,emh->mh", shares, _gated(read, layer.gate_up) @ layer.down.mT)
        for expert in range(len(layer.router)):
            rows, place = (chosen == expert).nonzero(as_tuple=True)
            made = _gated(read[rows], layer.gate_up[expert]) @ layer.down[expert].T
            x = x.index_add(0, rows, made * weights[rows, place].unsqueeze(-1))
        return x

    def read(
        self, prompts: Tensor, there: Tensor, tokens: Tensor, kept: Tensor, owner: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Read prompts [P, S], `there` where they are no padding, and tokens [N, T], each row after its prompt, owner [N].

        Returns what the last layer leaves, [P + K, H], after each prompt first, and where in it that after each token is, [N, T],
        0 where `kept` [N, T] is false, on a CPU. Positions count padding: distances tell.
        """
        (p, s), (n, t), device = prompts.shape, tokens.shape, tokens.device
        kept = kept.flatten() | (every := host.waits(device))  # a GPU's host is not told how many
        place = torch.arange(n * t, device=device) if every else kept.nonzero().squeeze(1)
        of_prompts, of_tokens = torch.arange(s + t, device=device).split([s, t])
        turns = self.turns(s + t).index_select(0, torch.cat([of_prompts.repeat(p), of_tokens.repeat(n)[place]]))
        prompts_see = _seeing(there, s, self.dtype)
        tokens_see = _seeing(F.pad(there[owner], (0, t), value=True), t, self.dtype)
        x, layers = self.model.embed_tokens(torch.cat([prompts.flatten(), tokens.flatten()[place]])), self.layers()
        for layer in layers:  # matrices read a flat list of tokens; attention, each response beside its prompt's keys
            of_prompts, of_tokens = self.qkv(x, layer, turns).split([p * s, len(place)])
            spread = of_tokens.new_zeros(n * t, *of_tokens.shape[1:]).index_copy(0, place, of_tokens)
            q, k, v = of_prompts.unflatten(0, (p, s)).permute(2, 0, 3, 1, 4)
            own_q, *own = spread.unflatten(0, (n, t)).permute(2, 0, 3, 1, 4)
            keys, values = (torch.cat([of.index_select(0, owner), o], 2) for of, o in zip((k, v), own, strict=True))
            seen, own_seen = _attention(q, k, v, prompts_see), _attention(own_q, keys, values, tokens_see)
            if layer is layers[-1]:  # from here on, of a prompt only its last token
                before, x = x.split([p * s, len(place)])
                x, seen = torch.cat([before.unflatten(0, (p, s))[:, -1], x]), seen[:, -1:]
            x = self.rest(x, torch.cat([seen.flatten(0, 1), own_seen.flatten(0, 1).index_select(0, place)]), layer)
        return x, torch.where(kept, kept.cumsum(0) + (p - 1), 0).view(n, t)

    def draw(self, prompts: Tensor, there: Tensor, owner: Tensor, room: int) -> Generator[Tensor, Any, None]:
        """Yield the logits [B, V] after each row's prompt, `owner` [B], and then after each token that is sent, at most `room`.

        Sent are a token a row, [B'], and which of the rows before these are, [B'], None for all.
        """
        s, layers, head = prompts.shape[1], self.layers(), (self.lm_head.weight * self.model.norm.weight).T
        from_heads = torch.eye(self.heads, dtype=self.dtype, device=self.device).repeat_interleave(self.width, 1)
        to_heads = (from_heads * self.width**-0.5).T.contiguous()  # sums each head's numbers
        whole = not host.waits(there.device) and bool(there.all())
        sees = _seeing(there, s, self.dtype)
        embed, turns = self.model.embed_tokens, self.turns(s + room)
        cache, x = head.new_empty(len(layers), 2, s + room, len(owner), len(head)), embed(prompts)
        for own, layer in zip(cache, layers, strict=True):
            q, k, v = made = self.qkv(x, layer, turns[:s]).permute(2, 0, 3, 1, 4)
            own[:, :s] = made[1:].permute(0, 3, 1, 2, 4).flatten(3)[:, :, owner]
            seen = _attention(q, k, v, sees)
            if layer is layers[-1]:  # from here on, only the last token
                seen, x = seen[:, -1:], x[:, -1:]
            x = self.rest(x.flatten(0, 1), seen.flatten(0, 1), layer).view(len(prompts), -1, len(head))
        padding = F.pad(sees[:, 0, -1].expand(len(prompts), -1)[owner], (0, room)).T.unsqueeze(-1)  # [S + room, B, 1]
        logits = (self.norm(x[:, 0]) @ head)[owner]
        for here in range(s, s + room):
            token, rows = yield logits
            if rows is not None:
                old, padding = cache, padding[:, rows]
                cache = old.new_empty(*old.shape[:3], len(rows), old.shape[-1])
                cache[:, :, :here] = old[:, :, :here, rows]
            x = embed(token)
            for own, layer in zip(cache, layers, strict=True):
                keys, values = own[:, : here + 1]
                q, keys[here], values[here] = self.qkv(x, layer, turns[here]).flatten(2).unbind(1)
                scores = (q * keys) @ to_heads  # [S + t, B, heads]
                scores = scores if whole else scores + padding[: here + 1]
                x = self.rest(x, (scores.softmax(0) @ from_heads * values).sum(0), layer)
            logits = self.norm(x) @ head


def _turned(pairs: Tensor, turns: Tensor) -> Tensor:
    """Return pairs (a, b) [..., 2] turned by angles: (a cos − b sin, a sin + b cos), which is (a + ib) · (cos + i sin)."""
    if host.is_recording():
        (a, b), (cos, sin) = pairs.unbind(-1), turns.unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1)
    return torch.view_as_real(torch.view_as_complex(pairs) * turns)


def _gated(x: Tensor, gate_up: Tensor) -> Tensor:
    gate, up = (x @ gate_up.mT).chunk(2, -1)
    gate = F.silu(gate)
    return gate * up if gate.requires_grad or host.is_recording() else gate.mul_(up)


def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Return softmax(q · kᵀ / √width + bias) · v: [B, heads, S, width] → [B, S, H]."""
    return F.scaled_dot_product_attention(q, k, v, bias).transpose(1, 2).flatten(2)


def _seeing(there: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """Return what attention adds to the scores of the last `rows` places of `there` [B, S]: 0 where they may look, else −∞.

    Each looks at itself and at what is there before it. [B, 1, rows, S], or [1, 1, rows, S] where all are.
    """
    there = there[:1] if not host.waits(there.device) and bool(there.all()) else there
    places = torch.arange(there.shape[1], device=there.device)
    own = places[len(places) - rows :].unsqueeze(1)
    sees = (places < own) & there.unsqueeze(1) | (places == own)
    return torch.zeros((), dtype=dtype, device=there.device).where(sees, -torch.inf).unsqueeze(1)
