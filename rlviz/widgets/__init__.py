"""Pictures that answer to sliders. Each function returns a widget; `.png` is what it shows now, `.caption` says it in words."""

from rlviz.widgets.advantages import explore_advantages
from rlviz.widgets.aggregation import explore_aggregation
from rlviz.widgets.bounds import explore_bounds
from rlviz.widgets.clip import explore_clip
from rlviz.widgets.dpo import explore_dpo
from rlviz.widgets.entropy import explore_entropy
from rlviz.widgets.explorer import Explorer, small_multiples
from rlviz.widgets.gae import explore_gae
from rlviz.widgets.inspector import inspect_run
from rlviz.widgets.kl import explore_kl
from rlviz.widgets.overlong import explore_overlong
from rlviz.widgets.playground import playground
from rlviz.widgets.process import explore_process
from rlviz.widgets.ratio import explore_ratio
from rlviz.widgets.sampling import explore_sampling
from rlviz.widgets.training import training_panel

__all__ = [
    "Explorer",
    "explore_advantages",
    "explore_aggregation",
    "explore_bounds",
    "explore_clip",
    "explore_dpo",
    "explore_entropy",
    "explore_gae",
    "explore_kl",
    "explore_overlong",
    "explore_process",
    "explore_ratio",
    "explore_sampling",
    "inspect_run",
    "playground",
    "small_multiples",
    "training_panel",
]
