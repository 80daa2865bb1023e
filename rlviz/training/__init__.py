"""Training as an iterator of step records, and the folders that runs are kept in. Begin reading at step.py.

step.py: one step, prompts to optimizer; state.py: all that it hands to the next, with its saver; run.py: what surrounds a step.

`__init__.pyi` lists what is offered; names are imported when they are first used, so that settings and run folders can be had
without all that trains.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
