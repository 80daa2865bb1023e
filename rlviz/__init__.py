"""rlviz: understand LLM policy optimisation by moving sliders and training small models.

Names are imported when they are first used, so that `import rlviz` and `rlviz --help` do not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "SAPO": "rlviz.algorithms",
    "RLOO": "rlviz.algorithms",
    "RELATIVES": "rlviz.algorithms",
    "REINFORCE_PP": "rlviz.algorithms",
    "GMPO": "rlviz.algorithms",
    "CISPO": "rlviz.algorithms",
    "ALGORITHMS": "rlviz.algorithms",
    "DAPO": "rlviz.algorithms",
    "DCPO": "rlviz.algorithms",
    "DPO": "rlviz.algorithms",
    "DPO_LINEAR": "rlviz.algorithms",
    "DR_GRPO": "rlviz.algorithms",
    "DUPO": "rlviz.algorithms",
    "GRPO": "rlviz.algorithms",
    "GRPO_PROCESS": "rlviz.algorithms",
    "GSPO": "rlviz.algorithms",
    "GSPO_TOKEN": "rlviz.algorithms",
    "LITE_PPO": "rlviz.algorithms",
    "PPO": "rlviz.algorithms",
    "PPO_PENALTY": "rlviz.algorithms",
    "ActorCritic": "rlviz.algorithms",
    "GroupPolicyGradient": "rlviz.algorithms",
    "PolicyGradient": "rlviz.algorithms",
    "PreferenceOptimization": "rlviz.algorithms",
    "changes": "rlviz.algorithms",
    "differences": "rlviz.algorithms",
    "family_table": "rlviz.algorithms",
    "show": "rlviz.algorithms",
    "TableTask": "rlviz.tabular",
    "good_actions": "rlviz.tabular",
    "random_reward": "rlviz.tabular",
    "rare_good_action": "rlviz.tabular",
    "train_table": "rlviz.tabular",
    "PairSettings": "rlviz.training",
    "RunFolder": "rlviz.training",
    "TrainSettings": "rlviz.training",
    "default_settings": "rlviz.training",
    "history": "rlviz.training",
    "learn_reward": "rlviz.training",
    "resume": "rlviz.training",
    "train": "rlviz.training",
}
__all__ = [
    "ALGORITHMS",
    "CISPO",
    "DAPO",
    "DCPO",
    "DPO",
    "DPO_LINEAR",
    "DR_GRPO",
    "DUPO",
    "GMPO",
    "GRPO",
    "GRPO_PROCESS",
    "GSPO",
    "GSPO_TOKEN",
    "LITE_PPO",
    "PPO",
    "PPO_PENALTY",
    "REINFORCE_PP",
    "RELATIVES",
    "RLOO",
    "SAPO",
    "ActorCritic",
    "GroupPolicyGradient",
    "PairSettings",
    "PolicyGradient",
    "PreferenceOptimization",
    "RunFolder",
    "TableTask",
    "TrainSettings",
    "changes",
    "default_settings",
    "differences",
    "family_table",
    "good_actions",
    "history",
    "learn_reward",
    "random_reward",
    "rare_good_action",
    "resume",
    "show",
    "train",
    "train_table",
]

if TYPE_CHECKING:
    from rlviz.algorithms import (
        ALGORITHMS,
        CISPO,
        DAPO,
        DCPO,
        DPO,
        DPO_LINEAR,
        DR_GRPO,
        DUPO,
        GMPO,
        GRPO,
        GRPO_PROCESS,
        GSPO,
        GSPO_TOKEN,
        LITE_PPO,
        PPO,
        PPO_PENALTY,
        REINFORCE_PP,
        RELATIVES,
        RLOO,
        SAPO,
        ActorCritic,
        GroupPolicyGradient,
        PolicyGradient,
        PreferenceOptimization,
        changes,
        differences,
        family_table,
        show,
    )
    from rlviz.tabular import TableTask, good_actions, random_reward, rare_good_action, train_table
    from rlviz.training import (
        PairSettings,
        RunFolder,
        TrainSettings,
        default_settings,
        history,
        learn_reward,
        resume,
        train,
    )


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'rlviz' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
