"""Every option of TRL's GRPOConfig and DPOConfig and of verl's ppo_trainer.yaml, with its default:
`python -m tests.interop.fields` writes rlviz/interop/fields.json.

Needs trl 1.16.0, and verl 0.9.1 where Python finds it; an unpacked wheel on the path will do, since only its YAML is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

import rlviz.interop
from rlviz.interop.configs import VERL

FILE = Path(rlviz.interop.__file__).parent / "fields.json"
OPEN = "…"  # in place of what is below an option, for what nobody sets who asks which algorithm it is
WITHOUT = ("profiler", "turbo_config", "qat", "global_profiler", "transfer_queue", "skip", "npu_profile")
CONFIGS = "trainer/config"


def trl_defaults() -> dict[str, Any]:
    """Return the defaults of both configurations, and the names that TRL's scripts read beside them."""
    from trl import DatasetMixtureConfig, DPOConfig, GRPOConfig, ModelConfig, ScriptArguments
    from trl.scripts.grpo import GRPOScriptArguments

    others = (DatasetMixtureConfig, ModelConfig, ScriptArguments, GRPOScriptArguments)
    # the two are TrlParser's own
    beside = {"env", "config"} | {field.name for kind in others for field in fields(kind)}
    return {kind.__name__: _defaults(kind) for kind in (GRPOConfig, DPOConfig)} | {"beside": sorted(beside)}


def _defaults(kind: type[Any]) -> dict[str, Any]:
    def default(field: Any) -> Any:
        value = field.default if field.default is not MISSING else field.default_factory()
        return value if isinstance(value, str | int | float | list | None) else str(value)

    return {field.name: default(field) for field in fields(kind)}


def verl_defaults(folder: Path) -> dict[str, Any]:
    """Return the options of all engines, with dots; where engines differ, the default of ppo_trainer.yaml."""
    options: dict[str, Any] = {}
    files = sorted(
        (folder / CONFIGS).glob("_generated_ppo_*trainer.yaml"),
        key=lambda f: (f.name != "_generated_ppo_trainer.yaml", f.name),
    )
    for file in files:
        _add(options, yaml.safe_load(file.read_text(encoding="utf-8")), "")
    return options


def _add(options: dict[str, Any], more: Mapping[str, Any], above: str) -> None:
    for name, value in more.items():
        if name in WITHOUT:
            options[above + name] = OPEN
        elif isinstance(value, dict) and value:
            _add(options, value, f"{above}{name}.")
        elif name != "_target_":
            options.setdefault(above + name, OPEN if value == {} else value)


def verl_folder() -> Path | None:
    """Return where verl is, None where it is not."""
    spec = find_spec("verl")
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


if __name__ == "__main__":
    folder = verl_folder()
    if folder is None:
        raise SystemExit("verl 0.9.1 is not on the path")
    table = {**trl_defaults(), VERL: verl_defaults(folder)}
    FILE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
