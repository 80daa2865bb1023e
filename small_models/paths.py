"""Which of two ways a model is computed: by our own decoder (`small_models.decoder`), where that is known to be the same, or not.

transformers stays the truth: a model whose modules are not exactly those known here, or that has hooks, keeps its own forward
(`fits`, `small_models.any_model`), and a run can ask for that (`computing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn

from small_models import host
from small_models.decoder import Decoder
from small_models.precision import is_autocast

Path = Literal["plain", "transformers"]
PARTS = ["Model", "ForCausalLM", "DecoderLayer", "Attention", "RMSNorm", "RotaryEmbedding"]
LLAMA, MIXTRAL = [*PARTS, "MLP"], [*PARTS, "SparseMoeBlock", "TopKRouter", "Experts"]
KNOWN = {
    *(f"Llama{part}" for part in LLAMA),
    *(f"Mixtral{part}" for part in MIXTRAL),
    *("Embedding", "Linear", "ModuleList", "SiLUActivation", "SiLU"),
    *("Decoder", "RMSNorm", "ModuleDict"),  # small_models.shipped_files
}
LARGEST = 100_000_000  # parameters; the joined matrices are a copy of them

_path: ContextVar[Path] = ContextVar("path", default="plain")


@contextmanager
def computing(path: Path) -> Iterator[None]:
    """Within it, models take this path: "plain" where they fit, or "transformers" always."""
    token = _path.set(path)
    try:
        yield
    finally:
        _path.reset(token)


def path_of(model: nn.Module) -> Path:
    """Return the path that the model takes now."""
    return "plain" if fits(model) else "transformers"


def fits(model: nn.Module) -> bool:
    """Return whether a model is computed here: it can be, and `computing` does not ask for another path.

    It is a Llama or Mixtral of at most LARGEST parameters in float32 or float64, with as many heads for keys as for queries, the
    default rotation, no biases, no sliding window, no gradient checkpointing, no autocast, no module of another kind (an
    adapter's, a quantised one), and no hook or forward of somebody else's, which would not be called here.
    """
    if _path.get() != "plain" or type(model).__name__ not in KNOWN or is_autocast(model.device):  # type: ignore[arg-type]
        return False
    config: Any = model.config
    width, layers, experts = config.hidden_size, config.num_hidden_layers, getattr(config, "num_local_experts", 1)
    size = width * (2 * config.vocab_size + layers * (4 * width + 3 * experts * config.intermediate_size))
    return (
        size <= LARGEST
        and model.dtype in (torch.float32, torch.float64)
        and config.num_key_value_heads == config.num_attention_heads
        and config.head_dim in (None, width // config.num_attention_heads)
        and (config.rope_parameters or {}).get("rope_type", "default") == "default"
        and config.hidden_act == "silu"
        and not any(getattr(config, name, None) for name in ("attention_bias", "mlp_bias", "sliding_window"))
        and not any(map(_is_strange, model.modules()))
    )


def _is_strange(module: nn.Module) -> bool:
    own = vars(module)
    listened = (
        own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]
    )
    return type(module).__name__ not in KNOWN or bool(listened or own.get("gradient_checkpointing") or "forward" in own)


class OurDecoder:
    """A decoder that reads groups of responses: each prompt once, equal responses once, and no token after the last wanted one.

    Of the same methods as `AnyModel`, which says what each is given.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.draw = decoder, decoder.draw

    def logits(self, *place: Any) -> Tensor:
        return self.logits_and_states(*place)[0]

    def logits_and_states(self, *place: Any) -> tuple[Tensor, Tensor]:
        states = self.states(*place)
        return self.decoder.lm_head(states), states

    def states(
        self,
        prompts: Tensor,
        there: Tensor,
        tokens: Tensor,
        wanted: Tensor | None = None,
        owner: Tensor | None = None,
        *,
        after: bool = False,
    ) -> Tensor:
        """Return the state before each token, [P, G, T, H], or after it; where `wanted` is false, any states."""
        owner = torch.arange(len(tokens), device=tokens.device) if owner is None else owner
        owner, rows = owner.repeat_interleave(tokens.shape[1]), tokens.flatten(0, 1)
        kept = torch.ones_like(rows, dtype=torch.bool)
        if wanted is not None:  # what is read are the tokens up to the last wanted one
            kept = wanted.flatten(0, 1).flip(-1).cumsum(-1).flip(-1) > 0
        if not after:
            rows, kept = rows[:, :-1], kept[:, 1:]
        if host.waits(tokens.device):
            left, place = self.decoder.read(prompts, there, rows, kept, owner)
        else:
            first, again = distinct(torch.cat([owner.unsqueeze(1), rows.masked_fill(~kept, -1)], 1))
            left, place = self.decoder.read(prompts, there, rows[first], kept[first], owner[first])
            place = place[again]
        place = place if after else torch.cat([owner.unsqueeze(1), place], 1)
        return self.decoder.final(left).index_select(0, place.flatten()).unflatten(0, tokens.shape)


def distinct(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of different rows among `rows` [N, W], and for each row which of these it is equal to, [N].

    Rows are told apart by a sum of their integers with random weights, in a tenth of the time that sorting whole rows takes.
    """
    weights = torch.randint(2**62, (rows.shape[1],), generator=torch.Generator().manual_seed(0))
    sums, again = (rows * weights).sum(1).unique(return_inverse=True)
    first = torch.zeros_like(sums).index_copy_(0, again, torch.arange(len(rows)))
    if not torch.equal(rows[first][again], rows):  # two sums met by chance
        first = again = torch.arange(len(rows))
    return first, again


def our_decoder(model: Any) -> OurDecoder | None:
    """Return what computes a model here, on its own parameters; None for one that does not fit."""
    if not fits(model):
        return None
    if not isinstance(model, Decoder):
        model = Decoder(model.config, model.base_model, getattr(model, "lm_head", None))
    return OurDecoder(model)
