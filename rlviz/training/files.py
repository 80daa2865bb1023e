"""Files that outlive a crash: written whole or not at all, flushed to the disk, JSON without NaN, a lock on a folder."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from filelock import FileLock, Timeout

LOCK = ".lock"


def json_text(value: Any, indent: int | None = None) -> str:
    """Return `value` as JSON, dataclasses as objects; a number that is not finite is null, for JSON has no NaN."""
    try:
        return json.dumps(value, indent=indent, default=vars, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(json.loads(json.dumps(value, default=vars))), indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to, whose file then replaces the one at `path`: after a power cut, too, it is the old or the new.

    An OSError of that path names `path`, which a person knows.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        flush([temporary])
        os.replace(temporary, path)
    except OSError as error:
        if str(error.filename) != str(temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    flush([path.parent])


def remove_leftovers(folder: Path) -> None:
    """Remove what `whole_file` was writing there when its process was killed."""
    for path in folder.iterdir():
        if re.fullmatch(r"\.\w+\.\w+\.\d+", path.name):
            path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; the file is there whole or not at all."""
    write_text(path, json_text(value, indent=2) + "\n")


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; if that fails, the file is as it was."""
    left = f"{line}\n".encode()
    with open(path, "ab", buffering=0) as file:  # a buffer would write what is left of it after the truncation
        before = file.tell()
        try:
            while left:
                left = left[file.write(left) :]
        except BaseException:
            file.truncate(before)
            raise


def flush(paths: Iterable[Path]) -> None:
    """Wait until the disk itself has these files and folders. At once, as the disk then writes them together."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        list(pool.map(_flush, paths))


def _flush(path: Path) -> None:
    folder = path.is_dir()
    if folder and os.name != "posix":  # no other system opens a folder
        return
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FolderLock:
    """The right to write into a folder, which only one has at a time. A process that ended has it no longer.

    In one process the newest has it: a notebook's older run may still be there. why_not: once it is lost, why, in words.
    Raises BlockingIOError when another process has it.
    """

    _held: ClassVar[WeakValueDictionary[Path, FolderLock]] = WeakValueDictionary()

    def __init__(self, folder: Path) -> None:
        self.why_not: str | None = None
        place = folder.resolve()
        if (older := self._held.get(place)) is not None:
            older.release("was resumed since by a newer one")
        self._file = FileLock(folder / LOCK, thread_local=False)
        try:
            self._file.acquire(timeout=0)
        except Timeout:
            raise BlockingIOError(f"{_process_in(folder / LOCK)} is training in it") from None
        self._held[place] = self
        with suppress(OSError):  # only said to people
            (folder / LOCK).write_text(f"{os.getpid()}\n", encoding="utf-8")

    def release(self, why: str) -> None:
        """Let others have it; say why it is gone."""
        if self.why_not is None:
            self.why_not = why
            self._file.release(force=True)


def _process_in(lock: Path) -> str:
    with suppress(OSError):
        number = lock.read_text(encoding="utf-8").strip()
        if number.isdigit():
            return f"process {number}"
    return "another process"
