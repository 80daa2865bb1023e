"""Recorded runs, which a page plays without a kernel: `rlviz.runs.record` trained them, and wrote the files beside this one."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Recording:
    """What a recorded run is called, and what there is to look for in it."""

    title: str
    look: str


RECORDINGS = {
    "grpo": Recording(
        "GRPO, one update per rollout",
        "Reward and held-out accuracy rise together. Each rollout is used once, so the ratio is still 1 when the "
        "gradient is taken, and no gradient is cut: the third graph stays at 0.",
    ),
    "grpo-8": Recording(
        "GRPO, eight updates per rollout",
        "The same responses serve eight updates. From the second on the ratios have left 1, and some gradients "
        "are cut. Compare the tokens in dotted frames with those of the run with one update.",
    ),
    "dapo": Recording(
        "DAPO",
        "In a group whose rewards are all equal no token is pushed; DAPO samples other groups in its place. The "
        "more responses are right, the more often you see such a group.",
    ),
    "dcpo-rare": Recording(
        "DCPO, a rare good path",
        "This policy hardly ever writes the running sums that lead to the right answer. Watch the tokens from "
        "step 10 to step 30: the rare path is found, and the reward follows.",
    ),
    "gspo-experts": Recording(
        "GSPO on a mixture of experts",
        "A response has one ratio, so all of its tokens are clipped or none is. GSPO's limits are narrow: at "
        "first they cut most gradients, and the policy learns all the same.",
    ),
    "ppo": Recording(
        "PPO",
        "A critic learns beside the policy what an answer is worth so far, and each token is compared with that "
        "rather than with a group: the advantage in the table is the mean of its tokens'. Lesson 04 builds it.",
    ),
    "dpo": Recording(
        "DPO",
        "Nothing is sampled here: DPO learns from 1,500 pairs of a right and a wrong answer that the model wrote "
        "before. Watch the third graph: the rejected answers become far less likely, and the chosen ones lose a "
        "little, too. Lesson 14 derives the loss.",
    ),
    "hacked": Recording(
        "A learned reward is hacked",
        "Here a model scores the responses, and it errs. The reward keeps rising while the held-out accuracy, "
        "after a good start, falls: look at what the responses with a high reward say.",
    ),
}


def packed(name: str) -> str:
    """Return a recording as JSON, gzip and base64, for `unpack` of packed.js. Raises KeyError for an unknown name."""
    RECORDINGS[name]
    return base64.b64encode((HERE / f"{name}.json.gz").read_bytes()).decode()


def read(name: str) -> dict[str, Any]:
    """Return a recording as data for `player` of player.js. Raises KeyError for an unknown name."""
    return dict(json.loads(gzip.decompress(base64.b64decode(packed(name)))))
