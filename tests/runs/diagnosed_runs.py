"""Trains the runs on which the rules of `diagnose` are tested: `python tests/runs/diagnosed_runs.py [NAME …]`.

Each is a real run with a setting that is wrong, or sound. What it measured is kept in diagnosed_runs.json.gz, since training them
takes minutes: name → settings, and the columns of its history to five digits.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from rlviz import DAPO, DPO, DPO_LINEAR, GRPO, GSPO, PPO, PairSettings, TrainSettings, history, learn_reward, train
from rlviz.pieces.bounds import FixedBounds, no_bounds
from rlviz.pieces.kl import KLToOld, k1
from rlviz.pieces.surrogate import unclipped
from rlviz.training import default_settings, find_task, load_policy
from rlviz.training.files import whole_file
from small_models.pairs import make_pairs

FILE = Path(__file__).with_suffix(".json.gz")
FREE = replace(GRPO, kl=None)
SMALL = TrainSettings(num_prompts=16, steps=40, details_every=0, details_groups=1)


def _judge(policy: Any, task: Any) -> Mapping[str, Any]:
    learned = learn_reward(policy, task, steps=60, seed=1)
    return {"reward_model": learned.model, "pairs": learned.pairs}


def _better_worse(policy: Any, task: Any) -> Mapping[str, Any]:
    return {"pairs": make_pairs(policy, task, 1000, seed=1, kind="better_worse")}


@dataclass(frozen=True)
class Plan:
    """A run to train. extras: what `train` gets beside the settings. stop_after: steps after which it is left, all by default."""

    task: str
    algorithm: Any
    settings: Any
    policy: str | None = None
    extras: Callable[[Any, Any], Mapping[str, Any]] = lambda policy, task: {}
    stop_after: int | None = None

    def records(self) -> list[Any]:
        """Train, and return the records; a number that is not finite ends the run."""
        task = find_task(self.task)
        policy = load_policy(self.policy or task.name, device="cpu")
        records: list[Any] = []
        run = train(policy, task, self.algorithm, self.settings, **self.extras(policy, task))
        try:
            for record in islice(run, self.stop_after):
                records.append(record)
        except FloatingPointError as error:
            print(f"  ended by itself: {error}")
        return records


def small(**changed: Any) -> TrainSettings:
    return replace(SMALL, **changed)


def within(eps_low: float, eps_high: float) -> Any:
    return replace(FREE, bounds=FixedBounds(eps_low=eps_low, eps_high=eps_high))


TO_OLD = replace(GRPO, kl=KLToOld(beta=0.001, estimator=k1))
UNLIMITED = replace(FREE, bounds=no_bounds, surrogate=unclipped)
PLANS = {
    "sound": Plan("chain", FREE, TrainSettings(steps=60, seed=1, details_every=0, details_groups=1)),
    "sound, 4 updates": Plan("sort", FREE, small(updates_per_rollout=4, seed=2)),
    "sound, with KL": Plan("chain", GRPO, small(seed=3)),
    "sound PPO": Plan("chain", PPO, default_settings(PPO, steps=30, seed=4, details_every=0, details_groups=1)),
    "sound DPO": Plan("chain", DPO, PairSettings(steps=120, num_pairs=800, seed=5)),
    "sound DAPO": Plan("ramble", DAPO, small(steps=50, seed=6)),
    "lr x 100": Plan("chain", FREE, small(lr=3e-2, seed=7)),
    "lr x 5, 8 updates": Plan("chain", FREE, small(lr=1.5e-3, updates_per_rollout=8, seed=8)),
    "lr / 300": Plan("chain", FREE, small(lr=1e-6, seed=9)),
    "another task's policy": Plan("chain", FREE, small(steps=25, seed=10), policy="sort"),
    "learned judge": Plan("chain", FREE, small(steps=50, lr=5e-4, seed=11), extras=_judge),
    "format alone pays": Plan(
        "chain", FREE, small(reward_format=1.0, reward_correct=0.0, lr=2e-4, seed=12), policy="ramble"
    ),
    "leash": Plan("chain", GRPO.with_parameters(beta=20.0), small(seed=13)),
    "leash of 0.5": Plan("chain", GRPO.with_parameters(beta=0.5), small(lr=1e-3, steps=30, seed=40)),
    "G = 2": Plan("trip", FREE, small(group_size=2, num_prompts=128, seed=14)),
    "cut off": Plan("lookup", FREE, small(max_new_tokens=8, seed=15)),
    "hot": Plan("chain", FREE, small(temperature=2.0, seed=16)),
    "cold": Plan("trip", FREE, small(temperature=0.4, seed=17)),
    "few prompts": Plan("sort", FREE, small(steps=80, prompt_pool=16, seed=18)),
    "DPO, lr x 10": Plan("chain", DPO, PairSettings(steps=120, lr=3e-3, num_pairs=800, seed=19)),
    "DPO, both reason": Plan("chain", DPO, PairSettings(steps=120, num_pairs=1000, seed=20), extras=_better_worse),
    "16 updates, lr x 3": Plan("chain", FREE, small(lr=1e-3, updates_per_rollout=16, seed=22)),
    "GSPO with experts": Plan("chain", GSPO, small(updates_per_rollout=4, steps=30, seed=23), policy="chain-experts"),
    "GSPO, wide limits": Plan(
        "chain", GSPO.with_parameters(eps_low=0.2, eps_high=0.2), small(updates_per_rollout=4, steps=25, seed=41)
    ),
    "many rounds": Plan("trip", DAPO, small(group_size=2, steps=30, seed=24)),
    "top-p, KL to old": Plan("chain", TO_OLD, small(steps=20, top_p=0.7, lr=1e-4, updates_per_rollout=2, seed=25)),
    "narrow limits": Plan("chain", within(0.002, 0.002), small(updates_per_rollout=8, steps=20, seed=33)),
    "narrow below": Plan("chain", within(0.02, 0.9), small(updates_per_rollout=8, steps=25, seed=34)),
    "experts, 8 updates": Plan("chain", FREE, small(updates_per_rollout=8, steps=25, seed=35), policy="chain-experts"),
    "warm samples": Plan("chain", FREE, small(temperature=1.5, seed=36)),
    "no limits": Plan("chain", UNLIMITED, small(lr=1e-3, updates_per_rollout=16, seed=37)),
    "8 updates": Plan("chain", FREE, small(updates_per_rollout=8, steps=25, seed=26)),
    "narrow above": Plan("chain", within(0.9, 0.02), small(updates_per_rollout=4, steps=25, seed=27)),
    "never evaluated": Plan("chain", FREE, small(steps=20, evaluate_every=0, seed=28)),
    "stopped": Plan("chain", FREE, small(steps=60, seed=29), stop_after=25),
    "long warm-up": Plan("chain", FREE, small(steps=20, lr_warmup_steps=200, seed=30)),
    "trip, lr x 7": Plan("trip", FREE, small(steps=60, lr=2e-3, seed=31)),
    "few pairs": Plan("chain", DPO, PairSettings(steps=150, lr=1e-3, num_pairs=128, seed=39)),
    "old sampler": Plan("chain", FREE, small(sampler_lag=8, seed=42)),
    "rough sampler": Plan("chain", FREE, small(sampler_bits=5, sampler_lag=1, seed=43)),
    "rough, lr x 10": Plan("chain", FREE, small(sampler_bits=5, lr=3e-3, seed=44)),
    "DPO, linear": Plan("chain", DPO_LINEAR, PairSettings(steps=80, num_pairs=800, seed=32)),
}


def columns_of(records: list[Any]) -> dict[str, list[float | None]]:
    """Return the history's columns to five digits."""
    frame = history(records).drop(columns=["seconds"]).apply(pd.to_numeric)
    return {str(name): [None if pd.isna(value) else float(f"{value:.5g}") for value in frame[name]] for name in frame}


def read() -> dict[str, Any]:
    """Return what is kept of the runs."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


def train_and_keep(file: Path, plans: Mapping[str, Any], make: Callable[[Any], Any]) -> None:
    """Train the plans that the command names, or all, and keep what make(plan) gives in the file, in the plans' order."""
    runs = json.loads(gzip.decompress(file.read_bytes())) if file.exists() else {}
    for name in sys.argv[1:] or plans:
        print(name, flush=True)
        runs[name] = make(plans[name])
        text = json.dumps({plan: runs[plan] for plan in plans if plan in runs}, separators=(",", ":"))
        with whole_file(file) as temporary:
            temporary.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    train_and_keep(FILE, PLANS, lambda plan: {"settings": asdict(plan.settings), "columns": columns_of(plan.records())})
