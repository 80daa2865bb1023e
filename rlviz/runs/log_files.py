"""What other programs write of a run, as lines: a step, and what was logged at it under the program's own names.

Read is text, JSON and CSV: nothing is unpickled or run.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlviz.runs.log_names import ALL_NAMES, LONGEST_NAME, STEP_NAMES, TAG, metric_name
from rlviz.training.run_folder import TRL_LOG
from small_models.files import NoJsonError, check_regular, display_path, parse, read_file

Line = tuple[int, dict[str, float]]

LAST_STEP = 10**15  # beyond it no step of a run can be
STEPS = (  # names of a step, the trainer's own first
    "train/global_step", "training/global_step", "trainer/global_step", "global_step", "global_step/max_steps", "train/step",
    "_step", "Step", "step",
)  # fmt: skip
NEITHER = ("__MIN", "__MAX")  # endings of the columns that W&B puts beside each
POINT = ["Wall time", "Step", "Value"]  # of TensorBoard's table of one tag
VERL_LINE = re.compile(r"\bstep:(\d{1,15}) - (.*)")
STEP_BEFORE = re.compile(r"\bstep[ =:]{1,3}(\d{1,15})\b", re.IGNORECASE)  # OpenRLHF says it before its dictionary
# each repetition has an end, so that a long line takes time in proportion to its length
NUMBER = r"-?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,5})?|nan|NaN|-?inf(?:inity)?|-?Infinity"
VERL_VALUE = re.compile(rf"(?:np\.\w{{1,20}}\()?({NUMBER})")
ENTRY = re.compile(
    rf"""(['"])([^'"]{{1,{LONGEST_NAME}}})\1: ?(['"]?)({NUMBER}|null|None|\d{{1,15}}/\d{{1,15}})\3(?= ?[,}}])"""
)
# a line, or those of a dictionary that was broken over several, each with a name
PRINTED = re.compile(r"""[^{\n]*\{[^{}\n]*(?:\n(?=[^{}\n]*['"]: )[^{}\n]*){1,200}(?:\n[^{}\n]*)?\}[^{\n]*|[^\n]+""")
PAIR = re.compile(rf"(?<![\w/.])([A-Za-z_][\w/.]{{0,{LONGEST_NAME}}}) ?[:=] ?({NUMBER})(?![\w.:/%])")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
NOT_JSON = re.compile(rb"(?<=[:,\[ ])(?:NaN|-?Infinity)\b")  # Python writes them for numbers that are not finite
ROUNDED = "0.000"  # as older verl prints each number below .0005, its learning rate always
ENDINGS = (".jsonl", ".log", ".txt", ".csv")  # in a folder the first of these that is there
KNOWN = f"{TRL_LOG} of TRL, a .jsonl of verl, what either printed (.log, .txt), an export of W&B or TensorBoard (.csv, .json)"


def find_log(path: Path) -> list[Path]:
    """Return the log at this path, or the newest one in this folder; of exported tables there all, since each may be one tag."""
    if not path.exists():
        raise ValueError(f"{display_path(path)} is not there")
    files = [path]
    if path.is_dir():
        logs = [sorted(path.glob(f"*{ending}"), key=lambda file: file.stat().st_mtime) for ending in ENDINGS]
        files = next(filter(None, logs), [])
        if states := [*path.glob(TRL_LOG), *path.glob(f"checkpoint-*/{TRL_LOG}")]:
            files = [max(states, key=_checkpoint_step)]
        elif not files:
            raise ValueError(f"{display_path(path)} has no log in it. Known are {KNOWN}")
        elif files[0].suffix != ".csv":
            files = files[-1:]
    for file in files:
        check_regular(file)
    return files


def _checkpoint_step(state: Path) -> float:
    """Return the step of a checkpoint's state; that beside the checkpoints is the last."""
    step = state.parent.name.removeprefix("checkpoint-")
    return float(step) if step.isdigit() else math.inf


def parse_log(file: Path) -> tuple[list[Line], list[int]]:
    """Return the lines of a log, and the steps at which it was taken up again. Raises ValueError, in one sentence, for damage."""
    readers = {".csv": _csv_lines, ".jsonl": _jsonl_lines, ".json": _json_lines}
    lines = list(readers.get(file.suffix, _console_lines)(file))
    if any(step > LAST_STEP for step, _ in lines):
        raise ValueError(f"{display_path(file)} must have steps of at most {LAST_STEP:,}")
    # A run that is resumed from an older checkpoint goes back, and goes on from there: the steps that are made again replace the
    # former ones. A late line of an evaluation goes back too, but the next line does not go on from it.
    lasting: list[Line] = []
    resumed = []
    for index, (step, numbers) in enumerate(lines):
        following = lines[index + 1][0] if index + 1 < len(lines) else math.inf
        if lasting and step < lasting[-1][0] and step < following <= lasting[-1][0]:
            resumed.append(step)
            while lasting and lasting[-1][0] >= step:
                lasting.pop()
        lasting.append((step, numbers))
    return lasting, resumed


def _json_lines(file: Path) -> Iterator[Line]:
    """Give TRL's trainer_state.json, a list of rows, or TensorBoard's points of one tag."""
    value = parse(NOT_JSON.sub(b"null", read_file(file)), display_path(file))
    if isinstance(value, list) and all(isinstance(point, list) and len(point) == len(POINT) for point in value):
        yield from _points(value, file)
        return
    rows = value.get("log_history") if isinstance(value, Mapping) else value
    if not isinstance(rows, list):
        raise ValueError(f"{display_path(file)} is no log of TRL: it has no log_history")
    for index, row in enumerate(rows):
        yield _json_line(row, row, f"{display_path(file)}: log_history[{index}]")


def _jsonl_lines(file: Path) -> Iterator[Line]:
    """Give the rows of verl's file logger, of ms-swift's logging.jsonl, of a history of W&B's; the last may be cut short."""
    texts = enumerate(read_file(file).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
    lines = [(number, line) for number, line in texts if line.strip()]
    for number, line in lines:
        where = f"{display_path(file)}, line {number}"
        not_finite = b"null" if b'"_step"' in line else b'"NaN"'  # in a history of W&B's it was not logged
        try:
            row = parse(NOT_JSON.sub(not_finite, line), where)
        except NoJsonError:
            if number == lines[-1][0]:
                return
            raise
        if isinstance(row, Mapping) and "data" not in row and any(name in row for name in STEPS[:-1]):
            yield _history_line(row, where)
        else:
            data = row.get("data", row) if isinstance(row, Mapping) and len(row) > 1 else None
            yield _json_line(row, data, where)


def _json_line(row: Any, data: Any, where: str) -> Line:
    """Return the step of a row and what of its data is a number, or null for one that was not finite.

    Raises ValueError without a step or data.
    """
    step = row.get("step") if isinstance(row, Mapping) else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 0 or not isinstance(data, Mapping):
        raise ValueError(f"{where} must be an object with a step, a whole number, and the numbers of that step")
    numbers = {}
    for name, value in data.items():
        if value in (None, "NaN"):
            numbers[str(name)] = math.nan
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[str(name)] = value
    return step, numbers


def _console_lines(file: Path) -> Iterator[Line]:
    """Give what was printed: verl's lines, dictionaries of a step's numbers, rows of the table that Trainer draws in a notebook;
    where there is none of these, pairs of a name and a value.

    A dictionary that names no step is one more than the last; where the epoch falls back, the run was resumed.
    """
    epochs: list[float] = []
    step, head = 0, []
    printed = "\n".join(COLOUR.sub("", read_file(file).decode("utf-8", "replace")).splitlines())
    texts = [match[0].replace("\n", " ") for match in PRINTED.finditer(printed)]
    for text in texts:
        if match := VERL_LINE.search(text):  # NAME:VALUE - NAME:VALUE
            step = int(match[1])
            parts = (part.rpartition(":") for part in match[2].split(" - "))
            values = {name.strip(): value[1] for name, _, text in parts if (value := VERL_VALUE.match(text))}
            if values.get("actor/lr") == ROUNDED:  # a rounded learning rate is not known
                del values["actor/lr"]
            yield step, {name: _number(value) for name, value in values.items()}
        elif "{" in text and (numbers := {entry[2]: _number(entry[4]) for entry in ENTRY.finditer(text)}):
            if not {metric_name(name) for name in numbers} & STEP_NAMES:
                if step and any(name.startswith("eval_") for name in numbers):
                    yield step, numbers
                continue
            # The step stands in the dictionary, or before it, or it is the number of dictionaries so far.
            before = STEP_BEFORE.search(text[: text.index("{")])
            epoch = numbers.get("epoch", math.inf)
            if epochs and epochs[-1] > epoch:
                epochs = [earlier for earlier in epochs if earlier < epoch]
            epochs.append(epoch)
            logged = [int(numbers[name]) for name in STEPS if 0 <= numbers.get(name, -1) <= LAST_STEP]
            step = logged[0] if logged else int(before[1]) if before else len(epochs)
            yield step, {name: value for name, value in numbers.items() if name not in STEPS}
        else:  # perhaps a row of a table that was copied as text
            between = r"[|\t]" if "|" in text or "\t" in text else "  +"
            cells = [cell.strip() for cell in re.split(between, text.strip().strip("|"))]
            if len(cells) > 1 and {metric_name(cell) for cell in cells} & STEP_NAMES and set(cells) & set(STEPS):
                head = cells
            elif 1 < len(cells) == len(head):
                row = {name: cell for name, cell in zip(head, cells, strict=True) if re.fullmatch(NUMBER, cell)}
                if any(name in row for name in STEPS):
                    yield _history_line(row, display_path(file))
    if not step and not head:
        yield from _pair_lines(texts)


def _pair_lines(texts: Iterable[str]) -> Iterator[Line]:
    """Give what stands as NAME: VALUE or NAME=VALUE in prose; a name that comes again begins the next row."""
    rows: list[dict[str, float]] = [{}]
    for text in texts:
        for name, value in PAIR.findall(text):
            if name in rows[-1]:
                rows.append({})
            rows[-1][name] = _number(value)
    shared = [{metric_name(name) for name in row} & ALL_NAMES.keys() for row in rows]
    known = [row for row, names in zip(rows, shared, strict=True) if len(names) > 1 and names & STEP_NAMES]
    for index, row in enumerate(known, 1):
        logged = [int(row[name]) for name in STEPS if 0 < row.get(name, 0) <= LAST_STEP]
        yield logged[0] if logged else index, {name: value for name, value in row.items() if name not in STEPS}


def _csv_lines(file: Path) -> Iterator[Line]:
    """Give the rows of a CSV: of W&B's, or of one tag of TensorBoard's."""
    text = read_file(file).decode("utf-8-sig", "replace")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error:
        limit = f"at most {csv.field_size_limit():,} characters a cell; leave out longer ones"
        raise ValueError(f"{display_path(file)} must be a table of comma-separated values of {limit}") from None
    if rows and list(rows[0]) == POINT:
        yield from _points([[row[name] for name in POINT] for row in rows], file)
        return
    for number, row in enumerate(rows, start=2):
        yield _history_line(row, f"{display_path(file)}: line {number}")


def _history_line(row: Mapping[Any, Any], where: str) -> Line:
    """Return a row of W&B's, whose tables name a column "RUN - METRIC"; an empty cell was not logged."""
    numbers = {}
    for name, cell in row.items():
        number = _number(cell)
        was_logged = isinstance(cell, float) or str(cell).strip().lower() == "nan" or not math.isnan(number)
        if was_logged and not str(name).endswith(NEITHER):
            numbers[str(name).rpartition(" - ")[2]] = number
    step = next((numbers[name] for name in STEPS if math.isfinite(numbers.get(name, math.nan))), None)
    if step is None or step < 0:
        raise ValueError(f"{where} must have a step: a column {', '.join(STEPS[:-1])} or {STEPS[-1]}")
    return int(step), {name: value for name, value in numbers.items() if name not in STEPS}


def _points(points: Sequence[Sequence[Any]], file: Path) -> Iterator[Line]:
    """Give TensorBoard's points, [time, step, value] each, under TAG and the tag, which stands in the name of the file."""
    tag = f"{TAG}{file.stem.rpartition(TAG)[2]}"
    for _, step, value in points:
        number = _number(step)
        if not math.isfinite(number) or number < 0:
            raise ValueError(f"{display_path(file)} must have points of a time, a step and a value; got step {step!r}")
        yield int(number), {tag: _number(value)}


def _number(value: Any) -> float:
    """Return a number, or a text that is one; of ms-swift's "5/3766" the first; else not a number."""
    try:
        return float(value.partition("/")[0] if isinstance(value, str) else value)
    except (TypeError, ValueError):
        return math.nan


def merge_lines(lines: Iterable[Line]) -> list[Line]:
    """Return one entry a step: of one step training and evaluation have a line each."""
    steps: dict[int, dict[str, float]] = {}
    for step, numbers in lines:
        steps[step] = {**numbers, **steps.get(step, {})}
    return sorted(steps.items())
