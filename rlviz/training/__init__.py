"""Training: an iterator of step records, and run folders.

In come a policy, a task, an algorithm and settings (`train`); out come a record a step, the changed policy and, with `out`, a
folder that `resume` continues. Begin with step.py, one step from prompts to optimizer, then state.py, all that one step hands to
the next, and run.py, evaluation and checkpoints around the steps.

`__init__.pyi` lists the names; they are imported when they are first used, so that reading a run folder does not import all else.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
