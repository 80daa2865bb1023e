"""Policies: tiny transformers built from a config, shipped warm starts, and any causal language model by path or name."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from small_models import adapters, paths, shipped_files
from small_models.any_model import AnyModel
from small_models.checks import check_number, check_seed, shown
from small_models.decoder import Decoder
from small_models.files import as_json, check_regular, check_text, read_json, reason, said, whole_files
from small_models.shipped_files import CHECKPOINTS
from small_models.tasks import TASKS
from small_models.tokenizer import CharacterTokenizer, build_tokenizer

if TYPE_CHECKING:  # it takes longer to import than all else, and a shipped policy does without
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DEVICES = ("auto", "cpu", "cuda")
SMALL = 5_000_000  # parameters; below this, threads cost more than they give
ALIGNED = 64  # bytes: where torch puts its own tensors on a CPU
EXPERTS_A_TOKEN = 2  # as in Mixtral
MOST_LAYERS = 1000  # the deepest published language models have about 130
MOST_HEADER = 100_000_000  # bytes, safetensors' own limit
WIDEST, LARGEST = 65_536, 1_000_000_000  # width and parameters that are built


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer.

    weights, vocabulary: transformers' model and tokenizer, or where nobody asked for these yet (`model`, `tokenizer`), what
    does their work for a shipped policy (`Decoder`, `CharacterTokenizer`). source: where the weights came from: a shipped name,
    a path, a hub name, or how they were built.
    """

    weights: PreTrainedModel | Decoder
    vocabulary: PreTrainedTokenizerBase | CharacterTokenizer
    source: str

    @property
    def model(self) -> PreTrainedModel:
        """The model as transformers has it, with the very same parameters; from now on it is `weights` too."""
        if isinstance(self.weights, Decoder):
            object.__setattr__(self, "weights", _in_transformers(self.weights, self.source))
        return self.weights

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer as transformers has it; from now on it is `vocabulary` too."""
        if isinstance(self.vocabulary, CharacterTokenizer):
            object.__setattr__(self, "vocabulary", _read_tokenizer(shipped_files.KIND))
        return self.vocabulary

    @property
    def computed(self) -> paths.OurDecoder | AnyModel:
        """What computes it now: our own decoder where it fits (`small_models.paths`), else transformers' modules."""
        return paths.our_decoder(self.weights) or AnyModel(self.model)

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
        return Policy(weights, self.vocabulary, self.source)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights (safetensors), config and tokenizer into `folder`, each file whole or not at all.

        Of a LoRA policy that is its base; the adapter stands beside it, in adapter/.
        """
        folder = Path(folder)
        base = adapters.without_adapter(self.weights)
        shutil.rmtree(folder / adapters.FOLDER, ignore_errors=True)
        with whole_files(folder) as temporary:
            if isinstance(base, Decoder):
                shipped_files.save(base, temporary)
            else:
                with _no_progress_bars():
                    base.save_pretrained(temporary)
                    if base is not self.model:
                        self.model.save_pretrained(temporary / adapters.FOLDER)
            if isinstance(self.vocabulary, CharacterTokenizer):
                shipped_files.save_tokenizer(temporary)
            else:
                self.vocabulary.save_pretrained(temporary)


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


def recompute_activations(model: PreTrainedModel) -> None:
    """Turn the model's gradient checkpointing on: its layers keep no activations and compute them again in the backward pass."""
    if hasattr(model, "activation_checkpointing_enable"):  # its name from transformers 6 on
        model.activation_checkpointing_enable()
    else:
        model.gradient_checkpointing_enable()


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

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
    from transformers import AutoModelForCausalLM, LlamaConfig, MixtralConfig

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
    for head in _headers(folder):
        names = re.findall(rb"[\".](?:layers|h|blocks)\.(\d{1,9})\.", head)
        layers = max([layers, *(1 + int(name) for name in names)])
    if asked > min(layers or MOST_LAYERS, MOST_LAYERS):
        holds = f"its weights hold {layers}" if 0 < layers < asked else f"at most {MOST_LAYERS} are loaded"
        raise ValueError(f"{said(folder / 'config.json')} asks for {as_json(asked)} layers, and {holds}")


def _headers(folder: Path) -> Iterator[bytes]:
    """Give the header of each safetensors file of a folder; not of one that is cut short, which reading it says."""
    for weights in folder.glob("*.safetensors"):
        with weights.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            head = file.read(min(length, MOST_HEADER))
        if len(head) == length:
            yield head


def weights_in(source: str | os.PathLike[str]) -> int:
    """Return how many weights the safetensors files of a folder hold, 0 where it is none, such as a name."""
    number = 0
    with suppress(OSError, ValueError, TypeError, AttributeError):  # what is wrong, reading it says
        number = sum(math.prod(tensor["shape"]) for _, tensor in _tensors_in(Path(source)))
    return number


def _tensors_in(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give name, and dtype and shape, of each tensor in the safetensors files of a folder."""
    for head in _headers(folder):
        yield from ((name, tensor) for name, tensor in json.loads(head).items() if name != "__metadata__")


def _layers_asked(config: dict[str, Any]) -> Iterator[int]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _layers_asked(value)
        elif name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers") and isinstance(value, int):
            yield value


def shipped() -> list[str]:
    """Return the names of the warm-started policies that come with the package."""
    return sorted(folder.name for folder in CHECKPOINTS.iterdir() if (folder / "config.json").is_file())


def _in_transformers(own: Decoder, source: str) -> PreTrainedModel:
    """Return transformers' model of the very same parameters, on their device.

    Its `name_or_path` is the folder that they came from, of which TRL makes its reference.
    """
    model = settle(_read_model(str(shipped_files.KIND)), own.device)
    parameters = own.state_dict(keep_vars=True)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameters[name].requires_grad)  # which load_state_dict hands on
    model.load_state_dict(parameters, assign=True)
    folder = next(
        (folder for folder in (CHECKPOINTS / source, Path(source)) if (folder / "config.json").is_file()), None
    )
    model.name_or_path = model.config._name_or_path = "" if folder is None else str(folder)
    return model


def _read_model(name: str, *, here: bool = True) -> PreTrainedModel:
    """Return the model of a folder, or of the hub. Raises ValueError, as transformers would fill weights that it lacks at random.

    here: it is a folder, whose weights must all have a place too, and be no whole numbers; the hub has such as carry more.
    """
    from transformers import AutoModelForCausalLM

    with _no_progress_bars():
        model, told = AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    if told["missing_keys"]:
        raise ValueError(f"it lacks the weights {_first(told['missing_keys'])}")
    if here and told["unexpected_keys"]:
        raise ValueError(f"the model of its config.json has no place for its weights {_first(told['unexpected_keys'])}")
    real = {name for name, parameter in model.named_parameters() if parameter.is_floating_point()}
    whole = [name for name, tensor in _tensors_in(Path(name)) if name in real and tensor["dtype"][0] in "IU"]
    if whole:
        raise ValueError(f"whole numbers stand for its weights {_first(whole)}")
    for parameter in model.parameters():
        if parameter.data_ptr() % ALIGNED:  # it lies in the file, where products round in another order than in memory
            parameter.data = parameter.data.clone()
    return model


def _first(names: Collection[str]) -> str:
    """Return the first of these names, and how many others there are."""
    return min(names) + (f" and {len(names) - 1} others" if len(names) > 1 else "")


def _read_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    tokenizer.clean_up_tokenization_spaces = False  # what is graded is what was sampled (Llama 3 asks for it)
    return tokenizer


def load_policy(source: str | os.PathLike[str], *, device: str = "auto") -> Policy:
    """Load a policy in float32 from a folder, by a shipped name (`shipped()`), or by a hub name.

    A shipped name wins over a folder of that name, which is written `./chain`.

    A folder that `save` wrote of a LoRA policy gives that policy again. Only safetensors weights are read and no code from
    the checkpoint is run. Raises ValueError, in one sentence, when there is nothing at `source`, when it is damaged or lacks
    weights, or when its tokenizer has no end-of-sequence token.
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
        if (known := shipped_files.read(folder, where)) is not None:
            return Policy(*known, str(source))
    elif name in (task.name for task in TASKS):  # its task's name, which no hub needs to be asked for
        raise ValueError(
            f"policy: the task {name} has no warm start here; make one by python -m small_models.warm_start {name}, or give "
            "another policy"
        )
    try:
        model, tokenizer = _read_model(name, here=here), _read_tokenizer(name)
        check_text(tokenizer.init_kwargs, model.config.to_dict())  # else the first save would fail
    except Exception as error:  # transformers, safetensors and the hub client raise unrelated types
        if here:
            raise ValueError(f"policy: the checkpoint in {name} cannot be read ({reason(error)})") from error
        raise ValueError(
            f"policy: {shown(name)} is no folder here, no shipped policy ({', '.join(shipped())}), and no model that the hub "
            f"client could load ({reason(error)})"
        ) from error
    from transformers.cache_utils import DynamicCache, DynamicLayer

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
