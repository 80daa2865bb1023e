"""Training as an iterator of step records, and the folders that runs are kept in."""

from rlviz.settings import PairSettings, TrainSettings
from rlviz.training.cost import Cost, ModelCost, cost_table, model_costs
from rlviz.training.records import explained_variance
from rlviz.training.reward_model import (
    LearnedReward,
    RewardModelRecord,
    learn_reward,
    pair_accuracy,
    train_reward_model,
)
from rlviz.training.run import TrainingRun, summarize
from rlviz.training.run_folder import RunFolder, history
from rlviz.training.settings import default_settings
from rlviz.training.start import find_task, resume, train
from small_models.policies import load_policy
