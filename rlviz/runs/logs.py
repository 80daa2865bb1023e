"""import_run: runs of TRL, verl and other programs under rlviz's names, and TRL's completions.

Parquet is read by pyarrow; nothing is unpickled or run (`log_files.py` reads the rest).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlviz
from rlviz.runs.log_files import ENDINGS, find_log, merge_lines, parse_log
from rlviz.runs.log_names import LONGEST_NAME, WRITERS, extra_column, is_accuracy, metric_name, nan_column, writer_of
from rlviz.training.files import json_text, write_text
from rlviz.training.run_folder import RunFolder, is_of_trl
from rlviz.types import GroupRecord, PairRecord, ResponseRecord, StepRecord
from small_models.checks import pip_install
from small_models.files import check_regular, display_path, read_lines

if TYPE_CHECKING:
    import pandas as pd

RIGHT = 0.5  # of the first reward function: from above this a response counts as right
BEFORE = "Step 0 was left out: an evaluation before training, and steps are counted from 1 here."
COMPLETIONS = "completions"
LOGGED = "logged.jsonl"
OWN = {"config.json", "comparison.json", "metrics.jsonl"}  # one of them is in each folder of rlviz's runs
WHICH_FILE = "take trainer_state.json of TRL's or ms-swift's output folder, verl's .jsonl, or an export of W&B (.csv)"


@dataclass(frozen=True)
class ImportedRun:
    """A run that another program trained, under rlviz's names.

    source: whose names its log has, a key of `log_names.WRITERS`. rows: a step's numbers each, column → number. extras: of the
    same steps, what no record of rlviz has. groups: step → its recorded groups. others: what was logged and has no name here.
    notes: what could not be read, a sentence each.
    """

    source: str
    rows: tuple[dict[str, Any], ...]
    extras: tuple[dict[str, Any], ...]
    groups: Mapping[int, tuple[GroupRecord, ...]]
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Whose names they are, in words."""
        return WRITERS[self.source].title

    @property
    def kind(self) -> type[Any]:
        """What a step of it is: a `StepRecord`, or a `PairRecord` of a run on pairs."""
        return PairRecord if any("margin" in row for row in self.rows) else StepRecord

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns of every such run that this one has not."""
        logged = {name for row in self.rows for name, value in row.items() if value is not None} | {"groups"}
        return tuple(field.name for field in fields(self.kind) if field.name not in logged and field.default is MISSING)

    @property
    def unseen(self) -> tuple[str, ...]:
        """What `diagnose` would look at first and was not logged, as the program names it."""
        if self.kind is PairRecord:
            return ()
        names = {ours: theirs for theirs, ours in WRITERS[self.source].names.items()}
        logged = {name for row in self.rows for name in row}
        # not the KL: a run without a KL term logs none
        expected = "reward", "grad_norm", "entropy", "truncated", "zero_variance_groups"
        return tuple(names[name] for name in expected if name in names and name not in logged)

    @property
    def logged(self) -> pd.DataFrame:
        """One row a step, with all that `diagnose` looks at."""
        import pandas as pd

        return pd.DataFrame([{**row, **extra} for row, extra in zip(self.rows, self.extras, strict=True)])

    def save(self, out: str | os.PathLike[str]) -> Path:
        """Write it into a new folder as rlviz keeps runs, so that `inspect_run`, `diagnose` and learning curves open it.

        Raises FileExistsError where anything is in that folder.
        """
        folder = RunFolder.create(out)
        # what stands in a file for a number that was not logged: null, or 0 of those that are counted
        empty = {
            field.name: 0 if field.type == "int" else None if field.default is MISSING else field.default
            for field in fields(self.kind)
            if field.name != "groups"
        }
        write_text(folder.path / "metrics.jsonl", _lines({**empty, **row} for row in self.rows))
        rows = zip(self.rows, self.extras, strict=True)
        write_text(folder.path / LOGGED, _lines({"step": row["step"], **extra} for row, extra in rows))
        samples = ({"step": row["step"], "groups": self.groups.get(row["step"], ())} for row in self.rows)
        write_text(folder.path / "samples.jsonl", _lines(samples))
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


def import_run(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> ImportedRun:
    """Return a real run under rlviz's names; with `out`, it is kept in that folder as one of rlviz's own.

    path: TRL's trainer_state.json, or the folder of its run, beside whose checkpoints stand completions/*.parquet where
    log_completions was on; verl's EXPERIMENT.jsonl; what either printed (.log, .txt); an export of W&B (.csv) or of TensorBoard
    (.csv or .json, a tag each), or a folder with such files. A column that was not logged is not a number, and `lacking` names
    it. Raises ValueError, in one sentence, for what is none of these and for damage.
    """
    if (Path(path) / "config.json").is_file() and (Path(path) / "metrics.jsonl").is_file():
        raise ValueError(f"{display_path(path)} is a run of rlviz already: rlviz diagnose opens it")
    files = find_log(Path(path))
    logs = [parse_log(file) for file in files]
    steps = [
        (step, {metric_name(name): value for name, value in numbers.items() if len(name) <= LONGEST_NAME})
        for step, numbers in merge_lines(line for lines, _ in logs for line in lines)
    ]
    resumed = sorted({step for _, steps_again in logs for step in steps_again})
    source = writer_of({name for _, numbers in steps for name in numbers})
    names = WRITERS[source].names

    # A step's numbers go to the columns of a record, to the extras of `diagnose`, or to the others, which have no name here.
    rows: list[dict[str, Any]] = []
    extras, others = [], set()
    for step, numbers in steps:
        # a later name of a column replaces an earlier
        row = {column: numbers[name] for name, column in names.items() if name in numbers}
        extra = {"resumed": 1.0} if step in resumed else {}
        for name, value in numbers.items():
            if is_accuracy(name):
                row.setdefault("accuracy" if name.startswith("rewards/") else "held_out_accuracy", value)
            elif column := extra_column(name):
                extra[column] = value
            elif name not in names:
                others.add(name)
            if not math.isfinite(value) and (column := nan_column(name)):
                extra[column] = 1.0
        if row and step >= 1:
            rows.append({"step": step, **row})
            extras.append(extra)
    if not rows:
        few = ", ".join([*names][:4])
        raise ValueError(f"{display_path(files[0])} has none of the metrics that are known: {few}, …; {WHICH_FILE}")

    # TRL writes completions beside its log; of steps without a row here nothing is shown.
    groups, notes = _completions(files[0])
    groups = {row["step"]: groups[row["step"]] for row in rows if row["step"] in groups}
    if any(step == 0 for step, _ in steps):
        notes.append(BEFORE)
    if resumed:
        notes.append(f"Resumed at step {', '.join(map(str, resumed))}: of steps that were made twice the later holds.")
    run = ImportedRun(source, tuple(rows), tuple(extras), groups, tuple(sorted(others - {"step"})), tuple(notes))
    if out is not None:
        run.save(out)
    return run


def read_extras(folder: Path) -> pd.DataFrame:
    """Return what `diagnose` looks at beside the records of an imported run that is kept in this folder, by its steps."""
    import pandas as pd

    rows = [row for _, row in read_lines(folder / LOGGED)] if (folder / LOGGED).is_file() else []
    if not all(isinstance(row, dict) and isinstance(row.get("step"), int) for row in rows):
        raise ValueError(f"{display_path(folder / LOGGED)} must have rows with a step, a whole number")
    return pd.DataFrame(rows, columns=None if rows else ["step"])


def is_rlviz_run(path: str | os.PathLike[str]) -> bool:
    """Whether this is where rlviz keeps runs, and no log of another program; also where nothing is there."""
    path = Path(path)
    if path.is_file() or is_of_trl(path):
        return False
    files = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    return bool(files & OWN) or not any(name.endswith(ENDINGS) for name in files)


def _completions(state: Path) -> tuple[dict[int, tuple[GroupRecord, ...]], list[str]]:
    """Return the groups of each step from the parquet files beside a TRL run, and what could not be read."""
    folders = (state.parent / COMPLETIONS, state.parent.parent / COMPLETIONS)
    files = next((sorted(folder.glob("*.parquet")) for folder in folders if folder.is_dir()), [])
    if not files:
        return {}, []
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        pip = pip_install("rlviz[trl]")
        return {}, [f"{len(files)} files of completions were not read, which takes pyarrow: {pip}"]
    groups: dict[int, tuple[GroupRecord, ...]] = {}
    for file in files:
        check_regular(file)
        try:
            table = parquet.read_table(file).to_pylist()
        except (ArrowException, OSError) as error:
            raise ValueError(f"{display_path(file)} is no whole parquet file ({str(error).splitlines()[0]})") from None
        for step, rows in groupby(table, key=lambda row: row.get("step")):
            if not isinstance(step, int):
                raise ValueError(f"{display_path(file)} must have a column step of whole numbers; got {step!r}")
            prompts = groupby(rows, key=lambda row: _text(row.get("prompt")))
            groups[step] = tuple(_group(list(responses)) for _, responses in prompts)
    return groups, []


def _group(rows: list[dict[str, Any]]) -> GroupRecord:
    """Return the responses to a prompt: a column that is a number, and is neither step nor advantage, is a reward
    function's."""
    named = [n for n in rows[0] if n not in ("step", "prompt", "completion", "advantage")]
    functions = [
        n for n in named if all(isinstance(row[n], int | float) and not isinstance(row[n], bool) for row in rows)
    ]
    are_numbers = any(row[n] not in (0, 1) for row in rows for n in functions)
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
                reward_parts={n: float(row[n]) for n in functions} if are_numbers else None,
            )
            for row in rows
        ),
    )


def _text(value: Any) -> str:
    """Return a prompt or completion as text: of a conversation what was said, a turn a paragraph."""
    if isinstance(value, list):
        return "\n\n".join(_text(turn.get("content") if isinstance(turn, Mapping) else turn) for turn in value)
    return "" if value is None else str(value)


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json_text(dict(row))}\n" for row in rows)
