"""LoRA policies (peft): written as base and adapter, read again as they were, merged where a plain model is needed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from small_models.checks import pip_install
from small_models.files import check_regular, read_json, reason

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FOLDER, CONFIG, WEIGHTS = "adapter", "adapter_config.json", "adapter_model.safetensors"
SAVED_FIELDS = (
    "r", "lora_alpha", "target_modules", "exclude_modules", "lora_dropout", "bias", "fan_in_fan_out", "modules_to_save",
    "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "task_type",
)  # fmt: skip
WITHOUT_EFFECT = (
    "init_lora_weights", "inference_mode", "base_model_name_or_path", "revision", "auto_mapping", "peft_version", "peft_type",
)  # fmt: skip


def has_adapter(model: Any) -> bool:
    """Return whether peft changed this model. Raises ValueError unless it is a PeftModel with one plain LoRA adapter."""
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
    _lora(json.loads(json.dumps(model.peft_config["default"].to_dict(), default=list)))
    return True


def without_adapter(model: Any) -> PreTrainedModel:
    """Return the model itself, or a copy of the base that a LoRA model stands on."""
    return copy.deepcopy(model).unload() if has_adapter(model) else model


def merge_adapter(model: Any) -> PreTrainedModel:
    """Return the model after its adapter, if it has one, has become part of its weights."""
    return model.merge_and_unload() if has_adapter(model) else model


def read_adapter(model: PreTrainedModel, folder: Path) -> Any:
    """Return the model as a PeftModel with the LoRA adapter that `model.save_pretrained(folder)` of such a one wrote.

    The adapter's parameters get gradients, the base's none. Nothing but LoRA's own numbers is taken from its config.
    Raises ValueError, in one sentence, where peft is not installed, or what is there cannot be read.
    """
    try:
        import peft
    except ImportError as error:
        raise ValueError(f"policy: {folder} is a LoRA adapter, which needs peft here; {pip_install('peft')}") from error
    try:
        check_regular(folder / WEIGHTS)
        tensors = load_file(folder / WEIGHTS)
        settings = _lora(read_json(folder / CONFIG, dict))
        ranks = [settings["r"], *settings.get("rank_pattern", {}).values()]
        stored = [tensor.shape[0] for name, tensor in tensors.items() if name.endswith("lora_A.weight")]
        if not stored or max(ranks) > max(stored):
            raise ValueError(f"its weights are not of rank {max(ranks)}")
        with torch.random.fork_rng(devices=[]):
            lora = peft.get_peft_model(model, peft.LoraConfig(**settings))
        unknown = peft.set_peft_model_state_dict(lora, tensors).unexpected_keys
        if unknown:
            raise ValueError(f"there is no place for its {unknown[0]}")
    except Exception as error:  # peft, safetensors and json raise unrelated types
        raise ValueError(f"policy: the LoRA adapter in {folder} cannot be read ({reason(error)})") from error
    return lora


def _lora(saved: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of LoraConfig in a saved config; raises ValueError for what goes beyond plain LoRA."""
    import peft

    plain = json.loads(json.dumps(peft.LoraConfig().to_dict(), default=list))
    for name, value in saved.items():
        if name not in (*SAVED_FIELDS, *WITHOUT_EFFECT) and value != plain.get(name):
            raise ValueError(
                f"policy: a LoRA adapter with {name} = {value!r} cannot be kept; leave it at {plain.get(name)!r}"
            )
    return {name: saved[name] for name in SAVED_FIELDS if name in saved}
