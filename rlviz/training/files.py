"""Files that outlive a crash: written whole or not at all, flushed to the disk, JSON without NaN, a lock on a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import msgspec
from filelock import FileLock, Timeout

LOCK = ".lock"


def json_text(value: Any, indent: int = 0) -> str:
    """Return `value` as JSON, dataclasses as objects; a number that is not finite is null, for JSON has no NaN."""

    def plain(number: Any) -> int | float:  # numpy's, and a setting's usual number
        return float(number) if isinstance(number, float) else number.item()

    data = msgspec.json.encode(value, enc_hook=plain)
    return msgspec.json.format(data, indent=indent).decode()


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to, whose file then replaces the one at `path`: after a power cut, too, it is the old or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        flush([temporary])
        os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # none where the disk is full; a person knows the other
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
    flush([path.parent])


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; the file is there whole or not at all."""
    write_text(path, json_text(value, indent=2) + "\n")


def append_line(path: Path, line: str) -> None:
    """Add a line to a file. Where the disk is full it may be cut short, which readers know of a last line."""
    with open(path, "ab") as file:
        file.write(f"{line}\n".encode())


def flush(paths: Iterable[Path]) -> None:
    """Wait until the disk itself has these files and folders."""
    for path in paths:
        if path.is_dir() and os.name != "posix":  # no other system opens a folder
            continue
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class FolderLock:
    """A lock on a folder for writing; a process that ends releases it.

    Within a process the newest lock wins: a notebook's older run may still exist. why_not: the reason once it is lost.
    Raises BlockingIOError when another process has it.
    """

    _locks: ClassVar[WeakValueDictionary[Path, FolderLock]] = WeakValueDictionary()

    def __init__(self, folder: Path) -> None:
        self.why_not: str | None = None
        path = folder.resolve()
        if (older := self._locks.get(path)) is not None:
            older.release("was resumed since by a newer one")
        self._file = FileLock(folder / LOCK, thread_local=False)
        try:
            self._file.acquire(timeout=0)
        except Timeout:
            raise BlockingIOError("another process is training in it") from None
        self._locks[path] = self

    def release(self, why: str) -> None:
        """Release the lock, with the reason."""
        if self.why_not is None:
            self.why_not = why
            self._file.release(force=True)
