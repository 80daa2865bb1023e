"""Curves and histories as matplotlib pictures: no formula and no torch in here."""

from rlviz.plots.bands import plot_bands
from rlviz.plots.clip import plot_clip, plot_clip_small_multiples
from rlviz.plots.importance import plot_importance
from rlviz.plots.learning import plot_learning_curves, plot_metrics, plot_seeds
from rlviz.plots.loop import plot_loop
from rlviz.plots.weights import plot_difficulty, plot_token_weights

__all__ = [
    "plot_bands",
    "plot_clip",
    "plot_clip_small_multiples",
    "plot_difficulty",
    "plot_importance",
    "plot_learning_curves",
    "plot_loop",
    "plot_metrics",
    "plot_seeds",
    "plot_token_weights",
]
