"""A run in progress, in words: the time that its other steps will take, and what the policy says now."""

from __future__ import annotations

from rlviz.types import StepRecord
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
