"""Claim 1: a fixed upper limit starves rare tokens. A good path that is rare at first, under each limit, with controls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from rlviz.experiments.base import Experiment, Part, Verdict, judged, means, scaled
from rlviz.experiments.runs import FREE, UPPER_LIMITS, copy_of, shipped
from rlviz.pieces.aggregation import token_mean
from rlviz.runs.arms import from_zero, panels, plot_arms, plot_course
from rlviz.tabular import rare_good_action, train_table
from rlviz.training import TrainSettings, train
from small_models.evaluation import evaluate
from small_models.policies import Policy
from small_models.sampling import encode_prompts, encode_responses, response_logits, token_logp
from small_models.tasks import Chain

RARE, ONCE, COMMON, THIN, TABLE = "rare", "one update", "common", "thin batch", "table"
NARROW, OPEN = "0.2", "none above"
# setting → the policy that it starts with, its limits, what is changed in the training
SETTINGS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    RARE: ("chain-rare", tuple(UPPER_LIMITS), {}),
    ONCE: ("chain-rare", (NARROW, OPEN), {"steps": 10, "updates_per_rollout": 1, "minibatches": 1}),
    COMMON: ("chain", (NARROW, OPEN), {"steps": 20}),
    THIN: ("chain-rare", (NARROW, OPEN), {"steps": 50, "num_prompts": 32, "group_size": 8}),
}
GOAL = 0.8  # held-out accuracy at which a run is done; of the table, the probability ½ of the rare action


def reasoning(policy: Policy, prompts: list[str]) -> float:
    """Return the mean probability that the first token is the first running sum, which the prompt's first digit is."""
    ids, mask = encode_prompts(policy, prompts)
    first = encode_responses(policy, [prompt[0] for prompt in prompts])[0][..., :1]
    with torch.no_grad():
        return float(token_logp(response_logits(policy, ids, mask, first), first).exp().mean())


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train with 16 updates a rollout until the goal; each row is a rollout."""
    task, found = Chain(), []
    prompts = task.held_out_prompts[:256]
    base = TrainSettings(
        steps=60, num_prompts=16, group_size=16, lr=1e-4, lr_warmup_steps=0, updates_per_rollout=16, minibatches=4,
        evaluate_every=0, details_every=0, details_groups=1, seed=seed,
    )  # fmt: skip
    for setting, (start, limits, changed) in SETTINGS.items():
        settings = replace(base, **changed)
        settings = replace(settings, steps=scaled(settings.steps, scale))
        for name in limits:
            policy = copy_of(shipped(start))
            algorithm = replace(FREE, aggregate=token_mean, bounds=UPPER_LIMITS[name])
            found.append(
                {"setting": setting, "arm": name, "rollout": 0, "rare": reasoning(policy, prompts), "accuracy": 0.0}
            )
            for record in train(policy, task, algorithm, settings):
                accuracy, rare = evaluate(policy, task, num_prompts=500).accuracy, reasoning(policy, prompts)
                found.append(
                    {"setting": setting, "arm": name, "rollout": record.step, "rare": rare, "accuracy": accuracy}
                )
                if accuracy > GOAL:
                    break
    for name in UPPER_LIMITS:
        run = train_table(
            replace(FREE, bounds=UPPER_LIMITS[name]), rare_good_action(0.008), steps=24, groups=16, group_size=16, lr=1.0,
            updates_per_rollout=16, minibatches=4, replicas=scaled(16, scale), seed=seed,
        )  # fmt: skip
        for rollout, rare in enumerate(run.probabilities[:, :, 0, 0, 1].mean(0)):
            found.append(
                {"setting": TABLE, "arm": name, "rollout": rollout, "rare": rare, "accuracy": GOAL + rare - 0.5}
            )
    return pd.DataFrame(found)


def rollouts(frame: pd.DataFrame, setting: str) -> pd.DataFrame:
    """Return a row for each arm and seed: rollouts to the goal, all of the setting's where it was not reached."""
    part = frame[frame["setting"] == setting]
    found = []
    for (arm, seed), run in part.groupby(["arm", "seed"], sort=False):
        done = run[run["accuracy"] > GOAL]["rollout"]
        count = float(done.min()) if len(done) else float(part["rollout"].max())
        growing = run[run["rare"] < 0.1]
        slope = np.polyfit(growing["rollout"], np.log(growing["rare"]), 1)[0] if len(growing) > 2 else float("nan")
        found.append(
            {"arm": arm, "seed": seed, "rollouts": count, "reached": bool(len(done)), "growth": float(np.exp(slope))}
        )
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare the limit 0.2 with wider ones: how many more rollouts does the rare path need?"""
    real, table, common, thin = (rollouts(frame, setting) for setting in (RARE, TABLE, COMMON, THIN))

    def longer(found: pd.DataFrame, than: str) -> tuple[float, ...]:
        by_arm = found.set_index(["arm", "seed"])["rollouts"]
        return tuple((by_arm[NARROW] - by_arm[than]).sort_index())

    def each(found: pd.DataFrame) -> str:
        """Say how many rollouts each arm needed, and how often the goal was not reached."""
        never = {arm: int((~part["reached"]).sum()) for arm, part in found.groupby("arm")}
        return ", ".join(
            f"{arm} {part['rollouts'].mean():.0f}"
            + (f" ({never[arm]} of its seeds never, counted as the last rollout)" if never[arm] else "")
            for arm, part in found.groupby("arm", sort=False)
        )

    once = frame[frame["setting"] == ONCE].pivot_table(index=["seed", "rollout"], columns="arm", values="rare")
    return judged(
        Part("rollouts more under 0.2 than with no upper limit", longer(real, OPEN)),
        Part("than under 1.0", longer(real, "1.0")),
        Part("on a table, than with no upper limit", longer(table, OPEN)),
        "the claim's number is arithmetic: tested is what follows from it",
        f"rollouts to accuracy {GOAL:g}: {each(real)}",
        f"growth of the rare path in a rollout while below .1: {means(real, 'growth')}",
        f"on a table to ½: {each(table)}",
        f"control: with one update a rollout the two limits' paths differ by {(once[NARROW] - once[OPEN]).abs().max():.1g}",
        f"control: where the path is common: {each(common)}",
        f"with 32 prompts × 8 in place of 16 × 16: {each(thin)}",
    )


def carried_on(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the paths, those that reached the goal and stopped at their last value from there on: means are of all seeds."""
    paths = frame.pivot_table(index="rollout", columns=["arm", "seed"], values="rare", sort=False).sort_index().ffill()
    return paths.stack(["arm", "seed"], future_stack=True).rename("rare").reset_index()


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the probability of the rare path, with the lines along which one token alone could grow, and the rollouts needed."""
    figure, (course, needed, twin) = panels(3, 5.2)
    shown = frame[(frame["setting"] == RARE) & frame["arm"].isin((NARROW, "0.28", "1.0", OPEN))]
    shown = carried_on(shown)
    plot_course(course, shown, "rollout", "rare", title="Probability of the rare path", unit="probability")
    start, steps = float(shown[shown["rollout"] == 0]["rare"].mean()), np.arange(61)
    for width in (0.2, 1.0):
        course.plot(steps, start * (1 + width) ** steps, color="black", linestyle=":", linewidth=1.5)
        last = min(np.log(0.5 / start) / np.log(1 + width), 0.85 * float(shown["rollout"].max()))
        place = (last, start * (1 + width) ** last)
        course.annotate(
            f"× {1 + width:g}",
            place,
            (4, -14),
            textcoords="offset points",
            fontsize=12,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    course.set(yscale="log", ylim=(start / 4, 1.3), xlim=(0, shown["rollout"].max()))
    course.legend(fontsize=11, framealpha=1, loc="lower right")
    plot_arms(needed, rollouts(frame, RARE), "rollouts", title=f"Rollouts to accuracy {GOAL:g}", unit="rollouts")
    plot_arms(twin, rollouts(frame, TABLE), "rollouts", title="The same on a table, to ½", unit="rollouts")
    for ax in (needed, twin):
        from_zero(ax)
    return figure


EXPERIMENT = Experiment(
    "starved",
    "Fixed clipping starves rare tokens: at q = .01, ε = .2 a token's gradient is cut once it has gained .002 on one rollout.",
    "DAPO, arXiv 2503.14476; DCPO, 2509.02333",
    90,
    trial,
    judge,
    draw,
)
