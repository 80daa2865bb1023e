"""Which runs of panels are under way on this computer: each holds a lock on a file, which ends with its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout
from jupyter_core.paths import jupyter_runtime_dir


def _folder() -> Path:
    return Path(jupyter_runtime_dir()) / "rlviz-training"


class UnderWay:
    """A run of this process. `begun` holds its lock for as long as it trains."""

    def __init__(self) -> None:
        self._path = _folder() / f"{os.getpid()}-{uuid4().hex[:8]}.lock"

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Say to others that this run is under way; where nothing can be written, it is not said."""
        lock = FileLock(self._path)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        try:
            yield
        finally:
            lock.release()
            self._path.unlink(missing_ok=True)

    def others(self) -> int:
        """Return how many other runs are under way on this computer."""
        return sum(_held(path) for path in _folder().glob("*.lock") if path != self._path)


def _held(path: Path) -> bool:
    """Return whether a process holds the lock; one that nobody holds is of a process that was killed, and goes."""
    try:
        with FileLock(path, timeout=0):
            path.unlink(missing_ok=True)
    except Timeout:
        return True
    except OSError:
        pass
    return False
