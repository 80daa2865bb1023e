"""Policies: tiny transformers built from a config, shipped warm starts, and any causal language model by path or name."""

from __future__ import annotations

import copy
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from small_models import adapters
from small_models.checks import check_number, check_seed, shown
from small_models.files import as_json, check_regular, check_text, read_json, reason, said
from small_models.tasks import TASKS
from small_models.tokenizer import build_tokenizer

CHECKPOINTS = Path(__file__).parent / "checkpoints"
DEVICES = ("auto", "cpu", "cuda")
SMALL = 5_000_000  # parameters; below this, threads cost more than they give
EXPERTS_A_TOKEN = 2  # as in Mixtral
MOST_LAYERS = 1000  # the deepest published language models have about 130
MOST_HEADER = 100_000_000  # bytes, safetensors' own limit
WIDEST, LARGEST = 65_536, 1_000_000_000  # width and parameters that are built


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
        """Id of the end-of-sequence token, as it is written: the tokenizer's."""
        return int(self.tokenizer.eos_token_id)

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids of all tokens that end a response: the tokenizer's, and those of the model's configs (Llama 3 lists three)."""
        configs = self.model.config, getattr(self.model, "generation_config", None)
        lists = [getattr(config, "eos_token_id", None) for config in configs]
        more = [ids if isinstance(ids, list) else [ids] for ids in lists if ids is not None]
        return frozenset((self.end_id, *(int(token) for ids in more for token in ids)))

    @property
    def pad_id(self) -> int:
        """Id that fills padding; models without one use their end-of-sequence id, which the masks tell apart."""
        pad = self.tokenizer.pad_token_id
        return self.end_id if pad is None else int(pad)

    def frozen_copy(self) -> Policy:
        """Return a copy with weights of its own that no gradient reaches (a reference policy).

        Raises ValueError for adapters that could not be saved, before a run begins with them.
        """
        adapters.has_adapter(self.model)
        model = copy.deepcopy(self.model).eval()
        model.requires_grad_(False)
        return Policy(model, self.tokenizer, self.source)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights (safetensors), config and tokenizer into `folder`, each file whole or not at all.

        Of a LoRA policy that is its base; the adapter stands beside it, in adapter/.
        """
        folder = Path(folder)
        base = adapters.without_adapter(self.model)
        shutil.rmtree(folder / adapters.FOLDER, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as temporary, _no_progress_bars():
            base.save_pretrained(temporary)
            self.tokenizer.save_pretrained(temporary)
            if base is not self.model:
                self.model.save_pretrained(Path(temporary) / adapters.FOLDER)
            for file in Path(temporary).iterdir():
                os.replace(file, folder / file.name)


def choose_device(device: str = "auto") -> torch.device:
    """Return the torch device that `auto`, `cpu` or `cuda` means here.

    Raises ValueError for another name, and for `cuda` where PyTorch sees no GPU.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}; got {shown(device)}")
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
def ready_for_gradients(model: PreTrainedModel) -> Iterator[None]:
    """Within it, the model is without dropout, and layers whose gradient checkpointing is on keep no activations.

    They are computed again when the gradients are. transformers does so in training mode alone, which brings dropout.
    Raises ValueError for a model with gradient checkpointing whose layers cannot do it.
    """
    modules = list(model.modules())
    if any(module.training for module in modules):
        model.eval()
    asked = [module for module in modules if vars(module).get("gradient_checkpointing")]
    layers = [module for module in asked if isinstance(module, GradientCheckpointingLayer)]
    if not torch.is_grad_enabled():
        layers = []
    elif asked and not layers:
        raise ValueError(
            f"policy: gradient checkpointing is on, but the layers of {type(model).__name__} would keep their activations; "
            "turn it off with model.gradient_checkpointing_disable()"
        )

    def again(layer: GradientCheckpointingLayer, forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: layer._gradient_checkpointing_func(partial(forward, **named), *args)

    for layer in layers:
        layer.forward = again(layer, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


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
    Raises ValueError for a number out of its range, when `hidden_size` is not a multiple of 2 × `num_heads`, and for more
    than 10⁹ parameters.
    """
    for name, value in (("hidden_size", hidden_size), ("num_heads", num_heads)):
        check_number(name, value, lambda n: 1 <= n <= WIDEST, f"at least 1 and at most {WIDEST}", whole=True)
    check_number(
        "num_layers", num_layers, lambda n: 1 <= n <= MOST_LAYERS, f"at least 1 and at most {MOST_LAYERS}", whole=True
    )
    words = "at least 2, a token of a prompt and one of a response"
    check_number("max_length", max_length, lambda n: 2 <= n < 2**31, words, whole=True)
    words = f"0 (none) or at least {EXPERTS_A_TOKEN + 1}, so that there is a choice"
    check_number("experts", experts, lambda n: n == 0 or n > EXPERTS_A_TOKEN, words, whole=True)
    check_seed(seed)
    where = choose_device(device)
    if hidden_size % (2 * num_heads):
        raise ValueError(f"hidden_size must be a multiple of 2 × num_heads = {2 * num_heads}; got {hidden_size}")
    tokenizer = build_tokenizer()
    of_mlp = experts * (3 * hidden_size + 1) if experts else 12 * hidden_size
    size = hidden_size * (2 * len(tokenizer) + 1 + num_layers * (4 * hidden_size + of_mlp + 2))
    if size > LARGEST:
        raise ValueError(
            f"hidden_size, num_layers and experts would make a policy of {size:,} parameters; at most {LARGEST:,} are built here"
        )
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
    model = settle(model.float(), where)
    layers = f"{num_layers} layers of {experts} experts" if experts else f"{num_layers} layers"
    return Policy(model, tokenizer, f"built: hidden {hidden_size} × {layers}, seed {seed}")


def check_folder(folder: Path) -> None:
    """Refuse a model's folder that could not be read to an end, before anything is built: devices, endless stacks of layers.

    A config.json may ask for no more layers than its safetensors files hold, and for MOST_LAYERS at most; wrong sizes of another
    kind are found, at no cost, when the weights do not fit. Raises ValueError.
    """
    for file in folder.iterdir():
        if file.exists():
            check_regular(file, folders=True)
    if not (folder / "config.json").is_file():
        return
    asked, layers = max(_layers_asked(read_json(folder / "config.json", dict)), default=0), 0
    for weights in folder.glob("*.safetensors"):
        with weights.open("rb") as header:
            length = int.from_bytes(header.read(8), "little")
            head = header.read(min(length, MOST_HEADER))
        if len(head) < length:
            continue  # it is cut short, which reading it says
        names = re.findall(rb"[\".](?:layers|h|blocks)\.(\d{1,9})\.", head)
        layers = max([layers, *(1 + int(name) for name in names)])
    if asked > min(layers or MOST_LAYERS, MOST_LAYERS):
        holds = f"its weights hold {layers}" if 0 < layers < asked else f"at most {MOST_LAYERS} are loaded"
        raise ValueError(f"{said(folder / 'config.json')} asks for {as_json(asked)} layers, and {holds}")


def _layers_asked(config: dict[str, Any]) -> Iterator[int]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _layers_asked(value)
        elif name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers") and isinstance(value, int):
            yield value


def shipped() -> list[str]:
    """Return the names of the warm-started policies that come with the package."""
    return sorted(folder.name for folder in CHECKPOINTS.iterdir() if (folder / "config.json").is_file())


def load_policy(source: str | os.PathLike[str], *, device: str = "auto") -> Policy:
    """Load a policy in float32 from a folder, by a shipped name (`shipped()`), or by a hub name.

    A shipped name wins over a folder of that name, which is written `./chain`.

    A folder that `save` wrote of a LoRA policy gives that policy again. Only safetensors weights are read and no code from
    the checkpoint is run. Raises ValueError, in one sentence, when there is nothing at `source`, when it is damaged, or when
    its tokenizer has no end-of-sequence token.
    """
    where = choose_device(device)
    if not isinstance(source, (str, os.PathLike)) or not str(source) or "\0" in str(source):
        raise ValueError(
            f"policy must be a folder, a shipped name ({', '.join(shipped())}) or a hub name; got {shown(source)}"
        )
    folder = CHECKPOINTS / str(source) if str(source) in shipped() else Path(source)
    try:
        here = folder.is_dir()
    except OSError:  # a name that is too long for a path
        here = False
    name = str(folder) if here else str(source)
    if here and (folder / adapters.CONFIG).exists():
        raise ValueError(
            f"policy: {name} is a LoRA adapter without its base; load the base, put the adapter on it with peft, and give "
            "Policy(model, tokenizer, name) to train"
        )
    if here:
        check_folder(folder)
    elif name in (task.name for task in TASKS):  # its task's name, which no hub needs to be asked for
        raise ValueError(
            f"policy: the task {name} has no warm start here; make one by python -m small_models.warm_start {name}, or give "
            "another policy"
        )
    try:
        with _no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(
                name, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            check_text(tokenizer.init_kwargs, model.config.to_dict())  # else the first save would fail
            tokenizer.clean_up_tokenization_spaces = False  # what is graded is what was sampled (Llama 3 asks for it)
    except Exception as error:  # transformers, safetensors and the hub client raise unrelated types
        if here:
            raise ValueError(f"policy: the checkpoint in {name} cannot be read ({reason(error)})") from error
        raise ValueError(
            f"policy: {shown(name)} is no folder here, no shipped policy ({', '.join(shipped())}), and no model that the hub "
            f"client could load ({reason(error)})"
        ) from error
    adapters.has_adapter(model)
    if (folder / adapters.FOLDER).is_dir():
        model = adapters.read_adapter(model, folder / adapters.FOLDER)
    if not all(isinstance(layer, DynamicLayer) for layer in DynamicCache(config=model.config).layers):
        raise ValueError(
            f"policy: {name} keeps more than keys and values of its tokens, which sampling here cannot share in a group"
        )
    if tokenizer.eos_token_id is None:
        raise ValueError(f"policy: the tokenizer of {name} has no end-of-sequence token, so no response could end")
    return Policy(settle(model, where), tokenizer, str(source))
