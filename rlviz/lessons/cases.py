"""The inputs on which each check compares a student's function with the right one, and what each list holds on purpose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Case = dict[str, Tensor]


def _double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.double)


def _mask(lengths: Any, width: int | None = None) -> Tensor:
    """Return the mask of responses of these lengths, as wide as the longest one unless a width is given."""
    counts = torch.tensor(lengths)
    return torch.arange(width or int(counts.max())) < counts.unsqueeze(-1)


def _logp(seed: int, mask: Tensor) -> Tensor:
    """Return log-probabilities of tokens, of .05 to .95, drawn from this seed; on padding, too."""
    uniform = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    return (0.05 + 0.9 * uniform).log()


_RATIOS = _double([0.5, 0.9, 1.1, 1.5, 0.5, 0.9, 1.1, 1.5, 1.5, 5.0])
_SIGNS = _double([2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, 0.5, -2.0])


def _surrogate_case(low: Tensor, high: Tensor, *shape: int) -> dict[str, Tensor]:
    limits = {"lower": (1 - low).expand(10), "upper": (1 + high).expand(10)}
    return {name: x.reshape(shape) for name, x in {"ratio": _RATIOS, "A": _SIGNS, **limits}.items()}


SURROGATES = [  # a wrong width cannot pass, nor a wrong branch hide, nor one limit stand for all
    _surrogate_case(_double(0.2), _double(0.2), 10),
    _surrogate_case(_double(0.2), _double(0.28), 10),
    _surrogate_case(_double(0.9), _double(9.0), 1, 2, 5),  # never clips; [P, G, T]
    _surrogate_case(  # each token has limits of its own, as DCPO gives it
        _double([0.2, 0.05, 0.3, 0.1, 0.4, 0.02, 0.2, 0.3, 0.1, 0.25]),
        _double([0.6, 0.3, 0.05, 0.7, 0.1, 0.2, 0.4, 0.3, 0.2, 0.8]),
        10,
    ),
]
DUAL_CLIPS = [  # c below a token's upper limit, and above it; a good token and a bad one beyond c
    {**case, "c": _double(c)} for case, c in zip(SURROGATES, (3.5, 2.0, 1.2, 4.0), strict=True)
]
SIGN_WEIGHTS = [  # weights above and below 1, either way round
    {**case, "positive": _double(good), "negative": _double(bad)}
    for case, good, bad in zip(SURROGATES, (1.5, 0.25, 3.0, 0.5), (0.5, 2.0, 0.75, 1.25), strict=True)
]
SAMPLERS = [  # w from .1 to 6; a cap that many tokens pass, one even with its logarithm, and one that few do
    {
        "old_logp": _double([[[0.6, 0.5, 0.3], [0.9, 0.2, 0.4]]]).log(),
        "sampler_logp": _double([[[0.1, 0.4, 0.15], [0.3, 0.25, 0.4]]]).log(),
        "mask": _mask([[3, 2]]),
        "cap": _double(1.5),
    },
    {
        "old_logp": _double([[[0.6, 0.05, 0.5]], [[0.1, 0.9, 0.3]]]).log(),
        "sampler_logp": _double([[[0.1, 0.2, 0.6]], [[0.9, 0.5, 0.7]]]).log(),
        "mask": _mask([[3], [3]]),
        "cap": _double(4.0),
    },
]
RESPONSES = [  # responses of 1 to 4 tokens; what stands on padding must not matter
    {"logp": _logp(0, mask), "old_logp": _logp(1, mask), "mask": mask, "A": _double(A)}
    for mask, A in ((_mask([4, 1, 2]), [1.5, -0.5, -1.0]), (_mask([3, 2]), [2.0, 0.5]))
]
MASKS = [
    {"mask": _mask([[1, 4, 0, 2]], 5)},
    {"mask": _mask([[2, 0, 0], [3, 1, 2]])},
    {"mask": _mask([[3, 3]])},
]
TURNS = [  # two calls, one, none; cut off after a call, and within the answer of the tool; a batch without padding
    {"turn": torch.tensor(turns)}
    for turns in (
        [[[0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4], [0, 0, 0, 1, 1, 2, 2, 2, *[-1] * 5], [0, 0, 0, *[-1] * 10]]],
        [[[0, 0, 0, 1, 1, 1], [0, 0, -1, -1, -1, -1]], [[0, 1, 2, 3, 4, -1], [0, 0, 0, 0, 1, 2]]],
        [[[0, 1, 2, 2]], [[0, 0, 0, 0]]],
    )
]
OBSERVED = [  # the same turns, and log-probabilities of all places, none like another
    {
        "logp": -(0.3 + torch.arange(1.0, 1 + case["turn"].numel(), dtype=torch.double).sqrt()).view(
            case["turn"].shape
        ),
        **case,
    }
    for case in TURNS
]
REWARDS = [
    {"rewards": _double([[1, 0, 0, 0], [1, 1, 0, 1]])},
    {"rewards": _double([[0.1, 0.1, 0.1]])},
    {"rewards": _double([[5, 6, 8], [2, 2, 2], [0, 1, 9]])},
]
LOGITS = [
    {"logits": _double([[[0.0, 1.0, 2.0, -1.0], [0.5, 0.5, 0.5, 0.5], [4.0, 0.0, 0.0, 0.0]]])},
    {"logits": _double([[-1.0, 0.3, 0.9, 2.0, 0.1], [0.4, -0.7, 1.5, 0.2, 0.0]])},
]
REWARDED = [  # the likely action pays, a rare one does; none pays more than another
    {"log_probs": _double([[0.6, 0.3, 0.1]] * 2).log(), "rewards": _double([[1, 0, 0], [0, 0.5, 2]])},
    {"log_probs": _double([[0.25, 0.5, 0.25]]).log(), "rewards": _double([[1, 1, 1]])},
]
REFERENCES = [{"logp": _double([0.5, 0.2, 0.9]).log(), "ref_logp": _double([0.25, 0.4, 0.9]).log()}]

WHOLE_BATCHES = [  # ratios beyond both limits with A of both signs, padding that holds numbers, a dead group, lengths that differ
    {
        "logp": _logp(0, mask) + 0.4 * shift,
        "old_logp": _logp(1, mask) + shift,
        "ref_logp": _logp(2, mask),
        "rewards": _double(rewards),
        "mask": mask,
    }
    for mask, rewards, shift in (
        (_mask([[4, 1, 2], [2, 3, 4]]), [[1, 0, 0.2], [0, 3, 1]], 0),
        (_mask([[1, 2, 3], [4, 4, 1]], 4), [[1, 1, 1], [0, 1, 0]], 0),
        (_mask([[3, 4, 2]]), [[0.5, -1, 2]], 0),
        (_mask([[2, 3, 1]], 4), [[1, 0, 0]], -4),  # rare tokens, whose ratios reach 97
    )
]
# the first update: every ratio is 1, inside all limits
WHOLE_BATCHES.append({**WHOLE_BATCHES[2], "old_logp": WHOLE_BATCHES[2]["logp"]})

PAIRS = [  # responses of 1 to 4 tokens; what stands on padding must not matter
    {"logp": _logp(0, mask), "ref_logp": _logp(1, mask), "mask": mask, "beta": _double(beta)}
    for mask, beta in ((_mask([[3, 2], [1, 4]]), 0.1), (_mask([[2, 1], [2, 2], [1, 2]]), 2.0))
]

SCORES = [
    {"chosen": _double([1.2, -0.3, 0.5, 2.0]), "rejected": _double([0.2, 0.6, -1.5, 2.5])},
    {"chosen": _double([-0.7, 0.4]), "rejected": _double([1.1, 0.1])},
]
FAR_SCORES = {"chosen": _double([0.0, 900.0]), "rejected": _double([900.0, 0.0])}  # σ(−900) is rounded to 0

CREDITS = [  # answers of 1 to 4 tokens; rewards are 0 on padding, what values hold there must not matter
    {"rewards": _double(rewards), "values": _double(values), "mask": mask, "gamma": _double(gamma), "lam": _double(lam)}
    for rewards, values, mask, gamma, lam in (
        (
            [[[-0.1, 0.0, 0.05, 1.0], [0.02, -0.3, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]],
            [[[0.5, 0.6, 0.3, 0.8], [0.4, 0.1, -0.7, 0.9], [1.5, 0.2, 0.6, -0.4]]],
            _mask([[4, 2, 1]]),
            0.9,
            0.5,
        ),
        (
            [[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [[0.1, 0.7, 0.0], [-0.2, -1.0, 0.0]]],
            [[[0.2, 0.7, 0.9], [0.2, 0.1, 0.3]], [[-0.5, 0.4, 3.0], [0.6, -0.8, 2.0]]],
            _mask([[3, 3], [2, 2]]),
            1.0,
            0.95,
        ),
    )
]
EPISODES = [  # whole responses and one baseline for all of them; what stands on padding must not matter
    {"logp": _logp(0, mask), "mask": mask, "R": _double(R), "b": _double(b)}
    for mask, R, b in ((_mask([3, 1, 2]), [1.0, 0.0, 0.5], 0.4), (_mask([2, 1]), [-1.0, 2.0], 1.5))
]
TABLE_STEPS = [  # an action that is played twice, and one that is never played; rewards of both signs, also on average; K ≠ N
    {"logits": _double(logits), "actions": torch.tensor(actions), "R": _double(R), "lr": _double(lr)}
    for logits, actions, R, lr in (
        ([0.2, -0.5, 1.0, 0.0], [2, 0, 2, 3, 0], [1.0, 0.0, 0.5, 0.25, -0.5], 0.5),
        ([0.7, -0.3, 0.1], [1, 2, 1, 1], [0.0, 2.0, -1.0, 0.5], 3.0),
        ([0.4, 0.9, -0.6], [0, 2, 0, 1], [-1.0, 0.5, -2.0, 1.3], 1.0),
    )
]
ACTORS_AND_CRITICS = [  # ratios and values within their limits and beyond, on either side of the target; answers of 1 to 3 tokens
    {
        "logp": _logp(seed, mask),
        "old_logp": _logp(seed + 1, mask),
        "A": 2 + _logp(seed + 2, mask) * 2,
        "values": 1 + _logp(seed + 3, mask),
        "old_values": 1 + _logp(seed + 4, mask),
        "returns": 1 + _logp(seed + 5, mask),
        "entropy": -_logp(seed + 6, mask),
        "mask": mask,
    }
    for mask, seed in ((_mask([[3, 1], [2, 3]]), 0), (_mask([[2, 3], [3, 1]]), 10))
]
PROBABILITIES = [  # q below, at and above 4 · eps_low; a cap that is reached, by any width, and one that is not
    {"q": _double(probs), "eps_low": _double(low), "eps_high": _double(high), "max_ratio": _double(cap)}
    for probs, low, high, cap in (
        ([0.9, 0.01, 0.64, 0.3, 1.0, 0.002], 0.16, 0.2, 10.0),
        ([0.015, 0.97, 0.5], 0.1, 0.35, 3.0),
        ([0.004, 0.6], 0.12, 0.23, 1.5),
    )
]
LENGTHS = [  # below a ramp from 12 to 16 tokens, on it, at both its ends and far beyond
    {"rewards": _double(rewards), "lengths": torch.tensor(tokens)}
    for rewards, tokens in (
        ([[1, 0, 1, 0, 1, 0], [1, 1, 0, 1, 0, 1]], [[3, 8, 12, 13, 14, 15], [11, 13, 16, 16, 17, 40]]),
        ([[0.5, 2.0, -1.0]], [[15, 18, 5]]),
    )
]
COUNTS = [  # none right, some, all; k of 1, in between, and all samples
    {"right": torch.tensor([0, 1, 3, 6, 8]), "samples": torch.tensor(8), "k": torch.tensor(3)},
    {"right": torch.tensor([0, 2, 4, 5]), "samples": torch.tensor(5), "k": torch.tensor(1)},
    {"right": torch.tensor([0, 1, 4, 6]), "samples": torch.tensor(6), "k": torch.tensor(5)},
]
