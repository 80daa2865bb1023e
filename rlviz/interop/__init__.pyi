# What rlviz.interop offers; rlviz/interop/__init__.py reads this and imports a name when it is first used.
from .carrying import carried as carried
from .explaining import Explanation as Explanation, explain_config as explain_config
from .exporting import Export as Export, Fit as Fit, from_json as from_json
from .trl import to_trl as to_trl
from .verl import to_verl as to_verl
