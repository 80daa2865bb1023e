"""A good path that is rare at first, trained under each upper limit until it is found, with controls and on a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from rlviz.pieces.aggregation import token_mean
from rlviz.study.effects import Claim, Effect, arithmetic
from rlviz.study.frames import first_reached, gap, in_words, scaled, select
from rlviz.study.trials import FREE, SMALL, UPPER_LIMITS, load_shipped
from rlviz.tabular import rare_good_action, train_table
from rlviz.training import train
from small_models.evaluation import beginning_logp, evaluate
from small_models.policies import Policy
from small_models.tasks import Chain

SAYS = (
    "Fixed clipping starves rare tokens: at q = .01, ε = .2 a token's gradient is cut once it has gained .002 on one "
    "rollout."
)
SOURCE = "DAPO, arXiv 2503.14476; DCPO, 2509.02333"

SMALLEST = 2.0  # rollouts of interest
RARE, ONCE, COMMON, THIN, TABLE = "rare", "one update", "common", "thin batch", "table"
NARROW, OPEN = "0.2", "none above"
# setting → the policy that it starts with, its limits, what is changed in the training
SETTINGS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    RARE: ("chain-rare", tuple(UPPER_LIMITS), {}),
    ONCE: ("chain-rare", (NARROW, OPEN), {"steps": 10, "updates_per_rollout": 1, "minibatches": 1}),
    COMMON: ("chain", (NARROW, OPEN), {"steps": 20}),
    THIN: ("chain-rare", (NARROW, OPEN), {"steps": 50, "num_prompts": 32, "group_size": 8}),
}
LONGEST = 60  # rollouts
GOAL = 0.8  # held-out accuracy at which a run is done; of the table, the probability ½ of the rare action


def reasoning(policy: Policy, prompts: list[str]) -> float:
    """Return the mean probability that the first token is the first running sum, which the prompt's first digit is."""
    return float(beginning_logp(policy, prompts, [prompt[0] for prompt in prompts]).exp().mean())


def path(setting: str, arm: str, rare: Sequence[float], accuracy: Sequence[float]) -> pd.DataFrame:
    """Return a row a rollout, from 0, before the first."""
    columns = {"rollout": range(len(rare)), "rare": rare, "accuracy": accuracy}
    return pd.DataFrame({"setting": setting, "arm": arm, **columns})


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with 16 updates a rollout until the goal; each row is a rollout."""
    task, results = Chain(), []
    prompts, looked_at = task.held_out_prompts[: scaled(256, scale, 16)], scaled(500, scale, 32)
    rollout = replace(SMALL, group_size=16, updates_per_rollout=16, minibatches=4)
    base = replace(rollout, steps=LONGEST, lr=1e-4, lr_warmup_steps=0, seed=seed)
    for setting, (start, limits, changed) in SETTINGS.items():
        settings = replace(base, **changed)
        settings = replace(settings, steps=scaled(settings.steps, scale))
        for name in limits:
            policy = load_shipped(start)
            algorithm = replace(FREE, aggregate=token_mean, bounds=UPPER_LIMITS[name])
            rare, accuracy = [reasoning(policy, prompts)], [0.0]
            for _ in train(policy, task, algorithm, settings):
                rare.append(reasoning(policy, prompts))
                accuracy.append(evaluate(policy, task, num_prompts=looked_at).accuracy or 0.0)
                if accuracy[-1] > GOAL:
                    break
            results.append(path(setting, name, rare, accuracy))
    for name, bounds in UPPER_LIMITS.items():
        run = train_table(
            replace(FREE, bounds=bounds), rare_good_action(0.008), steps=scaled(24, scale), groups=16, group_size=16, lr=1.0,
            updates_per_rollout=16, minibatches=4, replicas=scaled(16, scale), seed=seed,
        )  # fmt: skip
        probability = run.probabilities[:, :, 0, 0, 1].mean(0)
        results.append(path(TABLE, name, probability, GOAL + probability - 0.5))
    return pd.concat(results, ignore_index=True)


def to_goal(frame: pd.DataFrame, setting: str) -> pd.DataFrame:
    """Return a row for each arm and seed: rollouts to the goal, all of the setting's where it was not reached."""
    part = select(frame, setting=setting)
    goal = first_reached(part, part["accuracy"] > GOAL, "rollout")
    rollouts = goal["rollout"].fillna(part["rollout"].max())
    return goal.assign(reached=goal["rollout"].notna(), rollouts=rollouts)


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Compare the limit 0.2 with wider ones: how many more rollouts does the rare path need?"""

    def slower(setting: str, limit: str) -> pd.Series:
        return gap(to_goal(frame, setting), "rollouts", NARROW, limit)

    return [
        Effect("rollouts more under 0.2 than with no upper limit", slower(RARE, OPEN), SMALLEST),
        *(Effect(f"than under {limit}", slower(RARE, limit), SMALLEST) for limit in ("0.28", "1.0", "DCPO's")),
        Effect("on a table, than with no upper limit", slower(TABLE, OPEN), SMALLEST),
        arithmetic("what a token at q = .01 may gain on one rollout before ε = .2 cuts its gradient", [0.2 * 0.01]),
    ]


def numbers(frame: pd.DataFrame) -> list[str]:
    def needed(setting: str) -> str:
        words = {}
        for arm, rows in to_goal(frame, setting).groupby("arm", sort=False):
            never = int((~rows["reached"]).sum())
            noted = f" ({never} of its seeds never, counted as the last rollout)" if never else ""
            words[str(arm)] = f"{rows['rollouts'].mean():.0f}{noted}"
        return in_words(words, "{}")

    paths = select(frame, setting=ONCE).pivot_table(index=["seed", "rollout"], columns="arm", values="rare")
    return [
        f"rollouts to accuracy {GOAL:g}: {needed(RARE)}",
        f"on a table to ½: {needed(TABLE)}",
        f"control: with one update a rollout the two limits' paths differ by {(paths[NARROW] - paths[OPEN]).abs().max():.1g}",
        f"control: where the path is common: {needed(COMMON)}",
        f"with 32 prompts × 8 in place of 16 × 16: {needed(THIN)}",
    ]


CLAIM = Claim("starved", SAYS, SOURCE, seconds=90, trial=trial, effects=effects, numbers=numbers)
