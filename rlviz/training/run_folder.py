"""A run on disk: config.json, metrics.jsonl, samples.jsonl, checkpoint/, reference/, summary.json; where it has them
reward_model/, pairs.jsonl, and task.jsonl, the prompts and answers of a task from a file.

JSON and safetensors only. A file is replaced whole; the two .jsonl files grow by a line a step. checkpoint.old/ is the
checkpoint before, .lock the file that the process which trains holds a lock on.
"""

from __future__ import annotations

import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rlviz.training.files import (
    LOCK,
    FolderLock,
    append_line,
    flush,
    json_text,
    remove_leftovers,
    write_json,
    write_text,
)
from rlviz.training.reading import read_config, read_rows, read_state, with_advice
from rlviz.training.tasks import find_task
from rlviz.types import PairRecord, StepRecord
from small_models.checks import check_type, checked, shown
from small_models.files import said
from small_models.pairs import Pair, read_pairs, write_pairs
from small_models.policies import Policy, load_policy
from small_models.scorers import RewardModel
from small_models.tasks import KEPT, Task, TaskOfFile, is_code

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Restore = Callable[[Path, Policy, dict[str, torch.Tensor], dict[str, Any]], T]
GIVEN = "given_reference"  # reference/ is the policy that the run began with
NOT_METRICS = ("groups",)
TRL_LOG = "trainer_state.json"
CONFIG, NOW, OLD, NEW = "config.json", "checkpoint", "checkpoint.old", "checkpoint.new"


def metrics_of(record: StepRecord | PairRecord) -> dict[str, Any]:
    """Return the scalars of a record, as they stand in metrics.jsonl."""
    return {name: value for name, value in vars(record).items() if name not in NOT_METRICS}


@checked
def history(records: Sequence[StepRecord | PairRecord]) -> pd.DataFrame:
    """Return one row of scalars a step, as `RunFolder.metrics` does for a run on disk."""
    import pandas as pd

    return pd.DataFrame([metrics_of(record) for record in records])


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. lock: the right to write into it (None: it is only read)."""

    path: Path
    lock: FolderLock | None = field(default=None, repr=False, compare=False)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Make the folder of a run that begins, with the lock on it. `finish_beginning` makes it the folder of a run.

        An empty folder will do, and one in which a beginning was cut off. Raises FileExistsError when anything else is in it,
        OSError when it cannot be made or another process is at it.
        """
        if not os.fspath(path):
            raise ValueError(f"out must be the path of a folder; got {path!r}")
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"out: {path} is a file; name a new folder")
        names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
        if names and not _only_begun(names):
            raise FileExistsError(f"out: {path} is not empty; name a new folder, or resume the run that it holds")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            begun = cls(folder, FolderLock(folder))
        except OSError as error:
            raise OSError(f"out: {path} cannot be made or written ({_reason(error)})") from error
        for name in names - {LOCK}:
            _remove(folder / name)
        return begun

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of an existing run, to read. Raises FileNotFoundError when there is none."""
        check_type("path", path, str | os.PathLike)
        folder = cls(Path(path))
        if is_of_trl(folder.path):
            raise FileNotFoundError(
                f"run folder {said(path)} holds no run of rlviz but one of TRL: rlviz diagnose reads it where it is, and "
                f"rlviz import {said(path)} --out RUN keeps it in RUN, which can be inspected"
            )
        if not os.path.lexists(folder.path / CONFIG):
            begun = False
            with suppress(OSError):  # no folder, or a name too long for one
                begun = _only_begun({entry.name for entry in folder.path.iterdir()})
            why = "only a beginning that was cut off: begin again with it as out" if begun else f"it has no {CONFIG}"
            raise FileNotFoundError(f"run folder {said(path)} holds no run ({why})")
        return folder

    @classmethod
    def open_to_write(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of an existing run with the lock on it; a run of this process that had it ends.

        Raises FileNotFoundError when there is none, ValueError when another process has it.
        """
        folder = cls.open(path)
        try:
            return cls(folder.path, FolderLock(folder.path))
        except BlockingIOError as error:
            raise ValueError(f"run folder {path}: {error}; wait until that ends, or stop it") from error

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
        """Turn what a full or failing disk raises into one sentence that says what is safe, and let go of the folder."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            self.release("could not be written")
            step = _step_of(self.path / NOW)
            safe = f"its last checkpoint, of step {step}, is safe: make room, then resume it"
            raise OSError(
                f"the run in {self.path} cannot be written ({_reason(error)}); "
                f"{'make room, then begin again' if step is None else safe}"
            ) from error

    @property
    def config(self) -> dict[str, Any]:
        """What config.json says. Raises ValueError where it is not what `train` writes; the other readers do so too."""
        return read_config(self.path)

    @property
    @with_advice
    def metrics(self) -> pd.DataFrame:
        """One row a step; of an imported run what was not logged is not a number."""
        frame = history([record for _, _, record in read_rows(self.path / "metrics.jsonl")])
        lacking = [name for name in self.config.get("lacking", ()) if name in frame]
        frame[lacking] = math.nan
        frame.attrs["lacking"] = lacking
        return frame

    @property
    @with_advice
    def samples(self) -> list[dict[str, Any]]:
        """The recorded groups of each step, as they stand in samples.jsonl."""
        return [row for _, row, _ in read_rows(self.path / "samples.jsonl")]

    @with_advice
    def records(self) -> list[Any]:
        """Return the run's steps, as `train` gave them; a step that is not whole on disk (yet) is left out.

        They are `StepRecord`s, or `PairRecord`s of a run that learned from pairs.

        Raises ValueError, naming file, line and field, for damage and for a run that another version of rlviz wrote.
        """
        samples = {row["step"]: (where, groups) for where, row, groups in read_rows(self.path / "samples.jsonl")}
        records, imported = [], "imported" in self.config
        for _, row, record in read_rows(self.path / "metrics.jsonl"):
            if row["step"] in samples:
                where, groups = samples[row["step"]]
                records.append(replace(record, groups=groups))
                if isinstance(record, StepRecord) and not (groups or imported):
                    raise ValueError(f"{where}: groups must hold at least one group; got []")
        return records

    @with_advice
    def missing_steps(self) -> list[int]:
        """Return the steps that `records` leaves out, though later ones are there."""
        metrics, samples = (
            {row["step"] for _, row, _ in read_rows(self.path / f"{name}.jsonl")} for name in ("metrics", "samples")
        )
        return sorted(set(range(1, max(metrics, default=0))) - (metrics & samples))

    def append(self, record: StepRecord | PairRecord) -> None:
        """Add a step's records. Raises OSError in one sentence when that fails, RuntimeError without the lock."""
        self.check_lock()
        with self.writing():
            append_line(self.path / "metrics.jsonl", json_text(metrics_of(record)))
            append_line(self.path / "samples.jsonl", json_text({"step": record.step, "groups": record.groups}))

    def forget_after(self, step: int, checkpoint: Path) -> None:
        """Drop what the state of this step, loaded from this checkpoint, does not know: later records, a damaged checkpoint.

        Warns when records of earlier steps are missing. Raises ValueError for damaged records, and changes nothing then.
        """
        files = {name: self.path / f"{name}.jsonl" for name in ("metrics", "samples")}
        try:
            kept = {name: [row for _, row, _ in read_rows(file) if row["step"] <= step] for name, file in files.items()}
        except ValueError as error:
            raise ValueError(f"{error}; nothing was changed: mend that file, or train again") from error
        missing = set(range(1, step + 1)) - {row["step"] for row in kept["metrics"]}
        if missing:
            warnings.warn(
                f"{files['metrics']} lacks {len(missing)} of the {step} steps done, the first of them step {min(missing)}",
                stacklevel=4,
            )
        with self.writing():
            remove_leftovers(self.path)
            for name, rows in kept.items():
                text = "".join(f"{json_text(row)}\n" for row in rows)
                if files[name].exists() and files[name].read_bytes() != text.encode():
                    write_text(files[name], text)
            if checkpoint != self.path / NOW:
                _remove(self.path / NOW)
                checkpoint.rename(self.path / NOW)

    def save_start(
        self,
        start: Policy,
        task: Task,
        reward_model: RewardModel | None,
        pairs: Sequence[Pair] | None,
        reference: Policy | None,
    ) -> None:
        """Keep what the run began with: its policy, its task's file, and its reward model, pairs and reference where given."""
        with self.writing():
            start.save(self.path / "reference")
            for name, text in task.files.items():
                (self.path / name).write_text(text, encoding="utf-8")
            if reward_model is not None:
                reward_model.save(self.path / "reward_model")
            if reference is not None:
                reference.save(self.path / GIVEN)
            if pairs:
                write_pairs(pairs, self.path / "pairs.jsonl")
            flush(path for path in self.path.rglob("*") if path.name != LOCK)

    def finish_beginning(self, config: dict[str, Any]) -> None:
        """Write config.json: from now on the folder holds a run. All else that a run begins with must be in it."""
        with self.writing():
            write_json(self.path / CONFIG, config)
            flush([self.path.parent])

    def undo_beginning(self) -> None:
        """Remove what was written since `create`; an empty folder stays."""
        with suppress(OSError):
            for name in {entry.name for entry in self.path.iterdir()} - {LOCK}:
                _remove(self.path / name)
            self.release("could not begin")
            _remove(self.path / LOCK)

    def load_task(self, rule: str | None = None) -> Task:
        """Return the run's task, a shipped one or that of its own file. rule: where it is code, which no folder decides to run.

        Raises ValueError where that is not given, or is another, and where the file is not the one the run began with.
        """
        config = self.config
        begun = config.get("rule")
        if begun is None:
            if rule is not None:
                raise ValueError(
                    f"rule: the run in {self.path} is graded by its task, {config['task']}, and takes none"
                )
            return find_task(config["task"])
        if rule is None and is_code(begun):
            raise ValueError(
                f"rule: the run in {self.path} is graded by {begun}, which is code, and none is imported because a run folder "
                "names it; give it again as FILE.py:function"
            )
        task = TaskOfFile(self.path / KEPT, rule or begun, name=config["task"])
        if task.described["rule"] != begun:
            raise ValueError(f"rule: the run in {self.path} is graded by {begun}; got {shown(rule)}")
        if task.described["rows"] != config.get("rows"):
            raise ValueError(
                f"task: {self.path / KEPT} is not as the run in {self.path} began with it; restore it from a copy"
            )
        return task

    def load_start(self, device: str) -> tuple[Policy, RewardModel | None, list[Pair] | None, Policy | None]:
        """Return what `save_start` kept. Raises ValueError when it is damaged, or the policy is not there."""
        if not (self.path / "reference").is_dir():
            raise ValueError(f"run folder {self.path} lacks reference/, the policy that the run started from")
        start = load_policy(self.path / "reference", device=device).frozen_copy()
        _check_finite(start, self.path / "reference", "restore it from a copy, or train again")
        if self.config.get("reference") is not None and not (self.path / GIVEN).is_dir():
            raise ValueError(f"run folder {self.path} lacks {GIVEN}/, the reference that the run was given")
        scores, pairs, given = (self.path / name for name in ("reward_model", "pairs.jsonl", GIVEN))
        return (
            start,
            RewardModel.load(scores, device=device) if scores.is_dir() else None,
            read_pairs(pairs) if pairs.is_file() else None,
            load_policy(given, device=device).frozen_copy() if given.is_dir() else None,
        )

    def save_state(self, policy: Policy, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Replace checkpoint/ by the policy, the optimizer's tensors and the counters, all of one moment.

        The one before stays as checkpoint.old/. Returns when the disk has all, and the records up to here before it.
        Raises OSError in one sentence when that fails, RuntimeError without the lock; the checkpoints that were there stay.
        """
        self.check_lock()
        new, old, now = (self.path / name for name in (NEW, OLD, NOW))
        with self.writing():
            _remove(new)
            try:
                policy.save(new)
                save_file(tensors, new / "training.safetensors")
                counted = json_text({**state, "tensors": len(tensors)}, indent=2)
                (new / "training.json").write_text(counted + "\n", encoding="utf-8")
                records = (self.path / f"{name}.jsonl" for name in ("metrics", "samples"))
                flush([*filter(Path.exists, records), *new.rglob("*"), new])
            except BaseException:
                _remove(new)
                raise
            if os.path.lexists(now):
                _remove(old)
                now.rename(old)
            new.rename(now)
            flush([self.path])

    def load_state(self, device: str, restore: Restore[T]) -> T:
        """Return what `restore` makes of what `save_state` saved last, given the checkpoint's folder beside that.

        Where the last one is missing or damaged, or `restore` raises DamagedError, it is the one before, with a warning.
        Raises ValueError when nothing was saved, all of it is damaged, or the policy's weights are not finite.
        """
        damages = []
        for folder in (self.path / NOW, self.path / OLD):
            if not os.path.lexists(folder):
                continue
            try:
                policy, tensors, state = _load_checkpoint(folder, device)
                _check_finite(policy, folder, "train again, with a smaller lr")
                restored = restore(folder, policy, tensors, state)
            except DamagedError as error:
                damages.append(str(error))
                continue
            if folder.name == OLD:
                why = damages[0] if damages else f"run folder {self.path} has lost its newest checkpoint"
                warnings.warn(
                    f"{why}; the one before it, of step {state['step']}, is whole, and the steps after it are done again",
                    stacklevel=4,
                )
            return restored
        if damages:
            raise ValueError("; ".join(damages))
        raise ValueError(f"run folder {self.path} has no checkpoint, so there is nothing to resume; train again")


class DamagedError(ValueError):
    """A checkpoint is not whole, so that the one before it is asked for."""


def finite_weights(policy: Policy) -> bool:
    """Return whether all weights are finite numbers."""
    return all(bool(weight.isfinite().all()) for weight in policy.weights.parameters())


def _check_finite(policy: Policy, folder: Path, advice: str) -> None:
    if not finite_weights(policy):
        raise ValueError(
            f"the policy in {folder} has weights that are not finite numbers, which no step can mend: {advice}"
        )


def _load_checkpoint(folder: Path, device: str) -> tuple[Policy, dict[str, torch.Tensor], dict[str, Any]]:
    if folder.is_symlink() or not folder.is_dir():
        raise DamagedError(f"{folder} must be a folder; it is {'a link' if folder.is_symlink() else 'a file'}")
    try:
        policy = load_policy(folder, device=device)
    except ValueError as error:
        raise DamagedError(str(error)) from error
    try:
        tensors = load_file(folder / "training.safetensors")
        state = read_state(folder)
        if "generator" not in tensors:
            raise ValueError("it lacks generator")
    except Exception as error:  # safetensors and json raise unrelated types
        raise DamagedError(f"the checkpoint in {folder} is damaged ({error})") from error
    return policy, tensors, state


def _step_of(checkpoint: Path) -> int | None:
    """Return the step of a checkpoint, None where it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(read_state(checkpoint)["step"])
    return None


def is_of_trl(path: Path) -> bool:
    """Whether TRL trained here, or this is its log: a model that it saved there has a config.json, too."""
    with suppress(OSError):
        there = (path / TRL_LOG).exists() or any(path.glob(f"checkpoint-*/{TRL_LOG}"))
        return path.name == TRL_LOG or (there and not os.path.lexists(path / "metrics.jsonl"))
    return False


def _only_begun(names: set[str]) -> bool:
    """Return whether a folder of these names is one in which a run's beginning was cut off, so that nothing is lost in it."""
    ours = {LOCK, NEW, NOW, "reference", GIVEN, "reward_model", "pairs.jsonl", KEPT}
    return LOCK in names and all(name in ours or name.startswith(f".{CONFIG}.") for name in names)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
