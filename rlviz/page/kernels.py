"""Compile kernels.c to kernels.wasm, by the compiler that the package ziglang brings: `python -m rlviz.page.kernels`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.c")
BYTES = SOURCE.with_suffix(".wasm")
COMPILER = "ziglang==0.13.0"
TARGET = ("--target=wasm32-freestanding", "-mcpu=generic+simd128+nontrapping_fptoint", "-nostdlib")
MEMORY = ("-Wl,--no-entry", "-Wl,--import-memory", "-Wl,--strip-all", "-Wl,-z,stack-size=8192")


def compiled() -> bytes:
    """Return kernels.c as WebAssembly. Raises CalledProcessError where the compiler is missing, or complains."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernels.wasm"
        run = [sys.executable, "-m", "ziglang", "cc", *TARGET, "-O3", *MEMORY, str(SOURCE), "-o", str(out)]
        subprocess.run(run, check=True, capture_output=True)
        return out.read_bytes()


if __name__ == "__main__":
    BYTES.write_bytes(compiled())
