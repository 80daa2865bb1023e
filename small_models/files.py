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
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from small_models.checks import annotations_of, cut

T = TypeVar("T")
LONGEST_PATH = 200  # characters of a path in a sentence
LARGEST = 1e100  # beyond it no number of a run can be, and none can be drawn
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


def said(path: str | os.PathLike[str]) -> str:
    """Return a path for a sentence, the end of a long one."""
    text = str(path)
    return text if len(text) <= LONGEST_PATH else f"…{text[1 - LONGEST_PATH :]}"


def check_regular(path: str | os.PathLike[str], *, folders: bool = False) -> None:
    """Raise ValueError for what is neither a file nor, with `folders`, a folder: a device or a pipe may never end."""
    mode = Path(path).stat().st_mode
    if not (stat.S_ISREG(mode) or (folders and stat.S_ISDIR(mode))):
        what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise ValueError(f"{said(path)} must be a file; it is {what}")


@contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
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
        raise ValueError(f"{said(path)} cannot be read ({error.strerror})") from error


def read_json(path: str | os.PathLike[str], kind: type[T]) -> T:
    """Return a JSON file as a value of this type. Raises ValueError, which names the field."""
    return convert(parse(read_file(path), said(path)), kind, said(path))


def read_lines(path: str | os.PathLike[str], *, growing: bool = False) -> Iterator[tuple[str, Any]]:
    """Give each line of a JSON-lines file with the words that say where it stands. Raises ValueError, which names the line.

    growing: the file is written line by line, so that its last line may have been cut short; it is then left out.
    Otherwise empty lines are.
    """
    data = read_file(path)
    if data.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        raise ValueError(f"{said(path)} is not UTF-8 text")
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    for number, line in enumerate(lines[:last], 1):
        if not growing and not line.strip():
            continue
        where = f"{said(path)}, line {number}"
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
        if LONG_NUMBER.search(data):
            _check_sizes(value, where, "")
        return value
    except msgspec.ValidationError:
        raise ValueError(f"{where} holds a number that is too large") from None
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply to be read") from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        try:
            data.decode()
        except UnicodeDecodeError:
            raise NoJsonError(f"{where} is not UTF-8 text") from None
        found = re.search(r": (.+) \(byte (\d+)\)", str(error))
        why = f"{found[1]} at byte {found[2]}" if found else "it ends too early"
        raise NoJsonError(f"{where} is not JSON ({why})") from None


def _check_sizes(value: Any, where: str, path: str) -> None:
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else ((f"[{place}]", one) for place, one in enumerate(value))
        for name, one in inner:
            _check_sizes(one, where, f"{path}.{name}" if isinstance(value, dict) else f"{path}{name}")
    elif isinstance(value, int | float) and (abs(value) > LARGEST or (isinstance(value, int) and abs(value) >= 2**63)):
        raise ValueError(f"{where}: {cut(path.lstrip('.'))} is too large; got {as_json(value)}")


def convert(value: Any, kind: type[T], where: str) -> T:
    """Return what JSON said as a value of this type. Raises ValueError, which names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}{_in_words(str(error), value, kind)}") from None


def with_nan(value: Any, kind: Any) -> Any:
    """Return what JSON said with not a number for every `null` that stands where this dataclass has a number and no None."""
    inner = next(iter(get_args(kind)), None) if get_origin(kind) is tuple else None
    if inner is not None and isinstance(value, list):
        return [with_nan(one, inner) for one in value]
    if is_dataclass(kind) and isinstance(value, dict):
        kinds = annotations_of(cast(Any, kind))
        return {name: with_nan(one, kinds.get(name)) for name, one in value.items()}
    return math.nan if value is None and kind is float else value


def _in_words(message: str, value: Any, kind: Any) -> str:
    """Return msgspec's message as the end of our sentence."""
    reason, _, place = message.partition(" - at `$")
    names = place.rstrip("`").lstrip(".")
    found = value
    for name in re.findall(r"[^.\[\]]+", names):
        found = found[int(name)] if isinstance(found, list) else found.get(name)
    field = f": {cut(names)}" if names else ""
    lacking = re.fullmatch(r"Object missing required field `(\w+)`", reason)
    if lacking:
        return f"{field} lacks {lacking[1]}"
    expected = re.fullmatch(r"Expected `(.+)`, got `\w+`", reason)
    if expected:
        allowed = " or ".join(KINDS.get(one, one) for one in expected[1].split(" | "))
        needed = (
            [f.name for f in fields(kind) if f.default is f.default_factory is MISSING] if is_dataclass(kind) else []
        )
        if not names and 0 < len(needed) <= 4:
            allowed += f" with the keys {', '.join(needed)}"
        return f"{field} must be {allowed}; got {as_json(found)}"
    if reason.startswith("Invalid enum value") and is_dataclass(kind) and names:
        known = get_args(annotations_of(cast(Any, kind)).get(names))
        return f"{field} must be {' or '.join(map(as_json, known))}; got {as_json(found)}"
    return f": {reason}"


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
    said = " ".join(str(error).split())
    if isinstance(error, TypeError | AttributeError | LookupError) or "<class '" in said:  # in Python's own words
        field = re.search(r"field '(\w+)'", said)
        return f"{f'its field {field[1]}' if field else 'a part of it'} is of another kind than it should be"
    return said.split(". ")[0][:200]
