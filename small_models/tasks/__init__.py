"""The tasks, one a file: prompts, a rule that grades a response, and demonstrations to imitate first.

Begin with `base.Task`, then `chain`. `file_task` makes a task of a file of prompts; `graded` grades one by a rule of one's own.
"""

from small_models.tasks.base import Grade, RewardError, Score, Step, Task
from small_models.tasks.chain import Chain, Ramble
from small_models.tasks.file_task import TASK_FILE, FileTask, chat_writer, is_code
from small_models.tasks.graded import GradedBy, with_reward
from small_models.tasks.lookup import Lookup
from small_models.tasks.sentences import Sentences, WordReward
from small_models.tasks.sort import Sort
from small_models.tasks.trip import Trip

TASKS: tuple[Task, ...] = (Chain(), Lookup(), Ramble(), Sentences(), Sort(), Trip())
