"""What workers do in tests/test_parallel.py, with no more to import than they need."""

import itertools
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
    raise TornError("torn", "the end") if task == "torn" else ValueError("this task is refused")


def leaves(task):
    yield task
    sys.exit(0)


def answered(file):
    """Report once more when the consumer has heard the first report."""
    yield file.name, sys.modules["torch"].get_num_threads()
    while not file.exists():
        time.sleep(0.02)
    yield file.name, "answered"


def endless(file):
    try:
        for step in itertools.count():
            yield os.getpid(), step
            time.sleep(0.02)
    except GeneratorExit:
        file.write_text(str(step))


def long(file):
    yield "begun"
    for _ in range(1000):
        time.sleep(0.1)
    file.touch()


def killed_always(file):
    """Kill the worker that does this; a line in the file is a try."""
    with file.open("a") as tries:
        tries.write("tried\n")
    os.kill(os.getpid(), signal.SIGKILL)
    yield
