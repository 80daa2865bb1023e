"""Policies: tiny transformers built from a config, shipped warm starts, and any causal language model by path or name."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    MixtralConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.utils import logging

from small_models.tokenizer import build_tokenizer

CHECKPOINTS = Path(__file__).parent / "checkpoints"
DEVICES = ("auto", "cpu", "cuda")
SMALL = 5_000_000  # parameters; below this, threads cost more than they give
EXPERTS_A_TOKEN = 2  # as in Mixtral


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer.

    `source` says where the weights came from: a shipped name, a path, a hub name, or how they were built.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    source: str

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def end_id(self) -> int:
        """Id of the end-of-sequence token."""
        return int(self.tokenizer.eos_token_id)

    @property
    def pad_id(self) -> int:
        """Id that fills padding; models without one use their end-of-sequence id, which the masks tell apart."""
        pad = self.tokenizer.pad_token_id
        return self.end_id if pad is None else int(pad)

    def frozen_copy(self) -> Policy:
        """Return a copy with weights of its own that no gradient reaches (a reference policy)."""
        model = copy.deepcopy(self.model).eval()
        model.requires_grad_(False)
        return Policy(model, self.tokenizer, self.source)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights (safetensors), config and tokenizer into `folder`, each file whole or not at all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as temporary, _no_progress_bars():
            self.model.save_pretrained(temporary)
            self.tokenizer.save_pretrained(temporary)
            for file in Path(temporary).iterdir():
                os.replace(file, folder / file.name)


def choose_device(device: str = "auto") -> torch.device:
    """Return the torch device that `auto`, `cpu` or `cuda` means here.

    Raises ValueError for another name, and for `cuda` where PyTorch sees no GPU.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}; got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but PyTorch sees no CUDA device here; use 'cpu' or 'auto'")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def settle(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Move a model to its device, without dropout, and say how its experts are to be computed there.

    A checkpoint does not say, and the ways differ in speed and in the last digits. On a CPU it is one expert after the other,
    the fastest; elsewhere the library's own choice stands.
    """
    model = model.eval().to(device)
    if device.type == "cpu":
        model.set_experts_implementation("eager")
    return model


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def one_thread_if_small(policy: Policy) -> Iterator[None]:
    """Run a small policy's CPU work on one thread, and give the process its thread count back afterwards.

    At this size a second thread gains 1.5× on an idle machine and loses up to 3× on a busy one.
    """
    before = torch.get_num_threads()
    if before == 1 or policy.device.type != "cpu" or policy.num_parameters > SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build_policy(
    *,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    experts: int = 0,
    max_length: int = 64,
    seed: int = 0,
    device: str = "auto",
) -> Policy:
    """Return an untrained Llama-shaped policy over the character vocabulary (137k parameters by default).

    With `experts` it is Mixtral-shaped: each layer has that many, a quarter as wide as the dense layer, of which every token
    is given two (8: 237k parameters, 89k of them in use for a token); no loss keeps their loads equal.
    `max_length` is the longest prompt plus response, in tokens. The same seed gives the same weights on every device.
    Raises ValueError when `hidden_size` is not a multiple of 2 × `num_heads`, or `experts` neither 0 nor at least 3.
    """
    if hidden_size % (2 * num_heads):
        raise ValueError(f"hidden_size must be a multiple of 2 × num_heads = {2 * num_heads}; got {hidden_size}")
    if experts and experts <= EXPERTS_A_TOKEN:
        raise ValueError(
            f"experts must be 0 (none) or at least {EXPERTS_A_TOKEN + 1}, so that there is a choice; got {experts}"
        )
    tokenizer = build_tokenizer()
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_heads,
        "max_position_embeddings": max_length,
        "initializer_range": 0.06,  # warms up in a third of the updates that the usual 0.02 takes at this width
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "tie_word_embeddings": False,
    }
    dense = LlamaConfig(**shape, intermediate_size=4 * hidden_size)
    routed = MixtralConfig(
        **shape,
        intermediate_size=hidden_size,
        num_local_experts=experts,
        num_experts_per_tok=EXPERTS_A_TOKEN,
        router_aux_loss_coef=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(routed if experts else dense)
    model = settle(model.float(), choose_device(device))
    layers = f"{num_layers} layers of {experts} experts" if experts else f"{num_layers} layers"
    return Policy(model, tokenizer, f"built: hidden {hidden_size} × {layers}, seed {seed}")


def shipped() -> list[str]:
    """Return the names of the warm-started policies that come with the package."""
    return sorted(folder.name for folder in CHECKPOINTS.iterdir() if (folder / "config.json").is_file())


def load_policy(source: str | os.PathLike[str], *, device: str = "auto") -> Policy:
    """Load a policy in float32 from a folder, by a shipped name (`shipped()`), or by a hub name.

    A shipped name wins over a folder of that name, which is written `./chain`.

    Only safetensors weights are read and no code from the checkpoint is run. Raises ValueError, in one sentence, when
    there is nothing at `source`, when it is damaged, or when its tokenizer has no end-of-sequence token.
    """
    where = choose_device(device)
    folder = CHECKPOINTS / str(source) if str(source) in shipped() else Path(source)
    name = str(folder) if folder.is_dir() else str(source)
    try:
        with _no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(
                name, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # transformers, safetensors and the hub client raise unrelated types
        reason = " ".join(str(error).split()).split(". ")[0][:200]
        if folder.is_dir():
            raise ValueError(f"policy: the checkpoint in {name} cannot be read ({reason})") from error
        raise ValueError(
            f"policy: {name!r} is no folder here, no shipped policy ({', '.join(shipped())}), and no model that the hub "
            f"client could load ({reason})"
        ) from error
    if not all(isinstance(layer, DynamicLayer) for layer in DynamicCache(config=model.config).layers):
        raise ValueError(
            f"policy: {name} keeps more than keys and values of its tokens, which sampling here cannot share in a group"
        )
    if tokenizer.eos_token_id is None:
        raise ValueError(f"policy: the tokenizer of {name} has no end-of-sequence token, so no response could end")
    return Policy(settle(model, where), tokenizer, str(source))
