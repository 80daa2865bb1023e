"""Teaching a reward model which of two responses is preferred, and keeping it up to date."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlviz.pieces.preference import bradley_terry
from small_models.checks import check_at_least, check_not_empty, check_number, check_seed, check_type, checked
from small_models.pairs import EncodedPairs, Pair, encode_pairs, make_pairs
from small_models.policies import Policy, one_thread_if_small
from small_models.scorers import Reads, RewardModel
from small_models.tasks import Task

AT_ONCE = 256  # pairs that are scored in one forward
NUM_PAIRS, HELD_OUT_PAIRS = 1200, 300
REPLAYED = 0.1  # of the pairs in a refresh (GRPO, arXiv 2402.03300, Algorithm 1)
REFRESH_STEPS, REFRESH_BATCH = 20, 64


def train_reward_model(
    model: RewardModel,
    pairs: Sequence[Pair],
    *,
    steps: int = 60,
    batch_size: int = 64,
    lr: float = 1e-3,
    seed: int = 0,
) -> list[float]:
    """Teach a reward model to score chosen above rejected responses: mean of −log σ(chosen − rejected) over a batch, nats.

    Changes the model in place and returns the loss before each update. Every pair is used before one comes again (at most
    batch_size: all of them each time). AdamW at a constant lr, gradients scaled down to norm 1.
    Raises ValueError for a number out of range, without pairs, and for a frozen model.
    """
    check_type("model", model, RewardModel)
    check_type("pairs", pairs, Sequence[Pair])
    check_updates(steps, batch_size, lr, seed)
    check_not_empty("pairs", pairs)
    parameters = [p for p in model.scorer.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("model is frozen; train its copy()")
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    encoded = encode_pairs(model.reader, pairs)
    batches = _batches(len(pairs), min(batch_size, len(pairs)), torch.Generator().manual_seed(seed))
    losses = []
    for _ in range(steps):
        with one_thread_if_small(model.reader):
            chosen, rejected = _scores(model, encoded.take(next(batches)))
            loss = bradley_terry(chosen, rejected).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@dataclass(frozen=True)
class LearnedReward:
    """A reward model, the pairs that it learned from, the loss of each update, and its accuracy on held-out, honest pairs."""

    model: RewardModel
    pairs: list[Pair]
    losses: list[float]
    held_out_accuracy: float


@checked
def learn_reward(
    policy: Policy,
    task: Task,
    pairs: Sequence[Pair] | None = None,
    *,
    reads: Reads = "last",
    steps: int = 60,
    seed: int = 0,
) -> LearnedReward:
    """Return a reward model that starts from the policy's trunk and learned from pairs.

    pairs: None for 1,200 of a response of higher and one of lower reward. Held-out pairs are such ones too, on prompts
    that training never shows. Raises ValueError as `make_pairs` and `train_reward_model` do.
    """
    check_updates(steps, seed=seed)
    if pairs is not None:
        check_not_empty("pairs", pairs)
    model = RewardModel.from_policy(policy, reads=reads)
    pairs = make_pairs(policy, task, NUM_PAIRS, seed=seed) if pairs is None else list(pairs)
    held_out = make_pairs(policy, task, HELD_OUT_PAIRS, held_out=True, seed=seed)
    losses = train_reward_model(model, pairs, steps=steps, seed=seed)
    return LearnedReward(model, pairs, losses, pair_accuracy(model, held_out))


def refresh(model: RewardModel, fresh: Sequence[Pair], older: Sequence[Pair], *, seed: int) -> float | None:
    """Train a reward model on fresh pairs and a tenth of older ones, in place; return the last loss, None without pairs."""
    if not fresh:
        return None
    count = min(len(older), round(len(fresh) * REPLAYED / (1 - REPLAYED)))
    pairs = [*fresh, *random.Random(seed).sample(list(older), count)]
    size = min(REFRESH_BATCH, len(pairs))
    return train_reward_model(model, pairs, steps=REFRESH_STEPS, batch_size=size, seed=seed)[-1]


def check_updates(steps: int, batch_size: int = 1, lr: float = 1.0, seed: int = 0) -> None:
    """Raise ValueError for a number of `train_reward_model` that is out of its range."""
    check_at_least(1, steps=steps, batch_size=batch_size)
    check_number("lr", lr, lambda rate: rate > 0, "above 0")
    check_seed(seed)


@checked
def pair_accuracy(model: RewardModel, pairs: Sequence[Pair]) -> float:
    """Return the share of pairs whose chosen response scores above the rejected one, a tie counting half.

    Raises ValueError without pairs.
    """
    check_not_empty("pairs", pairs)
    encoded = encode_pairs(model.reader, pairs)
    with one_thread_if_small(model.reader), torch.no_grad():
        parts = [torch.stack(_scores(model, encoded.take(part))) for part in torch.arange(len(pairs)).split(AT_ONCE)]
    return _accuracy(*torch.cat(parts, 1))


def _scores(model: RewardModel, pairs: EncodedPairs) -> tuple[Tensor, Tensor]:
    chosen, rejected = model.rewards(pairs.prompt_ids, pairs.prompt_mask, pairs.tokens, pairs.mask).unbind(1)
    return chosen, rejected


def _accuracy(chosen: Tensor, rejected: Tensor) -> float:
    return float(((chosen > rejected).double() + (chosen == rejected).double() / 2).mean())


def _batches(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Give the indices of `size` pairs at a time, all of them in a random order, then again in another."""
    waiting = torch.empty(0, dtype=torch.long)
    while True:
        while len(waiting) < size:
            waiting = torch.cat([waiting, torch.randperm(count, generator=generator)])
        yield waiting[:size]
        waiting = waiting[size:]
