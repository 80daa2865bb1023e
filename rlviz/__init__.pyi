# What `import rlviz` offers, each name once; rlviz/__init__.py reads this and imports a name when it is first used.
from .algorithms import (
    ALGORITHMS as ALGORITHMS,
    CISPO as CISPO,
    DAPO as DAPO,
    DCPO as DCPO,
    DPO as DPO,
    DPO_LINEAR as DPO_LINEAR,
    DR_GRPO as DR_GRPO,
    DUPO as DUPO,
    GMPO as GMPO,
    GRPO as GRPO,
    GRPO_PROCESS as GRPO_PROCESS,
    GSPO as GSPO,
    GSPO_TOKEN as GSPO_TOKEN,
    LITE_PPO as LITE_PPO,
    PPO as PPO,
    PPO_PENALTY as PPO_PENALTY,
    REINFORCE_PP as REINFORCE_PP,
    RELATIVES as RELATIVES,
    RLOO as RLOO,
    SAPO as SAPO,
    ActorCritic as ActorCritic,
    GroupPolicyGradient as GroupPolicyGradient,
    PolicyGradient as PolicyGradient,
    PreferenceOptimization as PreferenceOptimization,
    changes as changes,
    differences as differences,
    family_table as family_table,
    show as show,
)
from .comparison import (
    Comparison as Comparison,
    Contender as Contender,
    compare as compare,
    read_comparison as read_comparison,
)
from .maps import (
    MapSettings as MapSettings,
    Regime as Regime,
    RegimeMap as RegimeMap,
    read_map as read_map,
    regime_map as regime_map,
)
from .pictures import (
    explore_advantages as explore_advantages,
    explore_aggregation as explore_aggregation,
    explore_bounds as explore_bounds,
    explore_clip as explore_clip,
    explore_dpo as explore_dpo,
    explore_entropy as explore_entropy,
    explore_gae as explore_gae,
    explore_kl as explore_kl,
    explore_map as explore_map,
    explore_overlong as explore_overlong,
    explore_process as explore_process,
    explore_ratio as explore_ratio,
    explore_sampling as explore_sampling,
    small_multiples as small_multiples,
)
from .runs import (
    inspect_run as inspect_run,
    playground as playground,
    training_panel as training_panel,
    watch as watch,
)
from .tabular import (
    TableTask as TableTask,
    good_actions as good_actions,
    random_reward as random_reward,
    rare_good_action as rare_good_action,
    train_table as train_table,
)
from .training import (
    PairSettings as PairSettings,
    RunFolder as RunFolder,
    TrainSettings as TrainSettings,
    default_settings as default_settings,
    find_task as find_task,
    history as history,
    learn_reward as learn_reward,
    load_policy as load_policy,
    resume as resume,
    train as train,
)

__version__: str
