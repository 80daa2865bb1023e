"""What workers do in tests/test_parallel.py, with no more to import than they need."""

import os
import signal
import sys
import time


class TornError(Exception):
    """Packed with its one sentence, it cannot be made again, which takes two words."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


def raises(task):
    yield task
    raise TornError("torn", "the end")


def leaves(task):
    yield task
    sys.exit(0)


def dies(task):
    yield task
    os.kill(os.getpid(), signal.SIGKILL)


def answered(file):
    """Report which process does it with how many threads, the last two only when the consumer has heard the first."""
    yield file.name, os.getpid(), sys.modules["torch"].get_num_threads()
    while file.name in "cd" and not (file.parent / "heard").exists():
        time.sleep(0.02)
    yield file.name, "done"


def long(file):
    file.with_suffix(".begun").write_text(str(os.getpid()))
    while file.name != "quick":
        time.sleep(0.1)
    yield "quick"
