# What rlviz.maps offers; rlviz/maps/__init__.py reads this.
from .cells import Cell as Cell, run_pair as run_pair
from .making import Making as Making, borrow as borrow, regime_map as regime_map
from .measures import Measured as Measured
from .regime import (
    AXES as AXES,
    MEASURES as MEASURES,
    POLICY_AXES as POLICY_AXES,
    MapSettings as MapSettings,
    PolicyRegime as PolicyRegime,
    Regime as Regime,
    values_of as values_of,
)
from .stored import RegimeMap as RegimeMap, read_map as read_map
from .tables import table_task as table_task
