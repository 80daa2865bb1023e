"""The files of the shipped dense policies without transformers, whose import takes longer than all else before a first step.

`read` opens a folder that holds such a policy: its texts say what those of the shipped ones say, and its weights fit. Everything
else is left to transformers, and so is this once it is asked for (`Policy.model`, `Policy.tokenizer`).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from huggingface_hub.constants import is_offline_mode
from safetensors.torch import load_file, save_file
from torch import nn

from small_models.decoder import Decoder
from small_models.tokenizer import CharacterTokenizer

CHECKPOINTS = Path(__file__).parent / "checkpoints"
KIND = CHECKPOINTS / "chain"  # all but chain-experts are of its shape and its vocabulary
OF_MODEL, OF_TOKENIZER = ("config.json", "generation_config.json"), ("tokenizer.json", "tokenizer_config.json")
WEIGHTS = "model.safetensors"
BESIDE = {
    "made.json",
    "training.safetensors",
    "training.json",
}  # what else stands in a policy's folder, and says nothing of it
WHERE = {"is_local", "local_files_only"}  # transformers notes in tokenizer_config.json from where it read it


def build() -> Decoder:
    """Return a decoder of their shape, its parameters in transformers' order, and not yet theirs."""
    config = SimpleNamespace(**json.loads((KIND / "config.json").read_text(encoding="utf-8")))
    width, wide, size = config.hidden_size, config.intermediate_size, config.vocab_size

    def linear(**sizes: tuple[int, int]) -> nn.Module:
        return nn.ModuleDict({name: nn.Linear(*of, bias=False) for name, of in sizes.items()})

    def layer() -> nn.Module:
        attention = linear(**dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (width, width)))
        mlp = linear(gate_proj=(width, wide), up_proj=(width, wide), down_proj=(wide, width))
        norms = {name: nn.RMSNorm(width) for name in ("input_layernorm", "post_attention_layernorm")}
        return nn.ModuleDict({"self_attn": attention, "mlp": mlp, **norms})

    layers = nn.ModuleList(layer() for _ in range(config.num_hidden_layers))
    table = nn.Embedding(size, width, config.pad_token_id)
    trunk = nn.ModuleDict({"embed_tokens": table, "layers": layers, "norm": nn.RMSNorm(width)})
    return Decoder(config, trunk, nn.Linear(width, size, bias=False))


def read(folder: Path, device: torch.device) -> tuple[Decoder, CharacterTokenizer] | None:
    """Return the model in float32 and the tokenizer that stand in this folder, None where they are others, or damaged."""
    try:
        names = {file.name for file in folder.iterdir()}
        texts = (*OF_MODEL, *OF_TOKENIZER)
        if names - BESIDE != {*texts, WEIGHTS} or any(_said(folder / name) != _said(KIND / name) for name in texts):
            return None
        tensors = load_file(folder / WEIGHTS)
    except Exception:  # what is wrong, transformers says
        return None
    with torch.random.fork_rng(devices=[]):  # on meta its first numbers would cost the import of torch's compiler
        model = build()
    there = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    if there != {name: (tensor.shape, torch.float32) for name, tensor in model.state_dict().items()}:
        return None
    model.load_state_dict(
        {name: tensor.clone() for name, tensor in tensors.items()}, assign=True
    )  # the file may change
    return model.eval().to(device), CharacterTokenizer(KIND / "tokenizer.json")


def save(model: Decoder, folder: Path) -> None:
    """Write the model's files as transformers would, byte for byte."""
    for name in OF_MODEL:
        shutil.copyfile(KIND / name, folder / name)
    save_file(model.state_dict(), folder / WEIGHTS, metadata={"format": "pt"})


def save_tokenizer(folder: Path) -> None:
    """Write the tokenizer's files as transformers would, byte for byte."""
    shutil.copyfile(KIND / "tokenizer.json", folder / "tokenizer.json")
    said = _said(KIND / "tokenizer_config.json") | {"is_local": True, "local_files_only": is_offline_mode()}
    config = json.dumps(said, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")


def _said(file: Path) -> dict[str, Any]:
    """Return what a JSON file says, but for WHERE."""
    said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {name: value for name, value in said.items() if name not in WHERE}
