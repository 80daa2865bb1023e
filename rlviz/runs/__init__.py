"""Runs: learning curves, comparisons, costs, what is unusual, the inspector and the training panel."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
