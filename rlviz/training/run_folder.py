"""A run on disk: config.json, metrics.jsonl, samples.jsonl, checkpoint/, reference/, summary.json; where it has them
reward_model/, pairs.jsonl, and task.jsonl, the prompts and answers of a task from a file.

JSON and safetensors only. A file is replaced whole; the two .jsonl files grow by a line a step. config.json is written when all
that a run begins with is there. .lock is the file that the process which trains holds a lock on.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlviz.training.files import LOCK, FolderLock, append_line, flush, json_text, write_json, write_text
from rlviz.training.reading import read_config, read_rows, read_state, with_advice
from rlviz.training.tasks import find_task
from rlviz.types import PART, PairRecord, StepRecord
from small_models import adapters
from small_models.checks import check_type, checked
from small_models.files import display_path, reason
from small_models.pairs import read_pairs, write_pairs
from small_models.policies import Policy, load_policy
from small_models.scorers import RewardModel
from small_models.tasks import TASK_FILE, FileTask, Task, is_code

if TYPE_CHECKING:
    import pandas as pd

    from rlviz.training.state import Beginning

CONFIG, REFERENCE, GIVEN = "config.json", "reference", "given_reference"  # what the run began with; what it was given
NOW, NEW, COUNTERS = "checkpoint", "checkpoint.new", "training.json"  # a checkpoint's last file
NO_STEP = "a run is just beginning in it, or was stopped before its first step (then delete it)"
ROWS, TRL_LOG = ("metrics.jsonl", "samples.jsonl"), "trainer_state.json"


def metrics_of(record: StepRecord | PairRecord) -> dict[str, Any]:
    """Return the scalars of a record, as they stand in metrics.jsonl."""
    return {name: value for name, value in vars(record).items() if name != "groups"}


@checked
def history(records: Sequence[StepRecord | PairRecord]) -> pd.DataFrame:
    """Return one row of scalars a step, as `RunFolder.metrics` does for a run on disk; named parts of a reward as part:NAME."""
    import pandas as pd

    rows = [metrics_of(record) for record in records]
    for row in rows:
        row |= {f"{PART}{name}": mean for name, mean in (row.pop("reward_parts", None) or {}).items()}
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. lock: the right to write into it (None: it is only read)."""

    path: Path
    lock: FolderLock | None = field(default=None, repr=False, compare=False)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Make the folder of a run that begins, with the lock on it. `finish_beginning` makes it the folder of a run.

        Raises FileExistsError when anything is in it, OSError when it cannot be made or another process is at it.
        """
        folder = Path(path)
        if not os.fspath(path):
            raise ValueError(f"out must be the path of a folder; got {path!r}")
        if folder.is_file():
            raise FileExistsError(f"out: {path} is a file; name a new folder")
        if (names := _entry_names(folder)) - {LOCK}:
            why = f": {NO_STEP}; name a new folder"
            if CONFIG in names or LOCK not in names:
                why = "; name a new folder, or resume the run that it holds"
            raise FileExistsError(f"out: {path} is not empty{why}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return cls(folder, FolderLock(folder))
        except OSError as error:
            raise OSError(f"out: {path} cannot be made or written ({_error_text(error)})") from error

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of an existing run, to read. Raises FileNotFoundError when there is none."""
        check_type("path", path, str | os.PathLike)
        folder = Path(path)
        if is_of_trl(folder):
            raise FileNotFoundError(
                f"run folder {display_path(path)} holds no run of rlviz but one of TRL: rlviz diagnose reads it where it is, and "
                f"rlviz import {display_path(path)} --out RUN keeps it in RUN, which can be inspected"
            )
        if not os.path.lexists(folder / CONFIG):
            why = f"yet: {NO_STEP}" if os.path.lexists(folder / LOCK) else f"(it has no {CONFIG})"
            raise FileNotFoundError(f"run folder {display_path(path)} holds no run {why}")
        return cls(folder)

    @classmethod
    def open_to_write(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of an existing run with the lock on it; a run of this process that had it ends.

        Raises FileNotFoundError when there is none, ValueError when another process has it.
        """
        folder = cls.open(path).path
        try:
            opened = cls(folder, FolderLock(folder))
        except BlockingIOError as error:
            raise ValueError(f"run folder {path}: {error}; wait until that ends, or stop it") from error
        opened.take_new_checkpoint()
        return opened

    def release(self, why: str) -> None:
        """Let others write into the folder, if this one did."""
        if self.lock is not None:
            self.lock.release(why)

    def check_lock(self) -> None:
        """Raise RuntimeError unless this may write into the folder."""
        why = "was opened to read" if self.lock is None else self.lock.why_not
        if why is not None:
            raise RuntimeError(f"this run in {self.path} {why}; to go on, resume({str(self.path)!r})")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise a full or failing disk's errors as one sentence that names the last checkpoint, and release the folder."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            self.release("could not be written")
            safe = "make room, then begin again"
            with suppress(OSError, ValueError):
                step = read_state(self.newest_checkpoint)["step"]
                safe = f"its last checkpoint, of step {step}, is safe: make room, then resume it"
            raise OSError(f"the run in {self.path} cannot be written ({_error_text(error)}); {safe}") from error

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json. Raises ValueError where it is not what `train` writes, as the other readers do."""
        return read_config(self.path)

    @property
    def metrics(self) -> pd.DataFrame:
        """One row a step; of an imported run what was not logged is not a number."""
        frame = history([record for _, record in read_rows(self.path / "metrics.jsonl")])
        lacking = [name for name in self.config.get("lacking", ()) if name in frame]
        frame[lacking] = math.nan
        frame.attrs["lacking"] = lacking
        return frame

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The recorded groups of each step, as they stand in samples.jsonl."""
        return [row for row, _ in read_rows(self.path / "samples.jsonl")]

    def records(self) -> list[Any]:
        """Return the run's records, as `train` yielded them, without steps that are not complete on disk (yet).

        They are `StepRecord`s, or `PairRecord`s of a run that learned from pairs.

        Raises ValueError, naming file, line and field, for damage and for a run that another version of rlviz wrote.
        """
        groups = {row["step"]: groups for row, groups in read_rows(self.path / "samples.jsonl")}
        records = (record for _, record in read_rows(self.path / "metrics.jsonl"))
        return [replace(record, groups=groups[record.step]) for record in records if record.step in groups]

    def missing_steps(self) -> list[int]:
        """Return the steps that `records` leaves out, though later ones are there."""
        metrics, samples = ({row["step"] for row, _ in read_rows(self.path / name)} for name in ROWS)
        return sorted(set(range(1, max(metrics, default=0))) - (metrics & samples))

    def append(self, record: StepRecord | PairRecord) -> None:
        """Add a step's records. Raises OSError in one sentence when that fails, RuntimeError without the lock."""
        self.check_lock()
        with self.writing():
            rows = metrics_of(record), {"step": record.step, "groups": record.groups}
            for name, row in zip(ROWS, rows, strict=True):
                append_line(self.path / name, json_text(row))

    def forget_after(self, step: int) -> None:
        """Drop the records after this step. Raises ValueError for damaged records, and changes nothing then."""
        files = filter(Path.exists, map(self.path.joinpath, ROWS))
        counts = {file: sum(row["step"] <= step for row, _ in read_rows(file)) for file in files}
        with self.writing():
            for file, count in counts.items():
                data = file.read_bytes()
                lines = b"".join(line + b"\n" for line in data.split(b"\n")[:count])  # a row a line
                if lines != data:
                    write_text(file, lines.decode("utf-8-sig"))

    def save_start(self, begun: Beginning) -> None:
        """Save the run's beginning: its policy, its task's file, and reward model, pairs and reference where it has them."""
        with self.writing():
            begun.start.save(self.path / REFERENCE)
            for name, text in begun.task.files.items():
                write_text(self.path / name, text)
            if begun.reward_model is not None:
                begun.reward_model.save(self.path / "reward_model")
            if begun.reference is not None:
                begun.reference.save(self.path / GIVEN)
            if begun.pairs:
                write_pairs(begun.pairs, self.path / "pairs.jsonl")

    def finish_beginning(self, config: dict[str, Any]) -> None:
        """Write config.json: from now on the folder holds a run. All else that a run begins with must be in it."""
        with self.writing():
            flush(path for path in self.path.rglob("*") if path.name != LOCK)
            write_json(self.path / CONFIG, config)
            flush([self.path.parent])

    def load_task(self, rule: str | None = None) -> Task:
        """Return the run's task, a shipped one or that of its own file. rule: where it is code, which no folder decides to run.

        Raises ValueError where that is not given.
        """
        begun, name = self.config.get("rule"), self.config["task"]
        if begun is None:
            return find_task(name, rule=rule)
        if rule is None and is_code(begun):
            raise ValueError(
                f"rule: the run in {self.path} is graded by {begun}, which is code, and none is imported because a run folder "
                "names it; give it again as FILE.py:function"
            )
        return FileTask(self.path / TASK_FILE, rule or begun, name=name)

    @with_advice()
    def load_start(self, device: str, policy: Policy) -> dict[str, Any]:
        """Return what `save_start` kept, by the names of `Beginning`. policy: the run's, whose base a LoRA run's start shares.

        Raises ValueError when it is damaged, or the policy is not there.
        """
        scores, pairs = self.path / "reward_model", self.path / "pairs.jsonl"
        parts: dict[str, Any] = {
            "start": self._load_policy(REFERENCE, device, "the policy that the run started from", policy).as_reference()
        }
        if scores.is_dir():
            parts["reward_model"] = RewardModel.load(scores, device=device)
        if os.path.lexists(pairs):
            parts["pairs"] = read_pairs(pairs)
        if self.config.get("reference") is not None:
            parts["reference"] = self._load_policy(GIVEN, device, "the reference that the run was given").as_reference()
        return parts

    def _load_policy(self, name: str, device: str, what: str, beside: Policy | None = None) -> Policy:
        """Return the policy in a folder of the run. beside: a LoRA policy whose base it shares, if it is the same."""
        if not (self.path / name).is_dir():  # else a hub might be asked for it
            raise ValueError(f"run folder {self.path} lacks {name}/, {what}")
        base = adapters.base_in(self.path / name)
        if beside is not None and base is not None and beside.base is not None and base.digest == beside.base.digest:
            policy = beside.as_reference()
            adapters.load_adapter_weights(policy.weights, self.path / name)
        else:
            policy = load_policy(self.path / name, device=device)
        return policy

    def save_state(self, policy: Policy, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Put the policy, the optimizer's tensors and the counters, all of one moment, in the place of checkpoint/.

        Returns when the disk has all, and the records up to here. A process that is killed leaves checkpoint/ as it was,
        or a whole checkpoint.new/, of which training.json is written last and which `open_to_write` then takes.
        Raises OSError in one sentence where it cannot be written, RuntimeError without the lock.
        """
        self.check_lock()
        new = self.path / NEW
        with self.writing():
            shutil.rmtree(new, ignore_errors=True)
            policy.save(new)
            save_file(tensors, new / "training.safetensors")
            records = filter(Path.exists, map(self.path.joinpath, ROWS))
            flush([*records, *new.rglob("*")])
            write_json(new / COUNTERS, state)
        self.take_new_checkpoint()

    @property
    def newest_checkpoint(self) -> Path:
        """The last whole checkpoint: checkpoint.new/ where it could not yet take the place of checkpoint/."""
        return self.path / (NEW if (self.path / NEW / COUNTERS).is_file() else NOW)

    def take_new_checkpoint(self) -> None:
        """Put a whole checkpoint.new/ in the place of checkpoint/."""
        with self.writing():
            if self.newest_checkpoint.name == NEW:
                if (self.path / NOW).exists():
                    shutil.rmtree(self.path / NOW)
                (self.path / NEW).rename(self.path / NOW)
                flush([self.path])

    @with_advice()
    def load_state(self, device: str) -> tuple[Policy, dict[str, torch.Tensor], dict[str, Any]]:
        """Return what `save_state` saved last. Raises ValueError, in one sentence, where it is missing or damaged."""
        checkpoint = self.path / NOW
        policy = self._load_policy(NOW, device, "so there is nothing to resume")
        try:
            return policy, load_file(checkpoint / "training.safetensors"), read_state(checkpoint)
        except Exception as error:  # safetensors raises what is its own
            raise ValueError(f"the checkpoint in {checkpoint} is damaged ({reason(error)})") from error


def finite_weights(policy: Policy) -> bool:
    """Return whether all weights are finite numbers."""
    return all(bool(weight.isfinite().all()) for weight in policy.weights.parameters())


def is_of_trl(path: Path) -> bool:
    """Return True for a folder in which TRL trained, or its log; a model that it saved has a config.json, too."""
    with suppress(OSError):
        has_log = (path / TRL_LOG).exists() or any(path.glob(f"checkpoint-*/{TRL_LOG}"))
        return path.name == TRL_LOG or (has_log and not os.path.lexists(path / "metrics.jsonl"))
    return False


def _entry_names(folder: Path) -> set[str]:
    """Return the names in a folder, none where there is no such folder."""
    with suppress(OSError):  # one may be too long for a path
        return {entry.name for entry in folder.iterdir()}
    return set()


def _error_text(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
