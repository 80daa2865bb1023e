"""Whose a configuration or script is: by a trainer's class, an entry point (`-m module`, a script, a command), names of options.

Only TRL's and verl's are read. FRAMEWORKS has the others: what starts them, and names of options that neither TRL nor verl has.
A name, module or path is looked up in lower case with `_` for `-`; of a path each part counts, as `open_instruct/grpo_fast.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache
from pathlib import PurePosixPath
from typing import Literal

READ = "rlviz explain reads TRL's GRPOConfig and DPOConfig and verl's options"
ON_PAGE = ("SkyRL", "OpenRLHF", "slime", "prime-rl")  # whose names notebooks/in_your_config.md lists
# name | modules, folders, scripts that start it | commands | options that it has and neither TRL nor verl
FRAMEWORKS = """
SkyRL | skyrl skyrl_train skyrl_agent skyrl_gym | | trainer.algorithm.* trainer.policy.* generator.n_samples_per_prompt generator.sampling_params.*
OpenRLHF | openrlhf | openrlhf | micro_rollout_batch_size remote_rm_url colocate_actor_ref init_kl_coef generate_max_len reward_clip_range algo.advantage.* algo.kl.*
ms-swift | swift ms_swift | swift megatron | rlhf_type train_type tuner_type
NeMo-RL | nemo_rl run_grpo.py run_grpo_*.py run_vlm_grpo.py run_dpo.py | | grpo.* loss_fn.* policy.train_global_batch_size policy.generation.*
slime | slime slime_plugins miles | | rollout_max_response_len rollout_num_gpus num_steps_per_rollout over_sampling_batch_size rm_type ref_load
AReaL | areal arealite realhf | areal | gconfig.* allocation_mode actor.eps_clip
ROLL | roll start_*_pipeline start_*_pipeline.py | | actor_train.* actor_infer.* pg_variant init_kl_coef adv_estimator reward_normalization.* train_env_manager.* custom_envs.*
prime-rl | prime_rl | rl@ | orchestrator.* trainer.loss.* trainer.optim.* max_async_level
open-instruct | open_instruct mason.py grpo_fast.py | | num_samples_per_prompt_rollout num_unique_prompts_rollout dataset_mixer_list
torchtune | torchtune | tune | *._component_ grpo_samples
Trinity-RFT | trinity | trinity | algorithm.algorithm_type buffer.* explorer.* synchronizer.*
EasyR1 | verl.trainer.main | | worker.actor.* worker.rollout.* worker.reward.* data.rollout_batch_size
verifiers | verifiers | vf_rl vf_train |
LLaMA-Factory | llamafactory | llamafactory_cli | pref_beta pref_loss finetuning_type
axolotl | axolotl | axolotl | trl.* sequence_len sample_packing dataset_prepared_path val_set_size
Tunix | tunix | |
trlX | trlx | |
DeepSpeed-Chat | dschat deepspeed_chat | | actor_model_name_or_path num_padding_at_beginning
MindSpeed-RL | mindspeed_rl | | megatron_training.* rl_config.*
RLinf | rlinf | |
PipelineRL | pipelinerl | |
Oat | oat | |
ChatLearn | chatlearn | chatlearn |
Tinker | tinker tinker_cookbook | |
Agent Lightning | agentlightning | agl | agentlightning.*
RAGEN | ragen | | agent_proxy.* es_manager.*
rLLM | rllm | | rllm.*
verl-agent | agent_system | | env.env_name
open-r1 | open_r1 | |
unsloth | unsloth | |
TRL KTOConfig | | | desirable_weight undesirable_weight
TRL PPOConfig | | | num_ppo_epochs cliprange_value vf_coef missing_eos_penalty
TRL RLOOConfig | | | rloo_k normalize_advantages reward_clip_range
TRL CPOConfig | | | cpo_alpha simpo_gamma
"""  # noqa: E501  a row is a line
EXAMPLES = 3  # options that say whose a file is
LONGEST_LAUNCH = 80  # words before what a command starts
# a framework → the library whose names and loss it takes over
BUILDS_ON = {
    "open-r1": "TRL",
    "unsloth": "TRL",
    "rLLM": "verl",
    "verl-agent": "verl",
    "RAGEN": "verl",
    "Agent Lightning": "verl",
}
# words in the names of scripts that run another trainer of TRL
OTHER_TRAINERS = """rloo ppo kto orpo cpo xpo nash bco gkd gold sft reward prm online sdpo sdft gmpo tpo a2po papo minillm
distillation"""
VERL_MODULE = re.compile(r"(verl|recipe|verl_\w+)(\.\w+)*\.(\w*main\w*|train_\w+|run_\w+)")


@dataclass(frozen=True)
class Owner:
    """Whose a file is. evidence: by what that is known. trainer: one that is not read."""

    framework: str
    evidence: str
    trainer: str = ""


@cache
def _rows() -> list[tuple[list[str], list[str], list[str], re.Pattern[str]]]:
    """Return name, modules, commands of each framework, and a pattern of its options."""
    rows = [[cell.split() for cell in row.split("|")] for row in FRAMEWORKS.strip().splitlines()]
    return [(*row[:3], re.compile("|".join(map(translate, row[3])) or "(?!)")) for row in rows]  # type: ignore[misc]


def _framework(column: Literal[1, 2], matches: Callable[[str], bool]) -> str:
    """Return the first framework with an entry that matches, "" where none has."""
    return next((" ".join(row[0]) for row in _rows() if any(map(matches, row[column]))), "")


def _normal(name: str) -> str:
    return name.lower().replace("-", "_")


def refusal(owner: Owner) -> ValueError:
    """Return the error that names whose a file is."""
    listed = "what its names mean stands in notebooks/in_your_config.md (In your config)"
    alike = "its names may be alike, its defaults and formulas are its own"
    words = f": {listed if owner.framework in ON_PAGE else alike}" if owner.framework not in ("TRL", "verl") else ""
    what = f"{owner.framework}'{'' if owner.framework.endswith('s') else 's'} {owner.trainer}".rstrip()
    return ValueError(f"this is {what} ({owner.evidence}), and {READ} alone{words}")


def module_framework(module: str) -> str:
    """Return the framework of a Python module, "" for one of which nothing is known."""
    name = _normal(module)
    root, last = name.partition(".")[0], name.rpartition(".")[2]
    known = _framework(1, lambda entry: entry in (name, root) or ("*" in entry and fnmatchcase(last, entry)))
    return known or ("TRL" if root == "trl" else "verl" if VERL_MODULE.fullmatch(name) else "")


def command_framework(word: str) -> str:
    """Return the framework of a command's name."""
    name = _normal(PurePosixPath(word).name)
    return "TRL" if name == "trl" else _framework(2, lambda entry: entry == name)


def entry_point(words: Sequence[str]) -> tuple[int, str]:
    """Return after which word of a command its options begin, and what it starts: a module, a script, or a command."""
    begin = words[:LONGEST_LAUNCH]
    for position, (word, following) in enumerate(zip(begin, [*begin[1:], ""], strict=False)):
        if word in ("-m", "--module") and re.fullmatch(r"[A-Za-z_][\w.]*", following):
            return position + 2, following
        if re.fullmatch(r"[^=\s]*\w\.py", word):
            return position + 1, word
        if word == "rl" and following == "@":
            return position + 1, "rl@"
        if following and command_framework(word):
            return position + 2 - following.startswith("-"), f"{PurePosixPath(word).name} {following}"
    return 0, ""


def command_owner(words: Sequence[str]) -> Owner | None:
    """Return whose command this is, by what it starts; None where that says nothing."""
    _, entry = entry_point(words)
    evidence = entry
    if entry.endswith(".py"):
        parts = [_normal(part) for part in PurePosixPath(entry).parts]
        name = _framework(1, lambda entry: any(fnmatchcase(part, entry) for part in parts))
    elif " " in entry or entry == "rl@":
        name = command_framework(entry.partition(" ")[0])
    else:
        name, evidence = module_framework(entry), f"-m {entry}"
    other = _other_trainer(entry)
    if other and name in ("", "TRL", "verl"):
        return Owner("verl" if entry.startswith("verl.") else "TRL", evidence, other)
    return Owner(name, evidence) if name else None


def options_owner(names: Iterable[str]) -> Owner | None:
    """Return whose options these are: the framework that has most of them, the first of several; None where none has one."""
    plain = {name.replace("-", "_"): name for name in names}
    most, best = 0, None
    for words, _, _, pattern in _rows():
        named = list(filter(pattern.match, plain))
        if len(named) > most:
            name, trainer = words if words[0] == "TRL" else (" ".join(words), "")
            most, examples = len(named), ", ".join(plain[option].rstrip(".") for option in named[:EXAMPLES])
            best = Owner(name, f"by its option{'s'[: most > 1]} {examples}", trainer)
    return best


def _other_trainer(entry: str) -> str:
    """Return the script of a trainer that is neither GRPO's nor DPO's, "" for any other."""
    if entry.startswith("trl "):
        name = entry.partition(" ")[2]
        return "" if name in ("grpo", "dpo") or name.startswith("-") else name
    stem = PurePosixPath(entry).stem if entry.endswith(".py") else entry.rpartition(".")[2]
    words = set(re.split(r"[_\W]+", stem.lower()))
    is_verl = VERL_MODULE.fullmatch(entry) or "main" in words
    return stem if words & set(OTHER_TRAINERS.split()) and "grpo" not in words and not is_verl else ""
