# What rlviz.study offers; rlviz/study/__init__.py reads this.
from .claims import CLAIMS as CLAIMS, find_claim as find_claim
from .comparison import (
    Comparison as Comparison,
    Contender as Contender,
    compare as compare,
    read_comparison as read_comparison,
)
from .difference import (
    Difference as Difference,
    bootstrap as bootstrap,
    bootstrap_of_the_difference as bootstrap_of_the_difference,
    interval as interval,
    iqm as iqm,
    paired as paired,
    unpaired as unpaired,
)
from .effects import Claim as Claim, Effect as Effect, arithmetic as arithmetic, forest as forest
from .map_settings import AXES as AXES, MapSettings as MapSettings
from .maps import borrow as borrow, read_map as read_map, regime_map as regime_map
from .verdicts import Trials as Trials, quoted as quoted
