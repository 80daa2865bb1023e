"""The picture of a run's learning curves, drawn by a second process: matplotlib imports while this one trains."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

DRAW = """
import io, pickle, sys
from pandas import DataFrame
from rlviz.runs.learning import plot_learning_curves
rows, title = pickle.load(sys.stdin.buffer)
png = io.BytesIO()
plot_learning_curves(DataFrame(rows), title=title).savefig(png, format="png")
sys.stdout.buffer.write(png.getvalue())
"""


class CurveDrawer:
    """A context in which a second process waits for curves to draw; none where one core, or this process, does it as quickly."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._sender = ThreadPoolExecutor(1)
        self._png: Future[tuple[bytes, bytes]] | None = None
        if (os.cpu_count() or 1) > 1 and "matplotlib" not in sys.modules:
            with suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-c", DRAW],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a terminal's Ctrl-C is not for it
                )

    def __enter__(self) -> CurveDrawer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._sender.shutdown(wait=False)

    def begin(self, rows: list[dict[str, Any]], title: str) -> None:
        """Send the rows of a history; the process draws while this one goes on."""
        if self._process is not None:
            self._png = self._sender.submit(self._process.communicate, pickle.dumps((rows, title)))

    def finish(self, rows: list[dict[str, Any]], title: str) -> bytes:
        """Return the picture, drawn in this process where there is no other or it failed."""
        if self._process is not None and self._png is not None:
            png, _ = self._png.result()
            if self._process.returncode == 0:
                return png
        from io import BytesIO

        from pandas import DataFrame

        from rlviz.runs.learning import plot_learning_curves

        file = BytesIO()
        plot_learning_curves(DataFrame(rows), title=title).savefig(file, format="png")
        return file.getvalue()
