"""Logs of real runs under rlviz's names: TRL's trainer_state.json and completions, verl's file logger.

Read is JSON, and parquet by pyarrow: nothing is unpickled or run, and no file larger than LARGEST is opened.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlviz
from rlviz.training.files import json_text, write_text
from rlviz.training.run_folder import TRL_LOG, RunFolder
from rlviz.types import GroupRecord, PairRecord, ResponseRecord, StepRecord
from small_models.checks import pip_install
from small_models.files import check_regular, parse, read_file, read_lines, said

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 512 * 2**20  # bytes of one file
MOST_ROWS = 1_000_000  # completions of one file
RIGHT = 0.5  # of the first reward function: from above this a response counts as right
BEFORE = "Step 0 was left out: an evaluation before training, and steps are counted from 1 here."
COMPLETIONS = "completions"
OF_VALIDATION = re.compile(r"val-(core|aux)/.+/acc/mean@\d+")
OF_ACCURACY = re.compile(r"(eval_)?rewards/\w*(accuracy|correct)\w*/mean")

Names = Mapping[str, str]
TRL: Names = {
    "reward": "reward",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "lr",
    "entropy": "entropy",
    "kl": "kl",
    "completions/mean_length": "response_length",
    "completions/clipped_ratio": "truncated",
    "frac_reward_zero_std": "zero_variance_groups",
    "clip_ratio/low_mean": "clip_fraction_low",
    "clip_ratio/high_mean": "clip_fraction_high",
    "clip_ratio/dual_mean": "clip_fraction_dual",
    "step_time": "seconds",
    "rewards/margins": "margin",
    "rewards/accuracies": "pair_accuracy",
    "rewards/chosen": "chosen_reward",
    "rewards/rejected": "rejected_reward",
    "logps/chosen": "chosen_logp",
    "logps/rejected": "rejected_logp",
}
VERL: Names = {  # as its trainer/ppo/ray_trainer.py and metric_utils.py of 0.9.1 write them
    "critic/rewards/mean": "reward",
    "actor/pg_loss": "loss",
    "actor/loss": "loss",  # with the KL term, which pg_loss leaves out
    "actor/grad_norm": "grad_norm",
    "actor/lr": "lr",
    "actor/entropy": "entropy",
    "actor/kl_loss": "kl",
    "response_length/mean": "response_length",
    "response_length/clip_ratio": "truncated",
    "actor/pg_clipfrac_lower": "clip_fraction_dual",
    "timing_s/step": "seconds",
    "rollout_corr/k3_kl": "mismatch_kl",
    "critic/vf_loss": "value_loss",
    "critic/vf_explained_var": "explained_variance",
}


@dataclass(frozen=True)
class Imported:
    """A run that another program trained, under rlviz's names.

    source: what wrote it, "trl" or "verl". name: of its algorithm or trainer. rows: a step's numbers each,
    column → number. groups: step → its recorded groups. others: what was logged and has no name here. notes: what could
    not be read, a sentence each.
    """

    source: str
    name: str
    rows: tuple[dict[str, Any], ...]
    groups: Mapping[int, tuple[GroupRecord, ...]]
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> type[Any]:
        """What a step of it is: a `StepRecord`, or a `PairRecord` of a run on pairs."""
        return PairRecord if any("margin" in row for row in self.rows) else StepRecord

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns of every such run that this one has not."""
        there = {name for row in self.rows for name, value in row.items() if value is not None} | {"groups"}
        return tuple(field.name for field in fields(self.kind) if field.name not in there and field.default is MISSING)

    @property
    def metrics(self) -> pd.DataFrame:
        """One row a step, with the columns that there are; `plot_learning_curves` draws it."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def save(self, out: str | os.PathLike[str]) -> Path:
        """Write it into a new folder as rlviz keeps runs, so that `inspect_run`, `diagnose` and learning curves open it.

        Raises FileExistsError where anything is in that folder.
        """
        folder = RunFolder.create(out)
        empty = {field.name: _placeholder(field) for field in fields(self.kind) if field.name != "groups"}
        write_text(folder.path / "metrics.jsonl", _lines({**empty, **row} for row in self.rows))
        told = [{"step": step, "groups": groups} for step, groups in sorted(self.groups.items())]
        if self.kind is PairRecord:
            told = [{"step": row["step"], "groups": ()} for row in self.rows]
        write_text(folder.path / "samples.jsonl", _lines(told))
        folder.finish_beginning(
            {
                "rlviz": rlviz.__version__,
                "task": f"{self.source} log",
                "policy": self.source,
                "algorithm": {"piece": f"{self.source}:{self.name}", "name": self.name},
                "settings": {"steps": self.rows[-1]["step"]},
                "path": "transformers",
                "imported": self.source,
                "lacking": list(self.lacking),
            }
        )
        folder.release("was imported")
        return folder.path


def import_run(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Imported:
    """Return a real run under rlviz's names; with `out`, it is kept in that folder as one of rlviz's own.

    path: TRL's trainer_state.json, or the folder of its run, beside whose checkpoints stand completions/*.parquet where
    log_completions was on; verl's EXPERIMENT.jsonl. A column that was not logged is not a
    number, and `lacking` names it. Raises ValueError, in one sentence, for what is none of these and for damage.
    """
    file = _found(Path(path))
    if file.stat().st_size > LARGEST:
        raise ValueError(f"{said(file)} must be at most {LARGEST // 2**20} MB; it has {file.stat().st_size // 2**20}")
    run = _of_lines(file) if file.suffix == ".jsonl" else _of_object(file)
    if out is not None:
        run.save(out)
    return run


def _found(path: Path) -> Path:
    """Return the log at this path, or the newest one in this folder."""
    if not path.exists():
        raise ValueError(f"{said(path)} is not there")
    if not path.is_dir():
        check_regular(path)
        return path
    if (path / "config.json").is_file() and (path / "metrics.jsonl").is_file():
        raise ValueError(f"{said(path)} is a run of rlviz already: rlviz diagnose opens it")
    states = [*path.glob(TRL_LOG), *path.glob(f"checkpoint-*/{TRL_LOG}")]
    logs = sorted(path.glob("*.jsonl"), key=lambda each: each.stat().st_mtime)
    if not states and not logs:
        raise ValueError(f"{said(path)} is the folder of no run: it has no {TRL_LOG} (TRL) and no .jsonl (verl)")
    return max(states, key=_step_of) if states else logs[-1]


def _step_of(state: Path) -> float:
    """Return the step of a checkpoint's state; the one beside the checkpoints is the last."""
    number = state.parent.name.removeprefix("checkpoint-")
    return float(number) if number.isdigit() else math.inf


def _of_object(file: Path) -> Imported:
    data = read_file(file)
    for word in (
        b"-Infinity",
        b"Infinity",
        b"NaN",
    ):  # Python writes them for numbers that are not finite, and they are no JSON
        data = re.sub(rb"(?<=: )" + word + rb"\b", b"null", data)
    value = parse(data, said(file))
    if not isinstance(value, Mapping) or not isinstance(value.get("log_history"), list):
        raise ValueError(f"{said(file)} is no log of TRL: it has no log_history")
    raw = _merged(
        _checked(row, row, f"{said(file)}: log_history[{place}]") for place, row in enumerate(value["log_history"])
    )
    groups, notes = _completions(file)
    of_pairs = any("rewards/margins" in row for _, row in raw)
    return _imported("trl", "DPOTrainer" if of_pairs else "GRPOTrainer", file, raw, TRL, groups, notes)


def _of_lines(file: Path) -> Imported:
    rows = list(read_lines(file, growing=True))
    raw = _merged(_checked(row, row.get("data") if isinstance(row, Mapping) else None, where) for where, row in rows)
    return _imported("verl", "verl's trainer", file, raw, VERL, {}, ())


def _checked(row: Any, data: Any, where: str) -> tuple[int, dict[str, Any]]:
    """Return the step of a line of a log and its numbers, null where one was not finite. Raises ValueError without either."""
    step = row.get("step") if isinstance(row, Mapping) else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 0 or not isinstance(data, Mapping):
        raise ValueError(f"{where} must be an object with a step, a whole number, and the numbers of that step")
    numbers = {
        str(name): math.nan if value is None else value
        for name, value in data.items()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    }
    return step, numbers


def _merged(lines: Iterable[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """Return one entry a step: of one step training and evaluation have a line each."""
    merged: dict[int, dict[str, Any]] = {}
    for step, numbers in lines:
        merged[step] = {**numbers, **merged.get(step, {})}
    return sorted(merged.items())


def _imported(
    source: str,
    name: str,
    file: Path,
    raw: Sequence[tuple[int, Mapping[str, Any]]],
    names: Names,
    groups: Mapping[int, tuple[GroupRecord, ...]],
    notes: Sequence[str],
) -> Imported:
    rows, others = [], set()
    first = min((step for step, _ in raw), default=1)
    for step, numbers in raw:
        row = {
            name: numbers[each] for each, name in names.items() if each in numbers
        }  # a later name stands before an earlier
        for each, value in numbers.items():
            if OF_ACCURACY.fullmatch(each) or OF_VALIDATION.fullmatch(each):
                row.setdefault("accuracy" if each.startswith("rewards/") else "held_out_accuracy", value)
            elif each not in names and each != "step":
                others.add(each)
        if row and step >= 1:
            rows.append({"step": step, **row})
    if not rows:
        raise ValueError(f"{said(file)} has none of the metrics of {source}: {', '.join(list(names)[:4])}, …")
    known = {row["step"] for row in rows}
    before = [BEFORE] if first == 0 else []
    kept = {step: told for step, told in groups.items() if step in known}
    return Imported(source, name, tuple(rows), kept, tuple(sorted(others)), (*notes, *before))


def _completions(state: Path) -> tuple[dict[int, tuple[GroupRecord, ...]], list[str]]:
    """Return the groups of each step from the parquet files beside a TRL run, and what could not be read."""
    folder = next(
        (each / COMPLETIONS for each in (state.parent, state.parent.parent) if (each / COMPLETIONS).is_dir()), None
    )
    files = [] if folder is None else sorted(folder.glob("*.parquet"))
    if not files:
        return {}, []
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        return {}, [
            f"{len(files)} files of completions were not read, which takes pyarrow: {pip_install('rlviz[trl]')}"
        ]
    groups: dict[int, tuple[GroupRecord, ...]] = {}
    for file in files:
        check_regular(file)
        if file.stat().st_size > LARGEST:
            raise ValueError(f"{said(file)} must be at most {LARGEST // 2**20} MB")
        try:
            if parquet.ParquetFile(file).metadata.num_rows > MOST_ROWS:
                raise ValueError(f"{said(file)} must have at most {MOST_ROWS:,} rows")
            rows = parquet.read_table(file).to_pylist()
        except (ArrowException, OSError) as error:
            raise ValueError(f"{said(file)} is no whole parquet file ({str(error).splitlines()[0]})") from None
        for step, own in groupby(rows, key=lambda row: row.get("step")):
            if not isinstance(step, int):
                raise ValueError(f"{said(file)} must have a column step of whole numbers; got {step!r}")
            told = tuple(_group(list(each)) for _, each in groupby(own, key=lambda row: _text(row.get("prompt"))))
            groups[step] = told
    return groups, []


def _group(rows: list[dict[str, Any]]) -> GroupRecord:
    """Return the responses to a prompt: a column that is a number, and is neither step nor advantage, is a reward
    function's."""
    named = [n for n in rows[0] if n not in ("step", "prompt", "completion", "advantage")]
    functions = [
        n for n in named if all(isinstance(row[n], int | float) and not isinstance(row[n], bool) for row in rows)
    ]
    return GroupRecord(
        prompt=_text(rows[0].get("prompt")),
        gold=_text(rows[0].get("answer")),
        responses=tuple(
            ResponseRecord(
                text=_text(row.get("completion")),
                reward=float(sum(row[n] for n in functions)),
                advantage=float(row.get("advantage") or 0.0),
                length=0,
                correct=bool(functions) and row[functions[0]] > RIGHT,
                well_formed=True,
                truncated=False,
            )
            for row in rows
        ),
    )


def _text(value: Any) -> str:
    """Return a prompt or completion as text: of a conversation what was said, a turn a paragraph."""
    if isinstance(value, list):
        return "\n\n".join(_text(turn.get("content") if isinstance(turn, Mapping) else turn) for turn in value)
    return "" if value is None else str(value)


def _placeholder(field: Any) -> Any:
    """Return what stands in a file for a number that was not logged: null, or 0 of those that are counted."""
    return 0 if field.type == "int" else None if field.default is MISSING else field.default


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json_text(dict(row))}\n" for row in rows)
