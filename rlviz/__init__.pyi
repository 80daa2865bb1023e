# What `import rlviz` offers, each name once; rlviz/__init__.py reads this and imports a name when it is first used.
from .algorithms import (
    ALGORITHMS as ALGORITHMS,
)
from .algorithms import (
    CISPO as CISPO,
)
from .algorithms import (
    DAPO as DAPO,
)
from .algorithms import (
    DCPO as DCPO,
)
from .algorithms import (
    DPO as DPO,
)
from .algorithms import (
    DPO_LINEAR as DPO_LINEAR,
)
from .algorithms import (
    DR_GRPO as DR_GRPO,
)
from .algorithms import (
    DUPO as DUPO,
)
from .algorithms import (
    GMPO as GMPO,
)
from .algorithms import (
    GRPO as GRPO,
)
from .algorithms import (
    GRPO_PROCESS as GRPO_PROCESS,
)
from .algorithms import (
    GSPO as GSPO,
)
from .algorithms import (
    GSPO_TOKEN as GSPO_TOKEN,
)
from .algorithms import (
    LITE_PPO as LITE_PPO,
)
from .algorithms import (
    PPO as PPO,
)
from .algorithms import (
    PPO_PENALTY as PPO_PENALTY,
)
from .algorithms import (
    REINFORCE_PP as REINFORCE_PP,
)
from .algorithms import (
    RELATIVES as RELATIVES,
)
from .algorithms import (
    RLOO as RLOO,
)
from .algorithms import (
    SAPO as SAPO,
)
from .algorithms import (
    ActorCritic as ActorCritic,
)
from .algorithms import (
    GroupPolicyGradient as GroupPolicyGradient,
)
from .algorithms import (
    PolicyGradient as PolicyGradient,
)
from .algorithms import (
    PreferenceOptimization as PreferenceOptimization,
)
from .algorithms import (
    changes as changes,
)
from .algorithms import (
    differences as differences,
)
from .algorithms import (
    family_table as family_table,
)
from .algorithms import (
    show as show,
)
from .comparison import (
    Comparison as Comparison,
)
from .comparison import (
    Contender as Contender,
)
from .comparison import (
    compare as compare,
)
from .comparison import (
    read_comparison as read_comparison,
)
from .tabular import (
    TableTask as TableTask,
)
from .tabular import (
    good_actions as good_actions,
)
from .tabular import (
    random_reward as random_reward,
)
from .tabular import (
    rare_good_action as rare_good_action,
)
from .tabular import (
    train_table as train_table,
)
from .training import (
    PairSettings as PairSettings,
)
from .training import (
    RunFolder as RunFolder,
)
from .training import (
    TrainSettings as TrainSettings,
)
from .training import (
    default_settings as default_settings,
)
from .training import (
    find_task as find_task,
)
from .training import (
    history as history,
)
from .training import (
    learn_reward as learn_reward,
)
from .training import (
    load_policy as load_policy,
)
from .training import (
    resume as resume,
)
from .training import (
    train as train,
)
from .widgets import (
    explore_advantages as explore_advantages,
)
from .widgets import (
    explore_aggregation as explore_aggregation,
)
from .widgets import (
    explore_bounds as explore_bounds,
)
from .widgets import (
    explore_clip as explore_clip,
)
from .widgets import (
    explore_dpo as explore_dpo,
)
from .widgets import (
    explore_entropy as explore_entropy,
)
from .widgets import (
    explore_gae as explore_gae,
)
from .widgets import (
    explore_kl as explore_kl,
)
from .widgets import (
    explore_overlong as explore_overlong,
)
from .widgets import (
    explore_process as explore_process,
)
from .widgets import (
    explore_ratio as explore_ratio,
)
from .widgets import (
    explore_sampling as explore_sampling,
)
from .widgets import (
    inspect_run as inspect_run,
)
from .widgets import (
    playground as playground,
)
from .widgets import (
    small_multiples as small_multiples,
)
from .widgets import (
    training_panel as training_panel,
)

__version__: str
