"""A run in words: the numbers of a step, the time that the others will take, and what the policy says now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlviz.types import PairRecord, StepRecord
from small_models.checks import cut

RECENT = 20  # steps, whose seconds tell how long the others will take
LONGEST = 40, 100  # characters of a prompt and of a response


def describe_seconds(seconds: float) -> str:
    """Return a time to come, as roughly as it is known: "about 40 s", "about 3 min"."""
    return f"about {max(1, round(seconds))} s" if seconds < 100 else f"about {round(seconds / 60)} min"


def describe_sample(record: StepRecord) -> str:
    """Return the first recorded response of a step on one line: prompt → response (reward 1.00)."""
    group, response = record.groups[0], record.group[0]
    texts = (group.user_text or group.prompt, response.text)
    prompt, text = (cut(" ".join(text.split()), longest) for text, longest in zip(texts, LONGEST, strict=True))
    return f"{prompt} → {text} (reward {response.reward:.2f})"


def describe_last_step(records: Sequence[Any]) -> str:
    """Return the numbers of the last of these steps in words, and what was last measured on held-out prompts."""
    last, held_out = records[-1], {}
    for metric in ("accuracy", "reward"):
        measured = [
            (record.step, value) for record in records if (value := getattr(record, f"held_out_{metric}")) is not None
        ]
        for step, value in measured[-1:]:
            at = "" if step == last.step else f" (at step {step})"
            held_out[f"held-out {metric} {{:.2f}}{at}"] = value
    if isinstance(last, PairRecord):
        numbers = held_out | {
            "{:.0%} of pairs in order": last.pair_accuracy,
            "log π against the start: chosen {:+.1f}": last.chosen_gain,
            "rejected {:+.1f}": last.rejected_gain,
        }
    else:
        numbers = {"reward {:.2f}": last.reward} | held_out
        numbers |= {
            "entropy {:.2f} nats": last.entropy,
            "clipped {:.1%} below": last.clip_fraction_low,
            "and {:.1%} above": last.clip_fraction_high,
            "{:.1%} by the dual clip": last.clip_fraction_dual or math.nan,
        }
    # an imported run has not all
    texts = [words.format(value) for words, value in numbers.items() if math.isfinite(value)]
    return ", ".join(texts).replace(", and", " and").replace(" -", " −")
