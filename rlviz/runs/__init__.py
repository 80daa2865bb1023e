"""Runs: learning curves, comparisons, costs, what is unusual, the inspector, the training panel and the playground."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
