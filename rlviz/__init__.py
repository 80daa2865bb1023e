"""rlviz: understand LLM policy optimisation by moving sliders and training small models.

Names are imported when they are first used, so that `import rlviz` and `rlviz --help` do not wait for torch; they are listed in
`__init__.pyi`.
"""

from typing import Any

import lazy_loader

_listed, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name.startswith("explore_") and name not in __all__:  # an explorer is listed in pictures/__init__.pyi only
        from rlviz import pictures

        return getattr(pictures, name)
    return _listed(name)
