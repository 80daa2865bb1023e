"""A picture as a value, and the page that computes it: grammar, tracing, and the two outlets that draw it.

In: a curve (a function of tensors) and a picture (panels of marks bound to the names of its outputs, its data and its controls).
Out: a widget, a page, a file. `tracing` alone knows torch; nothing here knows an algorithm. Begin with `picture`, then `tracing`.
run.js runs a curve's program. train.js trains a transformer in a page: its programs are laid out by planned.js for kernels.c,
the algorithm's go through run.js, and the tasks are those of tasks.js.
"""
