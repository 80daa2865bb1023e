"""The shipped dense policies without transformers, whose import takes longer than all else before a first step of training.

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


class Llama(nn.Module):
    """The parameters of transformers' LlamaForCausalLM, under its names and in its order, for `small_models.plain` to read."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(**json.loads((KIND / "config.json").read_text(encoding="utf-8")))
        self.model = LlamaTrunk(self.config)
        self.lm_head = nn.Linear(self.config.hidden_size, self.config.vocab_size, bias=False)

    @property
    def base_model(self) -> LlamaTrunk:
        return self.model

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def save(self, folder: Path) -> None:
        """Write the files that transformers would, byte for byte."""
        for name in OF_MODEL:
            shutil.copyfile(KIND / name, folder / name)
        save_file(self.state_dict(), folder / WEIGHTS, metadata={"format": "pt"})


class LlamaTrunk(nn.Module):
    """What is below the head of a `Llama`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size)
        self.rotary_emb = nn.Module()
        exponents = torch.arange(0, config.head_dim, 2).float() / config.head_dim
        frequencies = 1.0 / config.rope_parameters["rope_theta"] ** exponents
        self.rotary_emb.register_buffer("inv_freq", frequencies, persistent=False)

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_tokens.weight.dtype


def _layer(config: Any) -> nn.ModuleDict:
    width, wide = config.hidden_size, config.intermediate_size
    attention = {name: nn.Linear(width, width, bias=False) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    mlp = {name: nn.Linear(width, wide, bias=False) for name in ("gate_proj", "up_proj")}
    return nn.ModuleDict(
        {
            "self_attn": nn.ModuleDict(attention),
            "mlp": nn.ModuleDict({**mlp, "down_proj": nn.Linear(wide, width, bias=False)}),
            "input_layernorm": nn.RMSNorm(width),
            "post_attention_layernorm": nn.RMSNorm(width),
        }
    )


def read(folder: Path, device: torch.device) -> tuple[Llama, CharacterTokenizer] | None:
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
        model = Llama()
    there = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
    if there != {name: (tensor.shape, torch.float32) for name, tensor in model.state_dict().items()}:
        return None
    model.load_state_dict(
        {name: tensor.clone() for name, tensor in tensors.items()}, assign=True
    )  # the file may change
    return model.eval().to(device), CharacterTokenizer(KIND / "tokenizer.json")


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
