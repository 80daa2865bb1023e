"""rlviz: understand LLM policy optimisation by moving sliders and training small models.

Names are imported when they are first used, so that `import rlviz` and `rlviz --help` do not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "ALGORITHMS": "rlviz.algorithms",
    "GRPO": "rlviz.algorithms",
    "GroupPolicyGradient": "rlviz.algorithms",
    "changes": "rlviz.algorithms",
    "RunFolder": "rlviz.training",
    "TrainSettings": "rlviz.training",
    "history": "rlviz.training",
    "resume": "rlviz.training",
    "train": "rlviz.training",
}
__all__ = [
    "ALGORITHMS",
    "GRPO",
    "GroupPolicyGradient",
    "RunFolder",
    "TrainSettings",
    "changes",
    "history",
    "resume",
    "train",
]

if TYPE_CHECKING:
    from rlviz.algorithms import ALGORITHMS, GRPO, GroupPolicyGradient, changes
    from rlviz.training import RunFolder, TrainSettings, history, resume, train


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rlviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
