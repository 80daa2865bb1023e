"""Preference pairs: two responses to one prompt, of which one is chosen. Sampled from a policy, or read from a file."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import compress, islice
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor

from small_models.checks import (
    check_at_least,
    check_fields,
    check_not_empty,
    check_number,
    check_seed,
    checked,
    short_repr,
)
from small_models.files import convert, display_path, read_lines, replace_files
from small_models.policies import Policy
from small_models.sampling import Samples, encode_prompts, encode_responses, last_position, sample
from small_models.tasks import Task

Kind = Literal["right_wrong", "better_worse"]
PAIRS_PER_GROUP = 3
PROMPTS_PER_BATCH = 64
PROMPTS_PER_PAIR = 4  # sampled before giving up


@dataclass(frozen=True)
class Pair:
    """A prompt and two different responses to it, as text without the end of sequence; the chosen one is preferred.

    Raises ValueError for what is no text, an empty prompt, and responses that are the same.
    """

    prompt: str
    chosen: str
    rejected: str

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.prompt:
            raise ValueError("prompt must not be empty")
        if self.chosen == self.rejected:
            raise ValueError(f"chosen and rejected must differ; both are {short_repr(self.chosen)}")


KEYS = tuple(field.name for field in fields(Pair))
P = TypeVar("P", bound=Pair)


@dataclass(frozen=True)
class EncodedPairs:
    """N pairs as groups of two, first the chosen response: prompt_ids, prompt_mask [N, S]; tokens, mask [N, 2, T].

    The mask is false on what a task's environment wrote, where the pairs were encoded with the task.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor

    def take(self, index: Tensor) -> EncodedPairs:
        """Return the pairs at these indices, padded to the longest prompt and the longest response among them."""
        prompt_mask, mask = self.prompt_mask[index], self.mask[index]
        start = int(prompt_mask.int().argmax(-1).min())
        length = int(last_position(mask).max()) + 1
        return EncodedPairs(
            prompt_ids=self.prompt_ids[index, start:],
            prompt_mask=prompt_mask[:, start:],
            tokens=self.tokens[index, :, :length],
            mask=mask[..., :length],
        )


@checked
def encode_pairs(policy: Policy, pairs: Sequence[Pair], task: Task | None = None) -> EncodedPairs:
    """Return the pairs as tokens, each response with its end of sequence; raises ValueError for one that is too long or equal.

    task: whose environment wrote parts of the responses (None: all of it is the policy's).
    """
    check_not_empty("pairs", pairs)
    if any(vars(pair).get("equal") for pair in pairs):  # of `taste.Preference`
        raise ValueError("pairs must prefer one response; leave out those that are equal, as read_pairs does")
    prompt_ids, prompt_mask = encode_prompts(policy, [pair.prompt for pair in pairs])
    responses = [(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
    turns = [[text] if task is None else task.turns(prompt, text) for prompt, text in responses]
    tokens, mask = encode_responses(policy, turns)
    limit = policy.positions
    longest = prompt_mask.sum(-1) + last_position(mask).reshape(len(pairs), 2).amax(-1) + 1
    if limit is not None and int(longest.max()) > limit:
        worst = pairs[int(longest.argmax())]
        raise ValueError(
            f"the pair on prompt {worst.prompt[:40]!r} has {int(longest.max())} tokens, more than the {limit} positions "
            "of this model"
        )
    shape = len(pairs), 2, tokens.shape[-1]
    return EncodedPairs(prompt_ids, prompt_mask, tokens.reshape(shape), mask.reshape(shape))


@checked
def make_pairs(
    policy: Policy,
    task: Task,
    count: int,
    *,
    kind: Kind = "right_wrong",
    samples_per_prompt: int = 16,
    label_noise: float = 0.0,
    spurious: float = 0.0,
    taste: Callable[[str], float] = len,
    temperature: float = 1.0,
    max_new_tokens: int | None = None,
    held_out: bool = False,
    seed: int = 0,
) -> list[Pair]:
    """Sample responses to the task's prompts and pair them, at most three pairs from those to one prompt.

    kind: "right_wrong" pairs a right response with a wrong one (where the reward is a number, one of higher reward with one of
    lower), "better_worse" one of higher `task.quality` with one of lower.
    spurious: probability that a pair is labelled by another `taste` (the default likes length), which chooses the response of
    higher taste, and the truly better one where both are to its taste. label_noise: probability that a pair is then turned
    round. Responses that were cut off, or that the tokenizer cannot write, are left out. held_out: prompts that training
    never shows. The same seed gives the same pairs of responses, whatever the noise and the taste make of them.
    Raises ValueError for a setting out of its range, and when 4 prompts for each pair give too few.
    """
    check_at_least(1, count=count)
    words = "at least 2, or there is nothing to pair"
    check_number("samples_per_prompt", samples_per_prompt, lambda n: n >= 2, words, integer=True)
    words = "from 0 to below 0.5, where labels say nothing any more"
    check_number("label_noise", label_noise, lambda share: 0 <= share < 0.5, words)
    check_number("spurious", spurious, lambda share: 0 <= share <= 1, "from 0 to 1")
    check_number("temperature", temperature, lambda t: t > 0, "above 0 (greedy responses are all alike)")
    check_seed(seed)
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    prompts = _shuffled_cycle(task.held_out_prompts if held_out else task.train_prompts, rng)
    truth = task.quality if kind == "better_worse" else lambda prompt, text: task.score(prompt, text).reward
    pairs: list[Pair] = []
    batches = math.ceil(PROMPTS_PER_PAIR * count / PROMPTS_PER_BATCH)
    for _ in range(batches):
        batch = list(islice(prompts, PROMPTS_PER_BATCH))
        samples = sample(
            policy,
            batch,
            task=task,
            group_size=samples_per_prompt,
            max_new_tokens=task.max_new_tokens if max_new_tokens is None else max_new_tokens,
            temperature=temperature,
            generator=generator,
        )
        is_whole = (~samples.truncated & is_writable(policy, samples)).tolist()
        for prompt, texts, usable in zip(batch, samples.texts(policy), is_whole, strict=True):
            group = [(truth(prompt, text), text) for text in compress(texts, usable)]
            candidates = [(better, worse) for high, better in group for low, worse in group if high > low]
            for better, worse in dict.fromkeys(rng.sample(candidates, min(PAIRS_PER_GROUP, len(candidates)))):
                swap = rng.random() < spurious and taste(worse) > taste(better)
                swap ^= rng.random() < label_noise
                pairs.append(Pair(prompt, worse, better) if swap else Pair(prompt, better, worse))
        if len(pairs) >= count:
            return pairs[:count]
    raise ValueError(
        f"count: {batches * PROMPTS_PER_BATCH * samples_per_prompt} responses gave {len(pairs)} of the {count} pairs asked for; "
        f"a {kind} pair needs both kinds of response to one prompt, which this policy seldom gives"
    )


def is_writable(policy: Policy, samples: Samples) -> Tensor:
    """Return which responses the tokenizer can write again, [P, G]: a policy may sample its padding, which has no text."""
    return ~(samples.mask & (samples.tokens == policy.pad_id)).any(-1) | (policy.pad_id in policy.end_ids)


@checked
def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """Read pairs from JSON lines with the keys prompt, chosen and rejected; other keys and empty lines are passed over.

    So is a line with `"equal": true`, of which a judge found neither response better (`taste.read_preferences` has them).
    Raises ValueError that names file, line and what is wrong there, and for a file without a pair.
    """
    return read_pairs_as(Pair, path, with_equal=False)


def read_pairs_as(kind: type[P], path: str | os.PathLike[str], *, with_equal: bool) -> list[P]:
    """Return the lines of a file as values of this kind, with or without those that are marked equal."""
    lines = [
        (where, value)
        for where, value in read_lines(path)
        if with_equal or not (isinstance(value, dict) and value.get("equal") is True)
    ]
    pairs = [convert(value, kind, where) for where, value in lines]
    if not pairs:
        raise ValueError(
            f"{display_path(path)} holds no pairs; it needs one a line, as JSON with the keys {', '.join(KEYS)}"
        )
    return pairs


@checked
def write_pairs(pairs: Sequence[Pair], path: str | os.PathLike[str]) -> None:
    """Write pairs as JSON lines, the file whole or not at all; `equal` of `taste.Preference` stands only where it is true."""
    rows = [{name: value for name, value in asdict(pair).items() if value is not False} for pair in pairs]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    with replace_files(Path(path).parent) as temporary:
        (temporary / Path(path).name).write_bytes("".join(lines).encode())


def _shuffled_cycle(prompts: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Give all prompts in a random order, then again in another."""
    while True:
        yield from rng.sample(prompts, len(prompts))
