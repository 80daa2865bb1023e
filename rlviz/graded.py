"""The process in which a student's notebook is run for a grade: python -m rlviz.graded GIVEN.json SAID.jsonl"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def main(given_file: str, said_file: str) -> None:
    """Run the cells one after the other, and write what each check finds as soon as its function is there."""
    given = json.loads(Path(given_file).read_text(encoding="utf-8"))
    said = os.open(said_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (given["bytes"], given["bytes"]))
    from IPython.core.interactiveshell import InteractiveShell

    class Shell(InteractiveShell):
        """A shell without a kernel, which has nothing to do for %matplotlib."""

        def enable_gui(self, gui: Any = None) -> None:
            pass

    from rlviz.exercises import check
    from rlviz.grading import result

    def say(**entry: Any) -> None:
        os.write(said, (json.dumps(entry) + "\n").encode())

    shell = Shell.instance()
    for number, source in enumerate(given["cells"], start=1):
        before = {one["name"]: shell.user_ns.get(one["name"]) for one in given["asked"]}
        ran = shell.run_cell(source, store_history=False)
        error = ran.error_before_exec or ran.error_in_exec
        if error is not None:
            say(cell=number, error=f"{type(error).__name__}: {error}")
        for one in given["asked"]:
            if shell.user_ns.get(one["name"]) is before[one["name"]]:
                continue
            for call in one["checks"]:
                try:
                    verdict = eval(call, {**shell.user_ns, "check": check})  # the lesson's own words, not the student's
                except Exception as broken:
                    say(exercise=one["name"], call=call, result="not judged", mistake="", says=str(broken))
                else:
                    say(
                        exercise=one["name"],
                        call=call,
                        result=result(verdict),
                        mistake=verdict.mistake,
                        says=verdict.says,
                    )


if __name__ == "__main__":
    main(*sys.argv[1:])
