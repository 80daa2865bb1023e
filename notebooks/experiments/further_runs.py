"""Runs that the lessons speak of and do not show: each is trained with several seeds, and a row a run is written.

    python notebooks/experiments/further_runs.py

writes `further_runs.csv` beside this file. Interrupted, it goes on with the runs that are not in the file.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rlviz import (
    DAPO,
    DCPO,
    DECOUPLED_PPO,
    GRPO,
    GSPO,
    PPO,
    TrainSettings,
    default_settings,
    history,
    learn_reward,
    train,
)
from rlviz.algorithms import PPO_PENALTY, RFT
from rlviz.lessons.credit import gae_advantages
from rlviz.pieces.bounds import FixedBounds, no_bounds
from rlviz.pieces.gae import whiten
from rlviz.pieces.mismatch import capped_weight
from rlviz.pieces.ratios import ratio_to_sampler
from rlviz.pieces.surrogate import clipped_weight, unclipped
from rlviz.training import find_task, reward_model
from small_models.policies import load_policy

FILE = Path(__file__).with_suffix(".csv")
FREE = replace(GRPO, kl=None)  # nothing pulls back to the start


def advantage_with(bug: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return PPO's advantage with this bug in the place of GAE: whitened, and the critic learns A + V, as with GAE."""

    def advantage(rewards: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        A = bug(rewards, values, mask, torch.tensor(1.0), torch.tensor(0.95))
        return whiten(A, mask), (A + values).masked_fill(~mask, 0.0)

    return advantage


def uncut_inside(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """GRPO's objective within the limits, and no gradient beyond them, whichever way the token moved."""
    inside = (ratio >= lower) & (ratio <= upper)
    return torch.where(inside, ratio, ratio.detach()) * advantages


def weight_on(*signs: float, cap: float = 2.0) -> Any:
    """Return GRPO with min(w, cap) on the tokens of responses whose advantage has one of these signs, and 1 on the others."""

    def advantage(rewards: Tensor, mask: Tensor, old_logp: Tensor, sampler_logp: Tensor) -> Tensor:
        A = GRPO.advantage(rewards).unsqueeze(-1)
        w = capped_weight(old_logp, sampler_logp, mask, cap)
        return A * torch.where(torch.isin(A.sign(), torch.tensor(signs)), w, 1.0)

    return replace(FREE, advantage=advantage)


def widths(algorithm: Any, width: float) -> Any:
    return algorithm.with_parameters(eps_low=width, eps_high=width)


open_below = 0.999  # a lower limit of .001, which no ratio reaches
of_gspo = TrainSettings(steps=20, num_prompts=12, lr=1e-4, lr_warmup_steps=5, updates_per_rollout=8)
of_dcpo = replace(of_gspo, prompt_pool=48)
of_the_family = TrainSettings(steps=20, num_prompts=16, group_size=4, lr_warmup_steps=5, updates_per_rollout=4)
of_two_engines = TrainSettings(steps=48, num_prompts=16, sampler_lag=8)
of_areal = replace(of_two_engines, sampler_lag=4, updates_per_rollout=4, minibatches=4)
high = replace(of_gspo, steps=16, lr=3e-4)
of_what_was_learned = TrainSettings(steps=240, num_prompts=16, lr=3e-4)
cispo = replace(FREE, surrogate=clipped_weight)
unlimited = replace(PPO_PENALTY, kl=None, controller=None)
of_reward_hacking = TrainSettings(steps=40, num_prompts=16, lr=5e-4, reset_reference_every=20)
renewed = replace(of_reward_hacking, refresh_reward_every=20)
three = range(3)

# (lesson, what, algorithm, settings, seeds)
RUNS: list[tuple[str, str, Any, TrainSettings, range]] = [
    ("ppo", "PPO", PPO, default_settings(PPO, steps=30), three),
    ("ppo", "PPO, own reward − V", replace(PPO, advantage=advantage_with(gae_advantages.wrong["own reward minus value"])),
     default_settings(PPO, steps=30), three),
    ("ppo", "PPO, padding in the recursion", replace(PPO, advantage=advantage_with(gae_advantages.wrong["padding bootstrapped"])),
     default_settings(PPO, steps=30), three),
    ("ppo", "PPO, λ 0", PPO.with_parameters(lam=0.0), default_settings(PPO, steps=30), three),
    ("ppo", "PPO, λ 1", PPO.with_parameters(lam=1.0), default_settings(PPO, steps=30), three),
    *(
        ("ppo", f"{updates} updates, {what}", algorithm, default_settings(PPO, steps=30, updates_per_rollout=updates), three)
        for updates in (2, 8)
        for what, algorithm in {"clip": replace(PPO, kl=None), "adaptive KL": PPO_PENALTY, "no limit": unlimited}.items()
    ),
    ("gspo", "lr 1e-4, GRPO .2", FREE, of_gspo, three),
    ("gspo", "lr 1e-4, GSPO .0003", GSPO, of_gspo, three),
    ("gspo", "lr 1e-4, GSPO .03", widths(GSPO, 0.03), of_gspo, three),
    ("gspo", "lr 3e-4, GSPO .03", widths(GSPO, 0.03), high, three),
    ("gspo", "lr 3e-4, GRPO .1", widths(FREE, 0.1), high, three),
    ("gspo", "lr 3e-4, GRPO .06", widths(FREE, 0.06), high, three),
    ("gspo", "lr 3e-4, GRPO .01", widths(FREE, 0.01), high, three),
    ("gspo", "lr 3e-4, GRPO .0003", widths(FREE, 0.0003), high, three),
    ("dcpo", "lr 3e-4, GRPO", FREE, replace(of_dcpo, lr=3e-4), three),
    ("dcpo", "lr 3e-4, GRPO, sum over responses", replace(FREE, aggregate=DCPO.aggregate), replace(of_dcpo, lr=3e-4), three),
    ("dcpo", "GRPO", FREE, of_dcpo, range(3, 9)),
    ("dcpo", "DCPO", DCPO, of_dcpo, range(3, 9)),
    ("dcpo", "DAPO", DAPO, of_dcpo, three),
    ("dcpo", "GSPO .0003", GSPO, of_dcpo, three),
    ("dcpo", "GSPO .03", widths(GSPO, 0.03), of_dcpo, three),
    ("reward_hacking", "two rounds, old reward model", GRPO.with_parameters(beta=0.5), of_reward_hacking, three),
    ("reward_hacking", "two rounds, renewed", GRPO.with_parameters(beta=0.5), renewed, three),
    ("reward_hacking", "two rounds, renewed, none replayed", GRPO.with_parameters(beta=0.5), renewed, three),
    ("two_engines", "8 steps old", weight_on(), of_two_engines, three),
    ("two_engines", "8 steps old, weighted", weight_on(-1.0, 1.0), of_two_engines, three),
    ("two_engines", "8 steps old, weighted where A < 0", weight_on(-1.0), of_two_engines, three),
    ("two_engines", "8 steps old, weighted where A > 0", weight_on(1.0), of_two_engines, three),
    ("two_engines", "8 steps old, weighted where A < 0, cap 1", weight_on(-1.0, cap=1.0), of_two_engines, three),
    ("two_engines", "8 steps old, weighted where A > 0, cap 1", weight_on(1.0, cap=1.0), of_two_engines, three),
    ("two_engines", "4 steps old, 4 minibatches, clip to the sampler", replace(FREE, ratio=ratio_to_sampler), of_areal, three),
    ("two_engines", "4 steps old, 4 minibatches, decoupled PPO", DECOUPLED_PPO.without_kl(), of_areal, three),
    ("the_family", "GRPO", FREE, of_the_family, three),
    ("the_family", "no gradient beyond the limits", replace(FREE, surrogate=uncut_inside), of_the_family, three),
    ("the_family", "no clip", replace(FREE, surrogate=unclipped, bounds=no_bounds), of_the_family, three),
    ("the_family", "CISPO, limits .8 and 1.2", cispo, of_the_family, three),
    ("the_family", "CISPO, upper limit 1.2", replace(cispo, bounds=FixedBounds(eps_low=open_below, eps_high=0.2)),
     of_the_family, three),
    ("the_family", "CISPO, upper limit 2", replace(cispo, bounds=FixedBounds(eps_low=open_below, eps_high=1.0)),
     of_the_family, three),
    ("what_did_it_learn", "sort, 240 steps, GRPO", FREE, of_what_was_learned, three),
    ("what_did_it_learn", "sort, 240 steps, RFT", RFT, of_what_was_learned, three),
]  # fmt: skip


def row(lesson: str, what: str, algorithm: Any, settings: TrainSettings, seed: int) -> dict[str, Any]:
    """Train once; return the accuracy on held-out prompts at the end, and the share of tokens clipped over the run."""
    settings = replace(settings, seed=seed, evaluate_every=settings.steps, details_every=0)
    name = "sort" if what.startswith("sort") else "chain"
    task, policy, judge = find_task(name), load_policy(name), {}
    if lesson == "reward_hacking":
        reward_model.REPLAYED = 0.0 if what.endswith("none replayed") else 0.1
        learned = learn_reward(policy, task, seed=seed)
        judge = {"reward_model": learned.model, "pairs": learned.pairs}
    run = history(list(train(policy, task, algorithm, settings, **judge)))
    clipped = run.clip_fraction_low + run.clip_fraction_high + run.clip_fraction_dual
    right = round(float(run.held_out_accuracy.iloc[-1]), 4)
    return {"lesson": lesson, "run": what, "seed": seed, "right": right, "clipped": round(float(clipped.mean()), 4)}


def main() -> None:
    """Train what is missing, and write the file after each run."""
    rows = pd.read_csv(FILE).to_dict("records") if FILE.exists() else []
    done = {(known["lesson"], known["run"], known["seed"]) for known in rows}
    for lesson, what, algorithm, settings, seeds in RUNS:
        for seed in seeds:
            if (lesson, what, seed) not in done:
                rows.append(row(lesson, what, algorithm, settings, seed))
                pd.DataFrame(rows).to_csv(FILE, index=False)


if __name__ == "__main__":
    main()
