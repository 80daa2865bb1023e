"""The course's checks, which say what is wrong with an answer; slips, puzzles, predictions, editions and grading.

A student's function comes in, and a verdict in words goes out. Begin reading with `exercise.py`, and with `clipping.py` for what
an exercise looks like. Names are imported when they are first used, so that editions do not wait for torch; they are listed in
`__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
