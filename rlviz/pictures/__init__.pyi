# What rlviz.pictures offers; rlviz/pictures/__init__.py reads this. An explorer is listed here, and nowhere else.
from .advantages import explore_advantages as explore_advantages
from .aggregation import explore_aggregation as explore_aggregation
from .base import GREY as GREY, new_figure as new_figure, save_figure as save_figure
from .bias import explore_bias as explore_bias
from .bounds import explore_bounds as explore_bounds
from .clip import explore_clip as explore_clip
from .coin import explore_coin as explore_coin
from .dpo import explore_dpo as explore_dpo
from .entropy import explore_entropy as explore_entropy
from .explore import Explorer as Explorer
from .gae import explore_gae as explore_gae
from .kl import explore_kl as explore_kl
from .length import explore_length as explore_length
from .loop import explore_loop as explore_loop
from .map import explore_map as explore_map
from .mismatch import explore_mismatch as explore_mismatch
from .multiples import small_multiples as small_multiples
from .overlong import explore_overlong as explore_overlong
from .overoptimisation import explore_overoptimisation as explore_overoptimisation
from .pass_at_k import explore_pass_at_k as explore_pass_at_k
from .process import explore_process as explore_process
from .ratio import explore_ratio as explore_ratio
from .sampling import explore_sampling as explore_sampling
from .simplex import explore_simplex as explore_simplex
from .spec import explorer as explorer
from .walk import explore_walk as explore_walk
