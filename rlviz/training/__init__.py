"""Training as an iterator of step records, and the folders that runs are kept in."""

from rlviz.training.run import TrainingRun, find_task, resume, train, trainable
from rlviz.training.run_folder import RunFolder, history
from rlviz.training.settings import TrainSettings
from rlviz.training.summary import summarize

__all__ = [
    "RunFolder",
    "TrainSettings",
    "TrainingRun",
    "find_task",
    "history",
    "resume",
    "summarize",
    "train",
    "trainable",
]
