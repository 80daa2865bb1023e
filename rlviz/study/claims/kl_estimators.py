"""Noise, bias and gradient error of k1, k2, k3 and k3+, enumerated over the vocabulary while a policy moves away."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from rlviz.pieces.kl import Estimator, k1, k2, k3, k3_plus
from rlviz.study.claim import Panel
from rlviz.study.frames import by_seed, doublings, gap, means, scaled, select
from rlviz.study.trials import FREE, SMALL, shipped
from rlviz.study.verdict import Arithmetic, Part, Verdict, judged
from rlviz.training import train
from small_models.sampling import response_logits, sample
from small_models.tasks import Chain

CLAIM = "k3's value has the lowest variance; its gradient is not the KL's gradient; k3+ fixes that."
SOURCE = "Schulman 2020, joschu.net/blog/kl-approx.html; verl"
SECONDS = 6
SMALLEST = 0.1  # of a log2: seven per cent of the noise

ESTIMATORS: dict[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_plus}
LOOKS = (3, 8, 20, 50)  # steps after which the policy is compared with the one that it began as


def measured(estimator: Estimator, logits: Tensor, ref_logp: Tensor) -> dict[str, float]:
    """Return noise and errors of an estimate at N places of text, every token of the vocabulary weighed by its probability."""
    logits = logits.clone().requires_grad_()
    logp = torch.log_softmax(logits, -1)
    p = logp.exp()
    exact = (p * (logp - ref_logp)).sum(-1)
    values = estimator(logp, ref_logp)
    mean = (p.detach() * values).sum(-1)
    (wanted,) = torch.autograd.grad(exact.sum(), logits, retain_graph=True)
    (given,) = torch.autograd.grad(mean.sum(), logits)
    variance = (p * (values - mean.unsqueeze(-1)).square()).sum(-1)
    kl = float(exact.detach().mean())
    return {
        "kl": kl,
        "noise": float(variance.detach().mean().sqrt()) / kl,
        "bias": float(mean.detach().mean()) / kl - 1,
        "gradient_error": float((given - wanted).norm() / wanted.norm()),
    }


def trial(seed: int, scale: float) -> pd.DataFrame:
    """Train, and at some steps enumerate every estimate on responses of the policy."""
    task, policy, learner, found = Chain(), shipped("chain"), shipped("chain"), []
    prompts = task.held_out_prompts[: scaled(256, scale, 16)]
    looks = [scaled(look, scale, place) for place, look in enumerate(LOOKS, 1)]
    for record in train(learner, task, FREE, replace(SMALL, steps=looks[-1], seed=seed)):
        if record.step not in looks:
            continue
        generator = torch.Generator().manual_seed(seed)
        drawn = sample(learner, prompts, max_new_tokens=task.max_new_tokens, generator=generator)
        with torch.no_grad():
            now, then = (
                response_logits(each, drawn.prompt_ids, drawn.prompt_mask, drawn.tokens)[drawn.mask].double()
                for each in (learner, policy)
            )
        found += [
            {"arm": name, "step": record.step, **measured(estimator, now, torch.log_softmax(then, -1))}
            for name, estimator in ESTIMATORS.items()
        ]
    return pd.DataFrame(found)


def judge(frame: pd.DataFrame) -> Verdict:
    """Compare noise at each look, and the gradients over all looks."""
    by_step = ", ".join(
        f"step {step} and KL {look['kl'].mean():.2g} ({means(select(look, arm=('k1', 'k2', 'k3')), 'noise', 1)})"
        for step, look in frame.groupby("step")
    )
    return judged(
        *(
            Part(
                f"log2 of {other}'s noise over k3's, {step} steps after the start",
                doublings(look, "noise", other, "k3"),
                SMALLEST,
            ).titled("noise", f"k3 is [less|more] noisy than {other} at step {{}}", f"{step}", base=2)
            for other in ("k1", "k2")
            for step, look in frame.groupby("step")
        ),
        Arithmetic(
            "error of k3's mean gradient over the KL's gradient", by_seed(frame, "gradient_error", arm="k3")
        ).titled("error", "k3's gradient is off by {} times the KL's"),
        Arithmetic("of this k3+ mends", gap(frame, "gradient_error", "k3", "k3+")).titled(
            "error", "of this k3+ [mends|adds] {}"
        ),
        f"noise, the std of one token's estimate over the KL, at {by_step}",
        f"the mean of k2 is off by {select(frame, arm='k2')['bias'].mean():+.0%}, those of k1 and k3 are exact",
    )


LOG = {"xscale": "log"}
PANELS = [
    [
        Panel(
            "noise", "noise", "noise of one token, std over the KL", partial(select, arm=("k1", "k2", "k3")), x="step",
            axes={**LOG, "yscale": "log"},
        ),
        Panel(
            "error", "gradient_error", "error of the mean gradient", partial(select, arm=("k2", "k3", "k3+")), x="step",
            axes={**LOG, "ylim": (-0.25, None)},
        ),
    ]
]  # fmt: skip
