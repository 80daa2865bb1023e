# What rlviz.training offers; rlviz/training/__init__.py reads this.
from .pass_rates import pass_rates as pass_rates
from .records import explained_variance as explained_variance
from .reward_model import (
    LearnedReward as LearnedReward,
    learn_reward as learn_reward,
    pair_accuracy as pair_accuracy,
    train_reward_model as train_reward_model,
)
from .run import TrainingRun as TrainingRun, summarize as summarize
from .run_folder import RunFolder as RunFolder, history as history
from .settings import (
    PairSettings as PairSettings,
    TrainSettings as TrainSettings,
    default_settings as default_settings,
)
from .start import load_policy as load_policy, resume as resume, train as train
from .tasks import find_task as find_task
