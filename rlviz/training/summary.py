"""What a run did to the policy, on held-out prompts."""

from __future__ import annotations

from typing import Any

from rlviz.training.files import write_json
from rlviz.training.run import TrainingRun
from small_models.checks import checked
from small_models.evaluation import evaluate
from small_models.policies import Policy
from small_models.tasks import Task


def _accuracies(policy: Policy, task: Task, longest: int | None, when: str) -> dict[str, float]:
    return {
        f"accuracy_{when}": evaluate(policy, task, max_new_tokens=longest).accuracy,
        f"greedy_accuracy_{when}": evaluate(policy, task, max_new_tokens=longest, temperature=0).accuracy,
    }


@checked
def summarize(run: TrainingRun[Any]) -> dict[str, Any]:
    """Return held-out accuracy before and after, steps, seconds and tokens of a run, and write summary.json into its folder.

    Accuracy is sampled at temperature 1, greedy_accuracy is not sampled; before is that of the policy from which the run
    started, on the same prompts and random numbers.
    """
    summary = {
        **_accuracies(run.start, run.task, run.settings.max_new_tokens, "before"),
        **_accuracies(run.policy, run.task, run.settings.max_new_tokens, "after"),
        "train_seconds": run.train_seconds,
        "tokens_sampled": run.tokens_sampled,
        "steps": run.step,
        "finished": run.step >= run.settings.steps,
        "seed": run.settings.seed,
    }
    if run.folder is not None:
        with run.folder.writing():
            write_json(run.folder.path / "summary.json", summary)
    return summary
