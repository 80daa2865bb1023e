"""What the tab "you are the judge" says and begins with: pairs before a first training, its defaults, and what one may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIRST = 10  # pairs, from which on a taste is fitted
MORE = 10  # pairs of a further round
TEST = 8  # pairs of the blind test
GATE = 3  # spreads of the reward that a response loses which is no sentence
DEFAULTS = {"steps": 40, "beta": 0.2}
CHANGES = (  # a link each: what one may change about the training
    {"title": "ten pairs only", "values": {**DEFAULTS, "pairs": FIRST}},
    {"title": "no KL, and sentences are not asked for", "values": {**DEFAULTS, "beta": 0, "gate": False}},
    {"title": "twice the steps", "values": {**DEFAULTS, "steps": 2 * DEFAULTS["steps"]}},
)


def judge_payload(story: Mapping[str, Any]) -> dict[str, Any]:
    """Return what judge.js takes beside the payload of a playground on sentences; story: that of `sentences.story_payload`."""
    judge = {
        "first": FIRST,
        "more": MORE,
        "test": TEST,
        "gate": GATE,
        "defaults": DEFAULTS,
        "changes": CHANGES,
        "question": f"Press the sentence that you like better, {FIRST} times or more. A model of your taste learns from it.",
        "ready": "Train on what it believes you like, or judge some more: 30 pairs say much more than 10.",
        "waits": "It waits for your pairs.",
        "trained": "Do you like what it writes now? The blind test asks you without saying which is which.",
        "blind": "One of the two is from before the training, the other from after it. You are not told which.",
        "again": "These pairs are from the policy as it is now: tell your model what it got wrong. Training then begins anew.",
    }
    title = "It writes, your model rewards"
    return {"tab": "judge", "judge": judge, "story": {**story, "title": title}}
