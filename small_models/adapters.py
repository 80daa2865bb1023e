"""LoRA policies (peft): written as base and adapter, read again as they were, merged where a plain model is needed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from small_models.checks import pip_install
from small_models.files import reason

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FOLDER, CONFIG, WEIGHTS = "adapter", "adapter_config.json", "adapter_model.safetensors"


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


def without_adapter(model: Any) -> PreTrainedModel:
    """Return the model itself, or a copy of the base that a LoRA model stands on."""
    return copy.deepcopy(model).unload() if has_adapter(model) else model


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
        with torch.random.fork_rng(devices=[]):
            return PeftModel.from_pretrained(model, folder, is_trainable=True, local_files_only=True)
    except Exception as error:  # peft, safetensors and json raise unrelated types
        raise ValueError(f"policy: the LoRA adapter in {folder} cannot be read ({reason(error)})") from error
