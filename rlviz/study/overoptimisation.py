"""Over-optimisation of a learned taste (Gao et al. 2210.10760): learned and true reward as a policy leaves its start.

`python -m rlviz.study.overoptimisation` writes `shipped/overoptimisation.csv`, a row a run and look; interrupted, it goes on.
A simulated judge prefers sentences of the start policy, a taste is fitted to them, and GRPO trains on it, or the best of n
sentences of the start policy is chosen by it. `train_on_pairs` is one run, with settings and pairs of one's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

import pandas as pd
import torch

from rlviz.algorithms import GRPO
from rlviz.settings import TrainSettings
from rlviz.study.judged_runs import BETAS, CHOICES, CHOOSING, EVERY, FEATURES, FILE, PAIRS, SEEDS, STEPS, TRAINING
from rlviz.study.trials import FREE, load_shipped
from rlviz.training import train
from small_models.policies import Policy
from small_models.sampling import Samples, response_logits, sample
from small_models.tasks.sentences import Sentences, is_sentence
from small_models.taste import Preference, SimulatedJudge, Taste, fit_taste, true_taste

SETTINGS = TrainSettings(steps=STEPS, num_prompts=16, evaluate_every=0, details_every=0)  # as the page trains
TASK = Sentences()
RUN = ("way", "pairs", "beta", "features", "seed")  # columns that name a run


def sample_texts(
    policy: Policy, prompts: Sequence[str], group_size: int, seed: int, temperature: float = 1.0
) -> tuple[Samples, list[list[str]]]:
    """Return responses to the prompts, as tokens and as text."""
    generator = torch.Generator().manual_seed(seed)
    samples = sample(
        policy,
        prompts,
        task=TASK,
        group_size=group_size,
        max_new_tokens=TASK.max_new_tokens,
        temperature=temperature,
        generator=generator,
    )
    return samples, samples.texts(policy)


def kl_to_start(policy: Policy, start: Policy, samples: Samples) -> float:
    """Return KL(policy‖start) in nats a response: at each token of the policy's samples the KL of its distribution, summed."""
    with torch.no_grad():
        logp, start_logp = (
            response_logits(one, samples.prompt_ids, samples.prompt_mask, samples.tokens).log_softmax(-1)
            for one in (policy, start)
        )
    at_token = (logp.exp() * (logp - start_logp)).sum(-1)
    return float((at_token * samples.mask).sum((0, 1)).sum() / samples.mask[..., 0].numel())


def judge_pairs(
    start: Policy, pairs: int, seed: int, *, temperature: float = 1.0, mistakes: float = 0.0
) -> list[Preference]:
    """Return what the simulated judge says of pairs of the start policy's sentences, eight to each training prompt."""
    _, texts = sample_texts(start, TASK.train_prompts, 8, seed, temperature)
    responses = dict(zip(TASK.train_prompts, texts, strict=True))
    return SimulatedJudge(mistakes=mistakes).judge(responses, pairs, seed=seed)


def fit_judged(start: Policy, pairs: int, features: str, seed: int) -> Taste:
    """Fit a taste to what the simulated judge says of so many pairs, at the temperature of these features."""
    temperature, options = FEATURES[features]
    return fit_taste(judge_pairs(start, pairs, seed, temperature=temperature), **options)


def train_on_taste(start: Policy, taste: Taste, beta: float, seed: int) -> Iterator[dict[str, float]]:
    """Train a copy of the start by GRPO and yield what four responses to each held-out prompt are worth, every 10 steps."""
    policy = start.frozen_copy()
    policy.model.requires_grad_(True)
    algorithm = GRPO.with_parameters(beta=beta) if beta else FREE
    run = train(policy, TASK, algorithm, replace(SETTINGS, seed=seed), reward=taste)
    for step in range(SETTINGS.steps + 1):
        if step:
            next(run)
        if step % EVERY == 0:
            samples, texts = sample_texts(policy, TASK.held_out_prompts, 4, seed)
            responses = [
                (prompt, text) for prompt, row in zip(TASK.held_out_prompts, texts, strict=True) for text in row
            ]
            yield {
                "at": step,
                "kl": kl_to_start(policy, start, samples),
                "learned": fmean(taste(*response) for response in responses),
                "true": fmean(true_taste(*response) for response in responses),
                "sentences": fmean(is_sentence(text) for _, text in responses),
            }


def train_on_pairs(
    pairs: int | Sequence[Preference] = 30,
    *,
    mistakes: float = 0.0,
    beta: float = 0.0,
    prior: float = 1.0,
    with_sentence: bool = False,
    with_groups: bool = False,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Fit a taste to judged pairs, train on it, and return the looks, for `explore_overoptimisation(run=…)`; 5 seconds.

    pairs: how many the simulated judge judges, with this share of mistakes; or somebody's, such as `read_preferences`
    returns, of whom nobody knows the true reward (NaN). prior, with_sentence, with_groups: of `fit_taste`.
    Raises ValueError for mistakes in somebody's pairs, and what these functions raise.
    """
    start = load_shipped("sentences")
    if mistakes and not isinstance(pairs, int):
        raise ValueError(f"mistakes must be 0 with pairs that somebody judged; got {mistakes:g}")
    preferences = judge_pairs(start, pairs, seed, mistakes=mistakes) if isinstance(pairs, int) else pairs
    taste = fit_taste(preferences, prior=prior, with_sentence=with_sentence, with_groups=with_groups)
    looks = train_on_taste(start, taste, beta, seed)
    return [look if isinstance(pairs, int) else {**look, "true": math.nan} for look in looks]


def best_of_n(start: Policy, taste: Taste, seed: int) -> Iterator[dict[str, float]]:
    """Yield what the taste's favourite of n responses of the start is worth, at KL log n − (n − 1)/n, for each n.

    The mean over all choices of n among 256 responses to each held-out prompt: the i-th from below, i = 0 …, is the best of
    C(i, n − 1) of the C(256, n).
    """
    most = max(CHOICES)
    _, texts = sample_texts(start, TASK.held_out_prompts, most, seed)
    scores = [
        sorted((taste(prompt, text), true_taste(prompt, text), is_sentence(text)) for text in row)
        for prompt, row in zip(TASK.held_out_prompts, texts, strict=True)
    ]
    worth = [[fmean(row[rank][part] for row in scores) for rank in range(most)] for part in range(3)]
    for n in CHOICES:
        chance = [math.comb(rank, n - 1) / math.comb(most, n) for rank in range(most)]
        means = [sum(map(float.__mul__, chance, part)) for part in worth]
        yield {
            "at": n,
            "kl": math.log(n) - (n - 1) / n,
            **dict(zip(("learned", "true", "sentences"), means, strict=True)),
        }


def main() -> None:
    """Run what is missing, and write the file after each run."""
    torch.set_num_threads(1)
    start = load_shipped("sentences")
    table = pd.read_csv(FILE) if FILE.exists() else pd.DataFrame(columns=[*RUN])
    ways = [(TRAINING, beta) for beta in BETAS] + [(CHOOSING, 0.0)]
    for pairs, (way, beta), features, seed in product(PAIRS, ways, FEATURES, SEEDS):
        name = dict(zip(RUN, (way, pairs, beta, features, seed), strict=True))
        if (table[[*RUN]] == pd.Series(name)).all(axis=1).any():
            continue
        taste = fit_judged(start, pairs, features, seed)
        looks = best_of_n(start, taste, seed) if way == CHOOSING else train_on_taste(start, taste, beta, seed)
        table = pd.concat([table, pd.DataFrame([name | look for look in looks])], ignore_index=True)
        table.round(4).to_csv(FILE, index=False)


if __name__ == "__main__":
    main()
