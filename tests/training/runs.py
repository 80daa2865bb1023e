"""Runs as a table, each with what it holds on purpose: a new algorithm, task or part of training is a row here.

`test_laws.py` asks of each what every run obeys; `test_golden.py` compares their numbers with a committed table, by these names.
"""

from dataclasses import replace

import torch

from rlviz import DAPO, DCPO, DPO, GRPO, GSPO, PPO, PPO_PENALTY, TIS
from rlviz.algorithms import DISTILLATION, DUPO, ENTROPY_BONUS, FORKING_TOKENS, GRPO_PROCESS, KL_COV, LITE_PPO
from rlviz.pieces.kl import KLInReward
from rlviz.training import default_settings, find_task, train
from rlviz.training.run_folder import metrics_of
from small_models.pairs import Pair
from small_models.policies import Policy, load_policy
from small_models.scorers import RewardModel

FREE = replace(GRPO, kl=None)
AGAIN = {"updates_per_rollout": 4, "minibatches": 2, "lr": 1e-3}  # π_θ leaves π_old; rows in an order of their own
PAIRS = [Pair("26954=", "28726#6", "#5"), Pair("81937=", "89818#8", "#3"), Pair("35271=", "38078#8", "#4")]
ALONE = {"num_prompts": 8, "group_size": 1}
RUNS = {  # name → algorithm, settings, what else a run begins with
    "GRPO": (GRPO, AGAIN, {}),  # a reference
    "GRPO without KL": (FREE, {}, {}),  # rows that teach nothing leave
    "GRPO, micro-batches": (GRPO, AGAIN | {"micro_batch_tokens": 60}, {}),
    "KL in the reward": (replace(FREE, kl=KLInReward(beta=0.1)), {"updates_per_rollout": 2}, {}),
    "a reference that moves": (GRPO, {"reset_reference_every": 2}, {}),
    "a reference that was given": (DISTILLATION, {"updates_per_rollout": 2}, {"reference": "chain-rare"}),
    "DAPO": (DAPO, AGAIN, {}),  # further rounds of sampling
    "DCPO": (DCPO, {"prompt_pool": 4, **AGAIN}, {}),  # a history of prompts
    "DUPO": (DUPO, {"updates_per_rollout": 2}, {}),  # selects by chance
    "Lite PPO": (LITE_PPO, AGAIN, {}),
    "forking tokens": (FORKING_TOKENS, AGAIN, {}),  # the sampler's entropy
    "an entropy bonus": (ENTROPY_BONUS, AGAIN, {}),
    "chosen tokens": (KL_COV, AGAIN, {}),  # among all of a minibatch
    "GSPO on experts": (GSPO, {"updates_per_rollout": 2}, {"policy": "chain-experts"}),  # routing
    "single steps": (GRPO_PROCESS, {}, {}),
    "PPO": (PPO, ALONE, {}),  # a critic and its optimizer
    "PPO, minibatches": (PPO, ALONE | {"minibatches": 2, "micro_batch_tokens": 40}, {}),
    "PPO, shared critic": (PPO, ALONE | {"critic": "shared", "critic_only_steps": 1}, {}),
    "PPO-Penalty": (PPO_PENALTY, ALONE, {}),  # a KL weight that moves
    "an old sampler": (TIS, {"sampler_lag": 2, "sampler_bits": 4}, {}),  # weights of the steps before
    "a rounded sampler": (TIS, {"sampler_bits": 4}, {}),
    "a hot sampler": (FREE, {"sampler_temperature": 1.3}, {}),
    "top-k and top-p": (FREE, {"top_k": 5, "top_p": 0.9, "temperature": 0.8, "updates_per_rollout": 2}, {}),
    "rare tokens left out": (FREE, {"min_old_prob": 0.05, **AGAIN}, {}),
    "a pool that was filtered": (FREE, {"prompt_pool": 60, "filter_solved": 4}, {}),
    "two rules": (FREE, {"reward_correct": 0.9, "reward_format": 0.1}, {}),
    "a tool": (FREE, AGAIN, {"task": "lookup"}),
    "sentences": (GRPO, AGAIN, {"task": "sentences"}),  # rewards that are numbers, and no right answer
    "PPO on sentences": (PPO, ALONE, {"task": "sentences"}),
    "a learned reward": (FREE, {"refresh_reward_every": 2}, {"judge": True}),
    "PPO, learned reward": (PPO, ALONE, {"judge": True}),
    "LoRA": (FREE, {"lr": 1e-2}, {"policy": "lora"}),
    "bfloat16": (FREE, {"precision": "bfloat16", "updates_per_rollout": 2}, {}),
    "recomputed activations": (GRPO, {"activations": "recomputed"}, {}),
    "transformers' forward": (GRPO, AGAIN, {"path": "transformers"}),
    "DPO": (DPO, {"batch_size": 2}, {"pairs": True}),  # pairs that wait
}


def policy_of(name):
    """Return a fresh policy; lora: the chain policy with an adapter."""
    if name != "lora":
        return load_policy(name, device="cpu")
    import peft

    policy = load_policy("chain", device="cpu")
    torch.manual_seed(1)
    model = peft.get_peft_model(policy.model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    for parameter in (p for name, p in model.named_parameters() if "lora_B" in name):
        torch.nn.init.normal_(parameter, std=0.05)
    return Policy(model, policy.tokenizer, "lora", policy.base)


def begin(name, *, out=None, **changed):
    """Return the run of this name: six steps, evaluated and recorded in full every third, saved every second."""
    algorithm, changes, extras = RUNS[name]
    few = {} if algorithm is DPO else {"num_prompts": 4, "group_size": 4, "details_every": 3, "watch_every": 2}
    often = {"steps": 6, "evaluate_every": 3, "checkpoint_every": 2}
    settings = default_settings(algorithm, **{**often, **few, **changes, **changed})
    task = find_task(extras.get("task", "chain"))
    policy = policy_of(extras.get("policy", task.name))
    more = {"reference": extras["reference"]} if "reference" in extras else {}
    if "judge" in extras:
        more["reward_model"] = RewardModel.from_policy(policy)
        torch.manual_seed(1)  # of a new one all scores are 0, and what a step makes of that is rounding
        torch.nn.init.normal_(more["reward_model"].scorer.head.weight, std=0.5)
    if "judge" in extras or "pairs" in extras:
        more["pairs"] = PAIRS
    policy = policy.on_transformers() if extras.get("path") == "transformers" else policy
    return train(policy, task, algorithm, settings, out=out, **more)


def numbers(record):
    """Return all that a record says of its step but its groups, but for what a clock says."""
    return {name: value for name, value in metrics_of(record).items() if name != "seconds"}


def groups(record):
    """Return what a record holds of its groups; of pairs it is nothing."""
    return getattr(record, "groups", ())
