"""Curves and histories as matplotlib pictures: no formula and no torch in here."""

from rlviz.plots.advantages import plot_advantages
from rlviz.plots.aggregation import plot_aggregation
from rlviz.plots.bands import plot_bands
from rlviz.plots.bounds import plot_bounds
from rlviz.plots.clip import plot_clip, plot_clip_comparison, plot_clip_small_multiples
from rlviz.plots.cost import plot_costs
from rlviz.plots.critic import plot_values
from rlviz.plots.dpo import plot_dpo
from rlviz.plots.entropy import plot_entropy
from rlviz.plots.gae import plot_gae
from rlviz.plots.hacking import plot_hacking
from rlviz.plots.importance import plot_importance
from rlviz.plots.kl import plot_kl
from rlviz.plots.learning import plot_learning_curves, plot_metrics, plot_seeds
from rlviz.plots.loop import plot_loop
from rlviz.plots.overlong import plot_overlong
from rlviz.plots.picture import plot_small_multiples, save_figure
from rlviz.plots.process import plot_process
from rlviz.plots.ratio import plot_ratio
from rlviz.plots.sampling import plot_sampling
from rlviz.plots.weights import plot_difficulty, plot_token_weights

__all__ = [
    "plot_advantages",
    "plot_aggregation",
    "plot_bands",
    "plot_bounds",
    "plot_clip",
    "plot_clip_comparison",
    "plot_clip_small_multiples",
    "plot_costs",
    "plot_difficulty",
    "plot_dpo",
    "plot_entropy",
    "plot_gae",
    "plot_hacking",
    "plot_importance",
    "plot_kl",
    "plot_learning_curves",
    "plot_loop",
    "plot_metrics",
    "plot_overlong",
    "plot_process",
    "plot_ratio",
    "plot_sampling",
    "plot_seeds",
    "plot_small_multiples",
    "plot_token_weights",
    "plot_values",
    "save_figure",
]
