"""How often `diagnose` is right: runs whose faults are known by construction, trained with seeds that nothing else uses.

`python tests/benchmarks/bench_diagnosis.py --out FOLDER` trains the first set of runs (about two minutes), diagnoses each and
prints hits, misses and false alarms; `--set second` and `--set third` are others. Settings and what an expert would say were
written down before any of their runs was diagnosed: those of the first set before the thresholds of the rules (but for "too
hot", to which a rule of its own came later). A run's folder is kept, so that a second call only diagnoses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlviz import (
    DAPO,
    DCPO,
    DPO,
    DUPO,
    GRPO,
    GSPO,
    PPO,
    SAPO,
    PairSettings,
    TrainSettings,
    diagnose,
    learn_reward,
    train,
)
from rlviz.training import default_settings, find_task, load_policy
from rlviz.training.files import write_text

FREE = replace(GRPO, kl=None)


def _learned(policy: Any, task: Any, seed: int) -> dict[str, Any]:
    learned = learn_reward(policy, task, steps=60, seed=seed)
    return {"reward_model": learned.model, "pairs": learned.pairs}


def _nothing(policy: Any, task: Any, seed: int) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Case:
    """A run, what an expert says of it (must), and what nobody would call wrong of it (may): names of rules.

    why: the expert's reason, in words.
    """

    task: str
    algorithm: Any
    settings: Any
    must: frozenset[str]
    may: frozenset[str]
    why: str
    policy: str | None = None
    given: Callable[..., dict[str, Any]] = field(default=_nothing)


def case(task: str, algorithm: Any, settings: Any, must: str, may: str, why: str, **more: Any) -> Case:
    return Case(task, algorithm, settings, frozenset(must.split()), frozenset(may.split()), why, **more)


BY_CONSTRUCTION = "ratio_one loss_zero"  # one update, advantages of mean 0, every response weighs the same
FIRST = {
    "sound grpo": case(
        "chain",
        FREE,
        TrainSettings(steps=80, seed=101),
        BY_CONSTRUCTION,
        "still_rising length_grew solved",
        "The defaults. One update: ratio 1, loss 0. It learns.",
    ),
    "lr x 100": case(
        "chain",
        FREE,
        TrainSettings(steps=50, lr=3e-2, seed=102),
        "broken",
        f"{BY_CONSTRUCTION} entropy_rose entropy_gone no_reward gradient_grew truncated dead_groups",
        "A hundred times the learning rate: the policy is destroyed, accuracy falls to nothing.",
    ),
    "lr / 300": case(
        "chain",
        FREE,
        TrainSettings(steps=60, lr=1e-6, seed=103),
        f"no_learning {BY_CONSTRUCTION}",
        "",
        "The learning rate is so small that nothing moves.",
    ),
    "sound sort, 4 updates": case(
        "sort",
        FREE,
        TrainSettings(steps=60, updates_per_rollout=4, seed=104),
        "",
        "still_rising clipped_low_side clipped_high_side solved loss_zero",
        "Four updates at a sound learning rate: it learns, a few tokens clip.",
    ),
    "pairs for groups": case(
        "trip",
        FREE,
        TrainSettings(steps=60, group_size=2, num_prompts=128, seed=105),
        f"dead_groups {BY_CONSTRUCTION}",
        "still_rising",
        "Two responses a group: most groups are both right or both wrong.",
    ),
    "hacked judge": case(
        "chain",
        FREE,
        TrainSettings(steps=60, num_prompts=16, lr=5e-4, seed=106),
        f"hacked judge_lost {BY_CONSTRUCTION}",
        "length_grew length_fell entropy_rose entropy_gone broken",
        "A learned judge, no leash: its score rises, accuracy falls.",
        given=_learned,
    ),
    "cut off": case(
        "lookup",
        FREE,
        TrainSettings(steps=50, max_new_tokens=8, seed=107),
        f"truncated {BY_CONSTRUCTION}",
        "dead_groups no_learning still_rising solved length_fell",
        "8 tokens, where two look-ups and an answer take 13.",
    ),
    "sound ppo": case(
        "chain",
        PPO,
        default_settings(PPO, steps=40, seed=108),
        "",
        "critic_blind still_rising length_grew clipped_low_side clipped_high_side",
        "PPO's defaults: it learns, though on chain its critic explains little.",
    ),
    "sound dpo": case(
        "chain",
        DPO,
        PairSettings(steps=200, seed=109),
        "",
        "chosen_fell pairs_spent",
        "DPO's defaults: right against wrong responses; accuracy rises.",
    ),
    "sound dapo": case(
        "ramble",
        DAPO,
        TrainSettings(steps=60, seed=110),
        "ratio_one",
        "length_fell still_rising many_rounds solved",
        "DAPO's overlong punishment: filler goes. The loss is not 0 where every token weighs the same.",
    ),
    "another task's policy": case(
        "chain",
        FREE,
        TrainSettings(steps=40, seed=111),
        f"no_reward {BY_CONSTRUCTION}",
        "truncated no_learning dead_groups",
        "A policy that learned to sort has never seen an answer to chain: no reward, so no gradient.",
        policy="sort",
    ),
    "too hot": case(
        "chain",
        FREE,
        TrainSettings(steps=60, temperature=2.0, seed=112),
        f"noisy_samples {BY_CONSTRUCTION}",
        "sampled_worse truncated still_rising dead_groups",
        "Sampled at temperature 2: most responses are noise, the policy itself is better.",
    ),
}
SECOND = {
    "sound dcpo on a rare path": case(
        "chain",
        DCPO,
        TrainSettings(
            steps=30, group_size=16, num_prompts=16, updates_per_rollout=16, minibatches=4, lr=1e-4, seed=201
        ),
        "",
        "still_rising length_grew clipped_low_side clipped_high_side solved loss_zero",
        "The lesson's rare path: it is found and taken.",
        policy="chain-rare",
    ),
    "sound dupo": case(
        "lookup",
        DUPO,
        TrainSettings(steps=50, seed=202),
        "ratio_one",
        "still_rising solved length_grew many_rounds",
        "The tool task with its sound defaults.",
    ),
    "gspo, limits of tokens": case(
        "chain",
        GSPO,
        TrainSettings(steps=40, updates_per_rollout=4, seed=203),
        "clipped_sequences",
        "still_rising solved length_grew routing clipped_low_side clipped_high_side loss_zero",
        "GSPO's limits, made for long answers, cut most short ones: usual, and it learns.",
        policy="chain-experts",
    ),
    "leash too short": case(
        "chain",
        GRPO.with_parameters(beta=20.0),
        TrainSettings(steps=60, seed=204),
        "leash ratio_one",
        "loss_is_kl loss_zero gradient_grew",
        "A KL weight of 20: the policy may not leave its start.",
    ),
    "too many updates": case(
        "chain",
        FREE,
        TrainSettings(steps=60, updates_per_rollout=16, lr=2e-3, seed=205),
        "broken",
        "entropy_rose clipped_often ratios_far "
        "clipped_low_side clipped_high_side gradient_grew entropy_gone dead_groups truncated no_reward",
        "Sixteen updates at seven times the learning rate: the policy breaks, clip or no clip.",
    ),
    "dpo, lr x 10": case(
        "chain",
        DPO,
        PairSettings(steps=200, lr=5e-3, seed=206),
        "overdone",
        "chosen_fell pairs_spent gradient_grew",
        "The margin goes on growing while the answers get worse.",
    ),
    "cold": case(
        "trip",
        FREE,
        TrainSettings(steps=60, temperature=0.4, seed=207),
        f"sampled_better {BY_CONSTRUCTION}",
        "dead_groups solved still_rising entropy_gone",
        "Sampled at temperature .4: what is rewarded is not what is evaluated.",
    ),
    "few prompts": case(
        "sort",
        FREE,
        TrainSettings(steps=80, prompt_pool=32, seed=208),
        f"sampled_better {BY_CONSTRUCTION}",
        "still_rising solved",
        "32 prompts, again and again: it learns them by heart.",
    ),
}
THIRD = {
    "ppo, lr x 30": case(
        "chain",
        PPO,
        default_settings(PPO, steps=40, lr=1e-2, seed=401),
        "broken",
        "critic_blind entropy_rose entropy_gone clipped_often ratios_far truncated clipped_low_side clipped_high_side no_reward",
        "Thirty times the learning rate breaks PPO, too.",
    ),
    "cut off at 4": case(
        "chain",
        DAPO,
        TrainSettings(steps=40, max_new_tokens=5, num_prompts=16, seed=402),
        "truncated ratio_one",
        "many_rounds dead_groups no_learning still_rising length_fell loss_zero solved",
        "Five tokens: a direct guess fits, a running sum does not.",
    ),
    "reward upside down": case(
        "chain",
        FREE,
        TrainSettings(steps=60, reward_correct=-1.0, seed=403),
        f"hacked {BY_CONSTRUCTION}",
        "dead_groups length_fell length_grew entropy_gone",
        "Right answers are punished: reward rises, accuracy falls.",
    ),
    "lookup by chain's policy": case(
        "lookup",
        FREE,
        TrainSettings(steps=30, seed=404),
        f"{BY_CONSTRUCTION}",
        "no_reward truncated dead_groups no_learning noisy_samples",
        "A policy of another task: hardly ever right.",
        policy="chain",
    ),
    "dcpo, lr / 300": case(
        "sort",
        DCPO,
        TrainSettings(steps=60, lr=1e-6, seed=405),
        "no_learning ratio_one",
        "loss_zero",
        "Nothing moves, whatever the limits.",
    ),
    "rare path, pairs": case(
        "chain",
        FREE,
        TrainSettings(steps=40, group_size=2, num_prompts=64, seed=406),
        f"dead_groups {BY_CONSTRUCTION}",
        "no_learning still_rising",
        "One in ten is right, two to a group: four of five groups are dead.",
        policy="chain-rare",
    ),
    "top-p": case(
        "trip",
        FREE,
        TrainSettings(steps=60, top_p=0.5, updates_per_rollout=4, num_prompts=16, seed=407),
        "sampled_better",
        "solved dead_groups clipped_low_side clipped_high_side still_rising entropy_gone",
        "Half of the mass is never sampled, and the evaluation samples it.",
    ),
    "32 pairs": case(
        "chain",
        DPO,
        PairSettings(steps=200, lr=1e-3, num_pairs=64, seed=408),
        "pairs_spent",
        "chosen_fell overdone",
        "Sixty-four pairs are learned by heart.",
    ),
    "judge, refreshed": case(
        "chain",
        GRPO.with_parameters(beta=0.1),
        TrainSettings(steps=60, num_prompts=16, lr=3e-4, refresh_reward_every=8, seed=409),
        "ratio_one",
        "judge_lost loss_is_kl loss_zero length_grew",
        "A leash and a judge that learns on: accuracy holds or rises.",
        given=_learned,
    ),
    "sound sapo": case(
        "ramble",
        SAPO,
        TrainSettings(steps=50, updates_per_rollout=4, num_prompts=16, seed=410),
        "",
        "still_rising length_grew length_fell solved",
        "A relative without hard limits at sound settings.",
    ),
    "long warm-up": case(
        "sort",
        FREE,
        TrainSettings(steps=60, lr_warmup_steps=600, num_prompts=16, seed=411),
        f"warming_up {BY_CONSTRUCTION}",
        "still_rising no_learning",
        "The learning rate has reached a tenth of its peak.",
    ),
    "sound ppo on trip": case(
        "trip",
        PPO,
        default_settings(PPO, steps=40, seed=412),
        "",
        "critic_blind still_rising clipped_low_side clipped_high_side",
        "PPO's defaults on another task.",
    ),
}
SETS = {"first": FIRST, "second": SECOND, "third": THIRD}


def trained(folder: Path, one: Case) -> None:
    """Train a case into a folder; a number that is not finite ends it, as it would end anybody's run."""
    task = find_task(one.task)
    policy = load_policy(one.policy or task.name, device="cpu")
    run = train(policy, task, one.algorithm, one.settings, out=folder, **one.given(policy, task, one.settings.seed))
    try:
        for _ in run:
            pass
    except FloatingPointError as error:
        print(f"  {error}")


def main() -> None:
    """Train what is missing, diagnose all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--set", choices=SETS, default="first", help="which runs")
    given = parser.parse_args()
    lines = ["run | hits | misses | false alarms", "--- | --- | --- | ---"]
    for name, one in SETS[given.set].items():
        folder = given.out / name.replace(" ", "-").replace("/", "by").replace(",", "")
        if not (folder / "config.json").exists():
            trained(folder, one)
        said = {finding.rule for finding in diagnose(folder)}
        parts = said & one.must, one.must - said, said - one.must - one.may
        lines.append(" | ".join([name, *(", ".join(sorted(part)) or "–" for part in parts)]))
        print(lines[-1], flush=True)
    write_text(given.out / f"{given.set}.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
