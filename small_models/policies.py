"""Policies: a causal language model with its tokenizer, built from a config, shipped, or loaded by path or name.

In: a name, a folder, or sizes. Out: a `Policy`, which everything else samples from, trains and saves. A shipped policy is
computed by `small_models.decoder`, every other one by transformers' own modules (`small_models.any_model`). Begin with `Policy`.
"""

from __future__ import annotations

import copy
import math
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import safe_open

from small_models import adapters, shipped_files
from small_models.any_model import AnyModel
from small_models.checks import check_number, check_seed, pip_install, short_repr
from small_models.decoder import Decoder
from small_models.files import check_regular, check_text, display_path, read_file, reason, replace_files
from small_models.precision import is_autocast
from small_models.shipped_files import CHECKPOINTS
from small_models.tasks import TASKS
from small_models.tokenizer import CHARACTERS, ShippedTokenizer, build_tokenizer

if TYPE_CHECKING:  # it takes longer to import than all else, and a shipped policy does without
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ComputePath = Literal["plain", "transformers"]
DEVICES = ("auto", "cpu", "cuda")
SMALL = 5_000_000  # parameters; below this, threads cost more than they give
ALIGNED = 64  # bytes: where torch puts its own tensors on a CPU
EXPERTS_PER_TOKEN = 2  # as in Mixtral
WIDEST, MOST_LAYERS = 65_536, 1000


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer.

    weights, vocabulary: transformers' model and tokenizer, or those that stand in for them in a shipped policy (`Decoder`,
    `ShippedTokenizer`). source: where the weights came from: a shipped name, a path, a hub name, or how they were built.
    base: where the weights, of a LoRA policy those below its adapter, are found again; None: nowhere.
    """

    weights: PreTrainedModel | Decoder
    vocabulary: PreTrainedTokenizerBase | ShippedTokenizer
    source: str
    base: adapters.Base | None = None

    @property
    def model(self) -> PreTrainedModel:
        """The model as transformers has it, with the very same parameters.

        A shipped policy is still computed by its decoder: hooks on this model are not called, and modules put into it not
        used, unless it becomes a policy of its own (`on_transformers`).
        """
        if not isinstance(self.weights, Decoder):
            return self.weights
        if "_model" not in vars(self):
            object.__setattr__(self, "_model", _in_transformers(self.weights, self.source))
        return vars(self)["_model"]

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer as transformers has it; from now on it is `vocabulary` too."""
        if isinstance(self.vocabulary, ShippedTokenizer):
            object.__setattr__(self, "vocabulary", _read_tokenizer(self.vocabulary.folder))
        return self.vocabulary

    @property
    def backend(self) -> Decoder | AnyModel:
        """What computes the policy now: its decoder in float32 and float64, else transformers' modules."""
        if isinstance(self.weights, Decoder) and self.weights.dtype in (torch.float32, torch.float64):
            return AnyModel(self.model) if is_autocast(self.device) else self.weights
        return AnyModel(self.model)

    @property
    def path(self) -> ComputePath:
        """How the policy is computed now, as the config.json of a run records it: "plain" by the decoder."""
        return "plain" if isinstance(self.backend, Decoder) else "transformers"

    def on_transformers(self) -> Policy:
        """Return a policy of the very same parameters that transformers' modules compute."""
        return Policy(self.model, self.vocabulary, self.source, self.base)

    @property
    def device(self) -> torch.device:
        return self.weights.device

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.weights.parameters())

    @property
    def end_id(self) -> int:
        """Id of the end-of-sequence token, as it is written: the tokenizer's."""
        return int(self.vocabulary.eos_token_id)

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids of all tokens that end a response: the tokenizer's, and those of the model's configs (Llama 3 lists three)."""
        configs = self.weights.config, getattr(self.weights, "generation_config", None)
        lists = [getattr(config, "eos_token_id", None) for config in configs]
        more = [ids if isinstance(ids, list) else [ids] for ids in lists if ids is not None]
        return frozenset((self.end_id, *(int(token) for ids in more for token in ids)))

    @property
    def pad_id(self) -> int:
        """Id that fills padding; models without one use their end-of-sequence id, which the masks tell apart."""
        pad = self.vocabulary.pad_token_id
        return self.end_id if pad is None else int(pad)

    @property
    def positions(self) -> int | None:
        """Tokens of the longest prompt and response that the model can read, None where its config does not say."""
        positions: int | None = getattr(self.weights.config, "max_position_embeddings", None)
        return positions

    def frozen_copy(self) -> Policy:
        """Return a copy with weights of its own that no gradient reaches (a reference policy).

        Raises ValueError for adapters that could not be saved, before a run begins with them.
        """
        adapters.has_adapter(self.weights)
        weights = copy.deepcopy(self.weights).eval()
        weights.requires_grad_(False)
        return Policy(weights, self.vocabulary, self.source, self.base)

    def as_reference(self) -> Policy:
        """Return the policy as it is now, frozen. A LoRA policy's shares the base, so that there is no second one in memory."""
        if not adapters.has_adapter(self.weights):
            return self.frozen_copy()
        weights = adapters.copy_beside_base(self.weights).eval().requires_grad_(False)
        return Policy(weights, self.vocabulary, self.source, self.base)

    def with_lora(self, rank: int, *, seed: int = 0) -> Policy:
        """Return a LoRA policy on these very weights, which then stay as they are, see `adapters.add_adapter`.

        Raises ValueError for a rank out of range, for a policy that has an adapter, and without peft.
        """
        if adapters.has_adapter(self.weights):
            raise ValueError("lora: the policy has an adapter already; train on with that one, or merge it first")
        return Policy(adapters.add_adapter(self.model, rank, seed=seed), self.vocabulary, self.source, self.base)

    def merged(self) -> Policy:
        """Return a plain policy, a copy in whose weights the LoRA adapter has become part of the base."""
        copied = self.frozen_copy()
        return Policy(adapters.merge_adapter(copied.weights), self.vocabulary, self.source)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights (safetensors), config and tokenizer into `folder`, each file whole or not at all.

        Of a LoRA policy the weights are the adapter's, with the name of its base. Raises ValueError where that has none.
        """
        folder = Path(folder)
        with replace_files(folder) as temporary:
            if isinstance(self.weights, Decoder):
                shipped_files.save(self.weights, temporary)
            elif adapters.has_adapter(self.weights):
                adapters.save_adapter(self.weights, self.base, temporary)
            else:
                with _without_bars():
                    self.weights.save_pretrained(temporary)
            (folder / adapters.CONFIG).unlink(missing_ok=True)  # what was there may have been an adapter
            if isinstance(self.vocabulary, ShippedTokenizer):
                shipped_files.save_tokenizer(self.vocabulary, temporary)
            else:
                self.vocabulary.save_pretrained(temporary)


def choose_device(device: str = "auto") -> torch.device:
    """Return the torch device that `auto`, `cpu` or `cuda` means here.

    Raises ValueError for another name, and for `cuda` where PyTorch sees no GPU.
    """
    if device not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}; got {short_repr(device)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but PyTorch sees no CUDA device here; use 'cpu' or 'auto'")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def prepare_model(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """Return a model on its device, without dropout, told how its experts are computed there.

    A checkpoint does not say, and the ways differ in speed and in the last digits. On a CPU it is one expert after the other,
    the fastest; elsewhere the library's own choice stands.
    """
    model = model.eval().to(device)
    if device.type == "cpu":
        model.set_experts_implementation("eager")
    return model


def recompute_activations(model: PreTrainedModel) -> None:
    """Turn the model's gradient checkpointing on: its layers keep no activations and compute them again in the backward pass."""
    if hasattr(model, "activation_checkpointing_enable"):  # its name from transformers 6 on
        model.activation_checkpointing_enable()
    else:
        model.gradient_checkpointing_enable()


@contextmanager
def _without_bars() -> Iterator[None]:
    """Within it, no progress bar is seen: transformers', a widget in a notebook, and that of its reader of .gguf files."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(StringIO()):  # the reader's has no switch
            yield
    finally:
        if was_enabled:
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
    tokens: Sequence[str] = CHARACTERS,
    seed: int = 0,
    device: str = "auto",
) -> Policy:
    """Return an untrained Llama-shaped policy over a vocabulary of `tokens`, the characters by default (137k parameters).

    With `experts` it is Mixtral-shaped: each layer has that many, a quarter as wide as the dense layer, of which every token
    is given two (8: 237k parameters, 89k of them in use for a token); no loss keeps their loads equal.
    `max_length` is the longest prompt plus response, in tokens. The same seed gives the same weights on every device.
    Raises ValueError for a number out of its range, and when `hidden_size` is not a multiple of 2 × `num_heads`.
    """
    words = f"at least 1 and at most {WIDEST}"
    for name, value in (("hidden_size", hidden_size), ("num_heads", num_heads)):
        check_number(name, value, lambda n: 1 <= n <= WIDEST, words, integer=True)
    words = f"at least 1 and at most {MOST_LAYERS}"
    check_number("num_layers", num_layers, lambda n: 1 <= n <= MOST_LAYERS, words, integer=True)
    words = "at least 2, a token of a prompt and one of a response"
    check_number("max_length", max_length, lambda n: 2 <= n < 2**31, words, integer=True)
    words = f"0 (none) or at least {EXPERTS_PER_TOKEN + 1}, so that there is a choice"
    check_number("experts", experts, lambda n: n == 0 or n > EXPERTS_PER_TOKEN, words, integer=True)
    if hidden_size % (2 * num_heads):
        raise ValueError(f"hidden_size must be a multiple of 2 × num_heads = {2 * num_heads}; got {hidden_size}")
    check_seed(seed)
    if not tokens or not all(isinstance(one, str) and one for one in tokens) or len(set(tokens)) < len(tokens):
        raise ValueError(f"tokens must be different texts, at least one; got {short_repr(tokens)}")
    from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig

    tokenizer = build_tokenizer(tokens)
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
    config = LlamaConfig(**shape, intermediate_size=4 * hidden_size)
    if experts:
        config = MixtralConfig(
            **shape,
            intermediate_size=hidden_size,
            num_local_experts=experts,
            num_experts_per_tok=EXPERTS_PER_TOKEN,
            router_aux_loss_coef=0.0,
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    model = prepare_model(model.float(), choose_device(device))
    layers = f"{num_layers} layers of {experts} experts" if experts else f"{num_layers} layers"
    return Policy(model, tokenizer, f"built: hidden {hidden_size} × {layers}, seed {seed}")


def shipped_policies() -> list[str]:
    """Return the names of the warm-started policies that come with the package."""
    return sorted(folder.name for folder in CHECKPOINTS.iterdir() if (folder / "config.json").is_file())


def check_files(folder: Path) -> None:
    """Refuse files that have no end, such as devices, and a config.json that asks for more than 1000 layers.

    Raises ValueError, before anything is read or built.
    """
    for file in folder.iterdir():
        if file.exists() and not file.is_dir():
            check_regular(file)
    if (folder / "config.json").is_file():
        text = read_file(folder / "config.json").decode(errors="replace")
        depths = re.findall(r'"(?:num_hidden_layers|n_layers?|num_layers)"\s*:\s*(\d{1,18})', text)
        if max(map(int, depths), default=0) > MOST_LAYERS:
            raise ValueError(f"{display_path(folder / 'config.json')} asks for more than {MOST_LAYERS} layers")


def count_weights(source: str | os.PathLike[str]) -> int:
    """Return how many weights the safetensors files of a folder hold, 0 where it is none, such as a name."""
    number = 0
    with suppress(Exception):  # what is wrong with them, loading them says
        for file in Path(source).glob("*.safetensors"):
            with safe_open(file, "pt") as tensors:
                number += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return number


def _in_transformers(decoder: Decoder, source: str) -> PreTrainedModel:
    """Return transformers' model of the very same parameters, on their device.

    Its `name_or_path` is the folder that they came from, of which TRL makes its reference.
    """
    model = prepare_model(_read_model(str(shipped_files.kind_of(decoder))), decoder.device)
    parameters = decoder.state_dict(keep_vars=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameters[name].requires_grad)  # else load_state_dict would set it
    model.load_state_dict(parameters, assign=True)
    folders = [folder for folder in (CHECKPOINTS / source, Path(source)) if (folder / "config.json").is_file()]
    model.name_or_path = model.config._name_or_path = str(folders[0]) if folders else ""
    return model


def _read_model(name: str, *, is_folder: bool = True) -> PreTrainedModel:
    """Return the model of a folder, or of the hub. Raises ValueError, as transformers would fill weights that it lacks at random.

    is_folder: its weights must all have a place too; the hub has such as carry more.
    """
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"trust_remote_code": False, "output_loading_info": True}
    with _without_bars():
        model, loading = AutoModelForCausalLM.from_pretrained(
            **_file_options(name), dtype=torch.float32, use_safetensors=True, **options
        )
    if is_gguf(name):  # its numbers are float32 now, and nothing else is to be said of how they were stored
        stored = ("hf_quantizer", "quantization_method", "is_quantized", "quantization_config", "_is_quantized")
        for owner in (model, model.config):
            for attribute in stored:
                vars(owner).pop(attribute, None)
    if loading["missing_keys"]:
        raise ValueError(f"it lacks the weights {_first(loading['missing_keys'])}")
    if is_folder and loading["unexpected_keys"]:
        raise ValueError(
            f"the model of its config.json has no place for its weights {_first(loading['unexpected_keys'])}"
        )
    for parameter in model.parameters():
        if parameter.data_ptr() % ALIGNED:  # it lies in the file, where products round in another order than in memory
            parameter.data = parameter.data.clone()
    return model


def is_gguf(name: str) -> bool:
    """Return whether a policy's name is a .gguf file's."""
    return name.endswith(".gguf")


def _file_options(name: str) -> dict[str, str]:
    """Return the arguments of `from_pretrained` that name a folder, a hub's model, or a .gguf file."""
    if not is_gguf(name):
        return {"pretrained_model_name_or_path": name}
    return {"pretrained_model_name_or_path": str(Path(name).parent), "gguf_file": Path(name).name}


def _first(names: Collection[str]) -> str:
    """Return the first of these names, and how many others there are."""
    return min(names) + (f" and {len(names) - 1} others" if len(names) > 1 else "")


def _read_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(**_file_options(str(name)), trust_remote_code=False)
    tokenizer.clean_up_tokenization_spaces = False  # what is graded is what was sampled (Llama 3 asks for it)
    return tokenizer


def load_policy(source: str | os.PathLike[str], *, device: str = "auto", lora: int | None = None) -> Policy:
    """Load a policy in float32 from a folder, a .gguf file, by a shipped name (`shipped_policies()`), or by a hub name.

    A shipped name wins over a folder of that name, which is written `./chain`. lora: the rank of an adapter that is put on it,
    see `Policy.with_lora` (None: none).

    A folder of a LoRA adapter gives that policy again, on the base that it names. Of a folder only safetensors weights are read
    and no code from the checkpoint is run. Raises ValueError, in one sentence, when there is nothing at `source`, when it is
    damaged or lacks weights, or when its tokenizer has no end-of-sequence token.
    """
    policy = _load_policy(source, device)
    return policy if lora is None else policy.with_lora(lora)


def _load_policy(source: str | os.PathLike[str], device: str) -> Policy:
    where = choose_device(device)
    if not isinstance(source, (str, os.PathLike)) or not str(source) or "\0" in str(source):
        raise ValueError(
            f"policy must be a folder, a shipped name ({', '.join(shipped_policies())}) or a hub name; got {short_repr(source)}"
        )
    folder = CHECKPOINTS / str(source) if str(source) in shipped_policies() else Path(source)
    try:
        is_folder = folder.is_dir()
    except OSError:  # a name that is too long for a path
        is_folder = False
    name = str(folder) if is_folder else str(source)
    if is_folder and (folder / adapters.CONFIG).exists():
        return _load_on_base(folder, str(source), device)
    if is_folder:
        if (folder / "adapter").is_dir():  # where earlier versions put one
            raise ValueError(
                f"policy: {name} holds a model and a LoRA adapter on it: move adapter/ out of it, name the model in "
                f"{adapters.CONFIG} there, as base_model_name_or_path, and load that"
            )
        check_files(folder)
        if (known := shipped_files.read(folder, where)) is not None:
            return Policy(*known, str(source), _base(known[0], folder, source))
    elif name in (task.name for task in TASKS):  # its task's name, which no hub needs to be asked for
        raise ValueError(
            f"policy: the task {name} has no warm start here; make one by python -m small_models.warm_start {name}, or give "
            "another policy"
        )
    elif is_gguf(name):
        if not folder.is_file():
            raise ValueError(f"policy: there is no file {display_path(name)}")
        check_regular(folder)
    try:
        model, tokenizer = _read_model(name, is_folder=is_folder), _read_tokenizer(name)
        check_text(tokenizer.init_kwargs, model.config.to_dict())  # else the first save would fail
    except Exception as error:  # transformers, safetensors and the hub client raise unrelated types
        if is_folder:
            raise ValueError(f"policy: the checkpoint in {name} cannot be read ({reason(error)})") from error
        if is_gguf(name):
            lacking = isinstance(error, ImportError)
            advice = f"; it needs gguf and accelerate: {pip_install('rlviz[models]')}" if lacking else ""
            raise ValueError(f"policy: the file {name} cannot be read ({reason(error)}){advice}") from error
        raise ValueError(
            f"policy: {short_repr(name)} is no folder here, no shipped policy ({', '.join(shipped_policies())}), and no model "
            f"that the hub client could load ({reason(error)})"
        ) from error
    adapters.has_adapter(model)
    from transformers.cache_utils import DynamicCache, DynamicLayer

    if not all(isinstance(layer, DynamicLayer) for layer in DynamicCache(config=model.config).layers):
        raise ValueError(f"policy: {name} has a recurrent state, which sampling here cannot share in a group")
    if tokenizer.eos_token_id is None:
        raise ValueError(f"policy: the tokenizer of {name} has no end-of-sequence token, so no response could end")
    return Policy(prepare_model(model, where), tokenizer, str(source), _base(model, folder, source))


def _base(model: Any, folder: Path, source: str | os.PathLike[str]) -> adapters.Base:
    """Return where a model is found again: by a shipped or a hub name, or the whole path of a folder or a file."""
    has_path = folder.exists() and str(source) not in shipped_policies()
    return adapters.Base(str(folder.resolve()) if has_path else str(source), adapters.digest(model))


def _load_on_base(folder: Path, source: str, device: str) -> Policy:
    """Return the LoRA policy whose adapter is in this folder; its base is where base.json, or peft's config, says."""
    base = adapters.read_base(folder)
    place, near = Path(base.name), folder / base.name  # of an adapter that was moved together with its base
    if (near / adapters.CONFIG).exists() or place.resolve() == folder.resolve():
        raise ValueError(
            f"policy: the base of the LoRA adapter in {display_path(folder)} must be a whole model; it is {base.name}"
        )
    try:
        if place.is_absolute() and not place.exists():
            raise ValueError(f"{place} is not there")
        below = _load_policy(near if near.exists() else base.name, device)
    except ValueError as error:
        why = str(error).removeprefix("policy: ")
        raise adapters.BaseError(
            f"policy: {display_path(folder)} is a LoRA adapter, and its base could not be loaded: {why}; write where it is now "
            f"into {display_path(folder / adapters.BASE)}, as name"
        ) from error
    adapters.check_base(below.weights, base, folder)
    model = prepare_model(adapters.read_adapter(below.model, folder), below.device)
    return Policy(model, below.vocabulary, source, below.base)
