"""Training in node as a page does it, for tests, and the library's own step with the same chance."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlviz.page.names import uniform
from rlviz.page.script import script
from rlviz.pieces import selection
from rlviz.runs.in_page import CHECKPOINTS, OFFERED, opening_message, pack_language
from rlviz.settings import TrainSettings
from rlviz.training import step as stepping
from rlviz.training.state import Beginning, first_state
from small_models import sampling
from small_models.policies import load_policy
from small_models.tasks import TASKS, Sentences, WordReward

RUNNER = Path(__file__).parent / "run_training.mjs"
ROWS = 128
PURPOSES = ("prompts", "tokens", "groups", "evaluation")


def answers(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the worker answers to these messages."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "messages.json"
        file.write_text(json.dumps(list(messages), allow_nan=False))
        command = ["node", str(RUNNER), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def evaluate_js(module: str, code: str, value: Any, *, task: str = "sentences") -> Any:
    """Return what an expression makes of what a file of rlviz/page offers, of the page's `task`, and of `given`, the value."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "given.json"
        file.write_text(json.dumps({"value": value, "language": pack_language()}))
        program = f"""
            import fs from "node:fs";
            import * as {module} from {json.dumps(script(module).as_uri())};
            import {{ sentencesTask, TASKS }} from {json.dumps(script("tasks").as_uri())};
            const {{ value: given, language }} = JSON.parse(fs.readFileSync({json.dumps(str(file))}, "utf8"));
            const task = {json.dumps(task)} === "sentences" ? sentencesTask(language) : TASKS[{json.dumps(task)}];
            process.stdout.write(JSON.stringify({code}));
        """
        command = ["node", "--input-type=module", "-e", program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def trained(steps: int, *, more: Sequence[Mapping[str, Any]] = (), **settings: Any) -> list[Any]:
    """Return the answers of a run of so many steps, those to `open` and `start` left out, and to further messages."""
    open_ = opening_message(settings.get("checkpoint", "chain"))
    begin = [open_, {"do": "start", "settings": {"evaluate_every": 0, **settings}}]
    replies = answers([*begin, *[{"do": "step"}] * steps, *more])
    assert [reply["is"] for reply in replies[:2]] == ["ready", "started"], replies[:2]
    return replies[2:]


def chance(seed: int, step: int, purpose: str, round_: int, n: int) -> np.ndarray[Any, Any]:
    """Return what `chance` of train.js returns."""
    mixed = ((seed * 1000003 + step) * 64 + round_ * len(PURPOSES) + PURPOSES.index(purpose)) % 2**32
    return uniform((n,), n, mixed)


class Chance:
    """The page's random numbers in the places where a step of the library draws, and the page's tokens.

    A token of the page is taken if u falls within its slice of the library's own distribution, or by less than `near` beside it:
    log-probabilities agree to some digits, so the limits of slices do. on_limits: how often it was beside it.
    """

    def __init__(self, seed: int, near: float) -> None:
        self.seed, self.near, self.on_limits = seed, near, 0

    def begin_step(self, step: int, report: Mapping[str, Any]) -> None:
        self.step, self.round = step, 0
        length, self.at = report["T"], 0
        self.tokens = np.where(report["mask"], report["tokens"], -1).reshape(-1, length)  # −1: after its end

    def sample_indices(self, total: int, count: int, _: torch.Generator) -> torch.Tensor:
        drawn = chance(self.seed, self.step, "prompts", 0, 4 * count)
        return torch.tensor(list(dict.fromkeys(np.floor(drawn * total).astype(int).tolist()))[:count])

    def rand(self, rows: int, length: int, **_: Any) -> torch.Tensor:
        table = chance(self.seed, self.step, "tokens", self.round, ROWS * length)[: rows * length].reshape(rows, length)
        tokens = self.tokens[self.at : self.at + rows]
        self.token_of = dict(zip(table.ravel().tolist(), tokens.ravel().tolist(), strict=True))
        self.round, self.at = self.round + 1, self.at + rows
        return torch.from_numpy(table)

    def pick(self, probabilities: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        chosen = torch.tensor([self.token_of[u] for u in drawn.tolist()]).unsqueeze(1)
        token = chosen.clamp(min=0)
        cumulated = probabilities.double().cumsum(-1) / probabilities.double().sum(-1, keepdim=True)
        above = cumulated.gather(1, token)
        below = above - probabilities.double().gather(1, token)
        u = drawn.unsqueeze(1)
        outside = torch.maximum(below - u, u - above).clamp(min=0) * (chosen >= 0)
        assert outside.max() < self.near, f"a token's slice is {outside.max():.2g} away from its u"
        self.on_limits += int((outside > 0).sum())
        return token.squeeze(1)

    def randint(self, most: int, shape: Any, **how: Any) -> torch.Tensor:
        drawn = chance(self.seed, self.step, "groups", 0, max(1, shape[0]))[: shape[0]]
        return torch.from_numpy(np.floor(drawn * most).astype(int))


class _Torch:
    """torch, with some of its functions replaced."""

    def __init__(self, **replaced: Any) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@contextmanager
def same_chance(draws: Chance):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stepping, "sample_indices", draws.sample_indices)
        patched.setattr(sampling, "torch", _Torch(rand=draws.rand))
        patched.setattr(sampling, "_draw_tokens", draws.pick)
        patched.setattr(selection, "torch", _Torch(randint=draws.randint))
        yield


@contextmanager
def chance_of_evaluations():
    """Let the library's samples of held-out prompts be drawn as the page draws those of an evaluation, ROWS at a time."""

    def rand(rows: int, length: int, **_: Any) -> torch.Tensor:
        parts = [chance(0, 0, "evaluation", part, ROWS * length) for part in range(rows // ROWS)]
        return torch.from_numpy(np.concatenate(parts).reshape(rows, length))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampling, "torch", _Torch(rand=rand))
        yield


def as_shipped(checkpoint: str):
    """Return a checkpoint's policy, its weights rounded as the page has them, and its task."""
    policy = load_policy(checkpoint)
    for parameter in policy.weights.parameters():
        parameter.data = parameter.data.half().float()
    return policy, next(task for task in TASKS if task.name == CHECKPOINTS[checkpoint])


def library_steps(
    reports: Sequence[Mapping[str, Any]], draws: Chance, *, checkpoint: str = "chain", words: Any = None, **options: Any
):
    """Give (report of the page, rollout, fields) of each step: the library's own step, drawing as the page drew."""
    first = reports[0]
    settings = TrainSettings(
        num_prompts=first["P"], group_size=first["G"], seed=draws.seed, evaluate_every=0, **options
    )
    policy, task = as_shipped(checkpoint)
    if words:
        task = Sentences(WordReward(**words))
    reference = policy.frozen_copy()
    state = first_state(Beginning(policy, reference, task, OFFERED[first["algorithm"]], settings))
    rollouts = []
    run_updates = stepping.run_updates

    def watched(state, rollout, settings):
        rollouts.append(rollout)
        return run_updates(state, rollout, settings)

    with same_chance(draws), pytest.MonkeyPatch.context() as patched:
        patched.setattr(stepping, "run_updates", watched)
        for number, report in enumerate(reports):
            draws.begin_step(number, report)
            fields = stepping.step(state, task, settings)
            yield report, rollouts[-1], fields
