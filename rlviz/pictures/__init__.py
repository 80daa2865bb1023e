"""Explorers: pictures with sliders, each a curve (a function of tensors through an algorithm's own pieces) and a picture of it.

In: an algorithm and the values of controls. Out: an `Explorer`, as a widget, a page that needs no kernel, or a figure. A file is
one idea; begin with clip.py. `spec` says what an explorer consists of, `explore` shows it, `arguments` reads and writes its
settings, `parameters` has the ranges and labels of an algorithm's sliders, `shipped` holds the recorded programs.
`__init__.pyi` lists what is offered; names are imported when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
