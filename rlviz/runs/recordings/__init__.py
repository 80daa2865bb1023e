"""Recorded runs, which the inspector shows without a kernel, step by step. `python -m rlviz.runs.recordings` trains them anew.

What the inspector shows of a run is kept beside this file, packed as a page takes it, so that it is there at once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rlviz.algorithms import DPO, GRPO, PPO
from rlviz.algorithms.family import Algorithm
from rlviz.markup import Markup
from rlviz.page.widget import ALONE, fragment
from rlviz.pictures.arguments import python_name
from rlviz.runs.inspector import inspect_run
from rlviz.settings import PairSettings, Settings, TrainSettings
from rlviz.training import find_task, learn_reward, load_policy, train
from small_models.checks import checked, short_repr
from small_models.policies import Policy

HERE = Path(__file__).parent
WATCHED: Mapping[str, Any] = {"details_every": 4, "details_groups": 2, "watch_every": 0, "evaluate_every": 5}


def learned_judge(policy: Policy) -> Mapping[str, Any]:
    """Return a reward model that learned from honest pairs, which a run on it then outgrows."""
    learned = learn_reward(policy, find_task("chain"), steps=60, seed=0)
    return {"reward_model": learned.model, "pairs": learned.pairs}


@dataclass(frozen=True)
class Recording:
    """A recorded run: its title, what there is to look for, and how it is trained.

    judge: what scores in place of the task's rule. python: the algorithm, where it has no name of its own.
    """

    title: str
    look: str
    algorithm: Algorithm
    settings: Settings
    task: str = "chain"
    judge: Callable[[Policy], Mapping[str, Any]] | None = None
    python: str = ""

    @property
    def call(self) -> str:
        """The Python that trains it, but for what it records."""
        kind = type(self.settings)
        changed = [
            f"{field.name}={value!r}"
            for field in fields(kind)
            if (value := getattr(self.settings, field.name)) != field.default and field.name not in WATCHED
        ]
        first = "learned = learn_reward(load_policy('chain'), find_task('chain'), steps=60)\n" if self.judge else ""
        scored = ", reward_model=learned.model, pairs=learned.pairs" if self.judge else ""
        algorithm = self.python or python_name(self.algorithm)
        return f"{first}train({self.task!r}, {algorithm}, {kind.__name__}({', '.join(changed)}){scored})"


RECORDINGS = {
    "grpo": Recording(
        "GRPO",
        "Reward and held-out accuracy rise together. A token of a right response is pushed up where others of its group "
        "are wrong; where all are right, only the KL term pushes. Each rollout serves one update, so no gradient is cut: "
        "the third graph stays at 0.",
        GRPO,
        TrainSettings(**{"steps": 80, "num_prompts": 16, "lr": 5e-4, **WATCHED}),
    ),
    "ppo": Recording(
        "PPO",
        "A critic learns beside the policy what an answer is worth so far, and each token is compared with that rather "
        "than with a group: a response's A is the mean of its tokens'. Lesson 04 builds it.",
        PPO,
        TrainSettings(**{"steps": 80, "num_prompts": 16, **WATCHED}),
    ),
    "dpo": Recording(
        "DPO",
        "Nothing is sampled here: DPO learns from 1,500 pairs of a right and a wrong answer that the model wrote before. "
        "Watch the third graph: the rejected answers become far less likely, and the chosen ones lose a little, too. "
        "Lesson 14 derives the loss.",
        DPO,
        PairSettings(steps=120, evaluate_every=5),
    ),
    "hacked": Recording(
        "A learned reward is hacked",
        "Here a model scores the responses, and it errs. The reward keeps rising while the held-out accuracy, after a "
        "good start, falls: look at what the responses with a high reward say.",
        replace(GRPO, kl=None),
        TrainSettings(**{"steps": 60, "num_prompts": 16, "lr": 5e-4, **WATCHED}),
        judge=learned_judge,
        python="replace(GRPO, kl=None)",
    ),
    "lookup": Recording(
        "GRPO with a tool",
        "The answer stands in a table that only a tool can read. What the tool writes is part of the response, and is not "
        "trained: its tokens are never pushed. Watch how often the policy asks before it answers. Lesson 07 is about such "
        "agents.",
        GRPO,
        TrainSettings(**{"steps": 40, "num_prompts": 16, "lr": 6e-4, "lr_warmup_steps": 4, **WATCHED}),
        task="lookup",
    ),
}


def record(recording: Recording) -> bytes:
    """Train a run, and return what the inspector shows of it, gzipped; the same machine gives the same bytes."""
    policy = load_policy(recording.task)
    judge = recording.judge(policy) if recording.judge else {}
    records = list(train(policy, find_task(recording.task), recording.algorithm, recording.settings, **judge))
    inspector = inspect_run(records, algorithm=recording.algorithm)
    inspector.open_at(next((record.step for record in records if record.has_tokens), 1))
    return base64.b64decode(inspector.packed())


def packed(name: str) -> str:
    """Return a recording as `frozenInspector` of inspector.js takes it, packed. Raises KeyError for an unknown name."""
    RECORDINGS[name]
    return base64.b64encode((HERE / f"{name}.json.gz").read_bytes()).decode()


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run in a notebook; `html` needs no kernel and no network."""

    name: str

    @property
    def caption(self) -> str:
        recording = RECORDINGS[self.name]
        return f"{recording.title}. {recording.look}"

    def html(self) -> Markup:
        return fragment(packed(self.name), caption=self.caption, files=(*ALONE, "inspector"), show="frozenInspector")

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.caption}


@checked
def recorded_run(name: str) -> RecordedRun:
    """Return a recorded run, to be watched in a notebook step by step: grpo, ppo, dpo, hacked or lookup.

    Raises ValueError for another name.
    """
    if name not in RECORDINGS:
        raise ValueError(f"name must be one of {', '.join(RECORDINGS)}; got {short_repr(name)}")
    return RecordedRun(name)
