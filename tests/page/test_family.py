"""Every algorithm as a program: a page computes its objective, the slope by log π, and its advantages, as torch does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlviz.algorithms import ALGORITHMS, PPO, PPO_PENALTY, RELATIVES, ActorCritic, PreferenceOptimization
from rlviz.page.tracing import evaluate, trace
from rlviz.pieces.advantages import PromptHistory
from rlviz.types import Batch
from tests.page.programs import needs_node, run
from tests.pieces.tensors import rollout

FAMILY = (*ALGORITHMS, *RELATIVES)
TRACED_AT = (2, 3, 5)  # prompts, responses, tokens: three different sizes, or the program would take two for one
ASKED_AT = ((4, 6, 9), (3, 2, 1), (1, 5, 7), (7, 4, 11))  # none of them a size of TRACED_AT in its place
LONG = "GAE goes from token to token in Python, so a program of it has one length"
CANNOT = {("advantages", PPO): LONG, ("advantages", PPO_PENALTY): LONG}  # what no program computes at every size: why


def parts() -> list[Any]:
    """Return each part of each algorithm, once for those that make it of the same pieces; pairs have no advantages."""
    kinds: dict[Any, list[Any]] = {}
    for algorithm in FAMILY:
        kind = type(algorithm)
        if isinstance(algorithm, PreferenceOptimization):
            kinds.setdefault((kind, algorithm.reward, algorithm.pair_loss), ["objective"]).append(algorithm)
            continue
        kl = (algorithm.kl, None) if algorithm.kl_in_loss else (None, algorithm.kl)
        made_of = (algorithm.ratio, algorithm.bounds, algorithm.surrogate)
        kinds.setdefault((kind, *made_of, kl[0]), ["objective"]).append(algorithm)
        kinds.setdefault((kind, algorithm.advantage, kl[1]), ["advantages"]).append(algorithm)
    return [
        pytest.param(part, all_, id=f"{part} of {', '.join(a.name for a in all_)}") for part, *all_ in kinds.values()
    ]


def objective(algorithm):
    """Return the curve of each token's objective, or each pair's loss, and of its slopes by the log-probabilities."""

    def pair_curve(logp, old_logp, ref_logp, other_ref_logp, lengths, other_lengths):
        both = [x.flatten().detach().requires_grad_() for x in (logp, old_logp)]  # any two numbers a pair
        references = [x.flatten() for x in (ref_logp, other_ref_logp)]
        options = {"chosen_lengths": lengths.flatten().long(), "rejected_lengths": other_lengths.flatten().long()}
        out = algorithm.loss(*both, *references, **options)
        slopes = torch.autograd.grad(out.loss, both)
        rewards = {"chosen": out.chosen_reward, "rejected": out.rejected_reward}
        return {"value": out.losses, "loss": out.loss, "slope": slopes[0], "other": slopes[1], **rewards}

    def token_curve(logp, old_logp, advantages, mask, ref_logp, entropy, sampler_logp):
        leaf = logp.detach().requires_grad_()
        batch = Batch(old_logp, advantages, mask != 0, ref_logp, entropy=entropy, sampler_logp=sampler_logp)
        part = algorithm.objective(leaf, batch)
        (slope,) = torch.autograd.grad(part.value.sum(), leaf)
        limits = {"lower": part.lower, "upper": part.upper}
        return {"value": part.value, "slope": slope, "ratio": part.ratio, **limits}

    return pair_curve if isinstance(algorithm, PreferenceOptimization) else token_curve


def advantages(algorithm):
    """Return the curve of each token's advantage, and of the history after the visit or the returns."""

    def critic_curve(rewards, values, mask):
        A, returns = algorithm.advantages(rewards, values, mask != 0)
        return {"A": A, "returns": returns}

    def group_curve(rewards, mask, step_ends, visits, mean, variance, lowest, highest, **others):
        options = {"history": PromptHistory(visits.long(), mean, variance, lowest, highest), **others}
        if algorithm.asks_for("advantage", "step_ends"):
            options["step_ends"] = step_ends != 0
        A, history = algorithm.advantages(rewards, mask != 0, **options)
        return {"A": A, **{name: getattr(history, name).double() for name in vars(history)}}

    return critic_curve if isinstance(algorithm, ActorCritic) else group_curve


def random_inputs(algorithm, part: str, seed: int, sizes: tuple[int, int, int]) -> dict[str, Tensor]:
    """Return random inputs of a part's curve, no two alike; every mask has a token, as an empty one has no mean."""
    r = rollout(seed, *sizes)
    other = rollout(seed + 1000, *sizes)
    mask = r.mask.clone()
    mask[0, 0, 0] = True
    tokens = {"mask": mask.double(), "old_logp": r.old_logp, "ref_logp": r.ref_logp, "sampler_logp": other.old_logp}
    if isinstance(algorithm, PreferenceOptimization):
        lengths = (1 + 20 * x.values.abs().round(decimals=1) for x in (r, other))
        names = ("logp", "old_logp", "ref_logp", "other_ref_logp", "lengths", "other_lengths")
        values = (5 * r.logp, 5 * r.old_logp, 5 * r.ref_logp, 5 * other.ref_logp, *lengths)
        return dict(zip(names, values, strict=True))
    if part == "objective":
        return {**tokens, "logp": r.logp, "advantages": other.values, "entropy": r.entropy}
    if isinstance(algorithm, ActorCritic):
        return {"rewards": r.step_rewards, "values": r.old_values, "mask": tokens["mask"]}
    history = PromptHistory.empty(sizes[0])
    for rewards in rollout(4 * seed + 3, *sizes).visits.unbind(-1):
        history = history.add_visit(rewards)
    per_step = algorithm.asks_for("advantage", "step_ends")
    return {
        **tokens,
        **{name: value.double() for name, value in vars(history).items()},
        "rewards": r.step_rewards if per_step else r.rewards,
        "step_ends": (r.step_ends & mask).double(),
        "old_entropy": r.entropy,
        "correct": r.outcomes,
        "well_formed": r.well_formed,
    }


def compare(algorithm, part: str, sizes, traced_at=TRACED_AT) -> None:
    """Trace a part at some sizes and ask the program at others; every number must be torch's."""
    curve = (objective if part == "objective" else advantages)(algorithm)
    program = trace(curve, {}, random_inputs(algorithm, part, 1, traced_at), free=True)
    inputs = {row[1] for row in program["rows"] if row[0] == "input"}
    cases: list[Any] = [random_inputs(algorithm, part, seed, shape) for seed, shape in enumerate(sizes, start=7)]
    questions = [("p", {name: value for name, value in case.items() if name in inputs}) for case in cases]
    for case, got in zip(cases, run({"p": program}, questions), strict=True):
        for name, value in evaluate(curve, case).items():
            assert got[name].shape == value.shape
            np.testing.assert_allclose(got[name], value.numpy(), rtol=1e-12, atol=1e-12, err_msg=name)


@needs_node
@pytest.mark.parametrize(("part", "algorithms"), parts())
def test_a_page_computes_an_algorithm_as_torch_does(part, algorithms):
    cannot = [algorithm for algorithm in algorithms if (part, algorithm) in CANNOT]
    assert cannot in ([], algorithms)
    if not cannot:
        compare(algorithms[0], part, ASKED_AT)
        return
    with pytest.raises(AssertionError, match=r"shapes .* do not go together"):
        compare(algorithms[0], part, ASKED_AT)
    compare(algorithms[0], part, [(p, g, TRACED_AT[2]) for p, g, _ in ASKED_AT])  # at its one length it can
