"""JSON and JSON lines read as a known type; what does not fit is refused in one sentence that names file, line and field."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from small_models.checks import annotations_of, cut

T = TypeVar("T")
LONGEST_PATH = 200  # characters of a path in a sentence
LARGEST, MOST_WHOLE = 1e100, 2**63  # no number of a run is beyond: it could not be drawn, and no tensor would take it
LONG_NUMBER = re.compile(rb"(?<![\d.])\d{17}|[eE]\+?0*[1-9]\d\d")  # a file without it holds no number that is too large
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


class NoJsonError(ValueError):
    """This is not JSON at all, as a line is not that was cut short."""


def display_path(path: str | os.PathLike[str]) -> str:
    """Return a path as it stands in a sentence: of a long one, its end."""
    text = str(path)
    return text if len(text) <= LONGEST_PATH else f"…{text[1 - LONGEST_PATH :]}"


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for what is no file: a device or a pipe may never end."""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise ValueError(f"{display_path(path)} must be a file; it is {what}")


@contextmanager
def replace_files(folder: Path) -> Iterator[Path]:
    """Give a folder to write into, whose files and folders then replace those of `folder` one by one."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as temporary:
        yield Path(temporary)
        for file in Path(temporary).iterdir():
            os.replace(file, folder / file.name)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a file. Raises FileNotFoundError, and ValueError for a folder, a device or a pipe of that name."""
    try:
        check_regular(path)
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{display_path(path)} cannot be read ({error.strerror})") from error


def read_json(path: str | os.PathLike[str], kind: type[T]) -> T:
    """Return a JSON file as a value of this type. Raises ValueError, which names the field."""
    return convert(parse(read_file(path), display_path(path)), kind, display_path(path))


def read_lines(path: str | os.PathLike[str], *, growing: bool = False) -> Iterator[tuple[str, Any]]:
    """Give each line of a JSON-lines file with the words that say where it stands. Raises ValueError, which names the line.

    growing: the file is written line by line, so that its last line may have been cut short; it is then left out.
    Otherwise empty lines are.
    """
    lines = read_file(path).removeprefix(codecs.BOM_UTF8).split(b"\n")
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    for number, line in enumerate(lines[:last], 1):
        if growing or line.strip():
            where = f"{display_path(path)}, line {number}"
            try:
                value = parse(line, where)
            except NoJsonError:
                if growing and number == last:
                    return
                raise
            yield where, value


def parse(data: bytes, where: str) -> Any:
    """Return what JSON says. Raises NoJsonError, and ValueError for a number that is too large."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.ValidationError:  # one that no float can be
        raise ValueError(f"{where} holds a number that is too large") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = (
            "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rpartition("malformed: ")[2]
        )
        with suppress(UnicodeDecodeError):
            data.decode()
            raise NoJsonError(f"{where} is not JSON ({why})") from None
        raise NoJsonError(f"{where} is not UTF-8 text") from None
    for number in _numbers(value) if LONG_NUMBER.search(data) else ():
        if abs(number) >= (MOST_WHOLE if isinstance(number, int) else LARGEST):
            raise ValueError(f"{where} holds a number that is too large: {as_json(number)}")
    return value


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
    elif isinstance(value, int | float):
        yield value


def convert(value: Any, kind: type[T], where: str) -> T:
    """Return what JSON said as a value of this type. Raises ValueError, which names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:  # Expected `int`, got `str` - at `$.groups[0].length`
        why, _, place = str(error).partition(" - at `$")
    names, field = place.strip(".`"), value
    is_known = "[...]" not in names  # else it lies below a dictionary, and msgspec does not say where
    for name in re.findall(r"[^.\[\]]+", names) if is_known else ():
        field = field[int(name)] if isinstance(field, list) else field.get(name)
    where = f"{where}: {cut(names)}" if names else where
    if lacking := re.fullmatch(r"Object missing required field `(\w+)`", why):
        raise ValueError(f"{where} lacks {lacking[1]}")
    if expected := re.fullmatch(r"Expected `(.+)`, got `\w+`|Invalid enum value .+", why):
        allowed = " or ".join(KINDS.get(kind, kind) for kind in (expected[1] or "another word").split(" | "))
        got = f"; got {as_json(field)}" if is_known else ""
        raise ValueError(f"{where} must be {allowed}{got}")
    raise ValueError(f"{where}: {why}")  # what the type itself refuses


def nulls_to_nan(value: Any, kind: Any) -> Any:
    """Return what JSON said with not a number for every `null` that stands where this dataclass has a number and no None."""
    inner = next(iter(get_args(kind)), None) if get_origin(kind) is tuple else None
    if inner is not None and isinstance(value, list):
        return [nulls_to_nan(item, inner) for item in value]
    if is_dataclass(kind) and isinstance(value, dict):
        kinds = annotations_of(cast(Any, kind))
        return {name: nulls_to_nan(part, kinds.get(name)) for name, part in value.items()}
    return math.nan if value is None and kind is float else value


def as_json(value: Any) -> str:
    """Return a value as JSON, the beginning of a long one."""
    return cut(json.dumps(value, ensure_ascii=False))


def check_text(*values: Any) -> None:
    """Raise UnicodeEncodeError where a text among these values cannot be written: JSON can spell half a character."""
    json.dumps(values, ensure_ascii=False, default=str).encode()


def reason(error: Exception) -> str:
    """Return in a few words why a library could not read a file: its first sentence, shortened."""
    if isinstance(error, UnicodeError):
        return "a text of it is not UTF-8"
    words = " ".join(str(error).split())
    if "ignore_mismatched_sizes" in words:  # transformers' advice is an argument of its own
        return "its weights have other sizes than its config.json says"
    if isinstance(error, TypeError | AttributeError | LookupError) or "<class '" in words:  # in Python's own words
        field = re.search(r"field '(\w+)'", words)
        return f"{f'its field {field[1]}' if field else 'a part of it'} is of another kind than it should be"
    return words.split(". ")[0][:200]
