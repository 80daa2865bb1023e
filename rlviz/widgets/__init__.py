"""Pictures that answer to sliders. Each function returns a widget; `.png` is what it shows now, `.caption` says it in words."""

from rlviz.widgets.clip import explore_clip
from rlviz.widgets.training import training_panel

__all__ = ["explore_clip", "training_panel"]
