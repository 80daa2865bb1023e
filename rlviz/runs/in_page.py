"""Training in the page: the shipped transformer and every group algorithm as programs that `page/train.js` runs.

    transformer(decoder)         → {"prefill", "decode", "update"}, for all algorithms and sizes; one a vocabulary
    trace_rule(algorithm)        → {"judge", "objective", …}, of about a kilobyte: what algorithms differ in
    trace_pair_rule(algorithm)   → {"objective", "parameters"}, of an algorithm that learns from pairs, such as DPO

The page reads prompts by `prefill`, samples by `decode`, a token of each response at a time, grades, and asks `judge` for the
advantages. Each update runs `update` in two parts: up to the log-probabilities, and on from the slope of the loss by them, which
`objective` makes between. `python -m rlviz.runs.in_page` traces all anew; a test compares what is shipped with that.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from rlviz.algorithms import ALGORITHMS, DPO, RELATIVES, GroupPolicyGradient, PreferenceOptimization, numbers
from rlviz.algorithms.base import with_tensors
from rlviz.page.script import classic, script
from rlviz.page.tracing import Curve, Program, trace
from rlviz.pictures.parameters import RANGES, range_of
from rlviz.pictures.table import has_groups
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.kl import k3
from rlviz.pieces.preference import response_logp
from rlviz.types import Batch
from small_models.decoder import Decoder
from small_models.host import recording
from small_models.policies import Policy, load_policy
from small_models.shipped_files import KINDS, kind_of
from small_models.tasks import Sentences, sentences

Weights = Mapping[str, Tensor]
Remember = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
NEVER = -1e9  # what attention adds to the score of a token that may not be seen


# --- the transformer ---


def unpacked(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Return parameters by name, views into their flat array."""
    ends = accumulate(map(math.prod, shapes.values()))
    return {
        name: flat[end - math.prod(shape) : end].view(shape)
        for (name, shape), end in zip(shapes.items(), ends, strict=True)
    }


def embedded(table: Tensor, ids: Tensor, pad: int) -> Tensor:
    """Return the rows [..., H] of a table at these tokens; that of the padding gets no gradient, as in transformers."""
    return torch.cat([table[:pad], table[pad : pad + 1].detach(), table[pad + 1 :]])[ids]


def read(decoder: Decoder, w: Weights, ids: Tensor, turns: Tensor, bias: Tensor, remember: Remember) -> Tensor:
    """Return the states [B, L, H] that the head reads, of tokens [B, L], by the decoder's own forward on these parameters.

    turns: cosine and sine of the rotation at each token's place, [2, L, width / 2]. bias: added to the scores of attention,
    [L, keys]. remember(layer, keys, values), [B, heads, L, width] each: returns those that the tokens see.
    """

    def attend(layer: int, x: Tensor, qkv: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        keys, values = remember(layer, k, v)
        scores = q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias
        return x, (scores.softmax(-1) @ values).transpose(1, 2).flatten(2)

    cos, sin = turns
    rotation = torch.stack([cos, sin], -1)
    still = torch.stack([torch.ones_like(cos), torch.zeros_like(sin)], -1)  # values are not rotated
    rope = torch.stack([rotation, rotation, still], 1).unsqueeze(2)
    x = embedded(w["model.embed_tokens.weight"], ids, decoder.config.pad_token_id)
    with recording():  # in operations that a page has, also where the curve is computed rather than traced
        return decoder.norm(functional_call(decoder, dict(w), (x, rope, attend)))


def logits(w: Weights, states: Tensor) -> Tensor:
    """Return the scores of the next token, [N, V] of states [N, H]."""
    return states @ (w["lm_head.weight"] * w["model.norm.weight"]).T


def transformer_curves(decoder: Decoder, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Curve]:
    """Return the three functions of a transformer with these parameters, which are traced into programs.

    P prompts of S tokens, G responses of T tokens to each, B = P · G; L = S + T. weights, m, v: flat. turns: [2, L, width / 2].
    bias: [L, L], 0 where a token may look and `NEVER` elsewhere.
    """

    def prefill(weights: Tensor, turns: Tensor, bias: Tensor, prompts: Tensor) -> dict[str, Tensor]:
        """Read prompts: what the first token is drawn from, and keys and values [layers, P, heads, S, width]."""
        w, size = unpacked(weights, shapes), prompts.shape[1]
        cache = []

        def remember(_: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            cache.append((k, v))
            return k, v

        states = read(decoder, w, prompts, turns[:, :size], bias[:size, :size], remember)
        keys, values = (torch.stack(part) for part in zip(*cache, strict=True))
        return {**_drawn_from(logits(w, states[:, -1])), "keys": keys, "values": values}

    def decode(
        weights: Tensor, turns: Tensor, token: Tensor, keys: Tensor, values: Tensor, at: Tensor, seen: Tensor
    ) -> dict[str, Tensor]:
        """Read a token [B] of each response, at the place where at [L] is 1; keys and values hold 0 there and after it.

        seen: [L], 0 at the places up to this one, `NEVER` after it.
        """
        w = unpacked(weights, shapes)
        here = (turns * at.unsqueeze(-1)).sum(1, keepdim=True)
        cache = []

        def remember(i: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            cache.append((keys[i] + k * at.unsqueeze(-1), values[i] + v * at.unsqueeze(-1)))
            return cache[-1]

        states = read(decoder, w, token.unsqueeze(1), here, seen.unsqueeze(0), remember)
        new_keys, new_values = (torch.stack(part) for part in zip(*cache, strict=True))
        return {**_drawn_from(logits(w, states.squeeze(1))), "keys": new_keys, "values": new_values}

    def update(
        weights: Tensor,
        turns: Tensor,
        bias: Tensor,
        prompts: Tensor,
        tokens: Tensor,
        slope: Tensor,
        entropy_slope: Tensor,
        **optimizer: Tensor,
    ) -> dict[str, Tensor]:
        """Return log-probabilities and entropies of tokens [P, G, T]; then, from the slopes of a loss by them, the next weights.

        optimizer: what `adamw` takes beside weights and gradient.
        """
        w = {name: value.detach().requires_grad_() for name, value in unpacked(weights, shapes).items()}
        (p, s), (g, t) = prompts.shape, tokens.shape[1:]
        cache = []

        def remember(_: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            cache.append([part.unsqueeze(1).expand(-1, g, -1, -1, -1).flatten(0, 1) for part in (k, v)])
            return k, v

        def beside(i: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)

        first = read(decoder, w, prompts, turns[:, :s], bias[:s, :s], remember)[:, -1:]  # a prompt once for its group
        others = read(decoder, w, tokens[..., :-1].flatten(0, 1), turns[:, s : s + t - 1], bias[s:-1, :-1], beside)
        states = torch.cat([first.unsqueeze(1).expand(p, g, 1, -1), others.unflatten(0, (p, g))], 2)
        log_probs = logits(w, states.flatten(0, 2)).log_softmax(-1).view(p, g, t, -1)
        logp = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        total = (slope * logp).sum() + (entropy_slope * entropy).sum()
        gradients = torch.autograd.grad(total, list(w.values()))
        new = adamw(weights, torch.cat([part.flatten() for part in gradients]), **optimizer)
        return {"logp": logp, "entropy": entropy, **new}

    return {"prefill": prefill, "decode": decode, "update": update}


def _drawn_from(scores: Tensor) -> dict[str, Tensor]:
    """Return what a token is drawn from: log-probabilities and probabilities [N, V], and the entropy [N]."""
    log_probs = scores.log_softmax(-1)
    probs = log_probs.exp()
    return {"log_probs": log_probs, "probs": probs, "entropy": -(probs * log_probs).sum(-1)}


def adamw(
    weights: Tensor, g: Tensor, m: Tensor, v: Tensor, lr: Tensor, longest: Tensor, m_share: Tensor, v_share: Tensor
) -> dict[str, Tensor]:
    """Return the gradient's norm, and weights and moments after a step of `rlviz.training.adamw` along the cut gradient.

    longest: to which norm the gradient is cut. m_share, v_share: 1 − βᵗ of the two moments.
    """
    length = (g * g).sum().sqrt()
    g = g * (longest / (length + 1e-6)).clamp(max=1.0)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    new = weights - lr * (m / m_share) / ((v / v_share).sqrt() + 1e-8)
    return {"norm": length, "weights": new, "m": m, "v": v}


def transformer(decoder: Decoder) -> dict[str, Program]:
    """Return the programs of a transformer, for all sizes of prompts, groups and responses."""
    weights = decoder.state_dict()
    # the shapes of parameters in the order in which they stand in one flat array
    shapes = {name: tuple(value.shape) for name, value in weights.items()}
    flat = torch.cat([value.detach().flatten() for value in weights.values()])
    heads, width = decoder.heads, decoder.width
    p, g, s, t = 3, 5, 7, 11  # no two sizes that go together are equal, so that none is taken for another
    size, rows = s + t, 13
    generator = torch.Generator().manual_seed(0)
    turns, bias = torch.rand(2, size, width // 2, generator=generator), torch.zeros(size, size)
    prompts, tokens = torch.randint(2, 40, (p, s)), torch.randint(2, 40, (p, g, t))
    cache = (len(decoder.model.layers), rows, heads, size, width)
    token = {"token": torch.randint(2, 40, (rows,)), "keys": torch.zeros(cache), "values": torch.zeros(cache)}
    moving = {name: torch.rand(p, g, t, generator=generator) for name in ("slope", "entropy_slope")}
    moments = {name: torch.rand(len(flat), generator=generator) for name in "mv"}
    scalars = {name: torch.tensor(0.5) for name in ("lr", "longest", "m_share", "v_share")}
    common = {"weights": flat, "turns": turns}
    examples = {
        "prefill": {**common, "bias": bias, "prompts": prompts},
        "decode": {**common, **token, "at": torch.zeros(size), "seen": torch.zeros(size)},
        "update": {**common, "bias": bias, "prompts": prompts, "tokens": tokens, **moving, **moments, **scalars},
    }
    curves = transformer_curves(decoder, shapes)
    return {name: trace(curve, {}, examples[name], free=True) for name, curve in curves.items()}


# --- the algorithms ---

HISTORY = tuple(f.name for f in fields(PromptHistory))
OFFERED: dict[str, GroupPolicyGradient] = {
    algorithm.name: algorithm
    for algorithm in (*ALGORITHMS, *RELATIVES)
    if isinstance(algorithm, GroupPolicyGradient) and has_groups(algorithm)
}


def piece_parameters(algorithm: GroupPolicyGradient | PreferenceOptimization) -> dict[str, float]:
    """Return the numbers of an algorithm's pieces that the page can change while it trains."""
    return {name: float(value) for name, value in numbers(algorithm).items() if name in RANGES}


def rule_curves(algorithm: GroupPolicyGradient) -> dict[str, Curve]:
    """Return what differs between two algorithms as two functions, which are traced into programs.

    P prompts, G responses, T tokens; of the objective, those of the selected groups alone. What is asked by name and not used
    is no input of the program.
    """

    def judge(
        correct: Tensor,
        well_formed: Tensor,
        truncated: Tensor,
        mask: Tensor,
        old_logp: Tensor,
        ref_logp: Tensor,
        old_entropy: Tensor,
        **others: Tensor,
    ) -> dict[str, Tensor]:
        """Return rewards after shaping, the tokens that the loss sees, A, the history, how often a group is used, and the KL.

        others: the algorithm's own numbers, and the history of these prompts before this visit, `past_visits` and so on.
        """
        now, written = with_tensors(algorithm, others), mask != 0
        rules = {"correct": correct, "well_formed": well_formed}
        rewards = now.shape_rewards(correct, written.sum(-1), truncated=truncated != 0, **rules)
        seen = now.loss_mask(written, truncated != 0)
        known = {"old_logp": old_logp, "ref_logp": ref_logp, "old_entropy": old_entropy, **rules}
        past = {name: others[f"past_{name}"] for name in HISTORY}
        history = PromptHistory(**{**past, "visits": past["visits"].long()})
        advantages, after = now.advantages(rewards, seen, history=history, **known)
        parts = {"rewards": rewards, "seen": seen.double(), "advantages": advantages, "uses": now.uses(correct)}
        if algorithm.needs_reference:
            parts["kl"] = (k3(old_logp, ref_logp) * mask).sum() / mask.sum()
        if not now.asks_for("advantage", "history"):
            return parts
        return parts | {f"past_{name}": getattr(after, name).double() for name in HISTORY}

    def objective(
        logp: Tensor,
        entropy: Tensor,
        old_logp: Tensor,
        advantages: Tensor,
        seen: Tensor,
        ref_logp: Tensor,
        **parameters: Tensor,
    ) -> dict[str, Tensor]:
        """Return the loss, its slopes by log π and by the entropy, and what the page shows of each token."""
        leaves = [leaf.detach().requires_grad_() for leaf in (logp, entropy)]
        batch = Batch(old_logp, advantages, seen != 0, ref_logp, entropy=leaves[1])
        out = with_tensors(algorithm, parameters).loss(leaves[0], batch)
        slope, by_entropy = torch.autograd.grad(out.loss, leaves, allow_unused=True)
        cuts = {"low": out.clipped_low, "high": out.clipped_high, "dual": out.clipped_dual}
        parts = {"loss": out.loss, "slope": slope, "ratio": out.ratio, "lower": out.lower, "upper": out.upper}
        parts |= {name: cut.double() for name, cut in cuts.items()}
        return parts if by_entropy is None else parts | {"entropy_slope": by_entropy}

    return {"judge": judge, "objective": objective}


def trace_rule(algorithm: GroupPolicyGradient) -> dict[str, Any]:
    """Return an algorithm as the page takes it: two programs, for all sizes, and what it asks for."""
    p, g, t = 3, 5, 7  # no two sizes that go together are equal, so that none is taken for another
    chance = torch.Generator().manual_seed(0)
    random = lambda *shape: torch.rand(*shape, generator=chance, dtype=torch.double)  # noqa: E731
    responses = {name: random(p, g).round() for name in ("correct", "well_formed", "truncated")}
    tokens = {name: -random(p, g, t) for name in ("old_logp", "ref_logp", "old_entropy")}
    history = {f"past_{name}": random(p) for name in HISTORY}
    mask = torch.ones(p, g, t, dtype=torch.double)
    examples = {
        "judge": {**responses, "mask": mask, **tokens, **history},
        "objective": {
            **{name: -random(p, g, t) for name in ("logp", "entropy")},
            **{name: tokens[name] for name in ("old_logp", "ref_logp")},
            **{"advantages": random(p, g, t), "seen": mask},
        },
    }
    values, curves = piece_parameters(algorithm), rule_curves(algorithm)
    refusal = ""
    try:
        below_zero = {**examples["judge"], "correct": responses["correct"] - 1}
        curves["judge"](**below_zero, **{name: torch.tensor(value) for name, value in values.items()})
    except ValueError as error:
        refusal = str(error).partition(";")[0]
    programs = {name: trace(curve, values, examples[name], free=True) for name, curve in curves.items()}
    return {
        **programs,
        "parameters": {name: [value, *range_of(name, value)] for name, value in values.items()},
        "needs_reference": algorithm.needs_reference,
        "max_rounds": algorithm.can.max_rounds,
        "min_group_size": algorithm.min_group_size,
        "refuses_below_0": refusal,
    }


def pair_objective(algorithm: PreferenceOptimization) -> Curve:
    """Return what a step on pairs [P, 2, T], chosen before rejected, computes between log π and its slope."""

    def objective(logp: Tensor, ref_logp: Tensor, mask: Tensor, **parameters: Tensor) -> dict[str, Tensor]:
        """Return the loss, its slope by log π, the rewards [P, 2], the mean margin, and the share of pairs in order."""
        leaf, written = logp.detach().requires_grad_(), mask != 0
        chosen, rejected = response_logp(leaf, written).unbind(1)
        lengths = dict(zip(("chosen_lengths", "rejected_lengths"), written.sum(-1).unbind(1), strict=True))
        references = response_logp(ref_logp, written).unbind(1)
        out = with_tensors(algorithm, parameters).loss(chosen, rejected, *references, **lengths)
        (slope,) = torch.autograd.grad(out.loss, leaf)
        parts = {"rewards": torch.stack([out.chosen_reward, out.rejected_reward], 1), "margin": out.margin}
        return {"loss": out.loss, "slope": slope, **parts, "pair_accuracy": out.accuracy}

    return objective


def trace_pair_rule(algorithm: PreferenceOptimization) -> dict[str, Any]:
    """Return an algorithm of pairs as the page takes it: its program, for all sizes, and its numbers."""
    shape, values = (3, 2, 7), piece_parameters(algorithm)
    chance = torch.Generator().manual_seed(0)
    logp, ref_logp = (-torch.rand(shape, generator=chance, dtype=torch.double) for _ in range(2))
    example = {"logp": logp, "ref_logp": ref_logp, "mask": torch.ones(shape, dtype=torch.double)}
    return {
        "objective": trace(pair_objective(algorithm), values, example, free=True),
        "parameters": {name: [value, *range_of(name, value)] for name, value in values.items()},
    }


# --- what is shipped ---

PROGRAMS = Path(__file__).with_name("in_page.json.gz")
# → its task; of the shipped ones those whose answers fit a row
CHECKPOINTS = {name: name.partition("-")[0] for name in ("chain", "chain-rare", "sort", "trip", "sentences")}
PLACES = 32  # of a prompt and its response


def packed(values: Tensor) -> str:
    """Return numbers as base64 of their bytes."""
    return base64.b64encode(values.detach().contiguous().numpy().tobytes()).decode()


def traced() -> dict[str, Any]:
    """Return the programs of the shipped transformers, by vocabulary, and of every algorithm that trains in a page."""
    return {
        "transformers": {kind.name: trace_transformer(load_policy(kind.name)) for kind in KINDS},
        "rules": {name: trace_rule(algorithm) for name, algorithm in OFFERED.items()},
        "pair_rules": {DPO.name: trace_pair_rule(DPO)},
    }


def trace_transformer(policy: Policy) -> dict[str, Any]:
    """Return a shipped transformer as the page takes it: its programs, sizes, and the rotation of each place."""
    decoder = policy.weights
    assert isinstance(decoder, Decoder)
    # cosine and sine of the angles by which queries and keys are turned, [2, places, width / 2]: a page has no complex numbers
    turns = torch.view_as_real(decoder.rope(PLACES))[:, 0, 0].permute(2, 0, 1)
    return {
        "programs": transformer(decoder),
        "parameters": policy.num_parameters,
        "layers": len(decoder.model.layers),
        "heads": decoder.heads,
        "width": decoder.width,
        "places": PLACES,
        "turns": packed(turns),
    }


@cache
def programs() -> dict[str, Any]:
    """Return what `traced` returned when it was shipped."""
    return json.loads(gzip.decompress(PROGRAMS.read_bytes()))


def pack_checkpoint(name: str) -> dict[str, Any]:
    """Return a shipped checkpoint as the page takes it: task, vocabulary, and the weights in one array, of half the bytes.

    In float16 they are as often right: of 2,000 held-out prompts the five differ by at most four.
    """
    decoder, task = load_policy(name).weights, CHECKPOINTS[name]
    assert isinstance(decoder, Decoder)
    weights = packed(torch.cat([value.flatten() for value in decoder.state_dict().values()]).half())
    language = {"language": pack_language()} if task == Sentences.name else {}
    return {"task": task, "weights": weights, "transformer": kind_of(decoder).name, **language}


def pack_language() -> dict[str, Any]:
    """Return the words, the grammar and the prompts of `sentences`, as tasks.js takes them."""
    task = Sentences()
    return {
        "tokens": sentences.TOKENS,
        "classes": sentences.CLASSES,
        "pattern": sentences.SENTENCE.pattern,
        "prompts": sorted(task.all_prompts()),  # their order decides between equal checksums
        "longest": task.max_new_tokens,
        "heldOut": task.held_out_share,
        "shortLength": sentences.SHORT,
        "over": sentences.OVER,
        "groups": sentences.GROUPS,
    }


def opening_message(*checkpoints: str) -> dict[str, Any]:
    """Return the message that opens `page/train.js`, with these checkpoints; others can be added later."""
    kernels = base64.b64encode(script("train").with_name("kernels.wasm").read_bytes()).decode()
    weights = {name: pack_checkpoint(name) for name in checkpoints}
    return {"do": "open", **programs(), "checkpoints": weights, "kernels": kernels}


def worker_script() -> str:
    """Return the script of the worker."""
    return classic("run", "tasks", "planned", "train")


if __name__ == "__main__":
    text = json.dumps(traced(), separators=(",", ":"), allow_nan=False)
    PROGRAMS.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
