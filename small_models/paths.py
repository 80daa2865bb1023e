"""Which of two ways a model is computed: by plain tensors (`small_models.plain`), where that is known to be the same, or not.

transformers stays the truth: a model whose modules are not exactly those known here, or that has hooks, keeps its own forward
(`fits`), and a run can ask for that (`computing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import nn

from small_models.precision import is_autocast

Path = Literal["plain", "transformers"]
PARTS = ["Model", "ForCausalLM", "DecoderLayer", "Attention", "RMSNorm", "RotaryEmbedding"]
LLAMA, MIXTRAL = [*PARTS, "MLP"], [*PARTS, "SparseMoeBlock", "TopKRouter", "Experts"]
KNOWN = {
    *(f"Llama{part}" for part in LLAMA),
    *(f"Mixtral{part}" for part in MIXTRAL),
    *("Embedding", "Linear", "ModuleList", "SiLUActivation", "SiLU"),
    *("Llama", "LlamaTrunk", "RMSNorm", "ModuleDict", "Module"),  # small_models.llama
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
