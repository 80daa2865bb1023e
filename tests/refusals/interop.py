"""What exports refuse: settings of another kind, and algorithms that a library cannot run or carry."""

from __future__ import annotations

from typing import Any

from rlviz import DAPO, DPO, GRPO, PPO, PairSettings, TrainSettings
from rlviz.algorithms import ECHO, GRPO_PROCESS
from rlviz.interop import carried, to_trl, to_verl
from rlviz.interop.writing import script, yaml_text
from tests.refusals.row import table

WHOLE = TrainSettings(num_prompts=8, group_size=4)


def of_dapo(**given: Any) -> Any:
    return to_trl(DAPO, WHOLE, **given)


ROWS = table(
    globals(),
    r"""
of_dapo(accumulation=5) → accumulation must divide an update of 32 responses evenly; got 5
of_dapo(accumulation=⟨0 | 1.5⟩) → accumulation must be a whole number, at least 1; got ⟨⟩
to_trl(DPO, WHOLE) → settings must be PairSettings for DPO; got TrainSettings
to_trl(GRPO, PairSettings()) → settings must be TrainSettings for GRPO; got PairSettings
to_trl('grpo') → algorithm must be an algorithm, such as GRPO; got 'grpo'
to_trl(GRPO, {}) → settings must be …; got {}
script(to_trl(PPO), PPO) → …no critic…
yaml_text(to_verl(DPO)) → DPO cannot be run by verl: …trains no pairs…
# what cannot be carried needs no TRL to be refused
carried(object, ⟨PPO | DPO⟩)
    → algorithm must be one of groups, such as DCPO: TRL … has no critic and no pairs here; got ⟨⟩
carried(object, GRPO_PROCESS)
    → GRPO (process) needs rewards of single steps, which TRL's reward functions do not give
carried(object, ECHO) → ECHO learns from what a tool wrote, which TRL masks out before a loss sees it
carried(int, GRPO) → TypeError: trainer must be trl's GRPOTrainer; got <class 'int'>
""",
)
