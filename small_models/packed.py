"""Responses read by a plain model (`small_models.plain`): each prompt once for all its responses, equal ones once, no padding.

The layers' matrices see a flat list of tokens, [P × S + K, H]: those of the prompts, then those of the responses that matter. For
the attention alone each response is laid beside its prompt's keys and values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from small_models import host
from small_models.plain import Trunk, seeing


def read(
    core: Any, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor, kept: Tensor, owner: Tensor
) -> tuple[Tensor, Tensor]:
    """Read prompts [P, S], padded on the left, and tokens [N, T], each row after its prompt, `owner` [N], with gradient.

    Returns the states that the head reads, [P + K, H], those after each prompt first, and where among them the state after each
    token is, [N, T]. On a CPU tokens for which `kept` [N, T] is false are not read, and 0 stands for them.
    """
    trunk, device = Trunk(core), tokens.device
    (p, s), (n, t) = prompt_ids.shape, tokens.shape
    all_of_them = host.waits(device)  # until it is told how many are kept
    kept = torch.ones(n * t, dtype=torch.bool, device=device) if all_of_them else kept.flatten()
    place = torch.arange(n * t, device=device) if all_of_them else kept.nonzero().squeeze(1)
    after = torch.where(kept, kept.cumsum(0) + (p - 1), 0).view(n, t)
    of_prompts, of_tokens = torch.arange(s, device=device), s + torch.arange(t, device=device)
    turns = trunk.turns(torch.cat([of_prompts.repeat(p), of_tokens.repeat(n)[place]]))
    prompts_see, tokens_see = seeing(prompt_mask, owner, t, core.dtype)
    x = trunk.embed(torch.cat([prompt_ids.flatten(), tokens.flatten()[place]]))
    for number, layer in enumerate(trunk.layers):
        prompts, responses = trunk.qkv(x, layer, turns).split([p * s, len(place)])
        spread = responses.new_zeros(n * t, *responses.shape[1:]).index_copy(0, place, responses)
        q, k, v = prompts.unflatten(0, (p, s)).permute(2, 0, 3, 1, 4)  # [P, heads, S, width]
        own_q, own_k, own_v = spread.unflatten(0, (n, t)).permute(2, 0, 3, 1, 4)
        keys = torch.cat([k.index_select(0, owner), own_k], 2)
        values = torch.cat([v.index_select(0, owner), own_v], 2)
        seen = F.scaled_dot_product_attention(q, k, v, prompts_see).transpose(1, 2).flatten(2)
        own = F.scaled_dot_product_attention(own_q, keys, values, tokens_see).transpose(1, 2).flatten(2)
        if number == len(trunk.layers) - 1:  # from here on, of a prompt only its last token
            before, x = x.split([p * s, len(place)])
            x, seen = torch.cat([before.unflatten(0, (p, s))[:, -1], x]), seen[:, -1:]
        x = trunk.rest(x, torch.cat([seen.flatten(0, 1), own.flatten(0, 1).index_select(0, place)]), layer)
    return trunk.norm(x) * core.norm.weight, after


def states_before(
    core: Any, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor, wanted: Tensor | None, owner: Tensor | None
) -> Tensor:
    """Return the states in which tokens [P, G, T] are chosen, [P, G, T, H]; where `wanted` is false, any states.

    wanted: [P, G, T], None for all. owner: the prompt of each first index of `tokens`, None for itself.
    """
    rows, kept, owner = _rows(tokens, wanted, owner)
    states, after = _read_once(core, prompt_ids, prompt_mask, rows[:, :-1], kept[:, 1:], owner)
    return _at(states, torch.cat([owner.unsqueeze(1), after], 1), tokens.shape)


def states_after(
    core: Any, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor, wanted: Tensor | None, owner: Tensor | None
) -> Tensor:
    """Return the states after tokens [P, G, T] have been read, [P, G, T, H]; the rest as in `states_before`."""
    return _at(*_read_once(core, prompt_ids, prompt_mask, *_rows(tokens, wanted, owner)), tokens.shape)


def _rows(tokens: Tensor, wanted: Tensor | None, owner: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return one row a response: its tokens [N, T], which of them are read, those up to the last wanted one, and its prompt."""
    owner = torch.arange(len(tokens), device=tokens.device) if owner is None else owner
    kept = torch.ones_like(tokens, dtype=torch.bool) if wanted is None else wanted.flip(-1).cumsum(-1).flip(-1) > 0
    return tokens.flatten(0, 1), kept.flatten(0, 1), owner.repeat_interleave(tokens.shape[1])


def _read_once(
    core: Any, prompt_ids: Tensor, prompt_mask: Tensor, tokens: Tensor, kept: Tensor, owner: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what `read` does, with each of several equal responses to a prompt read once; on a GPU, all of them."""
    if tokens.device.type != "cpu":
        return read(core, prompt_ids, prompt_mask, tokens, kept, owner)
    first, again = distinct(torch.cat([owner.unsqueeze(1), tokens.masked_fill(~kept, -1)], 1))
    states, after = read(core, prompt_ids, prompt_mask, tokens[first], kept[first], owner[first])
    return states, after[again]


def distinct(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of different rows among `rows` [N, W], and for each row which of these it is equal to, [N].

    Rows are told apart by a sum of their integers with random weights, in a tenth of the time that sorting whole rows takes.
    """
    weights = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0))
    sums, again = (rows * weights).sum(1).unique(return_inverse=True)
    first = torch.zeros_like(sums).index_copy_(0, again, torch.arange(len(rows)))
    if not torch.equal(rows[first][again], rows):  # two sums met by chance
        first, again = torch.arange(len(rows)), torch.arange(len(rows))
    return first, again


def _at(states: Tensor, index: Tensor, shape: torch.Size) -> Tensor:
    return states.index_select(0, index.flatten()).unflatten(0, shape)
