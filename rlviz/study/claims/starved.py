"""A good path that is rare at first, trained under each upper limit until it is found, with controls and on a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from rlviz.pieces.aggregation import token_mean
from rlviz.study.claim import Panel
from rlviz.study.frames import first_reached, gap, in_words, means, scaled, select
from rlviz.study.trials import FREE, SMALL, UPPER_LIMITS, shipped
from rlviz.study.verdict import Arithmetic, Part, Verdict, judged
from rlviz.tabular import rare_good_action, train_table
from rlviz.training import train
from small_models.evaluation import beginning_logp, evaluate
from small_models.policies import Policy
from small_models.tasks import Chain

CLAIM = "Fixed clipping starves rare tokens: at q = .01, ε = .2 a token's gradient is cut once it has gained .002 on one rollout."
SOURCE = "DAPO, arXiv 2503.14476; DCPO, 2509.02333"
SECONDS = 90
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
    return pd.DataFrame(
        {"setting": setting, "arm": arm, "rollout": range(len(rare)), "rare": rare, "accuracy": accuracy}
    )


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with 16 updates a rollout until the goal; each row is a rollout."""
    task, found = Chain(), []
    prompts, looked_at = task.held_out_prompts[: scaled(256, scale, 16)], scaled(500, scale, 32)
    base = replace(
        SMALL,
        steps=LONGEST,
        group_size=16,
        lr=1e-4,
        lr_warmup_steps=0,
        updates_per_rollout=16,
        minibatches=4,
        seed=seed,
    )
    for setting, (start, limits, changed) in SETTINGS.items():
        settings = replace(base, **changed)
        settings = replace(settings, steps=scaled(settings.steps, scale))
        for name in limits:
            policy = shipped(start)
            algorithm = replace(FREE, aggregate=token_mean, bounds=UPPER_LIMITS[name])
            rare, accuracy = [reasoning(policy, prompts)], [0.0]
            for _ in train(policy, task, algorithm, settings):
                rare.append(reasoning(policy, prompts))
                accuracy.append(evaluate(policy, task, num_prompts=looked_at).accuracy)
                if accuracy[-1] > GOAL:
                    break
            found.append(path(setting, name, rare, accuracy))
    for name, bounds in UPPER_LIMITS.items():
        run = train_table(
            replace(FREE, bounds=bounds), rare_good_action(0.008), steps=scaled(24, scale), groups=16, group_size=16, lr=1.0,
            updates_per_rollout=16, minibatches=4, replicas=scaled(16, scale), seed=seed,
        )  # fmt: skip
        probability = run.probabilities[:, :, 0, 0, 1].mean(0)
        found.append(path(TABLE, name, probability, GOAL + probability - 0.5))
    return pd.concat(found, ignore_index=True)


def to_goal(frame: pd.DataFrame, setting: str) -> pd.DataFrame:
    """Return a row for each arm and seed: rollouts to the goal, all of the setting's where it was not reached."""
    part = select(frame, setting=setting)
    found = first_reached(part, part["accuracy"] > GOAL, "rollout")
    rollouts = found["rollout"].fillna(part["rollout"].max())
    return found.assign(reached=found["rollout"].notna(), rollouts=rollouts)


def growth(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each arm and seed: by what the rare path's probability multiplies in a rollout while it is below .1."""
    found = []
    for (arm, seed), run in select(frame, setting=RARE).groupby(["arm", "seed"], sort=False):
        growing = run[run["rare"] < 0.1]
        slope = np.polyfit(growing["rollout"], np.log(growing["rare"]), 1)[0] if len(growing) > 2 else float("nan")
        found.append({"arm": arm, "seed": seed, "growth": np.exp(slope)})
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the limit 0.2 with wider ones: how many more rollouts does the rare path need?"""
    real, table, common, thin = (to_goal(frame, setting) for setting in (RARE, TABLE, COMMON, THIN))

    def each(found: pd.DataFrame) -> str:
        """Say how many rollouts each arm needed, and how often the goal was not reached."""
        said = {}
        for arm, part in found.groupby("arm", sort=False):
            never = int((~part["reached"]).sum())
            noted = f" ({never} of its seeds never, counted as the last rollout)" if never else ""
            said[str(arm)] = f"{part['rollouts'].mean():.0f}{noted}"
        return in_words(said, "{}")

    needs = "0.2 needs [more|fewer] rollouts than {}"
    first = select(frame, setting=COMMON, rollout=1).groupby("arm", sort=False)["rare"].mean()
    after_one = in_words(first)
    once = select(frame, setting=ONCE).pivot_table(index=["seed", "rollout"], columns="arm", values="rare")
    return judged(
        Part("rollouts more under 0.2 than with no upper limit", gap(real, "rollouts", NARROW, OPEN), SMALLEST).titled(
            "needed", needs, OPEN
        ),
        *(
            Part(f"than under {name}", gap(real, "rollouts", NARROW, name), SMALLEST).titled("needed", needs, name)
            for name in ("0.28", "1.0", "DCPO's")
        ),
        Part("on a table, than with no upper limit", gap(table, "rollouts", NARROW, OPEN), SMALLEST).titled(
            "twin", "on a table " + needs, OPEN
        ),
        Arithmetic(
            "what a token at q = .01 may gain on one rollout before ε = .2 cuts its gradient", [0.2 * 0.01]
        ).titled("course", "at q = .01 a token may gain {} on a rollout before ε = .2 cuts its gradient"),
        f"rollouts to accuracy {GOAL:g}: {each(real)}",
        f"growth of the rare path in a rollout while below .1: {means(growth(frame), 'growth')}",
        f"on a table to ½: {each(table)}",
        f"control: with one update a rollout the two limits' paths differ by {(once[NARROW] - once[OPEN]).abs().max():.1g}",
        f"control: where the path is common: {each(common)}; but after one rollout it is at {after_one}",
        f"with 32 prompts × 8 in place of 16 × 16: {each(thin)}",
    )


def carried_on(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the paths, those that reached the goal and stopped at their last value from there on: means are of all seeds."""
    paths = frame.pivot_table(index="rollout", columns=["arm", "seed"], values="rare", sort=False).sort_index().ffill()
    return paths.stack(["arm", "seed"], future_stack=True).rename("rare").reset_index()


def rare_paths(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the paths under four limits, and as guides how one token alone could grow under ε = .2, and under ε = 1."""
    shown = carried_on(select(frame, setting=RARE, arm=(NARROW, "0.28", "1.0", OPEN)))
    start, last = float(select(shown, rollout=0)["rare"].mean()), int(shown["rollout"].max())
    grown = {f"× {1 + width:g}": start * (1 + width) ** np.arange(last + 1) for width in (0.2, 1.0)}
    guides = [pd.DataFrame({"arm": name, "rollout": range(last + 1), "rare": path}) for name, path in grown.items()]
    return pd.concat([shown, *(guide[guide["rare"] < 0.5] for guide in guides)])


PANELS = [
    [
        Panel("course", "rare", "probability of the rare path", rare_paths, x="rollout", axes={"yscale": "log"}),
        Panel(
            "needed",
            "rollouts",
            f"rollouts to accuracy {GOAL:g}, {LONGEST} where never",
            partial(to_goal, setting=RARE),
            from_zero=True,
        ),
        Panel("twin", "rollouts", "rollouts to ½, on a table", partial(to_goal, setting=TABLE), from_zero=True),
    ]
]
