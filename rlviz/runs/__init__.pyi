# What rlviz.runs offers; rlviz/runs/__init__.py reads this.
from .comparison import plot_comparison as plot_comparison
from .critic import plot_values as plot_values
from .diagnosis import diagnose as diagnose
from .inspector import inspect_run as inspect_run
from .learning import (
    plot_bands as plot_bands,
    plot_hacking as plot_hacking,
    plot_learning_curves as plot_learning_curves,
    plot_metrics as plot_metrics,
    plot_seeds as plot_seeds,
)
from .logs import ImportedRun as ImportedRun, import_run as import_run
from .panel import training_panel as training_panel
from .playground import train_in_page as train_in_page
from .recordings import recorded_run as recorded_run
from .watching import train_seeds as train_seeds, watch as watch
