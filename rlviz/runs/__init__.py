"""Runs, once they are trained: curves, comparisons, diagnoses, the inspector, recordings, and panels that train.

In come the records of `train`, a run folder, or a log of another program (`logs.py` reads it under rlviz's names). Out come
figures (`learning.py`, which also draws learning_curves.png; `comparison.py`), findings (`diagnosis.py`, by the rules of
rules.md) and pages (`inspector.py`; `playground.py`, whose programs `in_page.py` traces). Begin with `curves.py`, the live
picture of a run; then `inspector.py`: `inspected.py` writes a step for its page, `terms.py` works out where a token's numbers
come from, `counterfactual.py` what other algorithms would have done.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
