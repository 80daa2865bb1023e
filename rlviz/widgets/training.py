"""training_panel: choose, press Train, and watch a real run; Stop and Resume at any step."""

from __future__ import annotations

from dataclasses import replace

import ipywidgets as widgets

from rlviz.algorithms import GRPO, GroupPolicyGradient, numbers
from rlviz.training import TrainSettings, find_task, train
from rlviz.widgets.live import Control, choice_control, float_control, int_control
from rlviz.widgets.trainer import BackgroundTrainer, LearningCurves, group_table, last_numbers
from small_models.checks import checked
from small_models.policies import load_policy

LEARNING_RATES = (3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
WITHOUT_KL = replace(GRPO, kl=None)

__all__ = ["TrainingPanel", "group_table", "training_panel"]


class TrainingPanel(BackgroundTrainer):
    """Sliders, Train / Stop / Resume, live curves, and the last group as a table; made by `training_panel`."""

    def __init__(self, task: str, algorithm: GroupPolicyGradient, settings: TrainSettings) -> None:
        self.task, self.algorithm, self.settings = find_task(task), algorithm, settings
        self._has_before = False
        self.controls: dict[str, Control] = {
            "group size": int_control("group size", settings.group_size, 2, 32),
            "learning rate": choice_control("learning rate", settings.lr, sorted({*LEARNING_RATES, settings.lr})),
            "updates per rollout": int_control("updates per rollout", settings.updates_per_rollout, 1, 16),
            "seed": int_control("seed", settings.seed, 0, 99),
        }
        for name, high in (("eps_low", 0.99), ("eps_high", 1.0)):
            if name in (width := numbers(algorithm)):
                self.controls[name] = float_control(name, width[name], 0.01, high, 0.01)
        rows = [control.row for control in self.controls.values()]
        half = (len(rows) + 1) // 2
        columns = widgets.HBox([widgets.VBox(rows[:half]), widgets.VBox(rows[half:])], layout={"flex_flow": "row wrap"})
        curves = LearningCurves(11, 4, settings.steps)
        self._lines, self._before = curves.lines, curves.before
        super().__init__(curves, [columns])
        self._redraw("Press Train.")

    def _prepare(self) -> None:
        values = {name: control.value for name, control in self.controls.items()}
        widths = {name: values[name] for name in ("eps_low", "eps_high") if name in values}
        algorithm = self.algorithm.with_parameters(**widths)
        settings = replace(
            self.settings,
            group_size=values["group size"],
            lr=values["learning rate"],
            updates_per_rollout=values["updates per rollout"],
            seed=values["seed"],
        )
        self.run = train(load_policy(self.task.name), self.task, algorithm, settings)
        self._has_before = bool(self.records)
        with self._lock:
            self._curves.show_before([("", [self.records])] if self.records else [], settings.steps)
        self.records = []

    def _words_for(self, state: str) -> str:
        if self.run is None or not self.records:
            return f"{state} {self.algorithm.name} on {self.task.name}, {self.settings.steps} steps."
        settings = self.run.settings
        compare = " The run before is grey." if self._has_before else ""
        return (
            f"{state} Step {self.records[-1].step} of {settings.steps} (G {settings.group_size}, learning rate "
            f"{settings.lr:g}, {settings.updates_per_rollout} update{'s' if settings.updates_per_rollout > 1 else ''} a "
            f"rollout, seed {settings.seed}): {last_numbers(self.records)}.{compare}"
        )


@checked
def training_panel(
    task: str = "chain",
    *,
    algorithm: GroupPolicyGradient = WITHOUT_KL,
    settings: TrainSettings | None = None,
) -> TrainingPanel:
    """Return a panel that trains the task's shipped policy in the background while you watch.

    Every Train starts again from the warm start, and leaves the run before in grey to compare with. Raises ValueError for
    an unknown task.
    """
    return TrainingPanel(task, algorithm, settings or TrainSettings(evaluate_every=10))
