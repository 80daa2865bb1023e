"""The algorithms as values, one file a paper.

In: pieces. Out: an algorithm's advantages and loss, which training calls (`base.py`; `actor_critic.py`, `preference.py` and
`observing.py` for algorithms beyond the eight slots), and its formulas, its listing and its differences from another. Begin with
`grpo.py`, then `base.py`. `slots.py` is the interface of the pieces.
"""

from __future__ import annotations

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient, PolicyGradient, numbers
from rlviz.algorithms.dapo import DAPO
from rlviz.algorithms.dcpo import DCPO
from rlviz.algorithms.dpo import DPO, DPO_LINEAR
from rlviz.algorithms.dr_grpo import DR_GRPO
from rlviz.algorithms.dupo import DUPO
from rlviz.algorithms.family import Algorithm, Difference, changes, differences, family_table, why
from rlviz.algorithms.formulas import formulas
from rlviz.algorithms.grpo import GRPO, GRPO_PROCESS
from rlviz.algorithms.gspo import GSPO, GSPO_TOKEN
from rlviz.algorithms.listing import show
from rlviz.algorithms.lite_ppo import LITE_PPO
from rlviz.algorithms.ppo import PPO, PPO_PENALTY
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.algorithms.relatives import (
    CISPO,
    DECOUPLED_PPO,
    DISTILLATION,
    DPPO_TV,
    ECHO,
    ENTROPY_BONUS,
    FORKING_TOKENS,
    GDPO,
    GMPO,
    ICE_POP,
    IPO,
    KDRL,
    KL_COV,
    LUSPO,
    MAX_RL,
    OPO,
    ORPO,
    PASS_AT_K,
    PRIME_RL,
    REINFORCE_PP,
    RELATIVES,
    RFT,
    RLOO,
    SAPO,
    SEQUENCE_MASK,
    SIMPO,
    TIS,
    TWO_ENGINES,
    UNBIASED_KL,
    VESPO,
)
from rlviz.algorithms.slots import SLOTS
from rlviz.names import closest
from rlviz.pieces.words import label
from small_models.checks import checked

ALGORITHMS = (PPO, PPO_PENALTY, DPO, GRPO, DR_GRPO, DAPO, LITE_PPO, DUPO, GSPO, GSPO_TOKEN, DCPO)


@checked
def command_name(algorithm: Algorithm) -> str:
    """Return the algorithm's name as typed on the command line: Dr.GRPO → dr-grpo."""
    return algorithm.name.lower().replace(".", "-").replace(" ", "-")


@checked
def find_algorithm(name: str) -> ActorCritic | GroupPolicyGradient | PreferenceOptimization:
    """Return the algorithm or relative with this name, as on the command line or in papers; else raise ValueError with the
    nearest."""
    known = {command_name(algorithm): algorithm for algorithm in (*ALGORITHMS, *RELATIVES)}
    return known[closest("algorithm", name.strip().replace(".", "-").replace(" ", "-").replace("_", "-"), list(known))]
