"""Studies: arms over seeds, run so that they can be interrupted, in a tidy frame, and what a difference is worth.

In: algorithms, tasks, settings, seeds. Out: frames (arm, seed, step, what was measured), effects, files that go on. Begin at
`runner.py`, which runs every study, and `difference.py`, which measures their differences. `comparison.py` is algorithms at one
budget, `effects.py`, `verdicts.py` and `claims/` (a file each) what papers say, `maps.py` two algorithms over two settings.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
