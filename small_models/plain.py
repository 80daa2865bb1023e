"""A Llama or a Mixtral in plain tensors: what transformers' modules compute, from the same parameters, with less around it.

A layer is: norm → queries, keys, values → rotation → attention → norm → gated MLP, or the experts of each token. `Decoder` takes
a token at a time; `small_models.packed` reads whole responses with the same layers. It is quicker than the modules because
matrices that read the same input are one, the weight of the norm before them multiplied in, and keys and values are written
into room that was taken once.

transformers stays the truth: `small_models.paths` says which models are computed here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from small_models import host


class _Layer(NamedTuple):
    """A layer's matrices, [out, in]. With experts there are a `norm` and a `router`; `gate_up` and `down` are [E, out, in]."""

    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    norm: Tensor | None = None
    router: Tensor | None = None


class Trunk:
    """The layers of a model (`LlamaModel`, `MixtralModel`) as joined matrices, differentiable in the model's parameters.

    The rotation turns pairs of numbers; transformers pairs the first half of a head with its second, here partners stand side
    by side, so that a pair is a complex number.
    """

    def __init__(self, core: Any) -> None:
        config = core.config
        self.heads, self.width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        self.eps, self.experts_a_token = config.rms_norm_eps, getattr(config, "num_experts_per_tok", 0)
        self.core, self.frequencies = core, core.rotary_emb.inv_freq
        pairs = torch.arange(config.hidden_size, device=core.device).view(self.heads, 2, -1).transpose(1, 2).flatten()
        self.layers = [self._layer(layer, pairs) for layer in core.layers]

    @staticmethod
    def _layer(layer: Any, pairs: Tensor) -> _Layer:
        attention, mlp, norm = layer.self_attn, layer.mlp, layer.post_attention_layernorm.weight
        q, k, v = attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight
        qkv = torch.cat([q.index_select(0, pairs), k.index_select(0, pairs), v]) * layer.input_layernorm.weight
        if hasattr(mlp, "experts"):
            experts = mlp.experts
            return _Layer(qkv, attention.o_proj.weight, experts.gate_up_proj, experts.down_proj, norm, mlp.gate.weight)
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * norm
        return _Layer(qkv, attention.o_proj.weight, gate_up, mlp.down_proj.weight)

    def embed(self, ids: Tensor) -> Tensor:
        table = self.core.embed_tokens
        return F.embedding(ids, table.weight, table.padding_idx)  # which gets no gradient, as in transformers

    def turns(self, positions: Tensor) -> Tensor:
        """Return by what q, k and v are turned at each position, complex: [...] → [..., 3, 1, width / 2]; v is not."""
        angle = (
            positions.unsqueeze(-1) * self.frequencies.float()
        )  # in float32 whatever the weights are, as in transformers
        once = torch.complex(angle.cos(), angle.sin()).to(torch.promote_types(self.core.dtype, torch.complex64))
        return torch.stack([once, once, torch.ones_like(once)], -2).unsqueeze(-2)

    def norm(self, x: Tensor) -> Tensor:
        """Return x / √(mean(x²) + ε)."""
        return F.rms_norm(x, x.shape[-1:], None, self.eps)

    def qkv(self, x: Tensor, layer: _Layer, turns: Tensor) -> Tensor:
        """Return queries, keys and values of a layer's input, turned: [..., H] → [..., 3, heads, width]."""
        made = (self.norm(x) @ layer.qkv.T).unflatten(-1, (3, self.heads, self.width // 2, 2))
        return torch.view_as_real(torch.view_as_complex(made) * turns).flatten(-2)

    def rest(self, x: Tensor, seen: Tensor, layer: _Layer) -> Tensor:
        """Return a layer's output, from its input [M, H] and what its attention saw [M, H]."""
        x = torch.addmm(x, seen, layer.out.T)
        if layer.router is None or layer.norm is None:
            return torch.addmm(x, _gated(self.norm(x), layer.gate_up), layer.down.T)
        read = self.norm(x) * layer.norm
        weights, chosen = (read @ layer.router.T).softmax(-1).topk(self.experts_a_token)
        weights = weights / weights.sum(-1, keepdim=True)
        if host.waits(x.device):
            # nobody is told which rows an expert has: each reads all of them, most at a share of 0
            share = torch.zeros(len(x), len(layer.router), dtype=x.dtype, device=x.device).scatter(-1, chosen, weights)
            made = _gated(read, layer.gate_up) @ layer.down.mT  # [E, M, H]
            return x + torch.einsum("me,emh->mh", share, made)
        for expert in range(len(layer.router)):
            rows, place = (chosen == expert).nonzero(as_tuple=True)
            made = _gated(read[rows], layer.gate_up[expert]) @ layer.down[expert].T
            x = x.index_add(0, rows, made * weights[rows, place].unsqueeze(-1))
        return x


def _gated(x: Tensor, gate_up: Tensor) -> Tensor:
    gate, up = (x @ gate_up.mT).chunk(2, -1)
    gate = F.silu(gate)
    return gate * up if gate.requires_grad else gate.mul_(up)


def seeing(prompt_mask: Tensor, owner: Tensor, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return what attention adds to its scores: 0 where a token may look, −∞ elsewhere.

    For prompts [1, 1, S, S] or, where some are padded, [P, 1, S, S]; for tokens after them [1, 1, T, S + T] or [N, 1, T, S + T].
    """
    width, device = prompt_mask.shape[1], prompt_mask.device
    causal = torch.ones(width + length, width + length, dtype=torch.bool, device=device).tril()
    if not host.waits(device) and bool(prompt_mask.all()):
        prompt_mask, owner = prompt_mask[:1], owner[:1] * 0  # the same for all
    itself = torch.eye(
        width, dtype=torch.bool, device=device
    )  # padding too sees something, or its state were no number
    prompts = causal[:width, :width] & (prompt_mask.unsqueeze(1) | itself)
    tokens = causal[width:] & F.pad(prompt_mask[owner], (0, length), value=True).unsqueeze(1)
    bias = torch.zeros((), dtype=dtype, device=device)
    return bias.where(prompts, -torch.inf).unsqueeze(1), bias.where(tokens, -torch.inf).unsqueeze(1)


class Decoder:
    """Reads prompts [P, S], padded on the left, once, then takes a token of each live response and returns the next logits.

    Keys and values [layers, S + T, B, H] stand in room for all of a response's tokens. Positions count the padding too: the
    rotation makes attention depend on distances alone.
    """

    def __init__(self, model: Any, prompt_ids: Tensor, prompt_mask: Tensor, group_size: int, room: int) -> None:
        core, device = model.base_model, prompt_ids.device
        self.trunk = trunk = Trunk(core)
        self.head = (model.lm_head.weight * core.norm.weight).T
        p, s = prompt_ids.shape
        self.length = s
        self.turns = trunk.turns(torch.arange(s + room, device=device))
        owner = torch.arange(p, device=device).repeat_interleave(group_size)
        self.keys = torch.empty(
            len(trunk.layers), s + room, len(owner), trunk.heads * trunk.width, device=device, dtype=core.dtype
        )
        self.values = torch.empty_like(self.keys)
        heads = torch.eye(trunk.heads, device=device, dtype=core.dtype)
        self.to_heads = (
            heads.repeat_interleave(trunk.width, 0) * trunk.width**-0.5
        )  # [H, heads]: sums each head's numbers
        self.from_heads = heads.repeat_interleave(trunk.width, 1)
        sees, _ = seeing(prompt_mask, owner, 0, core.dtype)
        self.padding = None
        if len(sees) == p:  # some may be padded
            scores = torch.zeros_like(prompt_mask, dtype=core.dtype).masked_fill_(~prompt_mask, -torch.inf)
            self.padding = F.pad(scores, (0, room))[owner].T.unsqueeze(-1)  # [S + T, B, 1]
        x = trunk.embed(prompt_ids)
        for keys, values, layer in zip(self.keys, self.values, trunk.layers, strict=True):
            q, k, v = trunk.qkv(x, layer, self.turns[:s]).permute(2, 0, 3, 1, 4)
            keys[:s], values[:s] = (of.permute(2, 0, 1, 3).flatten(2)[:, owner] for of in (k, v))
            seen = F.scaled_dot_product_attention(q, k, v, sees).transpose(1, 2).flatten(2)
            if layer is trunk.layers[-1]:  # from here on, only the last token
                seen, x = seen[:, -1:], x[:, -1:]
            x = trunk.rest(x.flatten(0, 1), seen.flatten(0, 1), layer).unflatten(0, (p, -1))
        self.first_logits = (trunk.norm(x[:, -1]) @ self.head)[owner]

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            kept = old.new_empty(*old.shape[:2], len(rows), old.shape[-1])
            kept[:, : self.length] = old[:, : self.length, rows]
            setattr(self, name, kept)
        self.padding = None if self.padding is None else self.padding[:, rows]

    def __call__(self, token: Tensor) -> Tensor:
        """Append a token [B] to each row and return the logits [B, V] after it."""
        trunk, here, self.length = self.trunk, self.length, self.length + 1
        x = trunk.embed(token)
        for every_key, every_value, layer in zip(self.keys, self.values, trunk.layers, strict=True):
            keys, values = every_key[: self.length], every_value[: self.length]
            q, keys[here], values[here] = trunk.qkv(x, layer, self.turns[here]).flatten(2).unbind(1)
            scores = (q * keys) @ self.to_heads  # [S + t, B, heads]
            if self.padding is not None:
                scores = scores + self.padding[: self.length]
            seen = (scores.softmax(0) @ self.from_heads * values).sum(0)
            x = trunk.rest(x, seen, layer)
        return trunk.norm(x) @ self.head
