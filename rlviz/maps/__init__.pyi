# What rlviz.maps offers; rlviz/maps/__init__.py reads this.
from .cells import Cell as Cell, Measured as Measured, run_pair as run_pair, table_task as table_task
from .making import Making as Making, borrow as borrow, regime_map as regime_map
from .regime import (
    AXES as AXES,
    MEASURES as MEASURES,
    MapSettings as MapSettings,
    Regime as Regime,
    values_of as values_of,
)
from .stored import RegimeMap as RegimeMap, read_map as read_map
