"""One idea a file: its curve, computed by the pieces; its picture; and the function that explores it with sliders.

`__init__.pyi` lists what is offered; names are imported when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
