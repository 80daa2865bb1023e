"""training_panel: choose, press Train, and watch a real run; Stop and Resume at any step."""

from __future__ import annotations

import html
import threading
import time
from dataclasses import replace

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from rlviz.algorithms import GRPO, GroupPolicyGradient
from rlviz.plots.style import BLUE, GREY, LINE, TEXT, VERMILION, dress, new_figure
from rlviz.training import TrainingRun, TrainSettings, find_task, train
from rlviz.types import StepRecord
from rlviz.widgets.live import BlittedFigure, Control, LivePicture, choice_control, float_control, int_control
from small_models.policies import load_policy

LEARNING_RATES = (3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
REDRAW_SECONDS = 0.1
CELL = "padding: 2px 14px 2px 0"
WITHOUT_KL = replace(GRPO, kl=None)
PANELS = (
    (
        "Reward and accuracy",
        "reward, share right",
        1.02,
        {"reward": "reward", "held_out_accuracy": "accuracy, held out"},
    ),
    ("Entropy", "nats per token", 0.8, {"entropy": "entropy"}),
    (
        "Clipped tokens",
        "share",
        0.05,
        {"clip_fraction_high": "above limit", "clip_fraction_low": "below limit"},
    ),
)


class TrainingPanel(LivePicture):
    """Sliders, Train / Stop / Resume, live curves, and the last group as a table; made by `training_panel`.

    `run` is the run on show (None before the first), `records` its steps so far.
    """

    def __init__(self, task: str, algorithm: GroupPolicyGradient, settings: TrainSettings) -> None:
        self.task, self.algorithm, self.settings = find_task(task), algorithm, settings
        self.run: TrainingRun | None = None
        self.records: list[StepRecord] = []
        self._running = False
        self._has_before = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

        self.controls: dict[str, Control] = {
            "group size": int_control("group size", settings.group_size, 2, 32),
            "learning rate": choice_control("learning rate", settings.lr, sorted({*LEARNING_RATES, settings.lr})),
            "updates per rollout": int_control("updates per rollout", settings.updates_per_rollout, 1, 16),
            "seed": int_control("seed", settings.seed, 0, 99),
        }
        for name, high in (("eps_low", 0.99), ("eps_high", 1.0)):
            if hasattr(algorithm.bounds, name):
                self.controls[name] = float_control(name, getattr(algorithm.bounds, name), 0.01, high, 0.01)
        self.train_button = widgets.Button(description="Train", button_style="primary", tooltip="Start a new run")
        self.stop_button = widgets.Button(description="Stop", disabled=True, tooltip="Stop after the current step")
        self.resume_button = widgets.Button(description="Resume", disabled=True, tooltip="Go on with the stopped run")
        self.train_button.on_click(lambda button: self.start())
        self.stop_button.on_click(lambda button: self.stop())
        self.resume_button.on_click(lambda button: self.resume())
        self._table = widgets.HTML()
        rows = [control.row for control in self.controls.values()]
        half = (len(rows) + 1) // 2
        columns = widgets.HBox([widgets.VBox(rows[:half]), widgets.VBox(rows[half:])], layout={"flex_flow": "row wrap"})
        buttons = widgets.HBox([self.train_button, self.stop_button, self.resume_button])
        super().__init__(self._build_figure(), [columns, buttons], below=[self._table])
        self._redraw("Press Train.")

    def _build_figure(self) -> BlittedFigure:
        figure = new_figure(11, 4)
        self._axes: dict[str, Axes] = {}
        self._lines: dict[str, Line2D] = {}
        self._before: dict[str, Line2D] = {}
        for ax, (title, unit, top, metrics) in zip(figure.subplots(1, 3), PANELS, strict=True):
            dress(ax, title=title, x="step", y=unit)
            ax.set(xlim=(0, 1.03 * self.settings.steps), ylim=(0, top))
            for index, (metric, words) in enumerate(metrics.items()):
                self._axes[metric] = ax
                held_out = metric == "held_out_accuracy"
                style = {"marker": "o", "markersize": 7} if held_out else {"linestyle": ("-", "--")[index]}
                self._before[metric] = ax.plot([], [], color=GREY, alpha=0.6, linewidth=1.2, **style)[0]
                self._lines[metric] = ax.plot(
                    [], [], color=(BLUE, VERMILION)[index], linewidth=LINE, label=words, **style
                )[0]
            if len(metrics) > 1:
                below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2, "frameon": False}
                ax.legend(fontsize=TEXT - 2, columnspacing=1.2, handlelength=1.8, **below)
        return BlittedFigure(figure, list(self._lines.values()))

    def start(self) -> None:
        """Begin a new run with the controls' values; the run before stays on show in grey."""
        if self._running:
            return
        try:
            self._prepare()
        except Exception as error:  # shown where the person looks: nobody sees a callback's traceback
            self._redraw(f"This run cannot start: {error}")
        else:
            self._go()

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
        policy = load_policy(self.task.name)
        self.run = train(policy, self.task, algorithm, settings)
        self._has_before = bool(self.records)
        for metric, line in self._lines.items():
            self._before[metric].set_data(*line.get_data())
        self.records = []
        with self._lock:
            self._picture.freeze()

    def stop(self) -> None:
        """Stop after the step in progress; `resume` goes on from there."""
        self._stop.set()

    def resume(self) -> None:
        """Go on with the stopped run."""
        if self.run is not None and not self._running and self.run.step < self.run.settings.steps:
            self._go()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the run has stopped or ended (for scripts and tests; a notebook stays responsive without it)."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _go(self) -> None:
        self.wait()  # the thread before may still be saying that it has ended
        self._running = True
        self._stop.clear()
        self._set_buttons(running=True)
        self._thread = threading.Thread(target=self._work, daemon=True, name="rlviz training panel")
        self._thread.start()

    def _work(self) -> None:
        assert self.run is not None
        drawn = 0.0
        try:
            for record in self.run:
                self.records.append(record)
                if time.monotonic() - drawn >= REDRAW_SECONDS:
                    self._redraw("Training.")
                    drawn = time.monotonic()
                if self._stop.is_set():
                    break
            ended = self.run.step >= self.run.settings.steps
            self._redraw("Done." if ended else "Stopped; Resume goes on from here.")
        except Exception as error:  # shown where the person looks: nobody sees a thread's traceback
            self._redraw(f"The run broke off: {error}")
        finally:
            self._running = False
            self._set_buttons(running=False)

    def _set_buttons(self, *, running: bool) -> None:
        can_resume = self.run is not None and self.run.step < self.run.settings.steps
        self.train_button.disabled = running
        self.stop_button.disabled = not running
        self.resume_button.disabled = running or not can_resume

    def _redraw(self, state: str) -> None:
        with self._lock:
            self._move_lines()
        words = self._words_for(state)
        if self.records:
            self._table.value = group_table(self.records[-1])
        self.show(
            alt=f"Three graphs of a training run against the step: reward and accuracy, entropy, clipped tokens. {words}",
            caption=words,
        )

    def _move_lines(self) -> None:
        grown = False
        for metric, line in self._lines.items():
            points = [(record.step, value) for record in self.records if (value := getattr(record, metric)) is not None]
            steps, values = np.array(points, dtype=float).reshape(-1, 2).T
            line.set_data(steps, values)
            ax = self._axes[metric]
            low, high = ax.get_ylim()
            if len(values) and (values.max() > high or values.min() < low):
                ax.set_ylim(min(low, 1.25 * values.min()), max(high, 1.25 * values.max()))
                grown = True
        if grown:
            self._picture.freeze()

    def _words_for(self, state: str) -> str:
        if self.run is None or not self.records:
            return f"{state} {self.algorithm.name} on {self.task.name}, {self.settings.steps} steps."
        last, settings = self.records[-1], self.run.settings
        held_out = [record.held_out_accuracy for record in self.records if record.held_out_accuracy is not None]
        measured = f", held-out accuracy {held_out[-1]:.2f}" if held_out else ""
        compare = " The run before is grey." if self._has_before else ""
        return (
            f"{state} Step {last.step} of {settings.steps} (G {settings.group_size}, learning rate {settings.lr:g}, "
            f"{settings.updates_per_rollout} update{'s' if settings.updates_per_rollout > 1 else ''} a rollout, seed "
            f"{settings.seed}): reward {last.reward:.2f}{measured}, entropy {last.entropy:.2f} nats, clipped "
            f"{last.clip_fraction_low:.1%} below and {last.clip_fraction_high:.1%} above.{compare}"
        )


def group_table(record: StepRecord) -> str:
    """Return an HTML table of a record's group: response, reward, advantage, length."""
    columns = ("response", "graded", "reward", "advantage", "tokens")
    head = "".join(f'<th scope="col" style="text-align: left; {CELL}">{name}</th>' for name in columns)
    rows = []
    for response in record.group:
        verdict = "right" if response.correct else "wrong" if response.well_formed else "not well formed"
        cells = (
            f"<code>{html.escape(response.text)}{' (cut off)' if response.truncated else ''}</code>",
            verdict,
            f"{response.reward:.2f}",
            f"{response.advantage:+.2f}".replace("-", "−"),
            str(response.length),
        )
        rows.append("<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>")
    prompt, gold = html.escape(record.prompt), html.escape(record.gold)
    caption = f"Step {record.step}: the {len(record.group)} responses to {prompt} (right answer {gold})"
    return (
        '<div style="max-height: 270px; overflow-y: auto"><table style="font-size: 14px; margin-top: 6px">'
        f'<caption style="text-align: left; font-weight: bold; white-space: nowrap">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


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
