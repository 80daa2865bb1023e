"""Curves and histories as matplotlib pictures: no formula and no torch in here."""

from rlviz.plots.clip import plot_clip, plot_clip_small_multiples
from rlviz.plots.learning import plot_learning_curves, plot_metrics, plot_seeds
from rlviz.plots.loop import plot_loop

__all__ = ["plot_clip", "plot_clip_small_multiples", "plot_learning_curves", "plot_loop", "plot_metrics", "plot_seeds"]
