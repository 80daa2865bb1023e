"""What other programs write of a run, as lines: a step, and what was logged at it under the program's own names.

Read is text, JSON and CSV: nothing is unpickled or run, and no file larger than LARGEST is opened.
"""

from __future__ import annotations

import ast
import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlviz.training.run_folder import TRL_LOG
from small_models.files import check_regular, parse, read_file, read_lines, said

Line = tuple[int, dict[str, float]]

LARGEST = 512 * 2**20  # bytes of one file
STEPS = ("train/global_step", "training/global_step", "global_step", "_step", "Step", "step")  # the trainer's own first
NEITHER = ("__MIN", "__MAX")  # endings of the columns that W&B puts beside each
TAG = "tag-"  # before the name of a metric in the name of a file, in which _ stands for each /
POINT = ["Wall time", "Step", "Value"]  # of TensorBoard's table of one tag
OF_VERL = re.compile(r"\bstep:(\d+) - (.*)")
PAIR = re.compile(r"([\w/@.\-]+):(?:np\.\w+\()?(-?[\d.]+(?:e[+-]?\d+)?|nan|-?inf)\b")
ENDINGS = (".jsonl", ".log", ".txt", ".csv")  # in a folder the first of these that is there
KNOWN = f"{TRL_LOG} of TRL, a .jsonl of verl, what either printed (.log, .txt), an export of W&B or TensorBoard (.csv, .json)"


def find_log(path: Path) -> list[Path]:
    """Return the log at this path, or the newest one in this folder; of exported tables there all, since each may be one tag."""
    if not path.exists():
        raise ValueError(f"{said(path)} is not there")
    files = _in_folder(path) if path.is_dir() else [path]
    for file in files:
        check_regular(file)
        if file.stat().st_size > LARGEST:
            raise ValueError(
                f"{said(file)} must be at most {LARGEST // 2**20} MB; it has {file.stat().st_size // 2**20}"
            )
    return files


def _in_folder(path: Path) -> list[Path]:
    states = [*path.glob(TRL_LOG), *path.glob(f"checkpoint-*/{TRL_LOG}")]
    if states:
        return [max(states, key=_step_of)]
    for ending in ENDINGS:
        logs = sorted(path.glob(f"*{ending}"), key=lambda each: each.stat().st_mtime)
        if logs:
            return logs if ending == ".csv" else logs[-1:]
    raise ValueError(f"{said(path)} has no log in it. Known are {KNOWN}")


def _step_of(state: Path) -> float:
    """Return the step of a checkpoint's state; the one beside the checkpoints is the last."""
    number = state.parent.name.removeprefix("checkpoint-")
    return float(number) if number.isdigit() else math.inf


def lines_of(file: Path) -> Iterable[Line]:
    """Return the lines of a log. Raises ValueError, in one sentence, for damage."""
    if file.suffix == ".csv":
        return _of_table(file)
    if file.suffix == ".jsonl":
        return (_of_row(row, where) for where, row in read_lines(file, growing=True))
    if file.suffix == ".json":
        return _of_json(file)
    return _of_console(file)


def _of_json(file: Path) -> Iterator[Line]:
    """Return TRL's trainer_state.json, or TensorBoard's points of one tag."""
    data = read_file(file)
    before = rb"(?<=, )" if data.startswith(b"[[") else rb"(?<=: )"
    for word in (
        b"-Infinity",
        b"Infinity",
        b"NaN",
    ):  # Python writes them for numbers that are not finite; they are no JSON
        data = re.sub(before + word + rb"\b", b"null", data)
    value = parse(data, said(file))
    if isinstance(value, list) and all(isinstance(point, list) and len(point) == len(POINT) for point in value):
        yield from _of_points(value, file)
        return
    if not isinstance(value, Mapping) or not isinstance(value.get("log_history"), list):
        raise ValueError(f"{said(file)} is no log of TRL: it has no log_history")
    for place, row in enumerate(value["log_history"]):
        yield _checked(row, row, f"{said(file)}: log_history[{place}]")


def _of_row(row: Any, where: str) -> Line:
    """Return a line of verl's file logger, or of a history of W&B's."""
    if isinstance(row, Mapping) and "data" not in row and any(name in row for name in STEPS[:-1]):
        return _of_history(row, where)
    return _checked(row, row.get("data") if isinstance(row, Mapping) else None, where)


def _checked(row: Any, data: Any, where: str) -> Line:
    """Return the step of a line and its numbers. Raises ValueError without either."""
    step = row.get("step") if isinstance(row, Mapping) else None
    if not isinstance(step, int) or isinstance(step, bool) or step < 0 or not isinstance(data, Mapping):
        raise ValueError(f"{where} must be an object with a step, a whole number, and the numbers of that step")
    return step, _numbers(data)


def _numbers(data: Mapping[Any, Any]) -> dict[str, float]:
    """Return what is a number, or null for one that was not finite."""
    return {
        str(name): math.nan if value is None else value
        for name, value in data.items()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    }


def _of_console(file: Path) -> Iterator[Line]:
    """Return what was printed: verl's lines by their steps, TRL's dictionaries, which name none, one after another."""
    printed = 0
    for text in read_file(file).decode("utf-8", "replace").splitlines():
        if found := OF_VERL.search(text):
            yield int(found[1]), {name: float(value) for name, value in PAIR.findall(found[2])}
        elif "'loss':" in text and "{" in text:
            printed += 1
            yield printed, _told(text[text.index("{") : text.rindex("}") + 1], f"{said(file)}: dictionary {printed}")


def _told(text: str, where: str) -> dict[str, float]:
    """Return the numbers of a dictionary as Python prints it; transformers prints them as texts."""
    try:
        value = ast.literal_eval(re.sub(r"(?<=: )(nan|-?inf)\b", r"'\1'", text))
    except (ValueError, SyntaxError):
        raise ValueError(f"{where} is no dictionary of numbers") from None
    return {str(name): _number(number) for name, number in value.items()} if isinstance(value, dict) else {}


def _of_table(file: Path) -> Iterator[Line]:
    """Return the rows of a CSV: of W&B's, or of one tag of TensorBoard's."""
    text = read_file(file).decode("utf-8-sig", "replace")
    rows = list(csv.DictReader(text.splitlines()))
    if rows and list(rows[0]) == POINT:
        yield from _of_points([[row[name] for name in POINT] for row in rows], file)
        return
    for place, row in enumerate(rows, start=2):
        yield _of_history(row, f"{said(file)}: line {place}")


def _of_history(row: Mapping[Any, Any], where: str) -> Line:
    """Return a row of W&B's, whose tables name a column "RUN - METRIC"; an empty cell was not logged."""
    cells = {str(name).rpartition(" - ")[2]: value for name, value in row.items() if not str(name).endswith(NEITHER)}
    numbers = {name: _number(value) for name, value in cells.items() if value not in ("", None)}
    step = next((numbers[name] for name in STEPS if math.isfinite(numbers.get(name, math.nan))), None)
    if step is None or step < 0:
        raise ValueError(f"{where} must have a step: a column {', '.join(STEPS[:-1])} or {STEPS[-1]}")
    return int(step), {name: value for name, value in numbers.items() if name not in STEPS}


def _of_points(points: Sequence[Sequence[Any]], file: Path) -> Iterator[Line]:
    """Return TensorBoard's points, [time, step, value] each, under TAG and the tag, which stands in the name of the file."""
    tag = f"{TAG}{file.stem.rpartition(TAG)[2]}"
    for _, step, value in points:
        if not math.isfinite(_number(step)) or _number(step) < 0:
            raise ValueError(f"{said(file)} must have points of a time, a step and a value; got step {step!r}")
        yield int(_number(step)), {tag: _number(value)}


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def merged(lines: Iterable[Line]) -> list[Line]:
    """Return one entry a step: of one step training and evaluation have a line each."""
    steps: dict[int, dict[str, float]] = {}
    for step, numbers in lines:
        steps[step] = {**numbers, **steps.get(step, {})}
    return sorted(steps.items())
