"""Trains the recorded runs anew: `python -m rlviz.runs.record --out FOLDER`, or only those that are named."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlviz.algorithms import DAPO, DCPO, DPO, GRPO, GSPO, PPO
from rlviz.algorithms.family import Algorithm
from rlviz.pictures.idea import call_name
from rlviz.runs import curves
from rlviz.runs.curves import Records, Series, points
from rlviz.runs.panel import last_numbers
from rlviz.runs.recordings import HERE, RECORDINGS
from rlviz.settings import PairSettings, TrainSettings
from rlviz.training import find_task, learn_reward, load_policy, train
from rlviz.training.files import whole_file
from rlviz.types import GroupRecord, PairRecord
from small_models.policies import Policy

SHADES = 9  # of a token's push: from −SHADES, hard down, to SHADES, hard up
WATCHED: Mapping[str, Any] = {
    "details_every": 1,
    "details_groups": 3,
    "evaluate_every": 5,
}  # of every step


def _no_judge(policy: Policy, seed: int) -> Mapping[str, Any]:
    return {}


def _learned_judge(policy: Policy, seed: int) -> Mapping[str, Any]:
    """Return a reward model that learned from honest pairs, which a run on it then outgrows."""
    learned = learn_reward(policy, find_task("chain"), steps=60, seed=seed)
    return {"reward_model": learned.model, "pairs": learned.pairs}


@dataclass(frozen=True)
class Plan:
    """How a recorded run is trained.

    policy: a shipped one, for the task chain. judge: what scores in place of the rule. written: the algorithm in Python.
    """

    algorithm: Algorithm
    settings: TrainSettings | PairSettings
    policy: str = "chain"
    judge: Callable[[Policy, int], Mapping[str, Any]] = field(default=_no_judge)
    written: str = ""

    @property
    def call(self) -> str:
        """The Python that trains it, but for what it records."""
        kind = type(self.settings)
        default = {one.name: WATCHED.get(one.name, one.default) for one in fields(kind)}
        values = {one.name: getattr(self.settings, one.name) for one in fields(kind)}
        changed = ", ".join(f"{name}={value!r}" for name, value in values.items() if value != default[name])
        policy = "" if self.policy == "chain" else f"{self.policy!r}, "
        judged = self.judge is not _no_judge
        first = "learned = learn_reward(load_policy('chain'), find_task('chain'), steps=60); " if judged else ""
        given = ", reward_model=learned.model, pairs=learned.pairs" if judged else ""
        algorithm = self.written or call_name(self.algorithm)
        return f"{first}train({policy}'chain', {algorithm}, {kind.__name__}({changed}){given})"


def _settings(**values: Any) -> TrainSettings:
    return TrainSettings(**{"steps": 60, "num_prompts": 16, **WATCHED, **values})


PLANS = {
    "grpo": Plan(GRPO, _settings(steps=80, lr=5e-4)),
    "grpo-8": Plan(GRPO, _settings(lr=2e-4, updates_per_rollout=8)),
    "dapo": Plan(DAPO, _settings(lr=2e-4, updates_per_rollout=4)),
    "dcpo-rare": Plan(DCPO, _settings(lr=1e-4, updates_per_rollout=8), "chain-rare"),
    "gspo-experts": Plan(GSPO, _settings(updates_per_rollout=4), "chain-experts"),
    "ppo": Plan(PPO, _settings(steps=80)),
    "dpo": Plan(DPO, PairSettings(steps=120, evaluate_every=WATCHED["evaluate_every"])),
    "hacked": Plan(replace(GRPO, kl=None), _settings(lr=5e-4), judge=_learned_judge, written="replace(GRPO, kl=None)"),
}


def recorded(plan: Plan, *, title: str, look: str) -> dict[str, Any]:
    """Train a plan, and return the run as data for `player` of player.js."""
    policy = load_policy(plan.policy)
    given = plan.judge(policy, plan.settings.seed)
    records = list(train(policy, find_task("chain"), plan.algorithm, plan.settings, **given))
    return as_data(records, title=title, look=look, call=plan.call)


def as_data(records: Records, *, title: str, look: str, call: str) -> dict[str, Any]:
    """Return the records of a run as data for `player` of player.js: its curves whole, its steps one by one.

    Steps on pairs have no groups.
    """
    graphs = curves.OF_PAIRS if isinstance(records[0], PairRecord) else curves.OF_GROUPS
    series = [Series("", [records], "before"), Series("", [records])]  # the whole run, and so much of it as was played
    bound = curves.data(series[:1], len(records), "", graphs)
    shown = curves.picture(series, graphs, at=[record.step for record in records])
    hardest = hard_push(records)
    return {
        "title": title,
        "look": look,
        "call": call,
        "curves": {**curves.given(shown, bound, step=1), "bare": True},
        "steps": [_step(records[: place + 1], hardest) for place in range(len(records))],
    }


def hard_push(records: Records) -> float:
    """Return how hard the loss pushed one token in twenty of the run, or harder: what gets the strongest colour."""
    pushes = [
        abs(token.push) for record in records for group in record.groups for r in group.responses for token in r.tokens
    ]
    return float(np.quantile(pushes or [0.0], 0.95)) or 1.0


def _step(records: Sequence[Any], hardest: float) -> dict[str, Any]:
    last = records[-1]
    groups = [_group(group, hardest) for group in last.groups]
    said = _last_of_pairs(records) if isinstance(last, PairRecord) else last_numbers(records)
    return {"step": last.step, "said": f"{said}.", "groups": groups}


def _last_of_pairs(records: Sequence[PairRecord]) -> str:
    last, (_, held_out) = records[-1], points(records, "held_out_accuracy")
    measured = f"held-out accuracy {held_out[-1]:.2f}, " if len(held_out) else ""
    gains = (f"{gain:+.1f}".replace("-", "−") for gain in (last.chosen_gain, last.rejected_gain))
    return f"{measured}{last.pair_accuracy:.0%} of pairs in order; log π against the start: chosen {', rejected '.join(gains)}"


def _shade(push: float, hardest: float) -> int:
    return round(SHADES * max(-1.0, min(1.0, push / hardest)))


def _group(group: GroupRecord, hardest: float) -> dict[str, Any]:
    return {
        "prompt": group.prompt,
        "gold": group.gold,
        "responses": [
            {
                "tokens": [token.token for token in response.tokens],
                "push": [_shade(token.push, hardest) for token in response.tokens],
                "clipped": [place for place, token in enumerate(response.tokens) if token.clipped],
                "right": response.correct,
                "reward": f"{response.reward:.2f}".replace("-", "−"),
                "advantage": f"{response.advantage:+.2f}".replace("-", "−"),
            }
            for response in group.responses
        ],
    }


def write(name: str, folder: Path) -> Path:
    """Train a recorded run, and write it into a folder; the same machine writes the same file."""
    text = json.dumps(recorded(PLANS[name], **vars(RECORDINGS[name])), ensure_ascii=False, separators=(",", ":"))
    path = folder / f"{name}.json.gz"
    with whole_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return path


def main() -> None:
    """Record what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PLANS)}; all unless given")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in PLANS]:
        parser.error(f"NAME must be of {', '.join(PLANS)}; got {unknown[0]!r}")
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.names or PLANS:
        path = write(name, given.out)
        parser._print_message(f"{path}: {path.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
