"""Over-optimisation: what a model of a judge says, and what the judge thinks, as training leaves the start policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rlviz.page.picture import Area, Axis, Choice, Line, Mark, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve
from rlviz.pictures.mismatch import index_among
from rlviz.pictures.spec import explorer
from rlviz.study import judged_runs
from rlviz.study.judged_runs import BETAS, CHOICES, CHOOSING, EVERY, FEATURES, PAIRS, SEEDS, STEPS, TRAINING, read_runs

LOOKS = STEPS // EVERY + 1


def overoptimisation_curve() -> Curve:
    """Return the curve: means over seeds of the committed runs (`rlviz.study.overoptimisation`) at one choice of settings.

    training: KL, learned and true reward, [features, pairs, β, seed, look, 3]; choosing: of best of n, [features, pairs, n, 3].
    Between two looks `steps` is on the line between them. A distance is √KL, as in Gao et al. (2210.10760).
    """

    def curve(
        features: Tensor, pairs: Tensor, beta: Tensor, steps: Tensor, training: Tensor, choosing: Tensor
    ) -> dict[str, Tensor]:
        row = (features * len(PAIRS) + index_among("pairs", pairs, PAIRS)).long()
        runs = training.flatten(0, 1)[row][index_among("beta", beta, BETAS).long()]
        distance, learned, true = runs[..., 0].sqrt(), runs[..., 1], runs[..., 2]
        error = true.std(0) / len(SEEDS) ** 0.5
        best_kl, best_learned, best_true = choosing.flatten(0, 1)[row].unbind(-1)
        means = {"distance": distance.mean(0), "learned": learned.mean(0), "true": true.mean(0)}
        # The weights of the two looks that `steps` lies between.
        nearness = (1 - (torch.arange(LOOKS, dtype=torch.double) - steps / EVERY).abs()).clamp(min=0)
        top_step = EVERY * true.mean(0).argmax(0)
        return {
            **means,
            **{f"now_{name}": (mean * nearness).sum() for name, mean in means.items()},
            "true_low": true.mean(0) - 2 * error,
            "true_high": true.mean(0) + 2 * error,
            "seed_distance": distance.flatten(),
            "seed_learned": learned.flatten(),
            "seed_true": true.flatten(),
            "best_distance": best_kl.sqrt(),
            "best_learned": best_learned,
            "best_true": best_true,
            "top": true.mean(0).amax(),
            "top_step": top_step.double(),
            "is_past": (steps > top_step).double(),
        }

    return curve


def run_table() -> dict[str, Tensor]:
    """Return the committed runs as the data of the curve."""
    training, choosing = (torch.tensor(read_runs(way), dtype=torch.double) for way in (TRAINING, CHOOSING))
    return {
        "training": training.view(len(FEATURES), len(PAIRS), len(BETAS), len(SEEDS), LOOKS, -1),
        "choosing": choosing.view(len(FEATURES), len(PAIRS), len(SEEDS), len(CHOICES), -1).mean(2),
    }


def look_data(run: Sequence[Mapping[str, float]] | None) -> dict[str, list[float] | float]:
    """Return the looks of a run of one's own (`rlviz.study.overoptimisation.train_on_pairs`) as data; without one, none is drawn.

    Raises ValueError for what has no looks.
    """
    names = judged_runs.NUMBERS
    try:
        kl, learned, true = ([look[name] for look in run or [dict.fromkeys(names, math.nan)]] for name in names)
    except (TypeError, KeyError):
        raise ValueError(f"run must be what train_on_pairs returns, looks with {', '.join(names)}") from None
    distance = [max(nats, 0.0) ** 0.5 for nats in kl]
    return {"has_run": float(bool(run)), "run_distance": distance, "run_learned": learned, "run_true": true}


def marks(reward: str, *more: Mark) -> tuple[Mark, ...]:
    """Return the marks of a panel: the seeds' looks, the means of GRPO and best of n, a run of one's own, the handle."""
    return (
        *more,
        Points("seed_distance", f"seed_{reward}", size=3, colour="grey"),
        Line("best_distance", f"best_{reward}", "6 4", colour="green", marker="s", label="best of n", direct=True),
        Line("distance", reward, colour="blue", marker="o", label="GRPO", direct=True),
        Line(
            "run_distance", f"run_{reward}", colour="vermilion", marker="^", label="yours", direct=True, when="has_run"
        ),
        Rule("now_distance", dash="6 2 1 2", width=1.5, colour="ink", drag="steps"),
    )


DISTANCE = Axis("√KL from the start, KL in nats a response", 0, 8)
OVEROPTIMISATION = Picture(
    title="How far can one train on a reward model of a judge?",
    look="Drag the dashed line to the right: the model's reward goes on rising, and the judge's falls.",
    notice="Squares are the best of 1, 4, 16, 64, 256 sentences of the start policy: they stay within its language. Small "
    "dots are seeds, which differ widely. More pairs, a KL term, or counts of groups of words move the fall to later steps.",
    alt="Two graphs against the distance from the start: left the reward that the reward model gives, right the judge's own.",
    panels=(
        Panel("What the reward model says", DISTANCE, Axis("learned reward", -1, 7), marks("learned")),
        Panel(
            "What the judge thinks",
            DISTANCE,
            Axis("true reward", -1.2, 2),
            marks("true", Area("distance", "true_low", "true_high", colour="blue", label="± 2 standard errors")),
        ),
    ),
    controls={
        "features": Choice({name: name for name in FEATURES}, next(iter(FEATURES)), "the model counts"),
        "pairs": Slider(value=30, stops=PAIRS, label="pairs that were judged"),
        "beta": Slider(value=0.0, stops=BETAS, label="KL weight β"),
        "steps": Slider(0, STEPS, 1, 40, "steps of GRPO", plays=True),
    },
    data=run_table(),
    conclusion=(
        Say(
            "The judge likes step {top_step:.0f} best ({top:.2f}). At step {steps:.0f} it gives {now_true:.2f}, while its model "
            "gives {now_learned:.2f}.",
            "is_past",
        ),
        Say(
            "At step {steps:.0f} the judge gives {now_true:.2f} and its model {now_learned:.2f}; the judge has not liked a step "
            "before it more."
        ),
    ),
)

explore_overoptimisation = explorer(
    "overoptimisation",
    OVEROPTIMISATION,
    overoptimisation_curve,
    fixed={"run": look_data},
    named={
        "30 pairs": {},
        "100 pairs": {"pairs": 100},
        "all features, β .2": {"features": [*FEATURES][-1], "beta": 0.2},
    },
)
