"""A run on disk: config.json, metrics.jsonl, samples.jsonl, checkpoint/, reference/, summary.json; reward_model/, pairs.jsonl.

JSON and safetensors only. A file is replaced whole; the two .jsonl files grow by a line a step.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file, save_file

from rlviz.types import GroupRecord, PairRecord, ResponseRecord, StepRecord, TokenRecord
from small_models.pairs import Pair, read_pairs, write_pairs
from small_models.policies import Policy, load_policy
from small_models.scorers import RewardModel

NOT_METRICS = ("groups",)


def metrics_of(record: StepRecord | PairRecord) -> dict[str, Any]:
    """Return the scalars of a record, as they stand in metrics.jsonl."""
    return {name: value for name, value in vars(record).items() if name not in NOT_METRICS}


def history(records: Sequence[StepRecord | PairRecord]) -> pd.DataFrame:
    """Return one row of scalars a step, as `RunFolder.metrics` does for a run on disk."""
    return pd.DataFrame([metrics_of(record) for record in records])


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; the file is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a .jsonl file; a last line that a crash cut short is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _group_record(row: dict[str, Any]) -> GroupRecord:
    responses = tuple(
        ResponseRecord(**{**response, "tokens": tuple(TokenRecord(**token) for token in response["tokens"])})
        for response in row["responses"]
    )
    return GroupRecord(**{**row, "responses": responses})


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: dict[str, Any]) -> RunFolder:
        """Make the folder and write config.json. Raises FileExistsError when anything is in it, OSError as it comes."""
        folder = cls(Path(path))
        if folder.path.exists() and not folder.path.is_dir():
            raise FileExistsError(f"out: {path} is a file; name a new folder")
        if folder.path.exists() and any(folder.path.iterdir()):
            raise FileExistsError(f"out: {path} is not empty; name a new folder, or resume the run that it holds")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            write_json(folder.path / "config.json", config)
        except OSError as error:
            raise OSError(f"out: {path} cannot be made or written ({error.strerror})") from error
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of an existing run. Raises FileNotFoundError when there is none."""
        folder = cls(Path(path))
        if not (folder.path / "config.json").is_file():
            raise FileNotFoundError(f"run folder {path} holds no run (it has no config.json)")
        return folder

    @property
    def config(self) -> dict[str, Any]:
        return json.loads((self.path / "config.json").read_text(encoding="utf-8"))

    @property
    def metrics(self) -> pd.DataFrame:
        """One row a step."""
        return pd.DataFrame(_read_lines(self.path / "metrics.jsonl"))

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The recorded groups of each step, as they stand in samples.jsonl."""
        return _read_lines(self.path / "samples.jsonl")

    def records(self) -> list[Any]:
        """Return the run's steps, as `train` gave them; a step that is not whole on disk (yet) is left out.

        They are `StepRecord`s, or `PairRecord`s of a run that learned from pairs.

        Raises ValueError for a run that another version of rlviz wrote.
        """
        try:
            groups = {row["step"]: tuple(map(_group_record, row["groups"])) for row in self.samples}
            rows = [row for row in _read_lines(self.path / "metrics.jsonl") if row["step"] in groups]
            return [(PairRecord if "margin" in row else StepRecord)(**row, groups=groups[row["step"]]) for row in rows]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"the records in {self.path} were written by another version of rlviz ({type(error).__name__}: {error}); "
                "train again to look into a run"
            ) from error

    def append(self, record: StepRecord | PairRecord) -> None:
        groups = {"step": record.step, "groups": [asdict(group) for group in record.groups]}
        for name, row in (("metrics", metrics_of(record)), ("samples", groups)):
            with open(self.path / f"{name}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop the records of later steps, which the saved state does not know of."""
        for name in ("metrics", "samples"):
            file = self.path / f"{name}.jsonl"
            lines = [json.dumps(row) + "\n" for row in _read_lines(file) if row["step"] <= step]
            temporary = file.with_name(f".{file.name}")
            temporary.write_text("".join(lines), encoding="utf-8")
            os.replace(temporary, file)

    def save_start(self, start: Policy, reward_model: RewardModel | None, pairs: Sequence[Pair] | None) -> None:
        """Keep what the run began with: its policy, its reward model if it has one, its pairs if it has any."""
        start.save(self.path / "reference")
        if reward_model is not None:
            reward_model.save(self.path / "reward_model")
        if pairs:
            write_pairs(pairs, self.path / "pairs.jsonl")

    def load_start(self, device: str) -> tuple[Policy, RewardModel | None, list[Pair] | None]:
        """Return what `save_start` kept. Raises ValueError when it is damaged, or the policy is not there."""
        if not (self.path / "reference").is_dir():
            raise ValueError(f"run folder {self.path} lacks reference/, the policy that the run started from")
        start = load_policy(self.path / "reference", device=device).frozen_copy()
        scores, pairs = self.path / "reward_model", self.path / "pairs.jsonl"
        return (
            start,
            RewardModel.load(scores, device=device) if scores.is_dir() else None,
            read_pairs(pairs) if pairs.is_file() else None,
        )

    def save_state(self, policy: Policy, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Replace checkpoint/ by the policy, the optimizer's tensors and the counters, all of one moment."""
        new, old, now = (self.path / name for name in ("checkpoint.new", "checkpoint.old", "checkpoint"))
        shutil.rmtree(new, ignore_errors=True)
        policy.save(new)
        save_file(tensors, new / "training.safetensors")
        write_json(new / "training.json", state)
        if now.exists():
            shutil.rmtree(old, ignore_errors=True)
            now.rename(old)
        new.rename(now)
        shutil.rmtree(old, ignore_errors=True)

    def load_state(self, device: str) -> tuple[Policy, dict[str, torch.Tensor], dict[str, Any]]:
        """Return what `save_state` saved last. Raises ValueError when nothing was, or when it is damaged."""
        folder = next((f for f in (self.path / "checkpoint", self.path / "checkpoint.old") if f.is_dir()), None)
        if folder is None:
            raise ValueError(f"run folder {self.path} has no checkpoint yet, so there is nothing to resume")
        policy = load_policy(folder, device=device)
        try:
            tensors = load_file(folder / "training.safetensors")
            state = json.loads((folder / "training.json").read_text(encoding="utf-8"))
            missing = {"step", "train_seconds", "tokens_sampled"} - set(state) | {"generator"} - set(tensors)
            if missing:
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        except Exception as error:  # safetensors and json raise unrelated types
            raise ValueError(f"the checkpoint in {folder} is damaged ({error})") from error
        return policy, tensors, state
