"""Noise, bias and gradient error of k1, k2, k3 and k3+, enumerated over the vocabulary while a policy moves away."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from rlviz.pieces.kl import Estimator, k1, k2, k3, k3_plus
from rlviz.study.effects import Claim, Effect, arithmetic
from rlviz.study.frames import by_seed, gap, log2_ratio, scaled
from rlviz.study.trials import FREE, SMALL, load_shipped
from rlviz.training import train
from small_models.sampling import response_logits, sample
from small_models.tasks import Chain

SAYS = "k3's value has the lowest variance; its gradient is not the KL's gradient; k3+ fixes that."
SOURCE = "Schulman 2020, joschu.net/blog/kl-approx.html; verl"

ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
LOOKS = (3, 8, 20, 50)  # steps after which the policy is compared with the one that it began as


def measure_estimator(estimator: Estimator, logits: Tensor, ref_logp: Tensor) -> dict[str, float]:
    """Return noise and errors of an estimate at N places of text, every token of the vocabulary weighed by its probability."""
    logits = logits.clone().requires_grad_()
    logp = torch.log_softmax(logits, -1)
    p = logp.exp()
    exact = (p * (logp - ref_logp)).sum(-1)
    values = estimator(logp, ref_logp)
    mean = (p.detach() * values).sum(-1)
    (exact_slope,) = torch.autograd.grad(exact.sum(), logits, retain_graph=True)
    (mean_slope,) = torch.autograd.grad(mean.sum(), logits)
    variance = (p * (values - mean.unsqueeze(-1)).square()).sum(-1)
    kl = float(exact.detach().mean())
    return {
        "kl": kl,
        "noise": float(variance.detach().mean().sqrt()) / kl,
        "bias": float(mean.detach().mean()) / kl - 1,
        "gradient_error": float((mean_slope - exact_slope).norm() / exact_slope.norm()),
    }


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train, and at some steps enumerate every estimate on responses of the policy."""
    task, policy, learner, results = Chain(), load_shipped("chain"), load_shipped("chain"), []
    prompts = task.held_out_prompts[: scaled(256, scale, 16)]
    looks = [scaled(look, scale, place) for place, look in enumerate(LOOKS, 1)]
    for record in train(learner, task, FREE, replace(SMALL, steps=looks[-1], seed=seed)):
        if record.step not in looks:
            continue
        generator = torch.Generator().manual_seed(seed)
        drawn = sample(learner, prompts, max_new_tokens=task.max_new_tokens, generator=generator)
        with torch.no_grad():
            now, then = (
                response_logits(one, drawn.prompt_ids, drawn.prompt_mask, drawn.tokens)[drawn.mask].double()
                for one in (learner, policy)
            )
        results += [
            {"arm": name, "step": record.step, **measure_estimator(estimator, now, torch.log_softmax(then, -1))}
            for name, estimator in ESTIMATORS.items()
        ]
    return pd.DataFrame(results)


def effects(frame: pd.DataFrame) -> list[Effect]:
    """Compare noise at each look (0.1 of a log2 is seven per cent), and the gradients over all looks."""
    looks = list(frame.groupby("step"))
    return [
        *(
            Effect(
                f"log2 of {k}'s noise over k3's, {step} steps after the start", log2_ratio(look, "noise", k, "k3"), 0.1
            )
            for k in ("k1", "k2")
            for step, look in looks
        ),
        arithmetic("error of k3's mean gradient over the KL's gradient", by_seed(frame, "gradient_error", arm="k3")),
        arithmetic("of this k3+ mends", gap(frame, "gradient_error", "k3", "k3+")),
    ]


CLAIM = Claim("kl_estimators", SAYS, SOURCE, seconds=6, trial=trial, effects=effects)
