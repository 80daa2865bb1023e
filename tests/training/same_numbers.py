"""Whether training still gives the numbers that it gave: fingerprints of runs, kept in same_numbers.json, on this machine's CPU.

    python tests/training/same_numbers.py          compares; exits with 1 and the first step that differs
    python tests/training/same_numbers.py --keep   writes the file anew

A run's fingerprint is that of each step's record (but for the clock's seconds), of its recorded groups with their tokens, and of
the weights at its end; and of a run that was cut off after three steps and went on.
"""

import hashlib
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from rlviz import DAPO, DCPO, DPO, GRPO, GSPO, PPO, PPO_PENALTY, TIS
from rlviz.algorithms import DISTILLATION, DUPO, ENTROPY_BONUS, FORKING_TOKENS, GRPO_PROCESS, KL_COV, LITE_PPO
from rlviz.pieces.kl import KLInReward
from rlviz.training import default_settings, find_task, resume, train
from rlviz.training.run_folder import metrics_of
from small_models.pairs import Pair
from small_models.policies import Policy, load_policy
from small_models.scorers import RewardModel, Scorer

FILE = Path(__file__).with_suffix(".json")
FREE = replace(GRPO, kl=None)
AGAIN = {"updates_per_rollout": 4, "minibatches": 2, "lr": 1e-3}
PAIRS = [Pair("26954=", "28726#6", "#5"), Pair("81937=", "89818#8", "#3"), Pair("35271=", "38078#8", "#4")]
PPO_SIZE = {"num_prompts": 8, "group_size": 1}
RUNS = {  # name → algorithm, settings, what else a run begins with
    "GRPO": (GRPO, AGAIN, {}),
    "GRPO without KL": (FREE, {}, {}),
    "GRPO, micro-batches": (GRPO, AGAIN | {"micro_batch_tokens": 60}, {}),
    "KL in the reward": (replace(FREE, kl=KLInReward(beta=0.1)), {"updates_per_rollout": 2}, {}),
    "a reference that moves": (GRPO, {"reset_reference_every": 2}, {}),
    "a reference that was given": (DISTILLATION, {"updates_per_rollout": 2}, {"reference": "chain"}),
    "DAPO": (DAPO, AGAIN, {}),
    "DCPO": (DCPO, {"prompt_pool": 4, **AGAIN}, {}),
    "DUPO": (DUPO, {"updates_per_rollout": 2}, {}),
    "Lite PPO": (LITE_PPO, AGAIN, {}),
    "forking tokens": (FORKING_TOKENS, AGAIN, {}),
    "an entropy bonus": (ENTROPY_BONUS, AGAIN, {}),
    "chosen tokens": (KL_COV, AGAIN, {}),
    "GSPO on experts": (GSPO, {"updates_per_rollout": 2}, {"policy": "chain-experts"}),
    "single steps": (GRPO_PROCESS, {}, {}),
    "PPO": (PPO, PPO_SIZE, {}),
    "PPO, minibatches": (PPO, PPO_SIZE | {"minibatches": 2, "micro_batch_tokens": 40}, {}),
    "PPO, shared critic": (PPO, PPO_SIZE | {"critic": "shared", "critic_only_steps": 1}, {}),
    "PPO-Penalty": (PPO_PENALTY, PPO_SIZE, {}),
    "an old sampler": (TIS, {"sampler_lag": 2, "sampler_bits": 4}, {}),
    "a rounded sampler": (TIS, {"sampler_bits": 4}, {}),
    "a hot sampler": (FREE, {"sampler_temperature": 1.3}, {}),
    "top-k and top-p": (FREE, {"top_k": 5, "top_p": 0.9, "temperature": 0.8, "updates_per_rollout": 2}, {}),
    "rare tokens left out": (FREE, {"min_old_prob": 0.05, **AGAIN}, {}),
    "a pool that was filtered": (FREE, {"prompt_pool": 60, "filter_solved": 4}, {}),
    "two rules": (FREE, {"reward_correct": 0.9, "reward_format": 0.1}, {}),
    "a tool": (FREE, AGAIN, {"task": "lookup"}),
    "a learned reward": (FREE, {"refresh_reward_every": 2}, {"judge": True}),
    "PPO, learned reward": (PPO, PPO_SIZE, {"judge": True}),
    "LoRA": (FREE, {"lr": 1e-2}, {"policy": "lora"}),
    "bfloat16": (FREE, {"precision": "bfloat16", "updates_per_rollout": 2}, {}),
    "recomputed activations": (GRPO, {"activations": "recomputed"}, {}),
    "DPO": (DPO, {"batch_size": 2}, {"pairs": True}),
}


def policy_of(name: str) -> Policy:
    """Return a fresh policy; lora: the chain policy with an adapter."""
    if name != "lora":
        return load_policy(name, device="cpu")
    import peft

    policy = load_policy("chain", device="cpu")
    torch.manual_seed(1)
    model = peft.get_peft_model(policy.model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    for parameter in (p for name, p in model.named_parameters() if "lora_B" in name):
        torch.nn.init.normal_(parameter, std=0.05)
    return Policy(model, policy.tokenizer, "lora")


def begin(name: str, out: Path | None = None):
    """Return the run of this name."""
    algorithm, own, given = RUNS[name]
    few = {"num_prompts": 4, "group_size": 4} if algorithm is not DPO else {}
    often = {"details_every": 3, "watch_every": 2} if algorithm is not DPO else {}
    settings = default_settings(
        algorithm, **{"steps": 6, "evaluate_every": 3, "checkpoint_every": 2, **few, **often, **own}
    )
    task = find_task(given.get("task", "chain"))
    policy = policy_of(given.get("policy", task.name))
    more = {"reference": given["reference"]} if "reference" in given else {}
    if "judge" in given:
        more |= {"reward_model": RewardModel(Scorer.of(policy), policy.tokenizer)}
    if "judge" in given or "pairs" in given:
        more |= {"pairs": PAIRS}
    return train(policy, task, algorithm, settings, out=out, **more)


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def numbers(record) -> str:
    return digest(repr([(name, value) for name, value in sorted(metrics_of(record).items()) if name != "seconds"]))


def weights(run) -> str:
    return digest(b"".join(tensor.detach().numpy().tobytes() for tensor in run.policy.weights.state_dict().values()))


def fingerprint(name: str) -> dict[str, object]:
    """Return what the run of this name gives, whole and gone on with."""
    with tempfile.TemporaryDirectory() as folder:
        whole = begin(name)
        records = list(whole)
        cut = begin(name, Path(folder) / "run")
        for _ in range(3):
            next(cut)
        again = resume(Path(folder) / "run", device="cpu")
        later = list(again)
        return {
            "steps": [numbers(record) for record in records],
            "groups": [digest(repr(record.groups)) if hasattr(record, "groups") else "" for record in records],
            "weights": weights(whole),
            "resumed": [numbers(record) for record in later[-3:]],  # a slow run saves its third step too
            "resumed weights": weights(again),
        }


def main() -> int:
    torch.set_num_threads(1)
    wanted = [name for name in sys.argv[1:] if not name.startswith("--")] or list(RUNS)
    found = {}
    kept = {} if "--keep" in sys.argv else json.loads(FILE.read_text())
    wrong = 0
    for name in wanted:
        found[name] = fingerprint(name)
        if kept:
            other = [part for part, value in found[name].items() if value != kept[name][part]]
            steps = [
                i + 1 for i, (a, b) in enumerate(zip(found[name]["steps"], kept[name]["steps"], strict=True)) if a != b
            ]
            wrong += bool(other)
            print(f"{name:28} {'the same' if not other else f'{other} differ, from step {steps[:1]}'}", flush=True)
        elif found[name]["steps"][-3:] != found[name]["resumed"]:
            print(f"{name}: a resumed run is another one", flush=True)
    if not kept:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
