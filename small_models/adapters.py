"""LoRA policies (peft): an adapter is put on a base, written without it, read on it again, and merged.

Begin with `add_adapter`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from small_models.checks import check_number, pip_install
from small_models.files import display_path, read_json, reason

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG, WEIGHTS, BASE = "adapter_config.json", "adapter_model.safetensors", "base.json"
LARGEST_RANK = 1024


class BaseError(ValueError):
    """The base of an adapter is not where it was, or another one. The adapter itself is whole."""


@dataclass(frozen=True)
class Base:
    """Where a model is found again (a folder, a .gguf file, a shipped or a hub name), and its `digest` when it was read there."""

    name: str
    digest: str


@contextmanager
def _no_advice_to_peft() -> Iterator[None]:
    """Within it, transformers does not tell users which of its names peft should no longer use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def digest(model: nn.Module) -> str:
    """Return a digest of the shape and the first numbers of all weights but an adapter's, which tells models apart."""
    hashed = hashlib.sha256()
    for name, weight in sorted(_base_weights(model).items()):
        hashed.update(f"{name} {tuple(weight.shape)}".encode())
        hashed.update(weight.detach().flatten()[:16].cpu().float().numpy().tobytes())
    return hashed.hexdigest()[:16]


def _base_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a model by the names that they have in it without an adapter, and without the adapter's."""
    wrapped = {name: weight for name, weight in model.named_parameters() if not _is_adapter_s(name)}
    return {
        name.removeprefix("base_model.model.").replace(".base_layer", "").replace(".original_module", ""): w
        for name, w in wrapped.items()
    }


def _is_adapter_s(name: str) -> bool:
    return ".lora_" in name or ".modules_to_save." in name


def add_adapter(model: PreTrainedModel, rank: int, *, seed: int = 0) -> Any:
    """Return the model with a LoRA adapter of this rank on all its linear layers but the head: W + 2 B A, B = 0 at first.

    Only the adapter gets gradients. The same seed gives the same A. Raises ValueError for a rank out of range, and without peft.
    """
    check_number("lora", rank, lambda r: 1 <= r <= LARGEST_RANK, f"from 1 to {LARGEST_RANK}", integer=True)
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ValueError(f"lora needs peft here; {pip_install('peft')}") from error
    with torch.random.fork_rng(devices=[]), _no_advice_to_peft():
        torch.manual_seed(seed)
        adapted = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
    return adapted.eval()


def has_adapter(model: Any) -> bool:
    """Return whether peft changed this model. Raises ValueError unless it is a PeftModel with one LoRA adapter."""
    if not hasattr(model, "peft_config"):
        return False
    from transformers import PreTrainedModel

    kinds = {
        name: str(getattr(config.peft_type, "value", config.peft_type)) for name, config in model.peft_config.items()
    }
    if isinstance(model, PreTrainedModel) or kinds != {"default": "LORA"}:
        raise ValueError(
            "policy: a model with adapters must come from peft.get_peft_model, with one LoRA adapter named 'default'; got a "
            f"{type(model).__name__} with {', '.join(f'{name!r} ({kind})' for name, kind in kinds.items())}"
        )
    return True


def copy_beside_base(model: nn.Module) -> nn.Module:
    """Return a copy of a model with weights of its own, but for those of an adapter's base that no gradient reaches."""
    shared = [weight for weight in model.parameters() if not weight.requires_grad] if has_adapter(model) else []
    return copy.deepcopy(model, {id(weight): weight for weight in shared})


def moving_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of a model, of one with an adapter what is the adapter's."""
    state = model.state_dict()
    return {name: value for name, value in state.items() if _is_adapter_s(name)} if has_adapter(model) else state


def save_adapter(model: Any, base: Base | None, folder: Path) -> None:
    """Write the adapter into a folder, and base.json, which says where its base is.

    Raises ValueError where the base is found nowhere, or was changed after it was read.
    """
    if base is None or base.digest != digest(model):
        raise ValueError(
            "policy: the base of its LoRA adapter is found nowhere again; save the base, load it by load_policy, put the adapter "
            "on that, and where peft did so, say Policy(…, base=policy.base)"
        )
    model.peft_config["default"].base_model_name_or_path = base.name
    model.save_pretrained(folder, save_embedding_layers=False)  # else peft asks the hub whether there were more of them
    (folder / "README.md").unlink(missing_ok=True)  # peft's, a form to be filled in
    (folder / BASE).write_text(json.dumps(asdict(base)) + "\n", encoding="utf-8")


def read_base(folder: Path) -> Base:
    """Return what an adapter's folder says of its base; of an adapter that peft alone wrote there is no digest.

    Raises ValueError where it says nothing.
    """
    if (folder / BASE).is_file():
        return read_json(folder / BASE, Base)
    name = read_json(folder / CONFIG, dict).get("base_model_name_or_path")
    if not name or not isinstance(name, str):
        raise ValueError(
            f"policy: {display_path(folder)} is a LoRA adapter, and its {CONFIG} names no base_model_name_or_path: write there "
            "the folder, the .gguf file or the hub name of its base"
        )
    return Base(name, "")


def base_in(folder: Path) -> Base | None:
    """Return the base of the adapter in a folder, None where there is none that `save_adapter` wrote."""
    return read_base(folder) if (folder / CONFIG).is_file() and (folder / BASE).is_file() else None


def check_base(model: nn.Module, base: Base, folder: Path) -> None:
    """Raise ValueError where this is another base than the one that the adapter was trained on."""
    if base.digest and digest(model) != base.digest:
        raise BaseError(
            f"policy: the LoRA adapter in {display_path(folder)} was trained on another base than {base.name} is now; put that "
            f"one back, or name it in {display_path(folder / BASE)}"
        )


def load_adapter_weights(model: Any, folder: Path) -> None:
    """Change the adapter of a model to that of a folder. Raises ValueError where it cannot be read, or is of another shape."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    try:
        outcome = set_peft_model_state_dict(model, load_file(folder / WEIGHTS))
        if outcome.unexpected_keys:
            raise ValueError(f"there is no place for {min(outcome.unexpected_keys)}")
    except Exception as error:  # peft, safetensors and torch raise unrelated types
        raise ValueError(f"policy: the LoRA adapter in {folder} cannot be read ({reason(error)})") from error


def merge_adapter(model: Any) -> PreTrainedModel:
    """Return the model after its adapter, if it has one, has become part of its weights."""
    return model.merge_and_unload() if has_adapter(model) else model


def read_adapter(model: PreTrainedModel, folder: Path) -> Any:
    """Return the model as a PeftModel with the LoRA adapter that `model.save_pretrained(folder)` of such a one wrote.

    The adapter's parameters get gradients, the base's none. Raises ValueError, in one sentence, where peft is not installed, or
    the adapter cannot be read.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ValueError(f"policy: {folder} is a LoRA adapter, which needs peft here; {pip_install('peft')}") from error
    try:
        if not (folder / WEIGHTS).is_file():  # peft would read a pickle
            raise ValueError(f"there is no {WEIGHTS}")
        with torch.random.fork_rng(devices=[]), _no_advice_to_peft():
            return PeftModel.from_pretrained(model, folder, is_trainable=True, local_files_only=True)
    except Exception as error:  # peft, safetensors and json raise unrelated types
        raise ValueError(f"policy: the LoRA adapter in {folder} cannot be read ({reason(error)})") from error
