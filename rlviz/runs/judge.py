"""What the tab "you are the judge" says and begins with: pairs before a first training, its defaults, and what one may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIRST = 10  # pairs, from which on a taste is fitted
MORE = 10  # pairs of a further round
TEST = 8  # pairs of the blind test
GATE = 3  # spreads of the reward that a response loses which is no sentence
DEFAULTS = {"steps": 40, "beta": 0.2}
# From 30 pairs of the simulated judge its true reward rises in 5 of 5 seeds, and with four times the steps it still holds.
PAIR_DEFAULTS = {"steps": 20, "beta": 3, "gate": False, "onPairs": "DPO"}
METHODS = (  # how it can be trained; changes: a link each
    {
        "title": "GRPO on its reward",
        "values": DEFAULTS,
        "says": "GRPO trains on what it believes you like, {steps} steps, KL β {beta}.",
        "changes": (
            {"title": "ten pairs only", "values": {"pairs": FIRST}},
            {"title": "no KL, and sentences are not asked for", "values": {"beta": 0, "gate": False}},
            {"title": "twice the steps", "values": {"steps": 2 * DEFAULTS["steps"]}},
        ),
    },
    {
        "title": "DPO on the pairs",
        "values": PAIR_DEFAULTS,
        "says": "DPO trains on {count} pairs, {steps} steps, β {beta}. It never asks for the reward that the curve shows.",
        "changes": (
            {"title": "ten pairs only", "values": {"pairs": FIRST}},
            {"title": "four times the steps", "values": {"steps": 80}},
            {"title": "four times the steps, and a β of 0.1", "values": {"steps": 80, "beta": 0.1}},
        ),
    },
)


def judge_payload(story: Mapping[str, Any]) -> dict[str, Any]:
    """Return what judge.js takes beside the payload of a playground on sentences; story: that of `sentences.story_payload`."""
    judge = {
        "first": FIRST,
        "more": MORE,
        "test": TEST,
        "gate": GATE,
        "methods": METHODS,
        "question": f"Press the sentence that you like better, {FIRST} times or more. A model of your taste learns from it.",
        "ready": "Train on what it believes you like, or judge some more: 30 pairs say much more than 10.",
        "waits": "It waits for your pairs.",
        "trained": "Do you like what it writes now? The blind test asks you without saying which is which.",
        "blind": "One of the two is from before the training, the other from after it. You are not told which.",
        "again": "These pairs are from the policy as it is now: say what it got wrong. Training then goes on from there.",
        "uncertain": "None is certain yet: each line reaches across 0.",
        "leftOut": "{left} of the pairs are left out: equal, cut off, or about another subject.",
    }
    titles = {"title": "It writes, your model rewards", "pairsTitle": "Your pairs push it"}
    return {"tab": "judge", "judge": judge, "story": {**story, **titles}}
