"""Whether training still gives the numbers that it gave: fingerprints of runs, kept in same_numbers.json, on this machine's CPU.

    python -m tests.training.same_numbers          compares; exits with 1 and the first step that differs
    python -m tests.training.same_numbers --keep   writes the file anew

A run's fingerprint is that of each step's record (but for the clock's seconds), of its recorded groups with their tokens, and of
the weights at its end; and of a run that was cut off after three steps and went on.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import torch

from rlviz.training import resume
from tests.training.runs import RUNS, begin, groups, numbers

FILE = Path(__file__).with_suffix(".json")


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[:16]


def of_numbers(record) -> str:
    return digest(repr(sorted(numbers(record).items())))


def of_weights(run) -> str:
    return digest(b"".join(tensor.detach().numpy().tobytes() for tensor in run.policy.weights.state_dict().values()))


def fingerprint(name: str) -> dict[str, object]:
    """Return what the run of this name gives, whole and gone on with."""
    with tempfile.TemporaryDirectory() as folder:
        whole = begin(name)
        records = list(whole)
        cut = begin(name, out=Path(folder) / "run")
        for _ in range(3):
            next(cut)
        again = resume(Path(folder) / "run", device="cpu")
        later = list(again)
        return {
            "steps": [of_numbers(record) for record in records],
            "groups": [digest(repr(groups(record))) if hasattr(record, "groups") else "" for record in records],
            "weights": of_weights(whole),
            "resumed": [of_numbers(record) for record in later[-3:]],  # a slow run saves its third step too
            "resumed weights": of_weights(again),
        }


def main() -> int:
    torch.set_num_threads(1)
    kept = {} if "--keep" in sys.argv else json.loads(FILE.read_text())
    asked = [name for name in sys.argv[1:] if not name.startswith("--")]
    wanted = asked or list(kept) or list(RUNS)
    found = {}
    wrong = 0
    for name in wanted:
        found[name] = fingerprint(name)
        if kept:
            other = [part for part, value in found[name].items() if value != kept[name][part]]
            steps = [
                i + 1 for i, (a, b) in enumerate(zip(found[name]["steps"], kept[name]["steps"], strict=True)) if a != b
            ]
            wrong += bool(other)
            print(f"{name:28} {'the same' if not other else f'{other} differ, from step {steps[:1]}'}", flush=True)
        elif found[name]["steps"][-3:] != found[name]["resumed"]:
            print(f"{name}: a resumed run is another one", flush=True)
    if not kept:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
