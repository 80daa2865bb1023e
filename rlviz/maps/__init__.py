"""Regime maps: where two algorithms differ over two settings, by runs of a table of logits."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
