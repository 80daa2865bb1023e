"""Real runs under rlviz's names: which metric of TRL and of verl is which column here, and TRL's completions.

Parquet is read by pyarrow; nothing is unpickled or run (`log_files.py` reads the rest).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import rlviz
from rlviz.runs.log_files import ENDINGS, LARGEST, TAG, find_log, lines_of, merged
from rlviz.runs.measures import PART
from rlviz.training.files import json_text, write_text
from rlviz.training.run_folder import RunFolder, is_of_trl
from rlviz.types import GroupRecord, PairRecord, ResponseRecord, StepRecord
from small_models.checks import pip_install
from small_models.files import check_regular, read_lines, said

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 1_000_000  # completions of one file
RIGHT = 0.5  # of the first reward function: from above this a response counts as right
BEFORE = "Step 0 was left out: an evaluation before training, and steps are counted from 1 here."
COMPLETIONS = "completions"
LOGGED = "logged.jsonl"
OWN = {"config.json", "comparison.json", "metrics.jsonl"}  # one of them is in each folder of rlviz's runs
OF_PART = re.compile(r"rewards/([^/]+)/mean")
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
MORE: Names = {  # what no record of rlviz has, and `diagnose` looks at
    "reward_std": "reward_std",
    "sampling/sampling_logp_difference/mean": "sampler_logp_gap",
    "training/rollout_probs_diff_mean": "sampler_prob_gap",
    "critic/rewards/max": "reward_max",
    "critic/rewards/min": "reward_min",
}


@dataclass(frozen=True)
class Imported:
    """A run that another program trained, under rlviz's names.

    source: what wrote it, "trl" or "verl". name: of its algorithm or trainer. rows: a step's numbers each,
    column → number. more: of the same steps, what no record of rlviz has. groups: step → its recorded groups. others: what was
    logged and has no name here. notes: what could not be read, a sentence each.
    """

    source: Literal["trl", "verl"]
    name: str
    rows: tuple[dict[str, Any], ...]
    more: tuple[dict[str, Any], ...]
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
    def unseen(self) -> tuple[str, ...]:
        """What `diagnose` would look at first and was not logged, as the program names it."""
        names = {ours: theirs for theirs, ours in {"trl": TRL, "verl": VERL}[self.source].items()}
        there = {name for row in self.rows for name in row}
        looked = ("reward", "grad_norm", "entropy", "kl", "truncated", "zero_variance_groups")
        return () if self.kind is PairRecord else tuple(names[n] for n in looked if n in names and n not in there)

    @property
    def metrics(self) -> pd.DataFrame:
        """One row a step, with the columns that there are; `plot_learning_curves` draws it."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    @property
    def logged(self) -> pd.DataFrame:
        """One row a step, with all that `diagnose` looks at."""
        import pandas as pd

        return pd.DataFrame([{**row, **more} for row, more in zip(self.rows, self.more, strict=True)])

    def save(self, out: str | os.PathLike[str]) -> Path:
        """Write it into a new folder as rlviz keeps runs, so that `inspect_run`, `diagnose` and learning curves open it.

        Raises FileExistsError where anything is in that folder.
        """
        folder = RunFolder.create(out)
        empty = {field.name: _placeholder(field) for field in fields(self.kind) if field.name != "groups"}
        write_text(folder.path / "metrics.jsonl", _lines({**empty, **row} for row in self.rows))
        rows = zip(self.rows, self.more, strict=True)
        write_text(folder.path / LOGGED, _lines({"step": row["step"], **more} for row, more in rows))
        # where some steps have groups, those alone: a reader takes a step without any for damage
        steps = [row["step"] for row in self.rows if row["step"] in self.groups or not self.groups]
        told = [{"step": step, "groups": self.groups.get(step, ())} for step in steps]
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
    log_completions was on; verl's EXPERIMENT.jsonl; what either printed (.log, .txt); an export of W&B (.csv) or of TensorBoard
    (.csv or .json, a tag each), or a folder with such files. A column that was not logged is not a number, and `lacking` names
    it. Raises ValueError, in one sentence, for what is none of these and for damage.
    """
    if (Path(path) / "config.json").is_file() and (Path(path) / "metrics.jsonl").is_file():
        raise ValueError(f"{said(path)} is a run of rlviz already: rlviz diagnose opens it")
    run = _read(find_log(Path(path)))
    if out is not None:
        run.save(out)
    return run


def logged_beside(folder: Path) -> pd.DataFrame:
    """Return what `diagnose` looks at beside the records of an imported run that is kept in this folder, by its steps."""
    import pandas as pd

    rows = [row for _, row in read_lines(folder / LOGGED)] if (folder / LOGGED).is_file() else []
    if not all(isinstance(row, dict) and isinstance(row.get("step"), int) for row in rows):
        raise ValueError(f"{said(folder / LOGGED)} must have rows with a step, a whole number")
    return pd.DataFrame(rows, columns=None if rows else ["step"])


def is_own(path: str | os.PathLike[str]) -> bool:
    """Whether this is where rlviz keeps runs, and no log of another program; also where nothing is there."""
    path = Path(path)
    if path.is_file() or is_of_trl(path):
        return False
    files = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    return bool(files & OWN) or not any(name.endswith(ENDINGS) for name in files)


def _read(files: Sequence[Path]) -> Imported:
    """Return what stands in these files, under rlviz's names."""
    lines = merged(line for file in files for line in lines_of(file))
    raw = [(step, {_metric(name): value for name, value in numbers.items()}) for step, numbers in lines]
    logged = {name for _, numbers in raw for name in numbers}
    source: Literal["trl", "verl"] = "verl" if len(logged & set(VERL)) > len(logged & set(TRL)) else "trl"
    names = {"trl": TRL, "verl": VERL}[source]
    rows: list[dict[str, Any]] = []
    more, others = [], set()
    for step, numbers in raw:
        row, beside = _row(numbers, names)
        others |= {name for name in numbers if name not in names and name not in MORE and not _is_right(name)} - {
            "step"
        }
        if row and step >= 1:
            rows.append({"step": step, **row})
            more.append(beside)
    if not rows:
        what = "TRL or verl" if not logged & {*TRL, *VERL} else source
        raise ValueError(f"{said(files[0])} has none of the metrics of {what}: {', '.join(list(names)[:4])}, …")
    groups, notes = _completions(files[0])
    kept = {row["step"]: groups[row["step"]] for row in rows if row["step"] in groups}
    if any(step == 0 for step, _ in raw):
        notes = [*notes, BEFORE]
    name = "verl's trainer" if source == "verl" else "DPOTrainer" if "rewards/margins" in logged else "GRPOTrainer"
    return Imported(source, name, tuple(rows), tuple(more), kept, tuple(sorted(others)), tuple(notes))


def _row(numbers: Mapping[str, float], names: Names) -> tuple[dict[str, float], dict[str, float]]:
    """Return the numbers of a step that a record here has, and those that `diagnose` looks at beside them."""
    row = {
        name: numbers[each] for each, name in names.items() if each in numbers
    }  # a later name stands before an earlier
    beside = {name: numbers[each] for each, name in MORE.items() if each in numbers}
    for each, value in numbers.items():
        if _is_right(each):
            row.setdefault("accuracy" if each.startswith("rewards/") else "held_out_accuracy", value)
        elif part := OF_PART.fullmatch(each):
            beside[f"{PART}{part[1]}"] = value
    return row, beside


def _is_right(name: str) -> bool:
    """Whether a metric is a share of right responses."""
    return bool(OF_ACCURACY.fullmatch(name) or OF_VALIDATION.fullmatch(name))


def _metric(name: str) -> str:
    """Return the trainer's name of a metric, before which W&B and TensorBoard put train/."""
    if name.startswith(TAG):
        flat = name.removeprefix(TAG).removeprefix("train_")
        return FLAT.get(flat, re.sub(r"^rewards_(\w+)_mean$", r"rewards/\1/mean", flat))
    return re.sub(r"^eval/", "eval_", name.removeprefix("train/"))


FLAT = {name.replace("/", "_"): name for name in (*TRL, *VERL, *MORE)}


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
