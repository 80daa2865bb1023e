"""What exports refuse: settings of another kind, algorithms that a library cannot run or carry; and what is no configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlviz import DAPO, DPO, GRPO, PPO, PairSettings, TrainSettings
from rlviz.algorithms import ECHO, GRPO_PROCESS
from rlviz.interop import carried, explain_config, to_trl, to_verl
from rlviz.interop.writing import script, yaml_text
from tests.refusals.row import table

ALIASES = [f"a{n}: &a{n} {{{', '.join(f'y{i}: *a{n - 1}' for i in range(9))}}}" for n in range(1, 9)]
BOMB = "\n".join(["algorithm: {x: 1}", "a0: &a0 {x: 1}", *ALIASES])
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
explain_config('') → the YAML must be a mapping of options, such as …
explain_config('a: 1') → nothing in it says whose it is: of its 1 names TRL has 0 and verl 0. …
explain_config('beta: 0.1') → the options fit GRPOConfig and DPOConfig alike: say which with kind (--kind), one of …
explain_config('beta: [') → the YAML in it cannot be parsed: line …
explain_config('GRPOConfig(beta=') → the Python in it cannot be parsed: line 1
explain_config('x = RLOOConfig(beta=1)\ny = GRPOConfig()')
    → no call of GRPOConfig or DPOConfig with options stands in the Python…
explain_config('num_generations: 0\nloss_type: grpo') → num_generations must be a whole number, at least 1; got 0
explain_config('trainer.nnodes=1.5') → trainer.nnodes must be a whole number, at least 1; got 1.5
explain_config('beta: [1]\nnum_generations: 8')
    → beta must be a number; got [1]
explain_config('algorithm:\n x: 1\nactor_rollout_ref: &a\n b: *a') → the configuration must have at most 12 levels
explain_config(BOMB) → the configuration must have at most 10,000 options
explain_config('# ' + 'x' * 2**18) → a configuration must have at most 256 kB; this has 256
explain_config("actor_rollout_ref.actor.clip_ratio='0.2")
    → the shell script in it cannot be parsed: in line 1 a quotation mark has no partner
explain_config('num_generations: 8', devices=0) → devices must be a whole number, at least 1; got 0
explain_config('num_generations: 8', kind='PPOConfig') → kind must be one of GRPOConfig, …; got 'PPOConfig'
explain_config(Path('none.yaml')) → FileNotFoundError: …none.yaml…
carried(int, GRPO) → TypeError: trainer must be trl's GRPOTrainer; got <class 'int'>
""",
)
