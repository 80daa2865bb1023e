"""The files of the shipped dense policies, read and written without transformers, whose import takes longer than a first step.

In: a folder. Out: a `Decoder` and a `ShippedTokenizer`, or None for any other model, which transformers then reads. All
shipped policies but chain-experts have the config and the tokenizer of one of `KINDS`. Begin with `read`.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from small_models.decoder import Decoder
from small_models.precision import is_autocast
from small_models.tokenizer import ShippedTokenizer

CHECKPOINTS = Path(__file__).parent / "checkpoints"
KINDS = (CHECKPOINTS / "chain", CHECKPOINTS / "sentences")  # of characters, and of words
MODEL_FILES, TOKENIZER_FILES = ("config.json", "generation_config.json"), ("tokenizer.json", "tokenizer_config.json")
FILES = MODEL_FILES + TOKENIZER_FILES
WEIGHTS = "model.safetensors"
ORIGIN = {"is_local", "local_files_only"}  # transformers notes in tokenizer_config.json from where it read it
SHAPE = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "hidden_act", "attention_bias", "mlp_bias", "rms_norm_eps", "rope_parameters",
)  # fmt: skip


def build(kind: Path) -> Decoder:
    """Return a decoder of this kind's shape, its parameters named and ordered as in transformers, with values to be replaced."""
    config = SimpleNamespace(**_shipped_config(kind))
    width, wide, size = config.hidden_size, config.intermediate_size, config.vocab_size

    def linear(**sizes: tuple[int, int]) -> nn.Module:
        return nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in sizes.items()})

    def layer() -> nn.Module:
        attention = linear(**dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (width, width)))
        mlp = linear(gate_proj=(width, wide), up_proj=(width, wide), down_proj=(wide, width))
        norms = {name: nn.RMSNorm(width) for name in ("input_layernorm", "post_attention_layernorm")}
        return nn.ModuleDict({"self_attn": attention, "mlp": mlp, **norms})

    layers = nn.ModuleList(layer() for _ in range(config.num_hidden_layers))
    table = nn.Embedding(size, width, config.pad_token_id)
    trunk = nn.ModuleDict({"embed_tokens": table, "layers": layers, "norm": nn.RMSNorm(width)})
    return Decoder(config, trunk, nn.Linear(width, size, bias=False))


def read(folder: Path, device: torch.device) -> tuple[Decoder, ShippedTokenizer] | None:
    """Return the model in float32 and the tokenizer that stand in this folder, None where they are others, or damaged."""
    try:
        texts = [_read(folder / name) for name in FILES]
        kind = next((kind for kind in KINDS if texts == [_read(kind / name) for name in FILES]), None)
        if kind is None:
            return None
        with torch.random.fork_rng(devices=[]):  # on meta its first numbers would cost the import of torch's compiler
            model = build(kind)
        tensors = load_file(folder / WEIGHTS)
        copies = {name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}  # the file may change
        model.load_state_dict(copies, assign=True)
    except Exception:  # what is wrong, transformers says
        return None
    return model.eval().to(device), ShippedTokenizer(kind)


def decoder_of(trunk: Any) -> Decoder | None:
    """Return a decoder, without a head, on the parameters of transformers' trunk; None unless it is a shipped policy's.

    None also where activations are to be recomputed, and in bfloat16 or under autocast, which a decoder does not know.
    """
    shapes = [{key: _shipped_config(kind)[key] for key in SHAPE} for kind in KINDS]
    is_known = type(trunk).__name__ == "LlamaModel" and {key: getattr(trunk.config, key) for key in SHAPE} in shapes
    is_flagged = any(getattr(module, "gradient_checkpointing", False) for module in trunk.modules())
    is_precise = trunk.dtype in (torch.float32, torch.float64) and not is_autocast(trunk.device)
    return Decoder(trunk.config, trunk, None) if is_known and is_precise and not is_flagged else None


def kind_of(model: Decoder) -> Path:
    """Return the shipped folder whose config this model has."""
    return next(kind for kind in KINDS if _shipped_config(kind)["vocab_size"] == model.config.vocab_size)


def save(model: Decoder, folder: Path) -> None:
    """Write the model's files as transformers would."""
    for name in MODEL_FILES:
        shutil.copyfile(kind_of(model) / name, folder / name)
    save_file(model.state_dict(), folder / WEIGHTS, metadata={"format": "pt"})


def save_tokenizer(tokenizer: ShippedTokenizer, folder: Path) -> None:
    """Write the tokenizer's files as transformers would."""
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer.folder / name, folder / name)


@cache
def _shipped_config(kind: Path) -> dict[str, Any]:
    return _read(kind / "config.json")


def _read(file: Path) -> dict[str, Any]:
    """Return a JSON file without ORIGIN."""
    return {key: value for key, value in json.loads(file.read_text(encoding="utf-8")).items() if key not in ORIGIN}
