"""The way out and back: an algorithm in the words of TRL and verl, and their configurations read.

In come an algorithm with its settings, or a configuration or script of theirs. Out go an `Export` with a line for each slot and a
file that they run, a trainer of TRL with the algorithm's own loss, or an `Explanation` of which algorithm a configuration trains.
Begin with `exporting` and the TABLE of `trl`; `reading` is that table read backwards, and `explaining` puts both into sentences.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
