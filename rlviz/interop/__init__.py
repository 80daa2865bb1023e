"""The way out and back: an algorithm in the words of TRL and verl or carried into TRL, and a real run among one's own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
