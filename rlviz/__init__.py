"""rlviz: understand LLM policy optimisation by moving sliders and training small models.

Names are imported when they are first used, so that `import rlviz` and `rlviz --help` do not wait for torch; they are listed in
`__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
