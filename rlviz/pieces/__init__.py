"""The pieces: pure functions of tensors, one slot of an algorithm a file, every variant of the slot on one page.

A piece with parameters is a frozen dataclass: parameters when it is built, tensors when it is called. In: log-probabilities,
rewards, masks. Out: ratios, limits, advantages, penalties, weights. Begin with `surrogate.py` and `advantages.py`; `formula.py`
and `words.py` read the text that each piece has beside its code. A function of your own with the same arguments fits wherever a
piece does.
"""
